//! TLS: the trusted certificates, or a whole configuration of rustls.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};
use rustls_native_certs::{ErrorKind, load_native_certs};

use crate::error::BuildError;

/// The settings of TLS.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// Certificates in PEM, beside the platform's.
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) whole: Option<ClientConfig>,
}

// === impl Tls ===

impl Tls {
    /// Whether no setting was changed.
    pub(crate) fn is_untouched(&self) -> bool {
        self.whole.is_none() && self.roots.is_empty()
    }

    /// The configuration of rustls. A client without TLS needs no root certificates.
    pub(crate) fn config(self, speaks_tls: bool) -> Result<ClientConfig, BuildError> {
        if let Some(whole) = self.whole {
            if !self.roots.is_empty() {
                return Err(BuildError::new(
                    "Builder::tls excludes Builder::root_certificate: put the certificates into the configuration",
                ));
            }
            if !whole.alpn_protocols.is_empty() {
                return Err(BuildError::new(
                    "the TLS configuration sets ALPN protocols: leave them empty",
                ));
            }
            return Ok(whole);
        }
        let mut roots = RootCertStore::empty();
        for pem in &self.roots {
            add(&mut roots, pem)?;
        }
        if speaks_tls {
            add_the_platforms(&mut roots)?;
        }
        let builder = ClientConfig::builder_with_provider(provider()?)
            .with_safe_default_protocol_versions()
            .map_err(|error| BuildError::because("TLS cannot be set up", error))?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// The cryptography of the crate features, or the one that the program has installed.
fn provider() -> Result<Arc<CryptoProvider>, BuildError> {
    #[cfg(feature = "aws-lc-rs")]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    CryptoProvider::get_default().cloned().ok_or_else(|| {
        BuildError::new(
            "there is no cryptography for TLS: turn on the feature `ring` or `aws-lc-rs`, or give the whole \
             configuration with Builder::tls",
        )
    })
}

fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), BuildError> {
    let unusable =
        "a root certificate is not usable: give it in PEM, with a line BEGIN CERTIFICATE";
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|error| BuildError::because(unusable, fault(&error)))?;
        let added = roots.add(certificate);
        added.map_err(|error| BuildError::because(unusable, error))?;
    }
    if roots.len() == before {
        return Err(BuildError::new(unusable));
    }
    Ok(())
}

/// What is wrong with a file. The error's own text quotes it, and the file may hold a private key.
fn fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line of its own",
        pem::Error::IllegalSectionStart { .. } => {
            "a BEGIN line does not end after its name: put each block on lines of its own"
        }
        pem::Error::Base64Decode(_) => "a block is not base64",
        _ => "it is no PEM",
    }
}

/// Adds the platform's roots, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`. It fails if none is
/// valid.
fn add_the_platforms(roots: &mut RootCertStore) -> Result<(), BuildError> {
    let found = load_native_certs();
    let (added, _odd) = roots.add_parsable_certificates(found.certs);
    match found.errors.into_iter().next() {
        _ if added > 0 => Ok(()),
        Some(error) => Err(match &error.kind {
            ErrorKind::Pem(broken) => BuildError::because(NO_ROOTS, fault(broken)),
            _ => BuildError::because(NO_ROOTS, error),
        }),
        None => Err(BuildError::new(NO_ROOTS)),
    }
}

const NO_ROOTS: &str =
    "no root certificates: install the platform's, or name a file in SSL_CERT_FILE";
