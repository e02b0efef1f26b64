//! TLS settings of a repository.

use super::*;

async fn over_tls(name: &str) -> (Server, Vec<u8>) {
    let (acceptor, pem) = connections::tls(name);
    (
        Server::start_with(Some(acceptor), |_| response("200 OK", "", b"hello")).await,
        pem,
    )
}

async fn reason(fetcher: &Fetcher, server: &Server) -> &'static str {
    match fetcher.get(&server.url, None, &limits()).await {
        Ok(_) => "none",
        Err(error) => error.reason(),
    }
}

#[tokio::test]
async fn a_custom_ca_is_trusted_only_for_its_repository() {
    let (server, pem) = over_tls("127.0.0.1").await;
    let shared = fetcher();
    let bundle = [b"# comment\n".as_slice(), &connections::tls("other").1, &pem].concat();
    let own = shared
        .with(Access {
            ca: Some(bundle),
            ..Access::default()
        })
        .unwrap();
    // The second round would reuse a pooled connection.
    for _ in 0..2 {
        assert_eq!(reason(&own, &server).await, "none");
        assert_eq!(reason(&shared, &server).await, "CertificateNotTrusted");
        assert_eq!(
            reason(&own.with(Access::default()).unwrap(), &server).await,
            "CertificateNotTrusted"
        );
    }
}

#[tokio::test]
async fn a_custom_ca_does_not_disable_host_name_verification_and_insecure_does() {
    let (server, pem) = over_tls("elsewhere.example.com").await;
    let trusting = Access {
        ca: Some(pem),
        ..Access::default()
    };
    assert_eq!(
        reason(&fetcher().with(trusting).unwrap(), &server).await,
        "CertificateNotTrusted"
    );
    let insecure = Access {
        insecure: true,
        ..Access::default()
    };
    assert_eq!(reason(&fetcher().with(insecure).unwrap(), &server).await, "none");
}

#[test]
fn an_invalid_custom_ca_is_rejected() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let no_certificate = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n".to_owned();
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_owned();
    for pem in [String::new(), "hello".to_owned(), key, no_certificate, broken] {
        let error = fetcher().with(Access {
            ca: Some(pem.into_bytes()),
            ..Access::default()
        });
        let error = error.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("InvalidCA", false));
        assert!(
            error
                .to_string()
                .contains("customCA secret is not a valid PEM certificate"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn repositories_with_default_tls_settings_share_connections_and_backoffs() {
    let server = Server::start(|_| response("429 Too Many Requests", "Retry-After: 30", b"")).await;
    let plain = Server::start(|_| response("200 OK", "", b"")).await;
    let shared = fetcher();
    let own = shared.with(Access {
        insecure: true,
        ..Access::default()
    });
    let own = own.unwrap();
    let same_transport = shared
        .with(Access {
            scope: Some(plain.url.clone()),
            ..Access::default()
        })
        .unwrap();
    for fetcher in [&shared, &same_transport, &own] {
        fetcher.get(&plain.url, None, &limits()).await.unwrap();
    }
    assert_eq!(plain.connections(), 2);
    shared.get(&server.url, None, &limits()).await.unwrap_err();
    let error = same_transport.get(&server.url, None, &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::BackingOff { .. }), "{error}");
    // Without verification, anyone could have sent the response.
    let error = own.get(&server.url, None, &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::Status { .. }), "{error}");
}
