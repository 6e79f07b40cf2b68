//! How a client proves who it is: exactly one way for each request (RFC 6749, section 2.3).

use std::{fmt, time::SystemTime};

use http::HeaderValue;
use zeroize::Zeroizing;

#[cfg(feature = "private-key-jwt")]
use crate::error::token::Kind;
use crate::{TokenEndpoint, TokenError, form::Form};

#[cfg(feature = "private-key-jwt")]
pub use self::assertion::Assertion;

#[cfg(feature = "private-key-jwt")]
mod assertion;
pub(crate) mod basic;
#[cfg(feature = "private-key-jwt")]
mod key;

/// What proves it. A method comes with all it needs and with nothing else, so there is no wrong
/// combination to refuse.
pub(crate) enum Proof {
    /// `client_secret_post`: the secret, in the form.
    Post(Zeroizing<String>),
    /// `client_secret_basic`: the header, made once.
    Basic(HeaderValue),
    /// `tls_client_auth`: nothing here, since the HTTP client's connector has the certificate.
    Certificate,
    /// `private_key_jwt`: what signs a new statement for each attempt.
    #[cfg(feature = "private-key-jwt")]
    Assertion(Assertion),
}

// === impl Proof ===

impl Proof {
    /// Whether a server would see the same in both.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Post(one), Self::Post(other)) => one == other,
            (Self::Basic(one), Self::Basic(other)) => one == other,
            (Self::Certificate, Self::Certificate) => true,
            #[cfg(feature = "private-key-jwt")]
            (Self::Assertion(one), Self::Assertion(other)) => one.same_as(other),
            _ => false,
        }
    }

    /// Puts the proof for one request to `endpoint` into its form, or returns the header with it.
    #[cfg_attr(
        not(feature = "private-key-jwt"),
        expect(
            unused_variables,
            reason = "only a statement says when it was made and whom it is for"
        )
    )]
    pub(crate) fn put_at(
        &self,
        now: SystemTime,
        client_id: &str,
        endpoint: &TokenEndpoint,
        form: &mut Form,
    ) -> Result<Option<HeaderValue>, TokenError> {
        match self {
            Self::Post(secret) => {
                form.append("client_id", client_id);
                form.append("client_secret", secret);
                Ok(None)
            }
            Self::Basic(header) => Ok(Some(header.clone())),
            Self::Certificate => {
                form.append("client_id", client_id);
                Ok(None)
            }
            #[cfg(feature = "private-key-jwt")]
            Self::Assertion(assertion) => {
                let statement = assertion
                    .sign_at(now, client_id, &endpoint.audience())
                    .ok_or_else(|| TokenError::new(Kind::Unsigned))?;
                // The statement names the client, too, but some servers look here first.
                form.append("client_id", client_id);
                form.append("client_assertion_type", ASSERTION_TYPE);
                form.append("client_assertion", &statement);
                Ok(None)
            }
        }
    }
}

/// The method alone: no secret, and not the length of one.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(_) => f.write_str("client_secret_post([redacted])"),
            Self::Basic(_) => f.write_str("client_secret_basic([redacted])"),
            Self::Certificate => f.write_str("tls_client_auth"),
            #[cfg(feature = "private-key-jwt")]
            Self::Assertion(assertion) => assertion.fmt(f),
        }
    }
}

/// RFC 7523, section 2.2.
#[cfg(feature = "private-key-jwt")]
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
