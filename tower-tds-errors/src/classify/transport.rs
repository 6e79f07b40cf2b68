//! What a transport error means, told by its types; words only tell apart what types leave alike.

use std::error::Error as StdError;

use hyper_util::client::legacy;
use tower::BoxError;

use crate::chain::{chain, find};
use crate::kind::Kind;

#[cfg(feature = "http2")]
mod h2;
mod hyper;
mod io;
#[cfg(feature = "reqwest")]
mod reqwest;

/// How far the exchange had come when the error arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Sending, or waiting for the head of the answer.
    Connected,
    /// Reading the body of the answer from the connection.
    Body,
    /// Undoing the coding of the body.
    Decoding,
}

/// What one link of the chain says.
enum Said {
    Nothing,
    /// Where it happened; a link below may know more.
    At(Stage),
    Kind(Kind),
}

/// Names the error by the first link of its chain that says something.
pub(crate) fn kind(error: &(dyn StdError + 'static)) -> Kind {
    let mut stage = None;
    for link in chain(error) {
        match said(link, stage) {
            Said::Nothing => {}
            Said::At(at) => stage = Some(at),
            Said::Kind(kind) => return kind,
        }
    }
    match stage {
        Some(Stage::Connecting) => Kind::Connect,
        Some(Stage::Decoding) => Kind::Decode,
        // A body that says no more ended before its time.
        Some(Stage::Body) => Kind::Truncated,
        // One that hyper has on a connection, and says no more of, is the end of it.
        Some(Stage::Connected) if find::<::hyper::Error>(error).is_some() => Kind::Reset,
        Some(Stage::Connected) | None => Kind::Unrecognized,
    }
}

/// The error without the URI that it may show.
#[cfg(feature = "reqwest")]
pub(crate) fn redacted(error: BoxError) -> BoxError {
    reqwest::redacted(error)
}

/// Without reqwest no error that is known here shows one.
#[cfg(not(feature = "reqwest"))]
pub(crate) const fn redacted(error: BoxError) -> BoxError {
    error
}

fn said(link: &(dyn StdError + 'static), stage: Option<Stage>) -> Said {
    if let Some(error) = link.downcast_ref::<legacy::Error>() {
        return if error.is_connect() {
            Said::At(Stage::Connecting)
        } else if error.source().is_none() {
            // The client's own complaints about a request are its only errors without a cause.
            Said::Kind(Kind::InvalidRequest)
        } else {
            Said::At(Stage::Connected)
        };
    }
    if let Some(error) = link.downcast_ref() {
        return hyper::said(error, stage);
    }
    if let Some(error) = link.downcast_ref() {
        return io::said(error, stage);
    }
    #[cfg(feature = "http2")]
    if let Some(error) = link.downcast_ref() {
        return h2::said(error, stage);
    }
    #[cfg(feature = "reqwest")]
    if let Some(error) = link.downcast_ref() {
        return reqwest::said(error);
    }
    if stage == Some(Stage::Connecting) {
        return connecting(link);
    }
    // The second has no type, but is as fatal as what is not recognised at all.
    if link.is::<flate2::DecompressError>() || link.to_string() == "brotli error" {
        return Said::Kind(Kind::Decode);
    }
    tower(link, stage)
}

fn tower(link: &(dyn StdError + 'static), stage: Option<Stage>) -> Said {
    if link.is::<tower::timeout::error::Elapsed>() || link.is::<tokio::time::error::Elapsed>() {
        Said::Kind(timeout(stage))
    } else if link.is::<tower::load_shed::error::Overloaded>() {
        Said::Kind(Kind::LimitTimeout)
    } else {
        Said::Nothing
    }
}

/// hyper-util and hyper-rustls keep the types of these to themselves. All say that there is no
/// connection, which is known already, so their words can only make a kind finer.
fn connecting(link: &(dyn StdError + 'static)) -> Said {
    let words = link.to_string();
    if words == "dns error" {
        Said::Kind(Kind::Dns)
    } else if words.starts_with("tunnel error: ") && link.source().is_none() {
        Said::Kind(Kind::Proxy)
    } else if words.starts_with("invalid URL, ") || words.starts_with("unsupported scheme ") {
        Said::Kind(Kind::InvalidRequest)
    } else {
        tower(link, Some(Stage::Connecting))
    }
}

/// What took too long.
fn timeout(stage: Option<Stage>) -> Kind {
    match stage {
        Some(Stage::Connecting) => Kind::ConnectTimeout,
        Some(Stage::Body | Stage::Decoding) => Kind::Stalled,
        Some(Stage::Connected) | None => Kind::Timeout,
    }
}

#[cfg(test)]
mod tests;
