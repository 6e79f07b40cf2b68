//! Refusals by a server of this program: a status, a `Retry-After`, and the reason as JSON.

use std::time::Duration;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;
use tower_tds::{Error, Kind};

/// A response without data.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    status: StatusCode,
    retry_after: Option<Duration>,
    reason: Reason,
}

#[derive(Debug, Clone, Serialize)]
struct Reason {
    kind: &'static str,
    /// The text: what happened, and what to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

// === impl Refusal ===

impl Refusal {
    /// A refusal of this program itself.
    pub(crate) const fn new(status: StatusCode, kind: &'static str) -> Self {
        Self {
            status,
            retry_after: None,
            reason: Reason { kind, error: None },
        }
    }

    /// Sets `Retry-After`.
    pub(crate) const fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Adds a text. The caller must be allowed to read it.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.reason.error = Some(why.into());
        self
    }

    /// The response for a failed call, without its text, which contains addresses.
    pub(crate) fn of(error: &Error) -> Self {
        let kind = error.kind();
        let status = match kind {
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::InvalidRequest => StatusCode::BAD_REQUEST,
            Kind::Rejected => error.status().unwrap_or(StatusCode::BAD_GATEWAY),
            // The program's user did not cause these. The operator has to act.
            Kind::MissingCredentials
            | Kind::InvalidToken
            | Kind::Unauthorized
            | Kind::MissingRole
            | Kind::TokenRefused
            | Kind::UnexpectedAnswer
            | Kind::Malformed
            | Kind::Tls => StatusCode::BAD_GATEWAY,
            _ if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            // Also for a 416 that may be about sockets, because a program that resumes a file reads
            // a 416 as the end of the file.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let refusal = Self::new(status, kind.as_str());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return refusal.after(error.retry_after().unwrap_or(SOON));
        }
        refusal
    }

    /// Changes a client error other than 404 into a 502, because a user of a listed resource cannot
    /// correct it.
    pub(crate) fn listed(mut self) -> Self {
        if self.status.is_client_error() && self.status != StatusCode::NOT_FOUND {
            self.status = StatusCode::BAD_GATEWAY;
        }
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.reason).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            // Rounded up, because an early request is refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

const SOON: Duration = Duration::from_secs(1);
