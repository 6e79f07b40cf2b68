//! Coded bodies with `Builder::compression`, by a server that writes raw bytes and by the simulated service.

use tower_tds::{Error, Kind, Response};

use crate::client::{
    raw::{Raw, answer},
    world::{Built as _, builder, served},
};

/// The response of these bytes, after which the server closes the connection.
async fn response_of(answer: &[u8]) -> Response {
    let client = Raw::saying(answer).await.builder().compression().built();
    client.get("/close").await.expect("the head of a success")
}

async fn text_of(answer: &[u8]) -> Result<String, Error> {
    let body = response_of(answer).await.bytes().await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// A success with this coded body, which announces `length` bytes.
fn coded(coding: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// `bar`.
const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4a\x2c\x02\0\xaa\x8c\xff\x76\x03\0\0\0";
const BROTLI: &[u8] = b"\x0b\x01\x80\x62\x61\x72\x03";

/// `Missing required realm role`.
const ROLE: &[u8] = b"\xa0\x01\x10Missing required realm role\x03";

#[tokio::test]
async fn truncated_coded_body_is_an_error() {
    for (coding, whole) in [("gzip", GZIP), ("br", BROTLI)] {
        let text = text_of(&coded(coding, whole.len(), whole)).await;
        assert_eq!(text.expect("it is whole"), "bar", "{coding}");
        let text = text_of(&coded(coding, 0, b"")).await;
        assert_eq!(text.expect("it is empty"), "", "{coding}");
        for cut in 1..whole.len() {
            let part = &whole[..cut];
            // Shorter than its announced length.
            let error = text_of(&coded(coding, whole.len(), part)).await;
            let error = error.expect_err("it breaks off");
            assert_eq!(error.kind(), Kind::Truncated, "{coding} {cut}: {error:?}");
            // The body has the announced length, but its compressed data is cut.
            let error = text_of(&coded(coding, cut, part)).await;
            let error = error.expect_err("a part is missing");
            assert_eq!(error.kind(), Kind::Truncated, "{coding} {cut}: {error:?}");
            assert!(error.to_string().starts_with("GET http://"), "{error}");
        }
    }
}

#[tokio::test]
async fn corrupt_coded_body_or_bytes_after_it_are_an_error() {
    let mut corrupt = GZIP.to_vec();
    corrupt[15] ^= 0xff;
    let [longer, by_one] = [&b"and more"[..], b"a"].map(|more| [GZIP, more].concat());
    let brotli = [BROTLI, b"and more"].concat();
    for (coding, body) in [
        ("gzip", corrupt),
        ("gzip", longer),
        ("gzip", by_one),
        ("br", brotli),
    ] {
        let error = text_of(&coded(coding, body.len(), &body)).await;
        let error = error.expect_err("it is not whole, or there is more");
        assert_eq!(error.kind(), Kind::Malformed, "{error:?}");
        // The decoded bytes that its reader got.
        assert!(error.to_string().contains(" after 3 "), "{error}");
        assert!(error.to_string().starts_with("GET http://"), "{error}");
    }
}

/// An empty gzip member, as bgzip writes it at the end of each file.
const EMPTY: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";

#[tokio::test]
async fn all_members_of_a_gzip_body_are_decoded() {
    for (members, whole) in [
        (&[][..], ""),
        (&[GZIP, GZIP], "barbar"),
        (&[GZIP, EMPTY], "bar"),
        (&[EMPTY, GZIP, EMPTY, GZIP], "barbar"),
        (&[EMPTY], ""),
    ] {
        let body = members.concat();
        let text = text_of(&coded("gzip", body.len(), &body)).await;
        assert_eq!(text.expect("RFC 1952, section 2.2"), whole);
        // Each byte in a chunk of its own, and no announced length.
        let head =
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = |byte: &u8| [b"1\r\n", &[*byte][..], b"\r\n"].concat();
        let chunks: Vec<_> = body.iter().flat_map(chunk).collect();
        let text = text_of(&[head.as_bytes(), &chunks, b"0\r\n\r\n"].concat()).await;
        assert_eq!(text.expect("RFC 1952, section 2.2"), whole);
        if let Some((_, cut)) = body.split_last() {
            let error = text_of(&coded("gzip", cut.len(), cut)).await;
            assert_eq!(
                error.expect_err("a part is missing").kind(),
                Kind::Truncated
            );
        }
    }
}

#[tokio::test]
async fn all_names_of_a_coding_are_decoded() {
    for (coding, body) in [
        ("GZIP", GZIP),
        ("X-GZip", GZIP),
        ("Br", BROTLI),
        ("gzip,", GZIP),
        ("identity, gzip", GZIP),
        ("identity", b"bar"),
        ("", b"bar"),
    ] {
        let text = text_of(&coded(coding, body.len(), body)).await;
        assert_eq!(text.expect(coding), "bar", "{coding}");
    }
}

#[tokio::test]
async fn coding_that_is_not_undone_is_an_error_that_names_it() {
    let codings = "deflate|zstd|DEFLATE|gzip, deflate|gzip, gzip|aes128gcm";
    for coding in codings.split('|') {
        let error = text_of(&coded(coding, 3, b"any")).await;
        let error = error.expect_err("nothing decodes it");
        assert_eq!(error.kind(), Kind::Malformed, "{coding}");
        let (text, named) = (error.to_string(), coding.to_ascii_lowercase());
        assert!(text.contains(&format!("coded with \"{named}\"")), "{text}");
    }
    // Without a body there is nothing to decode.
    let head = "HTTP/1.1 304 Not Modified\r\ncontent-encoding: deflate\r\n\r\n";
    assert_eq!(text_of(head.as_bytes()).await.expect("no body"), "");
}

#[tokio::test]
async fn coding_that_the_request_names_or_nobody_asked_for_is_returned_unchanged() {
    let deflated = Raw::saying(coded("deflate", 3, b"any")).await;
    let zipped = Raw::saying(coded("gzip", GZIP.len(), GZIP)).await;
    let client = deflated.builder().compression().built();
    let call = client.get("/close");
    let other = client.get("/close").header("content-encoding", "deflate");
    for (call, coding, body) in [
        (
            call.header("accept-encoding", "deflate"),
            "deflate",
            &b"any"[..],
        ),
        (other, "deflate", b"any"),
        (zipped.client().get("/close"), "gzip", GZIP),
    ] {
        let response = call.await.expect("a success");
        assert_eq!(response.headers()["content-encoding"], coding);
        assert_eq!(response.bytes().await.expect("all"), body);
    }
}

#[tokio::test]
async fn a_missing_role_is_read_from_a_coded_401() {
    let raw = Raw::saying(answer("401 No\r\ncontent-encoding: br", ROLE)).await;
    let client = raw.builder().compression().built();
    let error = client.get("/x").await.expect_err("a role is missing");
    assert_eq!((error.kind(), error.attempts()), (Kind::MissingRole, 1));
    assert_eq!(error.message(), Some("Missing required realm role"));
    assert_eq!(raw.seen(), ["POST", "t1"], "no new token, no new call");
}

#[tokio::test]
async fn decoded_large_body_equals_the_plain_one() {
    let (server, client) = served().await;
    let path = "/v1/history/day?bytes=300000";
    let plain = client.get(path).await.expect("data");
    assert_eq!(plain.headers()["content-length"], "300000");
    let coded = builder(&server).compression().built().get(path).await;
    let coded = coded.expect("data");
    // The service announces the length of plain bodies only.
    for gone in ["content-length", "content-encoding"] {
        assert!(!coded.headers().contains_key(gone), "{gone}");
    }
    let plain = plain.bytes().await.expect("a whole body");
    assert_eq!(coded.bytes().await.expect("a whole body"), plain);
}
