//! Answers of the service: whether a response is data, and whether it is new.

use std::{ffi::OsStr, io, path::Path, pin::Pin, sync::Arc, time::Duration};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder};
use bytes::{Bytes, BytesMut};
use futures_util::stream::try_unfold;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, TRANSFER_ENCODING},
};
use tokio::{
    io::{AsyncBufRead, AsyncReadExt as _, BufReader},
    time::{Instant, sleep, timeout},
};
use tokio_util::io::StreamReader;
use tower_tds::{Call, Client, Error, Kind, Response, layers::errors::Sent};
use tower_tds_outcome::{Cause, Outcome, retry_after};

use crate::{ending::Trouble, header, manifest::Version, output::rough, page, state::State};

/// Types that a job accepts as data, and its turns to request some. Pages count only if you name their
/// type, because a login portal sends them with any status.
#[derive(Debug, Clone)]
pub(crate) struct Accept {
    pub(crate) types: HeaderValue,
    /// Whether empty data may replace other data.
    pub(crate) empty: bool,
    /// State that processes with the same key share on this machine. `None` in a fleet, if there is
    /// no folder for it, and with the simulated service, which ends with this process.
    pub(crate) state: Option<Arc<State>>,
}

/// Request of a job, which decides what counts as its answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked<'a> {
    pub(crate) target: &'a str,
    /// Condition of the request. Without one a 304 is no answer.
    pub(crate) condition: Option<(&'a HeaderName, &'a HeaderValue)>,
    /// First missing byte, and the version of the bytes before it. Without them a 206 is no answer.
    pub(crate) range: Option<(u64, &'a Version)>,
    /// Whether the data replaces data that is not empty.
    pub(crate) replaces: bool,
    /// File that gets the data.
    pub(crate) file: Option<&'a Path>,
    /// Most bytes, if the data is to be kept in memory.
    pub(crate) most: Option<usize>,
}

pub(crate) enum Answer {
    /// The data has not changed since the condition. The headers may be new.
    Same(HeaderMap),
    /// The data, or with a length the missing bytes of a file of that length.
    New(Data, Option<u64>),
}

/// Data without its content coding, of which the beginning was read to find out that it is no page.
pub(crate) struct Data {
    begin: Bytes,
    body: Body,
    pub(crate) headers: HeaderMap,
    /// Length of the data, if it was announced.
    pub(crate) length: Option<u64>,
    target: String,
    most: Option<usize>,
}

enum Body {
    Plain(Box<Response>),
    Coded(Pin<Box<dyn AsyncBufRead + Send>>),
}

// === impl Accept ===

