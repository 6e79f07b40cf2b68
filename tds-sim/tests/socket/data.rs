//! Data that behaves: tags, ranges, change, and a folder of files.

use std::{fs, time::Duration};

use tds_sim::{Config, Server};

use crate::client::{Client, World, bearer};

#[tokio::test]
async fn each_part_of_a_history_is_that_part_of_the_whole() {
    let world = World::with(|config| config.rate = 1000).await;
    for (size, framing) in [(100, "length"), (100_000, "length"), (100_000, "chunked")] {
        let path = format!("/v1/history/a?bytes={size}&framing={framing}");
        let whole = world.get(&path, &[]).await;
        let tag = whole.header("etag").to_owned();
        assert_eq!(tag, format!("\"{size}\""));
        assert_eq!(whole.header("accept-ranges"), "bytes");
        for (range, from, to) in [
            ("0-0", 0, 1),
            ("10-41", 10, 42),
            ("32-", 32, size),
            ("33-9999999", 33, size),
            ("-7", size - 7, size),
            ("-9999999", 0, size),
            (&format!("{}-", size - 1), size - 1, size),
            ("16385-16400", 16_385, 16_401),
        ] {
            if from >= size {
                continue;
            }
            let asked = format!("bytes={range}");
            let headers = [("range", &*asked), ("accept-encoding", "br")];
            let part = world.get(&path, &headers).await;
            assert_eq!(part.status, 206, "{range}");
            let says = format!("bytes {from}-{}/{size}", to - 1);
            assert_eq!(part.header("content-range"), says);
            assert!(part.body == whole.body[from..to], "{range} of {size}");
            assert_eq!(part.header("etag"), tag);
            assert_eq!(part.header("content-encoding"), "");
        }
    }
}

#[tokio::test]
async fn a_range_of_other_bytes_or_of_another_form_is_the_whole() {
    let world = World::new().await;
    for (path, range, known, expected) in [
        ("history/a?bytes=100", "bytes=5-3", "", 200),
        // A range after the end gets the whole, because a 416 would look like too many connections.
        ("history/a?bytes=100", "bytes=100-", "", 200),
        ("history/a?bytes=100", "bytes=-0", "", 200),
        ("history/a?bytes=100", "bytes=a-", "", 200),
        ("history/a?bytes=100", "lines=1-2", "", 200),
        ("history/a?bytes=100", "bytes=1-2,4-5", "", 200),
        ("history/a?bytes=100", "bytes=1-2", "\"99\"", 200),
        ("history/a?bytes=100", "bytes=1-2", "W/\"100\"", 200),
        ("history/a?bytes=100", "bytes=1-2", "\"100\"", 206),
        // A live resource has a weak tag.
        ("live/a", "bytes=1-2", "", 200),
    ] {
        let mut headers = vec![("range", range)];
        headers.extend((!known.is_empty()).then_some(("if-range", known)));
        let got = world.get(&format!("/v1/{path}"), &headers).await;
        assert_eq!(got.status, expected, "{headers:?}");
        assert_eq!(got.body.len() >= 100, expected == 200, "{headers:?}");
    }
}

#[tokio::test]
async fn a_download_that_breaks_off_is_resumed() {
    let cut = "truncate@every:2".parse().unwrap();
    let world = World::with(|config| config.faults.data.push(cut)).await;
    let path = "/v1/history/a?bytes=1000";
    let whole = world.get(path, &[]).await;
    let broken = Client::new()
        .get(&world.url(path), &[bearer(&world.token)])
        .await;
    assert!(broken.is_err());
    let headers = [("range", "bytes=500-"), ("if-range", whole.header("etag"))];
    let rest = world.get(path, &headers).await;
    assert_eq!((rest.status, &rest.body[..]), (206, &whole.body[500..]));
}

#[tokio::test]
async fn a_strong_tag_is_another_for_each_coding() {
    let world = World::new().await;
    let path = "/v1/history/a?bytes=1000";
    for (coding, tag) in [
        ("br", "\"1000-br\""),
        ("gzip", "\"1000-gzip\""),
        ("", "\"1000\""),
    ] {
        let got = world.get(path, &[("accept-encoding", coding)]).await;
        assert_eq!((got.status, got.header("etag")), (200, tag));
        let headers = [("accept-encoding", coding), ("if-none-match", tag)];
        assert_eq!(world.get(path, &headers).await.status, 304);
    }
}

