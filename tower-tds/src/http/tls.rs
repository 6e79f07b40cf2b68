//! TLS: the trusted certificates, or a whole configuration of rustls.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};
use rustls_native_certs::{ErrorKind, load_native_certs};
use tracing::warn;

use crate::error::BuildError;

/// Settings of TLS.
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

    /// Returns the configuration of rustls. Without TLS, a client needs no root certificates.
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
        roots.roots.shrink_to_fit();
        let builder = ClientConfig::builder_with_provider(provider()?)
            .with_safe_default_protocol_versions()
            .map_err(|error| BuildError::because("TLS cannot be set up", error))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(config)
    }
}

/// Returns the cryptography of the crate features, or the one that the program has installed.
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

/// Adds the certificates of a bundle, and skips a block that is not usable if another one is.
fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), BuildError> {
    let starts = pem.windows(BEGIN.len()).enumerate();
    let starts: Vec<_> = starts
        .filter(|(_, start)| *start == BEGIN)
        .map(|(at, _)| at)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([pem.len()]);
    let (mut skipped, before) = (None, roots.len());
    for (n, (start, end)) in (1..).zip(starts.iter().zip(ends)) {
        let block = pem.get(*start..end).unwrap_or_default();
        let certificate = CertificateDer::from_pem_slice(block).map_err(|error| fault(&error));
        let added = certificate.and_then(|it| roots.add(it).map_err(|_| "it is no certificate"));
        if let Err(why) = added {
            skipped.get_or_insert((n, why));
        }
    }
    let found = match (skipped, pem) {
        (None, _) if roots.len() > before => return Ok(()),
        (Some((n, why)), _) if roots.len() > before => {
            warn!("block {n} of a root certificate's PEM was skipped: {why}");
            return Ok(());
        }
        (Some((n, why)), _) => format!("block {n}: {why}"),
        (None, []) => "the file is empty".to_owned(),
        (None, [0x30, ..]) => format!("it is DER; {CONVERT}"),
        (None, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) => "it is UTF-16; save it as UTF-8".to_owned(),
        (None, _) => "it is no PEM".to_owned(),
    };
    Err(BuildError::because(
        "a root certificate is not usable: give it in PEM, with a line BEGIN CERTIFICATE",
        found,
    ))
}

/// Names the fault of a file without a quotation, because the file may hold a private key.
fn fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line of its own",
        pem::Error::IllegalSectionStart { .. } => {
            "a BEGIN line does not end after its name: put each block on lines of its own"
        }
        pem::Error::Base64Decode(_) => "a block is not base64",
        pem::Error::NoItemsFound => "it is another kind of block than CERTIFICATE",
        _ => "it is no PEM",
    }
}

/// Adds the platform's roots, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`. Fails if none of them
/// is valid.
fn add_the_platforms(roots: &mut RootCertStore) -> Result<(), BuildError> {
    let found = load_native_certs();
    let (added, broken) = roots.add_parsable_certificates(found.certs);
    let mut errors = found.errors.into_iter().map(|error| match &error.kind {
        ErrorKind::Pem(broken) => BuildError::because(NO_ROOTS, fault(broken)),
        _ => BuildError::because(NO_ROOTS, error),
    });
    let skipped = errors.len() + broken;
    if added == 0 {
        return Err(errors.next().unwrap_or_else(|| BuildError::new(NO_ROOTS)));
    }
    if skipped > 0 {
        warn!("{skipped} of the platform's root certificates were skipped: they are not usable");
    }
    Ok(())
}

/// Tickets kept to resume TLS sessions: eight for each of four servers, which is more than a client
/// talks to (tokens, data, perhaps a proxy). The default of rustls, 256, would take an eighth of the
/// memory of an idle client.
const SESSIONS: usize = 4 * 8;

const BEGIN: &[u8] = b"-----BEGIN ";

const CONVERT: &str = "convert it with `openssl x509 -inform der`";

const NO_ROOTS: &str =
    "no root certificates: install the platform's, or name a file in SSL_CERT_FILE";
