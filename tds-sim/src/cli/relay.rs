//! Switches for the network in front of an address.

use std::net::SocketAddr;

use clap::Args;
use tds_sim::{Delay, Network};

use super::Role;

#[derive(Debug, Args)]
pub(super) struct Relay {
    /// The address to relay to
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
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

// === impl Role ===

impl From<Relay> for Role {
    fn from(relay: Relay) -> Self {
        let mut network = Network::default();
        network.there = relay.there;
        network.back = relay.back;
        network.seed = relay.seed;
        network.port = relay.port;
        Self::Relay(relay.to, network)
    }
}

/// An address that needs no resolver: a relay adds its own delays and no others.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "write an IP address and a port, such as 127.0.0.1:8082")
}
