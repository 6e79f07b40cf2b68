//! Properties that only the inside of a source can show.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use crate::{Credentials, TokenEndpoint, TokenSource};

#[tokio::test(start_paused = true)]
async fn a_call_with_a_settled_token_takes_no_lock() {
    let client = tower::service_fn(|_: Request<Full<Bytes>>| async {
        let reply = r#"{"access_token":"t","token_type":"Bearer","expires_in":86400}"#;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(reply)))
    });
    let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "r").unwrap();
    let credentials = Credentials::new("client", "secret").unwrap();
    let source = TokenSource::builder(endpoint, credentials).build(client);
    source.ready().await.unwrap();
    // The first acceptance is a change of state.
    source.shared.accept(1);
    let held = source.shared.hold_lock();
    // On a thread of its own, so that the test detects a call that waits for the lock.
    let (done, ended) = std::sync::mpsc::channel();
    let call = Arc::clone(&source.shared);
    let caller = std::thread::spawn(move || {
        let bearer = call.settled().unwrap();
        assert_eq!(bearer.token.header(), "Bearer t");
        call.accept(bearer.generation);
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(30)).unwrap();
    drop(held);
    caller.join().unwrap();
}
