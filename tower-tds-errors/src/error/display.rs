//! The message of an error, its chain of causes, and its debug text.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::time::Duration;

use http::StatusCode;

use super::redact::{cut, shown};
use super::source::chain;
use super::{Error, Facts};
use crate::classify::transport::NO_PROXY_CREDENTIALS;
use crate::give_up::GiveUp;
use crate::kind::Kind;

/// One line: where, what, why, and what to do next. With `{:#}` the chain of causes follows.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(LONGEST_LINE))?;
        if f.alternate() {
            for cause in self.causes().filter(|cause| !is_said(*cause)).take(DEEPEST) {
                if let Some(text) = shown(&cause.to_string()) {
                    write!(f, ": {text}")?;
                }
            }
        }
        Ok(())
    }
}

/// The line with kind, status and attempts. `main` prints it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        write!(f, "{self} [{}", facts.kind)?;
        if let Some(status) = facts.status {
            write!(f, ", status {}", status.as_str())?;
        }
        write!(f, ", attempts {}", facts.attempts)?;
        if let Some(gave_up) = facts.gave_up {
            write!(f, ", gave up: {gave_up}")?;
        }
        if let Some(id) = &facts.request_id {
            write!(f, ", request id {id}")?;
        }
        f.write_char(']')
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.inner.source.as_ref()?;
        Some(&**source)
    }
}

// === impl Error ===

impl Error {
    /// The chain of causes.
    pub(super) fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let source = self.inner.source.iter();
        source.flat_map(|source| chain(&**source))
    }

    fn line(&self, most: usize) -> String {
        let facts = self.facts();
        let mut head = String::new();
        if let (Some(method), Some(uri)) = (&facts.method, &facts.uri) {
            head = format!("{method} {}: ", cut(uri, LONGEST_URI));
        }
        head.push_str(facts.kind.row().what);
        if let Some(status) = facts.status {
            head.push_str(" (status ");
            head.push_str(status.as_str());
            head.push(')');
        }
        let mut tail = String::from("; ");
        tail.push_str(self.next());
        if let Some(waited) = &facts.waited_for {
            tail.push_str("; the deadline passed while waiting for ");
            tail.push_str(waited);
        } else {
            tail.push_str(facts.gave_up.map_or("", GiveUp::phrase));
        }
        // The middle part is cut first, so that the line always has what happened and what to do
        // next.
        let ends = head.chars().count().saturating_add(tail.chars().count());
        let room = most.saturating_sub(ends);
        head.push_str(&cut(&facts.between(self.root()), room));
        head.push_str(&tail);
        cut(&head, most)
    }

    fn next(&self) -> &'static str {
        let facts = self.facts();
        let kind = facts.kind;
        if let Some(next) = facts.next {
            return next;
        }
        if self.is_unknown_issuer() {
            return "add its CA to the root certificates of the client";
        }
        // The proxy refused the request, not the service.
        let mut causes = self.causes().map(ToString::to_string);
        if kind == Kind::Rejected && causes.any(|cause| cause == NO_PROXY_CREDENTIALS) {
            return "check user and password of the proxy";
        }
        match facts.status.filter(|_| kind == Kind::Rejected) {
            Some(StatusCode::FORBIDDEN) => "check what the key may do",
            Some(StatusCode::RANGE_NOT_SATISFIABLE) => "ask for a range inside it",
            _ => kind.row().next,
        }
    }

    /// The text of the deepest cause, or of one that contains an address, such as the token
    /// endpoint's. `None` if the service sent a message.
    fn root(&self) -> Option<Box<str>> {
        if self.facts().status.is_some() {
            return None;
        }
        let causes = self.causes().filter(|cause| !is_said(*cause));
        // The text after a semicolon is advice, and this line has its own.
        let told = causes.filter_map(|cause| shown(cause.to_string().split("; ").next()?));
        let told: Vec<_> = told.collect();
        let named = told.iter().position(|text| text.contains("://"));
        let at = named.or(told.len().checked_sub(1))?;
        let text = told.into_iter().nth(at)?;
        // The line begins with it.
        match &self.facts().uri {
            Some(uri) => Some(text.replace(&format!(" ({uri})"), "").into()),
            None => Some(text),
        }
    }
}

/// Whether the line contains the cause already.
fn is_said(cause: &(dyn StdError + 'static)) -> bool {
    cause.is::<Error>()
}

// === impl Facts ===

impl Facts {
    fn between(&self, root: Option<Box<str>>) -> String {
        let mut text = String::new();
        let mut say = |said: fmt::Arguments<'_>| text.write_fmt(said).ok();
        if let Some(root) = root {
            say(format_args!(": {root}"));
        }
        if let Some(message) = &self.message {
            say(format_args!(", the service says \"{message}\""));
        }
        if let Some(location) = &self.location {
            say(format_args!(", to {}", cut(location, LONGEST_URI)));
        }
        if let Some(coding) = &self.coding {
            say(format_args!(
                ", its body was not read as it is coded as \"{coding}\""
            ));
        }
        match (self.received, self.expected) {
            (Some(received), Some(expected)) => {
                say(format_args!(" after {received} of {expected} bytes"));
            }
            (Some(received), None) => {
                say(format_args!(" after {received} bytes"));
            }
            (None, _) => {}
        }
        if let (Some(elapsed), 2..) = (self.elapsed, self.attempts) {
            say(format_args!(
                ", {} attempts in {elapsed:.1?}",
                self.attempts
            ));
        }
        if let Some(wait) = self.retry_after.filter(|wait| *wait < Duration::MAX) {
            say(format_args!(", not before {wait:.0?} have passed"));
        }
        text
    }
}

/// A length that fits into a log line and a terminal.
const LONGEST_LINE: usize = 300;

/// A host, and enough of a path to recognise it.
const LONGEST_URI: usize = 100;

/// Each cause has at most 200 characters, so a debug text stays below 2 kB.
const DEEPEST: usize = 6;
