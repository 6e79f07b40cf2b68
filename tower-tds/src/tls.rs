//! TLS: whose certificates are believed, and which one is shown.

use std::{env, fmt, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    client::WantsClientCert,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use rustls_native_certs::load_native_certs;

use crate::BuildError;

/// The settings of TLS.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// Certificates in PEM, beside the platform's.
    roots: Vec<Vec<u8>>,
    /// The chain and the key that the client shows, in PEM.
    identity: Option<(Vec<u8>, Vec<u8>)>,
    whole: Option<ClientConfig>,
    #[cfg(feature = "platform-verifier")]
    judged_by_the_platform: bool,
}

// === impl Tls ===

impl Tls {
    pub(crate) fn believe(&mut self, pem: &[u8]) {
        self.roots.push(pem.to_vec());
    }

    pub(crate) fn show(&mut self, chain: &[u8], key: &[u8]) {
        self.identity = Some((chain.to_vec(), key.to_vec()));
    }

    #[cfg(feature = "platform-verifier")]
    pub(crate) const fn ask_the_platform(&mut self) {
        self.judged_by_the_platform = true;
    }

    pub(crate) fn replace(&mut self, whole: ClientConfig) {
        self.whole = Some(whole);
    }

    /// Whether nothing was set.
    pub(crate) fn is_untouched(&self) -> bool {
        self.whole.is_none() && self.is_plain()
    }

    /// Whether nothing was set that belongs into a whole configuration.
    fn is_plain(&self) -> bool {
        #[cfg(feature = "platform-verifier")]
        let judged = self.judged_by_the_platform;
        #[cfg(not(feature = "platform-verifier"))]
        let judged = false;
        !judged && self.roots.is_empty() && self.identity.is_none()
    }

    /// What rustls makes of them. Whoever speaks no TLS needs no root certificates.
    pub(crate) fn config(self, speaks_tls: bool) -> Result<ClientConfig, BuildError> {
        let is_plain = self.is_plain();
        if let Some(whole) = self.whole {
            if !is_plain {
                return Err(BuildError::new(
                    "certificates are ignored where the whole TLS configuration is given: put them into it",
                ));
            }
            if !whole.alpn_protocols.is_empty() {
                return Err(BuildError::new(
                    "the TLS configuration names protocols (ALPN): leave them to the client",
                ));
            }
            return Ok(whole);
        }
        let provider = provider()?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BuildError::because("TLS cannot be set up", error))?;
        let builder = self.believing(builder, speaks_tls)?;
        let Some((chain, key)) = self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let unusable = "the client certificate is not usable: give its chain and its key, in PEM";
        let because = |error| BuildError::because(unusable, error);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(because)?;
        builder
            .with_client_auth_cert(chain.map_err(because)?, key)
            .map_err(|error| BuildError::because(unusable, error))
    }

    /// With whose certificates are believed: the user's, and the platform's where TLS is spoken.
    fn believing(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
        speaks_tls: bool,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, BuildError> {
        let mut roots = RootCertStore::empty();
        let mut own = Vec::new();
        for pem in &self.roots {
            own.extend(believe(&mut roots, pem)?);
        }
        #[cfg(feature = "platform-verifier")]
        if self.judged_by_the_platform && speaks_tls && HAS_A_JUDGE {
            let provider = Arc::clone(builder.crypto_provider());
            let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(own, provider)
                .map_err(|error| {
                    BuildError::because("the platform judges no certificates", error)
                })?;
            let builder = builder.dangerous();
            return Ok(builder.with_custom_certificate_verifier(Arc::new(verifier)));
        }
        if speaks_tls {
            believe_the_platform(&mut roots)?;
        }
        Ok(builder.with_root_certificates(roots))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("roots", &self.roots.len())
            .field("identity", &self.identity.is_some())
            .field("whole", &self.whole.is_some())
            .finish()
    }
}

/// The cryptography that the features name, or that the program has installed.
fn provider() -> Result<Arc<CryptoProvider>, BuildError> {
    #[cfg(feature = "aws-lc-rs")]
    return Ok(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return Ok(Arc::new(rustls::crypto::ring::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    CryptoProvider::get_default().cloned().ok_or_else(|| {
        BuildError::new(
            "there is no cryptography for TLS: turn on the feature `ring` or `aws-lc-rs`, or give the whole \
             configuration by Builder::tls",
        )
    })
}

fn believe(
    roots: &mut RootCertStore,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, BuildError> {
    let unusable = "a root certificate is not usable: give it in PEM, as BEGIN CERTIFICATE has it";
    let mut own = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| BuildError::because(unusable, error))?;
        own.push(certificate.clone());
        let added = roots.add(certificate);
        added.map_err(|error| BuildError::because(unusable, error))?;
    }
    if own.is_empty() {
        return Err(BuildError::new(unusable));
    }
    Ok(own)
}

/// What was named and cannot be read is an error; of what a platform has, some may be odd.
fn believe_the_platform(roots: &mut RootCertStore) -> Result<(), BuildError> {
    let found = load_native_certs();
    let named = env::var_os("SSL_CERT_FILE").or_else(|| env::var_os("SSL_CERT_DIR"));
    let (added, _odd) = roots.add_parsable_certificates(found.certs);
    match found.errors.into_iter().next() {
        Some(error) if named.is_some() => Err(BuildError::because(
            "SSL_CERT_FILE or SSL_CERT_DIR names what cannot be read",
            error,
        )),
        None if named.is_some() && added == 0 => Err(BuildError::new(
            "what SSL_CERT_FILE or SSL_CERT_DIR names has no certificate in it",
        )),
        Some(error) if roots.is_empty() => Err(BuildError::because(NO_ROOTS, error)),
        None if roots.is_empty() => Err(BuildError::new(NO_ROOTS)),
        Some(_) | None => Ok(()),
    }
}

/// Elsewhere the verifier would read the same files, and be silent about those that it cannot read.
#[cfg(feature = "platform-verifier")]
const HAS_A_JUDGE: bool = cfg!(any(windows, target_vendor = "apple", target_os = "android"));

const NO_ROOTS: &str = "no root certificates: install the platform's, name a file in SSL_CERT_FILE, or \
     give one by Builder::root_certificate";
