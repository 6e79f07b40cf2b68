//! Data that behaves: tags, ranges, change, and a folder of files.

use std::{fs, path::PathBuf, time::Duration};

use tds_sim::{Config, Server};

use crate::client::{Client, Got, bearer};

struct Bench {
    server: Server,
    token: String,
    folder: PathBuf,
}

impl Bench {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let folder = config.files.clone().unwrap_or_default();
        let server = Server::start(config).await.unwrap();
        let token = server.sim().token(server.client_id()).unwrap();
        Self {
            server,
            token,
            folder,
        }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Got {
        let url = format!("{}{path}", self.server.base_url());
        let own = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let headers: Vec<_> = own.chain([bearer(&self.token)]).collect();
        Client::new().get(&url, &headers).await.unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.folder.is_absolute() {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tds-sim-{name}-{}", std::process::id()));
    fs::create_dir_all(folder.join("v1/live")).unwrap();
    folder
}

#[tokio::test]
async fn each_part_of_a_history_is_that_part_of_the_whole() {
    let bench = Bench::start(|config| config.rate = 1000).await;
    for (size, framing) in [
        (100_u64, "length"),
        (100_000, "length"),
        (100_000, "chunked"),
    ] {
        let path = format!("/v1/history/a?bytes={size}&framing={framing}");
        let whole = bench.get(&path, &[]).await;
        let tag = whole.header("etag").to_owned();
        assert_eq!(tag, format!("\"{size}\""));
        assert_eq!(whole.header("accept-ranges"), "bytes");
        for (range, from, to) in [
            ("bytes=0-0", 0, 1),
            ("bytes=10-41", 10, 42),
            ("bytes=32-", 32, size),
            ("bytes=33-9999999", 33, size),
            ("bytes=-7", size - 7, size),
            ("bytes=-9999999", 0, size),
            (&format!("bytes={}-", size - 1), size - 1, size),
            ("bytes=16385-16400", 16_385, 16_401),
        ] {
            if from >= size {
                continue;
            }
            let part = bench
                .get(&path, &[("range", range), ("accept-encoding", "br")])
                .await;
            assert_eq!(part.status, 206, "{range}");
            let says = format!("bytes {from}-{}/{size}", to - 1);
            assert_eq!(part.header("content-range"), says);
            let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
            assert!(part.body == whole.body[from..to], "{range} of {size}");
            assert_eq!(
                (part.header("etag"), part.header("content-encoding")),
                (&*tag, "")
            );
        }
    }
}

#[tokio::test]
async fn a_range_of_other_bytes_or_of_another_form_is_the_whole() {
    let bench = Bench::start(|_| {}).await;
    let path = "/v1/history/a?bytes=100";
    for headers in [
        &[("range", "bytes=5-3")][..],
        // A range after the end gets the whole, because a 416 would look like too many connections.
        &[("range", "bytes=100-")],
        &[("range", "bytes=-0")],
        &[("range", "bytes=a-")],
        &[("range", "lines=1-2")],
        &[("range", "bytes=1-2,4-5")],
        &[("range", "bytes=1-2"), ("if-range", "\"99\"")],
        &[("range", "bytes=1-2"), ("if-range", "W/\"100\"")],
    ] {
        let got = bench.get(path, headers).await;
        assert_eq!((got.status, got.body.len()), (200, 100), "{headers:?}");
    }
    let headers = [("range", "bytes=1-2"), ("if-range", "\"100\"")];
    assert_eq!(bench.get(path, &headers).await.status, 206);
    // A live resource has a weak tag.
    assert_eq!(
        bench
            .get("/v1/live/a", &[("range", "bytes=1-2")])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_download_that_breaks_off_is_resumed() {
    let bench =
        Bench::start(|config| config.faults.data = vec!["truncate@every:2".parse().unwrap()]).await;
    let path = "/v1/history/a?bytes=1000";
    let whole = bench.get(path, &[]).await;
    let url = format!("{}{path}", bench.server.base_url());
    assert!(
        Client::new()
            .get(&url, &[bearer(&bench.token)])
            .await
            .is_err()
    );
    let headers = [("range", "bytes=500-"), ("if-range", whole.header("etag"))];
    let rest = bench.get(path, &headers).await;
    assert_eq!((rest.status, &rest.body[..]), (206, &whole.body[500..]));
}

#[tokio::test]
async fn a_strong_tag_is_another_for_each_coding() {
    let bench = Bench::start(|_| {}).await;
    let path = "/v1/history/a?bytes=1000";
    for (coding, tag) in [
        ("br", "\"1000-br\""),
        ("gzip", "\"1000-gzip\""),
        ("", "\"1000\""),
    ] {
        let got = bench.get(path, &[("accept-encoding", coding)]).await;
        assert_eq!((got.status, got.header("etag")), (200, tag));
        let headers = [("accept-encoding", coding), ("if-none-match", tag)];
        assert_eq!(bench.get(path, &headers).await.status, 304);
    }
}

#[tokio::test]
async fn a_wrong_value_in_the_query_of_a_history_is_an_error() {
    let bench = Bench::start(|_| {}).await;
    for query in ["bytes=many", "rate=-1", "framing=none", "bytes="] {
        let got = bench.get(&format!("/v1/history/a?{query}"), &[]).await;
        assert_eq!(got.status, 400, "{query}");
    }
    assert_eq!(
        bench
            .get("/v1/history/a?$top=10&bytes=10", &[])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn live_resources_change_only_if_they_are_told_to() {
    let still = Bench::start(|_| {}).await;
    let first = still.get("/v1/live/bus", &[]).await;
    assert_eq!(
        (first.header("etag"), first.header("last-modified")),
        ("W/\"128\"", "")
    );

    let bench = Bench::start(|config| config.live_every = Some(Duration::from_millis(1500))).await;
    let mut tries = 0;
    let (old, mut now) = loop {
        let old = bench.get("/v1/live/bus", &[]).await;
        let known = [("if-none-match", old.header("etag"))];
        let now = bench.get("/v1/live/bus", &known).await;
        let since = [("if-modified-since", old.header("last-modified"))];
        let since = bench.get("/v1/live/bus", &since).await;
        if (now.status, since.status) == (304, 304) {
            break (old, now);
        }
        // The next version came in between, as on a machine that stalls.
        tries += 1;
        assert!(tries < 10, "{} {}", now.status, since.status);
    };
    let (tag, date) = (old.header("etag"), old.header("last-modified"));
    assert!(date.ends_with("GMT"), "{date}");
    assert_eq!(old.body.len(), 128);
    let known = [("if-none-match", tag)];
    assert_eq!((now.header("etag"), now.body.len()), (tag, 0));
    while now.status == 304 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        now = bench.get("/v1/live/bus", &known).await;
    }
    assert_eq!(now.status, 200);
    assert!(now.header("etag") != tag && now.body != old.body);
    assert_eq!(
        bench
            .get("/v1/live/bus", &[("if-modified-since", date)])
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn files_are_served_at_their_paths_under_the_limits_and_the_token_check() {
    let folder = folder("files");
    fs::write(folder.join("v1/live/bus"), "my own bus").unwrap();
    fs::write(folder.join("v1/stops of 東.json"), "[1,2,3]").unwrap();
    fs::write(folder.join("secret"), "outside").unwrap();
    let inside = folder.join("v1");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.join("secret"), inside.join("link")).unwrap();
    let mut bench = Bench::start(|config| config.files = Some(inside)).await;
    bench.folder.clone_from(&folder);

    let stops = "/stops%20of%20%E6%9D%B1.json?x=1";
    let got = bench.get(stops, &[]).await;
    assert_eq!((got.status, &got.body[..]), (200, &b"[1,2,3]"[..]));
    assert_eq!(got.header("content-type"), "application/json");
    let (tag, date) = (got.header("etag"), got.header("last-modified"));
    assert_eq!(
        bench.get(stops, &[("if-none-match", tag)]).await.status,
        304
    );
    assert_eq!(
        bench
            .get(stops, &[("if-modified-since", date)])
            .await
            .status,
        304
    );
    let part = bench
        .get(stops, &[("range", "bytes=1-3"), ("if-range", tag)])
        .await;
    assert_eq!((part.status, &part.body[..]), (206, &b"1,2"[..]));
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/live/..%2f..%2fsecret",
        "/link",
        "//secret",
        "/live",
        "/live/",
        "/%00",
        "/nothing",
    ] {
        assert_eq!(bench.get(path, &[]).await.status, 404, "{path}");
    }
    // Paths without a file are as before.
    assert_eq!(bench.get("/v1/live/bus", &[]).await.body.len(), 128);
    let url = format!("{}/live/bus", bench.server.base_url());
    assert_eq!(Client::new().get(&url, &[]).await.unwrap().status, 401);
    assert_eq!(&bench.get("/live/bus", &[]).await.body[..], b"my own bus");
    bench.server.sim().set_quota(Some("0/60s".parse().unwrap()));
    assert_eq!(bench.get("/live/bus", &[]).await.status, 429);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_at_the_start() {
    let mut config = Config::default();
    config.files = Some("/nowhere/at/all".into());
    let error = Server::start(config).await.unwrap_err();
    let expected = "cannot start: name a folder of files that can be read, not /nowhere/at/all";
    assert_eq!(error.to_string(), expected);
}
