//! What the calls ask for, and who makes them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use http::Request;
use http_body_util::BodyExt;
use tds_sim::Server;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_tds::{Client, Credentials, Limits, RequestBody};

/// What each call asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// A hundred bytes.
    Small,
    /// 64 KiB in 200 ms.
    Medium,
    /// A body that takes 3 s.
    Long,
}

// === impl Load ===

impl Load {
    /// The calls of a whole run.
    pub(crate) fn calls(self) -> u32 {
        match self {
            Self::Small | Self::Medium => 1_500,
            Self::Long => 600,
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Small => "/v1/history/small?bytes=100",
            Self::Medium => "/v1/history/medium?bytes=65536&rate=327680",
            Self::Long => "/v1/history/long?bytes=30000&rate=10000",
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Small => 100,
            Self::Medium => 65_536,
            Self::Long => 30_000,
        }
    }
}

/// Makes so many calls to `front` by 200 tasks; says what became of those that were lost.
pub(crate) async fn drive(
    client: Client,
    front: SocketAddr,
    load: Load,
    calls: u32,
) -> Vec<String> {
    let url = format!("http://{front}{}", load.target());
    let made = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, url, made) = (client.clone(), url.clone(), Arc::clone(&made));
        tasks.spawn(async move {
            let mut lost = Vec::new();
            while made.fetch_add(1, SeqCst) < calls {
                lost.extend(call(client.clone(), &url, load.size()).await.err());
            }
            lost
        });
    }
    tasks.join_all().await.concat()
}

async fn call(client: Client, url: &str, size: usize) -> Result<(), String> {
    let request = Request::get(url).body(RequestBody::default());
    let response = client.oneshot(request.expect("a request")).await;
    let response = response.map_err(|error| error.to_string())?;
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if body.len() == size {
        Ok(())
    } else {
        Err(format!("{} bytes of {size}", body.len()))
    }
}

/// The house stack, for data through `front` and for tokens from the service itself.
pub(crate) fn client(service: &Server, front: SocketAddr, limits: Limits) -> Client {
    let credentials = Credentials::new(service.client_id(), service.client_secret());
    Client::builder(
        service.auth_url(),
        &format!("http://{front}"),
        credentials.expect("the simulator's are usable"),
    )
    .loopback_http()
    .limits(limits)
    .build()
    .expect("loopback is let through")
}

const TASKS: u32 = 200;
