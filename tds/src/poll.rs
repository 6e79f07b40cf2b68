//! `tds poll`: requests feeds at an interval, for weeks.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use serde_json::json;
use tokio::{
    fs,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tower_tds::{Client, Kind, layers::token::Health};

use crate::{
    answer::{Accept, Asked, MOST},
    ending::{Ending, QUOTA_GONE, Trouble},
    exit::{Exit, Failure},
    known::Known,
    list::{self, Item},
    outage::Outages,
    output::{self, warn},
    save,
    settings::{Settings, count, duration},
};

/// Request feeds at an interval, and print a line for each change
#[derive(Debug, Args)]
#[command(
    after_help = "Each feed has at most one request at a time, and skips the rounds that it misses. You get one line when an outage begins and one when it ends. Ctrl-C leaves only complete files."
)]
pub(crate) struct Poll {
    /// File with one path and query per line, as for bulk; - reads stdin
    #[arg(long, value_name = "FILE")]
    list: String,
    /// How often to request each feed
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    every: Duration,
    /// Write each feed to a file in this folder, replaced only by a complete one
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Print changes, failures and the end as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// End after this many rounds
    #[arg(long, value_name = "N", value_parser = count)]
    rounds: Option<NonZeroU32>,
    /// Wait when the quota is used up, instead of ending
    #[arg(long)]
    wait_quota: bool,
}

/// Feed, with the version of its last whole response.
struct Feed {
    item: Item,
    client: Client,
    accept: Accept,
    path: Option<PathBuf>,
    deadline: Duration,
    /// Bounds how many feeds have a request at once. The others wait in order.
    turns: Arc<Semaphore>,
    known: Known,
    is_empty: bool,
}

/// Result of a feed's request, and when that request was sent.
struct Round {
    feed: usize,
    sent_at: Instant,
    outcome: RoundResult,
}

/// Number of bytes of a changed response; `None` without a change.
type RoundResult = Result<Option<u64>, Trouble>;

pub(crate) async fn run(job: Poll, settings: &Settings) -> Result<Exit, Failure> {
    let items = list::read(&job.list)?;
    let service = settings.service().await?;
    let _alone = job.out.as_deref().map(save::alone).transpose()?;
    let client = settings.client(service.builder).await?;
    let mut stop = pin!(settings.stop.requested());
    let (sender, mut rounds) = mpsc::channel(64);
    let mut feeds = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    for (number, item) in items.iter().cloned().enumerate() {
        let feed = Feed {
            path: job.out.as_ref().map(|out| out.join(&item.name)),
            item,
            client: client.clone(),
            accept: service.accept.clone(),
            deadline: job.every.clamp(SHORTEST, LONGEST),
            turns: Arc::clone(&turns),
            known: Known::default(),
            is_empty: true,
        };
        feeds.spawn(feed.poll(number, job.every, job.rounds, sender.clone()));
    }
    drop(sender);

    let mut outages = Outages::of(items.len());
    let mut ending = Ending::new(None, job.wait_quota);
    let mut tick = interval(TICK);
    let exit = loop {
        tokio::select! {
            round = rounds.recv() => {
                let Some(round) = round else {
                    break outages.exit();
                };
                let name = items.get(round.feed).map_or("", |item| &item.target);
                let token = client.tokens().health();
                if let Some(exit) = report(name, round, job.json, &token, &mut outages, &mut ending)? {
                    break exit;
                }
            }
            now = tick.tick() => {
                let paused = client.status().limits.paused_for;
                if let Some(exit) = ending.paused(paused, now) {
                    warn(QUOTA_GONE);
                    break exit;
                }
            }
            // This job regularly ends by a signal, so that counts as success.
            () = &mut stop => break Exit::Whole,
        }
    };
    feeds.shutdown().await;
    client.shutdown(Duration::from_millis(500)).await;
    Ok(exit)
}

