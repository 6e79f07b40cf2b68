//! Tokens that die, and cold starts, over sockets on a runtime of several threads.
//!
//! Under one thread and a paused clock the two tasks that poll a token request take turns. Here
//! they meet.

use tokio::task::JoinSet;
use tower_tds::Client;

use crate::client::world::{Built as _, builder, config, read_many, start};

/// Makes several calls at once, and returns the errors.
async fn calls(client: &Client) -> Vec<String> {
    let ended = read_many(client, CALLS).await.into_iter();
    ended
        .filter_map(|ended| ended.err().map(|error| format!("{error:#}")))
        .collect()
}

/// Cold starts one after the other, each with a death of its token. Returns the errors of all
/// calls.
async fn starts_and_deaths(times: u64) -> Vec<String> {
    // The clients have limits of their own, and one address.
    let config = config(|config| (config.rate, config.connections) = (u32::MAX, u32::MAX));
    let server = start(config).await;
    let mut errors = Vec::new();
    for _ in 0..times {
        let client = builder(&server).built();
        errors.extend(calls(&client).await);
        server.sim().revoke_all();
        errors.extend(calls(&client).await);
    }
    let posts = server.sim().ledger().summary().token_posts;
    assert_eq!(posts, 2 * times, "one for each start and each death");
    errors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_dead_tokens_and_cold_starts_fail_no_call() {
    let mut lanes = JoinSet::new();
    for _ in 0..LANES {
        lanes.spawn(starts_and_deaths(200 / LANES));
    }
    let errors: Vec<_> = lanes.join_all().await.into_iter().flatten().collect();
    assert!(errors.is_empty(), "{} failed: {errors:#?}", errors.len());
}

/// Fewer than a bucket takes at once, the resends after the death included.
const CALLS: usize = 4;

/// Each lane mostly waits for permits.
const LANES: u64 = 20;
