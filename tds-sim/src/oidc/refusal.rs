//! Refusals of the token endpoint, word for word as Keycloak 26.5.0 gave them.

use std::borrow::Cow;

use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, PRAGMA},
};
use serde_json::json;

use crate::body::Body;

/// Refusal with an error code and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    error: &'static str,
    description: Cow<'static, str>,
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn unknown_scope(scope: &str) -> Self {
        Self {
            description: format!("Invalid scopes: {scope}").into(),
            ..Self::bad_request("invalid_scope", "")
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let reply = json!({ "error": self.error, "error_description": self.description });
        let mut response = Body::json(self.status, &reply);
        do_not_store(&mut response);
        response
    }

    const fn unauthorized(error: &'static str, description: &'static str) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            error,
            description: Cow::Borrowed(description),
        }
    }

    const fn bad_request(error: &'static str, description: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error,
            description: Cow::Borrowed(description),
        }
    }
}

/// Returns the response outside Keycloak's own paths, 53 bytes.
pub(super) fn outside() -> Response<Body> {
    let text = "<html><body><h1>Resource not found</h1></body></html>";
    Body::page(StatusCode::NOT_FOUND, "text/html; charset=utf-8", text)
}

/// Returns a refusal with an error code alone.
pub(super) fn bare(status: StatusCode, error: &str) -> Response<Body> {
    Body::json(status, &json!({ "error": error }))
}

/// Forbids caches to store a response.
pub(super) fn do_not_store(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
}

pub(super) const WRONG_SECRET: Refusal =
    Refusal::unauthorized("unauthorized_client", BAD_CREDENTIALS);
pub(super) const UNKNOWN_CLIENT: Refusal = Refusal::unauthorized("invalid_client", BAD_CREDENTIALS);
/// Refusal of a Basic header that is not form-encoded.
pub(super) const UNEXPECTED: Refusal = Refusal::bad_request(
    "unauthorized_client",
    "Unexpected error when authenticating client",
);
pub(super) const NO_GRANT_TYPE: Refusal =
    Refusal::bad_request("invalid_request", "Missing form parameter: grant_type");
pub(super) const UNKNOWN_GRANT_TYPE: Refusal =
    Refusal::bad_request("unsupported_grant_type", "Unsupported grant_type");
pub(super) const NO_DIRECT_ACCESS: Refusal = Refusal::bad_request(
    "unauthorized_client",
    "Client not allowed for direct access grants",
);
pub(super) const REPEATED_FIELD: Refusal =
    Refusal::bad_request("invalid_request", "duplicated parameter");

const BAD_CREDENTIALS: &str = "Invalid client or Invalid client credentials";
