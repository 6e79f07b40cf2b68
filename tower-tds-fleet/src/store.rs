//! Store of a fleet, which answers one question of a member at a time by a script.

use std::{env, fmt, fs, process, time::Duration};

use http::Uri;
use redis::{
    AsyncConnectionConfig, Client, RedisError, RedisResult, Script, aio::MultiplexedConnection,
    cluster::ClusterClient, cluster_async::ClusterConnection, sentinel::SentinelClient,
};
use tokio::time::{Instant, timeout};
use tower_tds_limits::{Limiter, Quota, Share};

use crate::{
    error::FleetError,
    member::{Answer, ENDS, GIVE_UP, Question},
    tls,
};

/// Store of a fleet, as a client of the `redis` crate for one or several servers.
///
/// Set addresses, users and certificates in the client. Each kind of client converts into a store, so
/// you pass the client itself to [`Fleet::join`](crate::Fleet::join).
#[non_exhaustive]
pub enum Store {
    /// A single server.
    Node(Client),
    /// The master that Sentinels name.
    Sentinel(SentinelClient),
    /// The nodes of a cluster.
    Cluster(ClusterClient),
}

/// State of a fleet, as one member last read it.
///
/// For an alarm, look at `fault` and at `withheld`; for a health check, at the age of `answered`. The
/// feature `metrics` has gauges for the rest.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FleetStatus {
    /// This member's share of the limits.
    pub share: Share,
    /// Smallest share that covers this member's requests that still count, and its open sockets.
    pub held: Share,
    /// Calls of this member that wait for the token, a permit or the end of a pause.
    pub waiting: u32,
    /// Number of members with a question within the last five seconds, this one included.
    pub members: u32,
    /// Limits that the members divide.
    pub total: Share,
    /// Part of the limits that silent members had: members that were killed, left with requests in
    /// flight, or do not reach the store. No member gets it until it is free.
    pub withheld: Share,
    /// How long until the requests of silent members are free.
    pub requests_free_in: Duration,
    /// How long until the sockets of silent members are free.
    pub sockets_free_in: Duration,
    /// How long until shares can grow; zero if they can. They cannot while the store's record of
    /// the fleet may be incomplete: when it is new or all its members were silent, after a restart
    /// or a failover, and after a forward step of the store's clock.
    pub grows_in: Duration,
    /// Time of the store's last answer.
    pub answered: Option<Instant>,
    /// Error of the last question to the store, if it failed.
    pub fault: Option<FleetError>,
}

/// Answer to a question, with the state of the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) status: FleetStatus,
}

/// Sends questions to the store. Tests have a model of it.
pub(crate) trait Ask: Send + 'static {
    /// Sends a question, and returns the reply. If there is no connection within [`CONNECT`], or then
    /// no reply within [`GIVE_UP`], it fails.
    fn ask(&mut self, question: Question)
    -> impl Future<Output = Result<Reply, FleetError>> + Send;
}

/// One member's connection to the store.
pub(crate) struct Link {
    store: Store,
    open: Option<Open>,
    script: Script,
    key: String,
    id: String,
    process: String,
    constants: Constants,
    /// Id of the server that gave the last answer, and when.
    run: Option<(String, Instant)>,
}

