//! Transport errors, told by their types; words only tell apart what types leave alike.

use std::error::Error as StdError;
use std::io::ErrorKind;

use hyper_util::client::legacy;

use crate::error::source::{chain, find};
use crate::kind::{Kind, Sent};
#[cfg(feature = "reqwest")]
use crate::retry::saved::Asked;

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

/// What is known of an error: its kind, and whether the request was sent.
type Told = (Kind, Sent);

/// Names the error by the first link of its chain that says something.
pub(crate) fn kind(error: &(dyn StdError + 'static)) -> Told {
    let mut stage = None;
    for link in chain(error) {
        if let Some(said) = said(link, &mut stage) {
            return said;
        }
    }
    let kind = match stage {
        Some(Stage::Connecting) => Kind::Connect,
        Some(Stage::Decoding) => Kind::Malformed,
        // A body that says no more ended before its time.
        Some(Stage::Body) => Kind::Truncated,
        // One that hyper has on a connection, and says no more of, is the end of it.
        Some(Stage::Connected) if find::<hyper::Error>(error).is_some() => Kind::Reset,
        Some(Stage::Connected) | None => Kind::Unrecognized,
    };
    alone(kind)
}

/// With what the kind says of its being sent.
fn alone(kind: Kind) -> Told {
    (kind, kind.row().sent)
}

/// What one link of the chain says, or else where it happened: a link below may know more.
fn said(link: &(dyn StdError + 'static), at: &mut Option<Stage>) -> Option<Told> {
    if let Some(error) = link.downcast_ref::<legacy::Error>() {
        if !error.is_connect() && error.source().is_none() {
            // The client's own complaints about a request are its only errors without a cause.
            return Some(alone(Kind::InvalidRequest));
        }
        let connecting = error.is_connect();
        *at = Some(if connecting {
            Stage::Connecting
        } else {
            Stage::Connected
        });
        return None;
    }
    if let Some(error) = link.downcast_ref() {
        return by_hyper(error, at);
    }
    let stage = *at;
    if let Some(error) = link.downcast_ref() {
        return by_io(error, stage);
    }
    #[cfg(feature = "http2")]
    if let Some(error) = link.downcast_ref() {
        return Some(by_h2(error, stage));
    }
    #[cfg(feature = "reqwest")]
    if let Some(error) = link.downcast_ref() {
        return by_reqwest(error, at);
    }
    if link.is::<tower::timeout::error::Elapsed>() || link.is::<tokio::time::error::Elapsed>() {
        return Some(alone(timeout(stage)));
    }
    if link.is::<tower::load_shed::error::Overloaded>() {
        return Some(alone(Kind::LimitTimeout));
    }
    if stage == Some(Stage::Connecting) {
        return connecting(link);
    }
    // The second has no type, but is as fatal as what is not recognised at all.
    let is_decoder = link.is::<flate2::DecompressError>() || link.to_string() == "brotli error";
    is_decoder.then(|| alone(Kind::Malformed))
}

/// hyper-util and hyper-rustls keep the types of these to themselves. All say that there is no
/// connection, which is known already, so their words can only make a kind finer.
fn connecting(link: &(dyn StdError + 'static)) -> Option<Told> {
    let words = link.to_string();
    if words == NO_PROXY_CREDENTIALS {
        // Any other word of a proxy that makes no tunnel may pass, as a gateway's 503 does.
        return Some((Kind::Rejected, Sent::Never));
    }
    let invalid = words.starts_with("invalid URL, ") || words.starts_with("unsupported scheme ");
    invalid.then(|| alone(Kind::InvalidRequest))
}

/// What took too long.
fn timeout(stage: Option<Stage>) -> Kind {
    match stage {
        Some(Stage::Connecting) => Kind::Connect,
        Some(Stage::Body | Stage::Decoding) => Kind::Truncated,
        Some(Stage::Connected) | None => Kind::Timeout,
    }
}

fn by_hyper(error: &hyper::Error, at: &mut Option<Stage>) -> Option<Told> {
    if *at == Some(Stage::Connecting) {
        // A failed handshake. Its cause may say more.
        return None;
    }
    let kind = if error.is_timeout() {
        timeout(*at)
    } else if error.is_parse() {
        Kind::Malformed
    } else if error.source().is_some_and(|why| why.to_string() == GONE) {
        // The runtime that had the connection has ended: the caller's is another one.
        Kind::Reset
    } else if error.is_user() {
        // Its body failed, say, after a part of it.
        return Some((Kind::InvalidRequest, Sent::Unknown));
    } else if error.is_canceled() || error.is_closed() {
        // hyper cancels only what it has not begun to write.
        Kind::Connect
    } else if error.is_incomplete_message() {
        // The server may well have read the request: it is how a reused connection looks that
        // was closed on reading it.
        Kind::Reset
    } else {
        // Errors of bodies have no predicate, and no other has these words.
        let body = error.to_string() == "error reading a body from connection";
        *at = Some(if body { Stage::Body } else { Stage::Connected });
        return None;
    };
    Some(alone(kind))
}

/// Whether the server has refused the certificate that it was shown, or that it was shown none, and with it
/// whatever was sent behind it. rustls says so in words alone.
fn refuses(error: &std::io::Error) -> bool {
    let words = error.to_string();
    let alert = words.strip_prefix("received fatal alert: ");
    alert.is_some_and(|alert| {
        alert.contains("Certificate") || alert == "UnknownCA" || alert == "AccessDenied"
    })
}

/// The errors of sockets, and of what wraps its own in theirs.
fn by_io(error: &std::io::Error, stage: Option<Stage>) -> Option<Told> {
    let connecting = stage == Some(Stage::Connecting);
    let reading = matches!(stage, Some(Stage::Body | Stage::Decoding));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the list of io kinds grows with every release of std"
    )]
    let kind = match error.kind() {
        ErrorKind::TimedOut => timeout(stage),
        // What rustls and native TLS stacks say of a bad certificate, version or name.
        ErrorKind::InvalidData if connecting => Kind::Tls,
        // By TLS 1.3 a server that refuses the client's certificate says so when the handshake is over.
        ErrorKind::InvalidData if stage == Some(Stage::Connected) && refuses(error) => Kind::Tls,
        // And what decoders say of a body. A connection's own errors come inside of hyper's.
        ErrorKind::InvalidData | ErrorKind::InvalidInput
            if stage.is_none() || stage == Some(Stage::Decoding) =>
        {
            Kind::Malformed
        }
        // Only `connect` says this, so nothing was sent whoever wraps it.
        ErrorKind::ConnectionRefused => Kind::Connect,
        // TLS that is closed without a word looks like this, before an answer too.
        ErrorKind::UnexpectedEof if stage == Some(Stage::Connected) => Kind::Reset,
        ErrorKind::UnexpectedEof if !connecting => Kind::Truncated,
        // The network may become unreachable under an established connection too.
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
            if !connecting =>
        {
            if reading {
                Kind::Truncated
            } else {
                Kind::Reset
            }
        }
        _ => return None,
    };
    Some(alone(kind))
}

#[cfg(feature = "http2")]
fn by_h2(error: &h2::Error, stage: Option<Stage>) -> Told {
    use h2::Reason;

    if let Some(said) = error.get_io().and_then(|error| by_io(error, stage)) {
        return said;
    }
    match error.reason() {
        // "Closed prior to any processing having occurred" (RFC 9113, section 8.7): by a server that
        // has too many streams.
        Some(Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => {
            (Kind::Unavailable, Sent::Never)
        }
        // h2 gives it to the streams above the last one that the server took, and only to them
        // where the server leaves in peace (RFC 9113, section 6.8).
        Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => alone(Kind::Connect),
        // A stream that ends before its length has come is one that h2 resets.
        _ if stage == Some(Stage::Body) && error.is_reset() => alone(Kind::Truncated),
        // The peer broke the protocol, says h2 here.
        _ if error.is_library() => alone(Kind::Malformed),
        _ if stage == Some(Stage::Body) => alone(Kind::Truncated),
        _ => alone(Kind::Reset),
    }
}

/// Most of reqwest's errors wrap those of hyper, which say more.
#[cfg(feature = "reqwest")]
fn by_reqwest(error: &reqwest::Error, at: &mut Option<Stage>) -> Option<Told> {
    let stage = if error.is_connect() {
        Stage::Connecting
    } else if error.is_decode() {
        // The same for a body that ends early and for one in a broken coding: the cause tells.
        Stage::Decoding
    } else if error.is_body() {
        Stage::Body
    } else {
        Stage::Connected
    };
    let kind = if error.is_builder() {
        Kind::InvalidRequest
    } else if error.is_redirect() {
        Kind::UnexpectedAnswer
    } else if error.is_timeout() {
        timeout(Some(stage))
    } else if let Some(status) = error.status() {
        let headers = http::HeaderMap::new();
        let error = super::error_of(Asked::default(), status, &headers, b"")?;
        return Some((error.kind(), Sent::Answered));
    } else {
        *at = Some(stage);
        return None;
    };
    Some(alone(kind))
}

/// What hyper says where a connection ends with its task.
const GONE: &str = "runtime dropped the dispatch task";

/// What hyper-util says of a 407 to its CONNECT.
pub(crate) const NO_PROXY_CREDENTIALS: &str = "tunnel error: proxy authorization required";

#[cfg(test)]
mod tests;
