//! Where the driver gets tokens from.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use http::HeaderValue;

use crate::{Credentials, TokenError, moment::Moment};

pub(super) use self::{ask::Ask, post::Post, terms::Terms};

mod ask;
mod decode;
mod post;
mod reply;
mod terms;

/// One token request, as a value. The box is on the cold path, once per flight.
pub(super) type Flight = Pin<Box<dyn Future<Output = Result<Issued, TokenError>> + Send>>;

/// Makes token requests; the type of the HTTP client ends here.
pub(super) trait Grant: Send + Sync {
    fn fetch(&self, credentials: Arc<Credentials>) -> Flight;
}

/// A token on its way into the slot.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) header: HeaderValue,
    /// When it was asked for: life counts from here, since the server began to count later.
    pub(super) sent: Moment,
    pub(super) life: Duration,
    pub(super) means: Means,
}

/// How a token was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// This process asked the endpoint.
    Request,
    /// Another process did, and left it in the store.
    Store,
}
