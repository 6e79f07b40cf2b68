//! Responses for many users: one call to the service at a time for each resource.

use std::{
    cmp::Reverse,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::response::{IntoResponse, Response};
use clap::Args;
use headers::HeaderMapExt as _;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        AGE, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, EXPIRES,
        LAST_MODIFIED, LINK, VARY,
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
    answer::{Accept, Asked, MOST as LARGEST},
    ending::Trouble,
    freshness::Times,
    header,
    known::Known,
    lock::lock,
    outage::Outage,
    output::warn,
    refusal::Refusal,
    representation::Stored,
    settings::duration,
};

/// The resources that users requested, each with its last response and its last failure.
#[derive(Debug)]
pub(crate) struct Cache {
    client: Client,
    accept: Accept,
    bounds: Bounds,
    /// Guards all of the book. Locked for a few statements and never across an await.
    book: Mutex<Book>,
}

/// Bounds of a user's wait, and of the use of a response.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Bounds {
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
    /// Outage of the service, with the target of the last call that failed.
    failing: Option<(Arc<str>, Outage)>,
}

#[derive(Debug, Default)]
struct Resource {
    last: Option<Last>,
    /// Failure of the last call, if it failed.
    failed: Option<Failed>,
    /// Outage of this resource alone.
    failing: Option<Outage>,
    /// Start of the call in flight, and a channel that closes at its end.
    call: Option<(Instant, watch::Receiver<()>)>,
    used: Option<Instant>,
}

#[derive(Debug)]
struct Failed {
    at: Instant,
    /// Until when it is served. If failures were not kept, each waiting user would cause a call.
    end: Instant,
    refusal: Refusal,
    line: String,
}

/// Row of a resource on the page.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) target: Arc<str>,
    /// Age and size of the last response.
    pub(crate) last: Option<(Duration, u64)>,
    /// `fails` if the last call failed, or else `fresh` or `expired`.
    pub(crate) state: &'static str,
    pub(crate) failure: Option<(Instant, String)>,
    used: Option<Instant>,
}

/// Complete response, as it is served.
#[derive(Debug, Clone)]
struct Last {
    stored: Stored,
    headers: HeaderMap,
    known: Known,
    at: Instant,
    /// Age of the response when it arrived here.
    age: Duration,
    times: Times,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new(client: Client, accept: Accept, bounds: Bounds) -> Self {
        Self {
            client,
            accept,
            bounds,
            book: Mutex::default(),
        }
    }

    /// Serves one user. Dropping the future does not cancel the call to the service.
    pub(crate) async fn serve(self: &Arc<Self>, target: &str, asked: &HeaderMap) -> Response {
        let (mut call, cache, begun) = {
            let mut book = lock(&self.book);
            let resource = book.resource(target);
            if resource.is_settled() {
                return served(resource.serve(asked), "hit", None);
            }
            let last = resource.last.as_ref();
            let last = last.filter(|last| last.may_be_served(last.times.meanwhile));
            if let Some(response) = last.map(|last| last.response(asked)) {
                drop(self.call(target, &mut book));
                return served((response, true), "stale", None);
            }
            let running = resource.running();
            let cache = if running.is_some() { "join" } else { "miss" };
            let begun = running.map_or_else(Instant::now, |(begun, _)| begun);
            (self.call(target, &mut book), cache, begun)
        };
        // No value is sent: the channel closes at the end of the call.
        let ended = timeout(self.bounds.deadline, call.changed()).await;
        let upstream = Some(begun.elapsed());
        let mut book = lock(&self.book);
        let resource = book.resource(target);
        let response = match ended {
            Ok(_) => resource.serve(asked),
            Err(_) => resource.stale(asked, &LATE),
        };
        served(response, cache, upstream)
    }

