//! HTTP over hyper and rustls: sockets, TLS, proxies and content codings.

pub(crate) mod addresses;
#[cfg(feature = "compression")]
pub(crate) mod compression;
pub(crate) mod connection;
pub(crate) mod http1;
pub(crate) mod pool;
pub(crate) mod proxy;
pub(crate) mod tls;
pub(crate) mod transport;
