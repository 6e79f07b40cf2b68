//! Worlds in a line: the simulated service on sockets, over pipes or under a stack, and clients of it.
//!
//! Connections, stacks and futures are boxed, so that they are compiled once, and not in each test.

use std::{
    future::{Future, ready},
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tds_sim::{Config, Faults, Server, Sim};
use tokio::{
    io::{DuplexStream, duplex},
    task::JoinSet,
    time::sleep,
};
use tower::{
    BoxError, ServiceBuilder, ServiceExt as _, service_fn as service, util::BoxCloneSyncService,
};
use tower_tds::{
    Builder, Call, Client, Credentials, Error, Limiter, Limits, TdsLayer,
    layers::token::{Origin, TokenEndpoint, TokenSource},
};

use crate::connections::net::Pipe;

pub(crate) const AUTH: &str = "https://auth.example.org";
pub(crate) const DATA: &str = "https://data.example.org";
pub(crate) const PATH: &str = "/v1/live/bus";
pub(crate) const SECOND: Duration = Duration::from_secs(1);

// === Services ===

pub(crate) fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

/// Faults by their texts: `data=503@every:2`, `token=slow:3s`, `head=400ms`.
pub(crate) fn faults(texts: &[&str]) -> Faults {
    let mut faults = Faults::default();
    for text in texts {
        match text.split_once('=').expect("what it is") {
            ("data", fault) => faults.data.push(fault.parse().expect("a fault")),
            ("token", fault) => faults.token.push(fault.parse().expect("a fault")),
            (_, delay) => faults.before_head = delay.parse().expect("a delay"),
        }
    }
    faults
}

pub(crate) async fn start(config: Config) -> Server {
    Server::start(config).await.expect("a free port")
}

/// The service as it is by default, and a client of it.
pub(crate) async fn served() -> (Server, Client) {
    let server = start(Config::default()).await;
    let client = builder(&server).built();
    (server, client)
}

/// The service with these faults, and a client that has its token.
pub(crate) async fn faulty(texts: &[&str]) -> (Server, Client) {
    let (server, client) = served().await;
    client.tokens().ready().await.expect("a token");
    server.sim().set_faults(faults(texts));
    (server, client)
}

/// The service under TLS, and its certificate.
pub(crate) async fn secure() -> (Server, Vec<u8>) {
    let server = start(config(|config| config.tls = true)).await;
    let authority = std::fs::read(server.ca_file().expect("it speaks TLS"));
    (server, authority.expect("it is there"))
}

// === Clients ===

pub(crate) fn credentials(sim: &Sim) -> Credentials {
    let credentials = Credentials::new(sim.client_id(), sim.client_secret());
    credentials.expect("the simulator's are usable")
}

/// Credentials for a service that looks at none.
pub(crate) fn secret() -> Credentials {
    Credentials::new("id", "s3cr3t").expect("they can be sent")
}

pub(crate) fn builder(server: &Server) -> Builder {
    builder_at(server, server.base_url())
}

/// Builds a client for data from `base`.
pub(crate) fn builder_at(server: &Server, base: &str) -> Builder {
    Client::builder(server.auth_url(), base, credentials(server.sim()))
}

/// A client of two hosts that are not there.
pub(crate) fn https(credentials: Credentials) -> Builder {
    Client::builder(AUTH, DATA, credentials)
}

pub(crate) trait Built {
    fn built(self) -> Client;
}

impl Built for Builder {
    fn built(self) -> Client {
        self.build().expect("all of it can be used")
    }
}

pub(crate) fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("a count is not zero")
}

/// The response of a call, whose body is not read.
pub(crate) fn head(call: Call) -> BoxFuture<'static, Result<tower_tds::Response, Error>> {
    Box::pin(call.into_future())
}

/// The whole body of a call.
pub(crate) fn read(call: Call) -> BoxFuture<'static, Result<Bytes, Error>> {
    Box::pin(async { call.await?.bytes().await })
}

/// The results of calls that are made at once.
pub(crate) async fn at_once<T: Send + 'static>(
    calls: impl IntoIterator<Item = BoxFuture<'static, T>>,
) -> Vec<T> {
    let calls: JoinSet<_> = calls.into_iter().collect();
    calls.join_all().await
}

/// The bodies of that many calls, which are made at once.
pub(crate) async fn read_many(client: &Client, calls: usize) -> Vec<Result<Bytes, Error>> {
    at_once((0..calls).map(|_| read(client.get(PATH)))).await
}

/// Waits for what goes on at a server.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        sleep(Duration::from_millis(5)).await;
    }
}

// === Stacks ===

pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Stack = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Error>;

/// Tokens of a service without a socket.
pub(crate) fn tokens(sim: &Sim) -> TokenSource {
    let endpoint = TokenEndpoint::keycloak(AUTH, "ServiceConnect").expect("a URL");
    TokenSource::builder(endpoint, credentials(sim)).build::<_, Full<Bytes>, _>(sim.clone())
}

pub(crate) fn origin() -> Origin {
    Origin::from_uri(&Uri::from_static(DATA)).expect("an origin")
}

/// The whole layer over the service without a socket.
pub(crate) fn stack(sim: &Sim, limits: Limits) -> Stack {
    let layer = TdsLayer::new(tokens(sim), [origin()], Limiter::new(limits));
    let stack = ServiceBuilder::new()
        .map_response(|response: Response<_>| response.map(boxed))
        .layer(layer)
        .map_future(Box::pin)
        .service(sim.clone());
    BoxCloneSyncService::new(stack)
}

fn boxed(body: impl http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(format!("{DATA}{path}"));
    request.body(Full::default()).expect("a request")
}

// === Pipes ===

pub(crate) type Connector = BoxCloneSyncService<Uri, Pipe, BoxError>;

pub(crate) fn connector<F: Future<Output = io::Result<Pipe>> + Send + 'static>(
    connect: impl Fn(Uri) -> F + Clone + Send + Sync + 'static,
) -> Connector {
    BoxCloneSyncService::new(service(connect).map_err(BoxError::from))
}

/// Opens a connection to the service.
pub(crate) fn pipe_to(sim: &Sim) -> Pipe {
    let (pipe, there) = pipe();
    let sim = sim.clone();
    tokio::spawn(async move {
        let _counted = sim.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let answer = service_fn(|request: Request<Incoming>| sim.clone().oneshot(request));
        let there = TokioIo::new(there);
        drop(http1::Builder::new().serve_connection(there, answer).await);
    });
    pipe
}

/// A client of the service, over pipes.
pub(crate) fn piped(sim: &Sim) -> Builder {
    let serves = sim.clone();
    let pipes = connector(move |_| ready(Ok(pipe_to(&serves))));
    https(credentials(sim)).connector(pipes)
}

/// A connection in this process, and its other end.
pub(crate) fn pipe() -> (Pipe, DuplexStream) {
    let (here, there) = duplex(64 * 1024);
    (Pipe::new(here), there)
}
