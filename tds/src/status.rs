//! `--status`: a page that shows the condition of the backend, at an address of its own.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::{FutureExt as _, Stream, stream};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST},
    uri::Authority,
};
use indicatif::DecimalBytes;
use metrics_exporter_prometheus::PrometheusHandle;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, interval};
use tower_tds::{Client, Status};

use crate::{
    cache::{Cache, Shown},
    exit::plain,
    output::{counted, rough},
    proxy::is_this_machine,
    refusal::Refusal,
};

/// Client, cache and metrics, on which the page and the health checks report.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) client: Client,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) begun: Instant,
}

// === impl Condition ===

impl Condition {
    /// Returns all metrics in the text format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.client.status().record();
        self.metrics.run_upkeep();
        self.metrics.render()
    }

    /// Returns the reasons why users get no new data, as texts for people.
    ///
    /// Requests a token if there is none, and repeats a call that failed, so that the end of the
    /// trouble shows even if no user sends a request.
    pub(crate) fn troubles(&self, status: &Status) -> Vec<String> {
        let mut troubles = Vec::new();
        let (late, oldest) = self.cache.unanswered();
        if late > 0 {
            let (late, oldest) = (counted(late, "call"), rough(oldest));
            troubles.push(format!("{late} unanswered for {oldest}"));
        }
        let token = &status.token;
        if !token.is_ready() {
            // Starts a request, unless the source is in a backoff.
            drop(self.client.tokens().ready().now_or_never());
        }
        match &token.last_error {
            _ if token.is_ready() => {}
            Some(error) => troubles.push(format!("no token: {}", plain(&error.to_string()))),
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

    /// Returns what is wrong while users still get data.
    fn warnings(&self, status: &Status, resources: &[Shown]) -> Vec<String> {
        let mut warnings = Vec::new();
        let failing = resources.iter().filter(|it| it.state == "fails").count();
        if failing > 0 {
            let failing = counted(u64::try_from(failing).unwrap_or(u64::MAX), "resource");
            warnings.push(format!("{failing} failed at the last call"));
        }
        let error = status.token.last_error.as_ref();
        if let Some(error) = error.filter(|_| status.token.is_ready()) {
            warnings.push(format!("no new token: {}", plain(&error.to_string())));
        }
        if let Some(wait) = status.limits.silent_for {
            let wait = rough(wait);
            warnings.push(format!("after a 423 or 416 nothing is sent for {wait}"));
        }
        if let Some(wait) = status.limits.lowered_for {
            let (requests, wait) = (status.limits.quota.requests(), rough(wait));
            warnings.push(format!(
                "after a 423 the limit is {requests}, evenly spaced, for {wait}"
            ));
        }
        warnings
    }

    /// Replaces the placeholders of the page, or of a part of it.
    fn filled(&self, page: &str) -> String {
        let status = self.client.status();
        let (token, limits) = (&status.token, &status.limits);
        let (resources, further) = self.cache.shown(ROWS);
        let troubles = self.troubles(&status);
        let warnings = self.warnings(&status, &resources);
        let (_, oldest) = self.cache.unanswered();
        let since = |time: Option<Duration>| or_dash(time.map(rough));
        let item = |line: &String| format!("<li>{}</li>", escaped(line));
        let quotas = self.client.limiter().limits().quotas().to_vec();
        let rate = quotas.iter().map(|quota| match quota.per().as_millis() {
            1_000 => format!("{} per second", quota.requests()),
            60_000 => format!("{} per minute", quota.requests()),
            _ => format!("{} per {}", quota.requests(), rough(quota.per())),
        });
        let rate = rate.collect::<Vec<_>>().join(" and ");
        let quota = quotas.first().map_or(0, |quota| quota.requests().get());
        let error = token.last_error.as_ref();
        let error = error.map(|error| plain(&error.to_string()));
        let (state, ready) = match (&*troubles, &*warnings) {
            ([], []) => ("good", "ready"),
            ([], _) => ("warn", "ready"),
            _ => ("bad", "not ready"),
        };
        let fields = [
            ("state", state.to_owned()),
            ("ready", ready.to_owned()),
            ("troubles", troubles.iter().map(item).collect()),
            ("warnings", warnings.iter().map(item).collect()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("uptime", rough(self.begun.elapsed())),
            ("quota", quota.to_string()),
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
            ("tokens", token.generation.to_string()),
            ("token_error", escaped(error.as_deref().unwrap_or("none"))),
            ("resources", resources.iter().map(row).collect()),
            ("further", further.to_string()),
        ];
        let mut page = page.to_owned();
        for (name, text) in fields {
            page = page.replace(&format!("{{{name}}}"), &text);
        }
        page
    }
}

/// Returns a router with only the page, for this machine.
pub(crate) fn router(condition: Condition) -> Router {
    Router::new()
        .route("/", routing::get(page))
        .route("/events", routing::get(events))
        .with_state(condition)
        .layer(middleware::from_fn(local))
}

/// Refuses pages of other sites.
async fn local(request: Request, next: Next) -> Response {
    if !is_local(request.headers(), &[]) {
        return Refusal::new(StatusCode::FORBIDDEN, "foreign_page").into_response();
    }
    next.run(request).await
}

async fn page(State(condition): State<Condition>) -> Response {
    let hash = |element: &str| {
        let text = PAGE.split_once(&format!("<{element}>"));
        let text = text.and_then(|(_, rest)| rest.split_once(&format!("</{element}>")));
        let text = text.map_or("", |(text, _)| text);
        BASE64_STANDARD.encode(Sha256::digest(text))
    };
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("style"),
        hash("script"),
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &*policy),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, condition.filled(PAGE)).into_response()
}

/// Streams the part of the page that changes, once a second.
async fn events(
    State(condition): State<Condition>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let part = PAGE.split_once("<main").map_or("", |(_, part)| part);
    let part = part.split_once("</main>").map_or("", |(part, _)| part);
    let part = format!("<main{part}</main>");
    let seconds = interval(Duration::from_secs(1));
    Sse::new(stream::unfold(
        (condition, part, seconds),
        async |(condition, part, mut seconds)| {
            seconds.tick().await;
            let event = Event::default().data(condition.filled(&part));
            Some((Ok(event), (condition, part, seconds)))
        },
    ))
}

/// Whether a request is from a program on this machine, or from a web page that may read.
///
/// Without this check, a page could reach this address by another host name (DNS rebinding) and
/// read data with this key, or use up the quota without reading.
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

/// Returns a row of the table of resources.
fn row(shown: &Shown) -> String {
    let (target, state) = (escaped(&shown.target), shown.state);
    let (age, size) = shown.last.unzip();
    let (age, size) = (
        age.map(rough),
        size.map(|size| DecimalBytes(size).to_string()),
    );
    let failure = shown.failure.as_ref();
    let failure =
        failure.map(|(at, line)| format!("{} ago: {}", rough(at.elapsed()), escaped(line)));
    format!(
        "<tr><td>{target}</td><td><span data-is=\"{state}\">{state}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        or_dash(age),
        or_dash(size),
        failure.unwrap_or_default()
    )
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// Describes why calls wait, with the limit.
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

/// Most resources in the table.
const ROWS: usize = 100;
