use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use proptest::prelude::*;

use super::Saved;

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

fn saved(method: &Method, uri: &Uri, headers: &HeaderMap) -> Saved {
    let mut request = Request::new(());
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    Saved::head(&request)
}

proptest! {
    #[test]
    fn a_request_read_back_is_the_one_that_was_written(uri in uri(), headers in headers()) {
        let back = saved(&Method::GET, &uri, &headers).request(()).unwrap();
        prop_assert_eq!(back.uri(), &uri);
        prop_assert_eq!(back.uri().to_string(), uri.to_string());
        prop_assert_eq!(flat(back.headers()), flat(&headers));
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
        (Method::CONNECT, "host:443"),
    ] {
        let uri: Uri = uri.parse().unwrap();
        let line = Saved::line(&method, &uri);
        let back = line.request(7).unwrap();
        assert_eq!((line.method(), back.method()), (&method, &method));
        assert_eq!((back.uri(), *back.body()), (&uri, 7));
    }
}

#[test]
fn a_buffer_is_used_again_and_shows_nothing_of_the_request_before() {
    let head = |headers: &HeaderMap| saved(&Method::GET, &Uri::default(), headers);
    let mut headers = HeaderMap::new();
    headers.insert("x-long", HeaderValue::from_static("CANARY"));
    let first = head(&headers);
    let address = |saved: &Saved| saved.parts.as_ref().unwrap().bytes.as_ptr();
    let before = address(&first);
    drop(first);
    headers.clear();
    headers.insert("x", HeaderValue::from_static("1"));
    let second = head(&headers);
    assert_eq!(address(&second), before);
    assert_eq!(second.request(()).unwrap().headers(), &headers);
    // The first is spare no longer.
    let third = head(&HeaderMap::new());
    assert_ne!(address(&third), before);
    assert_eq!(third.request(()).unwrap().headers(), &HeaderMap::new());
}

#[test]
fn of_a_sensitive_header_there_is_no_copy() {
    let mut secret = HeaderValue::from_static("CANARY");
    secret.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", secret.clone());
    headers.insert("x", HeaderValue::from_static("1"));
    headers.append("x-api-key", secret);
    let saved = saved(&Method::GET, &Uri::default(), &headers);
    let bytes = &saved.parts.as_ref().unwrap().bytes;
    assert!(!bytes.windows(6).any(|bytes| bytes == b"CANARY"));
    assert_eq!(
        flat(saved.request(()).unwrap().headers()),
        flat(&headers),
        "and it is sent again"
    );
    drop(saved);
    let spare = super::take();
    assert_eq!(spare.secrets.len(), 0, "a spare buffer keeps none alive");
}
