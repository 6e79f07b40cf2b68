//! Reads outcomes: whether a request was counted, and whether a limit refused it.

use std::error::Error;
#[cfg(feature = "connect")]
use std::io;

use http::Response;
#[cfg(feature = "connect")]
use hyper_util::client::legacy;
#[cfg(not(feature = "connect"))]
use tower_tds_outcome::ReadHead;
#[cfg(feature = "connect")]
use tower_tds_outcome::{Cause, chain};
use tower_tds_outcome::{Outcome, ReadOutcome};

use crate::clock;

/// Reads responses by the table of [`Outcome`], and the errors of hyper, hyper-util and IO. This is the default.
///
/// If an error carries an outcome, that is the result. An error that shows that there was no connection is
/// [`Unsent`](Outcome::Unsent), and any other is [`Lost`](Outcome::Lost), which is safe: its permit comes back
/// after [`Limits::lost_after`](crate::Limits::lost_after). Without the feature `connect`, every error that carries no
/// outcome counts as lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadHyper;

// === impl ReadHyper ===

impl ReadOutcome for ReadHyper {
    #[inline]
    fn read<B>(&self, result: Result<&Response<B>, &(dyn Error + 'static)>) -> Outcome {
        match result {
            Ok(response) => Outcome::of_head(response.status(), response.headers(), clock::wall),
            #[cfg(feature = "connect")]
            Err(error) => read_chain(error),
            // An error of IO below an unknown client may be that of an open connection.
            #[cfg(not(feature = "connect"))]
            Err(error) => ReadHead.read::<B>(Err(error)),
        }
    }
}

#[cfg(feature = "connect")]
#[cold]
fn read_chain(error: &(dyn Error + 'static)) -> Outcome {
    for link in chain(error) {
        if let Some(cause) = link.downcast_ref::<Cause>() {
            return cause.outcome();
        }
        if let Some(error) = link.downcast_ref::<legacy::Error>() {
            // Once there was a connection, no source can show that nothing was sent on it.
            return if error.is_connect() {
                Outcome::Unsent
            } else {
                Outcome::Lost
            };
        }
        if link.is::<hyper::Error>() {
            return Outcome::Lost;
        }
        let kind = link.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(
            kind,
            Some(
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable
            )
        ) {
            return Outcome::Unsent;
        }
    }
    Outcome::Lost
}

#[cfg(test)]
mod tests;
