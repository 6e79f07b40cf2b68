//! One file of a bulk download: it is retried while that can help, and resumed where it was cut.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::header::{CONTENT_ENCODING, ETAG, IF_RANGE, RANGE};
use tokio::{
    fs,
    sync::Semaphore,
    time::{Instant, sleep},
};
use tower_tds::{Client, Kind};

use crate::{
    answer::{self, Accept, Answer, Asked, Data, IDENTITY},
    breaker::Breaker,
    ending::{Trouble, is_of_the_token},
    exit::Exit,
    list::Item,
    manifest::{Manifest, Version},
    progress::Progress,
    save::{self, Part},
};

/// Downloads files into a folder.
#[derive(Debug)]
pub(crate) struct Downloads {
    pub(crate) client: Client,
    pub(crate) accept: Accept,
    pub(crate) out: PathBuf,
    pub(crate) manifest: Manifest,
    /// Whether parts are resumed, or else responses may be compressed: a range counts compressed
    /// bytes, and a part has decoded ones.
    pub(crate) resume: bool,
    /// Whether existing files are compared with their SHA-256.
    pub(crate) verify: bool,
    pub(crate) wait_quota: bool,
    pub(crate) breaker: Breaker,
    /// Number of files that the service is preparing, and how long to wait for one.
    pub(crate) preparing: AtomicUsize,
    pub(crate) wait_outage: Duration,
    /// Bounds the attempts at once, because files that were prepared come back.
    pub(crate) turns: Semaphore,
    pub(crate) progress: Progress,
}

/// The result of a download.
#[derive(Debug)]
pub(crate) enum Downloaded {
    Skipped,
    Whole {
        bytes: u64,
        /// Why an earlier file of this name was replaced, if there was one.
        replaced: Option<&'static str>,
    },
}

/// State of an item, as an earlier run left it.
pub(crate) enum Found {
    Whole,
    /// File that has to be replaced, with the reason.
    Outdated(&'static str),
    Missing,
}

// === impl Downloads ===

impl Downloads {
    /// Downloads one item, with as many attempts as can help.
    pub(crate) async fn download(&self, item: &Item) -> Result<Downloaded, Trouble> {
        let path = &*self.out.join(&item.name);
        let replaced = match self.look(item, path).await? {
            Found::Whole => return Ok(Downloaded::Skipped),
            Found::Outdated(why) => Some(why),
            Found::Missing => None,
        };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).await?;
        }
        let there = fs::metadata(path).await;
        let replaces = there.is_ok_and(|there| there.len() > 0);
        let (mut tries, mut had) = (0_u32, 0);
        let mut preparing = None;
        loop {
            let pass = self.breaker.pass().await;
            let turn = self.turns.acquire().await;
            let begun = Instant::now();
            let mut length = 0;
            let attempt = self.attempt(item, path, replaces, &mut length).await;
            drop(turn);
            let mut trouble = match attempt {
                Ok(bytes) => {
                    self.answered();
                    return Ok(Downloaded::Whole { bytes, replaced });
                }
                Err(trouble) => trouble,
            };
            // An attempt that made progress begins the count anew.
            tries = if length > had { 1 } else { tries + 1 };
            had = had.max(length);
            if trouble.is_answer() {
                self.answered();
            } else if trouble.is_outage(&self.client.tokens().health()) {
                let line = trouble.retried(&item.name);
                let (is_open, line) = self.breaker.failed(&item.target, &pass, &line);
                if let Some(line) = line {
                    self.progress.warn(&line);
                }
                if is_open {
                    tries = 0;
                    continue;
                }
            }
            drop(pass);
            if let Trouble::Pending(hint) = trouble {
                let lasted = preparing.get_or_insert(begun).elapsed();
                let pause = answer::pending(hint, tries - 1);
                if lasted.saturating_add(pause) > self.wait_outage {
                    return Err(trouble);
                }
                // Other files take the place of this one meanwhile.
                self.preparing.fetch_add(1, Ordering::Relaxed);
                sleep(pause).await;
                self.preparing.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let Some(wait) = wait(&trouble, tries, self.wait_quota) else {
                return Err(trouble);
            };
            let line = format!("{}; will retry", trouble.retried(&item.name));
            self.progress.warn_once(trouble.kind(), &line);
            sleep(wait).await;
        }
    }

    /// Looks for an existing file. Since only whole files get their name, it is whole if the
    /// manifest has its URL, service and length.
    pub(crate) async fn look(&self, item: &Item, path: &Path) -> io::Result<Found> {
        let there = match fs::metadata(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            there => there?,
        };
        if !there.is_file() {
            return Err(io::Error::other("it exists and is not a regular file"));
        }
        let sum = match self.verify {
            true => Some(save::hex(save::sum(path).await?)),
            false => None,
        };
        let outdated = self.manifest.outdated(item, there.len(), sum.as_deref());
        Ok(outdated.map_or(Found::Whole, Found::Outdated))
    }

    fn answered(&self) {
        if let Some(line) = self.breaker.answered() {
            self.progress.warn(&line);
        }
    }

    /// Makes one attempt, and sets `length` to the length of the part after it.
    async fn attempt(
        &self,
        item: &Item,
        path: &Path,
        replaces: bool,
        length: &mut u64,
    ) -> Result<u64, Trouble> {
        let mut part = Part::open(path).await?;
        let known = self.manifest.part(item);
        let known = known.filter(|_| self.resume && part.length() > 0);
        if known.is_none() {
            part.clear().await?;
        }
        let filled = self.fill(item, &mut part, known, replaces).await;
        *length = part.length();
        match filled {
            Ok(etag) => {
                let version = Version {
                    etag,
                    length: Some(*length),
                    sha256: Some(part.finish().await?),
                };
                let recorded = self.manifest.record(item, version);
                recorded.map(|()| *length).map_err(Trouble::from)
            }
            Err(trouble) => {
                part.flush().await?;
                Err(trouble)
            }
        }
    }

