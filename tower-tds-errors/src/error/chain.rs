//! The chain of an error: everything under it.

use std::error::Error as StdError;
use std::io;

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

/// The deepest known chain has 6 links. This bounds a chain that is a cycle.
const DEEPEST: usize = 32;
