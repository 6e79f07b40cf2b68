//! The identity provider's side: the token and the revocation endpoint.
//!
//! The contract shows a successful call. What a refusal looks like was measured at Keycloak 26.5.0;
//! the checks come in its order: path, method, realm, grant type, client, repeated fields, grant.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, Limited};

use crate::{
    body::Body,
    error::Error,
    fault::TokenFault,
    lock::lock,
    oidc::{form::Form, path::Endpoint, refusal::Refusal},
    shared::Shared,
    socket::Socket,
};

mod client;
mod fault;
mod form;
mod grant;
mod path;
mod refusal;
mod statement;

/// Answers a request to the identity provider.
pub(crate) async fn answer<B>(
    shared: Arc<Shared>,
    socket: Option<Arc<Socket>>,
    request: Request<B>,
) -> Result<Response<Body>, Error>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let endpoint = Endpoint::at(head.uri.path());
    match endpoint {
        Endpoint::Outside => return Ok(refusal::outside()),
        Endpoint::OtherRealm => return Ok(refusal::not_found("Realm does not exist")),
        Endpoint::Unknown => return Ok(refusal::not_found("HTTP 404 Not Found")),
        Endpoint::Token | Endpoint::Revoke if head.method == Method::OPTIONS => {
            return Ok(Response::new(Body::whole(Bytes::new())));
        }
        Endpoint::Token | Endpoint::Revoke if head.method != Method::POST => {
            return Ok(refusal::method_not_allowed());
        }
        Endpoint::Token | Endpoint::Revoke => {}
    }
    let body = Limited::new(body, FORM_MOST)
        .collect()
        .await
        .map_err(Error::request)?
        .to_bytes();
    let form = Form::read(&head.headers, &body);
    if endpoint == Endpoint::Revoke {
        return Ok(revoke(&shared, &head, &form).unwrap_or_else(Refusal::into_response));
    }
    token(&shared, socket, &head, &form).await
}

/// Answers a token POST, which is counted whatever its answer.
async fn token(
    shared: &Shared,
    socket: Option<Arc<Socket>>,
    head: &Parts,
    form: &Form,
) -> Result<Response<Body>, Error> {
    let client = client::named(shared, head, form);
    shared.ledger.token_post(client.as_deref());
    let fault = lock(&shared.script).post();
    match fault {
        Some(TokenFault::Down) => {
            if let Some(socket) = socket {
                socket.cut();
            }
            return Err(Error::closed());
        }
        Some(TokenFault::Slow(pause)) => tokio::time::sleep(pause).await,
        Some(other) => {
            if let Some(response) = fault::instead(other) {
                return Ok(response);
            }
        }
        None => {}
    }
    let expiry = match fault {
        Some(TokenFault::ExpiresIn(expiry)) => Some(expiry),
        Some(_) | None => None,
    };
    match grant::decide(shared, head, form) {
        Ok(granted) => Ok(grant::reply(&granted?, expiry)),
        Err(refusal) => Ok(refusal.into_response()),
    }
}

/// Revokes a token for the client that proves itself; one that is unknown is revoked already.
fn revoke(shared: &Shared, head: &Parts, form: &Form) -> Result<Response<Body>, Refusal> {
    if !lock(&shared.realm).enabled {
        return Err(refusal::REALM_DISABLED);
    }
    client::authenticate(shared, head, form)?;
    let token = form.field("token").ok_or(refusal::NO_TOKEN)?;
    lock(&shared.realm).tokens.revoke(token);
    Ok(Response::new(Body::whole(Bytes::new())))
}

/// An answer with a body of the given media type.
fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}

/// The longest form that is read.
const FORM_MOST: usize = 64 * 1024;

#[cfg(test)]
mod tests;
