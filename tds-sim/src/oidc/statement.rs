//! A signed statement in place of a secret (RFC 7523), with the checks of Keycloak 26.5.0.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Uri, header::HOST, request::Parts, uri::Authority};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    oidc::{
        Endpoint,
        client::Form,
        refusal::{NO_STATEMENT, NO_TYPE, NOT_A_STATEMENT, Refusal, UNEXPECTED},
    },
    realm::Realm,
};

/// Public key of a client, which verifies its statements.
#[derive(Clone)]
pub(crate) struct PublicKey(UnparsedPublicKey<Vec<u8>>);

/// The claims of a statement, checked or not.
#[derive(Debug, Deserialize)]
struct Statement {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Value>,
    jti: Option<String>,
    iat: Option<i64>,
    nbf: Option<i64>,
    exp: Option<i64>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

/// The client of a form's statement, if issuer and subject are the same.
pub(super) fn subject(form: &Form) -> Option<String> {
    if form.field("client_assertion_type") != Some(TYPE) {
        return None;
    }
    let statement = Statement::read(form.field("client_assertion")?)?;
    statement
        .sub
        .filter(|sub| statement.iss.as_ref() == Some(sub))
}

/// Whether the form has a statement that proves the client `id`; it proves it once.
pub(super) fn check(
    realm: &mut Realm,
    key: &PublicKey,
    id: &str,
    (head, form): (&Parts, &Form),
) -> Result<(), Refusal> {
    let kind = form.field("client_assertion_type").ok_or(NO_TYPE)?;
    if kind != TYPE {
        return Err(Refusal::unknown_statement_type(kind));
    }
    let text = form.field("client_assertion").ok_or(NO_STATEMENT)?;
    let statement = Statement::read(text).ok_or(NOT_A_STATEMENT)?;
    let subject = statement.sub.as_deref().ok_or(UNEXPECTED)?;
    if subject != id {
        return Err(Refusal::statement(
            "client_id parameter does not match sub claim",
        ));
    }
    if statement.iss.as_deref() != Some(id) {
        return Err(UNEXPECTED);
    }
    key.check(text).map_err(Refusal::statement)?;
    audience(statement.aud.as_ref(), head).map_err(Refusal::statement)?;
    lifetime(&statement, realm.wall()).map_err(Refusal::statement)?;
    let jti = statement
        .jti
        .ok_or(Refusal::statement("Token jti claim is required"))?;
    if realm.accepts_number(jti, statement.exp.unwrap_or_default()) {
        Ok(())
    } else {
        Err(Refusal::statement("Token reuse detected"))
    }
}

/// It is for this realm or its token endpoint, and for nothing else beside.
fn audience(aud: Option<&Value>, head: &Parts) -> Result<(), &'static str> {
    let ours = |one: &str| is_ours(one, head);
    let (ours, all) = match aud {
        Some(Value::String(one)) => (ours(one), 1),
        Some(Value::Array(all)) => (
            all.iter().any(|one| one.as_str().is_some_and(ours)),
            all.len(),
        ),
        _ => (false, 0),
    };
    if !ours {
        return Err("Invalid token audience");
    }
    if all > 1 {
        return Err("Multiple audiences not allowed");
    }
    Ok(())
}

/// Whether `audience` is an address of this realm, letter by letter, as the sender calls the host.
/// A simulator in a process has none of its own: any will do for a request that names none.
fn is_ours(audience: &str, head: &Parts) -> bool {
    let Ok(address) = audience.parse::<Uri>() else {
        return false;
    };
    let Some(authority) = address.authority() else {
        return false;
    };
    let said = unsaid_port(&address, authority.as_str());
    let here = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let here = head.uri.authority().map(Authority::as_str).or(here);
    authority.as_str() == said
        && here.is_none_or(|here| unsaid_port(&address, here) == said)
        && Endpoint::is_issuer_or_token(address.path())
}

/// `authority` without the port that goes without saying: none stands in a published address.
fn unsaid_port<'a>(address: &Uri, authority: &'a str) -> &'a str {
    let port = match address.scheme_str() {
        Some("https") => ":443",
        _ => ":80",
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

/// It is good for a minute from its making on, whatever end it gives itself.
fn lifetime(statement: &Statement, now: i64) -> Result<(), &'static str> {
    let exp = statement.exp.ok_or("Token exp claim is required")?;
    let begins = statement.nbf.unwrap_or_default().saturating_sub(SKEW);
    if exp <= now.saturating_sub(SKEW) || begins > now {
        return Err("Token is not active");
    }
    match statement.iat {
        None if exp > now.saturating_add(LIFE) => {
            Err("Token expiration is too far in the future and iat claim not present in token")
        }
        None => Ok(()),
        Some(iat) if iat.saturating_sub(SKEW) > now => Err("Token was issued in the future"),
        Some(iat) if now > iat.saturating_add(LIFE) => {
            Err("Token was issued too far in the past to be used now")
        }
        Some(_) => Ok(()),
    }
}

// === impl PublicKey ===

impl PublicKey {
    /// An RSA key by the DER of its `RSAPublicKey` (RFC 8017, A.1.1).
    pub(crate) fn from_der(der: &[u8]) -> Self {
        Self(UnparsedPublicKey::new(
            &RSA_PKCS1_2048_8192_SHA256,
            der.to_vec(),
        ))
    }

    /// Checks that the private half has signed `statement`; Keycloak's words for it if not.
    fn check(&self, statement: &str) -> Result<(), &'static str> {
        let (signed, signature) = statement.rsplit_once('.').unwrap_or_default();
        let header = signed.split('.').next().and_then(part::<Header>);
        let header = header
            .filter(|header| header.alg == "RS256")
            .ok_or("Invalid signature algorithm")?;
        if header.kid.is_some() {
            // The key has no name here.
            return Err("Unable to load public key");
        }
        BASE64_URL_SAFE_NO_PAD
            .decode(signature)
            .ok()
            .and_then(|signature| self.0.verify(signed.as_bytes(), &signature).ok())
            .ok_or(
                "Client authentication with signed JWT failed: Signature on JWT token failed validation",
            )
    }
}

// === impl Statement ===

impl Statement {
    /// The claims of a JWT, whatever its signature.
    fn read(text: &str) -> Option<Self> {
        match text.split('.').collect::<Vec<_>>()[..] {
            [header, claims, _] => part::<Header>(header).and(part(claims)),
            _ => None,
        }
    }
}

/// Decodes a part of a JWT.
fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&json).ok()
}

/// RFC 7523, section 2.2.
const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Seconds by which clocks may differ; Keycloak 26.5.0, `JWTClientValidator`.
const SKEW: i64 = 15;
/// Seconds; Keycloak 26.5.0, the default of a client's "Max expiration".
const LIFE: i64 = 60;

#[cfg(test)]
mod tests;
