//! The entry in the store: what its readers and writers can do with it.

use std::{
    io::{self, Read as _},
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use sha2::{Digest as _, Sha256, Sha512};
use tokio::time::Instant;
use tower_oidc_cc::TokenStore as _;
use tower_tds_fleet::RedisTokens;

use super::world::{DAY, World, entry, everything, load, name, put, token, turns, until};
use crate::shares::{RedisServer, or_skip};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `bytes` contain a part of `secret`, its hex form, or its hash.
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
async fn store_content_shows_no_token_secret_or_client() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    let member = world.member(server.client());
    let asking = tokio::spawn(async move { token(&member).await });
    until("a turn", || turns(&server) == 1).await;
    let mut seen = everything(&server);
    let token = asking.await.unwrap();
    seen.extend(everything(&server));
    assert_eq!(seen.len(), 2, "the turn, and then the token");
    let whose = [world.sim.client_id(), "https://sso.example.com"];
    let secrets = [token.as_str(), world.sim.client_secret()];
    for (name, value) in &seen {
        assert!(name.starts_with("{fleet}:token:"), "{name}");
        for secret in secrets.iter().chain(&whose) {
            assert!(
                !shows(name.as_bytes(), secret) && !shows(value, secret),
                "{name}"
            );
        }
    }
    // The same check finds values that are not sealed.
    let bare = [&token, &hex(token.as_bytes()), &token[20..40]];
    assert!(bare.iter().all(|bare| shows(bare.as_bytes(), &token)));
    assert!(shows(&Sha256::digest(&token), &token));
    let shown = format!("{:?}", world.store(server.client()));
    assert!(
        !shows(shown.as_bytes(), world.sim.client_secret()),
        "{shown}"
    );
}

#[tokio::test]
async fn redis_key_expires_with_its_token() {
    let server = or_skip!(RedisServer::start());
    let store = World::new().store(server.client());
    let stored = entry("key", "token");
    let begun = Instant::now();
    store.save("key", &stored).await.unwrap();
    // Redis 7 has a command for it.
    let script = "local time = redis.call('TIME') \
                  return time[1] * 1000 + math.floor(time[2] / 1000) + redis.call('PTTL', KEYS[1])";
    let mut ask = redis::cmd("EVAL");
    let ask = ask.arg(script).arg(1).arg(name(&server));
    let until: u64 = ask.query(&mut server.connection()).unwrap();
    let said = stored.expires_at().duration_since(SystemTime::UNIX_EPOCH);
    // The clock of the store moves between the two commands.
    let apart = u128::from(until).abs_diff(said.unwrap().as_millis());
    assert!(apart <= 100 + begun.elapsed().as_millis(), "{apart}");
}

#[tokio::test]
async fn token_expires_by_its_sealed_expiry_without_a_redis_ttl() {
    let server = or_skip!(RedisServer::start());
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

/// Values that were changed, of another version, of another key or of another secret.
#[tokio::test]
async fn invalid_sealed_value_is_replaced_by_a_new_token() {
    let server = or_skip!(RedisServer::start());
    let world = World::new();
    token(&world.member(server.client())).await;
    let (name, sealed) = everything(&server).swap_remove(0);
    let mut changed = sealed.clone();
    changed[40] ^= 1;
    let mut version = sealed.clone();
    version[0] = 2;
    let longer = [sealed.clone(), vec![0; 200_000]].concat();
    let (ours, theirs) = (
        world.store(server.client()),
        RedisTokens::new(server.client(), "fleet", "another secret"),
    );
    ours.save("key", &entry("key", "other")).await.unwrap();
    theirs.save("key", &entry("key", "other")).await.unwrap();
    let all = everything(&server).into_iter();
    let others: Vec<_> = all.filter(|(it, _)| *it != name).collect();
    let [(_, one), (_, two)] = &others[..] else {
        panic!("each secret and each key has a name of its own: {others:?}");
    };
    let short = &sealed[..60];
    for bad in [b"garbage", &changed[..], &version, short, &longer, one, two] {
        let before = world.posts();
        put(&server, &name, bad);
        let new = token(&world.member(server.client())).await;
        assert_eq!(world.posts(), before + 1);
        assert_eq!(token(&world.member(server.client())).await, new);
        assert_eq!(world.posts(), before + 1, "the next has it from the store");
    }
}

#[tokio::test]
async fn oversized_store_value_is_read_only_in_part() {
    let server = or_skip!(RedisServer::start());
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
    assert!(load(&store, "key").await.unwrap().is_none());
    // 128 KiB, before and after it takes the turn.
    assert!(sent() - before < 300_000);
    // A token of 64 KiB is not too long.
    let long = entry("key", &"t".repeat(64 * 1024));
    store.save("key", &long).await.unwrap();
    let loaded = load(&store, "key").await.unwrap().unwrap();
    assert_eq!(loaded.as_bytes(), long.as_bytes());
}

#[tokio::test]
async fn documented_rights_are_sufficient() {
    let server = or_skip!(RedisServer::start());
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
    let client = server.client_of("member");
    let (one, two) = (
        RedisTokens::new(client.clone(), "fleet", "secret"),
        RedisTokens::new(client.clone(), "fleet", "secret"),
    );
    // It takes the turn, because there is no entry.
    assert!(load(&one, "key").await.unwrap().is_none());
    assert_eq!(turns(&server), 1);
    one.save("key", &entry("key", "token")).await.unwrap();
    assert_eq!(turns(&server), 0);
    assert!(load(&two, "key").await.unwrap().is_some());
    // The keys of another fleet are refused.
    let other = RedisTokens::new(client, "other", "secret");
    assert!(load(&other, "key").await.is_err());
}

#[tokio::test]
async fn invalid_sealed_value_is_logged_without_its_content() {
    let server = or_skip!(RedisServer::start());
    let (mut log, writer) = io::pipe().unwrap();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let subscriber = subscriber.with_writer(Arc::new(writer)).finish();
    // With one dispatcher, the thread that uses a callsite first decides for all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _default = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    let store = RedisTokens::new(server.client(), "fleet", "secret");
    store.save("key", &entry("key", "token")).await.unwrap();
    let (name, sealed) = everything(&server).swap_remove(0);
    for value in [&sealed[..], b"garbage"] {
        put(&server, &name, value);
        load(&store, "key").await.unwrap();
    }
    tracing::info!("so that something was written");
    let mut text = [0; 1 << 16];
    let length = log.read(&mut text).unwrap();
    let text = str::from_utf8(&text[..length]).unwrap();
    // Before it takes the turn, and after that.
    assert_eq!(text.matches("does not open").count(), 2, "{text}");
    assert!(text.contains(&name) && !text.contains("garbage"), "{text}");
}
