//! `tds bulk`: a list of files, each whole or not at all. The same command downloads the rest.

use std::{
    collections::BTreeSet,
    io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
    vec,
};

use crate::output;
use clap::{Args, builder::ArgPredicate};
use indicatif::DecimalBytes;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tower_tds::Client;

use crate::{
    download::{Came, Manner, Trouble, download},
    ending::Ending,
    exit::{Exit, Failure},
    list::{self, Item},
    manifest::{MANIFEST, Manifest, Origin},
    output::{Progress, rough},
    report::Report,
    save,
    settings::Settings,
    stop,
};

/// Bring a list of files: each is there whole or not at all
#[derive(Debug, Args)]
#[command(
    after_help = "Run it again for what is missing: what is there is skipped, and what was cut is gone on with where the service can. Ctrl-C leaves whole files."
)]
pub(crate) struct Bulk {
    /// A file with a path and query a line, sent byte for byte, and behind
    /// a TAB the name of its file, if wanted; - is the standard input
    #[arg(long, value_name = "FILE")]
    list: String,
    /// The folder for the files
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Write the sums to this file, as JSON, with a list to run again
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// How many files at once; 5 with --compress, where each may take the
    /// window of its coding, twice 4 MB of memory
    #[arg(
        long,
        value_name = "N",
        default_value = "40",
        default_value_if("compress", ArgPredicate::IsPresent, "5")
    )]
    jobs: NonZeroU32,
    /// Request compressed bodies; interrupted downloads then start from the beginning
    #[arg(long)]
    compress: bool,
    /// Wait when the key has used up its calls, and do not end
    #[arg(long)]
    wait_quota: bool,
}

/// The state of a run.
struct Run {
    client: Client,
    begun: Instant,
    report: Report,
    reasons: Vec<Exit>,
    /// The kinds of failures that were printed.
    told: BTreeSet<&'static str>,
    ending: Ending,
    progress: Progress,
    /// Bytes received, including those of files in progress.
    received: Arc<AtomicU64>,
    /// The number of files in a backoff.
    asleep: Arc<AtomicU64>,
}

/// The result of the item with this number.
type News = (usize, Result<Came, Failed>);

enum Failed {
    /// The item is retried.
    Once(Trouble),
    All(Trouble),
}

pub(crate) async fn run(job: Bulk, settings: &Settings) -> Result<Exit, Failure> {
    let items = list::read(&job.list)?;
    let service = settings.service().await?;
    save::check("--report", job.report.as_deref()).await?;
    let _alone = save::alone(&job.out)?;
    let mut builder = service.builder;
    if job.compress {
        builder = builder.compression();
    }
    let client = builder.build()?;
    let manifest = Manifest::open(&job.out, &service.base_url).map_err(|error| {
        Failure::usage(format!("{}: {error}", job.out.join(MANIFEST).display()))
    })?;
    let total = items.len() as u64;
    let mut run = Run {
        client: client.clone(),
        begun: Instant::now(),
        report: Report::new(total),
        reasons: Vec::new(),
        told: BTreeSet::new(),
        ending: Ending::new(Some(OUTAGE), job.wait_quota),
        progress: Progress::new(total),
        received: Arc::default(),
        asleep: Arc::default(),
    };
    let ended = run.all(&items, &job, manifest).await;
    // Calls that end here have a second to close their connections.
    client.shutdown(Duration::from_secs(1)).await;

    let exit = ended.unwrap_or_else(|| run.report.exit(&run.reasons));
    let Run {
        mut report,
        progress,
        begun,
        ..
    } = run;
    progress.end();
    report.seconds = begun.elapsed().as_secs();
    report.exit = exit.code();
    // A failure of one does not prevent the other.
    let said = output::unless_closed(output::write(report.line().as_bytes()))
        .map_err(|error| ("the standard output".to_owned(), error));
    let saved = match &job.report {
        Some(path) => {
            let written = match serde_json::to_vec_pretty(&report) {
                Ok(json) => save::whole(path, &json).await,
                Err(error) => Err(io::Error::other(error)),
            };
            written.map_err(|error| (path.display().to_string(), error))
        }
        None => Ok(()),
    };
    said.and(saved).map_err(|(what, error)| {
        // Any other failure is worse.
        let exit = if exit == Exit::Whole {
            Exit::SomeFailed
        } else {
            exit
        };
        Failure::new(exit, format!("{what}: {error}"))
    })?;
    Ok(exit)
}

// === impl Run ===

