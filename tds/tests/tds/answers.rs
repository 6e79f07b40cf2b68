//! What is an answer, and what is new: the same for each job, whatever servers and firewalls send.

use std::{fs, io::Write as _, process::Command};

use flate2::{Compression, write::GzEncoder};
use tds_sim::Config;
use tokio::time::{Duration, sleep, timeout};

use crate::{
    Bench, HANGS, at_once, err, out, output,
    serving::Serving,
    text,
    upstream::{Upstream, answer},
};

const DATA: &[u8] = b"{\"data\":[1,2,3,4,5,6,7,8,9]}";

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::default());
    coder.write_all(data).expect("memory");
    coder.finish().expect("memory")
}

/// A response of this length with these other headers.
fn sized(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let headers = format!("{headers}content-length: {}\r\n", body.len());
    answer(status, &headers, body)
}

fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).expect("a path")
}

impl Bench {
    /// Runs a job against another service.
    fn against(&self, upstream: &Upstream, arguments: &[&str]) -> Command {
        let mut run = self.tds(arguments);
        run.env("TDS_BASE_URL", &upstream.url);
        run
    }

    /// Runs a job that downloads one path into a file, and returns its exit code, its errors and the file.
    async fn one_file(
        &self,
        upstream: &Upstream,
        job: &str,
        path: &str,
        more: &[&str],
    ) -> (Option<i32>, String, Option<Vec<u8>>) {
        let (list, out) = (self.path("one.list"), self.path("out"));
        fs::write(&list, format!("{path}\tx\n")).expect("a file");
        fs::create_dir_all(&out).expect("a folder");
        let file = out.join("x");
        let arguments = match job {
            "get" => vec!["get", path, "--out", text(&file)],
            "poll" => vec![
                "poll",
                "--list",
                text(&list),
                "--rounds",
                "1",
                "--out",
                text(&out),
            ],
            job => vec![job, "--list", text(&list), "--out", text(&out)],
        };
        let no_wait: &[&str] = match job == "bulk" && !more.contains(&"--wait-outage") {
            true => &["--wait-outage", "0"],
            false => &[],
        };
        let run = [&arguments[..], no_wait, more].concat();
        let run = output(self.against(upstream, &run)).await;
        (run.status.code(), err(&run), fs::read(&file).ok())
    }

    fn serve(&self, upstream: &Upstream, more: &[&str]) -> Serving {
        let arguments = ["backend", "--listen", "127.0.0.1:0", "--deadline", "20s"];
        Serving::start(self.against(upstream, &[&arguments[..], more].concat()))
    }
}

#[tokio::test]
async fn a_refused_range_is_requested_once_from_the_start() {
    let role = "content-type: application/json\r\n";
    let cases = [
        ("400 Bad Request", "", "no ranges"),
        ("403 Forbidden", "", "<html>blocked</html>"),
        (
            "403 Forbidden",
            role,
            "{\"message\":\"Missing required realm role\"}",
        ),
        ("405 Method Not Allowed", "", ""),
        ("412 Precondition Failed", "", ""),
        ("416 Range Not Satisfiable", "", ""),
        (
            "416 Range Not Satisfiable",
            "content-range: bytes */3\r\n",
            "",
        ),
        ("501 Not Implemented", "", ""),
        ("204 No Content", "", ""),
        ("304 Not Modified", "", ""),
        (
            "206 Partial Content",
            "etag: \"v1\"\r\ncontent-encoding: gzip\r\ncontent-range: bytes 5-8/9\r\n",
            "gzip",
        ),
        (
            "206 Partial Content",
            "etag: \"v1\"\r\ncontent-type: multipart/byteranges; boundary=x\r\n",
            "--x",
        ),
    ];
    at_once(
        cases.into_iter().enumerate(),
        |(number, (status, headers, body))| async move {
            let bench = Bench::new(&format!("answers-range-{number}"), Config::default()).await;
            let upstream = Upstream::start(move |head, nth| match nth {
                0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 9\r\n", b"12345"),
                _ if head.contains("\r\nrange: ") && status.starts_with('3') => {
                    answer(status, headers, b"")
                }
                _ if head.contains("\r\nrange: ") => sized(status, headers, body.as_bytes()),
                _ => sized("200 OK", "etag: \"v1\"\r\n", b"123456789"),
            });
            let (code, told, file) = bench.one_file(&upstream, "bulk", "/x", &[]).await;
            assert_eq!(
                (code, file.as_deref()),
                (Some(0), Some(&b"123456789"[..])),
                "{status}: {told}"
            );
            let heads = upstream.heads();
            let last = heads.last().expect("a request");
            assert!(
                !last.contains("\r\nif-range: ") && !last.contains("\r\nrange: "),
                "{last}"
            );
            // A range that leaves its reason open is tried a second time.
            let asked = if status.starts_with("416") && headers.is_empty() {
                4
            } else {
                3
            };
            assert_eq!(heads.len(), asked, "{status}: {heads:?}");
        },
    )
    .await;
}

