//! `tds bulk`: a list of files, each whole or not at all. The same command downloads the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
    vec,
};

use clap::{Args, builder::ArgPredicate};
use indicatif::DecimalBytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    download::{Came, Downloads, Trouble},
    ending::Ending,
    exit::{Exit, Failure},
    list::{self, Item},
    manifest::{MANIFEST, Manifest, Origin},
    output::{self, Progress, rough},
    save,
    settings::Settings,
    stop::Stop,
};

/// Download a list of files: each is there whole or not at all
#[derive(Debug, Args)]
#[command(
    after_help = "Run it again for what is missing: files that are there are skipped, and parts are \
                        resumed where the service can. Ctrl-C leaves whole files."
)]
pub(crate) struct Bulk {
    /// A path and query a line, and a TAB and a name for its file; {1..12}
    /// and {2026-01-01..2026-01-31} are ranges; - reads stdin
    #[arg(long, value_name = "FILE")]
    list: String,
    /// The folder for the files
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Write the sums to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a list of the files that are missing at the end
    #[arg(long, value_name = "FILE")]
    rerun: Option<PathBuf>,
    /// Print an event for each file, as a line of JSON
    #[arg(long)]
    json: bool,
    /// Files at once; 5 with --compress, for the memory of decoders
    #[arg(
        long,
        value_name = "N",
        default_value = "40",
        default_value_if("compress", ArgPredicate::IsPresent, "5")
    )]
    jobs: NonZeroU32,
    /// Request compressed bodies, which cannot be resumed
    #[arg(long)]
    compress: bool,
    /// Wait when the quota is used up
    #[arg(long)]
    wait_quota: bool,
}

/// The state of a run.
struct Run {
    downloads: Arc<Downloads>,
    items: Vec<Item>,
    begun: Instant,
    report: Report,
    is_json: bool,
    /// The first failure of each kind.
    causes: BTreeMap<&'static str, (Exit, String)>,
    /// The kinds of messages that were printed.
    told: BTreeSet<&'static str>,
    ending: Ending,
    progress: Progress,
    /// Whether each item is missing.
    missing: Vec<bool>,
}

