//! One token for fifty, over a redis-server: what the token endpoint saw, and what lies in the store.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

#[path = "support/redis_server.rs"]
mod redis_server;

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderValue, Request, header::WWW_AUTHENTICATE};
use http_body_util::Full;
use redis::{Client, TlsCertificates};
use redis_server::RedisServer;
use sha2::{Digest as _, Sha256, Sha512};
use tds_sim::{Config, Sim};
use tokio::{runtime, task::JoinSet, time};
use tower::{Layer as _, ServiceExt as _};
use tower_oidc_cc::{
    BearerAuthLayer, Credentials, Origin, StoredToken, TokenEndpoint, TokenSource,
    TokenSourceBuilder, TokenStore as _,
};
use tower_tds_fleet::RedisTokens;

/// The service, and a wall clock that can be moved.
#[derive(Clone)]
struct World {
    sim: Sim,
    ahead: Arc<AtomicU64>,
}

// === impl World ===

impl World {
    /// A token endpoint whose answers take long enough for everybody to ask meanwhile.
    fn new() -> Self {
        let mut config = Config::default();
        config.faults.token = vec!["slow:300ms".parse().unwrap()];
        config.rate = 1_000_000;
        // The wall clock of the members is moved by days; no token says that it is over by then.
        config.skew_seconds = 30 * 86_400;
        Self {
            sim: Sim::new(config),
            ahead: Arc::default(),
        }
    }

    fn builder(&self) -> TokenSourceBuilder {
        let endpoint = TokenEndpoint::keycloak("https://sso.example.com", "ServiceConnect");
        let (id, secret) = (self.sim.client_id(), self.sim.client_secret());
        let credentials = Credentials::new(id, secret).unwrap();
        let ahead = Arc::clone(&self.ahead);
        let builder = TokenSource::builder(endpoint.unwrap(), credentials);
        builder.wall_clock(move || now() + Duration::from_secs(ahead.load(Ordering::Relaxed)))
    }

    fn store(&self, client: Client) -> RedisTokens {
        RedisTokens::new(client, "fleet", self.sim.client_secret())
    }

    /// A process: it has nothing in common with the others but the store and the service.
    fn member(&self, client: Client) -> TokenSource {
        let builder = self.builder().store(self.store(client));
        builder.build::<_, Full<Bytes>, _>(self.sim.clone())
    }

    fn members(&self, client: &Client, many: usize) -> Vec<TokenSource> {
        (0..many).map(|_| self.member(client.clone())).collect()
    }

    fn posts(&self) -> u64 {
        self.sim.ledger().summary().token_posts
    }

    /// To where tokens of a day are renewed.
    fn to_renewal(&self) {
        self.ahead.fetch_add(DAY * 81 / 100, Ordering::Relaxed);
    }

    /// What a call with the token of this member is answered.
    async fn call(&self, member: &TokenSource) -> u16 {
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
fn now() -> SystemTime {
    SystemTime::now()
}

/// The token of a member, when what came of it is in the store.
async fn token(member: &TokenSource) -> String {
    let token = member.token().await.unwrap().secret().to_owned();
    member.idle().await;
    token
}

/// The tokens of all, who ask at once.
async fn tokens(members: &[TokenSource]) -> Vec<String> {
    let mut asking = JoinSet::new();
    for member in members {
        let member = member.clone();
        asking.spawn(async move { token(&member).await });
    }
    asking.join_all().await
}

/// Waits until this is so; a test that waits in vain fails.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = time::timeout(Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "in vain: {what}");
}

/// Waits until each has another token than this, and says which.
async fn successor(members: &[TokenSource], old: &str) -> String {
    let current = |member: &TokenSource| member.try_token().map(|token| token.secret().to_owned());
    let replaced = |member| current(member).is_some_and(|token| token != old);
    until("another token", || members.iter().all(replaced)).await;
    let new = current(&members[0]).unwrap();
    for member in members {
        assert_eq!(current(member).unwrap(), new);
    }
    new
}

/// Everything that lies in the store.
fn everything(server: &RedisServer) -> Vec<(String, Vec<u8>)> {
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let get = |key: String| {
        let value = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
        (key, value)
    };
    keys.into_iter().map(get).collect()
}

/// The name of the one token that lies in the store.
fn name(server: &RedisServer) -> String {
    let mut names = everything(server).into_iter().map(|(name, _)| name);
    names.find(|name| !name.ends_with(":lease")).unwrap()
}

fn leases(server: &RedisServer) -> usize {
    let all = everything(server);
    all.iter()
        .filter(|(name, _)| name.ends_with(":lease"))
        .count()
}

fn put(server: &RedisServer, name: &str, value: &[u8]) {
    let mut set = redis::cmd("SET");
    set.arg(name)
        .arg(value)
        .exec(&mut server.connection())
        .unwrap();
}

/// An entry as `StoredToken` has them, of a token that lives for an hour.
fn entry(key: &str, token: &str) -> StoredToken {
    let issued = now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let issued = issued.as_millis();
    let entry = format!(r#"{{"key":"{key}","token":"{token}","issued":{issued},"life":3600000}}"#);
    StoredToken::from_bytes(entry)
}

#[test]
fn fifty_cold_members_on_five_runtimes_make_one_request() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let ten = |_| {
        let (world, client) = (world.clone(), server.client());
        std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let members = world.members(&client, 10);
            runtime.unwrap().block_on(tokens(&members))
        })
    };
    let threads: Vec<_> = (0..5).map(ten).collect();
    let all: Vec<_> = threads
        .into_iter()
        .flat_map(|ten| ten.join().unwrap())
        .collect();
    assert_eq!(all.len(), 50);
    assert!(all.iter().all(|token| *token == all[0]));
    assert_eq!(world.posts(), 1);
    assert_eq!(leases(&server), 0, "its end came with the token");
}

