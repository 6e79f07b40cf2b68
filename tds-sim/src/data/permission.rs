//! The three ways to get a 401, in the contract's words.

use std::sync::Arc;

use http::{HeaderMap, header::AUTHORIZATION};

use crate::{lock::lock, realm::Issued, shared::Shared};

/// Why a call is not permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    NoHeader,
    InvalidToken,
    MissingRole,
}

// === impl Denied ===

impl Denied {
    /// The message text of the contract's table of errors.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::NoHeader => "no Authorization header found",
            Self::InvalidToken => "invalid token",
            Self::MissingRole => {
                "Access token does not have the required scope/role: Missing required realm role"
            }
        }
    }
}

/// The record of the valid token a call carries.
pub(super) fn token(shared: &Shared, headers: &HeaderMap) -> Result<Arc<Issued>, Denied> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Denied::NoHeader)?;
    if values.next().is_some() {
        return Err(Denied::InvalidToken);
    }
    let value = value.to_str().map_err(|_| Denied::InvalidToken)?;
    let (scheme, token) = value.split_once(' ').ok_or(Denied::InvalidToken)?;
    if !scheme.eq_ignore_ascii_case("Bearer") {
        return Err(Denied::InvalidToken);
    }
    let now = shared.clock.now();
    lock(&shared.realm)
        .valid(token.trim(), now)
        .ok_or(Denied::InvalidToken)
}

/// Whether the token carries the role that its group of endpoints requires.
pub(super) fn role(token: &Issued, role: &str) -> Result<(), Denied> {
    if token.roles.iter().any(|held| held == role) {
        Ok(())
    } else {
        Err(Denied::MissingRole)
    }
}
