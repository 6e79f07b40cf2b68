//! What happens to the token, for logs and metrics.

use std::{fmt, sync::Arc, time::Duration};

use crate::TokenError;

/// Says what has just happened to the token; [`TokenSourceBuilder::on_event`] takes what listens.
///
/// The same things are told to `tracing`, with the same words. Neither holds a token or a secret.
///
/// Nothing is told of a call that finds a fresh token, since a count of those would be a write that
/// all threads share. What is to be counted comes from here all the same:
///
/// | metric | where it comes from |
/// |---|---|
/// | token requests, by reason and result | [`Issued`](Self::Issued), [`Failed`](Self::Failed) |
/// | calls that waited for a token, how long, and how that ended | [`Waited`](Self::Waited) |
/// | calls refused for want of a token | [`Error::Token`](crate::Error::Token), in their results |
/// | calls that found a fresh token | your own count of calls, less those that waited and those that were refused at once |
/// | second tries | [`Replayed`](Self::Replayed) |
/// | how long an old token has been serving whose renewal fails | from the first [`Failed`](Self::Failed) with [`Reason::Schedule`] to the next [`Issued`](Self::Issued) |
/// | requests that the [`TokenBudget`](crate::TokenBudget) refused | [`Failed`](Self::Failed) with [`TokenError::is_over_budget`] |
/// | remaining life, number of the token, budget left | [`Health`](crate::Health) |
///
/// [`TokenSourceBuilder::on_event`]: crate::TokenSourceBuilder::on_event
///
/// # Examples
///
/// ```
/// use tower_oidc_cc::Event;
///
/// /// The name of the counter that this event adds to.
/// fn counter(event: &Event) -> &'static str {
///     match event {
///         Event::Issued { .. } => "token_requests_ok",
///         Event::Failed { .. } => "token_requests_failed",
///         _ => "token_other",
///     }
/// }
/// # let _ = counter;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A token request brought a token.
    #[non_exhaustive]
    Issued {
        /// The number of the new token; the first is 1.
        generation: u64,
        /// Why it was asked for.
        reason: Reason,
        /// How long the request took, from the first key to the last byte.
        took: Duration,
        /// How long the token lives from now on.
        life: Duration,
    },
    /// Another process has left a token in the [`TokenStore`](crate::TokenStore); it is used, and
    /// nothing was asked of the endpoint.
    #[non_exhaustive]
    Shared {
        /// The number of the new token, in this process.
        generation: u64,
        /// Why one was wanted.
        reason: Reason,
        /// How long the token lives from now on.
        life: Duration,
    },
    /// There is no new token: a request failed, or none could be made.
    #[non_exhaustive]
    Failed {
        /// What went wrong, and when it is tried again.
        error: TokenError,
        /// Why a token was asked for.
        reason: Reason,
    },
    /// The service says that the token is dead; it is dropped.
    #[non_exhaustive]
    Dropped {
        /// The number of the dead token.
        generation: u64,
    },
    /// The token expired with no successor. The next call asks for one.
    #[non_exhaustive]
    Expired {
        /// The number of the expired token.
        generation: u64,
    },
    /// The provider has other credentials than those that were refused; they are tried now.
    CredentialsChanged,
    /// A caller had to wait for a token, and waits no longer: a call, or [`TokenSource::ready`].
    ///
    /// [`TokenSource::ready`]: crate::TokenSource::ready
    #[non_exhaustive]
    Waited {
        /// How long it waited.
        took: Duration,
        /// How its wait ended.
        outcome: Outcome,
    },
    /// A call whose token was refused as dead is made once more, by [`Replay`](crate::Replay).
    Replayed,
}

/// Says how a wait for a token ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// There is a token.
    Token,
    /// The token request that was waited for failed, and so did the call.
    Failure,
    /// The caller left before it was over: its deadline came, or somebody dropped it.
    Left,
}

/// Says why a token was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There never was one.
    #[default]
    Start,
    /// The policy says so, while the old one works.
    Schedule,
    /// The old one expired.
    Expiry,
    /// The old one was found dead.
    Dead,
    /// The old one lacks a role, and is an hour old.
    Role,
}

type Hook = dyn Fn(&Event) + Send + Sync;

/// What listens to events.
#[derive(Clone, Default)]
pub(crate) struct Listener {
    hook: Option<Arc<Hook>>,
}

// === impl Listener ===

impl Listener {
    pub(crate) fn new(hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self {
            hook: Some(Arc::new(hook)),
        }
    }

    /// Never called under a lock: the hook is somebody else's code.
    pub(crate) fn tell(&self, event: &Event) {
        event.trace();
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

// === impl Event ===

impl Event {
    fn trace(&self) {
        match self {
            Self::Issued {
                generation,
                reason,
                took,
                life,
            } => tracing::debug!(generation, ?reason, ?took, ?life, "token renewed"),
            Self::Shared {
                generation,
                reason,
                life,
            } => tracing::debug!(generation, ?reason, ?life, "token taken from the store"),
            Self::Failed { error, reason } => {
                tracing::warn!(%error, ?reason, "token request failed");
            }
            Self::Dropped { generation } => tracing::info!(
                generation,
                "token dropped: the service says that it is dead"
            ),
            Self::Expired { generation } => tracing::info!(generation, "token expired"),
            Self::CredentialsChanged => {
                tracing::info!("other credentials than the refused ones: they are tried now");
            }
            // There may be thousands at once.
            Self::Waited { took, outcome } => {
                tracing::trace!(?took, ?outcome, "a caller waited for a token");
            }
            Self::Replayed => tracing::debug!("a refused call is made once more"),
        }
    }
}
