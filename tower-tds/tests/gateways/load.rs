//! The load: targets, and the tasks that request them.

use std::{
    fmt::Display,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper_util::{client::legacy, rt::TokioExecutor};
use tds_sim::Server;
use tokio::{task::JoinSet, time::sleep};
use tower::{Service, ServiceExt};
use tower_tds::{Client, Credentials, Limits, RequestBody};

/// The target of each call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// A hundred bytes.
    Small,
    /// 64 KiB in 200 ms.
    Medium,
    /// A body that takes 3 s.
    Long,
}

/// A client that many tasks can share.
pub(crate) trait Caller:
    Service<
        Request<RequestBody>,
        Response = Response<<Self as Caller>::Body>,
        Error: Display,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
    /// Type of the bodies of its answers.
    type Body: Body<Error: Display, Data: Send> + Send;
}

// === impl S ===

impl<S, B> Caller for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Display, Future: Send>,
    S: Clone + Send + 'static,
    B: Body<Error: Display, Data: Send> + Send,
{
    type Body = B;
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

/// Makes this many calls to `front` by 200 tasks. Returns the errors of the calls that were lost.
pub(crate) async fn drive(
    client: impl Caller,
    front: SocketAddr,
    load: Load,
    calls: u32,
) -> Vec<String> {
    drive_by(TASKS, Duration::ZERO, client, front, load, calls).await
}

/// The same with `tasks` tasks. They start one after the other, and wait for `gap` after each call.
pub(crate) async fn drive_by(
    tasks: u32,
    gap: Duration,
    client: impl Caller,
    front: SocketAddr,
    load: Load,
    calls: u32,
) -> Vec<String> {
    let url = format!("http://{front}{}", load.target());
    let made = Arc::new(AtomicU32::new(0));
    let mut driving = JoinSet::new();
    for nth in 0..tasks {
        let (client, url, made) = (client.clone(), url.clone(), Arc::clone(&made));
        driving.spawn(async move {
            let mut lost = Vec::new();
            sleep(gap * nth / tasks).await;
            while made.fetch_add(1, SeqCst) < calls {
                let request = Request::get(&url).body(RequestBody::default());
                let response = client.clone().oneshot(request.expect("a request"));
                lost.extend(whole(response, load.size()).await.err());
                sleep(gap).await;
            }
            lost
        });
    }
    driving.join_all().await.concat()
}

async fn whole<B: Body<Error: Display>>(
    response: impl Future<Output = Result<Response<B>, impl Display>>,
    size: usize,
) -> Result<(), String> {
    let body = response.await.map_err(|error| error.to_string())?;
    let body = body.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    if body.len() == size {
        Ok(())
    } else {
        Err(format!("{} bytes of {size}", body.len()))
    }
}

/// The crate's stack, for data through `front` and for tokens from the service itself.
pub(crate) fn client(service: &Server, front: SocketAddr) -> Client {
    // The tokens have a socket of their own, past the gateway.
    let sockets = NonZeroU32::new(60 + 1).expect("not zero");
    let credentials = Credentials::new(service.client_id(), service.client_secret());
    Client::builder(
        service.auth_url(),
        &format!("http://{front}"),
        credentials.expect("the simulator's are usable"),
    )
    .loopback_http()
    .limits(Limits::default().connections(sockets))
    .build()
    .expect("loopback is let through")
}

/// hyper's own client, with a token that does not end.
pub(crate) fn bare(service: &Server, _: SocketAddr) -> impl Caller + use<> {
    let token = service.sim().token(service.client_id()).expect("a token");
    let token = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
    legacy::Client::builder(TokioExecutor::new())
        .build_http()
        .map_request(move |mut request: Request<RequestBody>| {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
            request
        })
}

const TASKS: u32 = 200;
