//! Conversion from other errors, through their chains of sources.

use std::error::Error as StdError;
use std::io;

use tower::BoxError;

use super::{Error, Facts};
use crate::classify::transport;

/// The error and everything under it.
///
/// `io::Error::source` returns the source of the wrapped error, and so skips the wrapped error
/// itself. This walk does not, because a TLS error is found there.
pub(crate) fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| below(*error)).take(DEEPEST)
}

fn below<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let wrapped = error.downcast_ref::<io::Error>();
    match wrapped.and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// The first error of a type in the chain.
pub(crate) fn find<'a, T: StdError + 'static>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// Whether an error in the chain is a timeout, for example of a connect or of a stalled body.
pub(super) fn is_late(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    chain(error).any(|link| {
        let io = link.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
            || link.is::<tower::timeout::error::Elapsed>()
            || link.is::<tokio::time::error::Elapsed>()
    })
}

/// Unboxes the error, finds it in the chain, or classifies a transport error.
///
/// So the layers of this crate work over services with boxed errors, such as `Buffer`.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let facts = match Self::find(&*error) {
            Some(found) => found.facts().clone(),
            None => {
                let (kind, sent) = transport::kind(&*error);
                let mut facts = Facts::new(kind);
                facts.sent = sent;
                facts
            }
        };
        Self::build(facts, Some(error))
    }
}

/// The deepest known chain has 6 links. This bounds a chain that is a cycle.
const DEEPEST: usize = 32;
