//! Responses for many users: one call to the service at a time for each resource.

use std::{
    cmp::Reverse,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use axum::response::{IntoResponse, Response};
use clap::Args;
use headers::{Date, Expires, HeaderMapExt as _};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        AGE, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, EXPIRES,
        IF_NONE_MATCH, LAST_MODIFIED, LINK, VARY,
    },
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tower_tds::{Client, Kind};
use tower_tds_outcome::Secrets;

use crate::{
    access::Served,
    answer::Accept,
    ending::Trouble,
    exit::Exit,
    output::{counted, rough, warn},
    refusal::Refusal,
    representation::Stored,
    settings::duration,
};

/// The resources that users requested, each with its last response and its last failure.
#[derive(Debug)]
pub(crate) struct Cache {
    client: Client,
    accept: Accept,
    secrets: Secrets,
    terms: Terms,
    /// Guards all of the book. Locked for a few statements and never across an await.
    book: Mutex<Book>,
}

/// Bounds of a user's wait, and of the use of a response.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Terms {
    /// How long a user waits at most
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) deadline: Duration,
    /// How long to reuse a response without Cache-Control or Expires
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    fresh: Duration,
    /// How much longer to reuse a response while the service fails [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stale: Option<Duration>,
}

#[derive(Debug, Default)]
struct Book {
    resources: HashMap<Arc<str>, Resource>,
    /// Last call, if it failed for a reason that concerns all resources: its target, time and text.
    outage: Option<(Arc<str>, Instant, String)>,
    failing: Option<Failing>,
}

/// Failures since the last success.
#[derive(Debug)]
struct Failing {
    begun: Instant,
    /// When the next line about these failures is due.
    line_at: Instant,
    failures: u64,
}

#[derive(Debug, Default)]
struct Resource {
    last: Option<Answer>,
    /// Last failure, and until when it is served. If failures were not kept, each waiting user
    /// would cause a call.
    failed: Option<(Instant, Refusal)>,
    failing: Option<Failing>,
    /// Last failure, for the page. A success does not clear it.
    trouble: Option<(Instant, String)>,
    /// Start of the call in flight, and a channel that closes at its end.
    call: Option<(Instant, watch::Receiver<()>)>,
    used: Option<Instant>,
}

/// Row of a resource on the page.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) target: Arc<str>,
    /// Age and size of the last response.
    pub(crate) last: Option<(Duration, u64)>,
    /// `fails` if the last call failed within the last ten minutes, or else `fresh` or `expired`.
    pub(crate) state: &'static str,
    pub(crate) failure: Option<(Instant, String)>,
    used: Option<Instant>,
}

/// Complete response, as it is served.
#[derive(Debug, Clone)]
struct Answer {
    stored: Stored,
    headers: HeaderMap,
    at: Instant,
    /// Age of the response when it arrived here.
    age: Duration,
    /// How long the response is fresh, by the service's headers or by `--fresh`.
    fresh: Duration,
    /// Whether the response may be served while the service fails.
    is_kept: bool,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new(client: Client, accept: Accept, secrets: Secrets, terms: Terms) -> Self {
        Self {
            client,
            accept,
            secrets,
            terms,
            book: Mutex::default(),
        }
    }

    /// Serves one user. Dropping the future does not cancel the call to the service.
    pub(crate) async fn serve(self: &Arc<Self>, target: &str, asked: &HeaderMap) -> Response {
        let (mut call, cache, begun) = {
            let mut book = self.book();
            let resource = book.resource(target);
            if resource.is_settled() {
                return served(resource.serve(self.terms, asked), "hit", None);
            }
            let running = resource.running();
            let cache = if running.is_some() { "join" } else { "miss" };
            let begun = running.map_or_else(Instant::now, |(begun, _)| begun);
            (self.call(target, &mut book), cache, begun)
        };
        // No value is sent: the channel closes at the end of the call.
        let ended = timeout(self.terms.deadline, call.changed()).await;
        let upstream = Some(begun.elapsed());
        let mut book = self.book();
        let resource = book.resource(target);
        let response = match ended {
            Ok(_) => resource.serve(self.terms, asked),
            Err(_) => resource.stale(self.terms, asked, &LATE),
        };
        served(response, cache, upstream)
    }

