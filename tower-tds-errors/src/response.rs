//! The response that an error stands for.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue, TRAILER};
use http::{Method, Response};
use tower_tds_outcome::remove_connection_headers;

use crate::error::Error;

// === impl Error ===

impl Error {
    /// Returns the response that this error stands for: its status, its headers, and the part of
    /// its body that was read.
    ///
    /// Crates such as octocrab, kube and `object_store` have their own error for a 404, and never
    /// see one if the client below returns an [`Error`]. Put tower's `map_result` above the retry
    /// layer: after the last retry such a crate gets the response, and reads it as it always does.
    ///
    /// `Content-Length` is the length of the part that was read, and headers that belong to the
    /// connection are removed. Check [`is_body_cut`](Self::is_body_cut) before, because bytes may be missing. Nothing else
    /// is changed: before you pass it on to others, mind that a service may repeat the request in it, with the token.
    ///
    /// # Errors
    ///
    /// Returns the error itself if there was no response to the caller's request: if nothing was
    /// received, if the response was one to a token request, or if it was an upgrade (101).
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response, StatusCode};
    /// use http_body_util::Full;
    /// use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};
    /// use tower_tds_errors::{ClassifyLayer, Error, RetryLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let client = service_fn(async |_: Request<String>| {
    ///     let mut response = Response::new(Full::<Bytes>::from("no such stop"));
    ///     *response.status_mut() = StatusCode::NOT_FOUND;
    ///     Ok::<_, BoxError>(response)
    /// });
    /// let stack = ServiceBuilder::new()
    ///     .map_result(|result: Result<_, Error>| {
    ///         result.or_else(|error| Ok::<_, Error>(error.into_response()?.map(Full::new)))
    ///     })
    ///     .layer(RetryLayer::new())
    ///     .layer(ClassifyLayer::new())
    ///     .service(client);
    /// let response = stack.oneshot(Request::new(String::new())).await.unwrap();
    /// assert_eq!(response.status(), StatusCode::NOT_FOUND);
    /// # }
    /// ```
    pub fn into_response(mut self) -> Result<Response<Bytes>, Self> {
        let is_head = self.method() == Some(&Method::HEAD);
        let known = self
            .facts_mut()
            .response
            .take_if(|it| !it.status.is_informational());
        let Some(known) = known.map(Arc::unwrap_or_clone) else {
            return Err(self);
        };
        let mut headers = known.headers;
        remove_connection_headers(&mut headers);
        headers.remove(TRAILER);
        // A response to HEAD has no body. Its length is that of the response to a GET, and stays.
        if !is_head {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(known.body.len()));
        }
        let mut response = Response::new(known.body);
        *response.status_mut() = known.status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
