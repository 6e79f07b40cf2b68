//! Connectors over rustls or of yours, with a permit for each socket, and the clients over them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{BoxError, Layer, ServiceExt as _, service_fn, timeout::Timeout};
use tower_service::Service;
use tower_tds_limits::{ConnectionLimitLayer, Limiter};

use crate::http::{
    addresses::{Addresses, Target},
    http1::{Connector, Host, Http},
    pool::Pool,
    proxy::{Proxied, Proxies},
};

/// Clients of tokens and of data, whose requests have bodies of type `B`.
pub(crate) struct Clients<B> {
    pub(crate) tokens: Http<Full<Bytes>>,
    pub(crate) data: Http<B>,
    /// Idle connections of the data client.
    pub(crate) pool: Arc<Pool<B>>,
}

/// Clients of the user's connector, not yet built.
pub(crate) type MakeClients<B> = Box<dyn FnOnce(&Limiter, Host) -> Clients<B> + Send>;

/// Defers the build of the clients until the limits are known.
pub(crate) fn make_clients<B>(connector: impl Connector) -> MakeClients<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    Box::new(move |limiter, host| {
        clients(limiter, host, [false; 2], |limiter| {
            ConnectionLimitLayer::new(limiter).layer(connector.clone())
        })
    })
}

/// Builds the clients of tokens and data over limited connectors, which connect directly or not.
///
/// Because there is about one token request a day, the token client keeps no idle socket. With a single connection the
/// data client keeps none either, because a token call would wait for the idle timeout.
pub(crate) fn clients<B, C: Connector>(
    limiter: &Limiter,
    host: Host,
    are_direct: [bool; 2],
    connector: impl Fn(Limiter) -> C,
) -> Clients<B>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let [tokens_direct, data_direct] = are_direct;
    let pool = Pool::new(limiter.limits().most_connections().get() > 1, data_direct);
    // A task goes on with a handshake when its call got another connection.
    let bounded = |limiter| Timeout::new(connector(limiter), HANDSHAKE_TIMEOUT);
    let (tokens, data) = (bounded(limiter.first_in_line()), bounded(limiter.clone()));
    Clients {
        tokens: Http::new(Pool::new(false, tokens_direct), None, tokens),
        data: Http::new(Arc::clone(&pool), Some(host), data),
        pool,
    }
}

/// Builds the connector: TLS over a proxy's tunnel over TCP. Each connect to an address takes a
/// permit, because a server counts TCP connections; for the first one this waits in `poll_ready`,
/// without a timeout.
pub(crate) fn connector(limiter: Limiter, tls: ClientConfig, proxies: Proxies) -> impl Connector {
    let tcp = tcp(&limiter);
    // With a proxy, the connection to the proxy counts.
    let inner = ConnectionLimitLayer::new(limiter).layer(tcp);
    let inner = Addresses { inner };
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        // The origins and the endpoint were checked: plain http is to this machine.
        .https_or_http()
        .enable_http1()
        .wrap_connector(Proxied { inner, proxies })
}

/// Connects to one address.
#[cfg_attr(
    not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")),
    expect(unused_variables, reason = "the option below is not there")
)]
fn tcp(
    limiter: &Limiter,
) -> impl Service<Target, Response = TokioIo<TcpStream>, Error = BoxError, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ use<> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // Finds dead connections while they are idle, and keeps those alive that a NAT would forget.
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    // A request that was given up must arrive no later than the limiter assumes. Without this option
    // the kernel goes on sending it, for a quarter of an hour on Linux. Other systems have no such
    // option, or none without unsafe code: see the README.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    tcp.set_tcp_user_timeout(Some(limiter.limits().tcp_user_timeout()));
    service_fn(move |target: Target| {
        let tcp = tcp.clone();
        async move { Ok(tcp.oneshot(target?).await?) }
    })
}

/// Longer than the retransmissions of a lost first segment (1 + 2 + 4 s on Linux).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// On Linux a dead connection is found by the second probe, because `TCP_USER_TIMEOUT` has passed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Connect timeout, and as long again for the TLS handshake, from the readiness of the connector.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
