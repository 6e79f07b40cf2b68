//! `tds gateway`: the service on a local address, for programs in any language.

use std::{env, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use clap::Args;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{
        ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, ORIGIN,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, SET_COOKIE, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use tower_tds::{Client, RequestBody};

use crate::{
    exit::{Exit, Failure},
    fleet::Membership,
    refusal::Refusal,
    serve,
    settings::{ServiceOptions, duration},
};

/// Serve the whole service at a local address: one token and one limit for all
///
/// Programs in any language GET and HEAD paths there without a token. A program that sends the header
/// X-Tds-Deadline, such as 500ms, waits no longer than that for the head of its answer.
#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
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
    #[command(flatten)]
    service: ServiceOptions,
}

/// What all requests share.
struct Shared {
    client: Client,
    fleet: Membership,
    deadline: Duration,
    /// What each request has to bring; without one, it has to be meant for this machine.
    key: Option<HeaderValue>,
}

pub(crate) async fn run(job: Gateway) -> Result<Exit, Failure> {
    let key = key(&job)?;
    let service = job.service.find().await?;
    let client = service.builder.build()?;
    let tokens = client.tokens().clone();
    let mut fleet = service.fleet.clone();
    tokio::spawn(async move {
        fleet.opened().await;
        fleet.watch();
        tokens.ready().await.map(drop)
    });
    let shared = Arc::new(Shared {
        client: client.clone(),
        fleet: service.fleet.clone(),
        deadline: job.deadline,
        key,
    });
    let router = Router::new().fallback(pass).with_state(shared);
    let ended = serve::serve(job.listen, router, &client, GRACE).await;
    service.fleet.leave().await;
    ended
}

fn key(job: &Gateway) -> Result<Option<HeaderValue>, Failure> {
    if !job.allow_remote {
        let local = job.listen.ip().is_loopback();
        return local.then_some(None).ok_or_else(|| {
            let why = "other machines can reach it: --allow-remote with a key says that they may";
            Failure::usage(format!("--listen {}: {why}", job.listen))
        });
    }
    let key = env::var(KEY).unwrap_or_default();
    let key = key.trim();
    let value = HeaderValue::try_from(format!("Bearer {key}"));
    match value {
        Ok(mut value) if key.len() >= SHORTEST_KEY => {
            value.set_sensitive(true);
            Ok(Some(value))
        }
        Ok(_) | Err(_) => Err(Failure::usage(format!(
            "--allow-remote: set {KEY} to a key of {SHORTEST_KEY} characters or more"
        ))),
    }
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
        self.admit(&headers, &parts.uri)?;
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
        // Whatever the program has there is not for the service, and may be this gateway's own key.
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
        let mut request = http::Request::new(RequestBody::default());
        *request.method_mut() = parts.method;
        *request.uri_mut() = target;
        *request.headers_mut() = headers;

        let answered = self.client.request(request).deadline(deadline).await;
        let response = answered
            .map_err(|error| Refusal::of(&error).because(self.fleet.explain(error.to_string())))?;
        let (mut parts, body) = response.into_http().into_parts();
        strip(&mut parts.headers);
        // What the service allows pages, and what it would have a browser keep, is about another address.
        let about_pages = |name: &&HeaderName| name.as_str().starts_with("access-control-");
        let pages: Vec<_> = parts.headers.keys().filter(about_pages).cloned().collect();
        for name in pages.into_iter().chain([SET_COOKIE]) {
            parts.headers.remove(name);
        }
        self.conceal(&mut parts.headers);
        Ok(Response::from_parts(parts, Body::new(body)))
    }

    /// Lets in who has the key; without one, whoever means this machine. A page in a browser that was led
    /// here by a name of its own does not: it would read data with this key.
    fn admit(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        let Some(key) = &self.key else {
            // Nor does one that asks for it as it is: it could read the data, or only use up the quota.
            let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            let page = headers.contains_key(ORIGIN)
                || site.is_some_and(|site| site != b"none" && site != b"same-origin");
            if page {
                let refusal = Refusal::new(StatusCode::FORBIDDEN, "foreign_origin");
                return Err(refusal.because("pages of others are not served; set a key"));
            }
            let host = uri.host().or_else(|| {
                let host = headers.get(HOST)?.to_str().ok()?;
                Some(host.rsplit_once(':').map_or(host, |(name, port)| {
                    if port.ends_with(']') { host } else { name }
                }))
            });
            let local = ["127.0.0.1", "localhost", "[::1]"];
            return match host {
                Some(host) if !local.iter().any(|local| host.eq_ignore_ascii_case(local)) => {
                    let refusal = Refusal::new(StatusCode::FORBIDDEN, "foreign_host");
                    Err(refusal.because("ask for it by 127.0.0.1, localhost or [::1]"))
                }
                Some(_) | None => Ok(()),
            };
        };
        let brought = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if brought.is_some_and(|brought| same(brought, key.as_bytes())) {
            return Ok(());
        }
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "gateway_key");
        Err(refusal.because("bring 'Authorization: Bearer' with the gateway's key"))
    }

    /// Takes out what echoes the token.
    fn conceal(&self, headers: &mut HeaderMap) {
        let Some(token) = self.client.tokens().try_token() else {
            return;
        };
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
}

/// Takes out what is for one connection alone (RFC 9110, section 7.6.1).
fn strip(headers: &mut HeaderMap) {
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

/// Compares all of it, so that the time tells nothing of where it differs.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    std::hint::black_box(differing) == 0 && one.len() == other.len()
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

const KEY: &str = "TDS_GATEWAY_KEY";

/// What nobody guesses, of hexadecimal digits.
const SHORTEST_KEY: usize = 16;

/// For bodies that are under way when the program is to end.
const GRACE: Duration = Duration::from_secs(5);
