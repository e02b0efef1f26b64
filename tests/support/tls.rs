//! A certificate authority for servers on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::server::TlsStream;

/// An untrusted authority, and a server certificate signed by it for this machine's loopback names.
pub struct Authority {
    /// The authority's certificate.
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    pub fn new() -> Self {
        Self::for_names(&["localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc"])
    }

    /// Creates an authority with a server certificate for these names.
    pub fn for_names(names: &[&str]) -> Self {
        let ca_key = KeyPair::generate().expect("ring generates keys");
        let mut ca = CertificateParams::default();
        ca.distinguished_name
            .push(DnType::CommonName, "Portolan test authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca
            .self_signed(&ca_key)
            .expect("the authority signs its certificate")
            .pem();

        let key = KeyPair::generate().expect("ring generates keys");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut server = CertificateParams::new(names).expect("the names are valid");
        // rustls rejects a server certificate that is an authority's.
        server.is_ca = IsCa::ExplicitNoCa;
        let issuer = Issuer::new(ca, ca_key);
        let certificate = server
            .signed_by(&key, &issuer)
            .expect("the authority signs the certificate");
        Self {
            ca_pem,
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            issuer,
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }

    /// Returns the certificate and the key of a client in a group, valid until the end of this year.
    pub fn client_pem(&self, name: &str, group: &str, last_year: i32) -> (String, String) {
        let key = KeyPair::generate().expect("ring generates keys");
        let mut client = CertificateParams::default();
        client.is_ca = IsCa::ExplicitNoCa;
        client.distinguished_name.push(DnType::CommonName, name);
        client.distinguished_name.push(DnType::OrganizationName, group);
        client.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        client.not_before = date_time_ymd(2020, 1, 1);
        client.not_after = date_time_ymd(last_year, 12, 31);
        let certificate = client
            .signed_by(&key, &self.issuer)
            .expect("the authority signs the certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the configuration of a TLS server on loopback.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        portolan::http::install_crypto_provider();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key);
        Arc::new(config.expect("the key belongs to the certificate"))
    }
}

/// A listener for TLS connections.
pub struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// Uses the certificate of this authority.
    pub fn new(listener: TcpListener, authority: &Authority) -> Self {
        let acceptor = TlsAcceptor::from(authority.server_config());
        Self { listener, acceptor }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            // A client that does not trust the certificate aborts the handshake.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
