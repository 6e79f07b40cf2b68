//! Switches for the limits, and for how they are counted.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tds_sim::{Config, CountConnections, Quota, RetryAfter, Rule, parse_duration};

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct Limits {
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Counting {
    Accepted,
    Busy,
}

// === impl Limits ===

impl Limits {
    pub(super) fn apply(self, config: &mut Config) {
        config.rule = self.rule;
        config.rate = self.rate;
        config.per = self.per;
        config.connections = self.connections;
        config.counting = match self.count_connections {
            Counting::Accepted => CountConnections::Accepted,
            Counting::Busy => CountConnections::Busy,
        };
        config.quota = self.quota;
        if self.retry_after {
            config.retry_after = RetryAfter::Seconds;
        }
    }
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
