//! The grant of a token, and the reply that carries it.

use http::{Response, StatusCode, request::Parts};
use serde_json::{Map, Value, json};

use crate::{
    body::Body,
    error::Error,
    fault::FalseExpiry,
    oidc::{
        client::{self, Form},
        refusal::{self, Refusal},
    },
    realm::Grant,
    shared::{Shared, lock},
};

/// Grants a token, or refuses it by the first check that fails.
pub(super) fn decide(
    shared: &Shared,
    head: &Parts,
    form: &Form,
) -> Result<Result<Grant, Error>, Refusal> {
    if !lock(&shared.realm).enabled {
        return Err(refusal::REALM_DISABLED);
    }
    if form.is_multipart() {
        return Err(refusal::UNKNOWN_CLIENT);
    }
    let grant_type = form.field("grant_type").ok_or(refusal::NO_GRANT_TYPE)?;
    if !GRANT_TYPES.contains(&grant_type) {
        return Err(refusal::UNKNOWN_GRANT_TYPE);
    }
    let client = client::authenticate(shared, head, form)?;
    if form.repeats_a_field() {
        return Err(refusal::REPEATED_FIELD);
    }
    if grant_type == "password" {
        return Err(refusal::NO_DIRECT_ACCESS);
    }
    let mut realm = lock(&shared.realm);
    if !realm.key(&client).is_some_and(|key| key.service_account) {
        return Err(refusal::NO_SERVICE_ACCOUNT);
    }
    let asked = form.field("scope");
    let mut names = asked.into_iter().flat_map(|asked| asked.split(' '));
    if names.clone().any(|scope| !SCOPES.contains(&scope)) {
        return Err(Refusal::unknown_scope(asked.unwrap_or_default()));
    }
    let openid = names.any(|scope| scope == "openid");
    let granted = realm.grant(&client, if openid { OPENID_SCOPE } else { SCOPE });
    if granted.is_ok() {
        shared.ledger.token_issued();
    }
    Ok(granted)
}

/// The reply with a token, and with `expiry` in place of its lifetime if that is to be false.
pub(super) fn reply(granted: &Grant, expiry: Option<FalseExpiry>) -> Response<Body> {
    let expires_in = match expiry {
        None => Some(json!(granted.expires_in)),
        Some(FalseExpiry::Zero) => Some(json!(0)),
        Some(FalseExpiry::Negative) => Some(json!(-1)),
        Some(FalseExpiry::Huge) => Some(json!(1_u64 << 63)),
        Some(FalseExpiry::Text) => Some(json!(granted.expires_in.to_string())),
        Some(FalseExpiry::Absent) => None,
    };
    let mut fields = Map::new();
    fields.insert("access_token".to_owned(), Value::from(&*granted.token));
    if let Some(expires_in) = expires_in {
        fields.insert("expires_in".to_owned(), expires_in);
    }
    fields.insert("refresh_expires_in".to_owned(), json!(0));
    fields.insert("token_type".to_owned(), json!("Bearer"));
    if let Some(id_token) = &granted.id_token {
        fields.insert("id_token".to_owned(), json!(id_token));
    }
    fields.insert("not-before-policy".to_owned(), json!(granted.not_before));
    fields.insert("scope".to_owned(), json!(granted.scope));
    let mut response = refusal::json(StatusCode::OK, &Value::Object(fields));
    refusal::do_not_store(&mut response);
    response
}

/// The grant types the realm knows; a key may use the first only.
const GRANT_TYPES: [&str; 2] = ["client_credentials", "password"];

/// Scopes that a client may request.
const SCOPES: [&str; 3] = ["openid", "profile", "email"];

/// Scopes of every token, requested or not.
const SCOPE: &str = "profile email";
const OPENID_SCOPE: &str = "openid profile email";
