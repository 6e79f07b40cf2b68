//! Base URL, to which paths are appended.

use bytes::Bytes;
use http::{Uri, uri::PathAndQuery};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tower_oidc_cc::Origin;
use tower_tds_errors::{Error, Kind};

use crate::error::BuildError;

/// Origin of the service, and the common prefix of its paths.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) origin: Origin,
    /// Path of the base URL, without a trailing slash.
    prefix: Bytes,
}

// === impl Base ===

impl Base {
    /// Takes a URL, whose origin was checked.
    pub(crate) fn new(origin: Origin, uri: Uri) -> Result<Self, BuildError> {
        let uri =
            ascii(uri).map_err(|error| BuildError::because("the base URL is not usable", error))?;
        if uri.query().is_some() {
            return Err(BuildError::new(
                "the base URL has a query: give it with each call",
            ));
        }
        let prefix = uri.path().trim_end_matches('/');
        Ok(Self {
            origin,
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
        })
    }

    /// Resolves a target to an absolute URI: a path, byte for byte, or an absolute URI unchanged.
    pub(crate) fn resolve(&self, target: Uri) -> Result<Uri, Error> {
        let target = ascii(target)?;
        if target.scheme().is_some() {
            // The token layer checks its origin.
            return Ok(target);
        }
        let path = target.path_and_query();
        let path = path.filter(|path| path.as_str().starts_with('/'));
        let (None, Some(path)) = (target.authority(), path) else {
            return Err(refused(NO_TARGET, TARGET));
        };
        if self.prefix.is_empty() {
            return Ok(self.origin.absolute(&target));
        }
        let whole = [&*self.prefix, path.as_str().as_bytes()].concat();
        let whole = Uri::from_maybe_shared(Bytes::from(whole)).map_err(invalid)?;
        Ok(self.origin.absolute(&whole))
    }

    /// Parses a target, which is a path or an absolute URI.
    pub(crate) fn parse(target: String) -> Result<Uri, Error> {
        if target.contains('#') {
            return Err(refused("a fragment is not sent", "write # as %23"));
        }
        // Any other text would be parsed as a host.
        if !target.starts_with('/') && !target.contains("://") {
            return Err(refused(NO_TARGET, TARGET));
        }
        Uri::try_from(target).map_err(invalid)
    }
}

/// Percent-encodes what `http` lets through beyond ASCII (RFC 3986, section 2.1).
fn ascii(target: Uri) -> Result<Uri, Error> {
    let path = target.path_and_query();
    if path.is_none_or(|path| path.as_str().is_ascii()) {
        return Ok(target);
    }
    let encoded = path.map(|path| utf8_percent_encode(path.as_str(), BEYOND_ASCII).to_string());
    let mut parts = target.into_parts();
    let path = encoded.map(PathAndQuery::try_from).transpose();
    parts.path_and_query = path.map_err(invalid)?;
    Uri::from_parts(parts).map_err(invalid)
}

/// Appends a parameter to the query of a target.
pub(crate) fn with_query(target: &Uri, name: &str, value: &str) -> Result<Uri, Error> {
    let path = target.path_and_query();
    let path = path.map_or("/", PathAndQuery::as_str);
    let separator = match path.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    let [name, value] = [name, value].map(|text| utf8_percent_encode(text, QUERY));
    let path = format!("{path}{separator}{name}={value}");
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).map_err(invalid)?);
    Uri::from_parts(parts).map_err(invalid)
}

fn refused(what: &'static str, next: &'static str) -> Error {
    Error::new(Kind::InvalidRequest, what).with_advice(next)
}

fn invalid(error: impl Into<tower::BoxError>) -> Error {
    let error = Error::new(Kind::InvalidRequest, error);
    error.with_advice("percent-encode characters that a URI cannot contain, such as a space (%20)")
}

/// Leaves all of ASCII alone, so a target that is a URI already stays as it is.
const BEYOND_ASCII: &AsciiSet = &AsciiSet::EMPTY;

/// Characters that have a meaning in a query, or may not be in one. `$` and `'` stay readable, as `OData` writes them.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b'/')
    .remove(b':');

const NO_TARGET: &str = "its target is neither a path nor an absolute URL";

const TARGET: &str = "begin it with / or with the base URL";

#[cfg(test)]
mod tests;
