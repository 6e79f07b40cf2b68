//! Faults: scripted, seeded, and changeable while the simulator runs.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use crate::{
    delay::Delay,
    text::{ParseError, Pattern, parse_duration},
};

/// Faults that the simulator plays. There are none by default.
///
/// Several can strike the same answer: for example, a `503` whose body drips takes two faults.
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
    /// Time between the arrival of a data call's head and its count, which simulates a call that is
    /// still on its way.
    pub before_counting: Delay,
    /// Time between the count of a data call and the head of its answer, which simulates the
    /// service's work.
    pub before_head: Delay,
    /// Replaces `before_head` for calls whose target ends in this text.
    pub before_head_of: Option<(String, Delay)>,
    /// Faults of the data endpoints.
    pub data: Vec<Scripted<DataFault>>,
    /// Faults of the token endpoint.
    pub token: Vec<Scripted<TokenFault>>,
}

/// Fault, with the times and the path at which it strikes.
///
/// Write it as text: `FAULT`, `FAULT@every:N` or `FAULT@CHANCE`, each alone or with `@PATH`, such as
/// `503@every:2@/v1/live/*`. If you give a path, only its calls are struck and counted; `*` stands
/// for any characters.
///
/// # Examples
/// ```
/// use tds_sim::{DataFault, Scripted, When};
///
/// let scripted: Scripted<DataFault> = "reset-head@0.25".parse()?;
/// assert_eq!(scripted, Scripted::new(DataFault::ResetHead, When::Chance(0.25)));
/// # Ok::<_, tds_sim::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scripted<F> {
    fault: F,
    when: When,
    path: Option<Pattern>,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// The fault strikes every time.
    #[default]
    Always,
    /// The fault strikes every n-th time.
    Every(NonZeroU64),
    /// The fault strikes with this probability. The choices depend on the simulator's seed.
    Chance(f64),
}

/// Faults of the answer to a data call.
///
/// Faults of the head strike after the call has been counted. They replace the answer, unless it is
/// a 416 or 423. Faults of the body strike any answer's body. A drip or an endless body begins with
/// the first byte; the others come halfway if the length is known, otherwise after the first byte.
///
/// Without a socket, you get a reset or garbage as an [`Error`](crate::Error): from the service if no
/// head was sent, otherwise from the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataFault {
    /// `reset-head`: a TCP reset in place of the head.
    ResetHead,
    /// `reset-body`: a TCP reset within the body.
    ResetBody,
    /// `truncate`: the body ends early, before its declared length or last chunk.
    Truncate,
    /// `endless`: the body goes on for ever.
    Endless,
    /// `drip:PAUSE`: one byte at a time, each after this pause.
    Drip(Duration),
    /// `stall:PAUSE`: one pause within the body.
    Stall(Duration),
    /// `garbage`: bytes that are not HTTP.
    Garbage,
    /// `STATUS` or `STATUS:BURST`, for example `503:10`: answers with this status instead of the data, once or for that
    /// many calls in a row.
    Status {
        /// The status to answer with, from 500 to 599.
        status: u16,
        /// How many calls in a row get it, including the first.
        burst: u32,
    },
}

/// Faults of a POST to the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenFault {
    /// `down`: the connection is closed without an answer.
    Down,
    /// `503`: the answer is 503.
    Unavailable,
    /// `slow:PAUSE`: the right answer, after this pause.
    Slow(Duration),
    /// `html`: the answer is 200 and a page.
    Html,
}

/// Faults in force, with the calls that each has counted.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) faults: Faults,
    rng: fastrand::Rng,
    /// For each fault the number of calls at its path.
    calls: Vec<u64>,
    posts: Vec<u64>,
    /// Status of the current burst, the number of its calls that are left, and their path.
    burst: Option<(u16, u32, Option<Pattern>)>,
}

/// Faults of one data call.
#[derive(Debug)]
pub(crate) struct Strike {
    pub(crate) before_counting: Duration,
    pub(crate) before_head: Duration,
    /// Fault that replaces the head.
    pub(crate) head: Option<DataFault>,
    /// Fault within the body.
    pub(crate) body: Option<DataFault>,
}

// === impl Scripted ===

impl<F> Scripted<F> {
    /// Creates a fault that strikes at the times of `when`.
    #[must_use]
    pub const fn new(fault: F, when: When) -> Self {
        Self {
            fault,
            when,
            path: None,
        }
    }
}

impl<F: FromStr<Err = ParseError>> FromStr for Scripted<F> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (text, path) = match text.find("@/").and_then(|at| text.split_at_checked(at)) {
            Some((text, path)) => (text, Some(path.trim_start_matches('@').parse()?)),
            None => (text, None),
        };
        let (fault, when) = match text.split_once('@') {
            Some((fault, when)) => (fault, when.parse()?),
            None => (text, When::Always),
        };
        Ok(Self {
            fault: fault.parse()?,
            when,
            path,
        })
    }
}

/// Shows the fault as a person reads it.
impl<F: fmt::Debug> fmt::Display for Scripted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.fault, self.when)?;
        self.path.iter().try_for_each(|path| write!(f, ", {path}"))
    }
}