#[tokio::test]
async fn one_renews_and_the_other_forty_nine_take_what_it_got() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 50);
    let mut old = tokens(&members).await.swap_remove(0);
    for renewal in 2..=3 {
        world.to_renewal();
        old = successor(&members, &old).await;
        assert_eq!(world.posts(), renewal);
    }
}

#[tokio::test]
async fn a_token_that_dies_early_has_one_successor_for_all() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 50);
    let old = tokens(&members).await.swap_remove(0);
    for member in &members {
        assert_eq!(world.call(member).await, 200);
    }
    world.sim.revoke(&old);
    let mut calls = JoinSet::new();
    for member in members.clone() {
        let world = world.clone();
        calls.spawn(async move { [world.call(&member).await, world.call(&member).await] });
    }
    for answers in calls.join_all().await {
        assert_eq!(answers, [401, 200], "each hears of it once");
    }
    successor(&members, &old).await;
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn who_hears_last_of_a_dead_token_finds_its_successor() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    let old = tokens(&members).await.swap_remove(0);
    world.sim.revoke(&old);
    for member in &members {
        assert_eq!(world.call(member).await, 401);
        assert_eq!(world.call(member).await, 200);
        member.idle().await;
        assert_eq!(world.posts(), 2);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What of `secret` would be found in `bytes`: any part of it, in hex too, or a hash of it.
fn shows(bytes: &[u8], secret: &str) -> bool {
    let mut parts: Vec<Vec<u8>> = secret.as_bytes().windows(12).map(<[u8]>::to_vec).collect();
    parts.push(hex(secret.as_bytes()).into_bytes());
    for hash in [
        Sha256::digest(secret).to_vec(),
        Sha512::digest(secret).to_vec(),
    ] {
        parts.push(hex(&hash[..8]).into_bytes());
        parts.push(hash[..8].to_vec());
    }
    let has = |part: &Vec<u8>| bytes.windows(part.len()).any(|window| window == part);
    parts.iter().any(has)
}

#[tokio::test]
async fn who_reads_the_store_finds_neither_token_nor_secret_nor_whose_it_is() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let member = world.member(server.client());
    let asking = tokio::spawn(async move { token(&member).await });
    until("a lease", || leases(&server) == 1).await;
    let mut seen = everything(&server);
    let token = asking.await.unwrap();
    seen.extend(everything(&server));
    assert_eq!(seen.len(), 2, "the lease, and then the token");
    let whose = [world.sim.client_id(), "https://sso.example.com"];
    let secrets = [token.as_str(), world.sim.client_secret()];
    let mut found = 0;
    for (name, value) in &seen {
        assert!(name.starts_with("{fleet}:token:"), "{name}");
        for secret in secrets.iter().chain(&whose) {
            assert!(
                !shows(name.as_bytes(), secret) && !shows(value, secret),
                "{name}"
            );
        }
    }
    // The same eyes see what is not sealed.
    for bare in [
        token.clone(),
        hex(token.as_bytes()),
        token[20..40].to_owned(),
    ] {
        found += usize::from(shows(bare.as_bytes(), &token));
    }
    assert_eq!(found, 3);
    assert!(shows(&Sha256::digest(&token), &token));
    let shown = format!("{:?}", world.store(server.client()));
    assert!(
        !shows(shown.as_bytes(), world.sim.client_secret()),
        "{shown}"
    );
}

