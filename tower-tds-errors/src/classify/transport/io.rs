//! The errors of sockets, and of what wraps its own in theirs.

use std::io::{Error, ErrorKind};

use super::{Said, Stage};
use crate::kind::Kind;

pub(super) fn said(error: &Error, stage: Option<Stage>) -> Said {
    let connecting = stage == Some(Stage::Connecting);
    let reading = matches!(stage, Some(Stage::Body | Stage::Decoding));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the list of io kinds grows with every release of std"
    )]
    let kind = match error.kind() {
        ErrorKind::TimedOut => super::timeout(stage),
        // What rustls and native TLS stacks say of a bad certificate, version or name.
        ErrorKind::InvalidData if connecting => Kind::Tls,
        // And what decoders say of a body. A connection's own errors come inside of hyper's.
        ErrorKind::InvalidData | ErrorKind::InvalidInput
            if stage.is_none() || stage == Some(Stage::Decoding) =>
        {
            Kind::Decode
        }
        // Only `connect` says this, so nothing was sent whoever wraps it.
        ErrorKind::ConnectionRefused => Kind::Connect,
        // TLS that is closed without a word looks like this, before an answer too.
        ErrorKind::UnexpectedEof if stage == Some(Stage::Connected) => Kind::Incomplete,
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
                Kind::BodyReset
            } else {
                Kind::Reset
            }
        }
        _ => return Said::Nothing,
    };
    Said::Kind(kind)
}
