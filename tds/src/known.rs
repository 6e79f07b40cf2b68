//! Version of a resource, by which the service shows whether there is a newer one (RFC 9110, section
//! 13).

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use headers::{Date, HeaderMapExt as _, LastModified};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED},
};
use tokio::time::Instant;

use crate::{
    answer::{Answer, Asked},
    ending::Trouble,
    output::warn,
};

/// Condition for the next request of a resource, and whether it can be trusted.
///
/// Some services answer 304 for ever. So the resource is now and then requested without a condition,
/// and one whose 304s are proven wrong gets none any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    condition: Option<(HeaderName, HeaderValue)>,
    /// When the present row of 304s began.
    row: Option<Instant>,
    /// How many whole responses in that row had the data that the 304s claim.
    confirmed: u32,
    /// Condition of newer data, if a whole response in a row of 304s had some. Unless the service
    /// now sees that the older one is out of date, its 304s are wrong.
    newer: Option<(HeaderName, HeaderValue)>,
    is_wrong: bool,
    /// Hash of the last data, which shows changes where the service sends no conditions.
    hash: Option<u64>,
}

// === impl Known ===

impl Known {
    /// Returns the condition of the next request, if it has one.
    pub(crate) fn condition(&self, now: Instant) -> Option<(&HeaderName, &HeaderValue)> {
        let patience = PATIENCE.saturating_mul(1 << self.confirmed.min(16));
        let is_due = |row: Instant| now.saturating_duration_since(row) >= patience;
        let (name, value) = self.condition.as_ref()?;
        let is_left_out = self.newer.is_none() && self.row.is_some_and(is_due);
        (!is_left_out && !self.is_wrong).then_some((name, value))
    }

    /// Reads an answer and decides whether it is new: the only place that does. Returns its headers, and
    /// its data, unless that is the same by a 304.
    pub(crate) async fn read(
        &mut self,
        answer: Answer,
        asked: Asked<'_>,
        sent_at: Instant,
    ) -> Result<(HeaderMap, Option<Bytes>), Trouble> {
        let (headers, body, is_wrong) = match answer {
            Answer::Same(headers) => (headers, None, self.same(sent_at)),
            Answer::New(data, _) => {
                let headers = data.headers.clone();
                let body = data.whole().await?;
                let mut hash = DefaultHasher::new();
                body.hash(&mut hash);
                let hash = Some(hash.finish());
                let (is_same, had_condition) = (hash == self.hash, asked.condition.is_some());
                let is_wrong = self.whole(&headers, had_condition, is_same);
                self.hash = hash;
                (headers, Some(body), is_wrong)
            }
        };
        if is_wrong {
            warn(&format!(
                "{}: the service answered 304 (not modified) although there was newer data, so \
                 this path is requested without conditions from now on",
                asked.target
            ));
        }
        Ok((headers, body))
    }

    /// Whether the data is that of `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.hash == other.hash
    }

    /// Records a 304. Returns whether it is proven wrong.
    pub(crate) fn same(&mut self, now: Instant) -> bool {
        self.row.get_or_insert(now);
        self.is_wrong = self.newer.is_some();
        self.is_wrong
    }

    /// Records whole data: whether it was requested with the condition, and whether it equals the
    /// data before. Returns whether it proves the 304s wrong.
    pub(crate) fn whole(
        &mut self,
        headers: &HeaderMap,
        had_condition: bool,
        is_same: bool,
    ) -> bool {
        if self.is_wrong {
            return false;
        }
        let condition = condition(headers);
        if had_condition || self.row.is_none() {
            *self = Self::default();
        } else if is_same {
            self.confirmed += 1;
        } else if condition == self.condition {
            self.is_wrong = true;
        } else {
            self.newer = condition;
            return false;
        }
        self.condition = condition;
        self.is_wrong
    }
}

/// Returns the condition for data with these headers: its tag, or else its date, if the data can
/// no longer have changed within that second (RFC 9110, section 8.8.2.2).
fn condition(headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
    if let Some(tag) = headers.get(ETAG) {
        return Some((IF_NONE_MATCH, tag.clone()));
    }
    let modified = SystemTime::from(headers.typed_get::<LastModified>()?);
    let date = SystemTime::from(headers.typed_get::<Date>()?);
    let is_past = date.duration_since(modified).is_ok_and(|age| age >= SECOND);
    let modified = headers.get(LAST_MODIFIED).filter(|_| is_past)?;
    Some((IF_MODIFIED_SINCE, modified.clone()))
}

/// How long 304s are trusted at first.
const PATIENCE: Duration = Duration::from_secs(600);

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
