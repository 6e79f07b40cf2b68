//! From other errors, and into the one of the standard library.

use std::io;

use tower::BoxError;

use super::Error;
use super::facts::Facts;
use crate::classify::transport;
use crate::kind::Kind;

/// Takes the error out of its box, or finds it in there, or names the transport error.
///
/// So the layers of this crate work over `Buffer` and its like, whose errors are boxed.
impl From<BoxError> for Error {
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        let error = transport::redacted(error);
        let facts = match Self::find(&*error) {
            Some(found) => found.facts().clone(),
            None => Facts::new(transport::kind(&*error)),
        };
        Self::build(facts, Some(error))
    }
}

/// For readers and writers over a body. The error is inside: [`Error::find`] gets it out, and its
/// [`kind`](io::Error::kind) is the nearest that there is.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(nearest(&error), error)
    }
}

fn nearest(error: &Error) -> io::ErrorKind {
    if error.is_timeout() {
        return io::ErrorKind::TimedOut;
    }
    if error.is_auth() {
        return io::ErrorKind::PermissionDenied;
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most kinds have no like among those of io"
    )]
    match error.kind() {
        Kind::Connect | Kind::Dns => io::ErrorKind::NotConnected,
        Kind::Reset | Kind::BodyReset => io::ErrorKind::ConnectionReset,
        Kind::Incomplete | Kind::Truncated => io::ErrorKind::UnexpectedEof,
        Kind::Decode | Kind::Malformed | Kind::UnexpectedContent => io::ErrorKind::InvalidData,
        Kind::InvalidRequest | Kind::RangeNotSatisfiable => io::ErrorKind::InvalidInput,
        Kind::NotFound => io::ErrorKind::NotFound,
        Kind::Forbidden => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    }
}