impl Accept {
    /// Parses the value of an `Accept` header.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value = HeaderValue::from_str(text.trim()).ok();
        let value = value.filter(|value| value.to_str().is_ok_and(|text| text.contains('/')));
        let value = value.map(|types| Self {
            types,
            ..Self::any()
        });
        value.ok_or_else(|| "write media types, as in application/json".to_owned())
    }

    pub(crate) const fn any() -> Self {
        Self {
            types: HeaderValue::from_static("*/*"),
            empty: false,
            state: None,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.types.to_str().unwrap_or_default()
    }

    /// Requests data, in one of these content codings.
    pub(crate) fn on(&self, call: Call, codings: &'static str) -> Call {
        let call = call.header(ACCEPT, self.types.clone());
        call.header(ACCEPT_ENCODING, HeaderValue::from_static(codings))
    }

    /// Requests data until there is an answer, or until the deadline. A response that is being
    /// prepared is requested again after the hint of the service, a page after these pauses.
    pub(crate) async fn get(
        &self,
        client: &Client,
        asked: Asked<'_>,
        deadline: Duration,
        pauses: &[u64],
    ) -> Result<Answer, Trouble> {
        let begun = Instant::now();
        let (mut pauses, mut tries) = (pauses.iter().copied(), 0);
        let left = || deadline.saturating_sub(begun.elapsed());
        loop {
            self.turn(client, asked.target, left()).await?;
            let mut call = self.on(client.get(asked.target), IDENTITY).deadline(left());
            if let Some((name, value)) = asked.condition {
                call = call.header(name.clone(), value.clone());
            }
            let trouble = match self.answer(client, call.await?, asked).await {
                Err(trouble @ (Trouble::Page(_) | Trouble::Pending(_))) => trouble,
                answer => return answer,
            };
            let pause = match trouble {
                Trouble::Pending(hint) => Some(pending(hint, tries)),
                _ => pauses.next().map(Duration::from_secs),
            };
            tries += 1;
            match pause.filter(|pause| *pause < left()) {
                Some(pause) => sleep(pause).await,
                None => return Err(trouble),
            }
        }
    }

    /// Waits for the turn to send a request, among all processes that share the key on this machine.
    /// Fails if that takes longer than this, because nothing may be sent before.
    pub(crate) async fn turn(
        &self,
        client: &Client,
        target: &str,
        longest: Duration,
    ) -> Result<(), Error> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let granted = client.status().limits.granted;
        let error = match timeout(longest, state.turn(granted, longest)).await {
            Ok(turn) if turn <= longest => {
                sleep(turn).await;
                return Ok(());
            }
            Ok(turn) => {
                let next = rough(turn);
                let why = format!(
                    "earlier requests of this machine have used up that of --rate, and the next one may be sent in {next}"
                );
                let mut cause = Cause::new(Outcome::QuotaExceeded(None));
                cause.wait = Some(turn);
                let mut error = Error::from(cause.over(why));
                error.set_kind(Kind::QuotaExhausted);
                error
            }
            Err(_) => Error::new(Kind::LimitTimeout, state.held()),
        };
        Err(named(error.with_sent(Sent::Never), target))
    }

    /// Decides whether a response answers a request. This is the only place that does.
    pub(crate) async fn answer(
        &self,
        client: &Client,
        response: Response,
        asked: Asked<'_>,
    ) -> Result<Answer, Trouble> {
        let (status, headers) = (response.status(), response.headers().clone());
        let refused = |kind, what: &str| refused(kind, what, asked.target);
        // The codings, in the order in which they were applied.
        let mut codings = header::members(&headers, &CONTENT_ENCODING);
        codings.retain(|coding| coding != "identity" && !asked.is_kept(&headers));
        let rest = asked.range.filter(|_| codings.is_empty());
        let rest = rest.and_then(|(start, known)| self::rest(&headers, start, known));
        let whole = match status {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => None,
            StatusCode::NOT_MODIFIED if asked.condition.is_some() => {
                return Ok(Answer::Same(headers));
            }
            StatusCode::PARTIAL_CONTENT if rest.is_some() => rest,
            StatusCode::ACCEPTED => {
                #[expect(clippy::disallowed_methods, reason = "a hint may be a date")]
                let now = std::time::SystemTime::now();
                return Err(Trouble::Pending(retry_after(status, &headers, now)));
            }
            _ => {
                let other = refused(
                    Kind::UnexpectedResponse,
                    &format!("status {status} instead of 200"),
                );
                return Err(other
                    .with_advice("check that the path is a data endpoint")
                    .into());
            }
        };
        let mut framing = header::members(&headers, &TRANSFER_ENCODING);
        // If it is not the last, its chunks are taken for data.
        framing.pop_if(|last| last == "chunked");
        let framing = framing.iter().find(|coding| *coding != "identity");
        let is_known = |coding: &&String| ["gzip", "x-gzip", "br"].contains(&&***coding);
        let unknown = codings.iter().find(|it| !is_known(it));
        let unknown = unknown.or(codings.get(MOST_CODINGS));
        let unknown = unknown.map(|coding| ("content", coding));
        if let Some((of, coding)) = framing.map(|it| ("transfer", it)).or(unknown) {
            let what =
                format!("the response has the {of} coding {coding}, which was not requested");
            return Err(refused(Kind::Malformed, &what).into());
        }
        let length = response.content_length().filter(|_| codings.is_empty());
        let is_long = |most: usize| length.is_some_and(|length| length > most as u64);
        if asked.most.is_some_and(is_long) {
            return Err(refused(Kind::TooLarge, TOO_LARGE).into());
        }
        let mut data = Data {
            begin: Bytes::new(),
            body: Body::of(response, &codings),
            headers,
            length,
            target: asked.target.to_owned(),
            most: asked.most,
        };
        let needs_a_byte = asked.replaces && !self.empty;
        if whole.is_none() {
            self.begin(client, &mut data, needs_a_byte).await?;
        }
        Ok(Answer::New(data, whole))
    }

    /// Reads data until it is clear that it is no page, and that it has a byte if it must be `filled`.
    async fn begin(&self, client: &Client, data: &mut Data, filled: bool) -> Result<(), Trouble> {
        let secrets = client.tokens().secrets();
        let types = self.as_str().to_ascii_lowercase();
        let has_pages = page::TYPES.iter().any(|page| types.contains(page));
        let mut begin = BytesMut::new();
        let is_open = |headers: &HeaderMap, begin: &[u8]| match page::is_page(headers, begin) {
            _ if filled && begin.is_empty() => true,
            _ if has_pages || begin.len() >= BEGIN => false,
            Some(is_page) => is_page && page::title(begin, secrets).is_none(),
            None => true,
        };
        while is_open(&data.headers, &begin) {
            match data.chunk().await? {
                Some(more) => begin.extend_from_slice(&more),
                None => break,
            }
        }
        if begin.is_empty() && filled {
            return Err(Trouble::Empty);
        }
        let text = begin.get(..BEGIN).unwrap_or(&begin);
        if !has_pages && page::is_page(&data.headers, text) == Some(true) {
            return Err(Trouble::Page(page::title(text, secrets)));
        }
        data.begin = begin.freeze();
        Ok(())
    }
}

