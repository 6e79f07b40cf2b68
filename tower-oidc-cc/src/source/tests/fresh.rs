//! A call with a fresh token: which shared state it touches.

use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use tower::{Layer as _, Service as _};

use crate::{BearerAuthLayer, Credentials, Origin, TokenEndpoint, TokenSource};

type Body = Full<Bytes>;

const DATA: &str = "https://api.example.com/data";

/// A handle with a fresh token.
async fn tokens() -> TokenSource {
    let client = tower::service_fn(async |_: Request<Body>| {
        let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":86400}"#;
        Ok::<_, Infallible>(Response::new(Body::from(reply)))
    });
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let credentials = Credentials::new("client", "secret").unwrap();
    let tokens = TokenSource::builder(endpoint, credentials).build(client);
    tokens.ready().await.unwrap();
    tokens
}

fn layer(tokens: &TokenSource) -> BearerAuthLayer {
    let origin = Origin::from_uri(&Uri::from_static(DATA)).unwrap();
    BearerAuthLayer::new(tokens.clone(), [origin])
}

fn get() -> Request<Body> {
    Request::get(DATA).body(Body::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_fresh_token_takes_no_lock() {
    let tokens = tokens().await;
    let layer = layer(&tokens);
    let locked = tokens.shared.lock();
    // On a thread of its own, so that a call that waits for the lock is seen to do so.
    let (done, heard) = std::sync::mpsc::channel();
    let caller = std::thread::spawn(move || {
        let mut service = layer.layer(tower::service_fn(async |request: Request<Body>| {
            assert_eq!(request.headers()["authorization"], "Bearer t");
            Ok::<_, Infallible>(Response::new(Body::default()))
        }));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(service.poll_ready(&mut cx).is_ready());
            let call = pin!(service.call(get()));
            assert!(matches!(call.poll(&mut cx), Poll::Ready(Ok(_))));
        }
        done.send(()).unwrap();
    });
    heard
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("the calls wait for nobody");
    drop(locked);
    caller.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_the_service_counts_one_user_and_copies_nothing() {
    let tokens = tokens().await;
    let service = layer(&tokens).layer(());
    let shared = Arc::strong_count(&tokens.shared);
    let clones: Vec<_> = (0..10).map(|_| service.clone()).collect();
    // They share what the layer made, and that alone has a handle.
    assert_eq!(Arc::strong_count(&tokens.shared), shared);
    drop(clones);
}
