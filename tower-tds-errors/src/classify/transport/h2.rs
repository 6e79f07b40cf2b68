//! The errors of HTTP/2.

use h2::{Error, Reason};

use super::{Said, Stage};
use crate::kind::Kind;

pub(super) fn said(error: &Error, stage: Option<Stage>) -> Said {
    if let Some(error) = error.get_io() {
        return super::io::said(error, stage);
    }
    let kind = match error.reason() {
        // "Closed prior to any processing having occurred" (RFC 9113, section 8.7).
        Some(Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => {
            Kind::StreamRefused
        }
        // h2 gives it to the streams above the last one that the server took, and only to them
        // where the server leaves in peace (RFC 9113, section 6.8).
        Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Kind::GoAway,
        // The peer broke the protocol, says h2 here.
        _ if error.is_library() => Kind::Malformed,
        _ if stage == Some(Stage::Body) => Kind::BodyReset,
        _ => Kind::Reset,
    };
    Said::Kind(kind)
}
