//! Classification of transport errors by their types. Texts decide only where the types are equal.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io::ErrorKind;

use tower_tds_outcome::{Cause, Outcome, Sent, chain};

use super::{Error, find, is_late};
use crate::kind::Kind;

/// Phase of the exchange in which the error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    /// Sending, or waiting for the response head.
    Connected,
    /// Reading the response body from the connection.
    Body,
}

/// Kind of an error, and whether the request was sent.
type KindAndSent = (Kind, Sent);

/// Returns the kind and the advice of the failure behind a layer's own.
pub(super) fn below(cause: &Cause) -> (Kind, Option<Cow<'static, str>>) {
    let Some(source) = cause.source() else {
        return (Kind::Unrecognized, None);
    };
    match find::<Error>(source) {
        Some(error) => (error.kind(), error.facts().cause.next.clone()),
        None => (kind(source).0, None),
    }
}

/// Classifies an error by the first known link of its chain.
pub(crate) fn kind(error: &(dyn StdError + 'static)) -> KindAndSent {
    // A client that is not hyper-util's marks a request without a connection by its outcome.
    let cause = Cause::of(error).map(|cause| cause.outcome);
    let mut phase = (cause == Some(Outcome::Unsent)).then_some(Phase::Connecting);
    for link in chain(error) {
        if let Some(known) = classify_link(link, &mut phase) {
            return known;
        }
    }
    let kind = match phase {
        Some(Phase::Connecting) => Kind::Connect,
        // Unknown errors of a body mean that it ended early.
        Some(Phase::Body) => Kind::Truncated,
        // Unknown errors of hyper on a connection mean that the connection ended.
        Some(Phase::Connected) if find::<hyper::Error>(error).is_some() => Kind::Reset,
        Some(Phase::Connected) | None => Kind::Unrecognized,
    };
    with_own_sent(kind)
}

/// Adds the kind's own [`Sent`].
fn with_own_sent(kind: Kind) -> KindAndSent {
    (kind, kind.sent())
}

/// Classifies one link of the chain, or records its phase for the links below.
fn classify_link(link: &(dyn StdError + 'static), at: &mut Option<Phase>) -> Option<KindAndSent> {
    #[cfg(not(target_family = "wasm"))]
    if let Some(error) = link.downcast_ref::<hyper_util::client::legacy::Error>() {
        if !error.is_connect() && error.source().is_none() {
            // Errors about an invalid request are the client's only ones without a source.
            return Some(with_own_sent(Kind::InvalidRequest));
        }
        let connecting = error.is_connect();
        *at = Some(if connecting {
            Phase::Connecting
        } else {
            Phase::Connected
        });
        return None;
    }
    if let Some(error) = link.downcast_ref() {
        return by_hyper(error, at);
    }
    let phase = *at;
    if is_late(link) {
        return Some(with_own_sent(timeout(phase)));
    }
    if let Some(error) = link.downcast_ref() {
        return by_io(error, phase);
    }
    if link.is::<tower::load_shed::error::Overloaded>() {
        return Some(with_own_sent(Kind::LimitTimeout));
    }
    if phase == Some(Phase::Connecting) {
        return connecting(link);
    }
    untyped(&link.to_string(), phase).map(with_own_sent)
}

/// Refines a connect error by its text, because hyper-util and hyper-rustls do not export the
/// types.
fn connecting(link: &(dyn StdError + 'static)) -> Option<KindAndSent> {
    // By text: these types are private.
    let words = link.to_string();
    if words == NO_PROXY_CREDENTIALS {
        // Other refusals of a proxy may be transient, like a gateway's 503.
        return Some((Kind::Rejected, Sent::Never));
    }
    let invalid = words.starts_with("invalid URL, ") || words.starts_with("unsupported scheme ");
    invalid.then(|| with_own_sent(Kind::InvalidRequest))
}

/// Classifies by text the errors of unknown types: tower-http's decoders, and reqwest's timeout.
fn untyped(words: &str, phase: Option<Phase>) -> Option<Kind> {
    // By text, because these types are private as well.
    if words == "brotli error" || words.starts_with("deflate decompression error") {
        return Some(Kind::Malformed);
    }
    (words == "operation timed out").then(|| timeout(phase))
}

/// Returns the kind of a timeout in this phase.
fn timeout(phase: Option<Phase>) -> Kind {
    match phase {
        Some(Phase::Connecting) => Kind::Connect,
        Some(Phase::Body) => Kind::Truncated,
        Some(Phase::Connected) | None => Kind::Timeout,
    }
}

fn by_hyper(error: &hyper::Error, at: &mut Option<Phase>) -> Option<KindAndSent> {
    if *at == Some(Phase::Connecting) {
        // The handshake failed. A link below may have a known type.
        return None;
    }
    let kind = if error.is_parse() {
        Kind::Malformed
    } else if error.source().is_some_and(|why| why.to_string() == GONE) {
        // By text: hyper has no predicate for it. The runtime of the connection has ended, while the
        // caller runs on another one.
        Kind::Reset
    } else if error.is_user() || error.is_body_write_aborted() {
        // The body of the request failed, or ended before its announced length.
        return Some((Kind::InvalidRequest, Sent::Unknown));
    } else if error.is_canceled() || error.is_closed() {
        // hyper cancels only requests that it has not begun to write.
        Kind::Connect
    } else {
        // Among these is an incomplete message: the server may have read the request, because closing
        // the connection after that causes the same error.
        // By text: errors of bodies have no predicate, and only they have this text.
        let body = error.to_string() == "error reading a body from connection";
        *at = Some(if body { Phase::Body } else { Phase::Connected });
        return None;
    };
    Some(with_own_sent(kind))
}

/// Whether the server refused the client's certificate, or required one and got none, and so refused
/// the request. rustls shows it only in its text.
fn refuses(error: &std::io::Error) -> bool {
    // By text: the alert is inside of an error of rustls, which an IO error wraps.
    let words = error.to_string();
    let alert = words.strip_prefix("received fatal alert: ");
    alert.is_some_and(|alert| {
        alert.contains("Certificate") || alert == "UnknownCA" || alert == "AccessDenied"
    })
}

/// Classifies IO errors, and errors wrapped in them.
fn by_io(error: &std::io::Error, phase: Option<Phase>) -> Option<KindAndSent> {
    let connecting = phase == Some(Phase::Connecting);
    let reading = phase == Some(Phase::Body);
    let kind = match error.kind() {
        // rustls and native TLS stacks report a bad certificate, version or name like this.
        ErrorKind::InvalidData if connecting => Kind::Tls,
        // In TLS 1.3 a server refuses the client's certificate after the handshake.
        ErrorKind::InvalidData if phase == Some(Phase::Connected) && refuses(error) => Kind::Tls,
        // Decoders report malformed data like this. The connection's own errors come inside of
        // hyper's.
        ErrorKind::InvalidData | ErrorKind::InvalidInput if phase.is_none() => Kind::Malformed,
        // Only `connect` returns this, so nothing was sent.
        ErrorKind::ConnectionRefused => Kind::Connect,
        // TLS connections that are closed without a notification look like this, even before a
        // response.
        ErrorKind::UnexpectedEof if phase == Some(Phase::Connected) => Kind::Reset,
        ErrorKind::UnexpectedEof if !connecting => Kind::Truncated,
        // Networks may also become unreachable while a connection is open.
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
    Some(with_own_sent(kind))
}

/// Text of hyper for a connection that ends with its task.
const GONE: &str = "runtime dropped the dispatch task";

/// Text of hyper-util for a 407 to its CONNECT.
pub(crate) const NO_PROXY_CREDENTIALS: &str = "tunnel error: proxy authorization required";

#[cfg(test)]
mod tests;
