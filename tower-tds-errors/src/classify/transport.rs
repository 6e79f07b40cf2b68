//! Transport errors, told by their types; words only tell apart what types leave alike.

use std::error::Error as StdError;
use std::io::ErrorKind;

use hyper_util::client::legacy;

use crate::error::source::{chain, find};
use crate::kind::{Kind, Sent};

/// How far the exchange had come when the error arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Sending, or waiting for the head of the answer.
    Connected,
    /// Reading the body of the answer from the connection.
    Body,
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
    if link.is::<tower::timeout::error::Elapsed>() || link.is::<tokio::time::error::Elapsed>() {
        return Some(alone(timeout(stage)));
    }
    if link.is::<tower::load_shed::error::Overloaded>() {
        return Some(alone(Kind::LimitTimeout));
    }
    if stage == Some(Stage::Connecting) {
        return connecting(link);
    }
    untyped(&link.to_string(), stage).map(alone)
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

/// What the words of types say that are not known here: the decoders' of tower-http, and reqwest's of a timeout.
fn untyped(words: &str, stage: Option<Stage>) -> Option<Kind> {
    if words == "brotli error" || words.starts_with("deflate decompression error") {
        return Some(Kind::Malformed);
    }
    (words == "operation timed out").then(|| timeout(stage))
}

/// What took too long.
fn timeout(stage: Option<Stage>) -> Kind {
    match stage {
        Some(Stage::Connecting) => Kind::Connect,
        Some(Stage::Body) => Kind::Truncated,
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
    let reading = stage == Some(Stage::Body);
    let kind = match error.kind() {
        ErrorKind::TimedOut => timeout(stage),
        // What rustls and native TLS stacks say of a bad certificate, version or name.
        ErrorKind::InvalidData if connecting => Kind::Tls,
        // By TLS 1.3 a server that refuses the client's certificate says so when the handshake is over.
        ErrorKind::InvalidData if stage == Some(Stage::Connected) && refuses(error) => Kind::Tls,
        // And what decoders say of a body. A connection's own errors come inside of hyper's.
        ErrorKind::InvalidData | ErrorKind::InvalidInput if stage.is_none() => Kind::Malformed,
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

/// What hyper says where a connection ends with its task.
const GONE: &str = "runtime dropped the dispatch task";

/// What hyper-util says of a 407 to its CONNECT.
pub(crate) const NO_PROXY_CREDENTIALS: &str = "tunnel error: proxy authorization required";

#[cfg(test)]
mod tests;
