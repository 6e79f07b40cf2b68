//! Other kinds of programs, over sockets to the simulated service. The tests assert on its ledger.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Empty, Full};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tds_sim::{Config, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tonic::{Status, metadata::MetadataValue, service::interceptor::InterceptedService};
use tower::{Layer, Service, ServiceExt};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, FileStore, Origin, Outcome, Rejection, TokenEndpoint, TokenSource,
};

use crate::layer::providers::Dir;

type Http = Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>;

fn http() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn started() -> (Server, TokenSource) {
    let server = Server::start(Config::default()).await.unwrap();
    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect").unwrap();
    let credentials = Credentials::new(server.client_id(), server.client_secret()).unwrap();
    (
        server,
        TokenSource::builder(endpoint, credentials).build(http()),
    )
}

fn data(server: &Server) -> Uri {
    format!("{}/v1/live/bus", server.base_url())
        .parse()
        .unwrap()
}

/// Asserts one token request, and one call whose token the service accepted.
fn served(server: &Server) {
    let seen = server.ledger().summary();
    assert_eq!((seen.token_posts, seen.data_calls), (1, 1));
}

#[tokio::test]
async fn reqwest_call_sends_a_token_without_the_layer() {
    let (server, source) = started().await;
    let token = source.token().await.unwrap();
    let client = reqwest::Client::new();
    let call = client
        .get(data(&server).to_string())
        .header("authorization", token.header());
    assert_eq!(call.send().await.unwrap().status(), 200);
    served(&server);
}

#[tokio::test]
async fn tonic_interceptor_sends_the_current_token() {
    let (server, source) = started().await;
    // Once, before the first call: an interceptor cannot wait.
    source.ready().await.unwrap();
    let interceptor = move |mut request: tonic::Request<()>| {
        let token = crate::layer::support::current(&source);
        let token = token.ok_or_else(|| Status::unavailable("there is no token"))?;
        let value = MetadataValue::try_from(token.header().as_bytes());
        let value = value.map_err(|error| Status::internal(error.to_string()))?;
        request.metadata_mut().insert("authorization", value);
        Ok::<_, Status>(request)
    };
    let service = InterceptedService::new(http(), interceptor);
    let request = Request::get(data(&server)).body(Full::default()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 200);
    served(&server);
}

/// A connection of hyper's own. Its requests carry a path alone, like those of tonic's clients.
async fn connection(
    server: &Server,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<hyper::body::Incoming>, Error = hyper::Error>
{
    connection_to(data(server).authority().unwrap().as_str()).await
}

async fn connection_to(
    authority: &str,
) -> impl Service<
    Request<Empty<Bytes>>,
    Response = Response<hyper::body::Incoming>,
    Error = hyper::Error,
> + use<> {
    let stream = TcpStream::connect(authority).await.unwrap();
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    drop(tokio::spawn(connection.with_upgrades()));
    Sender(sender)
}

struct Sender(hyper::client::conn::http1::SendRequest<Empty<Bytes>>);

impl Service<Request<Empty<Bytes>>> for Sender {
    type Response = Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

fn origin(server: &Server) -> Origin {
    Origin::loopback(&data(server)).unwrap()
}

#[tokio::test]
async fn layer_for_an_origin_wraps_a_plain_hyper_connection() {
    let (server, source) = started().await;
    let layer = BearerAuthLayer::for_origin(source, origin(&server));
    let uri = data(&server);
    let request = Request::get(uri.path())
        .header("host", uri.authority().unwrap().as_str())
        .body(Empty::new())
        .unwrap();
    let service = layer.layer(connection(&server).await);
    assert_eq!(service.oneshot(request).await.unwrap().status(), 200);
    served(&server);
}

/// A server that upgrades a request with the token, and echoes what it then gets.
#[tokio::test]
async fn an_upgraded_connection_began_with_the_token() {
    let (server, source) = started().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let switch =
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\nconnection: upgrade\r\n\r\n";
        socket.write_all(switch).await.unwrap();
        let mut word = [0; 4];
        socket.read_exact(&mut word).await.unwrap();
        socket.write_all(&word).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let uri: Uri = format!("http://{address}/socket").parse().unwrap();
    let token = source.token().await.unwrap();
    let layer = BearerAuthLayer::for_origin(source, Origin::loopback(&uri).unwrap());
    let request = Request::get("/socket")
        .header("host", address.to_string())
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    let service = layer.layer(connection_to(&address.to_string()).await);
    let answer = service
        .oneshot(request.body(Empty::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), 101);
    let mut upgraded = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    upgraded.write_all(b"ping").await.unwrap();
    let mut word = [0; 4];
    upgraded.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"ping");
    let head = echo.await.unwrap().to_ascii_lowercase();
    let bearer = token.header().to_str().unwrap().to_ascii_lowercase();
    assert!(
        head.contains(&format!("authorization: {bearer}\r\n")),
        "{head}"
    );
    assert_eq!(server.ledger().summary().token_posts, 1);
}

#[tokio::test]
async fn layer_works_below_generated_tonic_clients() {
    // Generated clients want a service like this one, and send it paths alone.
    fn fits<S>(_: &S)
    where
        S: tonic::client::GrpcService<tonic::body::Body> + Clone,
    {
    }
    let (server, source) = started().await;
    let layer = BearerAuthLayer::for_origin(source, origin(&server));
    let channel = tonic::transport::Endpoint::from_shared(server.base_url().to_owned());
    let service = layer.layer(channel.unwrap().connect_lazy());
    fits(&service);
    let request = Request::get(data(&server).path()).body(tonic::body::Body::empty());
    let answer = service.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.version(), http::Version::HTTP_2);
    served(&server);
}

