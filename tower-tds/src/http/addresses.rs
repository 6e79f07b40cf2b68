//! Addresses of a host, tried by RFC 8305: the next one starts 250 ms after the last.

use std::{
    future::{Future, poll_fn},
    io, mem,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{Uri, uri::Scheme};
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::time::timeout;
use tower::{BoxError, ServiceExt as _};
use tower_service::Service;

/// Races the addresses of a host. Each attempt is a call of its own to the inner connector, so that
/// it takes a socket permit of its own.
#[derive(Clone)]
pub(crate) struct Addresses<C> {
    /// Connects to one address.
    pub(crate) inner: C,
}

/// One address as a URI. If the host was not found, the inner connector returns the error: that
/// gives the permit back at once, like a refused connect.
pub(crate) type Target = io::Result<Uri>;

// === impl Addresses ===

impl<C> Service<Uri> for Addresses<C>
where
    C: Service<Target, Response: Send, Error = BoxError, Future: Send> + Clone + Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, host: Uri) -> Self::Future {
        // The readied connector holds the permit of the first attempt.
        let others = self.inner.clone();
        let mut first = mem::replace(&mut self.inner, others.clone());
        Box::pin(async move {
            match look_up(&host).await {
                Ok(addresses) => race(first, others, addresses).await,
                Err(error) => first.call(Err(error)).await,
            }
        })
    }
}

/// Returns the addresses of a host, with the port of the URI.
async fn look_up(uri: &Uri) -> io::Result<Vec<SocketAddr>> {
    let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let host = uri.host().unwrap_or_default();
    // The resolver reads an address without brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.parse::<Name>().map_err(io::Error::other)?;
    let found = GaiResolver::new().oneshot(name).await?;
    let addresses: Vec<_> = found.map(|found| (found.ip(), port).into()).collect();
    let has_none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let found = (!addresses.is_empty()).then_some(addresses);
    found.ok_or_else(has_none)
}

/// Alternates the two families (RFC 8305, section 4).
fn alternated(addresses: Vec<SocketAddr>) -> impl Iterator<Item = SocketAddr> {
    let mut ranks = [0, 0];
    let ranked = addresses.into_iter().map(|address| {
        let rank = &mut ranks[usize::from(address.is_ipv6())];
        *rank += 1;
        (*rank, address)
    });
    let mut ranked: Vec<_> = ranked.collect();
    // Stable: the family of the first address begins.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, address)| address)
}

/// Connects to the first address that answers. `first` is ready. The two families take turns.
///
/// Begins another attempt only if a permit is free at that time, because a connect to a dead
/// address must not queue in front of those that could answer. Dropping the losers cancels their
/// connects.
async fn race<C>(first: C, others: C, addresses: Vec<SocketAddr>) -> Result<C::Response, BoxError>
where
    C: Service<Target, Error = BoxError> + Clone,
{
    let mut left = alternated(addresses).peekable();
    let mut ready = Some(first);
    let mut attempts = FuturesUnordered::new();
    loop {
        if let Some(mut connector) = ready.take()
            && let Some(address) = left.next()
        {
            let uri = Uri::try_from(format!("http://{address}/"))?;
            attempts.push(connector.call(Ok(uri)));
        }
        let is_last = left.peek().is_none();
        let delay = if is_last { Duration::MAX } else { DELAY };
        match timeout(delay, attempts.next()).await {
            Ok(Some(Ok(connected))) => return Ok(connected),
            Ok(Some(Err(error))) if is_last && attempts.is_empty() => return Err(error),
            _ if is_last => continue,
            _ => {}
        }
        let mut next = others.clone();
        let is_alone = attempts.is_empty();
        let permit = poll_fn(|cx| match next.poll_ready(cx) {
            Poll::Pending if !is_alone => Poll::Ready(None),
            polled => polled.map(Some),
        });
        ready = permit.await.transpose()?.map(|()| next);
    }
}

/// RFC 8305, section 5: the recommended delay between two attempts.
const DELAY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
