//! A server of this program: bound, announced, and ended with what it has begun.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use tds_examples::warn;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};
use tower_tds::Client;

use crate::{
    exit::{Exit, Failure},
    stop,
};

/// Serves until somebody wants the program to end, and lets what has begun come to its end for `grace`.
pub(crate) async fn serve(
    listen: SocketAddr,
    router: Router,
    client: &Client,
    grace: Duration,
) -> Result<Exit, Failure> {
    let unusable = |error| Failure::usage(format!("--listen {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    warn(&format!("tds: listening on http://{address}"));

    let (stopping, stopped) = oneshot::channel::<()>();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        stop::asked().await;
        // Its end is the word.
        drop(stopping);
    });
    let mut serving = tokio::spawn(serving.into_future());
    let ended = tokio::select! {
        ended = &mut serving => ended,
        _ = stopped => match timeout(grace, &mut serving).await {
            Ok(ended) => ended,
            Err(_) => {
                serving.abort();
                Ok(Ok(()))
            }
        },
    };
    client.shutdown(Duration::from_secs(1)).await;
    match ended {
        Ok(Ok(())) => Ok(Exit::Whole),
        Ok(Err(error)) => Err(Failure::new(Exit::SomeFailed, error.to_string())),
        Err(panic) => Err(Failure::new(Exit::SomeFailed, panic.to_string())),
    }
}