/// An error of a program's own, around another.
#[derive(Debug)]
struct Outer(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no timetable")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// The chain of causes on one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let links = std::iter::successors(Some(error), |link| link.source());
    let links: Vec<_> = links.map(ToString::to_string).collect();
    links.join(": ")
}

#[tokio::test]
async fn printed_error_names_the_endpoint_and_the_root_cause() {
    // The error of a resolver for an unknown name.
    let resolver = tower::service_fn(async |_: hyper_util::client::legacy::connect::dns::Name| {
        let error = "failed to lookup address information: Name or service not known";
        Err::<std::vec::IntoIter<std::net::SocketAddr>, _>(std::io::Error::other(error))
    });
    let mut connector =
        hyper_util::client::legacy::connect::HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    let endpoint = TokenEndpoint::keycloak("https://auth.example.org", "ServiceConnect").unwrap();
    let credentials = Credentials::new("id", "canary-secret").unwrap();
    let source = TokenSource::builder(endpoint, credentials).build(client);
    let error = source.token().await.unwrap_err();
    let place = "(https://auth.example.org/auth/realms/ServiceConnect/protocol/openid-connect/token): failed to lookup address information";
    assert!(error.to_string().contains(place), "{error}");
    assert!(format!("{error:#}").contains(place), "{error:#}");
    assert_eq!(format!("{error:?}").lines().count(), 2, "{error:?}");
    let service = {
        let origin = Origin::from_uri(&Uri::from_static("https://api.example.org")).unwrap();
        BearerAuthLayer::new(source, [origin]).layer(http())
    };
    let request = Request::get("https://api.example.org").body(Full::default());
    let error = service.oneshot(request.unwrap()).await.unwrap_err();
    // The layers above wrap the error like this: boxed, in a program's own error.
    let outer = Outer(error.into());
    assert_eq!(outer.to_string(), "no timetable");
    let printed = chain(&outer);
    assert!(printed.contains(place), "{printed}");
    assert!(!printed.contains("canary"), "{printed}");
    let debug = format!("{outer:?}");
    assert!(
        debug.contains("failed to lookup address information"),
        "{debug}"
    );
}

