//! Repeated requests: a copy of the body, the permission, and the number of the attempt.

use http::Extensions;
use http_body::Body;

/// Copies a request body for a retry.
///
/// The layer calls it before each attempt if it allows more than one, so keep it cheap: increment a
/// reference count, or return `None`. Without a copy the request is sent once, and its error has
/// [`GiveUp::NotReplayable`](crate::GiveUp::NotReplayable). Closures implement this trait.
///
/// # Examples
///
/// Only empty bodies are sent twice:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body::Body;
/// use http_body_util::Full;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_tds_errors::{Error, GiveUp, Kind, RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let if_empty = |body: &Full<Bytes>| body.is_end_stream().then(Full::<Bytes>::default);
/// let busy = service_fn(async |_: Request<Full<Bytes>>| {
///     Err::<Response<()>, _>(Error::new(Kind::Unavailable, "busy"))
/// });
/// let upload = Request::put("/").body(Full::from("a large file")).unwrap();
/// let service = RetryLayer::new().replay(if_empty).layer(busy);
/// let error = service.oneshot(upload).await.unwrap_err();
/// assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot send a body of this type twice",
    label = "no `Replay<{B}>`",
    note = "the default of tower-tds-errors, `CloneBody`, needs a `Body` that is `Clone`; for others pass a function to `.replay(..)`",
    note = "`RetryLayer::new().replay(|_: &_| None)` sends each body once"
)]
pub trait Replay<B> {
    /// Returns a body with the same bytes as `body`, independent of `body`.
    fn replay(&self, body: &B) -> Option<B>;

    /// Returns the number of bytes that `body` would send if it were sent now, if that is known.
    ///
    /// A copy is sent only if it still has the size that the body had before the first attempt,
    /// because a body that shares its stream with its clones is shorter by then. Keep the default
    /// if you know that copies are independent.
    fn size(&self, body: &B) -> Option<u64> {
        let _ = body;
        None
    }
}

/// Clones the body, which is cheap for shared buffers such as `Full`. This is the default
/// [`Replay`].
///
/// Only a body of a known size is sent again ([`Body::size_hint`]), and only while its clone still
/// has that size, because the clones of some bodies share one stream.
///
/// For a type that is no [`Body`], such as the `Vec<u8>` of an adapter, give
/// [`replay`](crate::RetryLayer::replay) a function: `|body: &Vec<u8>| Some(body.clone())`.
#[derive(Clone, Copy, Debug)]
pub struct CloneBody;

/// Decides whether a request may be sent more than once, in place of the rule for its method.
///
/// Set it as an extension of the request.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Repeat;
///
/// // A POST that changes nothing, or that may arrive several times.
/// let mut search = http::Request::post("/v2/search").body("{}").unwrap();
/// search.extensions_mut().insert(Repeat::Allowed);
///
/// // A response that would be too old after a retry.
/// let mut live = http::Request::get("/v2/live").body("").unwrap();
/// live.extensions_mut().insert(Repeat::Never);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repeat {
    /// The request is retried like an idempotent one.
    Allowed,
    /// The request is sent at most once.
    Never,
}

/// The number of an attempt, in the extensions of its request and its response.
///
/// Layers below the retry layer read it from the request, and layers above from the response.
///
/// To save an allocation the first attempt has no extension: [`of`](Self::of) returns 1 there.
///
/// # Examples
///
/// ```
/// use tower_tds_errors::Attempt;
///
/// let request = http::Request::new(());
/// assert_eq!(Attempt::of(request.extensions()), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(pub(super) u32);

// === impl CloneBody ===

// Hidden from the compiler's advice, because a message about `Replay` is more helpful than one
// about `Clone`.
#[diagnostic::do_not_recommend]
impl<B: Body + Clone> Replay<B> for CloneBody {
    fn replay(&self, body: &B) -> Option<B> {
        self.size(body).map(|_| body.clone())
    }

    fn size(&self, body: &B) -> Option<u64> {
        body.size_hint().exact()
    }
}

// === impl F ===

#[diagnostic::do_not_recommend]
impl<B, F: Fn(&B) -> Option<B>> Replay<B> for F {
    fn replay(&self, body: &B) -> Option<B> {
        self(body)
    }
}

// === impl Attempt ===

impl Attempt {
    /// Returns the number of the attempt, counted from 1, in the extensions of a request or a
    /// response.
    #[must_use]
    pub fn of(extensions: &Extensions) -> u32 {
        extensions.get().map_or(1, |attempt: &Self| attempt.0)
    }
}
