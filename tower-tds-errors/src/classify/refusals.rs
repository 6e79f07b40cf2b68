//! The texts that refine a status: literals of RFC 6749, of RFC 6750 and of the gateway's plugins
//! (lua-resty-openidc, kong-oidc, kong-plugin-jwt-keycloak, Kong's own `jwt`).

use http::StatusCode;

use crate::kind::Kind;

/// The kind that `text` refines `status` to, if it is known.
pub(super) fn refine(status: StatusCode, text: &str) -> Option<Kind> {
    let text = normal(text);
    let is = |known: &[&str]| known.contains(&&*text);
    let starts = |known: &[&str]| known.iter().any(|known| text.starts_with(known));
    match status {
        // The role plugin's default status is 403; this service configures 401.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if starts(&ROLE) => {
            Some(Kind::MissingRole)
        }
        StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST if is(&CREDENTIALS) => {
            Some(Kind::TokenRefused)
        }
        // The gateway could not check the token. The token is not at fault, and new ones would load
        // an identity server that is down.
        StatusCode::UNAUTHORIZED if starts(&IDENTITY) || is_unreachable(&text) => {
            Some(Kind::Unavailable)
        }
        StatusCode::UNAUTHORIZED if is(&NO_TOKEN) => Some(Kind::MissingCredentials),
        // Only the exact text counts, because the text of a failed check may quote it.
        StatusCode::UNAUTHORIZED if is(&DEAD_TOKEN) => Some(Kind::InvalidToken),
        _ => None,
    }
}

/// Whether the whole `text` is a known literal, which contains no secret.
pub(super) fn is_known(text: &str) -> bool {
    let text = normal(text);
    NO_TOKEN
        .iter()
        .chain(&DEAD_TOKEN)
        .chain(&CREDENTIALS)
        .any(|known| *known == text)
}

fn normal(text: &str) -> String {
    text.trim().trim_end_matches('.').to_ascii_lowercase()
}

/// Whether the gateway got no usable response from its identity server: `accessing introspection
/// endpoint (…) failed: timeout`, and the same of discovery and keys.
fn is_unreachable(text: &str) -> bool {
    text.starts_with("accessing ") && text.contains(" failed")
}

const ROLE: [&str; 3] = [
    "access token does not have the required scope/role",
    "missing required ",
    "insufficient_scope",
];

const CREDENTIALS: [&str; 3] = ["invalid_client", "unauthorized_client", "invalid_grant"];

/// Texts for a response of the identity server that the gateway cannot use.
const IDENTITY: [&str; 2] = ["response indicates failure", "json decoding failed"];

const NO_TOKEN: [&str; 3] = [
    "no authorization header found",
    "no bearer authorization header value found",
    "no bearer access token value found",
];

const DEAD_TOKEN: [&str; 5] = [
    "invalid token",
    "invalid cached token",
    "jwt expired",
    "token expired",
    "invalid_token",
];
