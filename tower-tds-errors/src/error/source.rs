//! From other errors, through whatever wraps them.

use std::error::Error as StdError;
use std::io;

use tower::BoxError;

use super::{Error, Facts};
use crate::classify::transport;

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

/// Whether anything in the walk is a timeout: of a connect, say, or of a body that went silent.
pub(super) fn is_late(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    chain(error).any(|link| {
        let io = link.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
            || link.is::<tower::timeout::error::Elapsed>()
            || link.is::<tokio::time::error::Elapsed>()
    })
}

/// Takes the error out of its box, or finds it in there, or names the transport error.
///
/// So the layers of this crate work over `Buffer` and its like, whose errors are boxed.
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

/// The deepest real chain seen has 6 links; this only bounds a chain that bites its tail.
const DEEPEST: usize = 32;
