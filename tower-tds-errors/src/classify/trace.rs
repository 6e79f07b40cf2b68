//! The view for tower-http: the judgement of a head, as a classifier for its layers.

use std::any::Any;
use std::fmt::Display;

use http::{Request, Response};
use hyper_util::client::legacy;
use tower::BoxError;
use tower_http::classify::{
    ClassifiedResponse, ClassifyResponse, MakeClassifier, NeverClassifyEos,
};

use super::{error_of, transport};
use crate::error::Error;
use crate::kind::Kind;
use crate::retry::saved::Asked;

/// Classifies by [`Kind`] for [`tower_http`], whose `TraceLayer` then logs the kinds.
///
/// Use it over [`Classify`](crate::Classify), or where that is no part of the stack. Without it
/// the head alone is judged, since tower-http looks at no body.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tower_http::classify::{ClassifiedResponse, ClassifyResponse, MakeClassifier};
/// use tower_tds_errors::{Kind, KindClassifier};
///
/// let classifier = KindClassifier::default().make_classifier(&Request::new(()));
/// let mut response = Response::new(());
/// *response.status_mut() = StatusCode::LOCKED;
/// let ClassifiedResponse::Ready(Err(kind)) = classifier.classify_response(&response) else {
///     unreachable!("a 423 is a failure")
/// };
/// assert_eq!(kind, Kind::RateExceeded);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct KindClassifier {
    asked: Asked,
}

// === impl KindClassifier ===

impl MakeClassifier for KindClassifier {
    type Classifier = Self;
    type FailureClass = Kind;
    type ClassifyEos = NeverClassifyEos<Kind>;

    fn make_classifier<B>(&self, request: &Request<B>) -> Self {
        let asked = Asked::of(request.headers());
        Self { asked }
    }
}

impl ClassifyResponse for KindClassifier {
    type FailureClass = Kind;
    type ClassifyEos = NeverClassifyEos<Kind>;

    fn classify_response<B>(
        self,
        response: &Response<B>,
    ) -> ClassifiedResponse<Kind, NeverClassifyEos<Kind>> {
        let error = error_of(self.asked, response.status(), response.headers(), b"");
        ClassifiedResponse::Ready(error.map_or(Ok(()), |error| Err(error.kind())))
    }

    /// The kind of this crate's own error, boxed or not, and of hyper-util's.
    fn classify_error<E: Display + 'static>(self, error: &E) -> Kind {
        let error: &dyn Any = error;
        if let Some(error) = error.downcast_ref::<Error>() {
            error.kind()
        } else if let Some(error) = error.downcast_ref::<BoxError>() {
            Error::find(&**error).map_or_else(|| transport::kind(&**error).0, Error::kind)
        } else if let Some(error) = error.downcast_ref::<legacy::Error>() {
            transport::kind(error).0
        } else {
            Kind::Unrecognized
        }
    }
}
