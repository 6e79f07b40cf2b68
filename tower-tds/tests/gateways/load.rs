//! The load: targets, and the tasks that request them.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper_util::{client::legacy, rt::TokioExecutor};
use tds_sim::Server;
use tokio::task::JoinSet;
use tower::{BoxError, Service, ServiceExt as _, util::BoxCloneSyncService};
use tower_tds::{Client, Credentials, Limits, RequestBody};

/// A client that many tasks can share.
pub(crate) type Caller = BoxCloneSyncService<Request<RequestBody>, Response<Body>, BoxError>;

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

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
    client: Caller,
    front: SocketAddr,
    load: Load,
    calls: u32,
) -> Vec<String> {
    let url = format!("http://{front}{}", load.target());
    let made = Arc::new(AtomicU32::new(0));
    let mut driving = JoinSet::new();
    for _ in 0..TASKS {
        let (client, url, made) = (client.clone(), url.clone(), Arc::clone(&made));
        driving.spawn(async move {
            let mut lost = Vec::new();
            while made.fetch_add(1, SeqCst) < calls {
                let request = Request::get(&url).body(RequestBody::default());
                let response = client.clone().oneshot(request.expect("a request"));
                let ended = whole(response, load.size()).await;
                lost.extend(ended.err().map(|error| error.to_string()));
            }
            lost
        });
    }
    driving.join_all().await.concat()
}

async fn whole(
    response: impl Future<Output = Result<Response<Body>, BoxError>>,
    size: usize,
) -> Result<(), BoxError> {
    let body = response.await?.into_body().collect().await?.to_bytes();
    if body.len() == size {
        return Ok(());
    }
    Err(format!("{} bytes of {size}", body.len()).into())
}

/// Gives a service the types that all clients share.
pub(crate) fn boxed<S, B>(service: S) -> Caller
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError> + 'static>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let body = |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
    BoxCloneSyncService::new(service.map_response(body).map_err(Into::into))
}

/// The crate's stack, for data through `front` and for tokens from the service itself.
pub(crate) fn client(service: &Server, front: SocketAddr) -> Caller {
    // The tokens have a socket of their own, past the gateway.
    let sockets = NonZeroU32::new(60 + 1).expect("not zero");
    let credentials = Credentials::new(service.client_id(), service.client_secret());
    let credentials = credentials.expect("the simulator's are usable");
    let data = format!("http://{front}");
    let client = Client::builder(service.auth_url(), &data, credentials);
    let limits = Limits::default().connections(sockets);
    boxed(
        client
            .limits(limits)
            .build()
            .expect("loopback is let through"),
    )
}

/// hyper's own client, with a token that does not end.
pub(crate) fn bare(service: &Server, _: SocketAddr) -> Caller {
    let token = service.sim().token(service.client_id()).expect("a token");
    let token = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    boxed(http.map_request(move |mut request: Request<RequestBody>| {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
        request
    }))
}

const TASKS: u32 = 200;
