//! `tds backend`: many users, one call to the service for all, a response within a deadline.

use std::{collections::HashSet, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use clap::Args;
use http::{
    HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{
        ACCEPT, AGE, ALLOW, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LINK, RANGE,
        RETRY_AFTER,
    },
    uri::Authority,
};
use serde_json::json;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};
use tower::{ServiceBuilder, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_tds::Client;

use crate::{
    accept,
    access::{self, Access, Log, OWN},
    cache::{Bounds, Cache},
    exit::{Exit, Failure, causes, plain},
    list,
    output::{note, warn},
    refusal::Refusal,
    settings::{Settings, address, duration_or_zero},
    status::{self, Condition, host, is_local},
    stop::Stop,
    system,
};

/// Serve many users, with one call to the service for each resource
#[derive(Debug, Args)]
#[command(
    after_help = "Within the deadline each user gets the data or an error: 400 to 422 if the request is \
                        at fault, 502 if you have to correct something, 503 with Retry-After if the \
                        service fails, 504 if it is late. /healthz and /readyz show whether the service \
                        answers, /livez whether the backend does; /metrics is for Prometheus."
)]
pub(crate) struct Backend {
    /// File with the resources, one path and query per line; - reads stdin [default: every
    /// resource, for this machine alone]
    #[arg(long, value_name = "FILE")]
    list: Option<String>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    access: Access,
    /// Let web pages of this origin read responses; * needs --list
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    allow_origin: Vec<HeaderValue>,
    /// How long to go on serving after SIGTERM, with /readyz at 503
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration_or_zero)]
    drain: Duration,
    /// Address of a status page, for this machine alone
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    status: Option<SocketAddr>,
}

/// State that all users share.
#[derive(Debug)]
struct App {
    condition: Condition,
    /// Resources that users may request, or `None` for all.
    list: Option<HashSet<String>>,
    /// Origins whose web pages may read.
    origins: Vec<HeaderValue>,
    stop: Arc<Stop>,
}

pub(crate) async fn run(job: Backend, settings: &Settings) -> Result<Exit, Failure> {
    let list = match &job.list {
        Some(source) => {
            let items = list::read(source)?.into_iter();
            Some(items.map(|item| item.target).collect::<HashSet<_>>())
        }
        None => {
            check_local("--listen", job.listen, "name its resources with --list")?;
            None
        }
    };
    let own = |it: &&String| it.split('?').next().is_some_and(|path| OWN.contains(&path));
    if let Some(target) = list.iter().flatten().find(own) {
        let why = format!("--list: {target} is a path of tds itself");
        return Err(Failure::usage(why));
    }
    if list.is_none() && job.allow_origin.iter().any(|origin| origin == ANY) {
        let why = "--allow-origin *: any page could read with this key; name origins, or the resources with --list";
        return Err(Failure::usage(why));
    }
    // Binds first, so that an address in use ends the job before any request.
    let (users, address) = bind("--listen", job.listen).await?;
    let board = match job.status {
        Some(status) => {
            check_local("--status", status, "put a proxy with a password in front")?;
            Some(bind("--status", status).await?)
        }
        None => None,
    };
    let service = settings.service().await?;
    let client = settings.client(service.builder).await?;
    let metrics = access::recorder().map_err(|error| Failure::usage(causes(&error)))?;
    let cache = Cache::new(client.clone(), service.accept, job.bounds);
    let app = Arc::new(App {
        condition: Condition {
            client: client.clone(),
            cache: Arc::new(cache),
            metrics,
            begun: Instant::now(),
        },
        list,
        origins: job.allow_origin,
        stop: Arc::clone(&settings.stop),
    });
    let cross = cross_origin(&app.origins);
    // Fetches the token ahead, so that the first user does not wait for it, and the first health
    // check shows a wrong secret.
    if let Some((board, address)) = board {
        note(&format!("status at http://{address}"));
        let pages = axum::serve(board, status::router(app.condition.clone()));
        tokio::spawn(pages.into_future());
    }
    let (log, printed) = Log::start(job.access);
    // Does without axum's router, whose boxes made a response of the cache take 29,000 instructions
    // in place of 19,000 (callgrind).
    let service = ServiceBuilder::new()
        .option_layer(cross)
        .service(service_fn(move |request| answer(Arc::clone(&app), request)));
    let answer =
        move |user, request| access::record(Arc::clone(&log), user, request, service.clone());
    note(&format!("listening on http://{address}"));
    let stop = Arc::clone(&settings.stop);
    tokio::spawn(started(client.clone()));
    let stopped = async move {
        stop.requested().await;
        system::notify(&["STOPPING=1"]);
        sleep(job.drain).await;
    };
    let grace = async {
        settings.stop.requested().await;
        sleep(job.drain + job.bounds.deadline).await;
    };
    tokio::select! {
        () = accept::serve(users, answer, stopped) => {}
        () = grace => {}
    }
    // The last lines of the access log are printed meanwhile.
    client.shutdown(Duration::from_secs(1)).await;
    drop(timeout(Duration::from_secs(1), printed).await);
    Ok(Exit::Whole)
}

