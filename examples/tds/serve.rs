//! A server of this program: bound, announced, and ended with what it has begun.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use tds_examples::warn;
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet, time::timeout};
use tower_tds::Client;

use crate::{
    exit::{Exit, Failure},
    status::Board,
    stop,
};

/// What is bound before anything is asked of the service: an address that is taken is told at once.
pub(crate) struct Listeners {
    users: TcpListener,
    status: Option<TcpListener>,
}

// === impl Listeners ===

impl Listeners {
    pub(crate) async fn bind(
        listen: SocketAddr,
        status: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            users: bind("--listen", listen).await?,
            status: match status {
                Some(status) => Some(bind("--status", status).await?),
                None => None,
            },
        })
    }

    /// Serves until somebody wants the program to end, and lets what has begun come to its end for `grace`.
    pub(crate) async fn serve(
        self,
        router: Router,
        board: Board,
        client: &Client,
        grace: Duration,
    ) -> Result<Exit, Failure> {
        // Aborted when this ends, so that it shows the end, too.
        let mut pages = JoinSet::new();
        if let Some(listener) = self.status {
            warn(&format!("tds: status at http://{}", address(&listener)?));
            pages.spawn(axum::serve(listener, board.router()).into_future());
        }
        warn(&format!(
            "tds: listening on http://{}",
            address(&self.users)?
        ));
        let (stopping, stopped) = oneshot::channel::<()>();
        let serving = axum::serve(self.users, router).with_graceful_shutdown(async move {
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
}

async fn bind(option: &str, listen: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(listen).await;
    listener.map_err(|error| Failure::usage(format!("{option} {listen}: {error}")))
}

fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    let address = listener.local_addr();
    address.map_err(|error| Failure::new(Exit::SomeFailed, error.to_string()))
}
