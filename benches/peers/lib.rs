//! Peers that are too heavy for the workspace, each as a service that answers at once.

pub mod google;
pub mod retries;

/// Installs the workspace's cryptography. A client of reqwest needs one even if it encrypts
/// nothing. The one that google-cloud-auth would bring is in C.
fn install_cryptography() {
    // An error means that a provider is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}
