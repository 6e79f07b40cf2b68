//! A hundred tasks that always have a call to make. Some cancel, and some stop polling.

use std::{collections::BTreeMap, fmt, future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use http_body_util::{BodyExt, Full};
use tds_sim::Sim;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_tds::{Error, TdsLayer};

use crate::{
    URL,
    script::{Fault, Latest},
};

/// The ends of all calls.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    ends: BTreeMap<(Option<Fault>, String), u64>,
    /// Longest time from a call to its head or error.
    pub(crate) latest: Duration,
}

// === impl Callers ===

impl Callers {
    pub(crate) async fn run(
        seed: u64,
        length: Duration,
        sim: Sim,
        layer: TdsLayer,
        latest: Latest,
    ) -> Self {
        let end = Instant::now() + length;
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let rng = Rng::with_seed(seed * TASKS + task);
            let (sim, layer) = (sim.clone(), layer.clone());
            tasks.spawn(one(rng, end, sim, layer, Latest::clone(&latest)));
        }
        let mut all = Self::default();
        for one in tasks.join_all().await {
            all.latest = all.latest.max(one.latest);
            for (end, count) in one.ends {
                *all.ends.entry(end).or_default() += count;
            }
        }
        all
    }

    /// Returns the time for which unpolled calls held their permits, in permit-seconds.
    pub(crate) fn held(&self) -> u64 {
        let kept = self.ends.iter().filter(|((_, end), _)| end == "kept");
        kept.map(|(_, count)| count * KEPT.as_secs()).sum()
    }

    /// Calls that failed without a fault at that time.
    ///
    /// A revocation soon after another may fail up to 15 calls, because a refused token is replaced
    /// at once only four times in a row, and then every five minutes.
    pub(crate) fn unexcused(&self, revocations: u64) -> Vec<(Option<Fault>, &str, u64)> {
        let is_excused = |fault, end: &str, count| match fault {
            Some(Fault::Revoked | Fault::SecretRotated) => {
                end == "InvalidToken" && count <= 15 * revocations
            }
            None | Some(Fault::TokenEndpoint) => false,
            _ => true,
        };
        let failed = self.ends.iter().filter(|((fault, end), count)| {
            !matches!(&**end, "ok" | "cancelled" | "kept") && !is_excused(*fault, end, **count)
        });
        failed
            .map(|((fault, end), count)| (*fault, &**end, *count))
            .collect()
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((fault, end), count) in &self.ends {
            let fault = fault.map_or("calm".to_owned(), |fault| format!("{fault:?}"));
            write!(f, "\n  {fault:16} {end:16} {count}")?;
        }
        Ok(())
    }
}

async fn one(mut rng: Rng, end: Instant, sim: Sim, layer: TdsLayer, latest: Latest) -> Callers {
    // As a connection does, a task sends the request and reads the head, whether or not the caller polls.
    let wire = service_fn(move |request| {
        let sent = tokio::spawn(sim.clone().oneshot(request));
        Box::pin(async move { sent.await.expect("no panic") })
    });
    let service = ServiceBuilder::new().layer(layer).service(wire);
    let mut callers = Callers::default();
    while Instant::now() < end {
        let request = Request::get(format!("{URL}/v1/live/bus"));
        let request = request.body(Full::<Bytes>::default()).expect("a request");
        let begun = Instant::now();
        let mut head = pin!(service.clone().oneshot(request));
        let ended = match rng.u32(..1_000) {
            // Cancelled, at any point.
            0..20 => {
                let patience = Duration::from_millis(rng.u64(..3_000));
                match timeout(patience, head).await {
                    Ok(head) => name(head.map(drop)),
                    Err(_) => "cancelled".to_owned(),
                }
            }
            // Polled once and kept, then dropped.
            20..22 => {
                let first = poll_fn(|cx| Poll::Ready(head.as_mut().poll(cx))).await;
                sleep(KEPT).await;
                if first.is_ready() {
                    "polled once"
                } else {
                    "kept"
                }
                .to_owned()
            }
            _ => {
                let head = head.await;
                callers.latest = callers.latest.max(begun.elapsed());
                match head {
                    Ok(response) => match response.into_body().collect().await {
                        Ok(_) => name(Ok(())),
                        Err(_) => "broken body".to_owned(),
                    },
                    Err(error) => name(Err(error)),
                }
            }
        };
        let fault = *latest.lock().expect("no panic");
        if ended != "ok" && ended != "cancelled" && ended != "kept" {
            // A caller pauses after a failure.
            sleep(Duration::from_millis(rng.u64(100..1_000))).await;
        }
        *callers.ends.entry((fault, ended)).or_default() += 1;
    }
    callers
}

fn name(end: Result<(), Error>) -> String {
    match end {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Deadline that the waits of ordinary calls do not reach: a hundred tasks wait two seconds for a
/// permit.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

/// Time for which an unpolled call is kept.
pub(crate) const KEPT: Duration = Duration::from_secs(20);

const TASKS: u64 = 100;
