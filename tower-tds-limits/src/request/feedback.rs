//! What the outcome of a request says about its being counted.

/// Reads from an outcome whether the service has counted the request.
///
/// # Examples
/// ```
/// use tower_tds_limits::{Feedback, Outcome};
///
/// #[derive(Clone)]
/// struct ReadIo;
///
/// impl<T> Feedback<T, std::io::Error> for ReadIo {
///     fn read(&self, outcome: Result<&T, &std::io::Error>) -> Outcome {
///         match outcome {
///             Ok(_) => Outcome::Answered,
///             Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
///                 Outcome::Unsent
///             }
///             Err(_) => Outcome::Lost,
///         }
///     }
/// }
/// # let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// # assert_eq!(ReadIo.read(Err::<&(), _>(&refused)), Outcome::Unsent);
/// ```
pub trait Feedback<T, E> {
    /// Reads one outcome of the inner service.
    fn read(&self, outcome: Result<&T, &E>) -> Outcome;
}

/// What an outcome says about a request's being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The service answered, so it has counted the request. An answer that came as an error is
    /// an answer too.
    Answered,
    /// Nothing reached the wire: the permit comes back at once.
    Unsent,
    /// No answer will come, and the service may still count the request.
    Lost,
}

/// The default: a response is an answer, and an error leaves all open.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ReadStatus {}

// === impl ReadStatus ===

impl ReadStatus {
    /// The default reading.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

impl<T, E> Feedback<T, E> for ReadStatus {
    fn read(&self, outcome: Result<&T, &E>) -> Outcome {
        match outcome {
            Ok(_) => Outcome::Answered,
            Err(_) => Outcome::Lost,
        }
    }
}
