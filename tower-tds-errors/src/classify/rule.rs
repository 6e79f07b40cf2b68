//! Rules of the user, over what the crate's own table says.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};

use super::failure::Failure;
use crate::kind::Kind;

/// Overrides what a failure means, or forbids that it is retried.
///
/// A rule holds where all its conditions do. Rules are tried in the order in which a layer was
/// given them and each sees what those before it made of the failure, so the last one that holds
/// decides the kind. A [`veto`](Self::veto) stands, whatever comes after it.
///
/// Rules judge failures only: what passes as a success is not theirs.
///
/// # Examples
///
/// ```
/// use http::{HeaderName, Method, Request, Response, StatusCode};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, Kind, Rule, Stop};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let layer = ClassifyLayer::new()
///     // This service says 404 while it is deployed.
///     .rule(Rule::means(Kind::Unavailable).status(StatusCode::NOT_FOUND).message("no Route"))
///     .rule(Rule::veto().header(HeaderName::from_static("x-should-retry"), "false"))
///     .rule(Rule::veto().when(|failure| *failure.method() == Method::DELETE));
///
/// let client = service_fn(async |_: Request<()>| {
///     let answer = Response::builder().status(404).header("x-should-retry", "false");
///     Ok::<_, BoxError>(answer.body(String::from("no Route matched")).unwrap())
/// });
/// let error = layer.layer(client).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.kind(), Kind::Unavailable);
/// assert!(!error.is_retryable());
/// assert_eq!(error.stopped_because(), Some(Stop::Vetoed));
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until a layer has it"]
pub struct Rule {
    then: Then,
    conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Means(Kind),
    Veto,
}

#[derive(Clone)]
enum Condition {
    Status(StatusCode),
    Header(HeaderName, Box<str>),
    Message(Box<str>),
    When(Arc<dyn Fn(&Failure<'_>) -> bool + Send + Sync>),
}

// === impl Rule ===

impl Rule {
    /// A failure that meets the conditions is of this kind, and retried as the kind is.
    pub const fn means(kind: Kind) -> Self {
        Self::new(Then::Means(kind))
    }

    /// A failure that meets the conditions is never retried, whatever later rules say. Its kind
    /// stays.
    pub const fn veto() -> Self {
        Self::new(Then::Veto)
    }

    /// Asks for this status.
    pub fn status(self, status: StatusCode) -> Self {
        self.and(Condition::Status(status))
    }

    /// Asks for a header of the answer with this text in its value. ASCII case makes no difference.
    pub fn header(self, name: HeaderName, part: impl Into<Box<str>>) -> Self {
        self.and(Condition::Header(name, part.into()))
    }

    /// Asks for this text in [`Error::message`](crate::Error::message). ASCII case makes no difference.
    pub fn message(self, part: impl Into<Box<str>>) -> Self {
        self.and(Condition::Message(part.into()))
    }

    /// Asks a function, which sees the request and the answer or the transport error.
    pub fn when(self, holds: impl Fn(&Failure<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.and(Condition::When(Arc::new(holds)))
    }

    const fn new(then: Then) -> Self {
        Self {
            then,
            conditions: Vec::new(),
        }
    }

    fn and(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// What the rule says of a failure, if it holds.
    pub(super) fn judge(&self, failure: &Failure<'_>) -> Option<Then> {
        let mut conditions = self.conditions.iter();
        let holds = conditions.all(|condition| condition.holds(failure));
        holds.then_some(self.then)
    }
}

// === impl Condition ===

impl Condition {
    fn holds(&self, failure: &Failure<'_>) -> bool {
        match self {
            Self::Status(status) => failure.error().status() == Some(*status),
            Self::Header(name, part) => {
                let headers = failure.headers().into_iter();
                let values = headers.flat_map(|headers| headers.get_all(name));
                values
                    .map(HeaderValue::as_bytes)
                    .any(|value| contains(value, part))
            }
            Self::Message(part) => {
                let message = failure.error().message();
                message.is_some_and(|message| contains(message.as_bytes(), part))
            }
            Self::When(holds) => holds(failure),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => f.debug_tuple("Status").field(status).finish(),
            Self::Header(name, part) => f.debug_tuple("Header").field(name).field(part).finish(),
            Self::Message(part) => f.debug_tuple("Message").field(part).finish(),
            Self::When(_) => f.write_str("When(..)"),
        }
    }
}

fn contains(text: &[u8], part: &str) -> bool {
    let part = part.as_bytes();
    part.is_empty()
        || text
            .windows(part.len())
            .any(|window| window.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests;
