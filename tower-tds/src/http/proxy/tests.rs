use super::*;

#[test]
fn invalid_proxy_address_is_refused() {
    let target = Uri::from_static("https://data.example.org");
    for url in [
        "proxy:3128",
        "http://proxy",
        "http://[::1]",
        "http://ann:s3cr3t@[::1]:3128",
    ] {
        Proxies::one(url).of(&target).map(drop).expect(url);
    }
    for url in [
        "http://proxy:99999",
        "http://ann:s3cr3t@[::1]:x",
        "http://ann:p^ss@proxy:3128",
        "https://proxy",
        "ftp://proxy",
        "http://a b",
    ] {
        Proxies::one(url).of(&target).map(drop).expect_err(url);
    }
}

#[test]
fn plain_http_goes_through_no_proxy() {
    let target = Uri::from_static("http://127.0.0.1:8080");
    let one = Proxies::one("http://proxy:3128");
    assert!(one.of(&target).expect("it can be read").is_none());
}
