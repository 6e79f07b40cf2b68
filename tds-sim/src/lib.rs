//! A simulator of the transport data service, written from its contract, with a ledger of all
//! calls.
//!
//! Use it to test a client of the service. It issues tokens, serves data, enforces the limits by any rule that the contract allows,
//! plays the faults that you script, and keeps a ledger of what it saw. Because it judges the other crates of this repository, it
//! shares no code and no constant with them.
//!
//! ```text
//!              Sim: a plain service                              Ledger
//! request ---> 416 -> 423 -> fault -> 401 -> 429 -> stub, file --> time, peer, target, headers,
//!              per address            per key       or resource   token, status, end; totals;
//!              (Rule, Meter)                        body, paced   sockets
//! ```
//!
//! [`Sim`] is a [`tower_service::Service`] that runs without a socket and under a paused clock. [`Server`] puts it on three sockets,
//! by default of the loopback interface: one for tokens, one for data, and one to read the ledger and to control the simulator;
//! its page has three tests to copy. Put [`Relay`], a network, in front of it or any other server. The program `tds-sim` runs
//! the server or the relay without code.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `coding` | no | br and gzip, for requests that accept them |
//! | `http2` | no | HTTP/2 on sockets, besides HTTP/1.1 |
//! | `tls` | no | TLS 1.2 and 1.3 on sockets (`Config::tls`) |
//! | `cli` | no | the program `tds-sim`, with all of the above |
//!
//! # Examples
//! ```
//! use http::Request;
//! use tds_sim::{Config, Rule, Sim};
//! use tower::ServiceExt as _;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = Config::default();
//! config.rule = Rule::LeakyBucket { burst: 10 };
//! let sim = Sim::new(config);
//! let token = sim.token(sim.client_id())?;
//!
//! for _ in 0..20 {
//!     let call = Request::get("http://data.example/v1/live/bus")
//!         .header("authorization", format!("Bearer {token}"))
//!         .body(String::new())?;
//!     sim.clone().oneshot(call).await?;
//! }
//! let summary = sim.ledger().summary();
//! assert_eq!(summary.by_status, [(200, 11), (423, 9)].into());
//! assert_eq!(summary.largest_second, 20);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - Every call is in the ledger before it is answered, with the time at which it counted against
//!   the limits.
//! - Each socket counts from its accept until just before the server closes it. When your client reads the end of one connection,
//!   it can open the next one within the limit.
//! - The same seed and the same sequence of calls give the same faults, delays and API keys. Tokens
//!   differ, because each simulator makes a new signing key.
//!
//! # Non-goals
//! Tokens that another issuer signed or that are signed with RS256, `private_key_jwt`, HTTP/3, speed.

mod body;
mod clock;
mod config;
mod data;
mod delay;
mod entry;
mod error;
mod error_body;
mod fault;
mod intake;
mod ledger;
mod limits;
mod oidc;
mod realm;
mod relay;
mod resource;
mod rule;
mod server;
mod sim;
mod socket;
mod state;
mod stub;
mod text;

pub use self::{
    body::Body,
    config::{Config, CountConnections, Quota},
    delay::Delay,
    error::Error,
    error_body::ErrorBody,
    fault::{DataFault, Faults, Scripted, TokenFault, When},
    ledger::{Arrival, Ledger, Outcome, Summary},
    realm::ApiKey,
    relay::{Counts, Network, Relay},
    rule::{Meter, Rule},
    server::Server,
    sim::Sim,
    state::Part,
    text::{ParseError, parse_duration},
};
