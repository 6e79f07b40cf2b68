//! A page of a login, a captcha or a maintenance is no data, whatever its status.

use std::fs;

use tds_sim::Config;

use super::ended;
use crate::{
    Bench, at_once, err, out, output, text,
    upstream::{Upstream, answer},
};

const PAGE: &[u8] = b"\xef\xbb\xbf\r\n<!-- proxy 7 -->\n<!DOCTYPE html>\n<HTML><head>\n\
    <TITLE lang=en>\n Sign &amp; in\n</TITLE></head></HTML>";

/// A response of this type, in two pieces of which the first is short.
fn typed(media: &str, body: &[u8]) -> Vec<u8> {
    let media = match media {
        "" => String::new(),
        media => format!("content-type: {media}\r\n"),
    };
    let headers = format!("{media}content-length: {}\r\n", body.len());
    answer("200 OK", &headers, body)
}

#[tokio::test]
async fn pages_are_never_saved_and_data_of_any_other_kind_is() {
    let xhtml = b"<?xml version='1.0'?><html xmlns='x'></html>";
    let cases: Vec<(&str, &[u8], bool)> = vec![
        ("text/html", PAGE, true),
        ("Text/HTML; charset=utf-8", b"{}", true),
        ("application/xhtml+xml", xhtml, true),
        ("", PAGE, true),
        ("text/plain", b"<HTML lang=en>", true),
        ("application/octet-stream", xhtml, true),
        ("", b"\xff\xfe<\0h\0t\0m\0l\0>\0", true),
        ("text/html", b"", true),
        ("application/json", PAGE, true),
        ("text/csv; charset=utf-8", b"\n<!doctype HTML>", true),
        ("application/xml", xhtml, true),
        ("application/json", b"<", false),
        ("", b"", false),
        ("", b"<", false),
        ("", b"<htm", false),
        ("", b"<!-- <html> without an end", false),
        ("text/plain", b"a,b\n<html>,1\n", false),
        ("application/json", b"{\"page\":\"<html>\"}", false),
        ("application/xml", b"<html-report/>", false),
        ("", b"<?xml version='1.0'?><data/>", false),
        ("application/octet-stream", b"\x89PNG", false),
    ];
    at_once(
        cases.into_iter().enumerate(),
        |(number, (media, body, is_page))| async move {
            let bench = Bench::new(&format!("page-kinds-{number}"), Config::default()).await;
            let upstream = Upstream::start(move |_, _| typed(media, body));
            let list = bench.path("list");
            fs::write(&list, "/x\tx\n").expect("a file");
            let mut run = bench.bulk("/x\tx\n", &["--wait-outage", "0"]);
            run.env("TDS_BASE_URL", &upstream.url);
            let run = output(run).await;
            let mut get = bench.tds(&["get", "/x"]);
            get.env("TDS_BASE_URL", &upstream.url);
            let get = output(get).await;
            if is_page {
                ended(&run, 5);
                assert_eq!(bench.report(&run)["failed"]["page"], 1, "{media}");
                assert!(bench.files().is_empty(), "{media}: {:?}", bench.files());
                assert_eq!(get.status.code(), Some(5), "{media}: {}", err(&get));
                assert_eq!(out(&get), "");
                let named = err(&get).contains("titled \"Sign &amp; in\"");
                assert_eq!(named, body == PAGE, "{}", err(&get));
                // A page may be gone at the next attempt: four for the file, and three for `get`.
                assert_eq!(upstream.heads().len(), 4 + 3, "{media}");
            } else {
                ended(&run, 0);
                assert_eq!(bench.file("x"), body, "{media}");
                assert_eq!(get.stdout, body, "{media}");
            }
            let accepts = |head: &String| head.contains("\r\naccept: */*\r\n");
            assert!(upstream.heads().iter().all(accepts));
        },
    )
    .await;
}

#[tokio::test]
async fn page_is_tried_again_and_keeps_the_part_of_an_earlier_run() {
    let bench = Bench::new("page-part", Config::default()).await;
    let upstream = Upstream::start(|head, nth| match nth {
        0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 6\r\n", b"abc"),
        1 | 2 => typed("text/html", PAGE),
        _ if head.contains("\r\nrange: bytes=3-\r\n") => answer(
            "206 Partial Content",
            "etag: \"v1\"\r\ncontent-length: 3\r\ncontent-range: bytes 3-5/6\r\n",
            b"def",
        ),
        _ => answer("200 OK", "content-length: 5\r\n", b"whole"),
    });
    let mut run = bench.bulk("/x\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    ended(&output(run).await, 0);
    assert_eq!(bench.file("x"), b"abcdef");
}

#[tokio::test]
async fn path_that_alone_gives_pages_fails_alone() {
    let bench = Bench::new("page-alone", Config::default()).await;
    let upstream = Upstream::start(|head, _| match head.starts_with("GET /bad") {
        true => typed("", PAGE),
        false => typed("", b"ok"),
    });
    let mut run = bench.bulk("/a\n/bad\n/b\n/c\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = output(run).await;
    ended(&run, 5);
    assert_eq!(bench.files(), ["a", "b", "c"]);
    assert_eq!(bench.report(&run)["failed"]["page"], 1);
}

#[tokio::test]
async fn pages_are_saved_if_they_are_accepted_and_a_file_of_another_type_is_fetched_anew() {
    let bench = Bench::new("page-accept", Config::default()).await;
    let upstream = Upstream::start(|head, _| match head.contains("\r\naccept: text/html\r\n") {
        true => typed("text/html", PAGE),
        false => typed("application/json", b"{}"),
    });
    for (more, body, result) in [
        (&["--accept", "text/html"][..], PAGE, "ok"),
        (&["--accept", "text/html"], PAGE, "skipped"),
        (&[], b"{}", "ok"),
        (&["--accept", "*/*"], b"{}", "skipped"),
    ] {
        let mut run = bench.bulk("/x\n", more);
        run.env("TDS_BASE_URL", &upstream.url);
        let run = output(run).await;
        ended(&run, 0);
        assert_eq!(bench.file("x"), body, "{more:?}");
        assert_eq!(bench.report(&run)[result], 1, "{more:?}");
    }
    // Writes the manifest as versions before the option did.
    let manifest = bench.path("files/.tds-manifest.jsonl");
    let lines = fs::read_to_string(&manifest).expect("it is there");
    let old = lines.replace("\"accept\":\"*/*\",", "");
    assert_ne!(lines, old);
    fs::write(&manifest, old).expect("it is ours");
    let mut run = bench.bulk("/x\n", &[]);
    run.env("TDS_BASE_URL", &upstream.url);
    let run = output(run).await;
    assert_eq!(bench.report(&run)["skipped"], 1);
    let list = bench.path("list");
    let bad = [
        "bulk",
        "--list",
        text(&list),
        "--out",
        "x",
        "--accept",
        "json",
    ];
    ended(&bench.run(&bad).await, 2);
}
