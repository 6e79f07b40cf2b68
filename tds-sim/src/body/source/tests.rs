use std::io::Read as _;

use http::HeaderMap;

use super::{Coding, Source};

fn asked(name: &'static str, value: &str) -> Option<Coding> {
    let mut headers = HeaderMap::new();
    headers.insert(name, value.parse().unwrap());
    Coding::accepted_by(&headers)
}

#[test]
fn both_headers_select_a_coding() {
    for name in ["content-encoding", "accept-encoding"] {
        assert_eq!(asked(name, "br,gzip"), Some(Coding::Brotli), "{name}");
        assert_eq!(asked(name, "gzip, deflate"), Some(Coding::Gzip), "{name}");
        assert_eq!(
            asked(name, "GZIP;q=0.5, br;q=0"),
            Some(Coding::Gzip),
            "{name}"
        );
        assert_eq!(asked(name, "identity, zstd"), None, "{name}");
    }
    assert_eq!(Coding::accepted_by(&HeaderMap::new()), None);
}

#[test]
fn numbered_lines_have_the_requested_length() {
    let mut text = String::new();
    Source::lines(80).read_to_string(&mut text).unwrap();
    assert_eq!(
        text,
        "000000000000,on time,2026-11-21\n000000000001,on time,2026-11-21\n000000000002,on "
    );
    let mut many = Vec::new();
    Source::lines(100_000).read_to_end(&mut many).unwrap();
    assert_eq!(many.len(), 100_000);
    assert!(many.ends_with(b"000000003124,on time,2026-11-21\n"));
}
