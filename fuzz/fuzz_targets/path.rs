//! Any target of `Client::get` is refused before it is sent, or goes to the host of the client.

#![no_main]

use std::{convert::Infallible, future::ready};

use http::{Request, Response};
use libfuzzer_sys::fuzz_target;
use tokio::{runtime::Builder, sync::mpsc};
use tower::service_fn;
use tower_tds::{Client, RequestBody};

fuzz_target!(|input: &str| {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(async {
        let (sent, mut received) = mpsc::unbounded_channel();
        let client = Client::from_service(service_fn(move |request: Request<RequestBody>| {
            drop(sent.send(request.uri().clone()));
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        }));
        drop(client.get("/").await.expect("a path"));
        let known = received.recv().await.expect("it was sent");
        drop(client.get(input).await);
        while let Ok(uri) = received.try_recv() {
            assert_eq!(
                (uri.scheme(), uri.authority()),
                (known.scheme(), known.authority()),
                "{input:?}"
            );
            assert!(uri.path().starts_with('/'), "{uri}");
        }
    });
});
