//! The times for which a response may be served (RFC 9111, section 5.2.2, and RFC 5861).

use std::time::{Duration, SystemTime};

use headers::{Date, Expires, HeaderMapExt as _};
use http::{
    HeaderMap,
    header::{CACHE_CONTROL, EXPIRES, VARY},
};

use crate::header::{MONTH, members, seconds};

/// How long a response may be served.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) fresh: Duration,
    /// How much longer while the service fails.
    pub(crate) on_error: Duration,
    /// How much longer while a call is under way.
    pub(crate) meanwhile: Duration,
}

// === impl Times ===

impl Times {
    /// Reads them from the headers, or else from the options `--fresh` and `--stale`.
    pub(crate) fn of(headers: &HeaderMap, date: Option<Date>, bounds: [Duration; 2]) -> Self {
        let directives = members(headers, &CACHE_CONTROL);
        let has = |name: &str| directives.iter().any(|it| it == name);
        let named = |name: &str| {
            directives.iter().find_map(|directive| {
                let (known, value) = directive.split_once('=')?;
                seconds((known == name).then_some(value)?.trim_matches('"'))
            })
        };
        // With `Vary: *` another user may need another response (RFC 9110, section 12.5.5).
        let varies = members(headers, &VARY).iter().any(|it| it == "*");
        if has("no-store") || has("private") || varies {
            return Self::default();
        }
        let [fresh, stale] = bounds;
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
        let age = named("s-maxage").or_else(|| named("max-age"));
        let mut times = Self {
            fresh: age.or_else(expires).unwrap_or(fresh),
            on_error: named("stale-if-error").unwrap_or_default().max(stale),
            meanwhile: named("stale-while-revalidate").unwrap_or_default(),
        };
        if has("no-cache") {
            (times.fresh, times.meanwhile) = (Duration::ZERO, Duration::ZERO);
        } else if has("must-revalidate") || has("proxy-revalidate") {
            (times.on_error, times.meanwhile) = (Duration::ZERO, Duration::ZERO);
        }
        times
    }
}
