use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, header::ACCEPT_ENCODING};
use http_body_util::Full;
use tower::{ServiceExt, service_fn};

use super::*;

/// The encodings that a request names below the layer.
async fn named(compression: Compression) -> [Option<String>; 2] {
    let echo = service_fn(async |request: Request<RequestBody>| {
        let named = [CONTENT_ENCODING, ACCEPT_ENCODING].map(|name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().expect("it is text").to_owned())
        });
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(named);
        Ok::<_, Infallible>(response)
    });
    let request = Request::new(RequestBody::default());
    let response = compression.around(echo).oneshot(request).await;
    let mut response = response.expect("it cannot fail");
    let named = response.extensions_mut().remove::<[Option<String>; 2]>();
    named.expect("the echo put it there")
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

#[tokio::test]
async fn nothing_is_asked_for_by_default() {
    assert_eq!(named(Compression::Off).await, [None, None]);
}
