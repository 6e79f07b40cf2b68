use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use proptest::prelude::*;

use super::Tape;
use crate::error::facts::parts;

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

/// Whatever `http` takes for a URI.
fn uri() -> impl Strategy<Value = Uri> {
    let scheme = prop_oneof![
        Just(""),
        Just("http://"),
        Just("HTTPS://"),
        Just("ftp+x://")
    ];
    let user = prop_oneof![Just(""), Just("me:pw@")];
    let host = prop_oneof![
        Just(""),
        Just("a.Example"),
        Just("[::1]"),
        Just("127.0.0.1")
    ];
    let port = prop_oneof![Just(""), Just(":8443"), Just(":")];
    let target = prop_oneof![Just("*".to_owned()), "/?[a-z/?%:@é*]{0,200}(#[a-z]{0,3})?"];
    (scheme, user, host, port, target).prop_filter_map(
        "no URI",
        |(scheme, user, host, port, target)| {
            format!("{scheme}{user}{host}{port}{target}").parse().ok()
        },
    )
}

fn flat(map: &HeaderMap) -> Vec<(HeaderName, HeaderValue, bool)> {
    let entries = map.iter();
    entries
        .map(|(name, value)| (name.clone(), value.clone(), value.is_sensitive()))
        .collect()
}

fn tape(headers: &HeaderMap) -> Tape {
    let mut tape = Tape::of(&Method::GET, &Uri::default());
    tape.add(headers);
    tape
}

proptest! {
    #[test]
    fn the_headers_read_back_are_those_that_were_written(headers in headers()) {
        let back = tape(&headers).request(()).unwrap();
        prop_assert_eq!(flat(back.headers()), flat(&headers));
    }

    #[test]
    fn a_uri_read_back_is_the_one_that_was_written(uri in uri(), headers in headers()) {
        let mut tape = Tape::of(&Method::GET, &uri);
        prop_assert_eq!(tape.parts(), parts(&uri));
        tape.add(&headers);
        let back = tape.request(()).unwrap();
        prop_assert_eq!(back.uri(), &uri);
        prop_assert_eq!(back.uri().to_string(), uri.to_string());
        prop_assert_eq!(tape.parts(), parts(&uri));
    }
}

#[test]
fn every_form_of_a_uri_says_its_parts() {
    for (uri, parts) in [
        (
            "https://api.example/v2?key=1",
            ["https", "api.example", "/v2"],
        ),
        ("http://me:pw@host:8443", ["http", "me:pw@host:8443", "/"]),
        ("http://host?key=1", ["http", "host", "/"]),
        ("/v2/rail", ["", "", "/v2/rail"]),
        ("*", ["", "", "*"]),
        ("api.example:443", ["", "api.example:443", ""]),
        ("ftp://host/file", ["ftp", "host", "/file"]),
    ] {
        assert_eq!(Tape::of(&Method::GET, &uri.parse().unwrap()).parts(), parts);
    }
}

#[test]
fn the_method_and_the_scheme_are_those_of_the_last_request() {
    for (method, uri) in [
        (Method::GET, "https://host/a"),
        (Method::POST, "https://host/b"),
        (Method::POST, "ftp://host/b"),
        ("PURGE-BY-A-LONG-NAME".parse().unwrap(), "/"),
        (Method::GET, "http://host/"),
    ] {
        let uri: Uri = uri.parse().unwrap();
        let tape = Tape::of(&method, &uri);
        let back = tape.request(7).unwrap();
        assert_eq!((tape.method(), back.method()), (&method, &method));
        assert_eq!((back.uri(), *back.body()), (&uri, 7));
    }
}

#[test]
fn a_record_is_used_again_and_shows_nothing_of_the_request_before() {
    let mut headers = HeaderMap::new();
    headers.insert("x-long", HeaderValue::from_static("CANARY"));
    let first = tape(&headers);
    let address = |tape: &Tape| tape.record.as_ref().unwrap().bytes.as_ptr();
    let before = address(&first);
    drop(first);
    headers.clear();
    headers.insert("x", HeaderValue::from_static("1"));
    let second = tape(&headers);
    assert_eq!(address(&second), before);
    assert_eq!(second.request(()).unwrap().headers(), &headers);
    // The first is spare no longer.
    let third = tape(&HeaderMap::new());
    assert_ne!(address(&third), before);
    assert_eq!(third.request(()).unwrap().headers(), &HeaderMap::new());
}
