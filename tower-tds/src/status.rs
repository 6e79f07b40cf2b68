//! The status of a client: its calls, its waits, its token.

use std::{fmt, time::Duration};

use tower_oidc_cc::{Health, TokenSource};
use tower_tds_limits::{Limiter, Snapshot, WaitCause};

use crate::{calls::Calls, trace::Name};

/// The condition of a client at one instant: for a health endpoint, a log or an operator.
///
/// `Display` prints one line. [`Client::status`](crate::Client::status) takes some locks: call it
/// once a second, and not for each call. With the feature `serde` the same numbers are serialized.
///
/// # Examples
/// ```no_run
/// # async fn run(client: tower_tds::Client) {
/// let status = client.status();
/// println!("{status}");
/// // 58 calls under way, 8 waiting for the rate limit; token good for 19 h; 50 of 50 permits, 50 in flight, 50 of 60 sockets
/// assert!(status.is_ready());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Status {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "a label of metrics")
    )]
    name: Name,
    /// Calls without a response head.
    calls: usize,
    is_closed: bool,
    /// The age and the error text of the last failure.
    failure: Option<(Duration, String)>,
    token: Health,
    limits: Snapshot,
    /// The permits of the first quota.
    quota: u64,
    in_flight: u32,
}

/// The cause for which unsent calls wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    Token,
    Pause(Duration),
    Silence(Duration),
    Limit(WaitCause),
    /// The HTTP client is not ready.
    Client,
}

// === impl Status ===

impl Status {
    pub(crate) fn new(name: &Name, calls: &Calls, tokens: &TokenSource, limiter: &Limiter) -> Self {
        let limits = limiter.limits();
        let failure = calls.last_failure();
        Self {
            name: name.clone(),
            calls: calls.count(),
            is_closed: calls.are_closed(),
            failure: failure.map(|failure| (failure.at.elapsed(), failure.line)),
            token: tokens.health(),
            limits: limiter.snapshot(),
            quota: limits
                .quotas()
                .first()
                .map_or(0, |quota| quota.requests().get().into()),
            in_flight: limits.in_flight.get(),
        }
    }

    /// Whether there is a token, no pause and no silence. It is false before the first token, which
    /// [`Client::tokens`](crate::Client::tokens) can fetch, and after a shutdown.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let held = self.limits.paused_for.is_some() || self.limits.silent_for.is_some();
        self.token.is_ready() && !held && !self.is_closed
    }

    /// The number of calls without a response head.
    #[must_use]
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// The age and the error text of the last failure within ten minutes.
    ///
    /// Mistakes of the caller do not count, such as a path that does not exist.
    #[must_use]
    pub fn last_failure(&self) -> Option<(Duration, &str)> {
        let (ago, line) = self.failure.as_ref()?;
        Some((*ago, line))
    }

    /// The token.
    #[must_use]
    pub const fn token(&self) -> &Health {
        &self.token
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &Snapshot {
        &self.limits
    }

    #[cfg(feature = "metrics")]
    pub(crate) const fn name(&self) -> &Name {
        &self.name
    }

    #[cfg(feature = "metrics")]
    pub(crate) const fn quota(&self) -> u64 {
        self.quota
    }

    /// The cause of waits as text, if any call waits, with the length of a pause or a silence.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        Some(match self.waits()? {
            // The endpoint is left out: with it the text does not fit into a line of a terminal.
            Waits::Token => String::from("a token"),
            waits => waits.to_string(),
        })
    }

    fn waits(&self) -> Option<Waits> {
        let waits = Waits::of(&self.token, &self.limits, self.in_flight);
        let is_held = match waits {
            Waits::Token => self.calls > 0,
            Waits::Pause(_) | Waits::Silence(_) => true,
            Waits::Limit(_) | Waits::Client => self.limits.waiting > 0,
        };
        is_held.then_some(waits)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Snapshot {
            waiting,
            live,
            connections,
            most_connections,
            connects_waiting,
            in_flight,
            ..
        } = self.limits;
        write!(f, "{} calls under way", self.calls)?;
        if self.is_closed {
            f.write_str(", shut down")?;
        }
        match self.waits() {
            Some(Waits::Token) => f.write_str(", waiting for a token")?,
            Some(waits) => write!(f, ", {waiting} waiting for {waits}")?,
            None => {}
        }
        if connects_waiting > 0 {
            write!(f, ", {connects_waiting} waiting for a socket")?;
        }
        match (self.token.refused_for, self.token.life_left) {
            (Some(refused), _) => write!(f, "; token refused for {}", Rough(refused))?,
            (None, Some(left)) => write!(f, "; token good for {}", Rough(left))?,
            (None, None) => write!(f, "; no token")?,
        }
        if let Some(error) = &self.token.last_error {
            write!(f, ": {error}")?;
        }
        let quota = self.quota;
        write!(f, "; {live} of {quota} permits")?;
        if in_flight > 0 {
            // Requests without a head, and bodies that were not read to their end.
            write!(f, ", {in_flight} in flight")?;
        }
        write!(f, ", {connections} of {most_connections} sockets")?;
        if let Some(wait) = self.limits.no_connect_for {
            write!(f, ", no connects for {}", Rough(wait))?;
        }
        match &self.failure {
            Some((ago, line)) => write!(f, "; last failure {} ago: {line}", Rough(*ago)),
            None => Ok(()),
        }
    }
}

