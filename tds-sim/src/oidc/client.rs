//! Client of a request: its form, its id, and its secret.

use std::{collections::HashSet, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{
    HeaderMap,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};

use crate::{
    clock::lock,
    oidc::refusal::{Refusal, UNEXPECTED, UNKNOWN_CLIENT, WRONG_SECRET},
    state::State,
};

/// Fields of a form in their order. There are none if the body is no urlencoded form.
#[derive(Debug)]
pub(super) struct Form {
    fields: Vec<(String, String)>,
    /// Whether the form came as `multipart/form-data`, whose fields are not read.
    pub(super) is_multipart: bool,
}

/// Returns the client id, if the request has the right secret.
pub(super) fn authenticate(state: &State, head: &Parts, form: &Form) -> Result<Arc<str>, Refusal> {
    let header = head.headers.get(AUTHORIZATION);
    let basic = header.and_then(|value| basic_pair(value.to_str().ok()?));
    let (mut id, mut secret) = (None, None);
    if let Some((in_id, in_secret)) = basic {
        id = Some(form_decoded(&in_id).ok_or(UNEXPECTED)?);
        secret = Some(form_decoded(&in_secret).ok_or(UNEXPECTED)?);
    }
    // Fields of the form come first.
    let field = |name| form.field(name).map(str::to_owned);
    let (id, secret) = (field("client_id").or(id), field("client_secret").or(secret));
    let realm = lock(&state.realm);
    let key = realm
        .key(&id.ok_or(UNKNOWN_CLIENT)?)
        .ok_or(UNKNOWN_CLIENT)?;
    if !key.enabled {
        return Err(UNKNOWN_CLIENT);
    }
    if !secret.is_some_and(|secret| key.opens_with(&secret)) {
        return Err(WRONG_SECRET);
    }
    Ok(key.api_key().client_id)
}

/// Returns id and secret of a Basic header, still form-encoded (RFC 6749, section 2.3.1). A
/// malformed header counts as missing.
fn basic_pair(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let text = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let text = String::from_utf8(text).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}

/// Decodes form-encoded text. Returns `None` if two hexadecimal digits do not follow a percent
/// sign. Characters that should have been encoded are accepted.
fn form_decoded(text: &str) -> Option<String> {
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |digit: Option<u8>| digit.is_some_and(|digit| digit.is_ascii_hexdigit());
        if byte == b'%' && !(hex(rest.next()) && hex(rest.next())) {
            return None;
        }
    }
    // A raw `&` would end the value.
    let pair = format!("v={}", text.replace('&', "%26"));
    form_urlencoded::parse(pair.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
}

// === impl Form ===

impl Form {
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next());
        let is = |media| kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(media));
        let fields = match is("application/x-www-form-urlencoded") {
            true => form_urlencoded::parse(body).into_owned().collect(),
            false => Vec::new(),
        };
        let is_multipart = is("multipart/form-data");
        Self {
            fields,
            is_multipart,
        }
    }

    /// Returns the first field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    /// Whether a field comes twice.
    pub(super) fn repeats_a_field(&self) -> bool {
        let mut seen = HashSet::new();
        !self.fields.iter().all(|(name, _)| seen.insert(name))
    }
}
