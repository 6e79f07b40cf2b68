//! `--status`: a page with the condition of the backend, on an address of its own.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing,
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST},
    uri::Authority,
};
use tower_tds::{Client, Status};

use crate::{
    cache::Cache,
    output::{counted, rough},
    proxy::is_this_machine,
    refusal::Refusal,
};

/// What the page and the health checks show.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) client: Client,
    pub(crate) cache: Arc<Cache>,
}

// === impl Condition ===

impl Condition {
    /// Returns the reasons why users get no new data, for people.
    pub(crate) fn troubles(&self, status: &Status) -> Vec<String> {
        let mut troubles = Vec::new();
        let (late, oldest) = self.cache.unanswered();
        if late > 0 {
            let (late, oldest) = (counted(late, "call"), rough(oldest));
            troubles.push(format!("{late} unanswered for {oldest}"));
        }
        let token = &status.token;
        match &token.last_error {
            _ if token.is_ready() => {}
            Some(error) => troubles.push(format!("no token: {error}")),
            None => troubles.push("no token yet".to_owned()),
        }
        if let Some(pause) = status.limits.paused_for {
            let pause = rough(pause);
            troubles.push(format!("quota used up; next try in {pause}"));
        }
        if let Some((ago, line)) = self.cache.outage() {
            let ago = rough(ago);
            troubles.push(format!("the last call failed {ago} ago: {line}"));
        }
        troubles
    }
}

/// Returns a router with only the page, for this machine.
pub(crate) fn router(condition: Condition) -> Router {
    Router::new()
        .route("/", routing::get(page))
        .with_state(condition)
}

async fn page(State(condition): State<Condition>, request: Request) -> Response {
    if !is_local(request.headers(), &[]) {
        return Refusal::new(StatusCode::FORBIDDEN, "foreign_page").into_response();
    }
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, html(&condition)).into_response()
}

/// Whether a request is from a program of this machine, and not from a page of another site, unless
/// that may read.
///
/// A page may reach this address by another host name (DNS rebinding) and read data with this key,
/// or use up the quota without reading.
pub(crate) fn is_local(headers: &HeaderMap, origins: &[HeaderValue]) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text("sec-fetch-site").unwrap_or("none");
    let host = text(HOST.as_str()).and_then(|host| host.parse::<Authority>().ok());
    let is_allowed = match headers.get("origin") {
        Some(origin) => origins.contains(origin),
        None => ["none", "same-origin"].contains(&site),
    };
    is_allowed
        && headers.get_all(HOST).iter().count() < 2
        && host.is_none_or(|host| is_this_machine(host.host()))
}

/// Fills the page. It has no script: the browser reloads it every two seconds.
fn html(condition: &Condition) -> String {
    let status = condition.client.status();
    let (token, limits) = (&status.token, &status.limits);
    let troubles = condition.troubles(&status);
    let (_, oldest) = condition.cache.unanswered();
    let since = |time: Option<Duration>| time.map_or_else(|| "–".to_owned(), rough);
    let items = troubles
        .iter()
        .map(|line| format!("<li>{}</li>", escaped(line)));
    let quotas = condition.client.limiter().limits().quotas().to_vec();
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
