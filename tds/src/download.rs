//! One file of a bulk download: tried again while that can help, and gone on with where it broke off.

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

/// How downloads go.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) manifest: Arc<Manifest>,
    /// Parts are gone on with. Not where bodies are decoded: a range is one of coded bytes.
    pub(crate) resume: bool,
    pub(crate) wait_quota: bool,
    /// Counts the bytes as they come.
    pub(crate) received: Arc<AtomicU64>,
    /// How many files wait for another try.
    pub(crate) asleep: Arc<AtomicU64>,
}

/// Why there is no file.
#[derive(Debug)]
pub(crate) enum Trouble {
    Service(Error),
    Disk(io::Error),
    /// An answer that is a success, and no file.
    Answer(&'static str),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Came {
    Skipped,
    Whole {
        bytes: u64,
        /// Where the file came from that had this name, if there was one.
        replaced: Option<Origin>,
    },
}

/// Downloads one item into the folder `out`, unless its file is there and came from the same URL and service: it was whole when
/// it got its name. `again` gets each failure that another try follows.
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
        // Whoever gets on is not counted.
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
            // One that stays away is the end of this file, and whoever watches the job knows more.
            drop(timeout(SUCCESSOR, successor(client, begun)).await);
            continue;
        }
        tries += 1;
        let Some(wait) = trouble.wait(tries, manner) else {
            return Err(trouble);
        };
        again(trouble);
        // Relaxed: a count that is only shown.
        manner.asleep.fetch_add(1, Ordering::Relaxed);
        sleep(wait).await;
        manner.asleep.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Manner ===

impl Manner {
    /// The whole URL of a target: a part is one of a file of one service.
    fn url(&self, target: &str) -> String {
        format!("{}{target}", self.manifest.base_url())
    }
}

/// Waits until a token has come since then.
async fn successor(client: &Client, since: Instant) {
    let is_older = |came: Option<Duration>| came.is_none_or(|came| came > since.elapsed());
    while is_older(client.tokens().health().last_success()) {
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
            // It holds the part.
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
    // More than is said is no better than less, and need not be awaited.
    while whole.is_none_or(|whole| length <= whole) {
        let written = match response.chunk().await {
            Ok(Some(data)) => {
                let more = data.len() as u64;
                length += more;
                // Relaxed: a count that is only shown.
                manner.received.fetch_add(more, Ordering::Relaxed);
                part.write(&data).await.map_err(Trouble::from)
            }
            Ok(None) => break,
            // Whoever decodes it does not know what was asked for.
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

/// Asks for what is missing, or for all if the service will not have it so. With a part comes how long the whole is.
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
                // It is of other bytes, or not all that follows.
            }
            // Nothing follows the part: it is of another file, or was whole already.
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

/// A tag by which parts of one and the same bytes are known (RFC 9110, section 13.1.5).
fn strong(headers: &HeaderMap) -> Option<&str> {
    let etag = headers.get(ETAG)?.to_str().ok()?;
    let plain = !headers.contains_key(CONTENT_ENCODING);
    (plain && etag.starts_with('"')).then_some(etag)
}

/// How long the whole is, if an answer is all that follows the part, of the same bytes: not every server heeds `If-Range`,
/// and one may send less than is asked for (RFC 9110, section 14.2).
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
    /// How long to wait before another try, if it can help: on top of the client's own.
    fn wait(&self, tries: u32, manner: &Manner) -> Option<Duration> {
        let Self::Service(error) = self else {
            return None;
        };
        let told = error.retry_after();
        match Exit::of(error) {
            Exit::Quota if manner.wait_quota => Some(told.unwrap_or(QUOTA)),
            // A window of a minute is a rate, and not the end: a small plan has many. Whoever watches the job
            // ends it if nothing comes after one.
            Exit::Quota if error.kind() == Kind::Throttled => told,
            Exit::Unreachable if error.is_retryable() && tries < TRIES => {
                // A worker is not to sleep for a day: what is asked for longer is asked again, and given up.
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

/// Each with the client's own attempts within it.
const TRIES: u32 = 4;

/// A token request takes about as long, of an endpoint that answers again after a moment.
const SUCCESSOR: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(100);

const PAUSE: Duration = Duration::from_secs(1);

const LONGEST: Duration = Duration::from_secs(60);

/// Where the service does not say when a quota resets, once a minute costs little.
const QUOTA: Duration = Duration::from_secs(60);
