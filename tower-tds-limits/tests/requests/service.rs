//! A service that answers by a script, and records when requests came.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Empty;
use tokio::time::{Instant, sleep};
use tower::Service;
use tower_tds_outcome::{HandOver, Handed};

type Script = Box<dyn FnMut(usize) -> Answer + Send>;

/// Counts each request when it comes, and answers a while later. As a client that writes at once, it
/// marks each as sent.
#[derive(Clone)]
pub(crate) struct Scripted {
    takes: Duration,
    state: Arc<Mutex<State>>,
}

struct State {
    script: Script,
    arrivals: Vec<Instant>,
}

/// Response to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    status: StatusCode,
    retry_after: Option<&'static str>,
}

// === impl Scripted ===

impl Scripted {
    pub(crate) fn new(
        takes: Duration,
        script: impl FnMut(usize) -> Answer + Send + 'static,
    ) -> Self {
        let state = State {
            script: Box::new(script),
            arrivals: Vec::new(),
        };
        Self {
            takes,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Answers that many requests with `refusal` at first, and accepts all after them.
    pub(crate) fn refusing(takes: Duration, first: usize, refusal: Answer) -> Self {
        Self::new(takes, move |number| {
            if number < first {
                refusal
            } else {
                Answer::ok()
            }
        })
    }

    /// Answers the first request with a 429 with this hint in seconds.
    pub(crate) fn pausing(seconds: u32) -> Self {
        let refusal = Answer::status(429).retry_after(seconds);
        Self::refusing(Duration::from_millis(20), 1, refusal)
    }

    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrivals.clone()
    }

    pub(crate) fn by_second(&self, begin: Instant, seconds: usize) -> Vec<usize> {
        by_second(&self.arrivals(), begin, seconds)
    }
}

impl Service<Request<Empty<Bytes>>> for Scripted {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        let mut hand_over = HandOver::of(request.extensions());
        assert!(hand_over.mark(Handed::Held) && hand_over.mark(Handed::Taken));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.arrivals.len();
        state.arrivals.push(Instant::now());
        let answer = (state.script)(number);
        let takes = self.takes;
        Box::pin(async move {
            sleep(takes).await;
            Ok(answer.into_response())
        })
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn ok() -> Self {
        Self::status(200)
    }

    pub(crate) fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or_default(),
            retry_after: None,
        }
    }

    pub(crate) fn retry_after(self, seconds: u32) -> Self {
        // Leaks a few bytes, which is no harm in a test.
        self.retry_after_text(seconds.to_string().leak())
    }

    pub(crate) fn retry_after_text(mut self, text: &'static str) -> Self {
        self.retry_after = Some(text);
        self
    }

    fn into_response(self) -> Response<Empty<Bytes>> {
        let mut response = Response::new(Empty::new());
        *response.status_mut() = self.status;
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

pub(crate) fn request() -> Request<Empty<Bytes>> {
    Request::new(Empty::new())
}

/// Returns how many requests came in each second from `begin` on.
pub(crate) fn by_second(arrivals: &[Instant], begin: Instant, seconds: usize) -> Vec<usize> {
    let mut counts = vec![0; seconds];
    for at in arrivals.iter().filter(|at| **at >= begin) {
        let second = usize::try_from((*at - begin).as_secs()).unwrap_or(usize::MAX);
        if let Some(count) = counts.get_mut(second) {
            *count += 1;
        }
    }
    counts
}
