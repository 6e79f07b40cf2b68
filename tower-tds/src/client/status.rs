//! Status of a client: its calls, its waits, its token.

use std::{fmt, sync::Arc, time::Duration};

#[cfg(feature = "metrics")]
use metrics::{Label, counter, gauge};
use tower_oidc_cc::Health;
use tower_tds_limits::Snapshot;

use crate::client::sender::Sender;

/// The condition of a client: print it in a log, or serve it from your health endpoint.
///
/// Its parts are read one after the other, so they may differ by an instant.
///
/// `Display` prints one line. [`Client::status`](crate::Client::status) takes some locks: call it
/// once a second, and not for each call.
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
#[non_exhaustive]
pub struct Status {
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "a label of metrics")
    )]
    name: Option<Arc<str>>,
    /// Number of calls without a response head.
    pub calls: usize,
    /// Whether the client was shut down.
    pub is_closed: bool,
    /// Age and error text of the last failure, if it was within the last ten minutes.
    ///
    /// Mistakes of the caller, such as a path that does not exist, do not count.
    ///
    /// # Examples
    /// ```
    /// use std::io;
    /// use tower_tds::{Client, RequestBody};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let broken = tower::service_fn(async |_: http::Request<RequestBody>| {
    ///     Err::<http::Response<String>, _>(io::Error::other("no route to host"))
    /// });
    /// let client = Client::from_service(broken);
    /// client.get("/v1/live/bus").await.unwrap_err();
    /// let (ago, failure) = client.status().last_failure.unwrap();
    /// assert!(ago.as_secs() < 60 && failure.contains("no route to host"));
    /// # }
    /// ```
    pub last_failure: Option<(Duration, String)>,
    /// Health of the token.
    pub token: Health,
    /// Snapshot of the limiter.
    pub limits: Snapshot,
    /// Permits of the first quota.
    quota: u32,
}

// === impl Status ===

impl Status {
    pub(crate) fn of(sender: &Sender) -> Self {
        let limits = sender.limiter.limits();
        Self {
            name: sender.name.clone(),
            calls: sender.is_closed.receiver_count(),
            is_closed: *sender.is_closed.borrow(),
            last_failure: sender.last_failure(),
            token: sender.tokens.health(),
            limits: sender.limiter.snapshot(),
            quota: limits.quotas().first().map_or(0, |it| it.requests().get()),
        }
    }

