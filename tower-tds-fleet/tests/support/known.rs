//! A store that knows that nothing was granted before it came: others would have to wait for what may have
//! been.

use std::time::Duration;

use tower_tds_fleet::Fleet;
use tower_tds_limits::{AskLease, Leases, Limits};

use crate::redis_server::RedisServer;

/// Makes it one, and gives for how long it would have granted nothing.
pub(crate) async fn known(store: &RedisServer, name: &str, limits: &Limits) -> Duration {
    let mut ask = AskLease::default();
    ask.max_wait = Some(Duration::ZERO);
    let fleet = Fleet::join(&store.url(), name, limits).expect("a store");
    let refused = fleet.lease(ask).await.expect_err("it grants nothing yet");
    // The fourth of its numbers says from when on it grants.
    let script = "local numbers = redis.call('HGET', KEYS[1], 'numbers') \
                  numbers = numbers:sub(1, 24) .. struct.pack('<d', 0) .. numbers:sub(33) \
                  redis.call('HSET', KEYS[1], 'numbers', numbers)";
    let mut eval = redis::cmd("EVAL");
    let eval = eval.arg(script).arg(1).arg(format!("{{{name}}}:quota"));
    eval.query::<()>(&mut store.connection())
        .expect("it is kept");
    refused.retry_after().expect("it says when")
}