// === impl Asked ===

impl Asked<'_> {
    /// Whether the bytes are kept as they come. A range counts coded bytes, and common servers
    /// name the coding of a file that is compressed itself.
    fn is_kept(&self, headers: &HeaderMap) -> bool {
        let path = Path::new(self.target.split('?').next().unwrap_or_default());
        let ends = |path: &Path| {
            let end = path.extension().and_then(OsStr::to_str);
            end.is_some_and(|end| COMPRESSED.iter().any(|it| end.eq_ignore_ascii_case(it)))
        };
        let is_file =
            |file: &Path| ends(path) || ends(file) || header::media(headers).ends_with("gzip");
        self.file.is_some_and(is_file)
    }
}

// === impl Answer ===

impl Answer {
    /// Returns the data of a request without a condition.
    pub(crate) fn data(self) -> Result<Data, Trouble> {
        match self {
            Self::New(data, _) => Ok(data),
            Self::Same(_) => {
                Err(Error::new(Kind::UnexpectedResponse, "304 without a condition").into())
            }
        }
    }
}

// === impl Data ===

impl Data {
    /// Returns the next piece.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.begin.is_empty() {
            return Ok(Some(std::mem::take(&mut self.begin)));
        }
        let chunk = match &mut self.body {
            Body::Plain(response) => response.chunk().await,
            Body::Coded(reader) => {
                let mut buffer = BytesMut::with_capacity(CHUNK);
                match reader.read_buf(&mut buffer).await {
                    Ok(0) => Ok(None),
                    Ok(_) => Ok(Some(buffer.freeze())),
                    Err(error) => Err(broken(error)),
                }
            }
        };
        chunk.map_err(|error| named(error, &self.target))
    }

    /// Whether the bytes had a content coding, which a range would count.
    pub(crate) const fn is_decoded(&self) -> bool {
        matches!(self.body, Body::Coded(_))
    }

    /// Reads the data to its end, passes it on in pieces, and returns its length.
    pub(crate) async fn copy(
        mut self,
        mut write: impl AsyncFnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Trouble> {
        let mut length = 0;
        while let Some(data) = self.chunk().await? {
            write(&data).await?;
            length += data.len() as u64;
        }
        Ok(length)
    }

    /// Reads the data into memory.
    pub(crate) async fn whole(mut self) -> Result<Bytes, Trouble> {
        let mut whole = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            whole.extend_from_slice(&data);
            if self.most.is_some_and(|most| whole.len() > most) {
                return Err(refused(Kind::TooLarge, TOO_LARGE, &self.target).into());
            }
        }
        Ok(whole.freeze())
    }
}