/// Prints the result of a round. Returns the exit if the job ends.
fn report(
    name: &str,
    round: Round,
    is_json: bool,
    token: &Health,
    outages: &mut Outages,
    ending: &mut Ending,
) -> Result<Option<Exit>, Failure> {
    let change = match round.outcome {
        Ok(change) => change,
        Err(trouble) => {
            let line = trouble.line(Path::new(name));
            if let Some(line) = outages.failed(round.feed, &trouble, &line) {
                warn(&line);
            }
            if is_json {
                let kind = trouble.kind();
                let event = json!({ "event": "failed", "url": name, "kind": kind, "error": line });
                output::print(format!("{event}\n"))?;
            }
            return Ok(ending.failed(&trouble, token));
        }
    };
    ending.succeeded();
    for line in outages.succeeded(round.feed, round.sent_at, name) {
        warn(&line);
    }
    let Some(bytes) = change else {
        return Ok(None);
    };
    let event = json!({ "event": "change", "url": name, "bytes": bytes });
    let has_reader = output::tell(is_json, &event, format!("{name}\t{bytes}\n"))?;
    // The reader has closed the pipe, as `head` does, so the job is done.
    Ok((!has_reader).then_some(Exit::Whole))
}

// === impl Feed ===

impl Feed {
    async fn poll(
        mut self,
        number: usize,
        every: Duration,
        rounds: Option<NonZeroU32>,
        news: mpsc::Sender<Round>,
    ) {
        let mut due = interval(every);
        // One round replaces all those that an outage took.
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures = 0_u32;
        let (mut round, last) = (0, rounds.map(|rounds| rounds.get() - 1));
        let mut begun = None;
        loop {
            due.tick().await;
            // The deadline begins after the turn, or else the last feeds of a long list would miss
            // it.
            let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else {
                return;
            };
            let sent_at = Instant::now();
            let outcome = self.round().await;
            drop(turn);
            // Without the role no further request can succeed.
            let is_over = matches!(&outcome, Err(Trouble::Service(error)) if error.kind() == Kind::MissingRole);
            failures = if outcome.is_ok() { 0 } else { failures + 1 };
            let result = Round {
                feed: number,
                sent_at,
                outcome,
            };
            if news.send(result).await.is_err() || is_over || Some(round) == last {
                return;
            }
            round = round.saturating_add(1);
            // Rounds count from here, because the first request may have waited for a token and a
            // permit.
            let begun = *begun.get_or_insert_with(Instant::now);
            if failures == 0 {
                continue;
            }
            // Rounds go by while a feed fails, so that it does not prolong the job. In the last
            // round it is always requested.
            let backoff = every.saturating_mul(1 << (failures - 1).min(16));
            let next = Instant::now() + backoff.min(every.max(BACKOFF));
            let last_at = last.and_then(|last| begun.checked_add(every.checked_mul(last)?));
            let next = last_at.map_or(next, |last_at| next.min(last_at));
            if failures > 1 {
                due.reset_at(next);
            }
            let passed = next.saturating_duration_since(begun).as_nanos() / every.as_nanos();
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            round = passed.min(last.unwrap_or(u32::MAX)).max(round);
        }
    }

    async fn round(&mut self) -> RoundResult {
        let there = match &self.path {
            Some(path) => fs::metadata(path).await.ok(),
            None => None,
        };
        let (target, now) = (&*self.item.target, Instant::now());
        // If its file was removed, the feed is requested without a condition.
        let is_there = there.is_some() || self.path.is_none();
        let condition = self.known.condition(now).filter(|_| is_there);
        let asked = Asked {
            target,
            condition,
            replaces: !self.is_empty || there.is_some_and(|there| there.len() > 0),
            file: self.path.as_deref(),
            most: Some(MOST),
            ..Asked::default()
        };
        let answer = self.accept.get(&self.client, asked, self.deadline, &[]);
        let answer = answer.await?;
        // Remembered only after the file is written, because the service does not send a known
        // version again.
        let mut known = self.known.clone();
        let (_, body) = known.read(answer, asked, now).await?;
        let is_new = !known.is_same(&self.known);
        if let Some(body) = &body {
            if let Some(path) = self.path.as_ref().filter(|_| is_new || !is_there) {
                if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
                    fs::create_dir_all(folder).await?;
                }
                save::whole(path, body).await?;
            }
            self.is_empty = body.is_empty();
        }
        self.known = known;
        Ok(body.filter(|_| is_new).map(|body| body.len() as u64))
    }
}

/// Most feeds with a request at once: more than can be in flight, and few enough to meet one
/// deadline.
const AT_ONCE: usize = 100;

const TICK: Duration = Duration::from_millis(250);

/// Longest time between two requests of a feed that fails.
const BACKOFF: Duration = Duration::from_secs(60);

/// Shortest deadline, enough for a token and a permit.
const SHORTEST: Duration = Duration::from_secs(10);

/// Longest deadline. A later response would be old.
const LONGEST: Duration = Duration::from_secs(60);
