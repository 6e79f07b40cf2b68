use http::HeaderName;

use super::*;

fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        let value = HeaderValue::from_str(value).expect("a header's value");
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

fn kong(values: &[&str]) -> Option<Duration> {
    Served::Kong.read(&headers("x-kong-upstream-latency", values))
}

#[test]
fn what_a_gateway_says_is_read_in_milliseconds() {
    assert_eq!(kong(&["190"]), Some(Duration::from_millis(190)));
    let envoy = headers("x-envoy-upstream-service-time", &["7"]);
    assert_eq!(Served::Envoy.read(&envoy), Some(Duration::from_millis(7)));
    assert_eq!(Served::Kong.read(&envoy), None);
}

#[test]
fn what_is_no_time_is_no_proof() {
    let digits = "9".repeat(400);
    for value in [
        "-1",
        "-1e-300",
        "NaN",
        "-NaN",
        "inf",
        "-inf",
        "1e300",
        "1e400",
        &digits[..21],
        &digits,
        "",
        "soon",
        "86400001",
        "0x10",
    ] {
        assert_eq!(kong(&[value]), None, "{value}");
        let timing = headers("server-timing", &[&format!("up;dur={value}")]);
        assert_eq!(Served::ServerTiming("up").read(&timing), None, "{value}");
    }
    assert_eq!(kong(&["-0"]), Some(Duration::ZERO));
    assert_eq!(kong(&["1e-400"]), Some(Duration::ZERO));
    assert_eq!(kong(&["1", "2"]), None, "nobody knows whose");
    assert_eq!(kong(&[]), None);
}

#[test]
fn one_metric_of_server_timing_is_read_by_its_name() {
    let timing = |values: &[&str]| {
        let headers = headers("server-timing", values);
        Served::ServerTiming("upstream").read(&headers)
    };
    let found = Some(Duration::from_micros(53_200));
    assert_eq!(timing(&["cache;desc=\"hit\", upstream;dur=53.2"]), found);
    assert_eq!(timing(&["db;dur=1", "upstream;desc=\"x\";dur=53.2"]), found);
    assert_eq!(timing(&["upstreamer;dur=53.2"]), None);
    assert_eq!(timing(&["upstream"]), None);
    assert_eq!(timing(&["upstream;dur=1, upstream;dur=2"]), None);
}