#[tokio::test]
async fn a_wrong_value_in_the_query_of_a_history_is_an_error() {
    let world = World::new().await;
    for (query, expected) in [
        ("bytes=many", 400),
        ("rate=-1", 400),
        ("framing=none", 400),
        ("bytes=", 400),
        ("$top=10&bytes=10", 200),
    ] {
        let status = world.status(&format!("/v1/history/a?{query}")).await;
        assert_eq!(status, expected, "{query}");
    }
}

#[tokio::test]
async fn live_resources_change_only_if_they_are_told_to() {
    let bus = "/v1/live/bus";
    let first = World::new().await.get(bus, &[]).await;
    assert_eq!(
        (first.header("etag"), first.header("last-modified")),
        ("W/\"128\"", "")
    );

    let world = World::with(|config| config.live_every = Some(Duration::from_millis(1500))).await;
    let mut tries = 0;
    let (old, mut now) = loop {
        let old = world.get(bus, &[]).await;
        let now = world
            .get(bus, &[("if-none-match", old.header("etag"))])
            .await;
        let since = [("if-modified-since", old.header("last-modified"))];
        let since = world.get(bus, &since).await;
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
    assert_eq!((now.header("etag"), now.body.len()), (tag, 0));
    while now.status == 304 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        now = world.get(bus, &[("if-none-match", tag)]).await;
    }
    assert_eq!(now.status, 200);
    assert!(now.header("etag") != tag && now.body != old.body);
    let since = world.get(bus, &[("if-modified-since", date)]).await;
    assert_eq!(since.status, 200);
}

#[tokio::test]
async fn files_are_served_at_their_paths_under_the_limits_and_the_token_check() {
    let folder = std::env::temp_dir().join(format!("tds-sim-files-{}", std::process::id()));
    let inside = folder.join("v1");
    fs::create_dir_all(inside.join("live")).unwrap();
    fs::write(inside.join("live/bus"), "my own bus").unwrap();
    fs::write(inside.join("stops of 東.json"), "[1,2,3]").unwrap();
    fs::write(folder.join("secret"), "outside").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.join("secret"), inside.join("link")).unwrap();
    let world = World::with(|config| config.files = Some(inside)).await;

    let stops = "/stops%20of%20%E6%9D%B1.json?x=1";
    let got = world.get(stops, &[]).await;
    assert_eq!((got.status, &got.body[..]), (200, &b"[1,2,3]"[..]));
    assert_eq!(got.header("content-type"), "application/json");
    let (tag, date) = (got.header("etag"), got.header("last-modified"));
    for known in [("if-none-match", tag), ("if-modified-since", date)] {
        assert_eq!(world.get(stops, &[known]).await.status, 304);
    }
    let headers = [("range", "bytes=1-3"), ("if-range", tag)];
    let part = world.get(stops, &headers).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"1,2"[..]));
    let outside = "/../secret /%2e%2e/secret /live/..%2f..%2fsecret /link //secret";
    for path in outside
        .split(' ')
        .chain(["/live", "/live/", "/%00", "/nothing"])
    {
        assert_eq!(world.status(path).await, 404, "{path}");
    }
    // Paths without a file are as before.
    assert_eq!(world.get("/v1/live/bus", &[]).await.body.len(), 128);
    assert_eq!(world.status_of("/live/bus", "wrong").await, 401);
    assert_eq!(&world.get("/live/bus", &[]).await.body[..], b"my own bus");
    world.server.set_quota(Some("0/60s".parse().unwrap()));
    assert_eq!(world.status("/live/bus").await, 429);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_at_the_start() {
    let mut config = Config::default();
    config.files = Some("/nowhere/at/all".into());
    let error = Server::start(config).await.unwrap_err();
    let expected = "cannot start: name a folder of files that can be read, not /nowhere/at/all";
    assert_eq!(error.to_string(), expected);
}