    /// Returns up to `most` resources for the page, those that fail first, and how many others were
    /// used less recently.
    pub(crate) fn shown(&self, most: usize) -> (Vec<Shown>, usize) {
        let book = lock(&self.book);
        let shown = book.resources.iter().map(|(target, resource)| {
            let last = resource.last.as_ref();
            let size = |last: &Last| u64::try_from(last.stored.len()).unwrap_or(u64::MAX);
            Shown {
                target: Arc::clone(target),
                last: last.map(|last| (last.age + last.at.elapsed(), size(last))),
                state: match last {
                    _ if resource.failed.is_some() => "fails",
                    Some(last) if last.may_be_served(Duration::ZERO) => "fresh",
                    _ => "expired",
                },
                failure: resource.failed.as_ref().map(|it| (it.at, it.line.clone())),
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

    /// Returns a line about an outage of the service.
    ///
    /// Repeats the call that failed, so that the end of the outage shows even if no user sends a
    /// request.
    pub(crate) fn outage(self: &Arc<Self>) -> Option<String> {
        let mut book = lock(&self.book);
        let (target, outage) = book.failing.as_ref()?;
        let (target, line) = (Arc::clone(target), outage.line(Instant::now()));
        if !book.resource(&target).is_settled() {
            drop(self.call(&target, &mut book));
        }
        Some(line)
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
            let ended = cache.last(&target, known).await;
            // A call in a pause after a 429 is sent when the pause ends.
            let soon = cache.client.status().limits.paused_for.unwrap_or_default();
            let secrets = cache.client.tokens().secrets();
            let lines = lock(&cache.book).ended(target, ended, secrets, soon);
            drop(running);
            lines.iter().for_each(|line| warn(line));
        });
        call
    }

    async fn last(&self, target: &str, last: Option<Last>) -> Result<Last, Trouble> {
        let now = Instant::now();
        let has_data = |last: &Last| !last.stored.bytes().is_empty();
        let asked = Asked {
            target,
            condition: last.as_ref().and_then(|last| last.known.condition(now)),
            replaces: last.as_ref().is_some_and(has_data),
            most: Some(LARGEST),
            ..Asked::default()
        };
        // Longer than a user waits, because a late response serves the next user.
        let deadline = self.bounds.deadline * 5;
        let answer = self.accept.get(&self.client, asked, deadline, &[]).await?;
        let known = last.as_ref().map(|last| last.known.clone());
        let mut known = known.unwrap_or_default();
        let (source, body) = known.read(answer, asked, now).await?;
        let (mut headers, stored) = match last.filter(|_| body.is_none()) {
            Some(last) => (last.headers, Some(last.stored)),
            None => (HeaderMap::new(), None),
        };
        for name in PASSED.iter().filter(|name| source.contains_key(*name)) {
            headers.remove(name);
            for value in source.get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let age = source.get(AGE).and_then(|age| age.to_str().ok());
        let age = age.and_then(header::seconds).unwrap_or_default();
        let bounds = [self.bounds.fresh, self.bounds.stale.unwrap_or_default()];
        let times = Times::of(&headers, source.typed_get(), bounds);
        let stored = stored.unwrap_or_else(|| Stored::new(body.unwrap_or_default(), &headers));
        stored.prepare(&mut headers);
        Ok(Last {
            stored,
            headers,
            known,
            at: Instant::now(),
            age,
            times: Times {
                fresh: times.fresh.saturating_sub(age),
                ..times
            },
        })
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
    /// begins to fail, one each minute, and one at the end. `soon` is when failures of all resources
    /// may end.
    fn ended(
        &mut self,
        target: Arc<str>,
        ended: Result<Last, Trouble>,
        secrets: &Secrets,
        soon: Duration,
    ) -> Vec<String> {
        let now = Instant::now();
        let resource = self.resource(&target);
        resource.call = None;
        let mut lines = Vec::new();
        let trouble = match ended {
            Ok(last) => {
                resource.failed = None;
                resource.last = Some(last);
                let back = format!("{target} is back");
                lines.extend(resource.failing.take().map(|it| it.over(now, &back)));
                None
            }
            Err(trouble) => Some(trouble),
        };
        self.shrink();
        // A missing role concerns only this resource.
        let is_of_one = |it: &Trouble| it.is_of_one() || it.kind() == Kind::MissingRole.as_str();
        if trouble.as_ref().is_none_or(is_of_one) {
            let of_all = self.failing.take();
            lines.extend(of_all.map(|(_, it)| it.over(now, "the service answers")));
        }
        let Some(trouble) = trouble else { return lines };
        let time = match &trouble {
            // If one response was too large, the next one will be as well.
            _ if trouble.kind() == Kind::TooLarge.as_str() => TOO_LARGE,
            Trouble::Pending(Some(hint)) => (*hint).clamp(FAILED, MINUTE),
            _ => FAILED,
        };
        let line = trouble.line(Path::new(&*target));
        let resource = self.resource(&target);
        resource.failed = Some(Failed {
            at: now,
            end: now + time,
            refusal: Refusal::of(&trouble, secrets, time.max(soon)),
            line: line.clone(),
        });
        let begin = || Outage::begin(now);
        let failing = if is_of_one(&trouble) {
            resource.failing.get_or_insert_with(begin)
        } else {
            let failing = self
                .failing
                .get_or_insert_with(|| (Arc::clone(&target), begin()));
            failing.0 = target;
            &mut failing.1
        };
        lines.extend(failing.failed(&line, now));
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

// === impl Resource ===

impl Resource {
    /// Whether a user can be served without a call to the service.
    fn is_settled(&self) -> bool {
        let fresh = |last: &Last| last.may_be_served(Duration::ZERO);
        let failed = |it: &Failed| Instant::now() < it.end;
        self.last.as_ref().is_some_and(fresh) || self.failed.as_ref().is_some_and(failed)
    }

    /// Returns the call in flight, and its start. The closed channel of an aborted call does not
    /// count.
    fn running(&self) -> Option<(Instant, watch::Receiver<()>)> {
        let call = self.call.clone();
        call.filter(|(_, call)| call.has_changed().is_ok())
    }

    fn serve(&self, asked: &HeaderMap) -> (Response, bool) {
        match (&self.failed, &self.last) {
            (Some(failed), _) => self.stale(asked, &failed.refusal),
            (None, Some(last)) => (last.response(asked), false),
            (None, None) => (LATE.into_response(), false),
        }
    }

    /// Serves the last response if that is allowed while the service fails, or else the failure.
    /// Returns whether it was the response.
    fn stale(&self, asked: &HeaderMap, refusal: &Refusal) -> (Response, bool) {
        let last = self.last.as_ref();
        let last = last.filter(|last| last.may_be_served(last.times.on_error));
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

// === impl Last ===

impl Last {
    /// Whether it is fresh, or was at most this long ago.
    fn may_be_served(&self, beyond: Duration) -> bool {
        self.at.elapsed() < self.times.fresh + beyond
    }

    fn response(&self, asked: &HeaderMap) -> Response {
        let age = HeaderValue::from((self.age + self.at.elapsed()).as_secs());
        let mut headers = self.headers.clone();
        headers.insert(AGE, age);
        self.stored.response(headers, asked)
    }
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

#[cfg(test)]
mod tests;
