//! What is known of a failure, besides its cause.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode, Uri};

use super::body::Body;
use super::roles::Roles;
use super::text;
use crate::clock;
use crate::kind::Kind;
use crate::kind::table::Advice;
use crate::retry::SILENCE;
use crate::stop::Stop;

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) status: Option<StatusCode>,
    pub(crate) message: Option<Box<str>>,
    /// The coding in which the body was left.
    pub(crate) coding: Option<Box<str>>,
    pub(crate) request_id: Option<Box<str>>,
    /// Where a redirect leads, redacted.
    pub(crate) location: Option<Box<str>>,
    pub(crate) window: Option<Duration>,
    pub(crate) limits: Option<Box<HeaderMap>>,
    pub(crate) whole_length: Option<u64>,
    /// Those of the token that was refused, if a layer told them.
    pub(crate) roles: Option<Roles>,
    pub(crate) body: Body,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) retry_at: Option<SystemTime>,
    pub(crate) method: Option<Method>,
    pub(crate) uri: Option<Box<str>>,
    pub(crate) attempts: u32,
    pub(crate) elapsed: Option<Duration>,
    pub(crate) slept: Duration,
    /// The kinds of the failures before, the oldest first.
    pub(crate) history: Box<[Kind]>,
    pub(crate) stop: Option<Stop>,
    /// Bytes of a success that came before it broke off, and how many were announced.
    pub(crate) received: Option<u64>,
    pub(crate) expected: Option<u64>,
}

// === impl Facts ===

impl Facts {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            status: None,
            message: None,
            coding: None,
            request_id: None,
            location: None,
            window: None,
            limits: None,
            whole_length: None,
            roles: None,
            body: Body::default(),
            retry_after: None,
            retry_at: None,
            method: None,
            uri: None,
            attempts: 1,
            elapsed: None,
            slept: Duration::ZERO,
            history: Box::default(),
            stop: None,
            received: None,
            expected: None,
        }
    }

    /// Makes it another kind, with the wait that the kind has at least.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        if kind.advice() == Advice::Silence && self.retry_after < Some(SILENCE) {
            self.set_retry_after(SILENCE);
        }
    }

    pub(crate) fn set_retry_after(&mut self, wait: Duration) {
        self.retry_after = Some(wait);
        self.retry_at = clock::wall_after(wait);
    }

    /// Notes the request, unless a layer nearer to the wire has.
    pub(crate) fn note_parts(&mut self, method: &Method, uri: [&str; 3]) {
        if self.method.is_none() {
            self.method = Some(method.clone());
            self.uri = Some(redacted(uri));
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.kind.row();
        if let (Some(method), Some(uri)) = (&self.method, &self.uri) {
            write!(f, "{method} {uri}: ")?;
        }
        f.write_str(row.what)?;
        if let Some(status) = self.status {
            write!(f, " (status {})", status.as_str())?;
        }
        if let Some(location) = &self.location {
            write!(f, ", to {location}")?;
        }
        if let Some(message) = &self.message {
            write!(f, ", the service says \"{message}\"")?;
        }
        if let Some(roles) = &self.roles {
            write!(f, ", {roles}")?;
        }
        if let Some(coding) = &self.coding {
            write!(f, ", its body was not read as it is coded as \"{coding}\"")?;
        }
        match (self.received, self.expected) {
            (Some(received), Some(expected)) => {
                write!(f, " after {received} of {expected} bytes")?;
            }
            (Some(received), None) => write!(f, " after {received} bytes")?,
            (None, _) => {}
        }
        if let (Some(elapsed), 2..) = (self.elapsed, self.attempts) {
            write!(f, ", {} attempts in {elapsed:.1?}", self.attempts)?;
        }
        if let Some(wait) = self.retry_after.filter(|wait| *wait < Duration::MAX) {
            write!(f, ", not before {wait:.0?} have passed")?;
        }
        write!(f, "; {}", row.next)?;
        // That a fatal failure was not retried goes without saying.
        match self.stop {
            Some(stop) if stop != Stop::Fatal => write!(f, "; {}", stop.phrase()),
            _ => Ok(()),
        }
    }
}

/// Scheme, authority and path, of which the first two may be empty.
#[inline]
pub(crate) fn parts(uri: &Uri) -> [&str; 3] {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    [uri.scheme_str().unwrap_or_default(), authority, uri.path()]
}

/// Scheme, host, port and path. User, password and query may be secrets.
pub(crate) fn redacted([scheme, authority, path]: [&str; 3]) -> Box<str> {
    let mut shown = String::new();
    if !scheme.is_empty() {
        shown.push_str(scheme);
        shown.push_str("://");
    }
    // The part after the last `@`, with host and port as they were written.
    shown.push_str(authority.rsplit('@').next().unwrap_or_default());
    shown.push_str(path);
    text::escaped(&shown)
}