// === impl Body ===

impl Body {
    /// Decodes the last of the codings first, because it was applied last.
    fn of(response: Response, codings: &[String]) -> Self {
        if codings.is_empty() {
            return Self::Plain(Box::new(response));
        }
        let chunks = try_unfold(response, |mut response: Response| async move {
            let chunk = response.chunk().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(chunk.map(|chunk| (chunk, response)))
        });
        let mut coded: Pin<Box<dyn AsyncBufRead + Send>> =
            Box::pin(StreamReader::new(Box::pin(chunks)));
        for coding in codings.iter().rev() {
            coded = match &**coding {
                "br" => Box::pin(BufReader::new(BrotliDecoder::new(coded))),
                _ => {
                    let mut decoder = GzipDecoder::new(coded);
                    decoder.multiple_members(true);
                    Box::pin(BufReader::new(decoder))
                }
            };
        }
        Self::Coded(coded)
    }
}

/// Returns the tag if it is strong: only such a tag identifies bytes, so that a part can be resumed
/// (RFC 9110, section 13.1.5).
pub(crate) fn strong(headers: &HeaderMap) -> Option<&str> {
    let etag = headers.get(ETAG)?.to_str().ok()?;
    etag.starts_with('"').then_some(etag)
}

/// Returns the length of the whole file, if a response has all of its missing bytes and they are of
/// the same version.
///
/// Some servers ignore `If-Range`, and a server may send less than requested (RFC 9110, section
/// 14.2).
pub(crate) fn rest(headers: &HeaderMap, length: u64, known: &Version) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (start, range) = range.strip_prefix("bytes ")?.split_once('-')?;
    let (end, whole) = range.split_once('/')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let (start, end, whole) = (number(start)?, number(end)?, number(whole)?);
    let follows = start == length && end.checked_add(1) == Some(whole);
    let is_same =
        strong(headers) == known.etag.as_deref() && known.length.is_none_or(|was| was == whole);
    (follows && is_same).then_some(whole)
}

/// Returns how long to wait for a response that is being prepared, after so many tries.
pub(crate) fn pending(hint: Option<Duration>, tries: u32) -> Duration {
    let wait = SECOND.saturating_mul(1 << tries.min(6)).min(60 * SECOND);
    hint.map_or(wait, |hint| hint.max(SECOND))
}

/// Returns an error about an answered request.
pub(crate) fn refused(kind: Kind, what: &str, target: &str) -> Error {
    named(Error::new(kind, what).with_sent(Sent::Answered), target)
}

/// Returns the error of a body that cannot be decoded, or could not be read.
fn broken(error: io::Error) -> Error {
    let mut error = Error::from(error).with_sent(Sent::Answered);
    if error.kind() == Kind::Unrecognized {
        error.set_kind(Kind::Malformed);
    }
    error
}

/// Adds the request to an error that does not name it.
pub(crate) fn named(error: Error, target: &str) -> Error {
    match target.parse() {
        Ok(uri) if error.uri().is_none() => error.with_request(Method::GET, &uri),
        Ok(_) | Err(_) => error,
    }
}

/// Seconds before a page is requested again, as the client does after a 503.
pub(crate) const PAUSES: [u64; 2] = [1, 2];

/// Any coding may be used for a request without this header (RFC 9110, section 12.5.3).
pub(crate) const IDENTITY: &str = "identity";

/// Most memory for one response.
pub(crate) const MOST: usize = 64 << 20;

const TOO_LARGE: &str = "it has more than 64 MiB";

/// The decoder of each coding takes memory.
const MOST_CODINGS: usize = 4;

/// Ends of the names of compressed files.
const COMPRESSED: [&str; 4] = ["gz", "tgz", "br", "zst"];

const SECOND: Duration = Duration::from_secs(1);

const CHUNK: usize = 16 * 1024;

/// How much of a body is searched for the beginning of a page.
const BEGIN: usize = 16 * 1024;
