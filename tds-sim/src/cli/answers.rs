//! Switches for the answers.

use clap::Args;
use tds_sim::{Config, ErrorBody, Framing};

#[derive(Debug, Args)]
#[command(next_help_heading = "Answers")]
pub(super) struct Answers {
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

// === impl Answers ===

impl Answers {
    pub(super) fn apply(self, config: &mut Config) {
        config.error_body = self.error_body;
        config.live_bytes = self.live_bytes;
        config.history_bytes = self.history_bytes;
        config.history_rate = self.history_rate;
        if self.history_chunked {
            config.history_framing = Framing::Chunked;
        }
    }
}