pub(crate) enum Open {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Parts of a member's questions that never change.
#[derive(Debug, Clone)]
pub(crate) struct Constants {
    /// Intervals of the quotas, and the numbers of all but the first.
    pub(crate) quotas: String,
    /// Scheme, host and port.
    pub(crate) service: String,
    pub(crate) hold: u64,
    pub(crate) memory: u64,
    pub(crate) unit: u32,
}

// === impl Store ===

impl From<Client> for Store {
    fn from(client: Client) -> Self {
        Self::Node(client)
    }
}

impl From<SentinelClient> for Store {
    fn from(client: SentinelClient) -> Self {
        Self::Sentinel(client)
    }
}

impl From<ClusterClient> for Store {
    fn from(client: ClusterClient) -> Self {
        Self::Cluster(client)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The `Debug` of a client would show its password.
        f.write_str("Store")
    }
}

// === impl FleetStatus ===

#[cfg(feature = "metrics")]
impl FleetStatus {
    /// Sets the gauges to this state.
    pub(crate) fn record(&self) {
        metrics::gauge!("tds_fleet_members").set(self.members);
        metrics::gauge!("tds_fleet_share_requests").set(self.share.requests);
        metrics::gauge!("tds_fleet_share_connections").set(self.share.connections);
        metrics::gauge!("tds_fleet_held_requests").set(self.held.requests);
        metrics::gauge!("tds_fleet_waiting").set(self.waiting);
        metrics::gauge!("tds_fleet_grows_in_seconds").set(self.grows_in.as_secs_f64());
        metrics::gauge!("tds_fleet_free_in_seconds", "of" => "requests")
            .set(self.requests_free_in.as_secs_f64());
        metrics::gauge!("tds_fleet_free_in_seconds", "of" => "sockets")
            .set(self.sockets_free_in.as_secs_f64());
        metrics::gauge!("tds_fleet_withheld", "of" => "requests").set(self.withheld.requests);
        metrics::gauge!("tds_fleet_withheld", "of" => "sockets").set(self.withheld.connections);
    }
}

// === impl Constants ===

impl Constants {
    /// # Errors
    /// If an interval is longer than a minute.
    pub(crate) fn new(service: &str, limiter: &Limiter) -> Result<Self, FleetError> {
        let quotas = limiter.limits().quotas();
        if quotas.iter().any(|quota| quota.per() > LONGEST) {
            return Err(FleetError::settings(
                "a quota's interval is at most a minute",
            ));
        }
        let first = quotas.first().map_or(1, |first| first.requests().get());
        let unit = quotas.iter().map(|q| first.div_ceil(q.requests().get()));
        let per = |quota: &Quota| quota.per().as_millis().to_string();
        let others = quotas.iter().skip(1);
        let others = others.map(|quota| format!("{}/{}", quota.requests(), per(quota)));
        let all: Vec<_> = quotas.first().map(per).into_iter().chain(others).collect();
        Ok(Self {
            quotas: all.join(" "),
            service: origin(service).ok_or_else(|| FleetError::settings(NO_SERVICE))?,
            hold: millis(quotas.first().map(Quota::hold).unwrap_or_default()),
            memory: millis(limiter.load().counts_for),
            unit: unit.max().unwrap_or(1),
        })
    }
}

// === impl Link ===

impl Link {
    pub(crate) fn new(store: Store, name: &str, id: String, constants: Constants) -> Self {
        Self {
            store,
            open: None,
            script: Script::new(DIVISION),
            key: key(name),
            id,
            process: host_and_process(),
            constants,
            run: None,
        }
    }

