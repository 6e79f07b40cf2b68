//! Replayable bodies, which can be sent twice.

/// Makes a second copy of a request body, if there can be one.
///
/// It is called before each attempt except the last, so it must be cheap: count a reference, or
/// return `None`. A request without a copy is sent once, and its error has
/// [`GiveUp::NotReplayable`](crate::GiveUp::NotReplayable). Closures implement it.
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
/// let upload = Request::put("/").body(Full::from("a stream, say")).unwrap();
/// let service = RetryLayer::new().replay(if_empty).layer(busy);
/// let error = service.oneshot(upload).await.unwrap_err();
/// assert_eq!(error.gave_up(), Some(GiveUp::NotReplayable));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot send a body of this type twice",
    label = "no `Replay<{B}>`",
    note = "`CloneBody`, the default, clones it; say by `.replay(..)` how else there is a second one",
    note = "`RetryLayer::new().replay(|_: &_| None)` sends each body once"
)]
pub trait Replay<B> {
    /// Returns a body with the same bytes as `body`, independent of `body`.
    fn replay(&self, body: &B) -> Option<B>;
}

/// Clones the body, the default: right for `Full`, `Empty`, `Bytes` and other shared buffers.
#[derive(Clone, Copy, Debug)]
pub struct CloneBody;

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
