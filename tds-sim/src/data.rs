//! The data endpoints: one call from its arrival to its answer.
//!
//! The order of the checks, which the contract leaves open: 416, 423, then the faults that replace
//! the head, then 401, 429 and the resource. The limits per address come first because a gateway
//! applies them to the connection, before the check of the token.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, VARY},
    request::Parts,
};

use crate::{
    body::{Body, Coding, Content, Framing, Source},
    config::Config,
    entry::Entry,
    error::{Error, Kind},
    fault::DataFault,
    limits::Verdict,
    realm::Issued,
    shared::{Shared, lock},
    socket::Socket,
};

/// A data endpoint, with the query.
#[derive(Debug)]
struct Resource<'a> {
    group: Group,
    name: &'a str,
    query: &'a str,
}

#[derive(Debug, Clone, Copy)]
enum Group {
    /// `/v1/live/{name}`: a small JSON object.
    Live,
    /// `/v1/history/{name}`: lines of text, as many bytes as requested.
    History,
}

/// Answers a data call.
pub(crate) async fn answer<B>(
    shared: Arc<Shared>,
    socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    request: Request<B>,
) -> Result<Response<Body>, Error> {
    let head = request.into_parts().0;
    let target = head
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let strike = lock(&shared.script).call(target);
    pause(strike.before_counting).await;

    let (entry, verdict) = Entry::count(&shared, socket, peer, target);
    pause(strike.before_head).await;

    let format = shared.config.error_body;
    let response = match (verdict, strike.head) {
        (Verdict::TooManyConnections, _) => {
            format.answer(StatusCode::RANGE_NOT_SATISFIABLE, "Too many connections")
        }
        (Verdict::TooFast, _) => format.answer(StatusCode::LOCKED, "Too many requests per second"),
        (Verdict::Admitted, Some(DataFault::Status { status, .. })) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            format.answer(status, "The service is unavailable")
        }
        (Verdict::Admitted, Some(DataFault::ResetHead)) => {
            if let Some(socket) = &entry.socket {
                socket.reset();
            }
            return Err(Kind::Reset.into());
        }
        (Verdict::Admitted, Some(DataFault::Garbage)) => {
            let Some(socket) = &entry.socket else {
                return Err(Kind::Garbage.into());
            };
            socket.garble();
            format.answer(StatusCode::OK, "garbage")
        }
        (Verdict::Admitted, _) => serve(&shared, &entry, &head),
    };
    entry.answer(response.status().as_u16());
    Ok(Content::finish(response, entry, strike.body))
}

