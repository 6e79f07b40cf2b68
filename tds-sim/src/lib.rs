//! The transport data service, simulated from its contract and audited.

mod delay;
mod rule;

pub use self::{
    delay::{Delay, ParseDelayError, ParseDurationError, parse_duration},
    rule::{Meter, ParseRuleError, Rule},
};
