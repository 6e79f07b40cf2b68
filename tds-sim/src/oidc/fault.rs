//! Answers that stand in for a token.

use http::{Response, StatusCode};

use crate::{body::Body, fault::TokenFault, oidc::page};

/// What is sent instead of looking at the request, if the fault is of that kind.
pub(super) fn instead(fault: TokenFault) -> Option<Response<Body>> {
    match fault {
        TokenFault::Unavailable => Some(page(
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain",
            "Service Unavailable\n",
        )),
        TokenFault::Html => Some(page(
            StatusCode::OK,
            "text/html; charset=utf-8",
            MAINTENANCE,
        )),
        TokenFault::WrongJson => Some(page(StatusCode::OK, "application/json", WRONG_JSON)),
        TokenFault::Down | TokenFault::Slow(_) | TokenFault::ExpiresIn(_) => None,
    }
}

const MAINTENANCE: &str = "<!doctype html>\n<html><head><title>Maintenance</title></head>\
     <body><h1>We will be back soon</h1></body></html>\n";

const WRONG_JSON: &str = r#"{"access_token":12,"expires_in":86400,"token_type":"Bearer"}"#;
