//! Cryptography for TLS to the store.

use redis::{Client, ConnectionAddr, ErrorKind, RedisError};

/// Installs a cryptography provider for a client with a TLS address, if there is none.
///
/// redis uses the process's provider of rustls. If the process has none, and none or several
/// features of rustls are set, rustls panics, which a store must not do.
pub(crate) fn provide(client: &Client) -> Result<(), RedisError> {
    let address = client.get_connection_info().addr();
    if !matches!(address, ConnectionAddr::TcpTls { .. }) || install() {
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

const NONE: &str = "there is no cryptography for TLS to the store: turn on the feature `ring` or `aws-lc-rs`, or \
                    install a CryptoProvider";
