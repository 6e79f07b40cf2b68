use http::HeaderMap;

use super::*;

fn asked(request: http::request::Builder) -> HeaderMap {
    let request = request.body(RequestBody::default()).expect("a request");
    request_coded(request).into_parts().0.headers
}

#[test]
fn a_read_sends_the_contracts_header_word_for_word() {
    for method in [Method::GET, Method::HEAD] {
        let headers = asked(Request::builder().method(method));
        assert_eq!(headers[CONTENT_ENCODING], "br,gzip");
        assert_eq!(headers.len(), 1, "tower-http adds the standard one");
    }
}

#[test]
fn a_range_is_asked_for_uncoded() {
    let headers = asked(Request::get("/").header(RANGE, "bytes=5-8"));
    assert_eq!(headers.get(CONTENT_ENCODING), None);
    assert_eq!(headers[ACCEPT_ENCODING], "identity");
}

#[test]
fn the_coding_of_a_requests_own_body_is_its_callers_to_name() {
    let headers = asked(Request::post("/"));
    assert_eq!(headers.get(CONTENT_ENCODING), None);
    let headers = asked(Request::post("/").header(CONTENT_ENCODING, "gzip"));
    assert_eq!(headers[CONTENT_ENCODING], "gzip");
}
