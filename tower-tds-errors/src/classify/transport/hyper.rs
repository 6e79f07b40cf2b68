//! The errors of hyper.

use hyper::Error;

use super::Said::{self, At};
use super::Stage;
use crate::kind::Kind;

pub(super) fn said(error: &Error, stage: Option<Stage>) -> Said {
    if stage == Some(Stage::Connecting) {
        // A failed handshake. Its cause may say more.
        return Said::Nothing;
    }
    let kind = if error.is_timeout() {
        super::timeout(stage)
    } else if error.is_parse() {
        Kind::Malformed
    } else if error.is_user() {
        Kind::InvalidRequest
    } else if error.is_canceled() || error.is_closed() {
        // hyper cancels only what it has not begun to write.
        Kind::Unsent
    } else if error.is_incomplete_message() {
        // The server may well have read the request: it is how a reused connection looks that
        // was closed on reading it.
        Kind::Incomplete
    } else {
        // Errors of bodies have no predicate, and no other has these words.
        let body = error.to_string() == "error reading a body from connection";
        return At(if body { Stage::Body } else { Stage::Connected });
    };
    Said::Kind(kind)
}
