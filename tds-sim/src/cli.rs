//! The switches of the program.

use std::{net::SocketAddr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tds_sim::{
    Config, CountConnections, DataFault, Delay, ErrorBody, Framing, Network, Quota, RetryAfter,
    Rule, Scripted, Tls, TokenFault, parse_duration,
};

/// The transport data service, simulated from its contract and audited.
///
/// Prints one line of JSON that says where it is, serves until SIGINT, SIGTERM or the end of the
/// standard input, then prints the sums of its ledger as JSON.
#[derive(Debug, Parser)]
#[command(name = "tds-sim", args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    instead: Option<Instead>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    tokens: Tokens,
    #[command(flatten)]
    answers: Answers,
    #[command(flatten)]
    faults: Faults,
    #[command(flatten)]
    running: Running,
}

/// What the program is to be.
#[derive(Debug)]
pub(crate) enum Role {
    Service(Config),
    Relay(SocketAddr, Network),
}

/// What the program can be instead of the service.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Be a network in front of an address, with delays
    ///
    /// Prints one line of JSON that says where it is, relays until SIGINT, SIGTERM or the end of
    /// the standard input, then prints its counts as JSON.
    Relay(Relay),
}

#[derive(Debug, Args)]
struct Relay {
    /// The address to relay to
    #[arg(long, value_name = "IP:PORT")]
    to: SocketAddr,
    /// Delay from the client to the server: none, 20ms, uniform:0ms:50ms, lognormal:10ms:200ms,
    /// pareto:5ms:1.5 or stall:5s:300ms
    #[arg(long, value_name = "DELAY", default_value = "none")]
    there: Delay,
    /// Delay from the server to the client
    #[arg(long, value_name = "DELAY", default_value = "none")]
    back: Delay,
    /// Where all delays come from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// How requests are counted: fixed, log, log-all, counter, leaky:BURST or in-flight
    #[arg(long, default_value = "log")]
    rule: Rule,
    /// Requests per interval and IP address before 423
    #[arg(long, default_value_t = 50, allow_negative_numbers = true)]
    rate: u32,
    /// The interval of --rate
    #[arg(long, default_value = "1s", value_parser = interval)]
    per: Duration,
    /// Parallel connections per IP address before 416
    #[arg(long, default_value_t = 60)]
    connections: u32,
    /// What is a connection: every accepted socket, or every request in progress
    #[arg(long, value_enum, default_value_t = Counting::Accepted)]
    count_connections: Counting,
    /// Calls of a key per window before 429, such as 20/60s
    #[arg(long, value_name = "CALLS/WINDOW")]
    quota: Option<Quota>,
    /// Say in a 429 when to come back
    #[arg(long)]
    retry_after: bool,
}

/// A duration in which something can be counted.
fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err(String::from(
            "nothing can be counted in no time: write 1s or another length above zero",
        )),
        Ok(interval) => Ok(interval),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Tokens")]
struct Tokens {
    /// Lifetime of tokens in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    expires_in: u64,
    /// By how much the wall clock in the tokens is wrong
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    skew: i64,
    /// Realm roles of the keys
    #[arg(
        long,
        value_name = "ROLE,...",
        value_delimiter = ',',
        default_value = "live,history"
    )]
    roles: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Answers")]
struct Answers {
    /// Format of error bodies: json, text, html, xml or empty
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    error_body: ErrorBody,
    /// Size of a live resource
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    live_bytes: u64,
    /// Size of a historical resource, unless the query says bytes=
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576)]
    history_bytes: u64,
    /// Speed of a historical resource, unless the query says rate=
    #[arg(long, value_name = "BYTES/S")]
    history_rate: Option<u64>,
    /// Send historical resources in chunks, without a length, unless the query says framing=
    #[arg(long)]
    history_chunked: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Faults")]
struct Faults {
    /// Delay before a call is counted: none, 20ms, uniform:0ms:50ms, lognormal:10ms:200ms,
    /// pareto:5ms:1.5 or stall:5s:300ms
    #[arg(long, value_name = "DELAY", default_value = "none")]
    delay_counting: Delay,
    /// Delay between count and head
    #[arg(long, value_name = "DELAY", default_value = "none")]
    delay_head: Delay,
    /// Delay before each piece of a body
    #[arg(long, value_name = "DELAY", default_value = "none")]
    delay_body: Delay,
    /// reset-head, reset-body, truncate, endless, drip:PAUSE, stall:PAUSE, garbage or 5xx[:BURST],
    /// alone, or with @every:N or @CHANCE; may be given several times
    #[arg(long)]
    fault: Vec<Scripted<DataFault>>,
    /// down, 503, slow:PAUSE, html, wrong-json or expires-in:zero|negative|absent|huge|string,
    /// alone, or with @every:N or @CHANCE; may be given several times
    #[arg(long)]
    token_fault: Vec<Scripted<TokenFault>>,
    /// Where all chance comes from; the first key follows from it too
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Running")]
struct Running {
    /// Speak TLS 1.2 and 1.3; the line of JSON names the authority's certificate as `ca_file`
    #[arg(long)]
    tls: bool,
    /// Port of the token endpoint; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    auth_port: u16,
    /// Port of the data endpoints
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    data_port: u16,
    /// Port of the ledger and the controls
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
    /// How many arrivals the ledger lists, the newest
    #[arg(long, value_name = "CALLS", default_value_t = 1_000_000)]
    arrivals_kept: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Counting {
    Accepted,
    Busy,
}

// === impl Role ===

impl From<Cli> for Role {
    fn from(cli: Cli) -> Self {
        match cli.instead {
            Some(Instead::Relay(relay)) => {
                let mut network = Network::default();
                network.there = relay.there;
                network.back = relay.back;
                network.seed = relay.seed;
                network.port = relay.port;
                Self::Relay(relay.to, network)
            }
            None => Self::Service(cli.into()),
        }
    }
}

// === impl Config ===

impl From<Cli> for Config {
    fn from(
        Cli {
            limits,
            tokens,
            answers,
            faults,
            running,
            instead: _,
        }: Cli,
    ) -> Self {
        let mut config = Self::default();
        config.rule = limits.rule;
        config.rate = limits.rate;
        config.per = limits.per;
        config.connections = limits.connections;
        config.counting = match limits.count_connections {
            Counting::Accepted => CountConnections::Accepted,
            Counting::Busy => CountConnections::Busy,
        };
        config.quota = limits.quota;
        if limits.retry_after {
            config.retry_after = RetryAfter::Seconds;
        }
        config.expires_in = tokens.expires_in;
        config.skew_seconds = tokens.skew;
        config.roles = tokens.roles;
        config.error_body = answers.error_body;
        config.live_bytes = answers.live_bytes;
        config.history_bytes = answers.history_bytes;
        config.history_rate = answers.history_rate;
        if answers.history_chunked {
            config.history_framing = Framing::Chunked;
        }
        config.faults.before_counting = faults.delay_counting;
        config.faults.before_head = faults.delay_head;
        config.faults.during_body = faults.delay_body;
        config.faults.data = faults.fault;
        config.faults.token = faults.token_fault;
        config.seed = faults.seed;
        if running.tls {
            config.tls = Tls::On;
        }
        config.ports.auth = running.auth_port;
        config.ports.data = running.data_port;
        config.ports.admin = running.admin_port;
        config.arrivals_kept = running.arrivals_kept;
        config
    }
}
