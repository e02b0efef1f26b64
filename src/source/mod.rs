//! All that comes from outside over the network, and the pure decoders of it.

pub mod archive;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
pub mod credentials;
mod encoded;
pub mod fetch;
pub mod icon;
pub mod index;
pub mod oci;
pub mod secret;
mod spool;

/// Makes ring the process's crypto provider. Called first in `main` and in each test that makes a TLS client; calling it again does nothing.
pub fn install_crypto_provider() {
    // An error only says that a provider is installed already, which is what is asked for.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
