//! Settings of the simulator.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use crate::{
    error_body::ErrorBody,
    fault::Faults,
    rule::Rule,
    text::{ParseError, parse_duration, word},
};

/// Settings of the simulator. The defaults are those of the contract, without faults.
///
/// # Examples
/// ```
/// let mut config = tds_sim::Config::default();
/// config.rule = tds_sim::Rule::SlidingLogAll;
/// config.quota = Some("1000/3600s".parse()?);
/// config.faults.before_head = "uniform:0ms:50ms".parse()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Rule by which the requests of an IP address are counted against [`rate`](Self::rate).
    pub rule: Rule,
    /// How many requests of an IP address are accepted in each interval of length
    /// [`per`](Self::per); further ones get 423.
    pub rate: u32,
    /// Length of the interval to which [`rate`](Self::rate) applies.
    pub per: Duration,
    /// How many parallel connections an IP address may have. If it has more, its requests get 416.
    pub connections: u32,
    /// What counts as a connection.
    pub counting: CountConnections,
    /// How many calls each key may make in a window; further calls get 429.
    pub quota: Option<Quota>,
    /// Whether a 429 has a `Retry-After` with the seconds to the end of the key's window. The
    /// contract does not mention it.
    pub retry_after: bool,
    /// Lifetime of new tokens, in seconds.
    pub expires_in: u64,
    /// Realm roles of new keys; `live` and `history` open the two groups of data endpoints.
    pub roles: Vec<String>,
    /// Format of error bodies at the data endpoints.
    pub error_body: ErrorBody,
    /// Size in bytes of a live resource, at most about 16 MiB.
    pub live_bytes: u64,
    /// Interval at which live resources change, together with their `ETag` and `Last-Modified`;
    /// `None` if they never change.
    pub live_every: Option<Duration>,
    /// Folder whose files are served at their paths, subject to the limits and the token check.
    pub files: Option<PathBuf>,
    /// Scripted faults, none by default.
    pub faults: Faults,
    /// Seed of all random values except the signing keys.
    pub seed: u64,
    /// Whether the auth and data listeners speak TLS 1.2 and 1.3, with a certificate issued by a
    /// CA that the simulator creates at the start.
    #[cfg(feature = "tls")]
    pub tls: bool,
    /// Address of the token endpoint. Here and in the next two, port 0 takes a free one.
    pub auth: SocketAddrV4,
    /// Address of the data endpoints.
    pub data: SocketAddrV4,
    /// Address of the ledger and the controls.
    pub admin: SocketAddrV4,
    /// How many arrivals the ledger lists; the newest are kept.
    pub arrivals_kept: usize,
    /// Whether the ledger has each call's headers, with secrets masked, and the length of its body
    /// as received instead of its `Content-Length`. If so, the body is read before the answer.
    pub record_headers: bool,
}

/// Number of calls that one key may make in each window of the simulator's clock.
///
/// Written as text it is `CALLS/WINDOW`, such as `20/60s`, or `20/60` in seconds.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tds_sim::Quota;
///
/// let quota: Quota = "1000/3600s".parse()?;
/// assert_eq!(quota, Quota::new(1000, Duration::from_secs(3600)));
/// assert_eq!("1000/3600".parse(), Ok(quota));
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub(crate) calls: u32,
    pub(crate) per: Duration,
}

/// What counts as a parallel connection. As text, write `accepted` or `busy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CountConnections {
    /// Each socket counts from its accept until the server closes it, idle or not. While an address
    /// has too many, each of its requests is refused. HAProxy's `conn_cur` counts in this way.
    #[default]
    Accepted,
    /// Each request counts from its arrival to the end of its answer, as with nginx's `limit_conn`.
    /// On HTTP/2, each stream is one.
    Busy,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            // As the contract does not specify the counting, this is its plain reading: a sliding
            // log.
            rule: Rule::SlidingLog,
            // Contract, "Limits": 50 requests per second, 60 connections per IP address, tokens
            // of 86400 seconds.
            rate: 50,
            per: Duration::from_secs(1),
            connections: 60,
            counting: CountConnections::default(),
            quota: None,
            retry_after: false,
            expires_in: 86_400,
            roles: vec!["live".to_owned(), "history".to_owned()],
            error_body: ErrorBody::default(),
            live_bytes: 128,
            live_every: None,
            files: None,
            faults: Faults::default(),
            seed: 0,
            #[cfg(feature = "tls")]
            tls: false,
            auth: FREE,
            data: FREE,
            admin: FREE,
            // Each takes about 200 bytes, or 900 with headers.
            arrivals_kept: 1_000_000,
            record_headers: false,
        }
    }
}

// === impl Quota ===

impl Quota {
    /// Creates a quota of `calls` in each window of `per`.
    #[must_use]
    pub const fn new(calls: u32, per: Duration) -> Self {
        Self { calls, per }
    }

    /// Returns the seconds to the end of the window, rounded up, so at least one.
    pub(crate) fn seconds_left(self, at: Duration) -> u64 {
        let per = self.per.as_nanos().max(1);
        let left = per.saturating_sub(at.as_nanos().checked_rem(per).unwrap_or(0));
        u64::try_from(left.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }
}

impl FromStr for Quota {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let quota = text.split_once('/').and_then(|(calls, per)| {
            let seconds = per.parse().ok().map(Duration::from_secs);
            let per = seconds.or_else(|| parse_duration(per).ok());
            let per = per.filter(|per| !per.is_zero())?;
            Some(Self::new(calls.parse().ok()?, per))
        });
        quota.ok_or_else(|| ParseError::new("quota", text, "CALLS/WINDOW, such as 20/60s"))
    }
}

// === impl CountConnections ===

impl FromStr for CountConnections {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = [("accepted", Self::Accepted), ("busy", Self::Busy)];
        word("definition of a connection", text, &words)
    }
}

/// Any free port, reachable from this machine alone.
const FREE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
