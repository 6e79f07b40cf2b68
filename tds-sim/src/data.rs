//! Data endpoints: one call from its arrival to its answer.
//!
//! Checks come in this order, which the contract leaves open: 416, 423, then the faults that
//! replace the head, then 401, 429 and the resource. Limits per address are first because a gateway
//! applies them to the connection, before the check of the token.

use std::{net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
    request::Parts,
};
use http_body_util::BodyExt as _;

use crate::{
    body::{Body, Content},
    clock::lock,
    config::Config,
    entry::Entry,
    error::{Error, Kind},
    error_body::ErrorBody,
    fault::DataFault,
    limits::Verdict,
    realm::Issued,
    resource::{Endpoint, Resource},
    socket::Socket,
    state::State,
};

/// Answers a data call.
pub(crate) async fn answer<B: http_body::Body>(
    state: Arc<State>,
    socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    request: Request<B>,
) -> Result<Response<Body>, Error> {
    let (head, body) = request.into_parts();
    let target = head
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let strike = lock(&state.script).call(target, state.clock.now());
    pause(strike.before_counting).await;

    let (entry, verdict) = Entry::count(&state.intake, socket, peer, &head);
    let declared = body.size_hint().exact();
    let received = match state.intake.ledger.has_headers && !body.is_end_stream() {
        true => Some(length(body).await),
        false => {
            // The request's body is not read, and the answer may come before its end.
            drop(body);
            declared
        }
    };
    entry.amend(|arrival| arrival.body_bytes = received);
    pause(strike.before_head).await;

    let config = state.config();
    let refuse = |status, message| refusal(config.error_body, status, message);
    let response = match (verdict, strike.head) {
        (Verdict::TooManyConnections, _) => {
            refuse(StatusCode::RANGE_NOT_SATISFIABLE, "Too many connections")
        }
        (Verdict::TooFast, _) => refuse(StatusCode::LOCKED, "Too many requests per second"),
        (Verdict::Admitted, Some(DataFault::Status { status, .. })) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            refuse(status, "The service is unavailable")
        }
        (Verdict::Admitted, Some(DataFault::ResetHead)) => {
            if let Some(socket) = &entry.socket {
                socket.reset();
            }
            return Err(Kind::Reset.into());
        }
        (Verdict::Admitted, Some(DataFault::Garbage)) => {
            let Some(socket) = &entry.socket else {
                return Err(Kind::Garbage.into());
            };
            socket.garble();
            refuse(StatusCode::OK, "garbage")
        }
        (Verdict::Admitted, _) => serve(&state, &config, &entry, &head).await,
    };
    entry.answer(response.status().as_u16());
    Ok(Content::finish(response, entry, strike.body, &state.clock))
}

/// Returns the response of a service without faults to an admitted call.
async fn serve(state: &State, config: &Config, entry: &Entry, head: &Parts) -> Response<Content> {
    let refuse = |status, message: &str| refusal(config.error_body, status, message);
    let endpoint = Endpoint::at(&head.uri);
    let token = match token(state, &head.headers) {
        Ok(token) => token,
        Err(message) => return refuse(StatusCode::UNAUTHORIZED, message),
    };
    entry.amend(|arrival| arrival.token = Some(token.generation));
    if let Some(endpoint) = &endpoint
        && !token.roles.iter().any(|role| role == endpoint.role)
    {
        return refuse(StatusCode::UNAUTHORIZED, MISSING_ROLE);
    }
    let counted = lock(&state.usage).call(&token.client, entry.at);
    if let Err(seconds) = counted {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let mut refusal = refuse(status, "API rate limit exceeded");
        if config.retry_after {
            let seconds = HeaderValue::from(seconds);
            refusal.headers_mut().insert(RETRY_AFTER, seconds);
        }
        return refusal;
    }
    let path = head.uri.path();
    let stub = {
        let stubs = lock(&state.stubs);
        let stub = stubs
            .iter()
            .rev()
            .find(|(calls, _)| calls.have(&head.method, &head.uri));
        stub.map(|(_, stub)| Arc::clone(stub))
    };
    if let Some(stub) = stub {
        pause(stub.delay).await;
        let mut response = content(stub.status, stub.body.clone());
        *response.headers_mut() = stub.headers.clone();
        return response;
    }
    let file = match &config.files {
        Some(folder) => file(folder.clone(), path.to_owned()).await,
        None => None,
    };
    let found = match (file, endpoint) {
        (Some(file), _) => Ok(file),
        (None, Some(endpoint)) => endpoint.data(config, &state.clock),
        (None, None) => return refuse(StatusCode::NOT_FOUND, "Not found"),
    };
    match found {
        _ if head.method != Method::GET => {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        }
        Ok(resource) => resource.answer(&head.headers),
        Err(wrong) => refuse(StatusCode::BAD_REQUEST, &wrong.to_string()),
    }
}

/// Reads a file on a thread for blocking work.
async fn file(folder: PathBuf, path: String) -> Option<Resource> {
    let read = tokio::task::spawn_blocking(move || Resource::file(&folder, &path));
    read.await.ok().flatten()
}

fn content(status: StatusCode, bytes: impl Into<Bytes>) -> Response<Content> {
    let mut response = Response::new(Content::bytes(bytes));
    *response.status_mut() = status;
    response
}

/// Returns an error with a body in this format.
fn refusal(format: ErrorBody, status: StatusCode, message: &str) -> Response<Content> {
    let (kind, text) = format.render(message);
    let mut response = content(status, text);
    if let Some(kind) = kind {
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// Reads a body to its end or to the longest length that is counted, and returns its length.
async fn length(body: impl http_body::Body) -> u64 {
    let (mut body, mut length) = (pin!(body), 0_u64);
    while let Some(Ok(frame)) = body.frame().await {
        let more = frame.data_ref().map_or(0, bytes::Buf::remaining);
        length = length.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
        if length > BODY_MOST {
            break;
        }
    }
    length
}

/// Returns the record of a call's valid token, or the message of the 401.
fn token(state: &State, headers: &HeaderMap) -> Result<Arc<Issued>, &'static str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(NO_HEADER)?;
    if values.next().is_some() {
        return Err(INVALID_TOKEN);
    }
    let value = value.to_str().map_err(|_| INVALID_TOKEN)?;
    let (scheme, token) = value.split_once(' ').ok_or(INVALID_TOKEN)?;
    if !scheme.eq_ignore_ascii_case("Bearer") {
        return Err(INVALID_TOKEN);
    }
    let now = state.clock.now();
    lock(&state.realm)
        .tokens
        .valid(token.trim(), now)
        .ok_or(INVALID_TOKEN)
}

/// Waits for this time. Returns at once, without yielding, if it is zero.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

/// Longest body of a request that is read and counted.
const BODY_MOST: u64 = 64 * 1024 * 1024;

// Contract, "Errors": the message texts of 401.
const NO_HEADER: &str = "no Authorization header found";
const INVALID_TOKEN: &str = "invalid token";
const MISSING_ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";
