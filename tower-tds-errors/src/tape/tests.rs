use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::Tape;

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

fn flat(map: &HeaderMap) -> Vec<(HeaderName, HeaderValue, bool)> {
    let entries = map.iter();
    entries
        .map(|(name, value)| (name.clone(), value.clone(), value.is_sensitive()))
        .collect()
}

proptest! {
    #[test]
    fn what_is_read_back_is_what_was_written(headers in headers()) {
        let tape = Tape::of(&headers).unwrap();
        prop_assert_eq!(flat(&tape.headers().unwrap()), flat(&headers));
    }
}

#[test]
fn a_buffer_is_used_again_and_shows_nothing_of_the_tape_before() {
    let mut headers = HeaderMap::new();
    headers.insert("x-long", HeaderValue::from_static("CANARY"));
    let first = Tape::of(&headers).unwrap();
    let address = first.bytes.as_ptr();
    drop(first);
    headers.clear();
    headers.insert("x", HeaderValue::from_static("1"));
    let second = Tape::of(&headers).unwrap();
    assert_eq!(second.bytes.as_ptr(), address);
    assert_eq!(second.headers().unwrap(), headers);
}

#[test]
fn no_headers_take_no_buffer() {
    let tape = Tape::of(&HeaderMap::new()).unwrap();
    assert_eq!(tape.bytes.capacity(), 0);
    assert_eq!(tape.headers().unwrap(), HeaderMap::new());
}
