//! `tds bulk`: a list of files, each whole or not at all. Run it again for the rest.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clap::{Args, builder::ArgPredicate};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde_json::json;
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior, interval},
};
use tower_tds::Kind;

use crate::{
    breaker::Breaker,
    download::{Downloaded, Downloads},
    ending::{Ending, QUOTA_GONE, Trouble},
    exit::{Exit, Failure},
    list::{self, Item},
    manifest::Manifest,
    output::{self, counted, is_quiet},
    plan,
    progress::{Progress, Report},
    save::{self, MANIFEST},
    settings::{Settings, count, duration_or_zero},
    stop::Stop,
};

/// Download a list of files, each complete or not at all
#[derive(Debug, Args)]
#[command(
    after_help = "Run the same command again to fetch what is missing: complete files are skipped, \
                        and parts are resumed if the service can. Ctrl-C leaves complete files and parts."
)]
pub(crate) struct Bulk {
    /// File with one path and query per line, and optionally a TAB and a file name; {1..12} and
    /// {2026-01-01..2026-01-31} are ranges; - reads stdin
    #[arg(long, value_name = "FILE")]
    list: String,
    /// Folder to write the files to
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// At the end, write a list of the missing files
    #[arg(long, value_name = "FILE")]
    rerun: Option<PathBuf>,
    /// Print a line of JSON for each file, and one with the totals
    #[arg(long)]
    json: bool,
    /// How many files to download at once; 5 with --compress, because decoders need memory
    #[arg(
        long,
        value_name = "N",
        value_parser = count,
        default_value = "40",
        default_value_if("compress", ArgPredicate::IsPresent, "5")
    )]
    jobs: NonZeroU32,
    /// Print what would be fetched, resumed and skipped, and request nothing
    #[arg(long)]
    dry_run: bool,
    /// Compare existing files with their SHA-256, and fetch damaged ones again
    #[arg(long)]
    verify: bool,
    /// Request compressed responses, which cannot be resumed
    #[arg(long)]
    compress: bool,
    /// Wait when the quota is used up, instead of ending
    #[arg(long)]
    wait_quota: bool,
    /// How long to wait for the end of an outage; 0 does not wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration_or_zero)]
    wait_outage: Duration,
}

/// State of a run.
struct Run {
    downloads: Arc<Downloads>,
    items: Arc<[Item]>,
    begun: Instant,
    report: Report,
    is_json: bool,
    /// First failure of each kind, as its exit and its line.
    causes: BTreeMap<&'static str, (Exit, String)>,
    ending: Ending,
    /// Items that wait for their download.
    queue: VecDeque<usize>,
    /// Items that failed since the last success, which go back into the queue at an outage.
    held: Vec<(usize, Trouble)>,
    /// For each item, whether its file is missing.
    missing: Vec<bool>,
}

pub(crate) async fn run(job: Bulk, settings: &Settings) -> Result<Exit, Failure> {
    let items = list::read(&job.list)?;
    let service = settings.service().await?;
    let alone = match job.dry_run {
        true => None,
        false => {
            save::check("--rerun", job.rerun.as_deref()).await?;
            Some(save::alone(&job.out)?)
        }
    };
    let types = service.accept.as_str();
    let manifest = Manifest::open(&job.out, &service.base_url, types, !job.dry_run);
    let manifest = manifest.map_err(|error| {
        let path = job.out.join(MANIFEST);
        let next = "move it away, and its files are downloaded again";
        Failure::usage(format!("{}: {error}; {next}", path.display()))
    })?;
    let client = match alone {
        Some(_) => settings.client(service.builder).await?,
        // A dry run sends nothing, so it joins no fleet.
        None => service.builder.build()?,
    };
    let total = items.len() as u64;
    let downloads = Downloads {
        client: client.clone(),
        accept: service.accept,
        out: job.out,
        manifest,
        resume: !job.compress,
        verify: job.verify,
        wait_quota: job.wait_quota,
        breaker: Breaker::new(job.wait_outage),
        preparing: AtomicUsize::default(),
        wait_outage: job.wait_outage,
        turns: Semaphore::new(usize::try_from(job.jobs.get()).unwrap_or(Semaphore::MAX_PERMITS)),
        progress: Progress::new(),
    };
    if job.dry_run {
        return plan::print(&downloads, &items, job.json).await;
    }
    let mut run = Run {
        downloads: Arc::new(downloads),
        queue: (0..items.len()).collect(),
        held: Vec::new(),
        missing: vec![true; items.len()],
        items: items.into(),
        begun: Instant::now(),
        report: Report {
            event: "end",
            total,
            unfinished: total,
            ..Report::default()
        },
        is_json: job.json,
        causes: BTreeMap::new(),
        ending: Ending::new(job.wait_outage.is_zero().then_some(OUTAGE), job.wait_quota),
    };
    let ended = run.all(job.jobs, &settings.stop).await;
    // Gives the calls that end here a second to close their connections.
    client.shutdown(Duration::from_secs(1)).await;
    let exit = run.exit(ended);
    match run.end(exit, job.rerun.as_deref()).await {
        // The exit of the run counts for more than that of its report.
        Err(mut failure) if exit != Exit::Whole => {
            failure.exit = exit;
            Err(failure)
        }
        ended => ended.map(|()| exit),
    }
}

