//! The transport data service, simulated from its contract and audited.

mod body;
mod clock;
mod config;
mod data;
mod delay;
mod encoding;
mod entry;
mod error;
mod error_body;
mod fault;
pub mod future;
mod gate;
mod ledger;
mod lock;
mod oidc;
mod quota;
mod realm;
mod rule;
mod server;
mod shared;
mod sim;
mod socket;
mod text;

pub use self::{
    body::Body,
    config::{Config, CountConnections, Framing, Ports, RetryAfter, Tls},
    delay::{Delay, ParseDelayError, ParseDurationError, parse_duration},
    error::Error,
    error_body::{ErrorBody, ParseErrorBodyError},
    fault::{DataFault, FalseExpiry, Faults, Scripted, TokenFault, When},
    ledger::{Arrival, Ledger, Outcome, Summary},
    quota::Quota,
    realm::ApiKey,
    rule::{Meter, ParseRuleError, Rule},
    server::Server,
    sim::Sim,
    socket::Connection,
    text::ParseError,
};