#[tokio::test]
async fn a_token_goes_when_it_expires_by_the_stores_clock() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = World::new().store(server.client());
    let stored = entry("key", "token");
    store.save("key", &stored).await.unwrap();
    let mut ask = redis::cmd("PEXPIRETIME");
    let until: u64 = ask
        .arg(name(&server))
        .query(&mut server.connection())
        .unwrap();
    let said = stored.expires_at().duration_since(SystemTime::UNIX_EPOCH);
    assert_eq!(u128::from(until), said.unwrap().as_millis());
}

#[tokio::test]
async fn a_token_that_stays_is_believed_no_longer_than_it_says() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let old = token(&world.member(server.client())).await;
    let mut persist = redis::cmd("PERSIST");
    persist
        .arg(name(&server))
        .exec(&mut server.connection())
        .unwrap();
    world.ahead.fetch_add(DAY - 60, Ordering::Relaxed);
    assert_eq!(token(&world.member(server.client())).await, old);
    world.ahead.fetch_add(61, Ordering::Relaxed);
    let before = world.posts();
    assert_ne!(token(&world.member(server.client())).await, old);
    assert_eq!(world.posts(), before + 1);
}

#[tokio::test]
async fn a_value_that_does_not_open_is_as_none_and_makes_room() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    token(&world.member(server.client())).await;
    let (name, sealed) = everything(&server).swap_remove(0);
    let mut changed = sealed.clone();
    changed[40] ^= 1;
    let mut version = sealed.clone();
    version[0] = 2;
    let longer = [sealed.clone(), vec![0; 200_000]].concat();
    for bad in [
        b"garbage",
        changed.as_slice(),
        &version,
        &sealed[..60],
        &longer,
    ] {
        let before = world.posts();
        put(&server, &name, bad);
        let new = token(&world.member(server.client())).await;
        assert_eq!(world.posts(), before + 1);
        assert_eq!(token(&world.member(server.client())).await, new);
        assert_eq!(world.posts(), before + 1, "the next has it from the store");
    }
}

#[tokio::test]
async fn who_writes_to_the_store_does_not_choose_how_much_is_read() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    let stored = entry("key", "token");
    store.save("key", &stored).await.unwrap();
    put(&server, &name(&server), &vec![1; 8_000_000]);
    let mut connection = server.connection();
    let mut sent = || -> u64 {
        let mut info = redis::cmd("INFO");
        let text: String = info.arg("stats").query(&mut connection).unwrap();
        let (_, rest) = text.split_once("total_net_output_bytes:").unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = sent();
    assert!(store.load("key").await.unwrap().is_none());
    assert!(sent() - before < 200_000);
    // A token of 64 KiB is not too long.
    let long = entry("key", &"t".repeat(64 * 1024));
    store.save("key", &long).await.unwrap();
    let loaded = store.load("key").await.unwrap().unwrap();
    assert_eq!(loaded.as_bytes(), long.as_bytes());
}

#[tokio::test]
async fn the_rights_that_the_documentation_names_are_enough() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let mut rights = redis::cmd("ACL");
    rights.arg(&["SETUSER", "member", "on", ">password", "~{fleet}:token:*"]);
    rights.arg(&[
        "+getrange",
        "+set",
        "+get",
        "+del",
        "+evalsha",
        "+script|load",
    ]);
    rights.exec(&mut server.connection()).unwrap();
    let url = format!("{}?user=member&pass=password", server.url());
    let client = Client::open(url).unwrap();
    let (one, two) = (
        RedisTokens::new(client.clone(), "fleet", "secret"),
        RedisTokens::new(client.clone(), "fleet", "secret"),
    );
    let term = Duration::from_secs(600);
    assert!(one.lease("key", term).await.unwrap());
    assert!(one.release("key"));
    until("the end of the lease", || leases(&server) == 0).await;
    assert!(two.lease("key", term).await.unwrap());
    two.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(leases(&server), 0);
    assert!(one.load("key").await.unwrap().is_some());
    // And they are rights: of another fleet there is nothing to have.
    let other = RedisTokens::new(client, "other", "secret");
    assert!(other.load("key").await.is_err());
}

#[tokio::test]
async fn a_value_of_another_key_or_secret_in_its_place_does_not_open() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = |secret| RedisTokens::new(server.client(), "fleet", secret);
    let (ours, other) = (store("one secret"), store("another secret"));
    ours.save("key", &entry("key", "token")).await.unwrap();
    let wanted = name(&server);
    assert!(
        other.load("key").await.unwrap().is_none(),
        "it has a name of its own"
    );
    other.save("key", &entry("key", "other")).await.unwrap();
    ours.save("second", &entry("second", "second"))
        .await
        .unwrap();
    let all = everything(&server);
    assert_eq!(all.len(), 3);
    for (name, value) in all {
        put(&server, &wanted, &value);
        let opened = ours.load("key").await.unwrap();
        assert_eq!(opened.is_some(), name == wanted, "{name}");
    }
}

