//! Switches for the tokens.

use clap::Args;
use tds_sim::Config;

#[derive(Debug, Args)]
#[command(next_help_heading = "Tokens")]
pub(super) struct Tokens {
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

// === impl Tokens ===

impl Tokens {
    pub(super) fn apply(self, config: &mut Config) {
        config.expires_in = self.expires_in;
        config.skew_seconds = self.skew;
        config.roles = self.roles;
    }
}
