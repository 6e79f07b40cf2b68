//! The times of a fault: which calls it strikes.

use std::{num::NonZeroU64, str::FromStr};

use crate::text::ParseError;

/// A fault and when it strikes. Written as text: `FAULT`, `FAULT@every:N` or `FAULT@CHANCE`.
///
/// # Examples
/// ```
/// use tds_sim::{DataFault, Scripted, When};
///
/// let scripted: Scripted<DataFault> = "reset-head@0.25".parse()?;
/// assert_eq!(scripted, Scripted::new(DataFault::ResetHead, When::Chance(0.25)));
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scripted<F> {
    fault: F,
    when: When,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// Each time.
    #[default]
    Always,
    /// Each n-th time.
    Every(NonZeroU64),
    /// By chance, from the simulator's seed.
    Chance(f64),
}

// === impl Scripted ===

impl<F> Scripted<F> {
    /// `fault` strikes when `when` says so.
    #[must_use]
    pub const fn new(fault: F, when: When) -> Self {
        Self { fault, when }
    }

    pub(super) fn fault(&self) -> &F {
        &self.fault
    }

    pub(super) fn when(&self) -> When {
        self.when
    }
}

impl<F: FromStr<Err = ParseError>> FromStr for Scripted<F> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (fault, when) = match text.split_once('@') {
            Some((fault, when)) => (fault, when.parse()?),
            None => (text, When::Always),
        };
        Ok(Self {
            fault: fault.parse()?,
            when,
        })
    }
}

// === impl When ===

impl When {
    /// Whether it strikes the `nth` time, counted from one.
    pub(super) fn strikes(self, nth: u64, rng: &mut fastrand::Rng) -> bool {
        match self {
            Self::Always => true,
            Self::Every(n) => nth.is_multiple_of(n.get()),
            Self::Chance(chance) => rng.f64() < chance,
        }
    }
}

impl FromStr for When {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted =
            || ParseError::new("time of a fault", text, "every:N or a chance such as 0.01");
        if let Some(n) = text.strip_prefix("every:") {
            return n.parse().map(Self::Every).map_err(|_| wanted());
        }
        match text.parse() {
            Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(Self::Chance(chance)),
            Ok(_) | Err(_) => Err(wanted()),
        }
    }
}