#[tokio::test]
async fn a_value_that_does_not_open_is_told_of_once_and_not_shown() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    store.save("key", &entry("key", "token")).await.unwrap();
    let (name, sealed) = everything(&server).swap_remove(0);
    for (value, told) in [
        (b"garbage".as_slice(), 1),
        (b"garbage", 1),
        (&sealed, 1),
        (b"garbage", 2),
    ] {
        put(&server, &name, value);
        store.load("key").await.unwrap();
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said.matches("does not open").count(), told, "{said}");
        assert!(said.contains(&name) && !said.contains("garbage"), "{said}");
    }
}

/// What was told to `tracing`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_lease_is_had_by_one_and_ended_by_that_one_alone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = || RedisTokens::new(server.client(), "fleet", "secret");
    let (one, two) = (store(), store());
    let term = Duration::from_secs(600);
    assert!(one.lease("key", term).await.unwrap());
    assert!(!two.lease("key", term).await.unwrap());
    // It has ended by itself, and another has it now.
    let delete = redis::cmd("FLUSHALL");
    delete.exec(&mut server.connection()).unwrap();
    assert!(two.lease("key", term).await.unwrap());
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(leases(&server), 1, "who was late saves, and ends nothing");
    assert!(one.release("key"));
    assert!(one.release("other"), "and does not wait for it");
    settled(&server, 2).await;
    assert_eq!(leases(&server), 1);
    assert!(two.release("key"));
    until("the end of the lease", || leases(&server) == 0).await;
    assert!(one.lease("key", term).await.unwrap());
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(leases(&server), 0);
}

/// Waits until the server has run as many scripts as this, since its start, to their ends.
async fn settled(server: &RedisServer, scripts: u32) {
    until("the scripts", || {
        let mut info = redis::cmd("INFO");
        let text: String = info
            .arg("commandstats")
            .query(&mut server.connection())
            .unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"));
        let count = |name| {
            let (_, rest) = line?.split_once(name)?;
            rest.split(',').next()?.parse::<u32>().ok()
        };
        let ran = count(":calls=").unwrap_or(0) - count("failed_calls=").unwrap_or(0);
        ran >= scripts
    })
    .await;
}

#[tokio::test]
async fn a_request_that_fails_leaves_the_lease_to_others_at_once() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let mut faults = world.sim.faults();
    faults.token = vec!["503".parse().unwrap()];
    world.sim.set_faults(faults);
    // Its lease would last for twenty minutes.
    let builder = world.builder().timeout(Duration::from_secs(600));
    let member = builder.store(world.store(server.client()));
    let member = member.build::<_, Full<Bytes>, _>(world.sim.clone());
    assert!(member.ready().await.is_err());
    until("the end of the lease", || leases(&server) == 0).await;
}

#[test]
fn when_the_member_that_asks_dies_another_takes_over_and_one_alone() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let healthy = world.sim.faults();
    let mut faults = healthy.clone();
    faults.token = vec!["slow:3600s".parse().unwrap()];
    world.sim.set_faults(faults);
    // Its lease lasts for four seconds.
    let bound = Duration::from_millis(500);
    let builder = world.builder().timeout(bound).readiness(bound);
    let builder = builder.store(world.store(server.client()));
    let first = builder.build::<_, Full<Bytes>, _>(world.sim.clone());
    let runtime = || {
        runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
    };
    let dying = runtime().unwrap();
    dying.block_on(async {
        drop(first.try_token());
        until("its request", || world.posts() == 1).await;
    });
    // As a process does: nothing of it runs any more, and its lease is left.
    dying.shutdown_background();
    assert_eq!(leases(&server), 1);
    world.sim.set_faults(healthy);
    let others = world.members(&server.client(), 10);
    let all = runtime().unwrap().block_on(tokens(&others));
    assert!(all.iter().all(|token| *token == all[0]));
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn without_a_store_at_the_start_each_asks_for_itself() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let client = server.client();
    server.kill();
    let world = World::new();
    let members = world.members(&client, 5);
    tokens(&members).await;
    assert_eq!(world.posts(), 5);
    // It is there: the next renewal is one for all.
    server.restart();
    let renewed = renewed(&world, &members).await;
    assert!(renewed.iter().all(|token| *token == renewed[0]));
    assert_eq!(world.posts(), 6);
}

