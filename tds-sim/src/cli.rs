//! The options of the program.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use tds_sim::{
    Config, CountConnections, DataFault, Delay, ErrorBody, Network, ParseError, Quota, Rule,
    Scripted, TokenFault, parse_duration,
};

/// The transport data service, simulated from its contract, with a ledger of all calls.
#[derive(Debug, Parser)]
#[command(
    name = "tds-sim",
    term_width = 100,
    after_help = NOTES,
    args_conflicts_with_subcommands = true,
    allow_negative_numbers = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    instead: Option<Instead>,

    /// How to count requests: fixed, log, log-all, counter, leaky:BURST or in-flight
    #[arg(long, help_heading = LIMITS, default_value = "log")]
    rule: Rule,
    /// Requests that an IP address may make in each interval; more get 423
    #[arg(long, help_heading = LIMITS, default_value_t = 50, value_parser = limit)]
    rate: u32,
    /// Interval of --rate
    #[arg(long, help_heading = LIMITS, default_value = "1s", value_parser = interval)]
    per: Duration,
    /// Connections that an IP address may have at once; with more, its requests get 416
    #[arg(long, help_heading = LIMITS, default_value_t = 60, value_parser = limit)]
    connections: u32,
    /// What counts as a connection: accepted (every socket) or busy (every request in progress)
    #[arg(long, help_heading = LIMITS, value_name = "HOW", default_value = "accepted")]
    count_connections: CountConnections,
    /// Calls that a key may make in each window, such as 5/60s or 5/60; more get 429 [default: no
    /// quota]
    #[arg(long, help_heading = LIMITS, value_name = "CALLS/WINDOW", value_parser = quota)]
    quota: Option<Quota>,
    /// Send Retry-After with a 429
    #[arg(long, help_heading = LIMITS)]
    retry_after: bool,

    /// Lifetime of tokens in seconds
    #[arg(long, help_heading = TOKENS, value_name = "SECONDS", default_value_t = 86_400)]
    expires_in: u64,
    /// Realm roles of the keys, separated by commas: live, history or none
    #[arg(long, help_heading = TOKENS, value_name = "ROLE,...", value_delimiter = ',', default_value = "live,history", value_parser = ["live", "history", "none"], hide_possible_values = true)]
    roles: Vec<String>,

    /// Format of error bodies: json, text, html, xml or empty
    #[arg(long, help_heading = ANSWERS, value_name = "FORMAT", default_value = "json")]
    error_body: ErrorBody,
    /// Size of a live resource in bytes, at most about 16 MiB
    #[arg(long, help_heading = ANSWERS, value_name = "BYTES", default_value_t = 128)]
    live_bytes: u64,

    /// How often live resources change, with a new tag and time; without it, they do not
    #[arg(long, help_heading = ANSWERS, value_name = "INTERVAL", value_parser = interval)]
    live_every: Option<Duration>,
    /// Serve this folder's files, subject to the limits and the token check
    #[arg(long, help_heading = ANSWERS, value_name = "DIR")]
    files: Option<PathBuf>,

    /// Delay before a call is counted
    #[arg(long, help_heading = FAULTS, value_name = "DELAY", default_value = "none")]
    delay_counting: Delay,
    /// Delay between the count of a call and the head of its response
    #[arg(long, help_heading = FAULTS, value_name = "DELAY", default_value = "none")]
    delay_head: Delay,
    /// Fault of data calls: reset-head, reset-body, truncate, endless, drip:PAUSE, stall:PAUSE,
    /// garbage or 5xx[:BURST]
    #[arg(long, help_heading = FAULTS)]
    fault: Vec<Scripted<DataFault>>,
    /// Fault of token requests: down, 503, slow:PAUSE or html
    #[arg(long, help_heading = FAULTS)]
    token_fault: Vec<Scripted<TokenFault>>,
    /// Seed of all random values except signing keys; one seed gives the same first API key
    #[arg(long, help_heading = FAULTS, default_value_t = 0)]
    seed: u64,

    /// Speak TLS 1.2 and 1.3; `ca_file` in the line of JSON names the CA certificate
    #[arg(long, help_heading = RUNNING)]
    tls: bool,
    /// IPv4 address to listen on, such as 0.0.0.0 in a container
    #[arg(long, help_heading = RUNNING, value_name = "IP", default_value = "127.0.0.1")]
    bind: Ipv4Addr,
    /// Port of the token endpoint; 0 picks a free one
    #[arg(long, help_heading = RUNNING, value_name = "PORT", default_value_t = 0)]
    auth_port: u16,
    /// Port of the data endpoints; 0 picks a free one
    #[arg(long, help_heading = RUNNING, value_name = "PORT", default_value_t = 0)]
    data_port: u16,
    /// Port of the ledger and the controls; 0 picks a free one
    #[arg(long, help_heading = RUNNING, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
    /// How many calls the ledger keeps, the newest ones, about 1 KB each
    #[arg(long, help_heading = RUNNING, value_name = "CALLS", default_value_t = 100_000)]
    arrivals_kept: usize,
}