impl Run {
    /// Downloads all items. Returns the exit if it ends early.
    async fn all(&mut self, items: &[Item], job: &Bulk, manifest: Manifest) -> Option<Exit> {
        let mut stop = std::pin::pin!(stop::asked());
        let manner = Manner {
            manifest: Arc::new(manifest),
            resume: !job.compress,
            wait_quota: job.wait_quota,
            received: Arc::clone(&self.received),
            asleep: Arc::clone(&self.asleep),
        };
        let queue: Vec<_> = items.iter().cloned().enumerate().collect();
        let queue = Arc::new(Mutex::new(queue.into_iter()));
        let (sender, mut results) = mpsc::channel(64);
        let mut workers = JoinSet::new();
        let most = usize::try_from(job.jobs.get()).unwrap_or(usize::MAX);
        for _ in 0..most.min(items.len()) {
            let work = work(
                self.client.clone(),
                Arc::clone(&queue),
                job.out.clone(),
                manner.clone(),
                sender.clone(),
            );
            workers.spawn(work);
        }
        drop(sender);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = vec![true; items.len()];
        let mut had = 0;
        let ended = loop {
            tokio::select! {
                result = results.recv() => {
                    let Some((number, result)) = result else { break None };
                    if let Some(left) = left.get_mut(number) {
                        *left = result.is_err();
                    }
                    let ended = self.note(result, items.get(number));
                    if ended.is_some() {
                        break ended;
                    }
                }
                now = tick.tick() => {
                    self.show();
                    let received = self.received.load(Ordering::Relaxed);
                    if received > had {
                        self.ending.progressed();
                    }
                    had = received;
                    let paused = self.client.status().limits().paused_for;
                    if let Some(ended) = self.ending.paused(paused, now) {
                        self.report.ended_by = Some(QUOTA_GONE.to_owned());
                        self.progress.warn(QUOTA_GONE);
                        break Some(ended);
                    }
                }
                () = &mut stop => break Some(self.interrupted()),
            }
        };
        // Waits for the workers, so that no file is written after this.
        workers.shutdown().await;
        let why = self.report.ended_by.clone();
        while let Ok((number, result)) = results.try_recv() {
            if let Some(left) = left.get_mut(number) {
                *left = result.is_err();
            }
            let _ = self.note(result, items.get(number));
        }
        self.report.ended_by = why;
        let left = items.iter().zip(left).filter(|(_, left)| *left);
        self.report.again = left.map(|(item, _)| item.line.clone()).collect();
        ended
    }

    fn interrupted(&mut self) -> Exit {
        self.report.ended_by = Some("interrupted".to_owned());
        Exit::SomeFailed
    }

    /// Counts a result, and prints the first failure of each kind. Returns the exit if the job
    /// ends.
    fn note(&mut self, result: Result<Came, Failed>, item: Option<&Item>) -> Option<Exit> {
        let (trouble, is_over) = match result {
            Ok(Came::Skipped) => {
                self.report.skipped();
                return None;
            }
            Ok(Came::Whole { bytes, replaced }) => {
                if let Some(origin) = replaced {
                    self.report.replaced += 1;
                    self.replaced(origin, item);
                }
                self.ending.succeeded(&self.client.tokens().health());
                self.report.ok(bytes);
                return None;
            }
            Err(Failed::Once(trouble)) => (trouble, false),
            Err(Failed::All(trouble)) => (trouble, true),
        };
        let name = item
            .map(|item| item.name.display().to_string())
            .unwrap_or_default();
        let line = match &trouble {
            Trouble::Service(error) => error.to_string(),
            Trouble::Disk(error) => format!("{name}: {error}"),
            Trouble::Answer(why) => format!("{name}: {why}"),
        };
        if self.told.insert(trouble.kind()) {
            let again = if is_over { "" } else { "tried again; " };
            self.progress.warn(&format!(
                "{line} ({again}further ones of this kind are counted)"
            ));
        }
        if !is_over {
            return None;
        }
        self.report.failed(trouble.kind());
        // One of each kind is enough to see whether all are alike.
        if !self.reasons.contains(&trouble.exit()) {
            self.reasons.push(trouble.exit());
        }
        let ended = match &trouble {
            Trouble::Service(error) => self.ending.failed(error, &self.client.tokens().health()),
            Trouble::Disk(error) => save::is_the_disk(error).then_some(Exit::SomeFailed),
            Trouble::Answer(_) => None,
        };
        if ended.is_some() {
            self.report.ended_by = Some(line);
        }
        ended
    }

    /// Prints why the first file of this kind was downloaded again.
    fn replaced(&mut self, origin: Origin, item: Option<&Item>) {
        let why = match origin {
            Origin::Unknown => "not in .tds-manifest.jsonl",
            Origin::Same | Origin::Other => "came from another URL or service",
        };
        if self.told.insert(why) {
            let name = item.map_or(Path::new(""), |item| &item.name).display();
            self.progress.warn(&format!(
                "{name}: {why}: downloaded again (further ones of this kind are counted)"
            ));
        }
    }

    fn show(&mut self) {
        let done = self.report.done();
        let Self {
            report,
            client,
            begun,
            progress,
            received,
            asleep,
            ..
        } = self;
        progress.show(done, || {
            let seconds = begun.elapsed().as_secs_f64().max(0.1);
            let came = done - report.skipped;
            let rate = f64::from(u32::try_from(came).unwrap_or(u32::MAX)) / seconds;
            let left = f64::from(u32::try_from(report.unfinished).unwrap_or(u32::MAX)) / rate;
            let left = Duration::try_from_secs_f64(left).map_or_else(|_| "?".to_owned(), rough);
            let line = format!(
                "{done}/{} files, {rate:.0}/s, {left} to go, {}",
                report.total,
                DecimalBytes(received.load(Ordering::Relaxed))
            );
            let asleep = asleep.load(Ordering::Relaxed);
            let again = || (asleep > 0).then(|| format!("another try of {asleep} files"));
            (line, client.status().waits_for().or_else(again))
        });
    }
}

/// Downloads one item after another until the queue is empty.
async fn work(
    client: Client,
    queue: Arc<Mutex<vec::IntoIter<(usize, Item)>>>,
    out: PathBuf,
    manner: Manner,
    results: mpsc::Sender<News>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((number, item)) = next else { return };
        // If many fail at once, some of these messages may be dropped.
        let again = |trouble| drop(results.try_send((number, Err(Failed::Once(trouble)))));
        let came = download(&client, &item, &out, &manner, again).await;
        if results
            .send((number, came.map_err(Failed::All)))
            .await
            .is_err()
        {
            return;
        }
    }
}

const TICK: Duration = Duration::from_millis(250);

/// Failed files, each after all of its attempts, that count as an outage.
const OUTAGE: u32 = 20;

const QUOTA_GONE: &str = "the key has used up its calls, and nobody says until when; \
                          come back later, or wait with --wait-quota";
