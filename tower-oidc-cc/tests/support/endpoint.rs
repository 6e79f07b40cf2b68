//! A token endpoint as a `Service`: replies by script, counts and keeps what it was sent.

use std::{
    collections::VecDeque,
    future::{Future, ready},
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep};
use tower::Service;

use super::{Body, number, poll_once, secs};

#[derive(Clone, Default)]
pub(crate) struct Endpoint {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Reply>,
    fallback: Reply,
    posts: Vec<Post>,
    /// When each token expires.
    expiries: Vec<Instant>,
}

/// One token request as the endpoint saw it.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) at: Instant,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

/// Response of the endpoint to one token request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// `None`: a token numbered by the count of requests.
    body: Option<Bytes>,
    expires_in: u64,
    delay: Duration,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Broken,
    Hang,
    Panic,
}

// === impl Reply ===

impl Default for Reply {
    fn default() -> Self {
        Self::token(86_400)
    }
}

impl Reply {
    pub(crate) fn token(expires_in: u64) -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            body: None,
            expires_in,
            delay: Duration::ZERO,
            fault: None,
        }
    }

    pub(crate) fn body(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            body: Some(body.into()),
            ..Self::token(0)
        }
    }

    pub(crate) fn down() -> Self {
        Self::body(503, "")
    }

    pub(crate) fn refusal() -> Self {
        Self::body(401, r#"{"error":"unauthorized_client"}"#)
    }

    pub(crate) fn broken() -> Self {
        Self::fault(Fault::Broken)
    }

    pub(crate) fn hang() -> Self {
        Self::fault(Fault::Hang)
    }

    pub(crate) fn panic() -> Self {
        Self::fault(Fault::Panic)
    }

    fn fault(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::token(0)
        }
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Answers with `replies` in turn, and then with the fallback.
    pub(crate) fn scripted(replies: impl IntoIterator<Item = Reply>) -> Self {
        let endpoint = Self::default();
        endpoint.state.lock().unwrap().script = replies.into_iter().collect();
        endpoint
    }

    /// Answers every request with `reply`.
    pub(crate) fn always(reply: Reply) -> Self {
        let endpoint = Self::default();
        endpoint.set(reply);
        endpoint
    }

    pub(crate) fn set(&self, reply: Reply) {
        self.state.lock().unwrap().fallback = reply;
    }

    /// Drops the rest of the script. Later requests succeed.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.script.clear();
        state.fallback = Reply::default();
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.state.lock().unwrap().posts.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().posts.len()
    }

    /// The time since this endpoint issued a token.
    pub(crate) fn age(&self, token: &str) -> Duration {
        self.state.lock().unwrap().posts[number(token) - 1]
            .at
            .elapsed()
    }

    /// The expiry of a token of this endpoint.
    pub(crate) fn expiry(&self, token: &str) -> Instant {
        self.state.lock().unwrap().expiries[number(token) - 1]
    }
}

impl Service<Request<Body>> for Endpoint {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let body = text_now(body);
        let mut state = self.state.lock().unwrap();
        state.posts.push(Post {
            at: Instant::now(),
            headers: head.headers.clone(),
            body,
        });
        let number = state.posts.len();
        let reply = state.script.pop_front();
        let reply = reply.unwrap_or_else(|| state.fallback.clone());
        let token = format!("canary-token-{number}");
        // The life of a token starts with the request, even if the reply is late.
        state.expiries.push(Instant::now() + secs(reply.expires_in));
        drop(state);
        match reply.fault {
            Some(Fault::Broken) => {
                return Box::pin(ready(Err(io::ErrorKind::ConnectionReset.into())));
            }
            Some(Fault::Hang) => return Box::pin(std::future::pending()),
            Some(Fault::Panic) => return Box::pin(async { panic!("the client has a bug") }),
            None => {}
        }
        let life = reply.expires_in;
        let body = reply.body.unwrap_or_else(|| {
            format!(
                r#"{{"access_token":"{token}","expires_in":{life},"refresh_expires_in":0,"token_type":"Bearer","not-before-policy":0,"scope":"profile email"}}"#
            )
            .into()
        });
        let mut response = Response::builder().status(reply.status);
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        let response = response.body(Full::new(body)).unwrap();
        Box::pin(async move {
            if !reply.delay.is_zero() {
                sleep(reply.delay).await;
            }
            Ok(response)
        })
    }
}

/// The text of a body that is complete already.
fn text_now(body: Body) -> String {
    let body = poll_once(pin!(body.collect())).expect("the body is complete");
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}
