//! Which requests get the token, and what becomes of the others.

use http::{Request, header::AUTHORIZATION};

use crate::{Origin, TokenError, error::token::Kind};

/// Says what becomes of a request to an origin that is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// It is not sent: [`TokenError::is_foreign_origin`].
    #[default]
    Refuse,
    /// It passes as it is, with no token. Like any other it waits for the token first, since
    /// readiness cannot see whose turn it is.
    Pass,
}

/// Says what becomes of an `Authorization` header that a request comes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// The token replaces it, all values of it.
    #[default]
    Replace,
    /// It stays, and the token is not sent.
    Keep,
    /// The request is not sent: [`TokenError::is_already_authorized`].
    Refuse,
}

/// The list of origins, and the choices beside it.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) origins: Box<[Origin]>,
    pub(crate) foreign: Foreign,
    pub(crate) existing: Existing,
}

/// What a request gets.
pub(crate) enum Ruling {
    Token,
    Nothing,
}

// === impl Rules ===

impl Rules {
    #[inline]
    pub(crate) fn rule<B>(&self, request: &Request<B>) -> Result<Ruling, TokenError> {
        let uri = request.uri();
        if !self.origins.iter().any(|origin| origin.contains(uri)) {
            return match self.foreign {
                Foreign::Refuse => Err(TokenError::new(Kind::ForeignOrigin)),
                Foreign::Pass => Ok(Ruling::Nothing),
            };
        }
        match self.existing {
            // The usual choice needs no look at the headers: inserting replaces.
            Existing::Replace => Ok(Ruling::Token),
            _ if !request.headers().contains_key(AUTHORIZATION) => Ok(Ruling::Token),
            Existing::Keep => Ok(Ruling::Nothing),
            Existing::Refuse => Err(TokenError::new(Kind::AlreadyAuthorized)),
        }
    }
}