    /// Whether a call could be sent now: there is a token, no pause after a 429, and no silence after a 423 or 416.
    ///
    /// It is false without a token and after a shutdown. Without traffic, a client requests neither
    /// its first token nor one in place of a token that has expired. So let a health check await
    /// `client.tokens().ready()` first, within a timeout.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let held = self.pause().is_some() || self.limits.silent_for.is_some();
        self.token.is_ready() && !held && !self.is_closed
    }

    /// Returns the rest of a pause, unless a call may already try whether it is over.
    fn pause(&self) -> Option<Duration> {
        self.limits.paused_for.filter(|left| !left.is_zero())
    }

    /// Sets the gauges of permits, sockets and token.
    ///
    /// Call it for each client before each scrape. If there are several clients, give each a
    /// [name](crate::Builder::name), which becomes the label `client` of its metrics. Without names
    /// they overwrite each other. Clients that share a [`Limiter`](crate::Limiter) show
    /// the same limits.
    ///
    /// The table lists all metrics of a client. Those of calls, attempts and waits are recorded as
    /// these end, without a call of this method.
    ///
    /// | metric | kind | label | what it is |
    /// |---|---|---|---|
    /// | `tds_calls_total` | counter | `kind` | ended calls, by outcome: `success`, the kind of the error, or `cancelled` |
    /// | `tds_call_seconds` | histogram | | time from the start of a call to its response head or error |
    /// | `tds_attempts_total` | counter | `kind` | ended attempts, by outcome; `cancelled` includes those that a deadline ended |
    /// | `tds_calls_under_way` | gauge | | calls that wait for a head |
    /// | `tds_waiting` | gauge | | calls that wait for the token, a permit or the end of a pause |
    /// | `tds_permits_live`, `tds_permits_quota` | gauge | | permits live, and the quota |
    /// | `tds_in_flight` | gauge | | requests in flight, from their permit to the end of the body |
    /// | `tds_sockets`, `tds_sockets_most` | gauge | | open sockets, and the limit |
    /// | `tds_wait_seconds` | histogram | `cause` | ended waits of attempts, of all clients of the process, by [cause](tower_tds_limits::WaitCause): `readiness` (such as the token), `rate`, `in_flight`, `silence`, `pause`; in a fleet also `share`, `store` |
    /// | `tds_granted_total` | counter | | requests that got a permit |
    /// | `tds_lowered_seconds` | gauge | | how long requests are fewer and evenly spaced at least, because of a 423, or 0 |
    /// | `tds_paused_seconds`, `tds_silent_seconds` | gauge | | the rest of a pause (429) or a silence (423, 416), or 0 |
    /// | `tds_token_life_seconds` | gauge | | the rest of the token's life; 0: no token |
    /// | `tds_tokens_total` | counter | | tokens received |
    ///
    /// No path, host or key is a label. For a dashboard of these metrics, see the program `tds`.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record(&self) {
        let (limits, token) = (&self.limits, &self.token);
        let labels = || {
            let name = self.name.clone();
            name.map(|name| Label::new("client", name))
                .into_iter()
                .collect::<Vec<_>>()
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let live = u32::try_from(limits.live).unwrap_or(u32::MAX);
        gauge!("tds_calls_under_way", labels()).set(count(self.calls));
        gauge!("tds_waiting", labels()).set(count(limits.waiting));
        gauge!("tds_permits_live", labels()).set(live);
        gauge!("tds_permits_quota", labels()).set(self.quota);
        gauge!("tds_in_flight", labels()).set(limits.in_flight);
        gauge!("tds_sockets", labels()).set(limits.connections);
        gauge!("tds_sockets_most", labels()).set(limits.most_connections);
        counter!("tds_granted_total", labels()).absolute(limits.granted);
        gauge!("tds_lowered_seconds", labels()).set(limits.lowered_for.unwrap_or_default());
        gauge!("tds_paused_seconds", labels()).set(limits.paused_for.unwrap_or_default());
        gauge!("tds_silent_seconds", labels()).set(limits.silent_for.unwrap_or_default());
        gauge!("tds_token_life_seconds", labels()).set(token.life_left.unwrap_or_default());
        counter!("tds_tokens_total", labels()).absolute(token.generation);
    }

    /// Returns what calls wait for, with the rest of a pause or a silence. In a pause or a silence it
    /// returns that even if no call waits.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let limits = &self.limits;
        if !self.token.is_ready() {
            // Without the endpoint, so that the text fits into a line of a terminal.
            return (self.calls > 0).then(|| "a token".to_owned());
        }
        if let Some(wait) = self.pause() {
            return Some(format!("the end of the pause after a 429, {}", rough(wait)));
        }
        if let Some(wait) = limits.silent_for {
            return Some(format!(
                "the end of the silence after a refusal, {}",
                rough(wait)
            ));
        }
        limits.waits_for.map(|cause| cause.to_string())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = &self.limits;
        write!(f, "{} calls under way", self.calls)?;
        if self.is_closed {
            f.write_str(", shut down")?;
        }
        match self.waits_for() {
            Some(cause) if !self.token.is_ready() => write!(f, ", waiting for {cause}")?,
            Some(cause) => write!(f, ", {} waiting for {cause}", limits.waiting)?,
            None => {}
        }
        if limits.connects_waiting > 0 {
            write!(f, ", {} waiting for a socket", limits.connects_waiting)?;
        }
        match self.token.life_left {
            Some(left) => write!(f, "; token good for {}", rough(left))?,
            None => write!(f, "; no token")?,
        }
        if let Some(error) = &self.token.last_error {
            write!(f, ": {error}")?;
        }
        write!(f, "; {} of {} permits", limits.live, self.quota)?;
        if limits.in_flight > 0 {
            // Requests without a head, and bodies that were not read to their end.
            write!(f, ", {} in flight", limits.in_flight)?;
        }
        let (open, most) = (limits.connections, limits.most_connections);
        write!(f, ", {open} of {most} sockets")?;
        match &self.last_failure {
            Some((ago, line)) => write!(f, "; last failure {} ago: {line}", rough(*ago)),
            None => Ok(()),
        }
    }
}

/// Rounds a duration for a person.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        ..120 => format!("{time:.0?}"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