/// Counts a call of `path` for each fault of that path, and returns those that strike it.
fn strike<'a, F>(
    faults: &'a [Scripted<F>],
    calls: &mut [u64],
    path: &str,
    rng: &mut fastrand::Rng,
) -> Vec<&'a Scripted<F>> {
    let at_path = faults.iter().zip(calls);
    let at_path = at_path.filter(|(scripted, _)| is_at(scripted.path.as_ref(), path));
    let struck = at_path.filter_map(|(scripted, nth)| {
        *nth += 1;
        scripted.when.strikes(*nth, rng).then_some(scripted)
    });
    struck.collect()
}

fn is_at(wanted: Option<&Pattern>, path: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.matches(path))
}

// === impl When ===

impl When {
    /// Whether a fault strikes the `nth` time, counted from one.
    fn strikes(self, nth: u64, rng: &mut fastrand::Rng) -> bool {
        match self {
            Self::Always => true,
            Self::Every(n) => nth.is_multiple_of(n.get()),
            Self::Chance(chance) => rng.f64() < chance,
        }
    }
}

impl FromStr for When {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_chance = |chance: &f64| (0.0..=1.0).contains(chance);
        let when = match text.strip_prefix("every:") {
            Some(n) => n.parse().ok().map(Self::Every),
            None => text.parse().ok().filter(is_chance).map(Self::Chance),
        };
        when.ok_or_else(|| ParseError::new("time of a fault", text, TIMES))
    }
}

// === impl DataFault ===

impl FromStr for DataFault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "reset-head" => Ok(Self::ResetHead),
            "reset-body" => Ok(Self::ResetBody),
            "truncate" => Ok(Self::Truncate),
            "endless" => Ok(Self::Endless),
            "garbage" => Ok(Self::Garbage),
            "drip" => parse_duration(value).map(Self::Drip),
            "stall" => parse_duration(value).map(Self::Stall),
            status => match (
                status.parse(),
                if value.is_empty() { "1" } else { value }.parse(),
            ) {
                (Ok(status @ 500..=599), Ok(burst @ 1..)) => Ok(Self::Status { status, burst }),
                _ => Err(ParseError::new("fault", text, DATA_FAULTS)),
            },
        }
    }
}

// === impl TokenFault ===

impl FromStr for TokenFault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match (name, value) {
            ("down", "") => Ok(Self::Down),
            ("503", "") => Ok(Self::Unavailable),
            ("slow", pause) => parse_duration(pause).map(Self::Slow),
            ("html", "") => Ok(Self::Html),
            _ => Err(ParseError::new("token fault", text, TOKEN_FAULTS)),
        }
    }
}

// === impl Script ===

impl Script {
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let mut script = Self {
            rng,
            ..Self::default()
        };
        script.replace(faults);
        script
    }

    /// Replaces the faults. Calls are counted from one again.
    pub(crate) fn replace(&mut self, faults: Faults) {
        self.calls = vec![0; faults.data.len()];
        self.posts = vec![0; faults.token.len()];
        self.faults = faults;
        self.burst = None;
    }

    /// Returns the faults of the next data call, for `target` at `at`.
    pub(crate) fn call(&mut self, target: &str, at: Duration) -> Strike {
        let own = self.faults.before_head_of.as_ref();
        let own = own.filter(|(end, _)| target.ends_with(end));
        let before_head = own.map_or(self.faults.before_head, |(_, delay)| *delay);
        let mut strike = Strike {
            before_counting: self.faults.before_counting.sample(at, &mut self.rng),
            before_head: before_head.sample(at, &mut self.rng),
            head: None,
            body: None,
        };
        let path = target.split('?').next().unwrap_or_default();
        for scripted in self::strike(&self.faults.data, &mut self.calls, path, &mut self.rng) {
            match scripted.fault {
                fault @ (DataFault::ResetHead | DataFault::Garbage) => strike.head = Some(fault),
                DataFault::Status { status, burst } => {
                    self.burst = Some((status, burst, scripted.path.clone()));
                }
                fault => strike.body = Some(fault),
            }
        }
        if let Some((status, left @ 1.., at)) = &mut self.burst
            && is_at(at.as_ref(), path)
        {
            *left -= 1;
            let fault = DataFault::Status {
                status: *status,
                burst: 1,
            };
            strike.head = strike.head.or(Some(fault));
        }
        strike
    }

    /// Returns the fault of the next token POST: the first that applies.
    pub(crate) fn post(&mut self, path: &str) -> Option<TokenFault> {
        let struck = strike(&self.faults.token, &mut self.posts, path, &mut self.rng);
        struck.first().map(|scripted| scripted.fault)
    }
}

const TIMES: &str = "every:N or a chance such as 0.01";

const DATA_FAULTS: &str = "reset-head, reset-body, truncate, endless, drip:PAUSE, stall:PAUSE, \
     garbage or 5xx[:BURST], each alone or with @every:N or @CHANCE, and with @PATH";

const TOKEN_FAULTS: &str = "down, 503, slow:PAUSE or html, each alone or with @every:N or @CHANCE";
