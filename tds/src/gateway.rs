//! `tds gateway`: the service on a local address, for programs in any language.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use clap::Args;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{
        ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, ORIGIN,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, SET_COOKIE, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use http_body_util::{BodyStream, StreamBody};
use tokio::time::{Instant, timeout};
use tower_tds::{Client, RequestBody, layers::token::AccessToken};

use crate::{
    access::Access,
    exit::{Exit, Failure},
    refusal::Refusal,
    serve::Listeners,
    settings::{Settings, address, duration},
    status::{Board, Failures},
};

/// Serve the whole service at a local address: one token and one limit for all
#[derive(Debug, Args)]
#[command(
    after_help = "Programs in any language GET and HEAD paths there without a token. A program that sends the header X-Tds-Deadline, such as 500ms, waits no longer than that for the head of its answer."
)]
pub(crate) struct Gateway {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// How long a program waits at most for the head of its answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    deadline: Duration,
    #[arg(
        long,
        help = "Listen where other machines can reach it; each request has to bring \
                'Authorization: Bearer' with the key in TDS_GATEWAY_KEY"
    )]
    allow_remote: bool,
    /// Cut an answer that its program has not read from for this long
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    unread: Duration,
    /// Show a page with rate, sockets, waits, token and refusals at this address, and /status.json
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    status: Option<SocketAddr>,
}

/// The state that all requests share.
struct Shared {
    client: Client,
    deadline: Duration,
    access: Access,
    failures: Failures,
}

pub(crate) async fn run(job: Gateway, settings: &Settings) -> Result<Exit, Failure> {
    let access = if job.allow_remote {
        Access::keyed()?
    } else {
        let listens = [("--listen", Some(job.listen)), ("--status", job.status)];
        Access::local(&listens, "--allow-remote with a key says that they may")?
    };
    let listeners = Listeners::bind(job.listen, job.status, job.unread)?;
    let service = settings.service().await?;
    let client = service.builder.build()?;
    let tokens = client.tokens().clone();
    tokio::spawn(async move { tokens.ready().await.map(drop) });
    let failures = Failures::default();
    let shared = Arc::new(Shared {
        client: client.clone(),
        deadline: job.deadline,
        access: access.clone(),
        failures: failures.clone(),
    });
    let router = Router::new().fallback(pass).with_state(shared);
    let board = Board::new(client.clone(), access, failures);
    listeners.serve(router, board, &client, GRACE).await
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.pass(request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

// === impl Shared ===

impl Shared {
    async fn pass(&self, request: Request) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        self.access.admit(&headers, &parts.uri)?;
        if ![Method::GET, Method::HEAD].contains(&parts.method) {
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method");
            let mut refused = refusal
                .because("GET and HEAD are passed on")
                .into_response();
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            return Ok(refused);
        }
        if !http_body::Body::is_end_stream(&body) {
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_request");
            return Err(refusal.because("a GET with a body is not passed on; send none"));
        }
        let deadline = match headers.remove(DEADLINE) {
            None => self.deadline,
            Some(value) => {
                let text = value.to_str().unwrap_or_default();
                let asked = duration(text).map_err(|why| {
                    let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_request");
                    refusal.because(format!("{DEADLINE}: {why}"))
                })?;
                asked.min(self.deadline)
            }
        };
        strip(&mut headers);
        // These headers are not for the service, and may contain this gateway's own key.
        for name in [
            AUTHORIZATION,
            HOST,
            EXPECT,
            CONTENT_LENGTH,
            COOKIE,
            ORIGIN,
            REFERER,
        ] {
            headers.remove(name);
        }
        let target = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let target = target.parse::<Uri>().map_err(|_| {
            Refusal::new(StatusCode::BAD_REQUEST, "invalid_request").because("the path is none")
        })?;
        let is_head = parts.method == Method::HEAD;
        let mut request = http::Request::new(RequestBody::default());
        *request.method_mut() = parts.method;
        *request.uri_mut() = target;
        *request.headers_mut() = headers;

        // The call sends this token, or one that arrives before the response head.
        let begun = Instant::now();
        let tokens = self.client.tokens();
        let sent = match tokens.try_token() {
            Some(token) => Some(token),
            // If there is none, the call returns the reason.
            None => match timeout(deadline, tokens.token()).await {
                Ok(token) => token.ok(),
                Err(_) => None,
            },
        };
        let left = deadline.saturating_sub(begun.elapsed());
        let answered = self.client.request(request).deadline(left).await;
        let response = answered.map_err(|error| {
            self.failures.note(&error);
            Refusal::of(&error).because(error.to_string())
        })?;
        let (mut parts, body) = response.into_http().into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let refusal = Refusal::new(StatusCode::BAD_GATEWAY, "unexpected_answer");
            return Err(refusal.because("the service changes to a protocol that nobody asked for"));
        }
        // A body without a length and chunks also ends with its connection here. A mark would claim
        // that it is whole.
        parts.version = match body.is_verifiable() {
            true => Version::HTTP_11,
            false => Version::HTTP_10,
        };
        strip(&mut parts.headers);
        // CORS headers and cookies of the service belong to another origin.
        let about_pages = |name: &&HeaderName| name.as_str().starts_with("access-control-");
        let pages: Vec<_> = parts.headers.keys().filter(about_pages).cloned().collect();
        for name in pages.into_iter().chain([SET_COOKIE]) {
            parts.headers.remove(name);
        }
        conceal(&mut parts.headers, sent);
        conceal(&mut parts.headers, tokens.try_token());
        let body = match is_head {
            // The empty body is not the length of a GET's body.
            true => Body::new(StreamBody::new(BodyStream::new(body))),
            false => Body::new(body),
        };
        Ok(Response::from_parts(parts, body))
    }
}

/// Removes headers that echo this token.
fn conceal(headers: &mut HeaderMap, token: Option<AccessToken>) {
    let Some(token) = token else { return };
    let token = token.secret().as_bytes();
    let echoes = |value: &HeaderValue| {
        let mut windows = value.as_bytes().windows(token.len().max(1));
        windows.any(|window| window == token)
    };
    let echoing = headers.iter().filter(|(_, value)| echoes(value));
    let names: Vec<HeaderName> = echoing.map(|(name, _)| name.clone()).collect();
    for name in names {
        headers.remove(name);
    }
}

/// Removes the headers of one connection (RFC 9110, section 7.6.1), and a length beside a transfer
/// coding, which is not the body's (RFC 9112, section 6.3).
fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

const DEADLINE: &str = "x-tds-deadline";

/// The time for bodies in flight when the program ends.
const GRACE: Duration = Duration::from_secs(5);
