//! A typed error and the outcome of its response agree about `WWW-Authenticate`, example by example.

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tower_tds::{
    Kind,
    layers::{errors::classify, outcome::Outcome},
};

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('|').collect())
}

fn response(status: StatusCode, headers: &HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("it can be sent")
}

#[test]
fn errors_and_token_layer_read_challenges_as_listed() {
    for row in rows(include_str!("hints/challenges.txt")) {
        let [challenge, meaning] = row[..] else {
            unreachable!("two cells in {row:?}")
        };
        let (kind, outcome) = match meaning.trim() {
            "no header" => (Kind::MissingCredentials, Outcome::NoHeader),
            "dead token" => (Kind::InvalidToken, Outcome::TokenRefused),
            "missing role" => (Kind::MissingRole, Outcome::RoleMissing),
            "outage" => (Kind::Unavailable, Outcome::TokenRefused),
            _ => (Kind::InvalidToken, Outcome::TokenRefused),
        };
        let mut headers = HeaderMap::new();
        headers.insert("www-authenticate", value(challenge.trim()));
        let error =
            classify(&HeaderMap::new(), StatusCode::UNAUTHORIZED, &headers, "").expect_err("a 401");
        assert_eq!(error.kind(), kind, "errors: {row:?}");
        let answer = response(StatusCode::UNAUTHORIZED, &headers);
        let read = Outcome::of_response(&answer);
        assert_eq!(read, outcome, "token: {row:?}");
    }
}
