//! What a transport error means, told by its types and never by its words.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use hyper_util::client::legacy;

use crate::chain::chain;
use crate::kind::Kind;

/// How far the request had come when the error arose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    Connected,
}

/// Names the error by the first link of its chain that says something.
pub(crate) fn kind(error: &(dyn StdError + 'static)) -> Kind {
    let mut stage = Stage::Connected;
    for link in chain(error) {
        if let Some(error) = link.downcast_ref::<legacy::Error>() {
            if error.is_connect() {
                stage = Stage::Connecting;
            } else if error.source().is_none() {
                // The client's own complaints about a request are its only errors without a cause.
                return Kind::InvalidRequest;
            }
        }
        let found = hyper(link, stage)
            .or_else(|| io(link, stage))
            .or_else(|| tower(link, stage));
        if let Some(kind) = found {
            return kind;
        }
    }
    match stage {
        Stage::Connecting => Kind::Connect,
        Stage::Connected => Kind::Unrecognized,
    }
}

fn hyper(link: &(dyn StdError + 'static), stage: Stage) -> Option<Kind> {
    let error = link.downcast_ref::<hyper::Error>()?;
    if stage == Stage::Connecting {
        // A failed handshake. Its cause may say more.
        return None;
    }
    if error.is_timeout() {
        Some(Kind::Timeout)
    } else if error.is_parse() {
        Some(Kind::Malformed)
    } else if error.is_user() {
        Some(Kind::InvalidRequest)
    } else if error.is_canceled() || error.is_closed() {
        // hyper cancels only what it has not begun to write.
        Some(Kind::Unsent)
    } else if error.is_incomplete_message() {
        // The server may well have read the request: it is how a reused connection looks that
        // was closed on reading it.
        Some(Kind::Incomplete)
    } else {
        None
    }
}

fn io(link: &(dyn StdError + 'static), stage: Stage) -> Option<Kind> {
    let error = link.downcast_ref::<io::Error>()?;
    let connecting = stage == Stage::Connecting;
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the list of io kinds grows with every release of std"
    )]
    match error.kind() {
        ErrorKind::TimedOut if connecting => Some(Kind::ConnectTimeout),
        ErrorKind::TimedOut => Some(Kind::Timeout),
        // What rustls and native TLS stacks say of a bad certificate, version or name.
        ErrorKind::InvalidData if connecting => Some(Kind::Tls),
        // Only `connect` says this, so nothing was sent whoever wraps it.
        ErrorKind::ConnectionRefused => Some(Kind::Connect),
        // The network may become unreachable under an established connection too.
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
            if !connecting =>
        {
            Some(Kind::Reset)
        }
        ErrorKind::UnexpectedEof if !connecting => Some(Kind::Truncated),
        _ => None,
    }
}

fn tower(link: &(dyn StdError + 'static), stage: Stage) -> Option<Kind> {
    let timeout =
        link.is::<tower::timeout::error::Elapsed>() || link.is::<tokio::time::error::Elapsed>();
    match (timeout, stage) {
        (true, Stage::Connecting) => Some(Kind::ConnectTimeout),
        (true, Stage::Connected) => Some(Kind::Timeout),
        _ if link.is::<tower::load_shed::error::Overloaded>() => Some(Kind::LimitTimeout),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
