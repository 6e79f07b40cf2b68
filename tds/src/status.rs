//! `--status`: a page that shows the condition of the backend, at an address of its own.

use std::sync::Arc;

use axum::{Router, extract::Request, response::IntoResponse};
use futures_util::FutureExt as _;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST},
    uri::Authority,
};
use indicatif::DecimalBytes;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::Instant;
use tower_tds::{Client, Status};
use tower_tds_outcome::is_loopback;

use crate::{
    cache::{Cache, Shown},
    exit::plain,
    output::rough,
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
        troubles.extend(self.cache.outage());
        troubles
    }

    /// Fills the page.
    fn page(&self) -> String {
        let status = self.client.status();
        let (resources, further) = self.cache.shown(ROWS);
        let troubles = self.troubles(&status);
        let item = |line: &String| format!("<li>{}</li>", escaped(line));
        let ready = ["not ready", "ready"][usize::from(troubles.is_empty())];
        let fields = [
            ("ready", ready.to_owned()),
            ("troubles", troubles.iter().map(item).collect()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("uptime", rough(self.begun.elapsed())),
            ("client", escaped(&plain(&status.to_string()))),
            ("resources", resources.iter().map(row).collect()),
            ("further", further.to_string()),
        ];
        let mut page = PAGE.to_owned();
        for (name, text) in fields {
            page = page.replace(&format!("{{{name}}}"), &text);
        }
        page
    }
}

/// Returns a router with only the page, for this machine: it refuses pages of other sites.
pub(crate) fn router(condition: Condition) -> Router {
    let answer = move |request: Request| match (request.method(), request.uri().path()) {
        _ if !is_local(request.headers(), &[]) => {
            Refusal::new(StatusCode::FORBIDDEN, "foreign_page").into_response()
        }
        (&Method::GET | &Method::HEAD, "/") => {
            let headers = [
                (CONTENT_TYPE, "text/html; charset=utf-8"),
                (CONTENT_SECURITY_POLICY, POLICY),
                (CACHE_CONTROL, "no-store"),
            ];
            (headers, condition.page()).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    };
    Router::new().fallback(async move |request| answer(request))
}

/// Whether a request is from a program on this machine, or from a web page that may read.
///
/// Without this check, a page could reach this address by another host name (DNS rebinding) and
/// read data with this key, or use up the quota without reading.
pub(crate) fn is_local(headers: &HeaderMap, origins: &[HeaderValue]) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let site = text("sec-fetch-site").unwrap_or("none");
    let host = host(headers);
    let is_allowed = match headers.get("origin") {
        Some(origin) => origins.contains(origin),
        None => ["none", "same-origin"].contains(&site),
    };
    is_allowed && host.is_ok_and(|host| host.is_none_or(|host| is_loopback(host.host())))
}

/// Returns the host that a request names, if it names one. Fails if it names two, or a name that no
/// URI may have: browsers resolve some of these, such as `{a}.example.org`.
pub(crate) fn host(headers: &HeaderMap) -> Result<Option<Authority>, ()> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts
        .next()
        .map(|host| Authority::try_from(host.as_bytes()));
    let host = host.transpose().ok().filter(|_| hosts.next().is_none());
    host.ok_or(())
}

/// Returns a row of the table of resources.
fn row(shown: &Shown) -> String {
    let (age, size) = shown.last.unzip();
    let size = size.map(|size| DecimalBytes(size).to_string());
    let failure = shown.failure.as_ref();
    let failure = failure.map(|(at, line)| format!("{} ago: {line}", rough(at.elapsed())));
    let cells = [
        Some(shown.target.to_string()),
        Some(shown.state.to_owned()),
        age.map(rough),
        size,
        failure,
    ];
    let cells = cells.map(|cell| format!("<td>{}</td>", escaped(&cell.unwrap_or_default())));
    format!("<tr>{}</tr>", cells.concat())
}

pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('{', "&#123;")
}

/// The page has a style and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("status.html");

/// Most resources in the table.
const ROWS: usize = 100;
