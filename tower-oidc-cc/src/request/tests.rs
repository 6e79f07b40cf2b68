use std::time::SystemTime;

use super::request_at;
use crate::{Credentials, TokenEndpoint};

/// Fields of the credentials, then those of the builder; a `grant_type` replaces the usual one.
#[test]
fn the_form_holds_what_was_set_and_the_header_the_secret_of_basic() {
    let new = |id: &str, secret: &str| Credentials::new(id, secret).unwrap();
    let basic = || Credentials::basic("id", "secret").unwrap();
    let granted = |credentials: Credentials| {
        credentials
            .field("grant_type", "urn:jwt-bearer")
            .field("assertion", "e30.e30.&")
    };
    for (credentials, more, form, has_header) in [
        (
            new("a&b", "100%+=é:/"),
            &[][..],
            "grant_type=client_credentials&client_id=a%26b&client_secret=100%25%2B%3D%C3%A9%3A%2F",
            false,
        ),
        (
            basic(),
            &[
                ("scope", "a b"),
                ("resource", "https://a/?y=z"),
                ("tenant", "é"),
            ],
            "grant_type=client_credentials&scope=a+b&resource=https%3A%2F%2Fa%2F%3Fy%3Dz&tenant=%C3%A9",
            true,
        ),
        (
            granted(Credentials::empty("account")),
            &[],
            "grant_type=urn%3Ajwt-bearer&assertion=e30.e30.%26",
            false,
        ),
        (
            granted(new("id", "s")),
            &[],
            "client_id=id&client_secret=s&grant_type=urn%3Ajwt-bearer&assertion=e30.e30.%26",
            false,
        ),
        (
            granted(basic()),
            &[],
            "grant_type=urn%3Ajwt-bearer&assertion=e30.e30.%26",
            true,
        ),
    ] {
        let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
        let more: Vec<_> = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let request = request_at(SystemTime::UNIX_EPOCH, &endpoint, &credentials, &more).unwrap();
        assert_eq!(request.body(), form);
        let header = request.headers().get("authorization");
        let basic = has_header.then_some("Basic aWQ6c2VjcmV0");
        assert_eq!(header.map(|it| it.to_str().unwrap()), basic);
        assert!(header.is_none_or(http::HeaderValue::is_sensitive));
    }
}
