//! Answers, and which of them are new: each job decides alike, whatever servers and firewalls send.

use std::{fs, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use tokio::time::{Duration, sleep};

use crate::{
    Bench, at_once, err, out, output, path_of, says,
    serving::Serving,
    until,
    upstream::{Upstream, answer, sized},
    waits,
};

const DATA: &[u8] = b"{\"data\":[1,2,3,4,5,6,7,8,9]}";

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::default());
    coder.write_all(data).expect("memory");
    coder.finish().expect("memory")
}

/// The first byte of the range of a request.
pub(crate) fn range(head: &str) -> Option<usize> {
    let (_, range) = head.split_once("\r\nrange: bytes=")?;
    range.split_once('-')?.0.parse().ok()
}

/// Jobs that write a file.
const JOBS: [&str; 3] = ["get", "bulk", "poll"];

impl Bench {
    /// Runs a job that downloads one path into a file. Returns its exit code, its errors and the file.
    async fn one_file(&self, job: &str, path: &str, more: &str) -> (i32, String, Option<Vec<u8>>) {
        self.list(&format!("{path}\tx\n"));
        fs::create_dir_all(self.path("files")).expect("a folder");
        let run = match job {
            "get" => self.tds(&format!("get {path} --out files/x {more}")),
            "bulk" if more.contains("--wait-outage") => {
                self.tds(&format!("bulk --list list --out files {more}"))
            }
            "bulk" => self.tds(&format!(
                "bulk --list list --out files --wait-outage 0 {more}"
            )),
            _ => self.tds(&format!("poll --list list --out files --rounds 1 {more}")),
        };
        let run = output(run).await;
        let code = run.status.code().expect("no signal");
        (code, err(&run), fs::read(self.path("files/x")).ok())
    }

    /// The same in an empty folder.
    async fn anew(&self, job: &str, path: &str) -> (i32, String, Option<Vec<u8>>) {
        drop(fs::remove_dir_all(self.path("files")));
        self.one_file(job, path, "").await
    }
}

