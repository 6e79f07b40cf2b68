//! One file of a bulk download: it is retried while that can help, and resumed where it was cut.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE},
};
use tokio::{
    fs,
    time::{Instant, sleep, timeout},
};
use tower_tds::{Client, Error, Kind, Response};

use crate::{
    answer,
    ending::is_of_the_token,
    exit::Exit,
    list::Item,
    manifest::{Manifest, Origin},
    save::{Known, Part, Rest},
};

/// The settings of downloads.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) manifest: Arc<Manifest>,
    /// Whether parts are resumed. Decoded bodies are not, because a range counts coded bytes.
    pub(crate) resume: bool,
    pub(crate) wait_quota: bool,
    /// The number of bytes received.
    pub(crate) received: Arc<AtomicU64>,
    /// The number of files in a backoff.
    pub(crate) asleep: Arc<AtomicU64>,
}

/// The reason why there is no file.
#[derive(Debug)]
pub(crate) enum Trouble {
    Service(Error),
    Disk(io::Error),
    /// A success that is not a file.
    Answer(&'static str),
}

/// The result of a download.
#[derive(Debug)]
pub(crate) enum Came {
    Skipped,
    Whole {
        bytes: u64,
        /// The origin of the earlier file with this name, if there was one.
        replaced: Option<Origin>,
    },
}

/// Downloads one item into the folder `out`.
///
/// An existing file from the same URL and service is skipped, because only whole files get their
/// name. `again` receives each failure before a retry.
pub(crate) async fn download(
    client: &Client,
    item: &Item,
    out: &Path,
    manner: &Manner,
    again: impl Fn(Trouble),
) -> Result<Came, Trouble> {
    let (target, path) = (&*item.target, &*out.join(&item.name));
    let replaced = match fs::metadata(path).await {
        Ok(there) if there.is_file() => match manner.manifest.origin(&item.name, target) {
            Origin::Same => return Ok(Came::Skipped),
            other => Some(other),
        },
        Ok(_) => return Err(io::Error::other("something that is no file has this name").into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).await?;
    }
    let (mut tries, mut had, mut renewed) = (0_u32, 0, false);
    loop {
        let begun = Instant::now();
        let rest = if manner.resume {
            Rest::of(path, &manner.url(target)).await
        } else {
            None
        };
        let length = rest.as_ref().map_or(0, |rest| rest.length);
        // An attempt that made progress is not counted.
        tries = if length > had { 0 } else { tries };
        had = had.max(length);
        let trouble = match attempt(client, target, path, rest, manner).await {
            Ok(bytes) => {
                manner.manifest.record(&item.name, target)?;
                return Ok(Came::Whole { bytes, replaced });
            }
            Err(trouble) => trouble,
        };
        if matches!(&trouble, Trouble::Service(error) if is_of_the_token(error)) && !renewed {
            renewed = true;
            // If no token comes, this file ends, and the job decides about the others.
            drop(timeout(SUCCESSOR, successor(client, begun)).await);
            continue;
        }
        tries += 1;
        let Some(wait) = trouble.wait(tries, manner) else {
            return Err(trouble);
        };
        again(trouble);
        // Relaxed: the count is only shown.
        manner.asleep.fetch_add(1, Ordering::Relaxed);
        sleep(wait).await;
        manner.asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Manner ===

impl Manner {
    /// The absolute URL of a target. It identifies the file that a part belongs to.
    fn url(&self, target: &str) -> String {
        format!("{}{target}", self.manifest.base_url())
    }
}

/// Waits for a token that is newer than `since`.
async fn successor(client: &Client, since: Instant) {
    let is_older = |came: Option<Duration>| came.is_none_or(|came| came > since.elapsed());
    while is_older(client.tokens().health().last_success) {
        sleep(LOOK).await;
    }
}

async fn attempt(
    client: &Client,
    target: &str,
    path: &Path,
    rest: Option<Rest>,
    manner: &Manner,
) -> Result<u64, Trouble> {
    let (mut response, rest) = ask(client, target, rest, manner).await?;
    if answer::is_coded(response.headers()) {
        return Err(Trouble::Answer(answer::CODED));
    }
    let (mut part, mut length, whole) = match (response.status(), rest) {
        (StatusCode::OK, rest) => {
            // The lock on the part ends here.
            drop(rest);
            let whole = response.headers().get(CONTENT_LENGTH);
            let whole = whole.and_then(|whole| whole.to_str().ok()?.parse().ok());
            let url = &*manner.url(target);
            let known = strong(response.headers()).map(|etag| Known { url, etag, whole });
            (Part::create(path, known).await?, 0, None)
        }
        (StatusCode::PARTIAL_CONTENT, Some((rest, whole))) => {
            let length = rest.length;
            (Part::append(path, rest).await?, length, Some(whole))
        }
        _ => {
            return Err(Trouble::Answer(
                "a success, but neither 200 nor what follows the part",
            ));
        }
    };
    // A body longer than announced is an error, and its rest is not read.
    while whole.is_none_or(|whole| length <= whole) {
        let written = match response.chunk().await {
            Ok(Some(data)) => {
                let more = data.len() as u64;
                length += more;
                // Relaxed: the count is only shown.
                manner.received.fetch_add(more, Ordering::Relaxed);
                part.write(&data).await.map_err(Trouble::from)
            }
            Ok(None) => break,
            // The decoder's error does not name the request.
            Err(error) => Err(Trouble::Service(answer::named(error, target))),
        };
        if let Err(trouble) = written {
            part.stop().await?;
            return Err(trouble);
        }
    }
    if whole.is_some_and(|whole| length != whole) {
        part.discard().await?;
        let why = "what follows the part is not as long as its range says";
        let error =
            Error::new(Kind::Truncated, why).with_sent(tower_tds::layers::errors::Sent::Answered);
        return Err(answer::named(error, target).into());
    }
    if !response.into_http().body().is_verifiable() {
        part.stop().await?;
        return Err(Trouble::Answer(answer::OPEN));
    }
    part.finish().await?;
    Ok(length)
}

/// Requests the missing part, or the whole file if the service does not support ranges. With a part
/// it returns the length of the whole.
async fn ask(
    client: &Client,
    target: &str,
    rest: Option<Rest>,
    manner: &Manner,
) -> Result<(Response, Option<(Rest, u64)>), Trouble> {
    if let Some(rest) = rest {
        let range = format!("bytes={}-", rest.length);
        let call = answer::plain(client.get(target)).header(RANGE, range);
        match call.header(IF_RANGE, &*rest.etag).await {
            Ok(response) if response.status() != StatusCode::PARTIAL_CONTENT => {
                return Ok((response, None));
            }
            Ok(response) => {
                if let Some(whole) = goes_on(response.headers(), &rest) {
                    return Ok((response, Some((rest, whole))));
                }
                // It belongs to other bytes, or is not the whole rest.
            }
            // Nothing follows the part: it belongs to another file, or is whole.
            Err(error) if error.status() == Some(StatusCode::RANGE_NOT_SATISFIABLE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let call = client.get(target);
    let call = if manner.resume {
        answer::plain(call)
    } else {
        call
    };
    Ok((call.await?, None))
}

/// A strong tag, which identifies the bytes of parts (RFC 9110, section 13.1.5).
fn strong(headers: &HeaderMap) -> Option<&str> {
    let etag = headers.get(ETAG)?.to_str().ok()?;
    let plain = !headers.contains_key(CONTENT_ENCODING);
    (plain && etag.starts_with('"')).then_some(etag)
}

/// The length of the whole, if a response is the whole rest of the same bytes.
///
/// Some servers ignore `If-Range`, and a server may send less than requested (RFC 9110, section
/// 14.2).
fn goes_on(headers: &HeaderMap, rest: &Rest) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (start, range) = range.strip_prefix("bytes ")?.split_once('-')?;
    let (end, whole) = range.split_once('/')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let (start, end, whole) = (number(start)?, number(end)?, number(whole)?);
    let follows = start == rest.length && end.checked_add(1) == Some(whole);
    let is_same = strong(headers) == Some(&*rest.etag) && rest.whole.is_none_or(|was| was == whole);
    (follows && is_same).then_some(whole)
}

// === impl Trouble ===

impl Trouble {
    /// The wait before another attempt, if it can help. The client's own retries come before it.
    fn wait(&self, tries: u32, manner: &Manner) -> Option<Duration> {
        let Self::Service(error) = self else {
            return None;
        };
        let told = error.retry_after();
        match Exit::of(error) {
            Exit::Quota if manner.wait_quota => Some(told.unwrap_or(QUOTA)),
            // A window of a minute is a rate and not the end, because a small plan has many. The
            // job ends if no success follows one.
            Exit::Quota if error.kind() == Kind::Throttled => told,
            Exit::Unreachable if error.is_retryable() && tries < TRIES => {
                // A worker does not sleep for a day: a longer hint leads to another attempt, and
                // then to the end.
                let wait = told.unwrap_or(PAUSE * tries);
                Some(wait.min(LONGEST))
            }
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Service(error) => error.kind().as_str(),
            Self::Disk(_) => "disk",
            Self::Answer(_) => "no_file",
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Service(error) => Exit::of(error),
            Self::Disk(_) | Self::Answer(_) => Exit::SomeFailed,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Attempts of a file, each with the client's own attempts in it.
const TRIES: u32 = 4;

/// About as long as a token request to an endpoint after a short outage.
const SUCCESSOR: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(100);

const PAUSE: Duration = Duration::from_secs(1);

const LONGEST: Duration = Duration::from_secs(60);

/// The distance of attempts if a quota's reset is unknown: one a minute costs little.
const QUOTA: Duration = Duration::from_secs(60);
