//! Which credentials the driver uses, and which of them the server has refused.

use std::{io, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::sync::timeout;
use crate::{Credentials, Provider, TokenError, error::token::Kind, provider::source::Provided};

/// The sources in their order, from the one that was accepted last.
pub(super) struct Keyring {
    provider: Provider,
    timeout: Duration,
    preferred: usize,
    /// What each source gave that did not work; `None` if it gave nothing.
    refused: Vec<(usize, Option<Arc<Credentials>>)>,
    /// When the sources of refused credentials are asked again.
    watch_at: Option<Instant>,
}

// === impl Keyring ===

impl Keyring {
    pub(super) fn new(provider: Provider, timeout: Duration) -> Self {
        Self {
            provider,
            timeout,
            preferred: 0,
            refused: Vec::new(),
            watch_at: None,
        }
    }

    /// Starts a token request: nothing is refused yet, and these are the sources to try in turn.
    pub(super) fn turns(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (count, first) = (self.provider.sources().len(), self.preferred);
        self.refused.clear();
        self.watch_at = None;
        (first..count).chain(0..first)
    }

    /// The credentials that a source has at this moment.
    pub(super) async fn provide(&mut self, turn: usize) -> Result<Arc<Credentials>, TokenError> {
        let provided = self.ask(turn).await;
        provided.map_err(|error| {
            self.refused.push((turn, None));
            TokenError::with_source(Kind::NoCredentials, error)
        })
    }

    pub(super) fn accept(&mut self, turn: usize) {
        self.preferred = turn;
        self.refused.clear();
    }

    pub(super) fn refuse(&mut self, turn: usize, credentials: Arc<Credentials>) {
        self.refused.push((turn, Some(credentials)));
    }

    /// When [`changed`](Self::changed) is worth a call, if ever.
    pub(super) fn watch_at(&mut self, now: Instant) -> Option<Instant> {
        if self.watch_at.is_none() {
            let sources = self.provider.sources();
            let refused = self.refused.iter();
            let every = refused.filter_map(|(turn, _)| sources.get(*turn)?.watch());
            self.watch_at = every.min().and_then(|every| now.checked_add(every));
        }
        self.watch_at
    }

    /// Whether a source whose credentials were refused has others by now.
    pub(super) async fn changed(&mut self) -> bool {
        self.watch_at = None;
        for (turn, refused) in self.refused.clone() {
            match (self.ask(turn).await, refused) {
                (Ok(now), Some(then)) if now.same_as(&then) => {}
                (Ok(_), _) => {
                    self.refused.clear();
                    self.preferred = turn;
                    return true;
                }
                (Err(_), _) => {}
            }
        }
        false
    }

    async fn ask(&self, turn: usize) -> Provided {
        let Some(source) = self.provider.sources().get(turn) else {
            return Err("there is no such source".into());
        };
        let provided = timeout(self.timeout, source.provide()).await;
        provided.unwrap_or_else(|_| {
            let late = || io::Error::from(io::ErrorKind::TimedOut).into();
            source.last().ok_or_else(late)
        })
    }
}
