//! The transport data service, simulated from its contract and audited.

mod rule;

pub use self::rule::{Meter, ParseRuleError, Rule};
