//! Who is asking: the client's id and secret, in the form or by HTTP Basic.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};

use crate::{
    lock::lock,
    oidc::{
        form::Form,
        refusal::{BAD_BASIC, Refusal, UNKNOWN_CLIENT, WRONG_SECRET},
    },
    shared::Shared,
};

/// Id and secret as they were sent.
struct Claimed {
    id: Option<String>,
    secret: Option<String>,
}

/// The id of the key that a request proves to hold.
pub(super) fn authenticate(
    shared: &Shared,
    head: &Parts,
    form: &Form,
) -> Result<Arc<str>, Refusal> {
    let claimed = claimed(&head.headers, form)?;
    let realm = lock(&shared.realm);
    let key = claimed
        .id
        .and_then(|id| realm.key(&id))
        .ok_or(UNKNOWN_CLIENT)?;
    if !key.enabled {
        return Err(UNKNOWN_CLIENT);
    }
    if !claimed.secret.is_some_and(|secret| key.opens_with(&secret)) {
        return Err(WRONG_SECRET);
    }
    Ok(key.api_key().shared_id())
}

/// The id of the key that a request names, proved or not.
pub(super) fn named(shared: &Shared, head: &Parts, form: &Form) -> Option<Arc<str>> {
    let id = claimed(&head.headers, form).ok()?.id?;
    lock(&shared.realm)
        .key(&id)
        .map(|key| key.api_key().shared_id())
}

/// What the request says in its Basic header, or else in its form.
fn claimed(headers: &HeaderMap, form: &Form) -> Result<Claimed, Refusal> {
    if let Some(basic) = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        && let Some((scheme, encoded)) = basic.split_once(' ')
        && scheme.eq_ignore_ascii_case("Basic")
    {
        let (id, secret) = basic_pair(encoded.trim()).ok_or(BAD_BASIC)?;
        return Ok(Claimed {
            id: Some(id),
            secret: Some(secret),
        });
    }
    Ok(Claimed {
        id: form.field("client_id").map(str::to_owned),
        secret: form.field("client_secret").map(str::to_owned),
    })
}

/// RFC 6749 section 2.3.1: id and secret are form-encoded first, then joined and put into base64.
fn basic_pair(encoded: &str) -> Option<(String, String)> {
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((form_decoded(id)?, form_decoded(secret)?))
}

/// The text behind a form-encoded one, or none if it contains what form encoding would not leave.
fn form_decoded(text: &str) -> Option<String> {
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let fits = match byte {
            b'%' => {
                let hex = |digit: Option<u8>| digit.is_some_and(|digit| digit.is_ascii_hexdigit());
                hex(rest.next()) && hex(rest.next())
            }
            b'+' | b'*' | b'-' | b'.' | b'_' => true,
            other => other.is_ascii_alphanumeric(),
        };
        if !fits {
            return None;
        }
    }
    let pair = format!("v={text}");
    form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
}
