//! The outcome of a refused token, in the response's extensions.

use std::fmt;

use crate::Judgement;

/// Says what a refusal means, what was done about it, and what the caller can do.
///
/// [`Judge::annotate`](crate::Judge::annotate) is given one for each judgement but
/// [`Judgement::Accepted`] and [`Judgement::Nothing`]; the default judge puts it into the extensions of the response.
/// `Display` is advice for a log.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tower_oidc_cc::{Rejection, Judgement};
///
/// fn lacks_a_role<B>(response: &Response<B>) -> bool {
///     let finding = response.extensions().get::<Rejection>();
///     finding.is_some_and(|finding| finding.judgement() == Judgement::MissingRole)
/// }
///
/// assert!(!lacks_a_role(&Response::new(())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    judgement: Judgement,
    replaced: bool,
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(judgement: Judgement, replaced: bool) -> Self {
        Self {
            judgement,
            replaced,
        }
    }

    /// What the outcome means for the token.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        self.judgement
    }

    /// Whether the next call takes another token than the one that was refused.
    ///
    /// If not, calling again cannot help yet.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.replaced
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.judgement, self.is_replaced()) {
            (Judgement::DeadToken, true) => {
                f.write_str("the token was refused as dead and is replaced: call again")
            }
            (Judgement::DeadToken, false) => f.write_str(
                "the token was refused as dead and there is no other, or others were refused \
                 before it: check that the service trusts this authorization server, and its clock",
            ),
            (Judgement::Unexplained, _) => f.write_str(
                "the call was refused without a reason: the gateway may be unable to check tokens, \
                 so treat it as an outage",
            ),
            (Judgement::MissingRole, _) => f.write_str(
                "the token lacks a realm role that this call needs: ask an administrator for it; \
                 tokens issued from then on carry it",
            ),
            (Judgement::NoHeader, _) => f.write_str(
                "the service saw no Authorization header though one was sent: look for a layer \
                 below the token layer, a redirect, or a proxy that drops it",
            ),
            (Judgement::Accepted | Judgement::Nothing, _) => {
                f.write_str("nothing is said against the token")
            }
        }
    }
}
