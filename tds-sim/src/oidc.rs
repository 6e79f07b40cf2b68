//! The identity provider: its token endpoint, and its discovery of the realm.
//!
//! As the contract shows only a successful call, the refusals and the order of the checks were
//! measured at Keycloak 26.5.0: path, method, realm, grant type, client, repeated fields, grant.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use crate::{
    body::Body,
    clock::lock,
    error::{Error, Kind},
    fault::TokenFault,
    oidc::{client::Form, refusal::Refusal},
    socket::Socket,
    state::State,
};

mod client;
mod discovery;
mod refusal;

pub(crate) use self::discovery::issuer;

/// Answers a request to the identity provider.
pub(crate) async fn answer<B>(
    state: Arc<State>,
    socket: Option<Arc<Socket>>,
    request: Request<B>,
) -> Result<Response<Body>, Error>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(path) = path.strip_prefix("/auth/realms/") else {
        return Ok(refusal::outside());
    };
    let (realm, endpoint) = path.split_once('/').unwrap_or((path, ""));
    if realm != REALM {
        return Ok(refusal::bare(StatusCode::NOT_FOUND, "Realm does not exist"));
    }
    match (endpoint, &head.method) {
        (TOKEN, &Method::OPTIONS) => return Ok(Response::new(Body::whole(Bytes::new()))),
        (TOKEN | INTROSPECTION, &Method::POST) => {}
        (CONFIGURATION, &Method::GET) => return Ok(discovery::configuration(&state, &head)),
        (KEYS, &Method::GET) => return discovery::keys(&state),
        // Keycloak sends no `Allow` here, though RFC 9110, section 15.5.6, requires one.
        (TOKEN | INTROSPECTION | CONFIGURATION | KEYS, _) => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Ok(refusal::bare(status, "HTTP 405 Method Not Allowed"));
        }
        _ => return Ok(refusal::bare(StatusCode::NOT_FOUND, "HTTP 404 Not Found")),
    }
    let body = Limited::new(body, FORM_MOST)
        .collect()
        .await
        .map_err(|error| Error::failed("the body of the token request could not be read", error))?
        .to_bytes();
    let form = Form::read(&head.headers, &body);
    if endpoint == INTROSPECTION {
        return Ok(discovery::introspection(&state, &head, &form));
    }
    token(&state, socket, &head, &form).await
}

/// Answers a token POST, and counts it.
async fn token(
    state: &State,
    socket: Option<Arc<Socket>>,
    head: &Parts,
    form: &Form,
) -> Result<Response<Body>, Error> {
    state.intake.ledger.token_post();
    let fault = lock(&state.script).post(head.uri.path());
    match fault {
        Some(TokenFault::Down) => {
            if let Some(socket) = socket {
                socket.cut();
            }
            return Err(Kind::Closed.into());
        }
        Some(TokenFault::Unavailable) => {
            let (status, text) = (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable\n");
            return Ok(Body::page(status, "text/plain", text));
        }
        Some(TokenFault::Html) => {
            let kind = "text/html; charset=utf-8";
            return Ok(Body::page(StatusCode::OK, kind, MAINTENANCE));
        }
        Some(TokenFault::Slow(pause)) => tokio::time::sleep(pause).await,
        None => {}
    }
    match decide(state, head, form) {
        Ok(reply) => {
            let mut response = Body::json(StatusCode::OK, &reply?);
            refusal::do_not_store(&mut response);
            Ok(response)
        }
        Err(refusal) => Ok(Refusal::into_response(refusal)),
    }
}

/// Grants a token, or refuses it by the first check that fails.
fn decide(state: &State, head: &Parts, form: &Form) -> Result<Result<Value, Error>, Refusal> {
    if form.is_multipart {
        return Err(refusal::UNKNOWN_CLIENT);
    }
    let grant_type = form.field("grant_type").ok_or(refusal::NO_GRANT_TYPE)?;
    if !GRANT_TYPES.contains(&grant_type) {
        return Err(refusal::UNKNOWN_GRANT_TYPE);
    }
    let client = client::authenticate(state, head, form)?;
    if form.repeats_a_field() {
        return Err(refusal::REPEATED_FIELD);
    }
    if grant_type == "password" {
        return Err(refusal::NO_DIRECT_ACCESS);
    }
    let scope = form.field("scope");
    let mut names = scope.into_iter().flat_map(|scope| scope.split(' '));
    if names.clone().any(|scope| !SCOPES.contains(&scope)) {
        return Err(Refusal::unknown_scope(scope.unwrap_or_default()));
    }
    let openid = names.any(|scope| scope == "openid");
    let scope = if openid { OPENID_SCOPE } else { SCOPE };
    let granted = lock(&state.realm).grant(&client, scope, &issuer(state, Some(head)));
    if granted.is_ok() {
        state.intake.ledger.token_issued();
    }
    Ok(granted)
}

const TOKEN: &str = "protocol/openid-connect/token";
const INTROSPECTION: &str = "protocol/openid-connect/token/introspect";
const KEYS: &str = "protocol/openid-connect/certs";
const CONFIGURATION: &str = ".well-known/openid-configuration";

/// Grant types of the realm. A key may use only the first.
const GRANT_TYPES: [&str; 2] = ["client_credentials", "password"];

/// Scopes that a client may request.
const SCOPES: [&str; 3] = ["openid", "profile", "email"];

/// Scopes of every token, requested or not.
const SCOPE: &str = "profile email";
const OPENID_SCOPE: &str = "openid profile email";

/// Contract, "Token endpoint": the realm in the path.
const REALM: &str = "ServiceConnect";

/// Longest form that is read.
const FORM_MOST: usize = 64 * 1024;

const MAINTENANCE: &str = "<!doctype html>\n<html><head><title>Maintenance</title></head>\
     <body><h1>We will be back soon</h1></body></html>\n";

#[cfg(test)]
mod tests;
