use super::*;

#[test]
fn this_machine_is_not_reached_through_the_environments_proxy() {
    let proxies = Proxies::Named(Arc::new(
        Matcher::builder().all("http://proxy:3128").build(),
    ));
    let proxy = |target: &str| {
        let target = target.parse().expect("an address");
        proxies.of(&target).expect("it can be read")
    };
    for here in [
        "https://localhost",
        "https://127.0.0.2:8443",
        "https://[::1]/v1",
    ] {
        assert!(proxy(here).is_none(), "{here}");
    }
    for elsewhere in [
        "https://localhost.example",
        "https://128.0.0.1",
        "https://[::2]",
    ] {
        assert!(proxy(elsewhere).is_some(), "{elsewhere}");
    }
}
