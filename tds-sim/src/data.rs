//! The data endpoints: one call from its arrival to its answer.
//!
//! The order of the checks, which the contract leaves open: 416, 423, then the faults that stand in
//! for a head, then 401, 429 and the resource. The limits per address come first because a gateway
//! applies them to the connection, before it looks at a token.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER},
    request::Parts,
};

use crate::{
    body::{Body, Content},
    config::RetryAfter,
    data::resource::Resource,
    entry::Entry,
    error::{Error, Kind},
    fault::HeadFault,
    limits::Verdict,
    realm::Issued,
    shared::{Shared, lock},
    socket::Socket,
};

mod resource;

/// Answers a data call.
pub(crate) async fn answer<B>(
    shared: Arc<Shared>,
    socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    request: Request<B>,
) -> Result<Response<Body>, Error> {
    let head = request.into_parts().0;
    let target = head
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let strike = lock(&shared.script).call(target);
    pause(strike.before_counting).await;

    let (entry, verdict) = Entry::count(&shared, socket, peer, target);
    pause(strike.before_head).await;

    let says = *lock(&shared.error_body);
    let response = match (verdict, strike.head) {
        (Verdict::TooManyConnections, _) => {
            says.answer(StatusCode::RANGE_NOT_SATISFIABLE, "Too many connections")
        }
        (Verdict::TooFast, _) => says.answer(StatusCode::LOCKED, "Too many requests per second"),
        (Verdict::Admitted, None) => serve(&shared, &entry, &head),
        (Verdict::Admitted, Some(HeadFault::Status(status))) => {
            says.answer(status, "The service is unavailable")
        }
        (Verdict::Admitted, Some(HeadFault::Reset)) => {
            if let Some(socket) = &entry.socket {
                socket.reset();
            }
            return Err(Kind::Reset.into());
        }
        (Verdict::Admitted, Some(HeadFault::Garbage)) => {
            let Some(socket) = &entry.socket else {
                return Err(Kind::Garbage.into());
            };
            socket.garble();
            says.answer(StatusCode::OK, "garbage")
        }
    };
    entry.answer(response.status().as_u16());
    Ok(Content::finish(response, entry, strike.body))
}

/// The answer of an undisturbed service to an admitted call.
fn serve(shared: &Shared, entry: &Entry, head: &Parts) -> Response<Content> {
    let says = *lock(&shared.error_body);
    let resource = Resource::at(&head.uri);
    let token = match token(shared, &head.headers) {
        Ok(token) => token,
        Err(message) => return says.answer(StatusCode::UNAUTHORIZED, message),
    };
    entry.identify(token.generation);
    if let Some(resource) = &resource
        && !token.roles.iter().any(|role| role == resource.role())
    {
        return says.answer(StatusCode::UNAUTHORIZED, MISSING_ROLE);
    }
    let counted = lock(&shared.usage).call(&token.client, entry.at);
    if let Err(seconds) = counted {
        let mut refusal = says.answer(StatusCode::TOO_MANY_REQUESTS, "API rate limit exceeded");
        if shared.config.retry_after == RetryAfter::Seconds {
            refusal
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        return refusal;
    }
    match resource {
        None => says.answer(StatusCode::NOT_FOUND, "Not found"),
        Some(_) if head.method != Method::GET => {
            says.answer(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        }
        Some(resource) => resource.answer(&shared.config, &head.headers),
    }
}

/// The record of the valid token a call carries, or the message of the 401.
fn token(shared: &Shared, headers: &HeaderMap) -> Result<Arc<Issued>, &'static str> {
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
    let now = shared.clock.now();
    lock(&shared.realm)
        .valid(token.trim(), now)
        .ok_or(INVALID_TOKEN)
}

/// Waits, and does not even yield if there is nothing to wait for.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

// Contract, "Errors": the message texts of 401.
const NO_HEADER: &str = "no Authorization header found";
const INVALID_TOKEN: &str = "invalid token";
const MISSING_ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";