/// The sums of a run: each line of the list is in one of them, and in one only.
#[derive(Debug, Default, Serialize)]
struct Report {
    total: u64,
    ok: u64,
    /// The part of `ok` that replaced a file of another URL or service, or of unknown origin.
    replaced: u64,
    skipped: u64,
    /// By kind.
    failed: BTreeMap<&'static str, u64>,
    unfinished: u64,
    bytes: u64,
    seconds: u64,
    /// Why the run ended early.
    ended_by: Option<String>,
    exit: u8,
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
    save::check("--rerun", job.rerun.as_deref()).await?;
    let _alone = save::alone(&job.out)?;
    let builder = match job.compress {
        true => service.builder.compression(),
        false => service.builder,
    };
    let client = settings.client(builder).await?;
    let manifest = Manifest::open(&job.out, &service.base_url).map_err(|error| {
        Failure::usage(format!("{}: {error}", job.out.join(MANIFEST).display()))
    })?;
    let total = items.len() as u64;
    let mut run = Run {
        downloads: Arc::new(Downloads {
            client: client.clone(),
            out: job.out,
            manifest,
            resume: !job.compress,
            wait_quota: job.wait_quota,
            received: AtomicU64::default(),
            asleep: AtomicU64::default(),
        }),
        missing: vec![true; items.len()],
        items,
        begun: Instant::now(),
        report: Report {
            total,
            unfinished: total,
            ..Report::default()
        },
        is_json: job.json,
        causes: BTreeMap::new(),
        told: BTreeSet::new(),
        ending: Ending::new(Some(OUTAGE), job.wait_quota),
        progress: Progress::new(total),
    };
    let ended = run.all(job.jobs, &settings.stop).await;
    // Calls that end here have a second to close their connections.
    client.shutdown(Duration::from_secs(1)).await;
    let exit = ended.unwrap_or_else(|| run.exit());
    run.end(exit, job.report.as_deref(), job.rerun.as_deref())
        .await
        .map_err(|(what, error)| {
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
    async fn all(&mut self, jobs: NonZeroU32, stop: &Stop) -> Option<Exit> {
        let mut stop = pin!(stop.asked());
        let queue: Vec<_> = self.items.iter().cloned().enumerate().collect();
        let queue = Arc::new(Mutex::new(queue.into_iter()));
        let (sender, mut results) = mpsc::channel(64);
        let mut workers = JoinSet::new();
        let most = usize::try_from(jobs.get()).unwrap_or(usize::MAX);
        for _ in 0..most.min(self.items.len()) {
            let downloads = Arc::clone(&self.downloads);
            workers.spawn(work(downloads, Arc::clone(&queue), sender.clone()));
        }
        drop(sender);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut had = 0;
        let ended = loop {
            tokio::select! {
                result = results.recv() => {
                    let Some(result) = result else { break None };
                    let ended = self.note(result);
                    if ended.is_some() {
                        break ended;
                    }
                }
                now = tick.tick() => {
                    self.show();
                    let received = self.downloads.received.load(Ordering::Relaxed);
                    if received > had {
                        self.ending.progressed();
                    }
                    had = received;
                    let paused = self.downloads.client.status().limits().paused_for;
                    if let Some(ended) = self.ending.paused(paused, now) {
                        self.report.ended_by = Some(QUOTA_GONE.to_owned());
                        break Some(ended);
                    }
                }
                () = &mut stop => {
                    self.report.ended_by = Some("interrupted".to_owned());
                    break Some(Exit::SomeFailed);
                }
            }
        };
        // Waits for the workers, so that no file is written after this.
        workers.shutdown().await;
        let why = self.report.ended_by.clone();
        while let Ok(result) = results.try_recv() {
            // The job has ended already.
            let _late = self.note(result);
        }
        self.report.ended_by = why;
        ended
    }

    /// Counts a result. Returns the exit if the job ends.
    fn note(&mut self, (number, result): News) -> Option<Exit> {
        let item = self.items.get(number)?.clone();
        let name = item.name.display().to_string();
        if let Err(Failed::Once(trouble)) = result {
            if self.told.insert(trouble.kind()) {
                let line = trouble.line(&item.name);
                let more = "further ones of this kind are counted";
                self.progress.warn(&format!("{line} (tried again; {more})"));
            }
            return None;
        }
        self.report.unfinished -= 1;
        if let Some(missing) = self.missing.get_mut(number) {
            *missing = result.is_err();
        }
        let mut event = json!({ "event": "file", "file": name, "url": item.target });
        let ended = match result {
            Ok(Came::Skipped) => {
                self.report.skipped += 1;
                event["result"] = json!("skipped");
                None
            }
            Ok(Came::Whole { bytes, replaced }) => {
                self.report.replaced += u64::from(replaced.is_some());
                self.report.ok += 1;
                self.report.bytes += bytes;
                event["result"] = json!("ok");
                event["bytes"] = json!(bytes);
                self.replaced(replaced, &name);
                let token = self.downloads.client.tokens().health();
                self.ending.succeeded(&token);
                None
            }
            Err(Failed::Once(trouble) | Failed::All(trouble)) => {
                let (kind, line) = (trouble.kind(), trouble.line(&item.name));
                event["result"] = json!("failed");
                event["kind"] = json!(kind);
                event["error"] = json!(line);
                *self.report.failed.entry(kind).or_default() += 1;
                let cause = (trouble.exit(), line.clone());
                self.causes.entry(kind).or_insert(cause);
                let token = self.downloads.client.tokens().health();
                let ended = match &trouble {
                    Trouble::Service(error) => self.ending.failed(error, &token),
                    Trouble::Disk(error) => save::is_the_disk(error).then_some(Exit::SomeFailed),
                    Trouble::Answer(_) => None,
                };
                if ended.is_some() {
                    self.report.ended_by = Some(line);
                }
                ended
            }
        };
        self.event(&event);
        ended
    }

    /// Prints why the first file of this kind was downloaded again.
    fn replaced(&mut self, origin: Option<Origin>, name: &str) {
        let why = match origin {
            None => return,
            Some(Origin::Unknown) => "not in .tds-manifest.jsonl",
            Some(Origin::Same | Origin::Other) => "came from another URL or service",
        };
        if self.told.insert(why) {
            let more = "further ones of this kind are counted";
            self.progress
                .warn(&format!("{name}: {why}: downloaded again ({more})"));
        }
    }

    fn event(&self, event: &Value) {
        if self.is_json {
            // A reader that has gone, or a full disk, costs no file.
            drop(output::write(format!("{event}\n").as_bytes()));
        }
    }

    fn show(&mut self) {
        let (report, downloads) = (&self.report, &self.downloads);
        let done = report.total - report.unfinished;
        let begun = self.begun;
        self.progress.show(done, || {
            let seconds = begun.elapsed().as_secs_f64().max(0.1);
            let count = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            let rate = count(done - report.skipped) / seconds;
            let left = count(report.unfinished) / rate;
            let left = Duration::try_from_secs_f64(left).map_or_else(|_| "?".to_owned(), rough);
            let failed = match report.failed.values().sum() {
                0_u64 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let bytes = DecimalBytes(downloads.received.load(Ordering::Relaxed));
            let total = report.total;
            let line = format!("{done}/{total} files, {rate:.0}/s, {left} to go, {bytes}{failed}");
            let asleep = downloads.asleep.load(Ordering::Relaxed);
            let again = || (asleep > 0).then(|| format!("another try of {asleep} files"));
            (line, downloads.client.status().waits_for().or_else(again))
        });
    }

    /// The exit at the end of the list: the common reason if no file succeeded.
    fn exit(&self) -> Exit {
        let mut reasons = self.causes.values().map(|(exit, _)| *exit);
        match reasons.next() {
            None if self.report.unfinished == 0 => Exit::Whole,
            Some(first) if self.report.ok == 0 && reasons.all(|other| other == first) => first,
            _ => Exit::SomeFailed,
        }
    }

    /// Prints the causes and the sums, and writes the files. A failure of one does not prevent the
    /// others.
    async fn end(
        self,
        exit: Exit,
        report: Option<&Path>,
        rerun: Option<&Path>,
    ) -> Result<(), (String, io::Error)> {
        let Self {
            report: mut sums,
            progress,
            ..
        } = self;
        progress.end();
        sums.seconds = self.begun.elapsed().as_secs();
        sums.exit = exit.code();
        for (kind, (_, line)) in &self.causes {
            let count = sums.failed.get(kind).copied().unwrap_or_default();
            let s = if count == 1 { "" } else { "s" };
            output::warn(&format!("{count} file{s} failed: {line}"));
        }
        if sums.ended_by.as_deref() == Some(QUOTA_GONE) {
            output::warn(QUOTA_GONE);
        }
        let last = if self.is_json {
            let mut event = json!({ "event": "end" });
            if let (Some(event), Ok(Value::Object(sums))) =
                (event.as_object_mut(), serde_json::to_value(&sums))
            {
                event.extend(sums);
            }
            format!("{event}\n")
        } else {
            sums.line()
        };
        let said = output::unless_closed(output::write(last.as_bytes()));
        let said = said.map_err(|error| ("the standard output".to_owned(), error));
        let lines = self.items.iter().zip(&self.missing);
        let lines = lines.filter(|(_, missing)| **missing);
        let lines: String = lines.map(|(item, _)| item.line.clone() + "\n").collect();
        let json = serde_json::to_vec_pretty(&sums).unwrap_or_default();
        let mut saved = Ok(());
        for (path, data) in [(report, json), (rerun, lines.into_bytes())] {
            if let Some(path) = path {
                let written = save::whole(path, &data).await;
                saved = saved.and(written.map_err(|error| (path.display().to_string(), error)));
            }
        }
        said.and(saved)
    }
}

// === impl Report ===

impl Report {
    /// The summary line.
    fn line(&self) -> String {
        let failed: u64 = self.failed.values().sum();
        let kinds = self.failed.iter();
        let kinds: Vec<_> = kinds
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let kinds = match kinds[..] {
            [] => String::new(),
            _ => format!(" ({})", kinds.join(", ")),
        };
        let Self {
            total,
            ok,
            skipped,
            unfinished,
            seconds,
            ..
        } = self;
        let bytes = DecimalBytes(self.bytes);
        format!(
            "{total} files: {ok} ok, {skipped} skipped, {failed} failed{kinds}, {unfinished} unfinished; \
             {bytes} in {seconds} s\n"
        )
    }
}

/// Downloads one item after another until the queue is empty.
async fn work(
    downloads: Arc<Downloads>,
    queue: Arc<Mutex<vec::IntoIter<(usize, Item)>>>,
    results: mpsc::Sender<News>,
) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((number, item)) = next else { return };
        // If many fail at once, some of these messages may be dropped.
        let again = |trouble| drop(results.try_send((number, Err(Failed::Once(trouble)))));
        let came = downloads.download(&item, again).await;
        let came = came.map_err(Failed::All);
        if results.send((number, came)).await.is_err() {
            return;
        }
    }
}

const TICK: Duration = Duration::from_millis(250);

/// Failed files, each after all of its attempts, that count as an outage.
const OUTAGE: u32 = 20;

const QUOTA_GONE: &str = "quota used up, and the response has no time to wait; \
                          come back later, or wait with --wait-quota";
