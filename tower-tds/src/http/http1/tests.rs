use super::*;

#[test]
fn host_omits_the_default_port_of_the_scheme() {
    let cases = [
        ("https://d", "d"),
        ("https://d:443/api", "d"),
        ("https://d:80", "d:80"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("https://[::1]:8443", "[::1]:8443"),
        ("https://user:secret@d", "d"),
    ];
    for (url, host) in cases {
        let named = Host::of(&url.parse().expect(url)).expect(url);
        assert_eq!(named.header, host, "{url}");
    }
}
