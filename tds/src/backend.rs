//! `tds backend`: few resources for many users, within a deadline.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing,
};
use clap::Args;
use http::{
    HeaderValue, Method, StatusCode,
    header::{AGE, ALLOW, CONTENT_TYPE},
};
use metrics::counter;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tower_tds::Client;

use crate::{
    access::Access,
    cache::{Resource, Served, Terms},
    exit::{Exit, Failure},
    list,
    refusal::Refusal,
    serve::Listeners,
    settings::{Settings, address, duration},
    status::{Board, Failures},
};

/// Serve a few resources to many users, by one call upstream for all
#[derive(Debug, Args)]
#[command(
    after_help = "Users get an answer within the deadline: data, 503 with Retry-After, or 504. /healthz reports the state of the service, /metrics counts for Prometheus."
)]
pub(crate) struct Backend {
    /// A file with the resources, a path and query a line; - is the standard input
    #[arg(long, value_name = "FILE")]
    list: String,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// How long a user waits
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    deadline: Duration,
    /// For how long an answer is served without asking again
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    fresh: Duration,
    /// For how long beyond that it is served while the service fails [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stale: Option<Duration>,
    /// Show a page with rate, sockets, waits, token and refusals at this address, and /status.json
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    status: Option<SocketAddr>,
}

/// The state that all users share.
struct Shared {
    client: Client,
    resources: HashMap<String, Resource>,
    metrics: PrometheusHandle,
}

pub(crate) async fn run(job: Backend, settings: &Settings) -> Result<Exit, Failure> {
    let items = list::read(&job.list)?;
    let taken = |target: &str| OWN.contains(&target.split('?').next().unwrap_or(target));
    if let Some(item) = items.iter().find(|item| taken(&item.target)) {
        let why = format!("--list: {} is this server's own", item.target);
        return Err(Failure::usage(why));
    }
    let access = Access::local(
        &[("--status", job.status)],
        "listen on 127.0.0.1, and put what asks for a password in front",
    )?;
    let listeners = Listeners::bind(job.listen, job.status, UNREAD)?;
    let service = settings.service().await?;
    let client = service.builder.build()?;
    let metrics = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| Failure::usage(crate::output::causes(&error)))?;
    let terms = Terms {
        fresh: job.fresh,
        stale: job.stale.unwrap_or_default(),
        patience: job.deadline,
    };
    let failures = Failures::default();
    let resources = items.into_iter().map(|item| {
        let resource = Resource::new(&item.target, terms, failures.clone());
        (item.target, resource)
    });
    let shared = Arc::new(Shared {
        client: client.clone(),
        resources: resources.collect(),
        metrics,
    });
    // Fetched ahead: the first user does not wait for the token, and the first health check shows a
    // wrong secret.
    let tokens = client.tokens().clone();
    tokio::spawn(async move { tokens.ready().await.map(drop) });

    let router = Router::new()
        .route(OWN[0], routing::get(healthz))
        .route(OWN[1], routing::get(prometheus))
        .fallback(users)
        .with_state(shared);
    let board = Board::new(client.clone(), access, failures);
    listeners.serve(router, board, &client, job.deadline).await
}

async fn users(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method").into_response();
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let Some(resource) = shared.resources.get(target) else {
        return Refusal::new(StatusCode::NOT_FOUND, "not_found").into_response();
    };
    let served = resource.get(&shared.client).await;
    let label = match &served {
        Served::Fresh(_) => "fresh",
        Served::Stale(_) => "stale",
        Served::Refused(_) => "refused",
    };
    counter!("tds_users_total", "served" => label).increment(1);
    match served {
        Served::Fresh(answer) | Served::Stale(answer) => {
            let age = HeaderValue::from(answer.age().as_secs());
            let mut response = Response::new(Body::from(answer.body));
            let headers = response.headers_mut();
            headers.insert(AGE, age);
            if let Some(kind) = answer.kind {
                headers.insert(CONTENT_TYPE, kind);
            }
            response
        }
        Served::Refused(refusal) => refusal.into_response(),
    }
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    let status = shared.client.status();
    let code = if status.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let json = serde_json::to_vec(&status).unwrap_or_default();
    let kind = [(CONTENT_TYPE, "application/json")];
    (code, kind, json).into_response()
}

async fn prometheus(State(shared): State<Arc<Shared>>) -> Response {
    shared.client.status().record();
    shared.metrics.run_upkeep();
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, shared.metrics.render()).into_response()
}

/// The longest time in which a user reads nothing of a response.
const UNREAD: Duration = Duration::from_secs(60);

/// The paths of this server itself.
const OWN: [&str; 2] = ["/healthz", "/metrics"];