    /// Returns how many calls have taken longer than a user waits, and the age of the oldest.
    pub(crate) fn unanswered(&self) -> (u64, Duration) {
        let book = self.book();
        let calls = book.resources.values().filter_map(|resource| {
            let (begun, call) = resource.call.as_ref()?;
            call.has_changed().is_ok().then(|| begun.elapsed())
        });
        let late = calls.filter(|age| *age > self.terms.deadline);
        late.fold((0, Duration::ZERO), |(count, oldest), age| {
            (count + 1, oldest.max(age))
        })
    }

    /// Returns up to `most` resources for the page, those that fail first, and how many others were
    /// used less recently.
    pub(crate) fn shown(&self, most: usize) -> (Vec<Shown>, usize) {
        let book = self.book();
        let shown = book.resources.iter().map(|(target, resource)| {
            let last = resource.last.as_ref();
            let size = |last: &Answer| u64::try_from(last.stored.len()).unwrap_or(u64::MAX);
            let fails = |(at, _): &(Instant, String)| {
                at.elapsed() < 10 * MINUTE && last.is_none_or(|last| last.at < *at)
            };
            Shown {
                target: Arc::clone(target),
                last: last.map(|last| (last.age + last.at.elapsed(), size(last))),
                state: match last {
                    _ if resource.trouble.as_ref().is_some_and(fails) => "fails",
                    Some(last) if last.at.elapsed() < last.fresh => "fresh",
                    _ => "expired",
                },
                failure: resource.trouble.clone(),
                used: resource.used,
            }
        });
        let mut shown: Vec<_> = shown.collect();
        drop(book);
        shown.sort_by_key(|it| Reverse((it.state == "fails", it.used)));
        let further = shown.len().saturating_sub(most);
        shown.truncate(most);
        // Sorted by name, so that rows keep their places.
        shown.sort_by(|a, b| (b.state == "fails", &a.target).cmp(&(a.state == "fails", &b.target)));
        (shown, further)
    }

    /// Returns the age and the text of the last call's failure, if its reason concerns all
    /// resources.
    ///
    /// Repeats that call, so that the end of the outage shows even if no user sends a request.
    pub(crate) fn outage(self: &Arc<Self>) -> Option<(Duration, String)> {
        let mut book = self.book();
        let (target, at, line) = book.outage.clone()?;
        if !book.resource(&target).is_settled() {
            drop(self.call(&target, &mut book));
        }
        Some((at.elapsed(), line))
    }

    /// Returns the call in flight, or begins one in a task of its own, so that no user can cancel
    /// it.
    fn call(self: &Arc<Self>, target: &str, book: &mut Book) -> watch::Receiver<()> {
        let resource = book.resource(target);
        if let Some((_, call)) = resource.running() {
            return call;
        }
        let (running, call) = watch::channel(());
        resource.call = Some((Instant::now(), call.clone()));
        let known = resource.last.clone();
        let (cache, target) = (Arc::clone(self), Arc::<str>::from(target));
        tokio::spawn(async move {
            let answer = cache.answer(&target, known).await;
            let lines = cache.book().ended(target, answer, &cache.secrets);
            drop(running);
            lines.iter().for_each(|line| warn(line));
        });
        call
    }