/// The tokens of all after a renewal, which each has by itself or from another.
async fn renewed(world: &World, members: &[TokenSource]) -> Vec<String> {
    let before = tokens(members).await;
    world.to_renewal();
    let current = |member: &TokenSource| member.try_token().map(|token| token.secret().to_owned());
    until("other tokens", || {
        let mut pairs = members.iter().zip(&before);
        pairs.all(|(member, old)| current(member).is_some_and(|token| token != *old))
    })
    .await;
    tokens(members).await
}

#[tokio::test]
async fn a_store_that_dies_costs_one_request_each_and_no_call() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    tokens(&members).await;
    assert_eq!(world.posts(), 1);
    server.kill();
    for member in &members {
        assert_eq!(world.call(member).await, 200, "who has a token asks nobody");
    }
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 5);
    for member in &members {
        assert_eq!(world.call(member).await, 200);
    }
}

#[tokio::test]
async fn a_store_that_was_restarted_or_flushed_between_two_renewals_costs_nothing() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 10);
    tokens(&members).await;
    server.kill();
    server.restart();
    renewed(&world, &members).await;
    assert_eq!(
        world.posts(),
        2,
        "no member stumbles over its old connection"
    );
    let flush = redis::cmd("FLUSHALL");
    flush.exec(&mut server.connection()).unwrap();
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 3);
}

#[tokio::test]
async fn a_store_that_hangs_costs_one_request_each_and_no_call() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    let members = world.members(&server.client(), 5);
    tokens(&members).await;
    server.hang();
    for member in &members {
        assert_eq!(world.call(member).await, 200, "who has a token asks nobody");
    }
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 5);
    let cold = world.members(&server.client(), 5);
    tokens(&cold).await;
    assert_eq!(world.posts(), 1 + 10);
    server.go_on();
    renewed(&world, &members).await;
    assert_eq!(world.posts(), 1 + 10 + 1);
}

#[tokio::test]
async fn a_store_that_hangs_says_so_before_it_is_given_up() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    let bound = Duration::from_secs(1);
    // Over a connection that is there, and over one that is not.
    for _ in 0..2 {
        assert!(store.load("key").await.unwrap().is_none());
        server.hang();
        for _ in 0..2 {
            let load = time::timeout(bound, store.load("key"));
            assert!(load.await.unwrap().is_err());
            let lease = time::timeout(bound, store.lease("key", bound));
            assert!(lease.await.unwrap().is_err());
        }
        server.go_on();
    }
}

#[tokio::test]
async fn without_a_secret_nothing_is_stored_and_each_asks_for_itself() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let world = World::new();
    for members in 1..=2 {
        let builder = world.builder();
        let builder = builder.store(RedisTokens::new(server.client(), "fleet", " \n"));
        token(&builder.build::<_, Full<Bytes>, _>(world.sim.clone())).await;
        assert_eq!(world.posts(), members);
    }
    assert!(everything(&server).is_empty());
}

#[tokio::test]
async fn white_space_around_the_secret_is_none_of_it() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let store = |secret| RedisTokens::new(server.client(), "fleet", secret);
    store("secret")
        .save("key", &entry("key", "token"))
        .await
        .unwrap();
    let found = store("secret\n").load("key").await.unwrap();
    assert!(
        found.is_some(),
        "secrets come from files that end with a newline"
    );
}

#[tokio::test]
async fn over_tls_the_store_is_the_one_that_its_certificate_names() {
    let name = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = name.self_signed(&key).unwrap().pem();
    let mut port = 0;
    let server = RedisServer::start_with(|folder| {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port = free.local_addr().unwrap().port();
        [
            ("--tls-port", port.to_string()),
            ("--bind", "127.0.0.1".to_owned()),
            ("--tls-cert-file", file("certificate", &certificate)),
            ("--tls-key-file", file("key", &key.serialize_pem())),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    });
    let Some(server) = server else {
        return;
    };
    let client = |host: &str, root: Option<&str>| {
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: root.map(|root| root.as_bytes().to_vec()),
        };
        Client::build_with_tls(format!("rediss://{host}:{port}/"), certificates).unwrap()
    };
    let world = World::new();
    token(&world.member(client("localhost", Some(&certificate)))).await;
    token(&world.member(client("localhost", Some(&certificate)))).await;
    assert_eq!(world.posts(), 1);
    assert_eq!(everything(&server).len(), 1);
    // Whom it does not know it tells nothing, and asks for itself.
    token(&world.member(client("127.0.0.1", Some(&certificate)))).await;
    token(&world.member(client("localhost", None))).await;
    assert_eq!(world.posts(), 3);
}

const DAY: u64 = 86_400;
