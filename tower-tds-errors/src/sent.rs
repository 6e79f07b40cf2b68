//! Whether a failed request had reached the service.

/// Says whether a failed request can have reached the service.
///
/// A limiter reads it to know which permits come back at once; the retry layer reads it to know
/// whether a request that may not run twice may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// The service answered, so it has seen and counted the request.
    Answered,
    /// Nothing of the request reached the service, or the server says that it processed none of it.
    Never,
    /// It may have arrived, and no answer tells.
    Unknown,
}
