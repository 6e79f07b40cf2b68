//! Errors for the users of a backend: problem details (RFC 9457) with the message of the service.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::{Value, json};
use tower_tds::{Error, Kind};
use tower_tds_outcome::Secrets;

use crate::{ending::Trouble, exit::Exit, page};

/// Response without data, with a status, a kind and perhaps a `Retry-After`.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    status: StatusCode,
    kind: &'static str,
    retry_after: Option<Duration>,
    /// Message and body of the service, for the developer who wrote the request.
    said: Option<Arc<(String, Value)>>,
}

// === impl Refusal ===

impl Refusal {
    pub(crate) const fn new(status: StatusCode, kind: &'static str) -> Self {
        Self {
            status,
            kind,
            retry_after: None,
            said: None,
        }
    }

    /// Returns the refusal for a failed call. It leaves out the error's text, which contains
    /// addresses. Its `Retry-After` is at most `soon`, when the backend repeats its call.
    pub(crate) fn of(trouble: &Trouble, secrets: &Secrets, soon: Duration) -> Self {
        let Trouble::Service(error) = trouble else {
            let (status, wait) = match trouble {
                Trouble::Empty => (StatusCode::BAD_GATEWAY, None),
                _ => (StatusCode::SERVICE_UNAVAILABLE, Some(soon)),
            };
            return Self {
                retry_after: wait,
                ..Self::new(status, trouble.kind())
            };
        };
        let is_of_user = matches!(error.kind(), Kind::Rejected | Kind::NotFound);
        let kept = error
            .status()
            .filter(|status| is_of_user && KEPT.contains(&status.as_u16()));
        let status = match (Exit::of(error), error.kind()) {
            _ if kept.is_some() => kept.unwrap_or_default(),
            (_, Kind::NotFound) => StatusCode::NOT_FOUND,
            (_, Kind::InvalidRequest) => StatusCode::BAD_REQUEST,
            // Only you who operate the backend can correct these.
            (Exit::SomeFailed | Exit::Credentials | Exit::Usage, _) | (_, Kind::Tls) => {
                StatusCode::BAD_GATEWAY
            }
            _ if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        // A longer hint may be wrong, and would keep users away.
        let wait = error.retry_after().unwrap_or(soon).min(soon).min(HOUR);
        Self {
            status,
            kind: error.kind().as_str(),
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(wait),
            said: kept.map(|_| Arc::new(said(error, secrets))),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, title) = (self.status.as_u16(), self.status.canonical_reason());
        let mut problem = json!({ "kind": self.kind, "status": status, "title": title });
        if let Some(said) = &self.said {
            problem["detail"] = json!(said.0);
            problem["body"] = said.1.clone();
        }
        let mut response = (self.status, Json(problem)).into_response();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, problem);
        if let Some(wait) = self.retry_after {
            // Rounded up, because an early request is refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

/// Returns the message of the service and its body, as JSON or text, without secrets.
/// Of an HTML page only the title is returned.
fn said(error: &Error, secrets: &Secrets) -> (String, Value) {
    let plain = |text: &str| secrets.redact(text);
    if page::is_page(&HeaderMap::new(), error.body()) == Some(true) {
        let title = page::title(error.body(), secrets).unwrap_or_default();
        return (title.clone(), json!(title));
    }
    let text = plain(&String::from_utf8_lossy(error.body()));
    let body = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    (plain(error.message().unwrap_or_default()), body)
}

/// Statuses that the user's request caused. 401, 416, 423 and 429 concern the backend's key and
/// limits instead.
const KEPT: [u16; 13] = [
    400, 403, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 422,
];

const HOUR: Duration = Duration::from_secs(3_600);