// === impl Waits ===

impl Waits {
    pub(crate) fn of(token: &Health, limits: &Snapshot, in_flight: u32) -> Self {
        if !token.is_ready() {
            Self::Token
        } else if let Some(wait) = limits.paused_for {
            Self::Pause(wait)
        } else if let Some(wait) = limits.silent_for {
            Self::Silence(wait)
        } else if let Some(cause) = limits.waits_for {
            Self::Limit(cause)
        } else if limits.in_flight >= in_flight {
            Self::Limit(WaitCause::InFlight)
        } else {
            Self::Client
        }
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => f.write_str("a token"),
            Self::Pause(wait) => write!(f, "the end of the pause after a 429, {}", Rough(*wait)),
            Self::Silence(wait) => {
                write!(
                    f,
                    "the end of the silence after a refusal, {}",
                    Rough(*wait)
                )
            }
            Self::Limit(WaitCause::InFlight) => {
                f.write_str("a place in flight: responses are slow, or bodies are not read")
            }
            Self::Limit(cause) => cause.fmt(f),
            Self::Client => f.write_str("the HTTP client"),
        }
    }
}

/// A duration rounded for display.
struct Rough(Duration);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.subsec_millis()),
            seconds @ ..120 => write!(f, "{seconds} s"),
            seconds @ ..7_200 => write!(f, "{} min", seconds.div_euclid(60)),
            seconds => write!(f, "{} h", seconds.div_euclid(3_600)),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;

        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let limits = &self.limits;
        let mut map = serializer.serialize_struct("Status", 18)?;
        map.serialize_field("ready", &self.is_ready())?;
        map.serialize_field("says", &self.to_string())?;
        map.serialize_field("calls", &self.calls)?;
        map.serialize_field("waits_for", &self.waits_for())?;
        map.serialize_field("waiting", &limits.waiting)?;
        map.serialize_field("permits", &limits.live)?;
        map.serialize_field("quota", &self.quota)?;
        map.serialize_field("in_flight", &limits.in_flight)?;
        map.serialize_field("sockets", &limits.connections)?;
        map.serialize_field("most_sockets", &limits.most_connections)?;
        map.serialize_field("connects_waiting", &limits.connects_waiting)?;
        map.serialize_field("paused_seconds", &seconds(limits.paused_for))?;
        map.serialize_field("silent_seconds", &seconds(limits.silent_for))?;
        map.serialize_field("token_life_seconds", &seconds(self.token.life_left))?;
        map.serialize_field("token_refused_seconds", &seconds(self.token.refused_for))?;
        let error = self.token.last_error.as_ref().map(ToString::to_string);
        map.serialize_field("token_error", &error)?;
        let (ago, line) = self.last_failure().unzip();
        map.serialize_field("last_failure", &line)?;
        map.serialize_field("last_failure_seconds_ago", &seconds(ago))?;
        map.end()
    }
}

#[cfg(test)]
mod tests;
