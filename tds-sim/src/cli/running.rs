//! Switches for the listeners, and for how much is kept.

use clap::Args;
use tds_sim::{Config, Tls};

#[derive(Debug, Args)]
#[command(next_help_heading = "Running")]
pub(super) struct Running {
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

// === impl Running ===

impl Running {
    pub(super) fn apply(self, config: &mut Config) {
        if self.tls {
            config.tls = Tls::On;
        }
        config.ports.auth = self.auth_port;
        config.ports.data = self.data_port;
        config.ports.admin = self.admin_port;
        config.arrivals_kept = self.arrivals_kept;
    }
}
