//! What was made of a refusal, for whoever reads the response.

use std::fmt;

use crate::Judgement;

/// Says what a refusal means, what was done about it, and what the caller can do.
///
/// [`Judge::annotate`](crate::Judge::annotate) is given one for each judgement but
/// [`Judgement::Other`]; the default judge puts it into the extensions of the response.
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
    fate: Fate,
    #[cfg(feature = "claims")]
    realm_roles: Option<Vec<String>>,
}

/// What became of the token that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is gone, and the next call brings another.
    Dropped,
    /// It had been replaced, or dropped, before the refusal came.
    Superseded,
    /// It stays: others were found dead a moment ago, or a new one would be no better.
    Kept,
}

// === impl Rejection ===

impl Rejection {
    pub(crate) fn new(judgement: Judgement, fate: Fate) -> Self {
        Self {
            judgement,
            fate,
            #[cfg(feature = "claims")]
            realm_roles: None,
        }
    }

    #[cfg(feature = "claims")]
    pub(crate) fn with_realm_roles(self, realm_roles: Option<Vec<String>>) -> Self {
        Self {
            realm_roles,
            ..self
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
        match self.fate {
            Fate::Dropped | Fate::Superseded => true,
            Fate::Kept => false,
        }
    }

    /// The realm roles that the refused token carries, for a missing role.
    ///
    /// Read from the token **without any verification**, for diagnosis alone: do not decide
    /// anything by them. `None` if the token could not be read, or is no longer here.
    #[cfg(feature = "claims")]
    #[must_use]
    pub fn realm_roles(&self) -> Option<&[String]> {
        self.realm_roles.as_deref()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.judgement, self.is_replaced()) {
            (Judgement::DeadToken, true) => {
                f.write_str("the token was refused as dead and is replaced: call again")
            }
            (Judgement::DeadToken, false) => f.write_str(
                "the token was refused as dead right after others were: check that the service \
                 trusts this authorization server, and its clock",
            ),
            (Judgement::MissingRole, _) => {
                f.write_str("the token lacks a realm role that this call needs")?;
                #[cfg(feature = "claims")]
                if let Some(roles) = &self.realm_roles {
                    write!(f, " (it carries: {})", roles.join(", "))?;
                }
                f.write_str(": ask an administrator for it; tokens issued from then on carry it")
            }
            (Judgement::NoHeader, _) => f.write_str(
                "the service saw no Authorization header though one was sent: look for a layer \
                 below the token layer, a redirect, or a proxy that drops it",
            ),
            (Judgement::Other, _) => f.write_str("nothing is said against the token"),
        }
    }
}
