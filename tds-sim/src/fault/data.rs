//! Faults of the data endpoints.

use std::{str::FromStr, time::Duration};

use crate::text::{self, ParseError};

/// What can go wrong with the answer to a data call.
///
/// Faults of the head strike after the call has been counted, in place of whatever the answer
/// would have been but a 416 or 423. Faults of the body strike any answer's body, halfway if its
/// length is known, otherwise after its first piece.
///
/// Without a socket, a reset and garbage are an [`Error`](crate::Error), of the service if no head
/// was sent, else of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataFault {
    /// `reset-head`: a TCP reset in place of the head.
    ResetHead,
    /// `reset-body`: a TCP reset within the body.
    ResetBody,
    /// `truncate`: the body ends early, whatever its length or chunks say.
    Truncate,
    /// `endless`: the body never ends.
    Endless,
    /// `drip:PAUSE`: one byte at a time.
    Drip(Duration),
    /// `stall:PAUSE`: one pause within the body.
    Stall(Duration),
    /// `garbage`: bytes that are not HTTP.
    Garbage,
    /// `STATUS` or `STATUS:BURST`: this status to so many calls in a row.
    Status {
        /// The status, 500 to 599.
        status: u16,
        /// How many calls in a row, the one it strikes first included.
        burst: u32,
    },
}

// === impl DataFault ===

impl FromStr for DataFault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "reset-head" => Ok(Self::ResetHead),
            "reset-body" => Ok(Self::ResetBody),
            "truncate" => Ok(Self::Truncate),
            "endless" => Ok(Self::Endless),
            "garbage" => Ok(Self::Garbage),
            "drip" => text::duration(value).map(Self::Drip),
            "stall" => text::duration(value).map(Self::Stall),
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

const DATA_FAULTS: &str = "reset-head, reset-body, truncate, endless, drip:PAUSE, stall:PAUSE, \
     garbage or 5xx[:BURST], each alone or with @every:N or @CHANCE";
