//! Makes the same call many times, for a tool that counts instructions.
//!
//! ```text
//! cargo build --release -p tds-benches --bin instructions
//! for n in 0 100000; do for s in bare body limit-body static token bare-cloned static-cloned token-cloned limit limit-window waits-60 waits-6000 classify redact retry retry-bare whole whole-without-spans; do
//!   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/instructions $s $n
//! done; done
//! ```
//!
//! The instructions of a call are the difference of two runs, divided by the difference of their
//! calls. A figure is that number less that of `bare`. The services that are cloned for each call, as
//! callers of `oneshot` do, are compared with `bare-cloned`. `retry-bare` is Retry without a
//! deadline, so without an extension of the request. `waits-60` is one poll of a connect that waits
//! while 60 sockets are open. The requests have headers and room for more, so no layer pays for the
//! first allocation of the map.
//!
//! `body` is a call with a deadline whose body is pending once, and `limit-body` the same behind the limit.
//!
//! `wire-bare`, `wire-client`, `wire-layer` and `wire-reqwest` make whole calls over a socket of this machine. Their server is
//! another process: `instructions serve 0` prints its address, which is the third argument. Each call parses its address and reads
//! its body, and all of them send the same `Authorization`.

#![expect(
    clippy::expect_used,
    reason = "a bench that cannot be set up must not go on"
)]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    io,
    num::NonZeroU32,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tds_benches::{Cloned, Echo, call, token, whole};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use tower::{ServiceExt, service_fn};
use tower_http::auth::AddAuthorizationLayer;
use tower_layer::Layer;
use tower_service::Service;
use tower_tds_errors::{ClassifyLayer, RetryLayer};
use tower_tds_limits::{
    ConnectionLimitLayer, DeadlineAt, Limiter, Limits, Quota, RequestLimitLayer, Rules,
};
use tower_tds_outcome::Secrets;

#[path = "wire.rs"]
mod wire;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().expect("one of the names above");
    let count = arguments.next().and_then(|count| count.parse().ok());
    let count: u64 = count.expect("how many calls");
    let runtime = token::runtime();
    // The token layers are set up in each run, so that only the calls differ.
    let layer = token::layer(&runtime);
    let fixed = AddAuthorizationLayer::bearer(&"x".repeat(1_400));
    if let Some(which) = which.strip_prefix("wire-") {
        let address = arguments.next().expect("the address that `serve` printed");
        return wire::run(which, count, &address);
    }
    match &*which {
        "serve" => wire::serve(),
        "token" => run(layer.layer(Echo::new()), count),
        "static" => run(fixed.layer(Echo::new()), count),
        "bare-cloned" => run(Cloned::new(Echo::new()), count),
        "token-cloned" => run(Cloned::new(layer.layer(Echo::new())), count),
        "static-cloned" => run(Cloned::new(fixed.layer(Echo::new())), count),
        "limit" => run(limit().layer(Echo::new()), count),
        "limit-window" => run(window().layer(Echo::new()), count),
        "body" => bodies(Pends, count),
        "limit-body" => bodies(limit().layer(Pends), count),
        "waits-60" => waits(60, count),
        "waits-6000" => waits(6_000, count),
        "classify" => run(ClassifyLayer::new().layer(Echo::new()), count),
        "retry" => {
            let classified = ClassifyLayer::new().layer(Echo::new());
            run(RetryLayer::new().layer(classified), count);
        }
        "retry-bare" => {
            let classified = ClassifyLayer::new().layer(Echo::new());
            // This deadline is beyond the range of the clock, so the call has none.
            let layer = RetryLayer::new().deadline(Duration::MAX);
            run(layer.layer(classified), count);
        }
        "whole" => run(whole::with_spans(&runtime), count),
        "whole-without-spans" => run(whole::without_spans(&runtime), count),
        "redact" => redact(count),
        _ => run(Echo::new(), count),
    }
}

/// Redacts the text of an error, where four tokens are known.
fn redact(count: u64) {
    let secrets = Secrets::default();
    for n in 0..4 {
        secrets.add(
            "token",
            format!("eyJhbGciOiJSUzI1NiJ9.{n}{}", "aZ3-_x".repeat(230)),
        );
    }
    for _ in 0..count {
        black_box(secrets.redact(black_box(TEXT)));
    }
}

/// What a gateway says with its own quotes escaped.
const TEXT: &str = "POST https://auth.example.org/auth/realms/ServiceConnect/protocol/openid-connect/token: \
                    {\\\"error\\\":\\\"invalid_client\\\",\\\"error_description\\\":\\\"Invalid client or Invalid client credentials\\\"} \
                    (status 401, Bearer error=%22invalid_token%22)";

/// A limit that no bench reaches. Permits come back after 2.5 ms, so few proofs are kept.
fn limit() -> RequestLimitLayer {
    RequestLimitLayer::new(Limiter::new(wide()))
}

/// The same limit by the proof window alone.
fn window() -> RequestLimitLayer {
    RequestLimitLayer::new(Limiter::new(wide().rules(Rules::window())))
}

fn wide() -> Limits {
    let wide = Quota::new(NonZeroU32::MAX, Duration::from_millis(1));
    Limits::new(wide.expect("a millisecond is an interval"))
}

fn timed() -> Runtime {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().build();
    runtime.expect("a runtime")
}

/// Polls a connect that waits while `sockets` sockets are open, `count` times.
fn waits(sockets: u32, count: u64) {
    // The limit has one more place, because the last one is kept for token requests.
    let most = NonZeroU32::MIN.saturating_add(sockets);
    let limiter = Limiter::new(Limits::default().connections(most));
    let empty = |_: Uri| ready(io::Result::Ok(TokioIo::new(tokio::io::empty())));
    let connector = ConnectionLimitLayer::new(limiter).layer(service_fn(empty));
    let connect = || connector.clone().oneshot(Uri::from_static("http://a"));
    timed().block_on(async {
        let mut open = Vec::new();
        for _ in 0..sockets {
            open.push(connect().await.expect("there is room"));
        }
        let mut waiting = pin!(connect());
        for _ in 0..count {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(black_box(waiting.as_mut().poll(&mut cx)).is_pending());
        }
    });
}

/// Answers with a body that is pending once, and then ends.
#[derive(Clone)]
struct Pends;

struct Once {
    was_polled: bool,
}

impl Service<Request<Full<Bytes>>> for Pends {
    type Response = Response<Once>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(Once { was_polled: false })))
    }
}

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.was_polled {
            return Poll::Ready(None);
        }
        self.was_polled = true;
        Poll::Pending
    }
}

/// Makes calls whose deadline ends with their body.
fn bodies<S, B>(mut service: S, count: u64)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    B: Body,
{
    let mut cx = Context::from_waker(Waker::noop());
    let deadline = Instant::now() + Duration::from_secs(3_600);
    for _ in 0..count {
        let mut request = token::request_with_headers();
        let mut deadline = DeadlineAt::new(deadline.into_std());
        deadline.covers_body = true;
        request.extensions_mut().insert(deadline);
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut call = pin!(service.call(black_box(request)));
        let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut cx) else {
            return;
        };
        let mut body = pin!(response.into_body());
        assert!(black_box(body.as_mut().poll_frame(&mut cx)).is_pending());
        assert!(black_box(body.as_mut().poll_frame(&mut cx)).is_ready());
    }
}

fn run<S>(mut service: S, count: u64)
where
    S: Service<Request<Full<Bytes>>>,
{
    for _ in 0..count {
        black_box(call(&mut service, black_box(token::request_with_headers())));
    }
}
