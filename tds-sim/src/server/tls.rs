//! A certificate authority, and its certificate for this host.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{error::Error, server::listener::Security};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};

/// TLS settings of the server, and the file of the CA certificate, which is removed on drop.
pub(super) struct Authority {
    directory: PathBuf,
    file: PathBuf,
    config: Arc<ServerConfig>,
}

// === impl Authority ===

impl Authority {
    /// Creates an authority, and its certificate for `localhost`, 127.0.0.1, and
    /// `tds.example`, which a proxy may lead to it.
    pub(super) fn new() -> Result<Self, Error> {
        let failed = |error: rcgen::Error| Error::failed("cannot start: no certificate", error);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "tds-sim authority");
        let key = KeyPair::generate().map_err(failed)?;
        let root = params.self_signed(&key).map_err(failed)?;
        let issuer = Issuer::new(params, key);

        let names = ["localhost", "127.0.0.1", "tds.example"].map(str::to_owned);
        let params = CertificateParams::new(names).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let leaf = params.signed_by(&key, &issuer).map_err(failed)?;

        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Contract, "Authentication": TLS 1.2 or higher.
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS12, &TLS13])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![leaf.der().clone()], key)
            })
            .map_err(|error| Error::failed("cannot start: no TLS", error))?;
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();

        let directory = std::env::temp_dir().join(format!("tds-sim-{:016x}", fastrand::u64(..)));
        let file = directory.join("ca.pem");
        let unwritten = |error| Error::failed("cannot start: no file of the CA certificate", error);
        fs::create_dir(&directory).map_err(unwritten)?;
        let authority = Self {
            directory,
            file,
            config: Arc::new(config),
        };
        fs::write(&authority.file, root.pem()).map_err(unwritten)?;
        Ok(authority)
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn security(&self) -> Security {
        Security::Tls(Arc::clone(&self.config).into())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // If this fails, the file stays until the host clears its temporary folder.
        drop(fs::remove_dir_all(&self.directory));
    }
}

#[cfg(feature = "http2")]
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];
#[cfg(not(feature = "http2"))]
const ALPN: &[&[u8]] = &[b"http/1.1"];
