//! A whole answer, as what data it is: neither another success nor what may have been cut.

use bytes::Bytes;
use http::StatusCode;
use tower_tds::{Error, Kind, Response};

/// All of a 200.
pub(crate) async fn whole(response: Response) -> Result<Bytes, Error> {
    let refused = |kind, what: &'static str| Error::new(kind, what).answered();
    if response.status() != StatusCode::OK {
        let other = refused(Kind::UnexpectedAnswer, "a success, but no 200");
        return Err(other.with_advice("see whether the path is one of data"));
    }
    let body = response.into_http().into_body();
    if !body.is_verifiable() {
        let cut = "nothing says how long it is, so that it may have been cut";
        return Err(refused(Kind::Truncated, cut));
    }
    body.bytes().await
}
