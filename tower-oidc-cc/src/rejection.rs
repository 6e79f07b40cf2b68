//! The rejection of a call: why the service refused it, and whether a resend can help.

use std::{fmt, time::Duration};

use tower_tds_outcome::Outcome;

/// Shows why a call was refused, and whether a resend can help.
///
/// You find it in the extensions of a refused response, or in the [error](crate::Error::rejection) that
/// stands for one. `Display` is one line for a log, with your next step.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tower_oidc_cc::{Outcome, Rejection};
///
/// fn lacks_a_role<B>(response: &Response<B>) -> bool {
///     let rejection = response.extensions().get::<Rejection>();
///     rejection.is_some_and(|rejection| rejection.outcome() == Outcome::RoleMissing)
/// }
///
/// assert!(!lacks_a_role(&Response::new(())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    outcome: Outcome,
    refresh: Refresh,
    /// Whether the service has never accepted the refused token.
    is_untried: bool,
}

/// The state of the refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// It stays in use.
    None,
    /// It stays in use, is too young, and may be accepted after this time.
    After(Duration),
    /// A newer token was requested, and none has come.
    Requested,
    /// Another token is in use.
    Replaced,
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(outcome: Outcome, refresh: Refresh, is_untried: bool) -> Self {
        Self {
            outcome,
            refresh,
            is_untried,
        }
    }

    /// Returns why the service refused the call.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether one resend can help: another token exists or was requested for this call.
    ///
    /// A resend can help even if that token request failed, because the refusal may have been a single error of the
    /// service.
    #[must_use]
    pub fn is_worth_a_resend(&self) -> bool {
        matches!(self.refresh, Refresh::Requested | Refresh::Replaced)
    }

    /// Returns the time after which a resend can help even if the call was sent again before.
    ///
    /// It is `Some` if the service has never accepted the refused token: zero if there is another token, and two seconds
    /// if the service refuses both and one is less than two minutes old, because its clock may be behind that of the
    /// authorization server. Once it has reached the time of issue, the token is valid.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.refresh {
            Refresh::After(wait) => Some(wait),
            Refresh::Requested | Refresh::Replaced if self.is_untried => Some(Duration::ZERO),
            _ => None,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.outcome, self.refresh) {
            (Outcome::TokenRefused, Refresh::Replaced) => {
                "the service refused the token, and another one is in use: call again"
            }
            (Outcome::TokenRefused, Refresh::Requested) => {
                "the service refused the token, and no newer one has come yet: call again once"
            }
            (Outcome::TokenRefused, Refresh::After(_)) => {
                "the service refused tokens that it has not accepted yet: call again in a few seconds; if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Outcome::TokenRefused, Refresh::None) => {
                "the service refused the token, and no new one is requested now: if this persists, \
                 check the service's clock, and that it trusts this authorization server"
            }
            (Outcome::RoleMissing, Refresh::Replaced) => {
                "the token lacks a role that this call needs, and a newer one is in use: call again"
            }
            (Outcome::RoleMissing, _) => {
                "the token lacks a role that this call needs: ask an administrator for it; tokens \
                 issued from then on carry it"
            }
            (Outcome::NoHeader, _) => {
                "the service received no Authorization header, although one was sent: look for a layer \
                 below the token layer, a redirect or a proxy that removes it"
            }
            _ => "the token was not refused",
        })
    }
}
