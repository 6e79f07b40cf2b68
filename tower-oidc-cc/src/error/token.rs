//! Why there is no token: what happened, where, since when, and what to do about it.

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use http::Uri;

pub(crate) use self::kind::Kind;
use crate::judge::is_code;

mod kind;

/// Says why there is no token to send, and what to do next.
///
/// Whenever a call ends with this error, its request was **never sent** to the service below:
/// sending it again cannot do anything twice. The error is one word wide and cheap to clone,
/// since all the calls that waited for one token request share its outcome.
///
/// `Display` is one line that names the URL, what happened at the root, for how long, and what to
/// do; it needs no walk along [`source`](std::error::Error::source). It holds nothing that a token
/// endpoint wrote. `Debug` adds a second line for programmers.
#[derive(Clone)]
pub struct TokenError(Arc<Repr>);

#[derive(Clone)]
struct Repr {
    kind: Kind,
    /// Where: scheme, host, port and path.
    place: Option<Arc<str>>,
    /// What happened at the root.
    cause: Option<Arc<str>>,
    failing_for: Duration,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

// === impl TokenError ===

impl TokenError {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Arc::new(Repr {
            kind,
            place: None,
            cause: None,
            failing_for: Duration::ZERO,
            retry_after: None,
            source: None,
        }))
    }

    pub(crate) fn with_source(kind: Kind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source: Arc<dyn Error + Send + Sync> = source.into().into();
        let cause = root(&*source);
        Self::new(kind).with(|repr| {
            repr.cause = Some(cause.into());
            repr.source = Some(source);
        })
    }

    /// The same error, which happened at this address. Its query stays out of logs.
    pub(crate) fn at(&self, uri: &Uri) -> Self {
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        self.with(|repr| {
            repr.place = Some(format!("{scheme}://{authority}{}", uri.path()).into());
            if let Some(cause) = &repr.cause
                && **cause == *NO_SUCH_HOST
            {
                repr.cause = Some(format!("{cause} {}", uri.host().unwrap_or_default()).into());
            }
        })
    }

    /// The same error, after so long of failures.
    pub(crate) fn failing_for(&self, time: Duration) -> Self {
        self.with(|repr| repr.failing_for = time)
    }

    /// The same error, handed out at another moment.
    pub(crate) fn with_retry_after(&self, retry_after: Duration) -> Self {
        self.with(|repr| repr.retry_after = Some(retry_after))
    }

    /// The same error, handed out this much later.
    pub(crate) fn later(&self, time: Duration) -> Self {
        self.with(|repr| {
            if let Some(wait) = &mut repr.retry_after {
                *wait = wait.saturating_sub(time);
                repr.failing_for = repr.failing_for.saturating_add(time);
            }
        })
    }

    fn with(&self, change: impl FnOnce(&mut Repr)) -> Self {
        let mut repr = Repr::clone(&self.0);
        change(&mut repr);
        Self(Arc::new(repr))
    }

    /// Whether asking again, after [`retry_after`](Self::retry_after), may help with nothing
    /// changed by anyone: the endpoint is down, slow or broken, or the token expired just now.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind.is_transient()
    }

    /// Whether the token endpoint refused the credentials or the grant: somebody has to correct
    /// the client id, the secret, or the client's settings at the server.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        matches!(self.0.kind, Kind::Rejected(..))
    }

    /// Whether the [`Provider`](crate::Provider) had no credentials; nothing was asked.
    ///
    /// It is tried again within half a minute.
    #[must_use]
    pub fn is_missing_credentials(&self) -> bool {
        matches!(self.0.kind, Kind::NoCredentials)
    }

    /// The address of the token endpoint, if it was asked or was to be: scheme, host, port and path.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// What to do about it: what its text says last.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        self.0.kind.advice()
    }

    /// Whether the [budget](crate::TokenSourceBuilder::budget) is spent; nothing was asked.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        matches!(self.0.kind, Kind::OverBudget)
    }

    /// Whether the request was meant for an origin that may not see the token, by its address or by
    /// its `Host` header.
    #[must_use]
    pub fn is_foreign_origin(&self) -> bool {
        matches!(
            self.0.kind,
            Kind::ForeignOrigin | Kind::NoOrigin | Kind::OtherHost
        )
    }

    /// How long the token endpoint is left alone: a call made earlier gets this error again.
    ///
    /// Zero means at once. It counts from the moment this error was handed out.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.0.kind == Kind::Expired {
            return Some(Duration::ZERO);
        }
        self.0.retry_after
    }

    /// The `error` code of a refusal, such as `invalid_client` (RFC 6749, section 5.2).
    ///
    /// Codes that no standard names are not repeated.
    #[must_use]
    pub fn oauth_error(&self) -> Option<&'static str> {
        if let Kind::Rejected(_, code) = self.0.kind {
            return Some(code);
        }
        None
    }
}

/// What happened, where, why, since when, and what to do.
impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr {
            kind,
            place,
            cause,
            failing_for,
            retry_after,
            ..
        } = &*self.0;
        kind.happened(f)?;
        if let Some(place) = place {
            write!(f, " ({place})")?;
        }
        if let Some(cause) = cause {
            write!(f, ": {cause}")?;
        }
        if failing_for.as_secs() > 0 {
            write!(f, "; failing for {:.0} s", failing_for.as_secs_f64())?;
        }
        if let Some(wait) = retry_after {
            write!(f, "; not asked again for {:.1} s", wait.as_secs_f64())?;
        }
        write!(f, "; {}", kind.advice())
    }
}

/// Two lines, of which the first is for people.
impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, retry_after) = (self.0.kind, self.0.retry_after);
        write!(
            f,
            "{self}\nTokenError {{ kind: {kind:?}, retry_after: {retry_after:?} }}"
        )
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

/// Finds the root of an error and says it in the words of the network, where it is one of it.
///
/// HTTP clients wrap a name that is not found four times; whoever reads a log wants that name. A
/// root that nothing is known of is quoted, cut short and on one line.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut found = None;
    let mut next = Some(error);
    let mut last = error;
    while let Some(link) = next {
        found = found.or_else(|| network(link));
        // A code for layers says less than the error that it is the cause of.
        if !is_code(&link.to_string()) {
            last = link;
        }
        next = link.source();
    }
    found.unwrap_or_else(|| short(&last.to_string()))
}

fn network(link: &(dyn Error + 'static)) -> Option<String> {
    let text = link.to_string();
    // hyper-util's connector says the first, the resolver the second.
    if text == "dns error" || text.contains("failed to lookup address") {
        return Some(NO_SUCH_HOST.to_owned());
    }
    let io = link.downcast_ref::<io::Error>()?;
    let says = [
        (
            io::ErrorKind::ConnectionRefused,
            "connect: connection refused",
        ),
        (
            io::ErrorKind::ConnectionReset,
            "connection reset by the server",
        ),
        (io::ErrorKind::TimedOut, "it took too long"),
    ];
    if let Some((_, text)) = says.into_iter().find(|(kind, _)| *kind == io.kind()) {
        return Some(text.to_owned());
    }
    // What rustls finds wrong comes as such an error with its own inside.
    let inner = io
        .get_ref()
        .filter(|_| io.kind() == io::ErrorKind::InvalidData)?;
    Some(format!("tls: {}", short(&inner.to_string())))
}

/// One line of it, without anything that a terminal would act on.
fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(LONGEST).collect()
}

/// The name is added where it is known.
const NO_SUCH_HOST: &str = "dns: no such host";
const LONGEST: usize = 160;
