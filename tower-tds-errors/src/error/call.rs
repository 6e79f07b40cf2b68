//! What was asked, and what became of it: attempts, waits, and the reason for stopping.

use std::time::Duration;

use http::Method;

use super::Error;
use super::roles::Roles;
use crate::kind::Kind;
use crate::stop::Stop;

// === impl Error ===

impl Error {
    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> Option<&Method> {
        self.facts().method.as_ref()
    }

    /// The URI of the request, without user, password and query.
    #[must_use]
    pub fn uri(&self) -> Option<&str> {
        self.facts().uri.as_deref()
    }

    /// The realm roles that the refused token carries, if a layer read them from it. Nothing in them
    /// is verified: they are for people who ask for the missing one, and nothing may be decided by
    /// them.
    #[must_use]
    pub fn realm_roles(&self) -> Option<&[Box<str>]> {
        self.facts().roles.as_ref().map(Roles::as_slice)
    }

    /// How many attempts were made. Outside a retry layer it is 1.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.facts().attempts
    }

    /// How long all attempts and waits took, if a retry layer watched.
    #[must_use]
    pub fn elapsed(&self) -> Option<Duration> {
        self.facts().elapsed
    }

    /// How much of [`elapsed`](Self::elapsed) was spent in waits between attempts.
    #[must_use]
    pub fn slept(&self) -> Duration {
        self.facts().slept
    }

    /// What the attempts before this one failed with, the oldest first: the first sixteen of them.
    #[must_use]
    pub fn history(&self) -> &[Kind] {
        &self.facts().history
    }

    /// How many bytes of a success came before it broke off, told by [`Guard`](crate::Guard).
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        self.facts().received
    }

    /// How many bytes the success had announced, told by [`Guard`](crate::Guard).
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        self.facts().expected
    }

    /// Why the retry layer gave up, if there was one. An outer retry layer leaves such an error
    /// alone, so that nesting does not multiply requests.
    #[must_use]
    pub fn stopped_because(&self) -> Option<Stop> {
        self.facts().stop
    }

    /// The failure of the attempt before, where this one is not an answer to an attempt: the
    /// service below did not become ready again, or the deadline cut the attempt off.
    #[must_use]
    pub fn earlier(&self) -> Option<&Self> {
        self.inner.earlier.as_ref()
    }
}