    async fn answer(&self, target: &str, known: Option<Answer>) -> Result<Answer, Trouble> {
        // Longer than a user waits, because a late response serves the next user.
        let deadline = self.terms.deadline * 5;
        let mut call = self.accept.plain(self.client.get(target));
        if let Some(etag) = known.as_ref().and_then(|known| known.headers.get(ETAG)) {
            call = call.header(IF_NONE_MATCH, etag.clone());
        }
        let response = call.deadline(deadline).await?;
        let is_as_known = response.status() == StatusCode::NOT_MODIFIED;
        let (mut headers, source) = match &known {
            Some(known) if is_as_known => (known.headers.clone(), response.headers()),
            _ => (HeaderMap::new(), response.headers()),
        };
        for name in PASSED.iter().filter(|name| source.contains_key(*name)) {
            headers.remove(name);
            for value in source.get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let age = number(source.get(AGE).and_then(|age| age.to_str().ok())).unwrap_or_default();
        let date = source.typed_get::<Date>();
        let (fresh, is_kept) = freshness(&headers, date, self.terms.fresh);
        let stored = match known {
            Some(known) if is_as_known => known.stored,
            _ => Stored::new(self.accept.whole(response, target).await?, &headers),
        };
        stored.prepare(&mut headers);
        Ok(Answer {
            stored,
            headers,
            at: Instant::now(),
            age,
            fresh: fresh.saturating_sub(age),
            is_kept,
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Book ===

impl Book {
    fn resource(&mut self, target: &str) -> &mut Resource {
        let resource = self.resources.entry(target.into()).or_default();
        resource.used = Some(Instant::now());
        resource
    }

    /// Records the end of a call, and returns lines for the log: one when a resource or the service
    /// begins to fail, one each minute, and one at the end.
    fn ended(
        &mut self,
        target: Arc<str>,
        answer: Result<Answer, Trouble>,
        secrets: &Secrets,
    ) -> Vec<String> {
        let now = Instant::now();
        self.outage = None;
        let resource = self.resource(&target);
        resource.call = None;
        let mut lines = Vec::new();
        match answer {
            Ok(answer) => {
                resource.failed = None;
                resource.last = Some(answer);
                let over = resource.failing.take();
                lines.extend(over.map(|over| over.end(now, &format!("{target} is back"))));
                let over = self.failing.take();
                lines.extend(over.map(|over| over.end(now, "the service answers")));
                self.shrink();
            }
            Err(trouble) => {
                let kind = trouble.kind();
                // If one response was too large, the next one will be as well.
                let is_too_large = kind == Kind::TooLarge.as_str();
                let time = if is_too_large { TOO_LARGE } else { FAILED };
                let failed = Instant::now() + time;
                resource.failed = Some((failed, Refusal::of(&trouble, secrets, FAILED)));
                // A missing role concerns only this resource.
                let is_of_one =
                    trouble.exit() == Exit::SomeFailed || kind == Kind::MissingRole.as_str();
                let line = trouble.line(Path::new(&*target));
                resource.trouble = Some((now, line.clone()));
                let failing = match is_of_one {
                    true => &mut resource.failing,
                    false => &mut self.failing,
                };
                let failing = failing.get_or_insert(Failing {
                    begun: now,
                    line_at: now,
                    failures: 0,
                });
                lines.extend(failing.failed(now, &line));
                if !is_of_one {
                    self.outage = Some((target, now, line));
                }
            }
        }
        lines
    }

    /// Drops the least recently used resources until the rest take at most [`MOST`] bytes.
    fn shrink(&mut self) {
        let size = |resource: &Resource| {
            let last = resource.last.as_ref();
            last.map_or(0, |last| last.stored.len()) + OVERHEAD
        };
        let mut all: usize = self.resources.values().map(size).sum();
        while all > MOST {
            let idle = self.resources.iter().filter(|(_, it)| it.call.is_none());
            let oldest = idle.min_by_key(|(_, resource)| resource.used);
            let Some(target) = oldest.map(|(target, _)| Arc::clone(target)) else {
                return;
            };
            let gone = self.resources.remove(&target);
            all -= gone.as_ref().map_or(0, size);
        }
    }
}

// === impl Failing ===

impl Failing {
    fn failed(&mut self, now: Instant, line: &str) -> Option<String> {
        self.failures += 1;
        let lasted = match self.failures {
            1 => String::new(),
            _ => format!(" for {}", rough(now.saturating_duration_since(self.begun))),
        };
        let is_due = now >= self.line_at;
        self.line_at = if is_due { now + MINUTE } else { self.line_at };
        is_due.then(|| format!("outage{lasted}: {line}"))
    }

    fn end(&self, now: Instant, who: &str) -> String {
        let lasted = rough(now.saturating_duration_since(self.begun));
        let failures = counted(self.failures, "failure");
        format!("outage over after {lasted} and {failures}: {who}")
    }
}

// === impl Resource ===

impl Resource {
    /// Whether a user can be served without a call to the service.
    fn is_settled(&self) -> bool {
        let fresh = |last: &Answer| last.at.elapsed() < last.fresh;
        self.last.as_ref().is_some_and(fresh)
            || self
                .failed
                .as_ref()
                .is_some_and(|(end, _)| Instant::now() < *end)
    }

    /// Returns the call in flight, and its start. The closed channel of an aborted call does not
    /// count.
    fn running(&self) -> Option<(Instant, watch::Receiver<()>)> {
        self.call
            .clone()
            .filter(|(_, call)| call.has_changed().is_ok())
    }

    fn serve(&self, terms: Terms, asked: &HeaderMap) -> (Response, bool) {
        match (&self.failed, &self.last) {
            (Some((_, refusal)), _) => self.stale(terms, asked, refusal),
            (None, Some(last)) => (last.response(asked), false),
            (None, None) => (LATE.into_response(), false),
        }
    }

    /// Serves the last response if that is allowed while the service fails, or else the failure.
    /// Returns whether it was the response.
    fn stale(&self, terms: Terms, asked: &HeaderMap, refusal: &Refusal) -> (Response, bool) {
        let stale = terms.stale.unwrap_or_default();
        let last = self.last.as_ref();
        let last = last.filter(|last| last.is_kept && last.at.elapsed() < last.fresh + stale);
        let response = last.map_or_else(
            || refusal.clone().into_response(),
            |last| last.response(asked),
        );
        (response, last.is_some())
    }
}

/// Adds where a response came from, for the access log.
fn served(served: (Response, bool), cache: &'static str, upstream: Option<Duration>) -> Response {
    let (mut response, is_stale) = served;
    let cache = if is_stale { "stale" } else { cache };
    response.extensions_mut().insert(Served { cache, upstream });
    response
}

// === impl Answer ===

impl Answer {
    fn response(&self, asked: &HeaderMap) -> Response {
        let age = HeaderValue::from((self.age + self.at.elapsed()).as_secs());
        let mut headers = self.headers.clone();
        headers.insert(AGE, age);
        self.stored.response(headers, asked)
    }
}

/// How long a response is fresh by its headers, and whether it may be kept beyond that (RFC 9111,
/// section 5.2.2).
pub(crate) fn freshness(
    headers: &HeaderMap,
    date: Option<Date>,
    default: Duration,
) -> (Duration, bool) {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let directives = values.flat_map(|value| value.split(',')).map(str::trim);
    let directives: Vec<_> = directives.collect();
    let has = |name: &str| directives.iter().any(|it| it.eq_ignore_ascii_case(name));
    let seconds = |name: &str| {
        directives.iter().find_map(|directive| {
            let (known, value) = directive.split_once('=')?;
            let value = known.eq_ignore_ascii_case(name).then_some(value)?;
            number(Some(value.trim_matches('"')))
        })
    };
    // With `Vary: *` another user may need another response (RFC 9110, section 12.5.5).
    let varies = headers
        .get_all(VARY)
        .iter()
        .any(|names| names.as_bytes().contains(&b'*'));
    if has("no-store") || has("private") || varies {
        return (Duration::ZERO, false);
    }
    if has("no-cache") {
        return (Duration::ZERO, true);
    }
    let expires = || {
        // Malformed times count as past (RFC 9111, section 5.3).
        let expires = headers
            .get(EXPIRES)
            .map(|_| headers.typed_get::<Expires>())?;
        let life = expires.zip(date).map(|(end, date)| {
            let (end, date) = (SystemTime::from(end), SystemTime::from(date));
            end.duration_since(date).unwrap_or_default().min(MONTH)
        });
        Some(life.unwrap_or_default())
    };
    let fresh = seconds("s-maxage").or_else(|| seconds("max-age"));
    let fresh = fresh.or_else(expires).unwrap_or(default);
    (fresh, !has("must-revalidate") && !has("proxy-revalidate"))
}

/// Parses a number of seconds, a month at most.
fn number(text: Option<&str>) -> Option<Duration> {
    let seconds = text?.trim().parse::<u64>().ok()?;
    Some(Duration::from_secs(seconds).min(MONTH))
}

/// Headers of the service that users get.
const PASSED: [HeaderName; 9] = [
    CONTENT_TYPE,
    ETAG,
    LAST_MODIFIED,
    CACHE_CONTROL,
    EXPIRES,
    LINK,
    CONTENT_LANGUAGE,
    CONTENT_DISPOSITION,
    VARY,
];

const MONTH: Duration = Duration::from_secs(31 * 86_400);

/// How long a failure is served to all users.
const FAILED: Duration = Duration::from_secs(1);

const MINUTE: Duration = Duration::from_secs(60);

/// How long a resource with too large a response is refused, because each attempt downloads 64 MiB.
const TOO_LARGE: Duration = Duration::from_secs(60);

const LATE: Refusal = Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout");

/// Bytes of all responses: room for four of the largest.
const MOST: usize = 256 << 20;

/// Approximate memory of a resource without its body.
const OVERHEAD: usize = 1024;