// === impl Run ===

impl Run {
    /// Downloads all items. Returns the exit if it ends early.
    async fn all(&mut self, jobs: NonZeroU32, stop: &Stop) -> Option<Exit> {
        let (downloads, items) = (Arc::clone(&self.downloads), Arc::clone(&self.items));
        let most = usize::try_from(jobs.get()).unwrap_or(usize::MAX);
        let download = async |number: usize, item| (number, downloads.download(item).await);
        let mut running = FuturesUnordered::new();
        let mut stop = pin!(stop.requested());
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut line_at, mut lines, mut had) = (Instant::now() + LINES, LINES, 0);
        loop {
            let preparing = downloads.preparing.load(Ordering::Relaxed);
            while running.len() < most.saturating_add(preparing)
                && let Some(number) = self.queue.pop_front()
            {
                running.extend(items.get(number).map(|item| download(number, item)));
            }
            let ended = tokio::select! {
                result = running.next() => match result {
                    Some((number, result)) => self.came(number, result),
                    None if self.held.is_empty() => return None,
                    None => self.note_held(),
                },
                now = tick.tick() => {
                    let is_due = now >= line_at;
                    if is_due {
                        lines = (lines * 2).min(HOUR);
                        line_at = now + lines;
                    }
                    if is_due || self.downloads.progress.is_on_terminal() {
                        self.show();
                    }
                    let received = self.downloads.progress.received();
                    if received > had {
                        self.ending.progressed();
                    }
                    had = received;
                    let paused = self.downloads.client.status().limits.paused_for;
                    let ended = self.ending.paused(paused, now);
                    self.report.ended_by = ended.map(|_| QUOTA_GONE.to_owned());
                    ended.or_else(|| self.outage(now))
                }
                () = &mut stop => {
                    self.report.ended_by = Some(INTERRUPTED.to_owned());
                    Some(Exit::SomeFailed)
                }
            };
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Returns the exit if an outage has lasted too long.
    fn outage(&mut self, now: Instant) -> Option<Exit> {
        if self.downloads.breaker.is_open() {
            self.queue
                .extend(self.held.drain(..).map(|(number, _)| number));
        }
        let line = self.downloads.breaker.look(now)?;
        self.downloads.progress.warn(&line);
        self.report.ended_by = Some(line);
        Some(Exit::Unreachable)
    }

    /// Records a result, or holds a failure until the next success shows that it is no outage.
    fn came(&mut self, number: usize, result: Result<Downloaded, Trouble>) -> Option<Exit> {
        let token = self.downloads.client.tokens().health();
        match result {
            Err(trouble) if self.downloads.breaker.is_used() && trouble.is_outage(&token) => {
                self.held.push((number, trouble));
                None
            }
            Err(trouble) if !trouble.is_answer() => self.note(number, Err(trouble)),
            Ok(Downloaded::Skipped) => self.note(number, result),
            result => self.note_held().or_else(|| self.note(number, result)),
        }
    }

    fn note_held(&mut self) -> Option<Exit> {
        let held = std::mem::take(&mut self.held).into_iter();
        held.map(|(number, trouble)| self.note(number, Err(trouble)))
            .fold(None, Option::or)
    }

    /// Counts a result, and prints its event. Returns the exit if the job ends.
    fn note(&mut self, number: usize, result: Result<Downloaded, Trouble>) -> Option<Exit> {
        let item = self.items.get(number)?.clone();
        let name = item.name.display();
        self.report.unfinished -= 1;
        if let Some(missing) = self.missing.get_mut(number) {
            *missing = result.is_err();
        }
        let mut event = json!({ "event": "file", "file": name.to_string(), "url": item.target });
        let token = self.downloads.client.tokens().health();
        let mut ended = None;
        match result {
            Ok(Downloaded::Skipped) => {
                self.report.skipped += 1;
                event["result"] = json!("skipped");
            }
            Ok(Downloaded::Whole { bytes, replaced }) => {
                self.report.replaced += u64::from(replaced.is_some());
                self.report.ok += 1;
                self.report.bytes += bytes;
                event["result"] = json!("ok");
                event["bytes"] = json!(bytes);
                if let Some(why) = replaced {
                    let line = format!("{name}: {why}; downloaded again");
                    self.downloads.progress.warn_once(why, &line);
                }
                self.ending.succeeded();
            }
            Err(trouble) => {
                let (kind, line) = (trouble.kind(), trouble.line(&item.name));
                event["result"] = json!("failed");
                event["kind"] = json!(kind);
                event["error"] = json!(line);
                *self.report.failed.entry(kind).or_default() += 1;
                let cause = (trouble.cause(&token), line.clone());
                self.causes.entry(kind).or_insert(cause);
                ended = self.ending.failed(&trouble, &token);
                self.report.ended_by = ended.map(|_| line);
            }
        }
        if self.is_json {
            // A failed print, as to a closed pipe or a full disk, must not cost the file.
            drop(output::print(format!("{event}\n")));
        }
        ended
    }

    /// Returns the exit by cause. Causes that you have to correct come first, then those that a
    /// later run repairs.
    fn exit(&self, ended: Option<Exit>) -> Exit {
        // The run was interrupted, or the disk is full.
        if ended == Some(Exit::SomeFailed) {
            return Exit::SomeFailed;
        }
        let causes = || self.causes.iter().map(|(kind, (exit, _))| (*kind, *exit));
        // A missing role concerns only its own files.
        let has = |exit: &Exit| {
            let role = Kind::MissingRole.as_str();
            ended == Some(*exit) || causes().any(|(kind, of)| of == *exit && kind != role)
        };
        let mut first = [Exit::Credentials, Exit::Unreachable, Exit::Quota].into_iter();
        let all = || Exit::of_all(causes().map(|(_, exit)| exit), self.report.ok > 0);
        first.find(has).unwrap_or_else(all)
    }

    fn show(&self) {
        let downloads = &self.downloads;
        let outage = downloads.breaker.is_open();
        let outage = outage.then(|| "the end of an outage".to_owned());
        let waits = outage.or_else(|| downloads.client.status().waits_for());
        let elapsed = self.begun.elapsed();
        downloads.progress.show(&self.report, elapsed, waits);
    }

    /// Prints the causes and the totals. Writes the list of missing files even if the print fails.
    async fn end(self, exit: Exit, rerun: Option<&Path>) -> Result<(), Failure> {
        self.downloads.progress.end();
        let mut sums = self.report;
        sums.seconds = self.begun.elapsed().as_secs();
        sums.exit = exit.code();
        for (kind, (_, line)) in &self.causes {
            let count = sums.failed.get(kind).copied().unwrap_or_default();
            let files = counted(count, "file");
            output::warn(&format!("{files} failed: {line}"));
        }
        if sums.ended_by.as_deref() == Some(QUOTA_GONE) {
            output::warn(QUOTA_GONE);
        }
        let last = match (self.is_json, exit) {
            (true, _) => serde_json::to_string(&sums).unwrap_or_default() + "\n",
            (false, Exit::Whole) if is_quiet() => String::new(),
            (false, _) => sums.line(),
        };
        let ended_by = sums.ended_by;
        let printed = output::print(last).map(drop);
        if ended_by.as_deref() == Some(INTERRUPTED) {
            output::note("run the same command again: it goes on where this one ended");
        }
        let Some(path) = rerun else { return printed };
        let lines = self.items.iter().zip(&self.missing);
        let lines = lines.filter(|(_, missing)| **missing);
        let lines: String = lines.map(|(item, _)| item.line.clone() + "\n").collect();
        let written = save::whole(path, lines.as_bytes()).await;
        let failed = |error| Failure::new(Exit::SomeFailed, format!("{}: {error}", path.display()));
        printed.and(written.map_err(failed))
    }
}

const INTERRUPTED: &str = "interrupted";

const TICK: Duration = Duration::from_millis(250);

/// When the first line of the progress is printed. Each later one takes twice as long, up to an
/// hour, so that the log of a night fits on a screen.
const LINES: Duration = Duration::from_secs(10);

const HOUR: Duration = Duration::from_secs(3_600);

/// How many failed files count as an outage. Each has made all of its attempts.
const OUTAGE: u32 = 20;
