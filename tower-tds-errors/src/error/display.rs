//! The texts of an error: its line, its chain of causes, and its debug text.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use tower_tds_outcome::{Cause, chain};

use super::transport::NO_PROXY_CREDENTIALS;
use super::{Error, Facts};
use crate::kind::{GiveUp, Kind};

/// Prints one line: where the call failed, what happened, why, and what to do next. With `{:#}` the
/// chain of causes follows.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(f.alternate()))?;
        if f.alternate() {
            let mut before = None;
            // Errors of `std::io` print the error that they wrap, so equal texts follow each other.
            for text in self.texts().take(DEEPEST) {
                if before.as_ref() != Some(&text) {
                    write!(f, ": {text}")?;
                }
                before = Some(text);
            }
        }
        Ok(())
    }
}

/// Prints the line, followed by the kind, the status and the number of attempts. `main` prints its
/// error like this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        write!(f, "{self} [{}", facts.kind)?;
        if let Some(status) = self.status() {
            write!(f, ", status {}", status.as_str())?;
        }
        write!(f, ", attempts {}", facts.attempts)?;
        if let Some(gave_up) = facts.gave_up {
            write!(f, ", gave up: {gave_up}")?;
        }
        if let Some(id) = self.request_id() {
            write!(f, ", request id {id}")?;
        }
        f.write_char(']')
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.facts().cause)
    }
}

// === impl Error ===

impl Error {
    /// Returns the chain of causes, from the innermost error of this type on: the line repeats what the layers above it say.
    pub(super) fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let is_own = |link: &&(dyn StdError + 'static)| link.is::<Self>();
        let this: &(dyn StdError + 'static) = self;
        let innermost = chain(this).filter(is_own).last().unwrap_or(this);
        chain(innermost).skip(1).filter(|link| !link.is::<Cause>())
    }

    /// Returns the texts of the causes, without secrets, and without the URI with which the line begins.
    fn texts(&self) -> impl Iterator<Item = Box<str>> {
        let facts = self.facts();
        self.causes()
            .filter_map(|cause| facts.shown(&facts.without_uri(&cause.to_string())))
    }

    /// Returns the line, without the cause if the chain of causes follows.
    fn line(&self, has_chain: bool) -> String {
        let facts = self.facts();
        let mut line = String::new();
        if let Some((method, uri)) = &facts.cause.request {
            line = format!("{method} {}: ", cut(uri, LONGEST_URI));
        }
        line.push_str(facts.kind.row().what);
        if let Some(status) = self.status() {
            line.push_str(" (status ");
            line.push_str(status.as_str());
            line.push(')');
        }
        let why = match self.message() {
            Some(message) => Some(format!(": \"{message}\"")),
            None if has_chain => None,
            None => self.root().map(|root| format!(": {root}")),
        };
        let why = why.unwrap_or_default();
        let mut end = format!("; {}", self.next());
        match (&facts.cause.waited_for, facts.gave_up) {
            // The cause already names the wait.
            (Some(waited), _) if why.contains(&format!("waiting for {waited}")) => {}
            (Some(waited), Some(GiveUp::Deadline)) => {
                end.push_str("; the deadline passed while waiting for ");
                end.push_str(&facts.without_uri(waited));
            }
            (_, gave_up) => end.push_str(gave_up.map_or("", GiveUp::phrase)),
        }
        // Failure and advice always appear. The cause is cut, and a detail that does not fit is left out.
        let length = |text: &str| text.chars().count();
        let most = LONGEST_LINE.saturating_sub(length(&end));
        line.push_str(&cut(&why, most.saturating_sub(length(&line))));
        for detail in facts.details() {
            if length(&line).saturating_add(length(&detail)) <= most {
                line.push_str(&detail);
            }
        }
        line.push_str(&end);
        cut(&line, LONGEST_LINE)
    }

    fn next(&self) -> &str {
        let facts = self.facts();
        let kind = facts.kind;
        if let Some(next) = &facts.cause.next {
            return next;
        }
        // By text: rustls does not export this error of its verifier, and that of hyper-util's tunnel is private.
        let says = |text: &str| self.causes().any(|cause| cause.to_string().contains(text));
        match self.status() {
            _ if self.is_unknown_issuer() => "add its CA to the root certificates of the client",
            _ if kind == Kind::Tls && says(CA_AS_SERVER) => {
                "the server uses a CA's certificate as its own: have the CA issue another one for it"
            }
            // The proxy refused the call, not the service.
            _ if says(NO_PROXY_CREDENTIALS) => PROXY_CREDENTIALS,
            _ if kind != Kind::Rejected => kind.row().next,
            Some(StatusCode::FORBIDDEN) => "check what the key may do",
            Some(StatusCode::PROXY_AUTHENTICATION_REQUIRED) => PROXY_CREDENTIALS,
            Some(StatusCode::RANGE_NOT_SATISFIABLE) => "request a range inside the resource",
            _ => kind.row().next,
        }
    }

    /// Returns the text of the deepest cause that is more than an address. `None` if the service
    /// responded.
    fn root(&self) -> Option<Box<str>> {
        if self.status().is_some() {
            return None;
        }
        let cause = &self.facts().cause;
        let texts: Vec<_> = self.texts().collect();
        let text = texts
            .iter()
            .rfind(|text| !is_address(text))
            .or(texts.last())?;
        // Behind a semicolon there is advice, and this line has its own.
        let next = cause.next.as_deref().map(|next| format!("; {next}"));
        Some(match next.and_then(|next| text.strip_suffix(&*next)) {
            Some(text) => text.into(),
            None => text.split("; ").next()?.into(),
        })
    }
}

/// Whether a text names an address, and nothing else.
fn is_address(text: &str) -> bool {
    !text.contains(' ') && (text.contains("://") || text.parse::<SocketAddr>().is_ok())
}

/// Cuts a text to `most` characters, and marks the cut.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    if most > 0 {
        cut.push('…');
    }
    cut
}

// === impl Facts ===

impl Facts {
    /// Returns a text without the URI with which the line begins.
    fn without_uri(&self, text: &str) -> String {
        match &self.cause.request {
            Some((_, uri)) => text.replace(&format!(" ({uri})"), ""),
            None => text.to_owned(),
        }
    }

    /// Returns the details of the failure: location, sizes, attempts and wait.
    fn details(&self) -> impl Iterator<Item = String> {
        let location = self.response.as_ref().and_then(|it| it.location.as_ref());
        let received = self.received.map(|(received, expected)| match expected {
            Some(expected) => format!(" after {received} of {expected} bytes"),
            None => format!(" after {received} bytes"),
        });
        let attempts = self.elapsed.filter(|_| self.attempts > 1);
        let wait = self.cause.wait.filter(|wait| *wait < Duration::MAX);
        [
            location.map(|to| format!(", to {}", cut(to, LONGEST_URI))),
            received,
            attempts.map(|elapsed| format!(", {} attempts in {elapsed:.1?}", self.attempts)),
            wait.map(|wait| format!(", wait at least {wait:.0?}")),
        ]
        .into_iter()
        .flatten()
    }
}

const PROXY_CREDENTIALS: &str = "check user and password of the proxy";

const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// An address, 200 characters of the message, and the advice.
const LONGEST_LINE: usize = 400;

/// Host, and enough of a path to recognise it.
const LONGEST_URI: usize = 100;

/// Each cause has at most 200 characters, so a text with the chain stays below 2 kB.
const DEEPEST: usize = 6;