#[tokio::test]
async fn a_refused_range_is_requested_once_from_the_start() {
    let role = "{\"message\":\"Missing required realm role\"}";
    let part = "etag: \"v1\"\r\ncontent-encoding: gzip\r\ncontent-range: bytes 5-8/9\r\n";
    let several = "etag: \"v1\"\r\ncontent-type: multipart/byteranges; boundary=x\r\n";
    let cases = [
        ("400 Bad Request", "", "no ranges"),
        ("403 Forbidden", "", "<html>blocked</html>"),
        ("403 Forbidden", "content-type: application/json\r\n", role),
        ("405 Method Not Allowed", "", ""),
        ("406 Not Acceptable", "", ""),
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
        ("206 Partial Content", part, "gzip"),
        ("206 Partial Content", several, "--x"),
    ];
    at_once(cases, |(status, headers, body)| async move {
        let bench = Bench::of(move |head, nth| match nth {
            0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 9\r\n", b"12345"),
            _ if range(head).is_none() => sized("200 OK", "etag: \"v1\"\r\n", b"123456789"),
            _ if status.starts_with('3') => answer(status, headers, b""),
            _ => sized(status, headers, body.as_bytes()),
        })
        .await;
        let (code, told, file) = bench.one_file("bulk", "/x", "").await;
        assert_eq!(
            (code, file),
            (0, Some(b"123456789".to_vec())),
            "{status}: {told}"
        );
        let heads = bench.heads();
        let last = heads.last().expect("a request");
        assert!(
            range(last).is_none() && !last.contains("\r\nif-range: "),
            "{last}"
        );
        // A range that leaves its reason open is tried a second time.
        let is_open = status.starts_with("416") && headers.is_empty();
        assert_eq!(heads.len(), 3 + usize::from(is_open), "{status}: {heads:?}");
    })
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
    at_once(cases, |(status, whole)| async move {
        let bench = Bench::of(move |head, nth| match nth {
            0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 9\r\n", b"12345"),
            1..20 if status.starts_with("429") => sized(status, "retry-after: 3600\r\n", b"no"),
            1..20 => sized(status, "", b"no"),
            _ if range(head) == Some(5) => {
                let part = "etag: \"v1\"\r\ncontent-range: bytes 5-8/9\r\n";
                sized("206 Partial Content", part, b"6789")
            }
            _ => sized("200 OK", "etag: \"v1\"\r\n", b"from anew"),
        })
        .await;
        let (code, told, file) = bench.one_file("bulk", "/x", "").await;
        assert!(code > 0 && file.is_none(), "{status}: {told}");
        let heads = bench.heads();
        let wholes = heads[1..].iter().filter(|head| range(head).is_none());
        assert_eq!(wholes.count(), whole, "{status}: {heads:?}");
        // Until the service mends itself.
        while bench.heads().len() < 20 {
            bench.run("get /other").await;
        }
        let (code, told, file) = bench.one_file("bulk", "/x", "").await;
        assert_eq!(
            (code, file),
            (0, Some(b"123456789".to_vec())),
            "{status}: {told}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_304_that_was_not_requested_is_no_answer() {
    let bench = Bench::of(|_, _| answer("304 Not Modified", "", b"")).await;
    for job in JOBS {
        let (code, told, file) = bench.one_file(job, "/a", "").await;
        assert_eq!((code, file), (1, None), "{job}: {told}");
        assert!(told.contains("304"), "{job}: {told}");
    }
    bench.ends(1, "check /a").await;
    assert_eq!(bench.serve("").get("/a").await.status, 502);
}

#[tokio::test]
async fn a_304_to_data_without_a_version_is_a_failure_and_the_data_stays() {
    let bench = Bench::of(|_, nth| match nth {
        0 => sized("200 OK", "", DATA),
        _ => answer("304 Not Modified", "", b""),
    })
    .await;
    let backend = bench.serve("--fresh 1ms --stale 1h");
    assert_eq!(backend.get("/a").await.body, DATA);
    sleep(Duration::from_millis(5)).await;
    let stale = backend.get("/a").await;
    assert_eq!((stale.status, &*stale.body), (200, DATA));
    assert_eq!(bench.heads().len(), 2);
    sleep(Duration::from_millis(200)).await;
    let log = backend.log();
    assert!(log.contains("304"), "{log}");
}

const MODIFIED: &str = "Sat, 28 Nov 2026 09:00:00 GMT";

/// A service whose data has a date of change and no tag.
async fn dated() -> Bench {
    Bench::of(|head, _| {
        let versions =
            format!("last-modified: {MODIFIED}\r\ndate: Sat, 28 Nov 2026 09:00:01 GMT\r\n");
        match head.contains(&format!("\r\nif-modified-since: {MODIFIED}\r\n")) {
            true => answer("304 Not Modified", &versions, b""),
            false => sized("200 OK", &versions, DATA),
        }
    })
    .await
}

#[tokio::test]
async fn data_with_a_date_alone_is_fetched_once_by_poll_and_backend() {
    let conditional = |bench: &Bench| {
        let heads = bench.heads();
        let dated = |head: &&String| head.contains("\r\nif-modified-since: ");
        (heads.iter().filter(dated).count(), heads.len())
    };
    let bench = dated().await;
    bench.list("/a\n");
    let run = bench
        .ends(0, "poll --list list --rounds 4 --every 50ms")
        .await;
    assert_eq!(out(&run), "/a\t28\n");
    assert_eq!(conditional(&bench), (3, 4));

    // A date is no freshness: the default is that of the option.
    for (fresh, calls) in [("1ms", (2, 3)), ("1h", (0, 1))] {
        let bench = dated().await;
        let backend = bench.serve(&format!("--fresh {fresh}"));
        for _ in 0..3 {
            let user = backend.get("/a").await;
            assert_eq!((user.status, &*user.body), (200, DATA));
            assert!(user.head.contains("last-modified: "), "{}", user.head);
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(conditional(&bench), calls);
    }
}

#[tokio::test]
async fn what_says_its_coding_is_decoded_for_every_job() {
    let coded = "content-encoding: gzip\r\n";
    let bench = Bench::of(move |head, _| match path_of(head) {
        "/twice" => {
            let twice = gzip(&gzip(DATA));
            sized("200 OK", "content-encoding: gzip, X-Gzip\r\n", &twice)
        }
        "/members" => sized(
            "200 OK",
            coded,
            &[gzip(&DATA[..9]), gzip(&DATA[9..])].concat(),
        ),
        "/identity" => sized("200 OK", "content-encoding: identity\r\n", DATA),
        "/page" => sized("200 OK", coded, &gzip(b"<html><title>Hello</title>")),
        "/zstd" => sized("200 OK", "content-encoding: zstd\r\n", DATA),
        "/short" => sized("200 OK", coded, &gzip(DATA)[..20]),
        "/raw" => sized("200 OK", "", &gzip(DATA)),
        _ => sized("200 OK", &format!("{coded}etag: \"v1\"\r\n"), &gzip(DATA)),
    })
    .await;
    let backend = bench.serve("");
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
        for job in JOBS {
            let (exit, told, file) = bench.anew(job, path).await;
            assert_eq!(
                (exit, file.as_deref()),
                (code, data),
                "{job} {path}: {told}"
            );
            assert!(path != "/zstd" || told.contains("zstd"), "{job}: {told}");
        }
        let get = bench.ends(code, &format!("get {path}")).await;
        assert_eq!(get.stdout, data.unwrap_or_default(), "{path}");
        bench.ends(code, &format!("check {path}")).await;
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
    for compress in ["", "--compress"] {
        let numbers = (0..60_000_u32).flat_map(|n| (n * n).to_le_bytes());
        let whole: Vec<u8> = numbers.collect();
        let coded = gzip(&whole);
        let bench = Bench::of(move |head, nth| {
            let (start, total) = (range(head).unwrap_or_default(), coded.len());
            let status = ["200 OK", "206 Partial Content"][usize::from(start > 0)];
            let headers = format!(
                "etag: \"v1\"\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{total}\r\n",
                total - start,
                total - 1
            );
            let end = if nth == 0 { total / 2 } else { total };
            answer(status, &headers, &coded[start..end])
        })
        .await;
        let (code, told, file) = bench.one_file("bulk", "/x", compress).await;
        assert_eq!(code, 0, "{told}");
        assert!(file.is_some_and(|file| file == whole), "byte-equal");
        let heads = bench.heads();
        assert!(heads.iter().all(|head| range(head).is_none()), "{heads:?}");
        assert_eq!(heads.len(), 2);
    }
}

#[tokio::test]
async fn compressed_files_stay_compressed_on_the_disk() {
    let bench = Bench::of(|head, nth| {
        let is_typed = path_of(head) == "/typed";
        let media = ["text/csv", "application/x-gzip"][usize::from(is_typed)];
        let headers =
            format!("content-type: {media}\r\ncontent-encoding: x-gzip\r\netag: \"v{nth}\"\r\n");
        sized("200 OK", &headers, &gzip(DATA))
    })
    .await;
    for path in ["/a.csv.gz", "/b.TGZ?x=1", "/c.br", "/d.zst", "/typed"] {
        for job in ["get", "bulk"] {
            let (code, told, file) = bench.anew(job, path).await;
            assert_eq!((code, file), (0, Some(gzip(DATA))), "{job} {path}: {told}");
        }
        let get = bench.ends(0, &format!("get {path}")).await;
        assert_eq!(get.stdout, DATA, "{path}");
    }
}

// Servers name the coding of such a file, and its ranges are those of the coded bytes.
#[tokio::test]
async fn part_of_a_compressed_file_is_resumed() {
    let bench = Bench::of(|head, nth| {
        let (coded, headers) = (gzip(DATA), "etag: \"v1\"\r\ncontent-encoding: gzip\r\n");
        let total = coded.len();
        if nth == 0 {
            let headers = format!("{headers}content-length: {total}\r\n");
            return answer("200 OK", &headers, &coded[..10]);
        }
        assert_eq!(range(head), Some(10), "{head}");
        let range = format!("{headers}content-range: bytes 10-{}/{total}\r\n", total - 1);
        sized("206 Partial Content", &range, &coded[10..])
    })
    .await;
    let (code, told, file) = bench.one_file("bulk", "/days.json.gz", "").await;
    assert_eq!((code, file), (0, Some(gzip(DATA))), "{told}");
}

#[tokio::test]
async fn empty_data_replaces_no_other_data() {
    let bench = Bench::of(|head, _| match path_of(head) {
        "/coded" => sized("200 OK", "content-encoding: gzip\r\n", &gzip(b"")),
        "/chunked" => answer("200 OK", "transfer-encoding: chunked\r\n", b"0\r\n\r\n"),
        _ => sized("200 OK", "etag: \"v2\"\r\n", b""),
    })
    .await;
    for job in JOBS {
        for path in ["/plain", "/coded", "/chunked"] {
            // In the last run nothing replaces nothing.
            for (there, more, code, is_kept) in [
                ("good", "", 1, true),
                ("good", "--allow-empty", 0, false),
                ("", "", 0, false),
            ] {
                drop(fs::remove_dir_all(bench.path("files")));
                bench.write("files/x", there);
                let json = if job == "get" { " --json" } else { "" };
                let more = format!("{more}{json}");
                let (exit, told, file) = bench.one_file(job, path, &more).await;
                let kept = if is_kept { there } else { "" };
                let expected = (code, Some(kept.into()));
                assert_eq!((exit, file), expected, "{job} {path} {more}: {told}");
                assert_eq!(
                    told.contains("--allow-empty"),
                    is_kept,
                    "{job} {path}: {told}"
                );
                let has_kind = told.contains("\"kind\":\"empty\"");
                assert_eq!(has_kind, is_kept && job == "get", "{told}");
            }
        }
    }
}

#[tokio::test]
async fn a_feed_or_a_users_resource_that_becomes_empty_is_a_failure() {
    let emptied = || Bench::of(|_, nth| sized("200 OK", "", if nth == 1 { b"" } else { DATA }));
    for (more, changes, is_outage) in [
        ("", "/a\t28\n", true),
        ("--allow-empty", "/a\t28\n/a\t0\n/a\t28\n", false),
    ] {
        let bench = emptied().await;
        bench.list("/a\n");
        let poll = format!("poll --list list --rounds 3 --every 50ms {more}");
        let run = bench.ends(0, &poll).await;
        assert_eq!(out(&run), changes, "{}", err(&run));
        assert_eq!(
            err(&run).contains("outage over"),
            is_outage,
            "{}",
            err(&run)
        );
    }
    let bench = emptied().await;
    let backend = bench.serve("--fresh 1ms");
    for (status, wait) in [(200, 5), (502, 1_005), (200, 0)] {
        assert_eq!(backend.get("/a").await.status, status);
        sleep(Duration::from_millis(wait)).await;
    }
}

#[tokio::test]
async fn data_that_is_being_prepared_is_requested_again_when_the_service_says_so() {
    let prepared = |ready: usize, hint: &'static str| {
        Bench::of(move |_, nth| match nth < ready {
            true => sized("202 Accepted", hint, b"{\"status\":\"preparing\"}"),
            false => sized("200 OK", "", DATA),
        })
    };
    at_once(
        ["get", "bulk", "poll", "check", "backend"],
        move |job| async move {
            let bench = prepared(2, "retry-after: 1\r\n").await;
            match job {
                "check" => drop(bench.ends(0, "check /a").await),
                "backend" => assert_eq!(bench.serve("").get("/a").await.body, DATA),
                job => {
                    let more = if job == "bulk" {
                        "--wait-outage 1m"
                    } else {
                        ""
                    };
                    let (code, told, file) = bench.one_file(job, "/a", more).await;
                    assert_eq!((code, file.as_deref()), (0, Some(DATA)), "{job}: {told}");
                }
            }
            assert_eq!(bench.heads().len(), 3, "{job}");

            if ["check", "get"].contains(&job) {
                let bench = prepared(usize::MAX, "retry-after: 60\r\n").await;
                let run = bench.ends(5, &format!("{job} /a --deadline 8s")).await;
                says(&run, "202");
            }
        },
    )
    .await;
}

#[tokio::test]
async fn files_that_are_being_prepared_hold_up_no_other_file_and_end_with_five() {
    let bench = Bench::of(|head, _| match path_of(head).starts_with("/slow") {
        true => sized("202 Accepted", "", b""),
        false => sized("200 OK", "", DATA),
    })
    .await;
    let list = "/slow-{1..30}\n/a\n/b\n/c\n";
    let run = output(bench.bulk(list, "--jobs 2 --wait-outage 4s")).await;
    assert_eq!(run.status.code(), Some(5), "{}", err(&run));
    assert_eq!(["a", "b", "c"].map(|name| bench.file(name)), [DATA; 3]);
    assert!(out(&run).contains("\"pending\":30"), "{}", out(&run));
    assert!(!err(&run).contains("outage"), "{}", err(&run));
    let heads = bench.heads();
    let mut after = heads.iter().skip_while(|head| path_of(head) != "/c");
    assert!(
        after.any(|head| path_of(head).starts_with("/slow")),
        "{heads:?}"
    );
}

#[tokio::test]
async fn a_203_is_data_and_other_successes_are_not() {
    let bench = Bench::of(|head, _| {
        let status = match path_of(head) {
            "/203" => "203 Non-Authoritative Information",
            "/204" => return answer("204 No Content", "", b""),
            "/206" => "206 Partial Content",
            "/207" => "207 Multi-Status",
            _ => "226 IM Used",
        };
        sized(status, "content-range: bytes 0-27/28\r\n", DATA)
    })
    .await;
    let backend = bench.serve("");
    for path in ["/203", "/204", "/206", "/207", "/226"] {
        let is_data = path == "/203";
        for job in JOBS {
            let (code, told, file) = bench.anew(job, path).await;
            let expected = (i32::from(!is_data), is_data.then(|| DATA.to_vec()));
            assert_eq!((code, file), expected, "{job} {path}: {told}");
        }
        let status = if is_data { 200 } else { 502 };
        assert_eq!(backend.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_transfer_coding_is_refused_by_name() {
    let bench = Bench::of(|head, _| {
        let coded = gzip(DATA);
        let size = format!("{:x}\r\n", coded.len());
        let chunk = [size.as_bytes(), &coded, b"\r\n0\r\n\r\n"].concat();
        let codings = path_of(head)[1..].replace('-', ", ");
        answer(
            "200 OK",
            &format!("transfer-encoding: {codings}\r\n"),
            &chunk,
        )
    })
    .await;
    let backend = bench.serve("");
    for (path, coding) in [
        ("/gzip-chunked", "gzip"),
        ("/gzip", "gzip"),
        // The chunks would be taken for data.
        ("/chunked-identity", "chunked"),
    ] {
        for job in JOBS {
            let (code, told, file) = bench.anew(job, path).await;
            assert_eq!((code, file), (1, None), "{job} {path}: {told}");
            let named = format!("transfer coding {coding}");
            assert!(told.contains(&named), "{job} {path}: {told}");
        }
        assert_eq!(backend.get(path).await.status, 502, "{path}");
    }
}

/// Replies of a token endpoint, each with the exit code of a job and the words that its error shows.
#[tokio::test]
async fn a_refused_or_failed_token_is_told_in_the_words_of_the_server_and_of_this_program() {
    let oauth =
        |error: &str, text: &str| format!(r#"{{"error":"{error}","error_description":"{text}"}}"#);
    let wrong = "Invalid client or Invalid client credentials";
    let refused = "unauthorized_client: Invalid client or Invalid client credentials";
    let page = "<html>Blocked</html>".to_owned();
    let is_ours = "check TDS_CLIENT_ID, its secret and the address";
    let mac = r#"{"access_token":"t","token_type":"mac"}"#.to_owned();
    let realm = r#"{"error":"Realm does not exist"}"#.to_owned();
    let cases = [
        (
            "401 Unauthorized",
            "",
            oauth("unauthorized_client", wrong),
            4,
            refused,
        ),
        ("401 Unauthorized", "", String::new(), 4, is_ours),
        (
            "400 Bad Request",
            "",
            oauth("invalid_scope", "no bus"),
            4,
            "invalid_scope: no bus",
        ),
        (
            "200 OK",
            "",
            oauth("invalid_client", "no client"),
            4,
            "invalid_client: no client",
        ),
        (
            "302 Found",
            "location: /x\r\n",
            String::new(),
            4,
            "configure the final address",
        ),
        ("200 OK", "", mac, 4, "bearer tokens"),
        (
            "403 Forbidden",
            "",
            page.clone(),
            5,
            "check address and realm",
        ),
        ("404 Not Found", "", realm, 5, "Realm does not exist"),
        (
            "429 Too Many Requests",
            "retry-after: 30\r\n",
            String::new(),
            5,
            "429",
        ),
        (
            "503 Service Unavailable",
            "",
            oauth("busy", "queue full"),
            5,
            "busy: queue full",
        ),
        ("200 OK", "", page, 5, "it is a page"),
    ];
    at_once(
        cases,
        move |(status, headers, body, code, told)| async move {
            let bench = Bench::new().await;
            bench.list("/a\n");
            let body = body.into_bytes();
            let endpoint = Upstream::start(move |_, _| sized(status, headers, &body));
            let at_endpoint = |line: &str| {
                let mut run = bench.tds(line);
                drop(fs::remove_dir_all(bench.path("state")));
                run.env("TDS_AUTH_URL", &endpoint.url);
                run
            };
            let jobs = [
                "check /a --deadline 15s",
                "get /a --deadline 15s",
                "bulk --list list --out files",
            ];
            // A failure is retried by bulk for as long as an outage may last.
            for job in &jobs[..if code == 5 { 2 } else { 3 }] {
                let run = output(at_endpoint(job)).await;
                assert_eq!(
                    run.status.code(),
                    Some(code),
                    "{status} {job}: {}",
                    err(&run)
                );
                let waits = waits(&run);
                assert!(waits.lines().all(|line| line.contains(told)), "{waits}");
                let lines = err(&run);
                let first = lines.lines().next().unwrap_or_default();
                assert!(first.contains(told), "{status} {job}: {}", err(&run));
                let has_ours =
                    code == 5 || status.starts_with(['2', '3']) || first.contains(is_ours);
                assert!(
                    has_ours && !first.contains(['`']) && !first.contains("::"),
                    "{first}"
                );
            }
            let backend = Serving::start(at_endpoint("backend --listen 127.0.0.1:0"));
            let fails = async || backend.get("/readyz").await.text().contains("no token: ");
            until(fails).await;
            sleep(Duration::from_millis(100)).await;
            let log = backend.log();
            assert!(log.contains(told), "{status}: {log}");
        },
    )
    .await;
}
