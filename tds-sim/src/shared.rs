//! The state that every clone of the simulator shares.

use std::sync::{Arc, Mutex};

use crate::{
    clock::Clock,
    config::Config,
    error_body::ErrorBody,
    fault::Script,
    gate::Gate,
    ledger::Ledger,
    quota::Usage,
    realm::{ApiKey, Realm},
};

/// The state of a simulator. Each lock is held for a few statements, and `gate` is the only one
/// under which another is taken, the ledger's.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<Clock>,
    pub(crate) config: Config,
    pub(crate) ledger: Ledger,
    pub(crate) gate: Arc<Mutex<Gate>>,
    pub(crate) usage: Mutex<Usage>,
    pub(crate) realm: Mutex<Realm>,
    pub(crate) script: Mutex<Script>,
    pub(crate) error_body: Mutex<ErrorBody>,
    /// The key everybody is told about.
    pub(crate) api_key: ApiKey,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let clock = Arc::new(Clock::start(config.skew_seconds));
        let (realm, api_key) = Realm::new(Arc::clone(&clock), &config);
        Self {
            ledger: Ledger::new(Arc::clone(&clock), config.arrivals_kept),
            gate: Arc::new(Mutex::new(Gate::new(&config))),
            usage: Mutex::new(Usage::of(config.quota)),
            script: Mutex::new(Script::new(
                Arc::clone(&clock),
                config.faults.clone(),
                config.seed,
            )),
            error_body: Mutex::new(config.error_body),
            api_key,
            realm: Mutex::new(realm),
            clock,
            config,
        }
    }
}
