//! Walks what an error wraps.

use std::error::Error as StdError;
use std::io;

/// The error and everything under it.
///
/// `io::Error::source` answers with the source of what it wraps and so skips the wrapped error
/// itself. This walk does not: a TLS error sits exactly there.
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

/// The first error of a type in the walk.
pub(crate) fn find<'a, T: StdError + 'static>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// The deepest real chain seen has 6 links; this only bounds a chain that bites its tail.
const DEEPEST: usize = 32;
