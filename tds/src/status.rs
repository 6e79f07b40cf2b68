//! `--status`: a page with the condition of the backend, on an address of its own.

use std::time::Duration;

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing,
};
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE},
};
use tower_tds::Status;

use crate::{
    backend::{Shared, is_local},
    cache::Refusal,
    output::rough,
};

/// Returns a router with only the page, for this machine.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", routing::get(page))
        .with_state(shared)
}

async fn page(State(shared): State<Shared>, request: Request) -> Response {
    if !is_local(request.headers()) {
        return Refusal::new(StatusCode::FORBIDDEN, "foreign_page").into_response();
    }
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, html(&shared)).into_response()
}

/// Fills the page. It has no script: the browser reloads it every two seconds.
fn html(shared: &Shared) -> String {
    let status = shared.client.status();
    let (token, limits) = (&status.token, &status.limits);
    let troubles = shared.troubles(&status);
    let (_, oldest) = shared.cache.unanswered();
    let since = |time: Option<Duration>| time.map_or_else(|| "–".to_owned(), rough);
    let items = troubles
        .iter()
        .map(|line| format!("<li>{}</li>", escaped(line)));
    let quotas = shared.client.limiter().limits().quotas().to_vec();
    let rate = quotas.iter().map(|quota| match quota.per().as_millis() {
        1_000 => format!("{} per second", quota.requests()),
        60_000 => format!("{} per minute", quota.requests()),
        _ => format!("{} per {}", quota.requests(), rough(quota.per())),
    });
    let rate = rate.collect::<Vec<_>>().join(" and ");
    let first = quotas.first().map_or(0, |quota| quota.requests().get());
    let not = if troubles.is_empty() { "" } else { "not " };
    let ready = format!("{not}ready");
    let error = token.last_error.as_ref().map(ToString::to_string);
    let fields = [
        ("ready", ready),
        ("troubles", items.collect()),
        ("quota", first.to_string()),
        ("permits", limits.live.to_string()),
        ("rate", rate.clone()),
        ("granted", limits.granted.to_string()),
        ("sockets", limits.connections.to_string()),
        ("most_sockets", limits.most_connections.to_string()),
        ("calls", status.calls.to_string()),
        ("oldest", since((!oldest.is_zero()).then_some(oldest))),
        ("in_flight", limits.in_flight.to_string()),
        ("waiting", limits.waiting.to_string()),
        ("waits_for", escaped(&waits(&status, &rate))),
        ("token_age", since(token.last_success)),
        ("token_life", since(token.life_left)),
        ("token_next", rough(token.next_attempt)),
        ("tokens", token.generation.to_string()),
        ("token_error", escaped(error.as_deref().unwrap_or("none"))),
    ];
    let mut page = PAGE.to_owned();
    for (name, text) in fields {
        page = page.replace(&format!("{{{name}}}"), &text);
    }
    page
}

/// Describes the cause of waits, with the limit.
fn waits(status: &Status, rate: &str) -> String {
    let limits = &status.limits;
    match status.waits_for() {
        None => "nothing".to_owned(),
        Some(cause) if limits.waits_for.is_some() => format!("{cause} ({rate})"),
        Some(cause) => cause,
    }
}

pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('{', "&#123;")
}

const PAGE: &str = include_str!("status.html");

/// The page loads nothing and runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";
