//! Other kinds of programs, over sockets to the simulated service. The tests assert on its ledger.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tds_sim::{Config, Server};
use tokio::task::JoinSet;
use tonic::{Status, metadata::MetadataValue, service::interceptor::InterceptedService};
use tower::{Layer, ServiceExt};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, FileStore, Origin, Outcome, TokenEndpoint, TokenSource,
    TokenSourceBuilder,
};

use crate::layer::{providers::Dir, support::is_worth_a_resend};

pub(crate) type Http = Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>;

pub(crate) fn http() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn started() -> (Server, TokenSource) {
    let server = Server::start(Config::default()).await.unwrap();
    let source = builder(&server).build(http());
    (server, source)
}

fn builder(server: &Server) -> TokenSourceBuilder {
    let endpoint = TokenEndpoint::keycloak(server.auth_url(), "ServiceConnect").unwrap();
    let credentials = Credentials::new(server.client_id(), server.client_secret()).unwrap();
    TokenSource::builder(endpoint, credentials)
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

fn origin(server: &Server) -> Origin {
    Origin::from_uri(&data(server)).unwrap()
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

fn stored(server: &Server, dir: &Dir) -> TokenSource {
    let store = FileStore::new(dir.0.join("token.json"));
    builder(server).store(store).build(http())
}

/// The simulator has the reason in its body, which this layer does not read.
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
    stored(&server, &dir).ready().await.unwrap();
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

        let source = stored(&server, &dir);
        let layer = BearerAuthLayer::new(source, [origin(&server)]);
        let get = || Request::get(data(&server)).body(Full::default()).unwrap();
        let service = layer.layer(http().map_response(role));
        let mut answer = service.clone().oneshot(get()).await.unwrap();
        if is_worth_a_resend(&answer) {
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
        let source = stored(&server, &dir);
        let service = BearerAuthLayer::new(source, [origin(&server)]).layer(http());
        let (uri, together) = (data(&server), std::sync::Arc::clone(&together));
        programs.spawn(async move {
            let get = || Request::get(uri.clone()).body(Full::default()).unwrap();
            let before = service.clone().oneshot(get()).await.unwrap().status();
            together.wait().await;
            together.wait().await;
            let refused = service.clone().oneshot(get()).await.unwrap();
            assert!(is_worth_a_resend(&refused));
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
