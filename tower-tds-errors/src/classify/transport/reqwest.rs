//! The errors of reqwest. Most of them wrap those of hyper, which say more.

use reqwest::Error;
use tower::BoxError;

use super::{Said, Stage};
use crate::classify::status;
use crate::classify::wanted::Wanted;
use crate::kind::Kind;

pub(super) fn said(error: &Error) -> Said {
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
        Kind::UnexpectedRedirect
    } else if error.is_dns() {
        Kind::Dns
    } else if error.is_timeout() {
        super::timeout(Some(stage))
    } else if let Some(status) = error.status() {
        let headers = http::HeaderMap::new();
        let kind = status::kind(status, &headers, Wanted::NOTHING);
        return kind.map_or(Said::Nothing, Said::Kind);
    } else {
        return Said::At(stage);
    };
    Said::Kind(kind)
}

/// reqwest shows the whole URI, its query included.
pub(super) fn redacted(error: BoxError) -> BoxError {
    match error.downcast::<Error>() {
        Ok(error) => error.without_url().into(),
        Err(error) => error,
    }
}
