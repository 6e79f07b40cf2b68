//! Just enough of `WWW-Authenticate` (RFC 9110, section 11.6.1) to find each `error` parameter.

/// The values of all parameters named `error`, as they stand between their quotes.
///
/// Quotes are respected, so that no text inside another parameter passes for an `error`.
pub(super) fn errors(challenge: &[u8]) -> impl Iterator<Item = &[u8]> {
    Parameters { rest: challenge }
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"error"))
        .map(|(_, value)| value)
}

struct Parameters<'a> {
    rest: &'a [u8],
}

// === impl Parameters ===

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (before, after) = split(self.rest, |b| b == b'=')?;
        // The name is the last word before the sign; a scheme or a comma may stand before it.
        let name = before
            .trim_ascii_end()
            .rsplit(|b| b" \t,".contains(b))
            .next()
            .unwrap_or_default();
        let after = after.trim_ascii_start();
        let value = match after.strip_prefix(b"\"") {
            Some(quoted) => {
                let mut escaped = false;
                let (value, rest) = split(quoted, |b| {
                    let ends = b == b'"' && !escaped;
                    escaped = b == b'\\' && !escaped;
                    ends
                })?;
                self.rest = rest;
                value
            }
            None => {
                let (value, rest) = split(after, |b| b" \t,".contains(&b)).unwrap_or((after, b""));
                self.rest = rest;
                value
            }
        };
        Some((name, value))
    }
}

/// The bytes before and after the first one that `ends` accepts.
fn split(bytes: &[u8], ends: impl FnMut(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let mut ends = ends;
    let at = bytes.iter().position(|b| ends(*b))?;
    let (before, after) = bytes.split_at(at);
    Some((before, after.get(1..).unwrap_or_default()))
}