    async fn answer(&mut self, open: &mut Open, question: Question) -> RedisResult<Reply> {
        let mut asks = self.script.prepare_invoke();
        asks.key(&self.key).arg(&self.id).arg(question.number);
        asks.arg(numbers(&question, &self.constants))
            .arg(&self.constants.quotas);
        let run = self.run.as_ref().filter(|(_, at)| at.elapsed() < ENDS);
        asks.arg(run.map_or("", |(run, _)| run)).arg(&self.process);
        asks.arg(&self.constants.service);
        let (values, run): (Vec<u64>, String) = match open {
            Open::One(connection) => asks.invoke_async(connection).await?,
            Open::Cluster(connection) => asks.invoke_async(connection).await?,
        };
        self.run = Some((run, Instant::now()));
        reply(&values).ok_or_else(|| RedisError::from((redis::ErrorKind::Parse, "not an answer")))
    }
}

impl Ask for Link {
    async fn ask(&mut self, question: Question) -> Result<Reply, FleetError> {
        let late = |_| FleetError::unanswered();
        let mut open = match self.open.take() {
            Some(open) => open,
            None => timeout(CONNECT, self.store.open()).await.map_err(late)??,
        };
        let asked = timeout(GIVE_UP, self.answer(&mut open, question)).await;
        let reply = asked.map_err(late)??;
        // A connection that gave no answer may lead to a server that is gone, or to the wrong one.
        self.open = Some(open);
        Ok(reply)
    }
}

impl Store {
    pub(crate) async fn open(&mut self) -> RedisResult<Open> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(CONNECT));
        Ok(match self {
            Self::Node(client) => {
                tls::provide(client)?;
                let opened = client.get_multiplexed_async_connection_with_config(&config);
                Open::One(opened.await?)
            }
            Self::Sentinel(client) => {
                tls::install();
                Open::One(client.get_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => {
                tls::install();
                Open::Cluster(client.get_async_connection().await?)
            }
        })
    }
}

/// Returns the numbers of a question, as the script reads them.
pub(crate) fn numbers(question: &Question, constants: &Constants) -> String {
    let three = |share: Share| [share.requests, share.places, share.connections].map(u64::from);
    let shares = [question.held, question.wanted, question.whole];
    let rest = [
        constants.unit.into(),
        constants.hold,
        constants.memory,
        millis(question.silence),
        question.leaves.into(),
    ];
    let all = shares.into_iter().flat_map(three).chain(rest);
    let all = all
        .chain(three(question.share))
        .chain([question.stepped.into()]);
    let all: Vec<_> = all.map(|number| number.to_string()).collect();
    all.join(",")
}

/// Reads the script's numbers. Returns `None` if they are malformed.
pub(crate) fn reply(values: &[u64]) -> Option<Reply> {
    let count = |at: usize| u32::try_from(*values.get(at)?).ok();
    let time = |at: usize| values.get(at).copied().map(Duration::from_millis);
    let three = |at| {
        Some(Share {
            requests: count(at)?,
            places: count(at + 1)?,
            connections: count(at + 2)?,
        })
    };
    Some(Reply {
        answer: Answer {
            share: three(6)?,
            silence: time(1)?,
            clock: time(0)?,
        },
        status: FleetStatus {
            grows_in: time(2)?,
            members: count(3)?,
            requests_free_in: time(4)?,
            sockets_free_in: time(5)?,
            total: three(9)?,
            withheld: three(12)?,
            ..FleetStatus::default()
        },
    })
}

/// Returns the host and the id of this process, for people who read the store.
fn host_and_process() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.or_else(|_| env::var("HOSTNAME"));
    let host = host
        .or_else(|_| env::var("COMPUTERNAME"))
        .unwrap_or_default();
    // The record is a list, which its readers split at the commas.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let host: String = host.chars().filter(is_plain).take(63).collect();
    format!("{host}:{}", process::id())
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Key of a fleet's hash. Its braces keep it in one slot of a cluster.
pub(crate) fn key(name: &str) -> String {
    format!("{{{name}}}:shares")
}

/// Scheme, host and port of a service (RFC 6454, section 4).
fn origin(service: &str) -> Option<String> {
    let service: Uri = service.parse().ok()?;
    let scheme = service.scheme_str()?.to_ascii_lowercase();
    let usual = if scheme == "http" { 80 } else { 443 };
    let port = service.port_u16().unwrap_or(usual);
    let host = service.host()?.to_ascii_lowercase();
    Some(format!("{scheme}://{host}:{port}"))
}

pub(crate) const DIVISION: &str = include_str!("division.lua");

const NO_SERVICE: &str = "the service's address is not a URL: write https://host";

/// Longest time of a connect, whose handshakes take several round trips.
const CONNECT: Duration = Duration::from_secs(5);

/// Longest interval of a quota. With a longer one, a dead member's permits would be withheld for
/// too long, and no division every second is needed.
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
pub(crate) mod tests;
