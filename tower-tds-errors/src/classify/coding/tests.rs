use std::borrow::Cow;
use std::io::Read;

use flate2::Compression;
use flate2::read::GzEncoder;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

const MOST_DECODED: usize = 64 * 1024;

const TEXT: &[u8] = b"{\"message\":\"API rate limit exceeded\"}";

const NOTHING: &[u8] = b"";

/// `TEXT` as a brotli encoder writes it at quality 11.
const BROTLI: &[u8] = include_bytes!("tests/message.br");

/// What is read of a body.
fn decoded<'a>(headers: &'a HeaderMap, body: &'a [u8]) -> Cow<'a, [u8]> {
    let decoded = super::decoded(headers, body);
    if decoded.unread.is_some() {
        return Cow::Borrowed(NOTHING);
    }
    decoded.bytes
}

fn declared(codings: &[&'static str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for coding in codings {
        headers.append("content-encoding", HeaderValue::from_static(coding));
    }
    headers
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzEncoder::new(bytes, Compression::best())
        .read_to_end(&mut out)
        .unwrap();
    out
}

#[test]
fn each_coding_gives_its_text_back() {
    for (coding, body) in [
        ("gzip", gzip(TEXT)),
        ("x-gzip", gzip(TEXT)),
        ("GZip ", gzip(TEXT)),
        ("br", BROTLI.to_vec()),
        ("identity", TEXT.to_vec()),
        ("", TEXT.to_vec()),
    ] {
        assert_eq!(decoded(&declared(&[coding]), &body), TEXT, "{coding}");
    }
}

#[test]
fn stacked_codings_are_undone_from_the_last() {
    for codings in [&["br, gzip"][..], &["br", "gzip"]] {
        assert_eq!(decoded(&declared(codings), &gzip(BROTLI)), TEXT);
    }
    let deep = gzip(&gzip(&gzip(&gzip(TEXT))));
    assert_eq!(decoded(&declared(&["gzip,gzip,gzip,gzip"]), &deep), NOTHING);
}

#[test]
fn what_is_declared_wrongly_is_read_all_the_same() {
    for coding in ["gzip", "br", "deflate", "zstd", "gzip, br"] {
        assert_eq!(decoded(&declared(&[coding]), TEXT), TEXT, "{coding}");
        for words in [
            "invalid token\n",
            "JWT expired",
            "<p>Unauthorized.</p>",
            "額度",
        ] {
            let words = words.as_bytes();
            assert_eq!(decoded(&declared(&[coding]), words), words, "{coding}");
        }
    }
    assert_eq!(decoded(&declared(&[]), &gzip(TEXT)), TEXT, "not declared");
    assert_eq!(
        decoded(&declared(&["gzip"]), &gzip(&gzip(TEXT))),
        TEXT,
        "twice"
    );
    assert_eq!(decoded(&declared(&["zstd"]), b"\x28\xb5\x2f\xfd"), NOTHING);
}

#[test]
fn bytes_in_a_coding_that_is_not_known_stay_and_its_name_is_told() {
    let zstd = include_bytes!("tests/message.zst");
    for (coding, body, left) in [
        ("zstd", &zstd[..], &zstd[..]),
        ("zstd, gzip", &gzip(zstd), zstd),
        ("zstd", NOTHING, NOTHING),
    ] {
        let headers = declared(&[coding]);
        let decoded = super::decoded(&headers, body);
        assert_eq!(&*decoded.bytes, left, "{coding}");
        assert_eq!(decoded.unread.is_some(), !left.is_empty(), "{coding}");
        assert_eq!(decoded.unread.unwrap_or("zstd"), "zstd");
    }
}

#[test]
fn plain_bytes_are_not_copied() {
    for codings in [&[][..], &["br"]] {
        let headers = declared(codings);
        assert!(matches!(decoded(&headers, TEXT), Cow::Borrowed(_)));
    }
}

#[test]
fn a_bomb_is_cut_at_the_bound_of_decoded_bytes() {
    let bomb = gzip(&vec![b'x'; 16 * 1024 * 1024]);
    assert!(bomb.len() <= 16 * 1024, "{}", bomb.len());
    assert_eq!(decoded(&declared(&["gzip"]), &bomb).len(), MOST_DECODED);
    let double = gzip(&bomb);
    assert_eq!(
        decoded(&declared(&["gzip, gzip"]), &double).len(),
        MOST_DECODED
    );
}

#[test]
fn a_window_beyond_the_standard_is_refused_before_it_is_allocated() {
    // Brotli's marker, then 30 bits: a ring of 1 GiB.
    assert_eq!(
        decoded(&declared(&["br"]), b"\x11\x1e\xff\xff\xff"),
        NOTHING
    );
}

#[test]
fn a_body_cut_at_any_byte_gives_a_beginning_of_its_text() {
    for (coding, body) in [("gzip", gzip(TEXT)), ("br", BROTLI.to_vec())] {
        let headers = declared(&[coding]);
        for end in 0..body.len() {
            let part = decoded(&headers, &body[..end]);
            assert!(TEXT.starts_with(&part), "{coding} at {end}: {part:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_body_panics_or_grows_beyond_the_bound(
        body in prop::collection::vec(any::<u8>(), 0..2000),
        codings in prop::sample::subsequence(vec!["gzip", "br", "deflate", "zstd"], 0..4),
    ) {
        let headers = declared(&codings);
        prop_assert!(super::decoded(&headers, &body).bytes.len() <= MOST_DECODED);
    }
}
