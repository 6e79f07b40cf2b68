//! Repeated requests: a copy of the body, the permission, and the number of the attempt.

use http::Extensions;

/// Copies a request body for a retry.
///
/// It is called before each attempt if the layer allows more than one, so it must be cheap:
/// increment a reference count, or return `None`. A request without a copy is sent once, and its
/// error has [`GiveUp::NotReplayable`](crate::GiveUp::NotReplayable). Closures implement this
/// trait.
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
    note = "the default, `CloneBody`, needs a body that is `Clone`; for others pass a function to `.replay(..)`",
    note = "`RetryLayer::new().replay(|_: &_| None)` sends each body once"
)]
pub trait Replay<B> {
    /// Returns a body with the same bytes as `body`, independent of `body`.
    fn replay(&self, body: &B) -> Option<B>;
}

/// The default [`Replay`]: it clones the body, which is cheap for shared buffers such as `Full`.
#[derive(Clone, Copy, Debug)]
pub struct CloneBody;

/// Whether a request may be sent more than once, in place of the rule for its method.
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
/// Layers inside the retry layer read it from the request, and layers outside from the response.
///
/// The first attempt has no extension, which saves an allocation: [`of`](Self::of) returns 1 there.
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
pub struct Attempt(pub u32);

// === impl CloneBody ===

// The message about `Replay` is more helpful than one about `Clone`.
#[diagnostic::do_not_recommend]
impl<B: Clone> Replay<B> for CloneBody {
    fn replay(&self, body: &B) -> Option<B> {
        Some(body.clone())
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
    /// The number of the attempt, counted from 1, in the extensions of a request or a response.
    #[must_use]
    pub fn of(extensions: &Extensions) -> u32 {
        extensions.get().map_or(1, |attempt: &Self| attempt.0)
    }
}
