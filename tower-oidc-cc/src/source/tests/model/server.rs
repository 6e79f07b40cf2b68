//! A token endpoint and a provider that take a while, without a clock.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use http::StatusCode;

use super::{Settings, TokenSource, shared::Shared};
use crate::{
    Credentials, Provider, RefreshPolicy, TokenError,
    clock::Clock,
    error::token::Kind,
    request::{Flight, Grant, Issued},
    source::header,
    state::{Budget, Life},
};

#[derive(Clone, Copy)]
pub(super) enum Reply {
    Token,
    Refusal,
}

/// Replies by script. What it keeps is no concern of the model's, and so behind a plain lock.
#[derive(Clone)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
}

struct State {
    script: VecDeque<Reply>,
    posts: usize,
}

// === impl Server ===

impl Server {
    pub(super) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let script = script.into_iter().collect();
        Self {
            state: Arc::new(Mutex::new(State { script, posts: 0 })),
        }
    }

    pub(super) fn posts(&self) -> usize {
        self.state.lock().expect("nothing panics under it").posts
    }

    pub(super) fn tokens(&self) -> TokenSource {
        let settings = Settings {
            provider: key(),
            timeout: Duration::from_secs(10),
            term: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            clock: Clock::default(),
            store: None,
        };
        let life = Life::new(RefreshPolicy::default(), Budget::default(), || 0.5);
        TokenSource {
            shared: Shared::new(life, Arc::new(self.clone()), settings),
        }
    }
}

impl Grant for Server {
    fn fetch(&self, _: Arc<Credentials>) -> Flight {
        let server = self.clone();
        Box::pin(async move {
            let (number, reply) = {
                let mut state = server.state.lock().expect("nothing panics under it");
                state.posts += 1;
                (state.posts, state.script.pop_front())
            };
            a_while().await;
            match reply.expect("the script covers each request") {
                Reply::Token => Ok(Issued {
                    header: header(&format!("token-{number}")).expect("it is visible ASCII"),
                    sent: Clock::default().now(),
                    life: Duration::from_secs(86_400),
                    own: true,
                }),
                Reply::Refusal => Err(TokenError::new(Kind::Rejected(
                    StatusCode::UNAUTHORIZED,
                    "invalid_client",
                ))),
            }
        })
    }
}

/// Takes a while to give its secret.
fn key() -> Provider {
    Provider::from_fn(async || {
        a_while().await;
        Ok::<_, Infallible>(Credentials::new("id", "one").expect("they are well-formed"))
    })
}

/// One await that is not ready at once.
async fn a_while() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
