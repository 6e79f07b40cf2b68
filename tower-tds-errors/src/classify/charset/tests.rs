use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::text;

fn of(kind: &'static str, bytes: &[u8]) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(kind));
    text(&headers, bytes).map(Into::into)
}

#[test]
fn utf_8_and_utf_16_are_told_by_their_bytes() {
    for bytes in [
        "額度".as_bytes(),
        b"\xff\xfe\x4d\x98\xa6\x5e",
        b"\xfe\xff\x98\x4d\x5e\xa6",
        b"\xff\xfe\x4d\x98\xa6\x5e\x41",
    ] {
        assert_eq!(
            of("text/plain; charset=big5", bytes).as_deref(),
            Some("額度")
        );
    }
}

#[test]
fn what_is_no_text_says_nothing() {
    for bytes in [
        &b"\x1f\x8b\x08\x00"[..],
        b"o\0k\0",
        b"\xff",
        b"PK\x03\x04\0",
    ] {
        assert_eq!(of("text/plain", bytes), None, "{bytes:?}");
    }
}

#[test]
fn a_character_cut_in_two_is_left_out() {
    let whole = "額度".as_bytes();
    assert_eq!(of("text/plain", &whole[..4]).as_deref(), Some("額"));
}

#[test]
fn a_text_in_gbk_is_read_with_the_feature_and_is_none_without() {
    // The second has a character that GB 2312 has not.
    for (bytes, text) in [
        (
            &b"\xcf\xb5\xcd\xb3\xce\xac\xbb\xa4\xd6\xd0"[..],
            "系统维护中",
        ),
        (b"\xe9\x46\xd3\xc3", "镕用"),
    ] {
        let expected = cfg!(feature = "charset").then_some(text);
        for kind in ["text/plain; charset=gbk", "text/html; charset=GB2312"] {
            assert_eq!(of(kind, bytes).as_deref(), expected, "{kind}");
        }
    }
}

#[test]
fn a_declared_charset_is_read_with_the_feature() {
    let big5 = b"\xc3\x42\xab\xd7";
    let expected = cfg!(feature = "charset").then_some("額度");
    for kind in ["text/plain; charset=big5", "text/html;CHARSET=\"Big5\""] {
        assert_eq!(of(kind, big5).as_deref(), expected, "{kind}");
    }
    assert_eq!(of("text/plain; charset=nonsense", big5), None);
    assert_eq!(of("text/plain", big5), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in ["", "text/plain; charset=big5", "charset=gbk; charset=utf-16"] {
            of(kind, &bytes);
        }
    }
}
