//! Discovery of the realm: its endpoints, its keys, and whether a token is active.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Response, StatusCode, header::HOST, request::Parts, uri::Authority};
use serde_json::{Value, json};

use crate::{
    body::Body,
    clock::lock,
    error::Error,
    oidc::{client, client::Form, refusal},
    state::State,
};

/// Returns the issuer: the URL of the realm as the request named it. Without one, it is the URL of
/// the auth listener, and without a listener it has no port.
pub(crate) fn issuer(state: &State, head: Option<&Parts>) -> String {
    let served = state.auth_url.get().map_or(NO_PORT, String::as_str);
    let named = head.and_then(|head| {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| head.uri.authority().map(|authority| authority.as_str()));
        host.filter(|host| host.parse::<Authority>().is_ok())
    });
    let scheme = served.split("://").next().unwrap_or("http");
    match named {
        Some(host) if state.auth_url.get().is_some() => format!("{scheme}://{host}{REALM}"),
        _ => format!("{served}{REALM}"),
    }
}

/// Returns the answer at `.well-known/openid-configuration` (OpenID Connect Discovery 1.0, section
/// 4).
pub(super) fn configuration(state: &State, head: &Parts) -> Response<Body> {
    let issuer = issuer(state, Some(head));
    let at = |path: &str| format!("{issuer}/protocol/openid-connect/{path}");
    let methods = ["client_secret_basic", "client_secret_post"];
    let configuration = json!({
        "issuer": issuer,
        "token_endpoint": at("token"),
        "introspection_endpoint": at("token/introspect"),
        "jwks_uri": at("certs"),
        // The specification requires this URL. Nothing is behind it, because no person logs in.
        "authorization_endpoint": at("auth"),
        "response_types_supported": ["none"],
        "subject_types_supported": ["public"],
        "grant_types_supported": ["client_credentials"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": methods,
        "introspection_endpoint_auth_methods_supported": methods,
        "scopes_supported": super::SCOPES,
    });
    Body::json(StatusCode::OK, &configuration)
}

/// Returns the answer at `certs`: the key of the tokens (RFC 7517).
pub(super) fn keys(state: &State) -> Result<Response<Body>, Error> {
    let keys = lock(&state.realm).tokens.key_set()?;
    Ok(Body::json(StatusCode::OK, &keys))
}

/// Returns the answer at `token/introspect` (RFC 7662): the claims of a token that is active.
pub(super) fn introspection(state: &State, head: &Parts, form: &Form) -> Response<Body> {
    if let Err(refusal) = client::authenticate(state, head, form) {
        return refusal.into_response();
    }
    let token = form.field("token").unwrap_or_default();
    let valid = lock(&state.realm).tokens.valid(token, state.clock.now());
    let mut claims = valid.and_then(|_| claims(token)).unwrap_or(json!({}));
    let active = claims.get("iss").is_some();
    claims["active"] = json!(active);
    let mut response = Body::json(StatusCode::OK, &claims);
    refusal::do_not_store(&mut response);
    response
}

/// Returns the claims of a token.
fn claims(token: &str) -> Option<Value> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?);
    serde_json::from_slice(&claims.ok()?).ok()
}

const REALM: &str = "/auth/realms/ServiceConnect";

/// URL of a simulator without a socket. It has no port, as if the port were the default one.
const NO_PORT: &str = "http://127.0.0.1";