#[tokio::test]
async fn other_failures_of_a_range_cost_no_whole_download_and_a_part_survives_refusals() {
    let cases = [
        ("403 Forbidden", 1),
        ("404 Not Found", 0),
        ("401 Unauthorized", 0),
        ("429 Too Many Requests", 0),
        ("503 Service Unavailable", 0),
    ];
    at_once(
        cases.into_iter().enumerate(),
        |(number, (status, whole))| async move {
            let bench = Bench::new(&format!("answers-part-{number}"), Config::default()).await;
            let upstream = Upstream::start(move |head, nth| match nth {
                0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 9\r\n", b"12345"),
                1..20 if status.starts_with("429") => sized(status, "retry-after: 3600\r\n", b"no"),
                1..20 => sized(status, "", b"no"),
                _ if head.contains("\r\nrange: bytes=5-\r\n") => sized(
                    "206 Partial Content",
                    "etag: \"v1\"\r\ncontent-range: bytes 5-8/9\r\n",
                    b"6789",
                ),
                _ => sized("200 OK", "etag: \"v1\"\r\n", b"from anew"),
            });
            let (code, told, file) = bench.one_file(&upstream, "bulk", "/x", &[]).await;
            assert!(code > Some(0) && file.is_none(), "{status}: {told}");
            let heads = upstream.heads();
            let unconditional = |head: &&String| !head.contains("\r\nrange: ");
            assert_eq!(
                heads[1..].iter().filter(unconditional).count(),
                whole,
                "{status}: {heads:?}"
            );
            // Until the service mends itself.
            while upstream.heads().len() < 20 {
                drop(output(bench.against(&upstream, &["get", "/other"])).await);
            }
            let (code, told, file) = bench.one_file(&upstream, "bulk", "/x", &[]).await;
            assert_eq!(
                (code, file.as_deref()),
                (Some(0), Some(&b"123456789"[..])),
                "{status}: {told}"
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_304_that_was_not_requested_is_no_answer() {
    let bench = Bench::new("answers-304", Config::default()).await;
    let upstream = Upstream::start(|_, _| answer("304 Not Modified", "", b""));
    for job in ["get", "bulk", "poll"] {
        let (code, told, file) = bench.one_file(&upstream, job, "/a", &[]).await;
        assert_eq!((code, file), (Some(1), None), "{job}: {told}");
        assert!(told.contains("304"), "{job}: {told}");
    }
    let check = output(bench.against(&upstream, &["check", "/a"])).await;
    assert_eq!(check.status.code(), Some(1), "{}", err(&check));
    let backend = bench.serve(&upstream, &[]);
    assert_eq!(backend.get("/a").await.status, 502);
}

#[tokio::test]
async fn a_304_to_data_without_a_version_is_a_failure_and_the_data_stays() {
    let bench = Bench::new("answers-unversioned", Config::default()).await;
    let upstream = Upstream::start(|_, nth| match nth {
        0 => sized("200 OK", "", DATA),
        _ => answer("304 Not Modified", "", b""),
    });
    let backend = bench.serve(&upstream, &["--fresh", "1ms", "--stale", "1h"]);
    assert_eq!(backend.get("/a").await.body, DATA);
    sleep(Duration::from_millis(5)).await;
    let stale = backend.get("/a").await;
    assert_eq!((stale.status, &*stale.body), (200, DATA));
    assert_eq!(upstream.heads().len(), 2);
    sleep(Duration::from_millis(200)).await;
    let log = backend.log();
    assert!(log.contains("304"), "{log}");
}

const MODIFIED: &str = "Sat, 28 Nov 2026 09:00:00 GMT";

/// A service whose data has a date of change and no tag.
fn dated() -> Upstream {
    Upstream::start(|head, _| {
        let versions =
            format!("last-modified: {MODIFIED}\r\ndate: Sat, 28 Nov 2026 09:00:01 GMT\r\n");
        match head.contains(&format!("\r\nif-modified-since: {MODIFIED}\r\n")) {
            true => answer("304 Not Modified", &versions, b""),
            false => sized("200 OK", &versions, DATA),
        }
    })
}

#[tokio::test]
async fn data_with_a_date_alone_is_fetched_once_by_poll_and_backend() {
    let bench = Bench::new("answers-dated", Config::default()).await;
    let upstream = dated();
    let poll = ["--rounds", "4", "--every", "50ms"];
    let list = bench.path("list");
    fs::write(&list, "/a\n").expect("a file");
    let run = [&["poll", "--list", text(&list)][..], &poll].concat();
    let run = output(bench.against(&upstream, &run)).await;
    assert_eq!(
        (run.status.code(), &*out(&run)),
        (Some(0), "/a\t28\n"),
        "{}",
        err(&run)
    );
    let conditional = |upstream: &Upstream| {
        let heads = upstream.heads();
        let dated = heads
            .iter()
            .filter(|head| head.contains("\r\nif-modified-since: "));
        (dated.count(), heads.len())
    };
    assert_eq!(conditional(&upstream), (3, 4));

    let upstream = dated();
    let backend = bench.serve(&upstream, &["--fresh", "1ms"]);
    for _ in 0..3 {
        let user = backend.get("/a").await;
        assert_eq!((user.status, &*user.body), (200, DATA));
        assert!(user.head.contains("last-modified: "), "{}", user.head);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(conditional(&upstream), (2, 3));
    // A date is no freshness: the default is that of the option.
    let upstream = dated();
    let backend = bench.serve(&upstream, &["--fresh", "1h"]);
    for _ in 0..3 {
        assert_eq!(backend.get("/a").await.status, 200);
    }
    assert_eq!(conditional(&upstream), (0, 1));
}

#[tokio::test]
async fn what_says_its_coding_is_decoded_for_every_job() {
    let bench = Bench::new("answers-coded", Config::default()).await;
    let upstream = Upstream::start(|head, _| match path_of(head) {
        "/twice" => sized(
            "200 OK",
            "content-encoding: gzip, X-Gzip\r\n",
            &gzip(&gzip(DATA)),
        ),
        "/members" => sized(
            "200 OK",
            "content-encoding: gzip\r\n",
            &[gzip(&DATA[..9]), gzip(&DATA[9..])].concat(),
        ),
        "/identity" => sized("200 OK", "content-encoding: identity\r\n", DATA),
        "/page" => sized(
            "200 OK",
            "content-encoding: gzip\r\n",
            &gzip(b"<html><title>Hello</title>"),
        ),
        "/zstd" => sized("200 OK", "content-encoding: zstd\r\n", DATA),
        "/short" => sized("200 OK", "content-encoding: gzip\r\n", &gzip(DATA)[..20]),
        "/raw" => sized("200 OK", "", &gzip(DATA)),
        _ => sized(
            "200 OK",
            "content-encoding: gzip\r\netag: \"v1\"\r\n",
            &gzip(DATA),
        ),
    });
    let backend = bench.serve(&upstream, &[]);
    let raw = gzip(DATA);
    for (path, data, code, status) in [
        ("/a", Some(DATA), 0, 200),
        ("/twice", Some(DATA), 0, 200),
        ("/members", Some(DATA), 0, 200),
        ("/identity", Some(DATA), 0, 200),
        ("/page", None, 5, 503),
        ("/zstd", None, 1, 502),
        ("/short", None, 5, 503),
        ("/raw", Some(&*raw), 0, 200),
    ] {
        for job in ["get", "bulk", "poll"] {
            drop(fs::remove_dir_all(bench.path("out")));
            let (exit, told, file) = bench.one_file(&upstream, job, path, &[]).await;
            assert_eq!(
                (exit, file.as_deref()),
                (Some(code), data),
                "{job} {path}: {told}"
            );
            assert!(path != "/zstd" || told.contains("zstd"), "{job}: {told}");
        }
        let get = output(bench.against(&upstream, &["get", path])).await;
        assert_eq!(
            (get.status.code(), &*get.stdout),
            (Some(code), data.unwrap_or_default()),
            "{path}"
        );
        let check = output(bench.against(&upstream, &["check", path])).await;
        assert_eq!(check.status.code(), Some(code), "{path}: {}", err(&check));
        let user = backend.get(path).await;
        assert_eq!(user.status, status, "{path}: {}", user.text());
        assert!(data.is_none_or(|data| user.body == data), "{path}");
        assert!(
            !user.head.contains("content-encoding: "),
            "{path}: {}",
            user.head
        );
    }
}

#[tokio::test]
async fn a_decoded_file_is_never_resumed_and_a_part_gets_no_coded_bytes() {
    for compress in [&[][..], &["--compress"]] {
        let bench = Bench::new(
            &format!("answers-resume-{}", compress.len()),
            Config::default(),
        )
        .await;
        let long: Vec<u8> = (0..60_000_u32)
            .flat_map(|n| (n * n).to_le_bytes())
            .collect();
        let (coded, whole) = (gzip(&long), long.clone());
        let upstream = Upstream::start(move |head, nth| {
            let start = head
                .split_once("range: bytes=")
                .and_then(|(_, range)| range.split_once('-'));
            let start: usize = start.map_or(0, |(start, _)| start.parse().expect("a number"));
            let total = coded.len();
            let headers = format!(
                "etag: \"v1\"\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{total}\r\n",
                total - start,
                total - 1
            );
            let status = if start > 0 {
                "206 Partial Content"
            } else {
                "200 OK"
            };
            let end = if nth == 0 { total / 2 } else { total };
            answer(status, &headers, &coded[start..end])
        });
        let (code, told, file) = bench.one_file(&upstream, "bulk", "/x", compress).await;
        assert_eq!(code, Some(0), "{told}");
        assert!(file.is_some_and(|file| file == whole), "byte-equal");
        let heads = upstream.heads();
        assert!(
            heads.iter().all(|head| !head.contains("\r\nrange: ")),
            "{heads:?}"
        );
        assert_eq!(heads.len(), 2);
    }
}

#[tokio::test]
async fn compressed_files_stay_compressed_on_the_disk() {
    let bench = Bench::new("answers-files", Config::default()).await;
    let upstream = Upstream::start(|head, nth| {
        let media = if path_of(head) == "/typed" {
            "application/x-gzip"
        } else {
            "text/csv"
        };
        let coded = gzip(DATA);
        let headers =
            format!("content-type: {media}\r\ncontent-encoding: x-gzip\r\netag: \"v{nth}\"\r\n");
        sized("200 OK", &headers, &coded)
    });
    for path in ["/a.csv.gz", "/b.TGZ?x=1", "/c.br", "/d.zst", "/typed"] {
        for job in ["get", "bulk"] {
            drop(fs::remove_dir_all(bench.path("out")));
            let (code, told, file) = bench.one_file(&upstream, job, path, &[]).await;
            assert_eq!(
                (code, file),
                (Some(0), Some(gzip(DATA))),
                "{job} {path}: {told}"
            );
        }
        let get = output(bench.against(&upstream, &["get", path])).await;
        assert_eq!((get.status.code(), &*get.stdout), (Some(0), DATA), "{path}");
    }
}

// Servers name the coding of such a file, and its ranges are those of the coded bytes.
#[tokio::test]
async fn part_of_a_compressed_file_is_resumed() {
    let bench = Bench::new("answers-gz-part", Config::default()).await;
    let upstream = Upstream::start(|head, nth| {
        let coded = gzip(DATA);
        let headers = "etag: \"v1\"\r\ncontent-encoding: gzip\r\n";
        if nth == 0 {
            let headers = format!("{headers}content-length: {}\r\n", coded.len());
            return answer("200 OK", &headers, &coded[..10]);
        }
        assert!(head.contains("\r\nrange: bytes=10-\r\n"), "{head}");
        let range = format!(
            "{headers}content-range: bytes 10-{}/{}\r\n",
            coded.len() - 1,
            coded.len()
        );
        sized("206 Partial Content", &range, &coded[10..])
    });
    let (code, told, file) = bench
        .one_file(&upstream, "bulk", "/days.json.gz", &[])
        .await;
    assert_eq!((code, file), (Some(0), Some(gzip(DATA))), "{told}");
}

#[tokio::test]
async fn empty_data_replaces_no_other_data() {
    let bench = Bench::new("answers-empty", Config::default()).await;
    let upstream = Upstream::start(|head, _| match path_of(head) {
        "/coded" => sized("200 OK", "content-encoding: gzip\r\n", &gzip(b"")),
        "/chunked" => answer("200 OK", "transfer-encoding: chunked\r\n", b"0\r\n\r\n"),
        _ => sized("200 OK", "etag: \"v2\"\r\n", b""),
    });
    let file = bench.path("out/x");
    for job in ["get", "bulk", "poll"] {
        for path in ["/plain", "/coded", "/chunked"] {
            let good = || {
                drop(fs::remove_dir_all(bench.path("out")));
                fs::create_dir_all(bench.path("out")).expect("a folder");
                fs::write(&file, "good").expect("a file");
            };
            good();
            let json: &[&str] = if job == "get" { &["--json"] } else { &[] };
            let (code, told, there) = bench.one_file(&upstream, job, path, json).await;
            assert_eq!(
                (code, there),
                (Some(1), Some(b"good".to_vec())),
                "{job} {path}: {told}"
            );
            assert!(told.contains("--allow-empty"), "{job} {path}: {told}");
            assert_eq!(told.contains("\"kind\":\"empty\""), job == "get", "{told}");
            good();
            let (code, told, there) = bench
                .one_file(&upstream, job, path, &["--allow-empty"])
                .await;
            assert_eq!(
                (code, there),
                (Some(0), Some(Vec::new())),
                "{job} {path}: {told}"
            );
            // Nothing replaces nothing.
            let (code, told, there) = bench.one_file(&upstream, job, path, &[]).await;
            assert_eq!(
                (code, there),
                (Some(0), Some(Vec::new())),
                "{job} {path}: {told}"
            );
        }
    }
}

#[tokio::test]
async fn a_feed_or_a_users_resource_that_becomes_empty_is_a_failure() {
    let bench = Bench::new("answers-emptied", Config::default()).await;
    let emptied = || {
        Upstream::start(|_, nth| match nth {
            1 => sized("200 OK", "", b""),
            _ => sized("200 OK", "", DATA),
        })
    };
    let (list, upstream) = (bench.path("list"), emptied());
    fs::write(&list, "/a\n").expect("a file");
    for (more, changes, told) in [
        (&[][..], "/a\t28\n", true),
        (&["--allow-empty"], "/a\t28\n/a\t0\n/a\t28\n", false),
    ] {
        let upstream = emptied();
        let arguments = [
            "poll",
            "--list",
            text(&list),
            "--rounds",
            "3",
            "--every",
            "50ms",
        ];
        let run = output(bench.against(&upstream, &[&arguments[..], more].concat())).await;
        assert_eq!(
            (run.status.code(), &*out(&run)),
            (Some(0), changes),
            "{}",
            err(&run)
        );
        assert_eq!(err(&run).contains("outage over"), told, "{}", err(&run));
    }
    let backend = bench.serve(&upstream, &["--fresh", "1ms"]);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(backend.get("/a").await.status);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(statuses, [200, 502]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(backend.get("/a").await.body, DATA);
}

#[tokio::test]
async fn data_that_is_being_prepared_is_requested_again_when_the_service_says_so() {
    let prepared = |ready: usize| {
        Upstream::start(move |_, nth| match nth < ready {
            true => sized(
                "202 Accepted",
                "retry-after: 1\r\n",
                b"{\"status\":\"preparing\"}",
            ),
            false => sized("200 OK", "", DATA),
        })
    };
    at_once(
        ["get", "bulk", "poll", "check", "backend"],
        move |job| async move {
            let bench = Bench::new(&format!("answers-202-{job}"), Config::default()).await;
            let upstream = prepared(2);
            match job {
                "check" => {
                    let check = output(bench.against(&upstream, &["check", "/a"])).await;
                    assert_eq!(check.status.code(), Some(0), "{}", err(&check));
                }
                "backend" => {
                    let user = bench.serve(&upstream, &[]).get("/a").await;
                    assert_eq!((user.status, &*user.body), (200, DATA));
                }
                job => {
                    let more: &[&str] = if job == "bulk" {
                        &["--wait-outage", "1m"]
                    } else {
                        &[]
                    };
                    let (code, told, file) = bench.one_file(&upstream, job, "/a", more).await;
                    assert_eq!(
                        (code, file.as_deref()),
                        (Some(0), Some(DATA)),
                        "{job}: {told}"
                    );
                }
            }
            assert_eq!(upstream.heads().len(), 3, "{job}");

            let upstream = prepared(usize::MAX);
            match job {
                "check" => {
                    let check =
                        output(bench.against(&upstream, &["check", "/a", "--deadline", "2500ms"]))
                            .await;
                    assert_eq!(check.status.code(), Some(5), "{}", err(&check));
                    assert!(err(&check).contains("202"), "{}", err(&check));
                }
                "get" => {
                    let (code, told, _) = bench
                        .one_file(&upstream, job, "/b", &["--deadline", "2500ms"])
                        .await;
                    assert_eq!(code, Some(5), "{told}");
                }
                _ => {}
            }
        },
    )
    .await;
}

#[tokio::test]
async fn files_that_are_being_prepared_hold_up_no_other_file_and_end_with_five() {
    let bench = Bench::new("answers-prepare", Config::default()).await;
    let upstream = Upstream::start(|head, _| match path_of(head).starts_with("/slow") {
        true => sized("202 Accepted", "", b""),
        false => sized("200 OK", "", DATA),
    });
    let list = bench.path("list");
    let slow = (0..30).map(|n| format!("/slow-{n}\n"));
    fs::write(&list, slow.collect::<String>() + "/a\n/b\n/c\n").expect("a file");
    let files = bench.path("files");
    let arguments = [
        "bulk",
        "--list",
        text(&list),
        "--out",
        text(&files),
        "--jobs",
        "2",
        "--wait-outage",
        "4s",
        "--json",
    ];
    let run = output(bench.against(&upstream, &arguments)).await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read(files.join(name)).expect("it is there"), DATA);
    }
    assert!(out(&run).contains("\"pending\":30"), "{}", out(&run));
    assert!(!err(&run).contains("outage"), "{}", err(&run));
    let heads = upstream.heads();
    let mut after = heads.iter().skip_while(|head| path_of(head) != "/c");
    assert!(
        after.any(|head| path_of(head).starts_with("/slow")),
        "{heads:?}"
    );
}

#[tokio::test]
async fn a_203_is_data_and_other_successes_are_not() {
    let bench = Bench::new("answers-203", Config::default()).await;
    let upstream = Upstream::start(|head, _| {
        let status = match path_of(head) {
            "/203" => "203 Non-Authoritative Information",
            "/204" => return answer("204 No Content", "", b""),
            "/206" => "206 Partial Content",
            "/207" => "207 Multi-Status",
            _ => "226 IM Used",
        };
        sized(status, "content-range: bytes 0-27/28\r\n", DATA)
    });
    let backend = bench.serve(&upstream, &[]);
    for (path, code, status) in [
        ("/203", 0, 200),
        ("/204", 1, 502),
        ("/206", 1, 502),
        ("/207", 1, 502),
        ("/226", 1, 502),
    ] {
        for job in ["get", "bulk", "poll"] {
            drop(fs::remove_dir_all(bench.path("out")));
            let (exit, told, file) = bench.one_file(&upstream, job, path, &[]).await;
            let data = (code == 0).then(|| DATA.to_vec());
            assert_eq!((exit, file), (Some(code), data), "{job} {path}: {told}");
        }
        assert_eq!(backend.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_transfer_coding_is_refused_by_name() {
    let bench = Bench::new("answers-transfer", Config::default()).await;
    let upstream = Upstream::start(|_, _| {
        let coded = gzip(DATA);
        let chunk = [
            format!("{:x}\r\n", coded.len()).as_bytes(),
            &coded,
            b"\r\n0\r\n\r\n",
        ]
        .concat();
        answer("200 OK", "transfer-encoding: gzip, chunked\r\n", &chunk)
    });
    for job in ["get", "bulk", "poll"] {
        let (code, told, file) = bench.one_file(&upstream, job, "/a", &[]).await;
        assert_eq!((code, file), (Some(1), None), "{job}: {told}");
        assert!(told.contains("transfer coding gzip"), "{job}: {told}");
    }
    assert_eq!(bench.serve(&upstream, &[]).get("/a").await.status, 502);
}

/// Each reply of a token endpoint, with the exit code of a job and the words that its error shows.
#[tokio::test]
async fn a_refused_or_failed_token_is_told_in_the_words_of_the_server_and_of_this_program() {
    let bench = Bench::new("answers-token", Config::default()).await;
    let list = bench.path("list");
    fs::write(&list, "/a\n").expect("a file");
    let files = bench.path("files");
    let bulk = ["bulk", "--list", text(&list), "--out", text(&files)];
    for (status, headers, body, code, told) in [
        (
            "401 Unauthorized",
            "",
            r#"{"error":"unauthorized_client","error_description":"Invalid client or Invalid client credentials"}"#,
            4,
            "unauthorized_client: Invalid client or Invalid client credentials",
        ),
        (
            "401 Unauthorized",
            "",
            "",
            4,
            "check TDS_CLIENT_ID, its secret",
        ),
        (
            "400 Bad Request",
            "",
            r#"{"error":"invalid_scope","error_description":"Invalid scopes: bus"}"#,
            4,
            "invalid_scope: Invalid scopes: bus",
        ),
        (
            "200 OK",
            "",
            r#"{"error":"invalid_client","error_description":"no such client"}"#,
            4,
            "invalid_client: no such client",
        ),
        (
            "302 Found",
            "location: /x\r\n",
            "",
            4,
            "configure the final address",
        ),
        (
            "200 OK",
            "",
            r#"{"access_token":"t","token_type":"mac"}"#,
            4,
            "bearer tokens",
        ),
        (
            "403 Forbidden",
            "",
            "<html>Blocked</html>",
            5,
            "check address and realm",
        ),
        (
            "404 Not Found",
            "",
            r#"{"error":"Realm does not exist"}"#,
            5,
            "Realm does not exist",
        ),
        ("429 Too Many Requests", "retry-after: 30\r\n", "", 5, "429"),
        (
            "503 Service Unavailable",
            "",
            r#"{"error":"temporarily_unavailable","error_description":"queue full"}"#,
            5,
            "temporarily_unavailable: queue full",
        ),
        ("200 OK", "", "<html>hi</html>", 5, "it is a page"),
    ] {
        let endpoint = Upstream::start(move |_, _| sized(status, headers, body.as_bytes()));
        for job in [
            &["check", "/a", "--deadline", "15s"][..],
            &["get", "/a", "--deadline", "15s"],
            &bulk,
        ] {
            // A failure is retried for as long as an outage may last.
            if code == 5 && job[0] == "bulk" {
                continue;
            }
            drop(fs::remove_dir_all(bench.path("state")));
            let mut run = bench.tds(job);
            run.env("TDS_AUTH_URL", &endpoint.url);
            let run = output(run).await;
            assert_eq!(
                run.status.code(),
                Some(code),
                "{status} {job:?}: {}",
                err(&run)
            );
            let first = err(&run).lines().next().unwrap_or_default().to_owned();
            assert!(first.contains(told), "{status} {job:?}: {}", err(&run));
            let is_ours = first.contains("check TDS_CLIENT_ID, its secret and the address");
            assert!(
                is_ours || code == 5 || status.starts_with(['2', '3']),
                "{first}"
            );
            assert!(!first.contains(['`']) && !first.contains("::"), "{first}");
        }
        let mut run = bench.tds(&["backend", "--listen", "127.0.0.1:0"]);
        drop(fs::remove_dir_all(bench.path("state")));
        run.env("TDS_AUTH_URL", &endpoint.url);
        let backend = Serving::start(run);
        let health = async {
            while !backend.get("/readyz").await.text().contains("no token: ") {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(HANGS, health).await.expect("it fails");
        sleep(Duration::from_millis(100)).await;
        let log = backend.log();
        assert!(log.contains(told), "{status}: {log}");
    }
}