    /// Downloads the rest of the part, and returns the tag of the file.
    async fn fill(
        &self,
        item: &Item,
        part: &mut Part,
        known: Option<Version>,
        replaces: bool,
    ) -> Result<Option<String>, Trouble> {
        let asked = Asked {
            target: &item.target,
            range: known.as_ref().map(|known| (part.length(), known)),
            replaces,
            file: Some(&item.name),
            ..Asked::default()
        };
        let (mut data, whole) = self.ask(asked).await?;
        let etag = data.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.map(str::to_owned);
        if whole.is_some() {
            part.resume().await?;
        } else {
            // Until here, parts of an earlier run survive.
            part.clear().await?;
            let is_resumable = self.resume && !data.is_decoded();
            let version = Version {
                etag: answer::strong(&data.headers)
                    .filter(|_| is_resumable)
                    .map(str::to_owned),
                length: data.length,
                sha256: None,
            };
            if self.manifest.begin(item, version)? {
                part.keep();
            }
        }
        let mut has_data = false;
        // A body that is longer than announced is an error, so its rest is not read.
        while whole.is_none_or(|whole| part.length() <= whole)
            && let Some(data) = data.chunk().await?
        {
            // Reports the success with the first data, because a long body would keep the other
            // files waiting until its end.
            if !data.is_empty() && !std::mem::replace(&mut has_data, true) {
                self.answered();
            }
            part.write(&data).await?;
            self.progress.came(data.len() as u64);
        }
        if whole.is_some_and(|whole| part.length() != whole) {
            part.clear().await?;
            let why = "the length of the body is not that of its range";
            return Err(answer::refused(Kind::Truncated, why, &item.target).into());
        }
        Ok(etag)
    }

    /// Requests the missing rest, and returns it with the length of the whole. If the service does
    /// not send the rest of the same bytes, requests the whole file.
    async fn ask(&self, asked: Asked<'_>) -> Result<(Data, Option<u64>), Trouble> {
        let turn = async || self.accept.turn(&self.client, asked.target, LONGEST).await;
        turn().await?;
        if let Some((length, known)) = asked.range
            && let Some(etag) = &known.etag
        {
            let call = self.accept.on(self.client.get(asked.target), IDENTITY);
            let call = call.header(RANGE, format!("bytes={length}-"));
            match call.header(IF_RANGE, &**etag).await {
                Ok(response) => match self.accept.answer(&self.client, response, asked).await {
                    Ok(Answer::New(data, whole)) => return Ok((data, whole)),
                    Err(Trouble::Service(error)) if error.kind() == Kind::UnexpectedResponse => {}
                    Ok(Answer::Same(_)) => {}
                    Err(trouble) => return Err(trouble),
                },
                Err(error) if is_of_the_range(error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
            // Begins anew: the range is of other bytes, ends before the file does, or is refused,
            // by the service or by a firewall in front of it.
            turn().await?;
        }
        let call = self.client.get(asked.target);
        let call = match self.resume {
            true => self.accept.on(call, IDENTITY),
            // The service defines the second header for this.
            false => self
                .accept
                .on(call, CODINGS)
                .header(CONTENT_ENCODING, CODINGS),
        };
        let asked = Asked {
            range: None,
            ..asked
        };
        let answer = self.accept.answer(&self.client, call.await?, asked).await?;
        Ok((answer.data()?, None))
    }
}

/// Returns the wait before another attempt, if one can help. The client's own attempts have already
/// failed.
pub(crate) fn wait(trouble: &Trouble, tries: u32, wait_quota: bool) -> Option<Duration> {
    let error = match trouble {
        Trouble::Service(error) => error,
        Trouble::Page(_) => return (tries < TRIES).then_some(PAUSE * tries),
        _ => return None,
    };
    let hint = error.retry_after();
    match Exit::of(error) {
        // Hints may be wrong, and a quota may be raised early.
        Exit::Quota if wait_quota => Some(hint.unwrap_or(LONGEST).min(LONGEST)),
        // A quota with a window of a minute works like a rate, since it is soon free again. If no
        // success follows, `Ending::paused` ends the job.
        Exit::Quota if error.kind() == Kind::Throttled => hint,
        // The client has waited for another token, which may come a little later.
        Exit::Credentials if is_of_the_token(error) && tries < 2 => Some(PAUSE),
        Exit::Unreachable if error.is_retryable() && tries < TRIES => {
            // A worker never sleeps for a day: if the hint is that long, it makes its attempts
            // early and then gives up.
            let wait = hint.unwrap_or(PAUSE * tries);
            Some(wait.min(LONGEST))
        }
        _ => None,
    }
}

/// Whether a request may be refused because of its range.
const fn is_of_the_range(kind: Kind) -> bool {
    matches!(kind, Kind::Rejected | Kind::MissingRole)
}

/// Attempts for each file. Each consists of the client's own attempts.
const TRIES: u32 = 4;

/// Codings as the service documents them.
const CODINGS: &str = "br,gzip";

const PAUSE: Duration = Duration::from_secs(1);

/// Longest time between two attempts: one a minute costs little.
const LONGEST: Duration = Duration::from_secs(60);
