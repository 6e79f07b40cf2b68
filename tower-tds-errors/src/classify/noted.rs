//! What an error will say of its request, noted before the request is given away.

use http::Uri;
use http::uri::Scheme;

use crate::error::facts::parts;

/// Scheme, authority and path of a URI: as bytes where they fit, since a clone of a URI counts two
/// references up and down again, for every request, on counters that its clones share.
pub(super) enum Noted {
    Bytes {
        scheme: &'static str,
        /// Where the authority ends in the bytes.
        middle: u8,
        end: u8,
        bytes: [u8; ROOM],
    },
    Cloned(Uri),
}

// === impl Noted ===

impl Noted {
    #[inline]
    pub(super) fn of(uri: &Uri) -> Self {
        Self::copied(uri).unwrap_or_else(|| Self::Cloned(uri.clone()))
    }

    #[inline]
    fn copied(uri: &Uri) -> Option<Self> {
        let scheme = match uri.scheme() {
            None => "",
            Some(scheme) if *scheme == Scheme::HTTPS => "https",
            Some(scheme) if *scheme == Scheme::HTTP => "http",
            Some(_) => return None,
        };
        let [_, authority, path] = parts(uri).map(str::as_bytes);
        let mut bytes = [0; ROOM];
        let (start, rest) = bytes.split_at_mut_checked(authority.len())?;
        start.copy_from_slice(authority);
        rest.get_mut(..path.len())?.copy_from_slice(path);
        Some(Self::Bytes {
            scheme,
            middle: u8::try_from(authority.len()).ok()?,
            end: u8::try_from(authority.len().checked_add(path.len())?).ok()?,
            bytes,
        })
    }

    /// Scheme, authority and path, of which the first two may be empty.
    pub(super) fn parts(&self) -> [&str; 3] {
        match self {
            Self::Bytes {
                scheme,
                middle,
                end,
                bytes,
            } => {
                let text = |range| {
                    let part = bytes.get(range).unwrap_or_default();
                    std::str::from_utf8(part).unwrap_or_default()
                };
                let (middle, end) = (usize::from(*middle), usize::from(*end));
                [scheme, text(0..middle), text(middle..end)]
            }
            Self::Cloned(uri) => parts(uri),
        }
    }
}

/// With the rest of it, less than two cache lines. What is longer is mostly so by its query.
const ROOM: usize = 96;

#[cfg(test)]
mod tests;
