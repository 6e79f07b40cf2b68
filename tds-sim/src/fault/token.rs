//! Faults of the token endpoint.

use std::{str::FromStr, time::Duration};

use crate::text::{self, ParseError};

/// What can go wrong with a token POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenFault {
    /// `down`: the connection is closed without an answer.
    Down,
    /// `503`: the answer is 503.
    Unavailable,
    /// `slow:PAUSE`: the answer is right, and late.
    Slow(Duration),
    /// `html`: the answer is 200 and a page.
    Html,
    /// `wrong-json`: the answer is 200 and an object whose `access_token` is a number.
    WrongJson,
    /// `expires-in:WHAT`: the answer is right but for `expires_in`; the token lives as long as
    /// ever.
    ExpiresIn(FalseExpiry),
}

/// What stands in place of `expires_in`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FalseExpiry {
    /// `zero`: 0.
    Zero,
    /// `negative`: -1.
    Negative,
    /// `absent`: nothing.
    Absent,
    /// `huge`: 2^63, one more than fits into a signed 64-bit integer.
    Huge,
    /// `string`: the right number, in quotes.
    Text,
}

// === impl TokenFault ===

impl FromStr for TokenFault {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match (name, value) {
            ("down", "") => Ok(Self::Down),
            ("503", "") => Ok(Self::Unavailable),
            ("slow", pause) => text::duration(pause).map(Self::Slow),
            ("html", "") => Ok(Self::Html),
            ("wrong-json", "") => Ok(Self::WrongJson),
            ("expires-in", "zero") => Ok(Self::ExpiresIn(FalseExpiry::Zero)),
            ("expires-in", "negative") => Ok(Self::ExpiresIn(FalseExpiry::Negative)),
            ("expires-in", "absent") => Ok(Self::ExpiresIn(FalseExpiry::Absent)),
            ("expires-in", "huge") => Ok(Self::ExpiresIn(FalseExpiry::Huge)),
            ("expires-in", "string") => Ok(Self::ExpiresIn(FalseExpiry::Text)),
            _ => Err(ParseError::new("token fault", text, TOKEN_FAULTS)),
        }
    }
}

const TOKEN_FAULTS: &str = "down, 503, slow:PAUSE, html, wrong-json or \
     expires-in:zero|negative|absent|huge|string, each alone or with @every:N or @CHANCE";
