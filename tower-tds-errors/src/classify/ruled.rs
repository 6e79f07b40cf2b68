//! A request under rules: what of it they may ask for.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, Uri};

use super::failure::Failure;
use super::rule::{Rule, Then};
use crate::error::Error;
use crate::retry::attempt::Attempt;
use crate::stop::Stop;

pub(super) struct Ruled {
    rules: Arc<Vec<Rule>>,
    uri: Uri,
    asked: HeaderMap,
    attempt: Attempt,
}

// === impl Ruled ===

impl Ruled {
    pub(super) fn new<B>(rules: &Arc<Vec<Rule>>, request: &Request<B>) -> Box<Self> {
        Box::new(Self {
            rules: Arc::clone(rules),
            uri: request.uri().clone(),
            asked: request.headers().clone(),
            attempt: Attempt::of(request.extensions()),
        })
    }

    /// Lets the rules change the kind of `error`, and forbid that it is retried.
    ///
    /// An error that has stopped a retry layer below is settled.
    pub(super) fn judge(&self, error: &mut Error, method: &Method, headers: Option<&HeaderMap>) {
        if error.stopped_because().is_some() {
            return;
        }
        let mut vetoed = false;
        for rule in self.rules.iter() {
            let said = rule.judge(&Failure {
                error,
                method,
                uri: &self.uri,
                asked: &self.asked,
                attempt: self.attempt,
                headers,
            });
            match said {
                Some(Then::Means(kind)) => error.facts_mut().set_kind(kind),
                Some(Then::Veto) => vetoed = true,
                None => {}
            }
        }
        // The retry layer leaves an error alone that says why it has stopped.
        if vetoed {
            error.facts_mut().stop = Some(Stop::Vetoed);
        }
    }
}

#[cfg(test)]
mod tests;
