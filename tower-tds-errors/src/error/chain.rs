//! The chain of an error: the error and its causes.

use std::error::Error as StdError;
use std::io;

/// Iterates over the error and its causes.
///
/// `io::Error::source` skips the wrapped error and returns its source. This iterator includes the
/// wrapped error, because it may be a TLS error.
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

/// The deepest known chain has 6 links. This bounds a chain that is a cycle.
const DEEPEST: usize = 32;
