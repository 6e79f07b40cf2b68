use std::time::SystemTime;

use bytes::Bytes;
use http::Request;

use super::request_at;
use crate::{Credentials, TokenEndpoint};

fn request(credentials: &Credentials, more: &[(&str, &str)]) -> Request<Bytes> {
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let more: Vec<_> = more.iter().map(owned).collect();
    request_at(SystemTime::UNIX_EPOCH, &endpoint, credentials, &more).unwrap()
}

#[test]
fn post_form_contains_the_encoded_id_and_secret() {
    let credentials = Credentials::new("a&b", "100%+=é:/").unwrap();
    let request = request(&credentials, &[]);
    assert_eq!(
        request.body(),
        "grant_type=client_credentials&client_id=a%26b&client_secret=100%25%2B%3D%C3%A9%3A%2F"
    );
    assert!(!request.headers().contains_key("authorization"));
}

#[test]
fn basic_form_contains_no_id_or_secret() {
    let credentials = Credentials::basic("id", "secret").unwrap();
    let request = request(&credentials, &[]);
    assert_eq!(request.body(), "grant_type=client_credentials");
    let header = &request.headers()["authorization"];
    assert_eq!(header, "Basic aWQ6c2VjcmV0");
    assert!(header.is_sensitive());
}

#[test]
fn fields_of_the_builder_are_appended_form_encoded() {
    let credentials = Credentials::basic("id", "secret").unwrap();
    let more = [
        ("scope", "a b"),
        ("resource", "https://a.example/?y=z"),
        ("tenant", "é"),
    ];
    let request = request(&credentials, &more);
    assert_eq!(
        request.body(),
        "grant_type=client_credentials&scope=a+b&resource=https%3A%2F%2Fa.example%2F%3Fy%3Dz&tenant=%C3%A9"
    );
}

#[test]
fn fields_replace_the_grant_and_join_any_proof() {
    let add = |credentials: Credentials| {
        credentials
            .field("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
            .field("assertion", "e30.e30.&")
    };
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
    let fields = format!("grant_type={grant}&assertion=e30.e30.%26");
    for (credentials, form, has_header) in [
        (Credentials::form("account"), fields.clone(), false),
        (Credentials::basic("id", "s").unwrap(), fields.clone(), true),
        (
            Credentials::form("account").field("client_id", "a&b"),
            format!("client_id=a%26b&{fields}"),
            false,
        ),
        (
            Credentials::new("id", "s").unwrap(),
            format!("client_id=id&client_secret=s&{fields}"),
            false,
        ),
    ] {
        let request = request(&add(credentials), &[]);
        assert_eq!(request.body(), form.as_str());
        assert_eq!(request.headers().contains_key("authorization"), has_header);
    }
}

#[test]
fn debug_shows_the_names_of_fields_and_no_values() {
    let credentials = Credentials::form("account").field("assertion", "canary");
    let text = format!("{credentials:?} {credentials:#?}");
    assert!(
        text.contains("assertion") && text.contains("account"),
        "{text}"
    );
    assert!(!text.contains("canary"), "{text}");
}
