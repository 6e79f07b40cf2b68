//! The service, its members, and the content of the store.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, Request, header::WWW_AUTHENTICATE};
use http_body_util::Full;
use redis::Client;
use tds_sim::{Config, Sim};
use tokio::{task::JoinSet, time};
use tower::{Layer as _, ServiceExt as _};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, Origin, StoredToken, TokenEndpoint, TokenSource,
    TokenSourceBuilder, TokenStore as _,
};
use tower_tds_fleet::RedisTokens;

use crate::shares::redis_server::RedisServer;

/// Service, and a wall clock that can be moved.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) ahead: Arc<AtomicU64>,
}

// === impl World ===

impl World {
    /// A token endpoint that replies so slowly that all members can send a request before.
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        config.faults.token = vec!["slow:300ms".parse().unwrap()];
        config.rate = 1_000_000;
        Self {
            sim: Sim::new(config),
            ahead: Arc::default(),
        }
    }

    pub(crate) fn builder(&self) -> TokenSourceBuilder {
        let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect");
        let (id, secret) = (self.sim.client_id(), self.sim.client_secret());
        let credentials = Credentials::new(id, secret).unwrap();
        let ahead = Arc::clone(&self.ahead);
        let builder = TokenSource::builder(endpoint.unwrap(), credentials);
        builder.wall_clock(move || now() + Duration::from_secs(ahead.load(Ordering::Relaxed)))
    }

    pub(crate) fn store(&self, client: Client) -> RedisTokens {
        RedisTokens::new(client, "fleet", self.sim.client_secret())
    }

    /// A process. It shares only the store and the service with the others.
    pub(crate) fn member(&self, client: Client) -> TokenSource {
        let builder = self.builder().store(self.store(client));
        builder.build::<_, Full<Bytes>, _>(self.sim.clone())
    }

    pub(crate) fn members(&self, client: &Client, many: usize) -> Vec<TokenSource> {
        (0..many).map(|_| self.member(client.clone())).collect()
    }

    pub(crate) fn posts(&self) -> u64 {
        self.sim.ledger().summary().token_posts
    }

    /// Moves the clock to the renewal of a token of one day, and to the use of the new tokens: until half of what they have
    /// left, the old ones are used.
    pub(crate) async fn renew(&self, members: &[TokenSource]) {
        let count = |member: &TokenSource| member.health().generation;
        let before: Vec<u64> = members.iter().map(count).collect();
        self.ahead.fetch_add(DAY * 81 / 100, Ordering::Relaxed);
        until("new tokens", || {
            let mut members = members.iter().zip(&before);
            // The first call after the step of the clock starts the renewal.
            members.all(|(member, before)| current(member).is_some() && count(member) > *before)
        })
        .await;
        self.ahead.fetch_add(DAY / 10, Ordering::Relaxed);
    }

    /// The response to a call with the token of this member.
    pub(crate) async fn call(&self, member: &TokenSource) -> u16 {
        let uri = "https://data.example.com/v1/live/bus";
        let origin = Origin::from_uri(&uri.parse().unwrap()).unwrap();
        let layer = BearerAuthLayer::new(member.clone(), [origin]);
        let request = Request::get(uri).body(Full::<Bytes>::default()).unwrap();
        let sim = self.sim.clone();
        let gateway = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let answer = sim.clone().oneshot(request);
            async move {
                let mut answer = answer.await?;
                if answer.status() == 401 {
                    let why = HeaderValue::from_static(r#"Bearer error="invalid_token""#);
                    answer.headers_mut().insert(WWW_AUTHENTICATE, why);
                }
                Ok::<_, tds_sim::Error>(answer)
            }
        });
        let answer = layer.layer(gateway).oneshot(request).await;
        answer.unwrap().status().as_u16()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the store's clock is the system's, and tokens expire there"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns the token of a member, after the store has it.
pub(crate) async fn token(member: &TokenSource) -> String {
    let token = member.token().await.unwrap().secret().to_owned();
    member.idle().await;
    token
}

/// The tokens of all members, which request at once.
pub(crate) async fn tokens(members: &[TokenSource]) -> Vec<String> {
    let mut asking = JoinSet::new();
    for member in members {
        let member = member.clone();
        asking.spawn(async move { token(&member).await });
    }
    asking.join_all().await
}

/// Waits until the condition holds, and fails the test after a minute.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = time::timeout(Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "in vain: {what}");
}

/// The token of a member, without a wait. If there is none, a token request begins.
pub(crate) fn current(member: &TokenSource) -> Option<String> {
    match pin!(member.token()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(token)) => Some(token.secret().to_owned()),
        Poll::Ready(Err(_)) | Poll::Pending => None,
    }
}

/// Returns all keys and values of the store.
pub(crate) fn everything(server: &RedisServer) -> Vec<(String, Vec<u8>)> {
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let get = |key: String| {
        let value = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
        (key, value)
    };
    keys.into_iter().map(get).collect()
}

/// Returns the name of the only token in the store.
pub(crate) fn name(server: &RedisServer) -> String {
    let mut names = everything(server).into_iter().map(|(name, _)| name);
    names.find(|name| !name.ends_with(":turn")).unwrap()
}

pub(crate) fn turns(server: &RedisServer) -> usize {
    let all = everything(server);
    all.iter()
        .filter(|(name, _)| name.ends_with(":turn"))
        .count()
}

pub(crate) fn put(server: &RedisServer, name: &str, value: &[u8]) {
    let mut set = redis::cmd("SET");
    set.arg(name)
        .arg(value)
        .exec(&mut server.connection())
        .unwrap();
}

/// An entry as `StoredToken` has them, of a token that lives for an hour.
pub(crate) fn entry(key: &str, token: &str) -> StoredToken {
    let issued = now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let issued = issued.as_millis();
    let entry = format!(r#"{{"key":"{key}","token":"{token}","issued":{issued},"life":3600000}}"#);
    StoredToken::from_bytes(entry)
}

/// Returns the tokens of all members after a renewal, whether requested or read from the store.
pub(crate) async fn renewed(world: &World, members: &[TokenSource]) -> Vec<String> {
    let before = tokens(members).await;
    world.renew(members).await;
    until("other tokens", || {
        let mut pairs = members.iter().zip(&before);
        pairs.all(|(member, old)| current(member).is_some_and(|token| token != *old))
    })
    .await;
    tokens(members).await
}

/// Reads the entry of a key, without a turn.
pub(crate) async fn load(
    store: &RedisTokens,
    key: &str,
) -> Result<Option<StoredToken>, Box<dyn std::error::Error + Send + Sync>> {
    store.load(key, &|_| true).await
}

pub(crate) const DAY: u64 = 86_400;
