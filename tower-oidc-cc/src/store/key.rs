//! Under which name a token is kept.

use crate::{Parameters, TokenEndpoint};

#[cfg(test)]
mod tests;

/// Names a kind of token: everything that makes one differ from another, but for the client id.
///
/// Each part stands behind its length, so that no two kinds share a name.
pub(super) fn kind(endpoint: &TokenEndpoint, parameters: &Parameters) -> String {
    let mut name = String::from("tower-oidc-cc");
    push(&mut name, &endpoint.uri().to_string());
    for (field, value) in parameters.fields() {
        push(&mut name, field);
        push(&mut name, value);
    }
    name
}

/// Names the token of one client.
pub(super) fn of_client(kind: &str, client_id: &str) -> String {
    let mut name = kind.to_owned();
    push(&mut name, client_id);
    name
}

fn push(name: &mut String, part: &str) {
    name.push(' ');
    name.push_str(&part.len().to_string());
    name.push(':');
    name.push_str(part);
}