/// Returns the response of a service without faults to an admitted call.
fn serve(shared: &Shared, entry: &Entry, head: &Parts) -> Response<Content> {
    let format = shared.config.error_body;
    let resource = Resource::at(&head.uri);
    let token = match token(shared, &head.headers) {
        Ok(token) => token,
        Err(message) => return format.answer(StatusCode::UNAUTHORIZED, message),
    };
    entry.identify(token.generation);
    if let Some(resource) = &resource
        && !token.roles.iter().any(|role| role == resource.role())
    {
        return format.answer(StatusCode::UNAUTHORIZED, MISSING_ROLE);
    }
    let counted = lock(&shared.usage).call(&token.client, entry.at);
    if let Err(seconds) = counted {
        let mut refusal = format.answer(StatusCode::TOO_MANY_REQUESTS, "API rate limit exceeded");
        if shared.config.retry_after {
            refusal
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        return refusal;
    }
    match resource {
        None => format.answer(StatusCode::NOT_FOUND, "Not found"),
        Some(_) if head.method != Method::GET => {
            format.answer(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        }
        Some(resource) => resource.answer(&shared.config, &head.headers),
    }
}

/// Returns the record of a call's valid token, or the message of the 401.
fn token(shared: &Shared, headers: &HeaderMap) -> Result<Arc<Issued>, &'static str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(NO_HEADER)?;
    if values.next().is_some() {
        return Err(INVALID_TOKEN);
    }
    let value = value.to_str().map_err(|_| INVALID_TOKEN)?;
    let (scheme, token) = value.split_once(' ').ok_or(INVALID_TOKEN)?;
    if !scheme.eq_ignore_ascii_case("Bearer") {
        return Err(INVALID_TOKEN);
    }
    let now = shared.clock.now();
    lock(&shared.realm)
        .valid(token.trim(), now)
        .ok_or(INVALID_TOKEN)
}

/// Waits. A wait of zero does not yield.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

// === impl Resource ===

impl<'a> Resource<'a> {
    /// Returns the resource at `uri`, if there is one.
    fn at(uri: &'a Uri) -> Option<Self> {
        let (group, name) = uri.path().strip_prefix("/v1/")?.split_once('/')?;
        let group = match group {
            "live" => Group::Live,
            "history" => Group::History,
            _ => return None,
        };
        let known = !name.is_empty() && !name.contains('/');
        known.then(|| Self {
            group,
            name,
            query: uri.query().unwrap_or_default(),
        })
    }

    /// Returns the realm role that it requires.
    const fn role(&self) -> &'static str {
        match self.group {
            Group::Live => "live",
            Group::History => "history",
        }
    }

    /// Returns a 200, or a 304 if the request has the entity tag of the data (RFC 9110, section
    /// 13.1.2).
    ///
    /// The data of a resource depend only on their size, so the size is the tag.
    fn answer(&self, config: &Config, headers: &HeaderMap) -> Response<Content> {
        let (kind, mut content) = match self.group {
            Group::Live => {
                let text = live(self.name, config.live_bytes);
                ("application/json", Content::bytes(text))
            }
            Group::History => ("text/csv; charset=utf-8", self.history()),
        };
        let tag = format!("W/\"{}\"", content.source.length());
        if is_current(headers, &tag) {
            let mut response = Response::new(Content {
                // A 304 has no length of its own (RFC 9110, section 8.6).
                framing: Framing::Chunked,
                ..Content::bytes("")
            });
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            insert_tag(response.headers_mut(), &tag);
            return response;
        }
        content.coding = Coding::accepted_by(headers);
        let mut response = Response::new(content);
        let headers = response.headers_mut();
        insert_tag(headers, &tag);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let vary = HeaderValue::from_static("accept-encoding, content-encoding");
        headers.insert(VARY, vary);
        response
    }

    /// Reads size, rate and framing from the query. The default is a mebibyte without a rate.
    fn history(&self) -> Content {
        let (mut bytes, mut rate, mut framing) = (1 << 20, None, Framing::Length);
        for (name, value) in form_urlencoded::parse(self.query.as_bytes()) {
            match (&*name, &*value) {
                ("bytes", value) => bytes = value.parse().unwrap_or(bytes),
                ("rate", value) => rate = value.parse().ok().or(rate),
                ("framing", "chunked") => framing = Framing::Chunked,
                ("framing", "length") => framing = Framing::Length,
                _ => {}
            }
        }
        Content {
            source: Source::lines(bytes),
            rate,
            framing,
            coding: None,
        }
    }
}

/// Whether `If-None-Match` has this weak tag, with or without its `W/`.
fn is_current(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known == tag || Some(known) == tag.strip_prefix("W/"))
}

fn insert_tag(headers: &mut HeaderMap, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
}

/// Returns a JSON object of `bytes` bytes, at most about 16 MiB. If its fields need more, it is
/// longer.
fn live(name: &str, bytes: u64) -> String {
    let start = format!(
        "{{\"name\":{},\"status\":\"on time\",\"note\":\"",
        serde_json::Value::from(name)
    );
    let room = usize::try_from(bytes).unwrap_or(usize::MAX);
    let room = room
        .saturating_sub(start.len())
        .saturating_sub(LIVE_END.len());
    let mut text = start;
    text.extend(std::iter::repeat_n('-', room.min(LIVE_MOST)));
    text.push_str(LIVE_END);
    text
}

const LIVE_END: &str = "\"}\n";

/// The largest filling of a live resource, which is built in memory.
const LIVE_MOST: usize = 16 * 1024 * 1024;

// Contract, "Errors": the message texts of 401.
const NO_HEADER: &str = "no Authorization header found";
const INVALID_TOKEN: &str = "invalid token";
const MISSING_ROLE: &str =
    "Access token does not have the required scope/role: Missing required realm role";
