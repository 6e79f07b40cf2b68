//! Switches for the faults.

use clap::Args;
use tds_sim::{Config, DataFault, Delay, Scripted, TokenFault};

#[derive(Debug, Args)]
#[command(next_help_heading = "Faults")]
pub(super) struct Faults {
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

// === impl Faults ===

impl Faults {
    pub(super) fn apply(self, config: &mut Config) {
        config.faults.before_counting = self.delay_counting;
        config.faults.before_head = self.delay_head;
        config.faults.during_body = self.delay_body;
        config.faults.data = self.fault;
        config.faults.token = self.token_fault;
        config.seed = self.seed;
    }
}
