//! Six cases of a frozen service: the deadline ends `tds get` with an exit code and no data.

use std::net::TcpListener;

use super::world;
use crate::{at_once, ended, err, output, waits};

#[tokio::test]
async fn six_cases_of_a_frozen_service_end_at_the_deadline() {
    // Faults or the setting of an address that is never accepted, what the job waits for, and the data calls.
    let cases = [
        ("head=3600s", "", RESPONSE, 1),
        ("stall:3600s", "", RESPONSE, 1),
        ("drip:2s", "", RESPONSE, 1),
        ("token=slow:3600s", "", TOKEN, 0),
        ("", "TDS_BASE_URL", RESPONSE, 0),
        ("", "TDS_AUTH_URL", TOKEN, 0),
    ];
    at_once(cases, |(faults, silent, awaited, calls)| async move {
        let bench = world().await;
        bench.fail(faults);
        // Its connections are made by the system, and never accepted.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        let mut get = bench.tds("get /v1/live/bus --deadline 6s");
        if !silent.is_empty() {
            get.env(silent, address);
        }
        let run = output(get).await;
        ended(&run, 5);
        let (posts, asked) = bench.asked();
        assert!(run.stdout.is_empty(), "no data, and no part of it");
        let (waits, lines) = (waits(&run), err(&run));
        let first = format!("tds: waiting for {awaited}");
        assert!(waits.starts_with(&first), "{waits}");
        let last = lines.lines().last().expect("a line");
        assert_eq!(last.contains("a token from"), awaited == TOKEN, "{lines}");
        assert_eq!(asked, calls, "{faults}{silent}");
        assert!(posts <= 1, "{faults}{silent}: {posts}");
    })
    .await;
}

const TOKEN: &str = "a token from http";

const RESPONSE: &str = "the response\n";
