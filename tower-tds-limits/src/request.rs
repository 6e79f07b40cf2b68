//! The request side: a permit from the grant to the end of the response body.

mod body;
mod detach;
mod feedback;
mod future;
mod layer;
mod permit;
mod service;
mod shed;

pub(crate) use self::permit::RequestPermit;
pub use self::{
    body::PermitBody,
    detach::{Detach, DetachFuture, DetachLayer},
    feedback::{Feedback, Outcome, ReadStatus},
    future::ResponseFuture,
    layer::RequestLimitLayer,
    service::RequestLimit,
    shed::{RequestShed, RequestShedLayer},
};
