//! The data endpoints: one call from its arrival to its answer.
//!
//! The order of the checks, which the contract leaves open: 416, 423, then the faults that stand in
//! for a head, then 401, 429 and the resource. The limits per address come first because a gateway
//! applies them to the connection, before it looks at a token.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{
    HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER, request::Parts,
};

use crate::{
    body::{Body, Content},
    config::RetryAfter,
    data::resource::Resource,
    entry::Entry,
    error::Error,
    fault::HeadFault,
    gate::Verdict,
    lock::lock,
    shared::Shared,
    socket::Socket,
};

mod permission;
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

    let (mut entry, verdict) = Entry::count(&shared.gate, &shared.ledger, socket, peer, target);
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
            if let Some(socket) = entry.socket() {
                socket.reset();
            }
            return Err(Error::reset());
        }
        (Verdict::Admitted, Some(HeadFault::Garbage)) => {
            let Some(socket) = entry.socket() else {
                return Err(Error::garbage());
            };
            socket.garble();
            says.answer(StatusCode::OK, "garbage")
        }
    };
    entry.answer(response.status().as_u16());
    Ok(Content::finish(response, entry, strike.body))
}

/// What an undisturbed service answers to an admitted call.
fn serve(shared: &Shared, entry: &Entry, head: &Parts) -> Response<Content> {
    let says = *lock(&shared.error_body);
    let resource = Resource::at(&head.uri);
    let token = match permission::token(shared, &head.headers) {
        Ok(token) => token,
        Err(denied) => return says.answer(StatusCode::UNAUTHORIZED, denied.message()),
    };
    entry.identify(token.generation);
    if let Some(resource) = &resource
        && let Err(denied) = permission::role(&token, resource.role())
    {
        return says.answer(StatusCode::UNAUTHORIZED, denied.message());
    }
    let counted = lock(&shared.usage).call(&token.client, entry.at());
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

/// Waits, and does not even yield if there is nothing to wait for.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}
