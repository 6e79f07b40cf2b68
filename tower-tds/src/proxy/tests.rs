use super::*;

#[test]
fn what_cannot_be_read_as_a_proxy_is_told_from_what_can() {
    for url in [
        "http://proxy:3128",
        "http://ann:s3cr3t@proxy:3128",
        "proxy:3128",
    ] {
        assert!(is_readable(url), "{url}");
    }
    for url in ["http://ann:p^ss@proxy:3128", "ftp://proxy", "http://a b"] {
        assert!(!is_readable(url), "{url}");
    }
}

#[test]
fn a_port_that_is_none_is_not_taken_for_the_usual_one() {
    let target = Uri::from_static("https://data.example.org");
    for url in [
        "http://proxy",
        "http://[::1]",
        "http://ann:s3cr3t@[::1]:3128",
    ] {
        Proxies::one(url).check(&target).expect(url);
    }
    for url in ["http://proxy:99999", "http://ann:s3cr3t@[::1]:x"] {
        Proxies::one(url).check(&target).expect_err(url);
    }
}

#[test]
fn plain_http_goes_through_no_proxy() {
    let target = Uri::from_static("http://127.0.0.1:8080");
    let one = Proxies::one("http://proxy:3128");
    assert!(one.of(&target).expect("it can be read").is_none());
    one.check(&target)
        .expect_err("one of them would be ignored");
}
