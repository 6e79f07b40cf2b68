//! State that every clone of the simulator shares.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, OnceLock},
};

use crate::{
    clock::{Clock, lock},
    config::Config,
    fault::Script,
    intake::Intake,
    ledger::Ledger,
    limits::{Gate, Usage},
    realm::{ApiKey, Realm},
    stub::Stubs,
    text::{ParseError, word},
};

/// State of a simulator. Each lock is held for a few statements, and only the intake takes two.
pub(crate) struct State {
    pub(crate) clock: Arc<Clock>,
    /// Settings at the start, and those in force.
    initial: Arc<Config>,
    config: Mutex<Arc<Config>>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) usage: Mutex<Usage>,
    pub(crate) realm: Mutex<Realm>,
    pub(crate) script: Mutex<Script>,
    pub(crate) stubs: Mutex<Stubs>,
    /// First key, which the program prints.
    pub(crate) api_key: ApiKey,
    /// URL of the auth listener, if there is one.
    pub(crate) auth_url: OnceLock<String>,
}

/// Part of the simulator that you can [reset](crate::Sim::reset). As text, write `ledger`,
/// `faults`, `settings`, `tokens`, `limits` or `stubs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Forgets all calls, including those in progress, and all totals. Open sockets stay counted.
    Ledger,
    /// Restores the faults of the start. Their counts and the seed begin again.
    Faults,
    /// Restores the settings of the start, and the keys with their secrets and roles.
    Settings,
    /// Makes every token invalid; the next one has generation 1. The signing key stays.
    Tokens,
    /// Sets the counts of requests and of calls to zero. Open sockets and calls in progress stay
    /// counted.
    Limits,
    /// Removes all stubs.
    Stubs,
}

// === impl State ===

impl State {
    pub(crate) fn new(initial: Config) -> Self {
        let config = Arc::new(initial);
        let clock = Arc::new(Clock::start());
        let (realm, api_key) = Realm::new(Arc::clone(&clock), &config);
        let (kept, headers) = (config.arrivals_kept, config.record_headers);
        let ledger = Ledger::new(Arc::clone(&clock), kept, headers);
        let gate = Mutex::new(Gate::new(Arc::clone(&config)));
        let script = Script::new(config.faults.clone(), config.seed);
        Self {
            intake: Arc::new(Intake { ledger, gate }),
            usage: Mutex::new(Usage::of(config.quota)),
            script: Mutex::new(script),
            stubs: Mutex::default(),
            api_key,
            realm: Mutex::new(realm),
            clock,
            config: Mutex::new(Arc::clone(&config)),
            initial: config,
            auth_url: OnceLock::new(),
        }
    }

    /// Returns the settings in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    /// Puts settings in force. If a limit changes, it counts from zero.
    pub(crate) fn set(&self, config: Config) {
        let config = Arc::new(config);
        let old = std::mem::replace(&mut *lock(&self.config), Arc::clone(&config));
        let limits = |of: &Config| (of.rule, of.rate, of.per, of.connections, of.counting);
        if config.quota != old.quota {
            *lock(&self.usage) = Usage::of(config.quota);
        }
        lock(&self.realm).expires_in = config.expires_in;
        if limits(&config) != limits(&old) {
            lock(&self.intake.gate).restart(config, self.clock.now());
        }
    }

    /// Returns a part to its state at the start.
    pub(crate) fn reset(&self, part: Part) {
        match part {
            Part::Ledger => self.intake.ledger.clear(),
            Part::Faults => {
                let config = &self.initial;
                *lock(&self.script) = Script::new(config.faults.clone(), config.seed);
            }
            Part::Settings => {
                self.set((*self.initial).clone());
                lock(&self.realm).reset_keys(&self.initial);
            }
            Part::Tokens => lock(&self.realm).tokens.reset(),
            Part::Limits => {
                let config = self.config();
                *lock(&self.usage) = Usage::of(config.quota);
                lock(&self.intake.gate).restart(config, self.clock.now());
            }
            Part::Stubs => *lock(&self.stubs) = Stubs::default(),
        }
    }
}

// === impl Part ===

impl Part {
    /// Every part.
    pub const ALL: [Self; 6] = {
        use Part::{Faults, Ledger, Limits, Settings, Stubs, Tokens};
        [Ledger, Faults, Settings, Tokens, Limits, Stubs]
    };
}

impl FromStr for Part {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = ["ledger", "faults", "settings", "tokens", "limits", "stubs"];
        let words: Vec<_> = words.into_iter().zip(Self::ALL).collect();
        word("part", text, &words)
    }
}
