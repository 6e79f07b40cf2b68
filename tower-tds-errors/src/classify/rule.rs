//! What a user's service means instead, over what the crate's own table says.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::error::Error;
use crate::kind::Kind;

/// Overrides what a failure means, or forbids that it is retried.
///
/// A rule holds where all its conditions do. Rules are tried in the order in which a layer was
/// given them and each sees what those before it made of the failure, so the last one that holds
/// decides the kind. A [`veto`](Self::veto) stands, whatever comes after it. Whether the request was
/// sent is no rule's to say.
///
/// Rules judge failures only: what passes as a success is not theirs.
///
/// # Examples
///
/// ```
/// use http::{HeaderName, Request, Response, StatusCode};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{ClassifyLayer, GiveUp, Kind, Rule};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let layer = ClassifyLayer::new()
///     // This service says 404 while it is deployed.
///     .rule(Rule::means(Kind::Unavailable).status(StatusCode::NOT_FOUND).message("no Route"))
///     .rule(Rule::veto().header(HeaderName::from_static("x-should-retry"), "false"));
///
/// let client = service_fn(async |_: Request<()>| {
///     let answer = Response::builder().status(404).header("x-should-retry", "false");
///     Ok::<_, BoxError>(answer.body(String::from("no Route matched")).unwrap())
/// });
/// let error = layer.layer(client).oneshot(Request::new(())).await.unwrap_err();
/// assert_eq!(error.kind(), Kind::Unavailable);
/// assert!(!error.is_retryable());
/// assert_eq!(error.gave_up(), Some(GiveUp::Forbidden));
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing until a layer has it"]
pub struct Rule {
    then: Then,
    conditions: Vec<Condition>,
}

/// The rules of a layer, and its hook.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) list: Vec<Rule>,
    pub(crate) hook: Option<Hook>,
}

pub(crate) type Hook = Arc<dyn Fn(&mut Error, Option<&HeaderMap>) + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum Then {
    Means(Kind),
    Veto,
}

#[derive(Clone, Debug)]
enum Condition {
    Status(StatusCode),
    Header(HeaderName, Box<str>),
    Message(Box<str>),
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

    fn holds(&self, error: &Error, headers: Option<&HeaderMap>) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Status(status) => error.status() == Some(*status),
            Condition::Header(name, part) => {
                let mut values = headers
                    .into_iter()
                    .flat_map(|headers| headers.get_all(name));
                values.any(|value| contains(HeaderValue::as_bytes(value), part))
            }
            Condition::Message(part) => {
                let message = error.message().unwrap_or_default();
                contains(message.as_bytes(), part)
            }
        })
    }
}

// === impl Rules ===

impl Rules {
    /// Lets the rules, and then the hook, change the kind of `error` and forbid that it is retried.
    ///
    /// An error that has stopped a retry layer below is settled.
    pub(super) fn judge(&self, error: &mut Error, headers: Option<&HeaderMap>) {
        if error.gave_up().is_some() {
            return;
        }
        let mut vetoed = false;
        for rule in &self.list {
            if rule.holds(error, headers) {
                match rule.then {
                    Then::Means(kind) => error.set_kind(kind),
                    Then::Veto => vetoed = true,
                }
            }
        }
        if let Some(hook) = &self.hook {
            hook(error, headers);
        }
        if vetoed {
            error.forbid_retry();
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Rules");
        f.field("list", &self.list);
        f.field("hook", &self.hook.is_some()).finish()
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
