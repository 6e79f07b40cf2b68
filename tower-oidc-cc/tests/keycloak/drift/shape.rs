//! The shape of an answer: the parts that must be the same on both sides.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderName;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, PRAGMA, WWW_AUTHENTICATE};
use serde_json::Value;

use crate::keycloak::wire::Answer;

/// A response without the values that differ between two tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    status: u16,
    headers: Vec<(HeaderName, String)>,
    body: String,
}

// === impl Shape ===

impl Shape {
    pub(super) fn of(answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Self {
            status: answer.status.as_u16(),
            headers: [ALLOW, CACHE_CONTROL, CONTENT_TYPE, PRAGMA, WWW_AUTHENTICATE]
                .into_iter()
                .filter_map(|name| {
                    let value = answer.headers.get(&name)?.to_str().ok()?.to_owned();
                    Some((name, value))
                })
                .collect(),
            body: match serde_json::from_str(&text) {
                Ok(Value::Object(fields)) => object(fields),
                _ => text,
            },
        }
    }
}

/// The fields unchanged, except for the token, which becomes the types of its claims.
fn object(mut fields: serde_json::Map<String, Value>) -> String {
    if let Some(token) = fields.get_mut("access_token") {
        *token = claims(token.as_str().unwrap());
    }
    // The rest of the life by the server's clock, which may have ticked meanwhile.
    if let Some(life) = fields.get_mut("expires_in") {
        *life = life.is_u64().into();
    }
    if let Some(token) = fields.get_mut("id_token") {
        *token = "-".into();
    }
    // The order of scopes is the order of some hash.
    if let Some(Value::String(scope)) = fields.get_mut("scope") {
        let mut names: Vec<_> = scope.split(' ').collect();
        names.sort_unstable();
        *scope = names.join(" ");
    }
    Value::Object(fields).to_string()
}

/// The claims of the simulated tokens, each with the kind of its value.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(part).unwrap();
    let mut claims: Value = serde_json::from_slice(&claims).unwrap();
    let claims = claims.as_object_mut().unwrap();
    let kind = |value: &Value| match value {
        Value::String(_) => "text",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        Value::Null | Value::Bool(_) | Value::Array(_) => "other",
    };
    claims
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(kind(value))))
        .collect()
}
