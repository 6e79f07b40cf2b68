//! The switches of the program.

use std::net::SocketAddr;

use clap::{Parser, Subcommand};
use tds_sim::{Config, Network};

use self::{
    answers::Answers, faults::Faults, limits::Limits, relay::Relay, running::Running,
    tokens::Tokens,
};

mod answers;
mod faults;
mod limits;
mod refusal;
mod relay;
mod running;
mod tokens;

pub(crate) use self::refusal::refusal;

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
    Service(Box<Config>),
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

// === impl Role ===

impl From<Cli> for Role {
    fn from(cli: Cli) -> Self {
        if let Some(Instead::Relay(relay)) = cli.instead {
            return relay.into();
        }
        let mut config = Config::default();
        cli.limits.apply(&mut config);
        cli.tokens.apply(&mut config);
        cli.answers.apply(&mut config);
        cli.faults.apply(&mut config);
        cli.running.apply(&mut config);
        Self::Service(Box::new(config))
    }
}
