use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tower::{ServiceExt, service_fn};

use super::*;

type Named = [Option<String>; 2];

/// The encodings that a request names below the layer.
async fn named_by(compression: Compression, request: Request<RequestBody>) -> Named {
    let echo = service_fn(async |request: Request<RequestBody>| {
        let named: Named = [CONTENT_ENCODING, ACCEPT_ENCODING].map(|name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().expect("it is text").to_owned())
        });
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(named);
        Ok::<_, Infallible>(response)
    });
    let response = compression.around(echo).oneshot(request).await;
    let mut response = response.expect("it cannot fail");
    let named = response.extensions_mut().remove::<Named>();
    named.expect("the echo put it there")
}

async fn named(compression: Compression) -> Named {
    named_by(compression, Request::new(RequestBody::default())).await
}

#[tokio::test]
async fn the_contracts_header_is_sent_word_for_word_beside_the_standard_one() {
    let [contract, standard] = named(Compression::On).await;
    assert_eq!(contract.as_deref(), Some("br,gzip"));
    let standard = standard.expect("the standard header");
    assert!(
        standard.contains("br") && standard.contains("gzip"),
        "{standard}"
    );
}

/// These tests are built with every decompression that tower-http has.
#[tokio::test]
async fn what_another_crate_turns_on_changes_no_request() {
    let [_, standard] = named(Compression::On).await;
    let standard = standard.expect("the standard header");
    assert!(
        !standard.contains("deflate") && !standard.contains("zstd"),
        "{standard}"
    );
    for (name, value) in [("x", "1"), ("range", "bytes=5-8")] {
        let request = Request::get("/").header(name, value);
        let request = request.body(RequestBody::default()).expect("a request");
        let named = named_by(Compression::Off, request).await;
        assert_eq!(named, [None, None], "{name}");
    }
}

#[tokio::test]
async fn nothing_is_asked_for_by_default() {
    assert_eq!(named(Compression::Off).await, [None, None]);
}

#[tokio::test]
async fn a_range_is_asked_for_as_it_is() {
    let request = Request::get("/").header(RANGE, "bytes=5-8");
    let request = request.body(RequestBody::default()).expect("a request");
    let named = named_by(Compression::On, request).await;
    assert_eq!(named, [None, Some("identity".into())]);
}

#[tokio::test]
async fn the_coding_of_a_requests_own_body_is_the_callers_to_name() {
    for (coding, expected) in [(None, None), (Some("gzip"), Some("gzip"))] {
        let mut request = Request::post("/");
        if let Some(coding) = coding {
            request = request.header(CONTENT_ENCODING, coding);
        }
        let request = request.body(RequestBody::default()).expect("a request");
        let [named, _] = named_by(Compression::On, request).await;
        assert_eq!(named.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_part_of_a_coded_body_is_handed_on_as_it_is_and_says_so() {
    for compression in [Compression::On, Compression::Off] {
        let part = service_fn(async |_: Request<RequestBody>| {
            let response = Response::builder().status(206);
            let response = response.header(CONTENT_ENCODING, "gzip");
            let response = response.body(Full::new(Bytes::from_static(b"abcd")));
            Ok::<_, Infallible>(response.expect("a response"))
        });
        let request = Request::new(RequestBody::default());
        let response = compression.around(part).oneshot(request).await;
        let response = response.expect("it cannot fail");
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let body = response.into_body().collect().await;
        assert_eq!(body.expect("it is left alone").to_bytes(), "abcd");
    }
}
