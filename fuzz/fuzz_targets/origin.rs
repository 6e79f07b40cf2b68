//! Whatever is taken for an origin is https, and is itself when read again.

#![no_main]

use http::Uri;
use libfuzzer_sys::fuzz_target;
use tower_oidc_cc::Origin;

fuzz_target!(|input: &str| {
    let Ok(uri) = input.parse::<Uri>() else {
        return;
    };
    if let Ok(origin) = Origin::from_uri(&uri) {
        let shown = origin.to_string();
        assert!(shown.starts_with("https://"), "{shown}");
        let again = shown.parse::<Uri>().expect("an origin is an address");
        assert_eq!(Origin::from_uri(&again).expect("and an origin"), origin);
    }
});