/// What the program runs: the service, or a relay.
#[derive(Debug)]
pub(crate) enum Role {
    Service(Box<Config>),
    Relay(SocketAddr, Network),
}

/// What the program can run instead of the service.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Run a TCP relay with delays in front of an address
    Relay(Relay),
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
struct Relay {
    /// Address to relay to
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    to: SocketAddr,
    /// Delay from the client to the server: none, 20ms, uniform:0ms:50ms, lognormal:10ms:200ms,
    /// pareto:5ms:1.5 or stall:5s:300ms
    #[arg(long, value_name = "DELAY", default_value = "none")]
    there: Delay,
    /// Delay from the server to the client
    #[arg(long, value_name = "DELAY", default_value = "none")]
    back: Delay,
    /// Seed of all delays
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

// === impl Role ===

impl From<Cli> for Role {
    fn from(cli: Cli) -> Self {
        if let Some(Instead::Relay(relay)) = cli.instead {
            let mut network = Network::default();
            network.there = relay.there;
            network.back = relay.back;
            network.seed = relay.seed;
            network.port = relay.port;
            return Self::Relay(relay.to, network);
        }
        let mut config = Config::default();
        // Sets the fields one by one, because `Config` is non-exhaustive outside its crate.
        macro_rules! take { ($($field:ident),*) => { $(config.$field = cli.$field;)* }; }
        take!(rule, rate, per, connections, quota, retry_after);
        take!(expires_in, roles, error_body, live_bytes, live_every);
        take!(files, seed, tls, arrivals_kept);
        config.counting = cli.count_connections;
        config.faults.before_counting = cli.delay_counting;
        config.faults.before_head = cli.delay_head;
        config.faults.data = cli.fault;
        config.faults.token = cli.token_fault;
        config.auth = SocketAddrV4::new(cli.bind, cli.auth_port);
        config.data = SocketAddrV4::new(cli.bind, cli.data_port);
        config.admin = SocketAddrV4::new(cli.bind, cli.admin_port);
        config.record_headers = true;
        Self::Service(Box::new(config))
    }
}

/// Parses a limit. Zero is refused, because it could be meant as no limit.
fn limit(text: &str) -> Result<u32, &'static str> {
    match text.parse() {
        Ok(0) => Err("0 refuses every call; use 1 or more, or POST /set for a while"),
        limit => limit.map_err(|_| "use a whole number, at most 4294967295"),
    }
}

fn quota(text: &str) -> Result<Quota, String> {
    let quota = text
        .parse()
        .map_err(|error: ParseError| error.to_string())?;
    Ok(limit(text.split('/').next().unwrap_or_default()).map(|_| quota)?)
}

/// Parses a duration above zero.
fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("use a length above zero, such as 1s".to_owned()),
        interval => interval.map_err(|error| error.to_string()),
    }
}

/// Parses an address that needs no resolver, because a relay adds only its own delays.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "write an IP address and a port, such as 127.0.0.1:8082")
}

/// Returns one line with the option and the reason. The rest of clap's message is general advice.
pub(crate) fn refusal(error: &clap::Error) -> String {
    let error = error.to_string();
    let first = error
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty());
    let first = first.collect::<Vec<_>>().join(" ");
    format!("{first}; see --help")
}

const NOTES: &str = "\
Prints a line of JSON with its addresses, serves until SIGINT or SIGTERM, then prints the totals of
its ledger as a second line.

tds-sim relay --to IP:PORT [--there DELAY] [--back DELAY] [--seed SEED] [--port PORT]
is a network with delays in front of an address. It prints its address, and its counts at the end.

DELAY is none, 20ms, uniform:0ms:50ms, lognormal:10ms:200ms, pareto:5ms:1.5 or stall:5s:300ms.
FAULT strikes each call, FAULT@every:N every N-th one, FAULT@0.01 one in a hundred at random, and
FAULT@/v1/live/* only calls of that path. Repeat --fault and --token-fault for several faults.";

const LIMITS: &str = "Limits";
const TOKENS: &str = "Tokens";
const ANSWERS: &str = "Answers";
const FAULTS: &str = "Faults";
const RUNNING: &str = "Running";
