//! Transport errors of hyper-util and hyper, and boxed ones: whether a request was sent.

use std::{convert::Infallible, error::Error, io};

use http::Response;
use hyper_util::client::legacy;

use super::{Feedback, Outcome, ReadStatus};

/// If no connection was made, nothing was sent.
impl<B> Feedback<Response<B>, legacy::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &legacy::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

/// Reads a boxed error and its sources.
impl<B> Feedback<Response<B>, Box<dyn Error + Send + Sync + '_>> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &Box<dyn Error + Send + Sync + '_>>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(error.source()))
    }
}

impl<B> Feedback<Response<B>, hyper::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &hyper::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

impl<B> Feedback<Response<B>, io::Error> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &io::Error>) -> Outcome {
        Self::read_or(outcome, |error| read_chain(Some(error)))
    }
}

impl<B> Feedback<Response<B>, Infallible> for ReadStatus {
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &Infallible>) -> Outcome {
        Self::read_or(outcome, |error| match *error {})
    }
}

/// Reads the error of another limit: its own, or the inner one.
impl<B, E> Feedback<Response<B>, crate::Error<E>> for ReadStatus
where
    Self: Feedback<Response<B>, E>,
{
    #[inline]
    fn read(&self, outcome: Result<&Response<B>, &crate::Error<E>>) -> Outcome {
        match outcome {
            Ok(response) => Feedback::<_, E>::read(self, Ok(response)),
            Err(crate::Error::Limit(_)) => Outcome::Unsent,
            Err(crate::Error::Inner(error)) => self.read(Err(error)),
        }
    }
}

#[cold]
fn read_chain(error: Option<&(dyn Error + 'static)>) -> Outcome {
    let mut there_was = false;
    let mut next = error;
    while let Some(error) = next {
        // Once there was a connection, no source can show that nothing was sent on it.
        there_was |= error.is::<hyper::Error>()
            || matches!(error.downcast_ref::<legacy::Error>(), Some(error) if !error.is_connect());
        if !there_was && unsent(error) {
            return Outcome::Unsent;
        }
        next = error.source();
    }
    Outcome::Lost
}

/// Whether the error shows that there was no connection.
fn unsent(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<legacy::Error>() {
        return error.is_connect();
    }
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable
        )
    ) || error.is::<crate::LimitError>()
}
