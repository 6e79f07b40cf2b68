//! `--status`: a page with the condition of the job, and its numbers as JSON, on another listener.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing,
};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde::Serialize;
use tokio::time::Instant;
use tower_tds::{Client, Error, Kind, Status};

use crate::access::Access;

/// The sources of the page: the client's state, read at each request, and the failures.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    client: Client,
    access: Access,
    begun: Instant,
    failures: Failures,
}

/// The last calls that failed, oldest first; clones share them. The lock is held for a move, and never over an
/// await.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures(Arc<Mutex<VecDeque<Failed>>>);

/// A failed call. Neither its path nor a key is on the page.
#[derive(Debug, Clone, Copy)]
struct Failed {
    at: Instant,
    kind: &'static str,
    status: Option<u16>,
}

/// The content of `/status.json`.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    /// Time since the start. Two readings, with the permits granted between them, give a rate.
    at_seconds: f64,
    granted: u64,
    most_in_a_second: u64,
    tokens: u64,
    token_age_seconds: Option<f64>,
    token_next_seconds: f64,
    refusals: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    seconds_ago: f64,
    kind: &'static str,
    status: Option<u16>,
}

// === impl Board ===

impl Board {
    pub(crate) fn new(client: Client, access: Access, failures: Failures) -> Self {
        Self {
            client,
            access,
            begun: Instant::now(),
            failures,
        }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/", routing::get(page))
            .route("/status.json", routing::get(json))
            .with_state(self)
    }

    fn shown(&self) -> Shown {
        let status = self.client.status();
        let (token, limits) = (status.token(), *status.limits());
        Shown {
            at_seconds: self.begun.elapsed().as_secs_f64(),
            granted: limits.granted,
            most_in_a_second: limits.certificate,
            tokens: token.generation(),
            token_age_seconds: token.last_success().map(|age| age.as_secs_f64()),
            token_next_seconds: token.next_attempt().as_secs_f64(),
            refusals: self.failures.shown(),
            status,
        }
    }
}

// === impl Failures ===

impl Failures {
    /// Keeps a failure, unless it is a mistake of the caller.
    pub(crate) fn note(&self, error: &Error) {
        let own = [Kind::NotFound, Kind::Rejected, Kind::InvalidRequest];
        if own.contains(&error.kind()) {
            return;
        }
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= KEPT {
            failures.pop_front();
        }
        failures.push_back(Failed {
            at: Instant::now(),
            kind: error.kind().as_str(),
            status: error.status().map(|status| status.as_u16()),
        });
    }

    /// The newest first.
    fn shown(&self) -> Vec<Refused> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |failed: &Failed| Refused {
            seconds_ago: failed.at.elapsed().as_secs_f64(),
            kind: failed.kind,
            status: failed.status,
        };
        failures.iter().rev().map(refused).collect()
    }
}

async fn page(State(board): State<Board>, request: Request) -> Response {
    if let Err(refusal) = board.access.admit(request.headers(), request.uri()) {
        return refusal.into_response();
    }
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, PAGE).into_response()
}

async fn json(State(board): State<Board>, request: Request) -> Response {
    if let Err(refusal) = board.access.admit(request.headers(), request.uri()) {
        return refusal.into_response();
    }
    let json = serde_json::to_vec(&board.shown()).unwrap_or_default();
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, json).into_response()
}

const PAGE: &str = include_str!("status.html");

/// The page loads nothing but its numbers.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const KEPT: usize = 10;
