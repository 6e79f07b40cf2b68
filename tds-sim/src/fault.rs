//! Faults: scripted, seeded, and changeable while the simulator runs.

use crate::delay::Delay;

mod data;
mod script;
mod token;
mod when;

pub(crate) use self::script::{BodyFault, BodyFaults, HeadFault, Script};
pub use self::{
    data::DataFault,
    token::{FalseExpiry, TokenFault},
    when::{Scripted, When},
};

/// Everything that goes wrong, at once. The default is nothing.
///
/// Several faults may strike the same answer: a `503` in drips is two of them.
///
/// # Examples
/// ```
/// let mut faults = tds_sim::Faults::default();
/// faults.before_counting = "uniform:0ms:50ms".parse()?;
/// faults.data.push("reset-body@every:10".parse()?);
/// faults.data.push("503:3@0.01".parse()?);
/// faults.token.push("slow:2s".parse()?);
///
/// let sim = tds_sim::Sim::new(tds_sim::Config::default());
/// sim.set_faults(faults);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Wait between a data call's head and its being counted: the way there.
    pub before_counting: Delay,
    /// Wait between a data call's being counted and the head of its answer: the service's work.
    pub before_head: Delay,
    /// The same for the calls whose targets end in this text, in its place.
    pub before_head_of: Option<(String, Delay)>,
    /// Wait before each piece of the body of a data answer, of at most 16 KiB.
    pub during_body: Delay,
    /// Faults of the data endpoints.
    pub data: Vec<Scripted<DataFault>>,
    /// Faults of the token endpoint.
    pub token: Vec<Scripted<TokenFault>>,
}
