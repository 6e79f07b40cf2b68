use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use proptest::prelude::*;

use super::Tape;

fn uris() -> impl Strategy<Value = String> {
    prop_oneof![
        "(https?|ftp)://(u:p@)?[a-z0-9]{1,9}(\\.[a-z]{2,3})?(:[1-9][0-9]{0,3})?(/[a-z%0-9._~-]{0,12}){0,3}(\\?[a-z=&$%20]{0,9})?"
            .prop_filter("a percent sign needs digits", |uri| uri.parse::<Uri>().is_ok()),
        "/[a-z0-9]{0,9}(\\?[a-z=&]{0,9})?",
        "[a-z]{1,9}:[1-9][0-9]{0,3}",
        Just(String::from("*")),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof![Just("accept".to_owned()), "x-[a-z0-9-]{0,80}"];
    let value = prop::collection::vec(32u8..127, 0..300);
    prop::collection::vec((name, value, any::<bool>()), 0..12).prop_map(|entries| {
        let mut headers = HeaderMap::new();
        for (name, value, sensitive) in entries {
            let mut value = HeaderValue::from_bytes(&value).unwrap();
            value.set_sensitive(sensitive);
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        headers
    })
}

proptest! {
    #[test]
    fn what_is_read_back_is_what_was_written(uri in uris(), headers in headers()) {
        let uri: Uri = uri.parse().unwrap();
        let mut tape = Tape::new(&uri);
        prop_assert_eq!(tape.add(&headers), Some(()));
        let back = tape.uri().unwrap();
        prop_assert_eq!(back.to_string(), uri.to_string());
        prop_assert_eq!(back.authority(), uri.authority());
        prop_assert_eq!(back.query(), uri.query());
        let read = tape.headers().unwrap();
        let flat = |map: &HeaderMap| -> Vec<_> {
            let entries = map.iter();
            entries.map(|(k, v)| (k.clone(), v.clone(), v.is_sensitive())).collect()
        };
        prop_assert_eq!(flat(&read), flat(&headers));
    }
}

#[test]
fn a_buffer_is_used_again_and_shows_nothing_of_the_tape_before() {
    let mut long = HeaderMap::new();
    long.insert("x-a", HeaderValue::from_static("CANARY"));
    let mut first = Tape::new(&Uri::from_static("https://api.example/v2"));
    first.add(&long).unwrap();
    let address = first.bytes.as_ptr();
    drop(first);
    let second = Tape::new(&Uri::from_static("/"));
    assert_eq!(second.bytes.as_ptr(), address);
    assert_eq!(second.uri().unwrap(), "/");
    assert_eq!(second.headers().unwrap(), HeaderMap::new());
}
