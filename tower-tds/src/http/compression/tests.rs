use http::HeaderMap;

use super::*;
use crate::RequestBody;

fn asked(request: http::request::Builder) -> HeaderMap {
    let mut request = request.body(RequestBody::default()).expect("a request");
    request_coded(&mut request);
    request.into_parts().0.headers
}

#[test]
fn get_and_head_send_content_encoding_br_gzip() {
    for method in [Method::GET, Method::HEAD] {
        let headers = asked(Request::builder().method(method));
        assert_eq!(headers[CONTENT_ENCODING], "br,gzip");
        assert_eq!(headers[ACCEPT_ENCODING], "br,gzip");
    }
}

#[test]
fn range_request_accepts_only_identity_coding() {
    let headers = asked(Request::get("/").header(RANGE, "bytes=5-8"));
    assert_eq!(headers.get(CONTENT_ENCODING), None);
    assert_eq!(headers[ACCEPT_ENCODING], "identity");
}

#[test]
fn content_encoding_of_a_post_is_not_changed() {
    let headers = asked(Request::post("/"));
    assert_eq!(headers.get(CONTENT_ENCODING), None);
    let headers = asked(Request::post("/").header(CONTENT_ENCODING, "gzip"));
    assert_eq!(headers[CONTENT_ENCODING], "gzip");
    assert_eq!(headers[ACCEPT_ENCODING], "br,gzip", "of its response");
}

#[test]
fn request_that_names_its_coding_is_not_changed() {
    for (name, value) in [(ACCEPT_ENCODING, "zstd"), (CONTENT_ENCODING, "gzip")] {
        let headers = asked(Request::get("/").header(&name, value));
        assert_eq!(
            (headers.len(), &headers[name]),
            (1, &HeaderValue::from_static(value))
        );
    }
}
