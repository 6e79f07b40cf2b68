//! Cryptography for TLS to the store.

use std::time::Duration;

use redis::{Client, ConnectionAddr, ErrorKind, RedisError};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Installs a cryptography provider for a client with a TLS address, if there is none.
///
/// redis uses the process's provider of rustls. If the process has none, and none or several
/// features of rustls are set, rustls panics, which a store must not do.
pub(crate) fn provide(client: &Client) -> Result<(), RedisError> {
    if !speaks_tls(client) || install() {
        return Ok(());
    }
    Err(RedisError::from((ErrorKind::InvalidClientConfig, NONE)))
}

/// Installs a provider, if there is none and a feature names one. Returns whether there is one.
pub(crate) fn install() -> bool {
    #[cfg(feature = "aws-lc-rs")]
    let provider = Some(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let provider = Some(rustls::crypto::ring::default_provider());
    #[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
    if rustls::crypto::CryptoProvider::get_default().is_none()
        && let Some(provider) = provider
    {
        // Another thread may have installed one first, which also works.
        drop(provider.install_default());
    }
    #[cfg(feature = "tls")]
    return rustls::crypto::CryptoProvider::get_default().is_some();
    #[cfg(not(feature = "tls"))]
    false
}

fn speaks_tls(client: &Client) -> bool {
    let address = client.get_connection_info().addr();
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Whether the port of a TLS address answers without TLS.
///
/// A plain server waits for the end of a line, which a handshake does not have, so it looks like a
/// server that hangs. Sending it a line shows the difference.
pub(crate) async fn is_missing(client: &Client) -> bool {
    let ConnectionAddr::TcpTls { host, port, .. } = client.get_connection_info().addr() else {
        return false;
    };
    let answer = async {
        let mut socket = TcpStream::connect((host.as_str(), *port)).await.ok()?;
        socket.write_all(b"PING\r\n").await.ok()?;
        socket.read_u8().await.ok()
    };
    // Each reply of the protocol begins with its type: here a status or an error.
    matches!(timeout(ANSWERS, answer).await, Ok(Some(b'+' | b'-')))
}

/// Enough for two round trips on any network that answers questions in time.
const ANSWERS: Duration = Duration::from_secs(2);

const NONE: &str = "there is no cryptography for TLS to the store: turn on the feature `ring` or `aws-lc-rs`, or \
                    install a CryptoProvider";
