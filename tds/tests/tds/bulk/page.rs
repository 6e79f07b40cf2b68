//! A page of a login, a captcha or a maintenance is no data, whatever its status.

use crate::{
    Bench,
    answers::range,
    at_once, ended, err, output, path_of,
    upstream::{answer, sized},
};

const PAGE: &[u8] = b"\xef\xbb\xbf\r\n<!-- proxy 7 -->\n<!DOCTYPE html>\n<HTML><head>\n\
    <TITLE lang=en>\n Sign &amp; in\n</TITLE></head></HTML>";

/// A response of this type.
fn typed(media: &str, body: &[u8]) -> Vec<u8> {
    let media = match media {
        "" => String::new(),
        media => format!("content-type: {media}\r\n"),
    };
    sized("200 OK", &media, body)
}

#[tokio::test]
async fn pages_are_never_saved_and_data_of_any_other_kind_is() {
    let xhtml = b"<?xml version='1.0'?><html xmlns='x'></html>";
    let cases: [(&str, &[u8], bool); 21] = [
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
    at_once(cases, |(media, body, is_page)| async move {
        let bench = Bench::of(move |_, _| typed(media, body)).await;
        let run = output(bench.bulk("/x\n", "--wait-outage 0")).await;
        let code = if is_page { 5 } else { 0 };
        let get = bench.ends(code, "get /x").await;
        ended(&run, code);
        if is_page {
            assert_eq!(bench.report(&run)["failed"]["page"], 1, "{media}");
            assert!(bench.files().is_empty(), "{media}: {:?}", bench.files());
            assert!(get.stdout.is_empty());
            let is_named = err(&get).contains("titled \"Sign &amp; in\"");
            assert_eq!(is_named, body == PAGE, "{}", err(&get));
            // A page may be gone at the next attempt: four for the file, and three for `get`.
            assert_eq!(bench.heads().len(), 4 + 3, "{media}");
        } else {
            assert_eq!((&*bench.file("x"), &*get.stdout), (body, body), "{media}");
        }
        let accepts = |head: &String| head.contains("\r\naccept: */*\r\n");
        assert!(bench.heads().iter().all(accepts));
    })
    .await;
}

#[tokio::test]
async fn page_is_tried_again_and_keeps_the_part_of_an_earlier_run() {
    let bench = Bench::of(|head, nth| match nth {
        0 => answer("200 OK", "etag: \"v1\"\r\ncontent-length: 6\r\n", b"abc"),
        1 | 2 => typed("text/html", PAGE),
        _ if range(head) == Some(3) => {
            let part = "etag: \"v1\"\r\ncontent-range: bytes 3-5/6\r\n";
            sized("206 Partial Content", part, b"def")
        }
        _ => sized("200 OK", "", b"whole"),
    })
    .await;
    ended(&output(bench.bulk("/x\n", "")).await, 0);
    assert_eq!(bench.file("x"), b"abcdef");
}

#[tokio::test]
async fn path_that_alone_gives_pages_fails_alone() {
    let bench = Bench::of(|head, _| match path_of(head) {
        "/bad" => typed("", PAGE),
        _ => typed("", b"ok"),
    })
    .await;
    let run = output(bench.bulk("/a\n/bad\n/b\n/c\n", "")).await;
    ended(&run, 5);
    assert_eq!(bench.files(), ["a", "b", "c"]);
    assert_eq!(bench.report(&run)["failed"]["page"], 1);
}

#[tokio::test]
async fn pages_are_saved_if_they_are_accepted_and_a_file_of_another_type_is_fetched_anew() {
    let bench = Bench::of(|head, _| match head.contains("\r\naccept: text/html\r\n") {
        true => typed("text/html", PAGE),
        false => typed("application/json", b"{}"),
    })
    .await;
    for (more, body, result) in [
        ("--accept text/html", PAGE, "ok"),
        ("--accept text/html", PAGE, "skipped"),
        ("", b"{}", "ok"),
        ("--accept */*", b"{}", "skipped"),
    ] {
        let run = output(bench.bulk("/x\n", more)).await;
        ended(&run, 0);
        assert_eq!(bench.file("x"), body, "{more}");
        assert_eq!(bench.report(&run)[result], 1, "{more}");
    }
    bench
        .ends(2, "bulk --list list --out x --accept json")
        .await;
}
