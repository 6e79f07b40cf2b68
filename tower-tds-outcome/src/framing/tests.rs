use http::HeaderMap;

use super::remove_connection_headers;

fn left(headers: &[(&'static str, &str)]) -> Vec<String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    remove_connection_headers(&mut map);
    map.keys().map(ToString::to_string).collect()
}

#[test]
fn headers_of_a_connection_go_and_others_stay() {
    let gone = [
        ("connection", "keep-alive"),
        ("connection", "X-One ,,\tx-two, not a name"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("transfer-encoding", "chunked"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("http2-settings", "AAMAAABk"),
    ];
    assert!(left(&gone).is_empty());
    let stay = ["accept", "content-length", "trailer", "x-one"];
    assert_eq!(left(&stay.map(|name| (name, "7"))), stay);
    let absent = ("connection", "close, x-none");
    assert_eq!(left(&[absent, ("host", "a")]), ["host"]);
}
