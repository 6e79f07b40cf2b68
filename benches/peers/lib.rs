//! Peers that are too heavy for the workspace, each as a service that answers at once.

pub mod google;
pub mod retries;

/// Has a cryptography at hand, which a client of reqwest wants even where nothing is encrypted. It is
/// the workspace's: what google-cloud-auth would bring is in C.
fn install_cryptography() {
    // An error means that it is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}