fn stored(server: &Server, dir: &Dir, secret: &str) -> TokenSource {
    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect").unwrap();
    let credentials = Credentials::new(server.client_id(), secret).unwrap();
    let store = FileStore::new(dir.0.join("token.json"));
    TokenSource::builder(endpoint, credentials)
        .store(store)
        .build(http())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_programs_with_a_wrong_secret_and_one_file_make_one_request() {
    let (server, dir) = (
        Server::start(Config::default()).await.unwrap(),
        Dir::new("wrong"),
    );
    let mut programs = JoinSet::new();
    for _ in 0..20 {
        let program = stored(&server, &dir, "wrong");
        programs.spawn(async move { program.ready().await.unwrap_err() });
    }
    for error in programs.join_all().await {
        assert!(error.oauth_error().is_some(), "{error}");
    }
    assert_eq!(server.ledger().summary().token_posts, 1);
    let corrected = stored(&server, &dir, server.client_secret());
    corrected.ready().await.unwrap();
    assert_eq!(server.ledger().summary().token_posts, 2);
}

/// The simulator tells the reason in its body, which this layer does not read.
fn role<B>(mut response: Response<B>) -> Response<B> {
    if response.status() == 401 {
        response.extensions_mut().insert(Outcome::RoleMissing);
    }
    response
}

#[expect(
    clippy::disallowed_methods,
    reason = "entries of a store are dated by the system's clock"
)]
#[tokio::test]
async fn a_role_that_was_granted_between_two_programs_is_seen_by_the_second() {
    let mut config = Config::default();
    config.roles = vec!["history".into()];
    let (server, dir) = (Server::start(config).await.unwrap(), Dir::new("role"));
    stored(&server, &dir, server.client_secret())
        .ready()
        .await
        .unwrap();
    server.set_roles(server.client_id(), ["live"]).unwrap();
    for (minutes, status, posts) in [(4, 401, 1), (6, 200, 2)] {
        // As if the first program had run this long ago.
        let file = dir.0.join("token.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut entry: serde_json::Value = serde_json::from_str(&text).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = u64::try_from(now.unwrap().as_millis()).unwrap();
        entry["issued"] = (now - minutes * 60_000).into();
        std::fs::write(&file, entry.to_string()).unwrap();

        let source = stored(&server, &dir, server.client_secret());
        let layer = BearerAuthLayer::new(source, [origin(&server)]);
        let get = || Request::get(data(&server)).body(Full::default()).unwrap();
        let service = layer.layer(http().map_response(role));
        let mut answer = service.clone().oneshot(get()).await.unwrap();
        let rejection = answer.extensions().get::<Rejection>();
        if rejection.is_some_and(Rejection::is_worth_a_resend) {
            answer = service.oneshot(get()).await.unwrap();
        }
        assert_eq!(answer.status(), status, "{minutes}");
        assert_eq!(server.ledger().summary().token_posts, posts);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_programs_with_one_file_replace_a_revoked_token_by_one_request() {
    let mut config = Config::default();
    config.rate = 1_000_000;
    let (server, dir) = (Server::start(config).await.unwrap(), Dir::new("revoked"));
    let mut programs = JoinSet::new();
    let together = std::sync::Arc::new(tokio::sync::Barrier::new(21));
    for _ in 0..20 {
        let source = stored(&server, &dir, server.client_secret());
        let service = BearerAuthLayer::new(source, [origin(&server)]).layer(http());
        let (uri, together) = (data(&server), std::sync::Arc::clone(&together));
        programs.spawn(async move {
            let get = || Request::get(uri.clone()).body(Full::default()).unwrap();
            let before = service.clone().oneshot(get()).await.unwrap().status();
            together.wait().await;
            together.wait().await;
            let refused = service.clone().oneshot(get()).await.unwrap();
            let rejection = refused.extensions().get::<Rejection>();
            assert!(rejection.is_some_and(Rejection::is_worth_a_resend));
            (before, service.oneshot(get()).await.unwrap().status())
        });
    }
    together.wait().await;
    assert_eq!(server.ledger().summary().token_posts, 1);
    server.revoke_all();
    together.wait().await;
    for (before, after) in programs.join_all().await {
        assert_eq!((before, after), (StatusCode::OK, StatusCode::OK));
    }
    assert_eq!(server.ledger().summary().token_posts, 2);
}