async fn answer<B>(app: Arc<App>, request: Request<B>) -> Result<Response, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        _ if !has_its_host(&request) => {
            Refusal::new(StatusCode::BAD_REQUEST, "host").into_response()
        }
        (&Method::GET | &Method::HEAD, "/healthz" | "/readyz") => health(&app),
        (&Method::GET | &Method::HEAD, "/livez") => "alive\n".into_response(),
        (&Method::GET | &Method::HEAD, "/metrics") => prometheus(&app),
        (&Method::GET | &Method::HEAD, _) => serve(&app, &request).await,
        _ => {
            let refused = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method");
            ([(ALLOW, "GET, HEAD")], refused).into_response()
        }
    })
}

/// Fetches the token ahead, so that the first user does not wait for it, and reports how that ended.
async fn started(client: Client) {
    let tokens = client.tokens().clone();
    let fetched = tokio::spawn(async move { tokens.ready().await.map(drop) });
    let begun = Instant::now();
    let mut status = client.tokens().health();
    while !status.is_ready() && status.last_error.is_none() && begun.elapsed() < STARTED {
        sleep(LOOK).await;
        status = client.tokens().health();
    }
    let why = match (status.is_ready(), &status.last_error) {
        (true, _) => "there is a token".to_owned(),
        (false, Some(error)) => format!("no token: {}", plain(&error.to_string())),
        (false, None) => format!("no token yet from {}", status.endpoint),
    };
    if !status.is_ready() {
        warn(&why);
    }
    system::notify(&["READY=1", &format!("STATUS={why}")]);
    if status.is_ready() {
        return;
    }
    drop(fetched.await);
    while !client.tokens().health().is_ready() {
        sleep(STARTED).await;
    }
    system::notify(&["STATUS=there is a token"]);
}

async fn serve<B>(app: &App, request: &Request<B>) -> Response {
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let is_served = match &app.list {
        Some(list) => list.contains(target),
        None if !is_local(request.headers(), &app.origins) => {
            return Refusal::new(StatusCode::FORBIDDEN, "foreign_page").into_response();
        }
        None => true,
    };
    if !is_served {
        return Refusal::new(StatusCode::NOT_FOUND, "not_found").into_response();
    }
    app.condition.cache.serve(target, request.headers()).await
}

/// Returns the layer that allows pages of these other origins to read.
fn cross_origin(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        origins if origins.iter().any(|origin| origin == ANY) => AllowOrigin::any(),
        origins => AllowOrigin::list(origins.to_vec()),
    };
    let cors = CorsLayer::new().allow_origin(allowed);
    let cors = cors.allow_methods([Method::GET, Method::HEAD]);
    let cors = cors.allow_headers([ACCEPT, IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE]);
    Some(cors.expose_headers([ETAG, AGE, LINK, RETRY_AFTER]))
}

/// Parses an origin as browsers send it.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let uri = text.parse::<Uri>().ok();
    let is_origin = |uri: Uri| {
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", Authority::as_str);
        format!("{scheme}://{authority}") == text
    };
    let value = HeaderValue::from_str(text).ok();
    let value = value.filter(|_| text == ANY || uri.is_some_and(is_origin));
    value.ok_or_else(|| "write an origin, as in https://app.example.org, or *".to_owned())
}

fn health(app: &App) -> Response {
    let client = app.condition.client.status();
    let mut troubles = app.condition.troubles(&client);
    if app.stop.is_requested() {
        troubles.push("it is stopping".to_owned());
    }
    let code = match troubles[..] {
        [] => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let (ready, client) = (troubles.is_empty(), client.to_string());
    let health = json!({ "ready": ready, "troubles": troubles, "client": client });
    (code, Json(health)).into_response()
}

fn prometheus(app: &App) -> Response {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, app.condition.metrics()).into_response()
}

fn check_local(option: &str, address: SocketAddr, advice: &str) -> Result<(), Failure> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{option} {address}: other machines can reach it: {advice}"
    )))
}

/// Returns a listener, with the address that it has.
async fn bind(option: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.and_then(|bound| bound.local_addr().map(|address| (bound, address)));
    bound.map_err(|error| Failure::usage(format!("{option} {address}: {error}; {FREE}")))
}

/// Whether a request names one host, so that no proxy in front can read another one (RFC 9112, section
/// 3.2).
fn has_its_host<B>(request: &Request<B>) -> bool {
    match host(request.headers()) {
        Ok(None) => request.version() < Version::HTTP_11,
        host => host.is_ok(),
    }
}

/// How long readiness waits for the first token.
const STARTED: Duration = Duration::from_secs(10);

const LOOK: Duration = Duration::from_millis(50);

const FREE: &str = "name a free address of this machine";

const ANY: &str = "*";
