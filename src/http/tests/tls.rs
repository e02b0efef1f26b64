//! Certificates of one repository.

use super::*;

async fn over_tls(name: &str) -> (Server, Vec<u8>) {
    let (acceptor, pem) = connections::tls(name);
    (
        Server::start_with(Some(acceptor), |_| answer("200 OK", "", b"hello")).await,
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
async fn an_authority_is_trusted_only_by_the_repository_that_names_it() {
    let (server, pem) = over_tls("127.0.0.1").await;
    let shared = fetcher();
    let bundle = [b"# ours\n".as_slice(), &connections::tls("other").1, &pem].concat();
    let own = shared
        .with(Access {
            ca: Some(bundle),
            ..Access::default()
        })
        .unwrap();
    // Its connection is not lent to others either.
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
async fn an_authority_does_not_make_a_wrong_name_right_and_insecure_does() {
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
fn what_is_no_certificate_is_refused_as_what_it_is() {
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
            error.to_string().contains("customCA secret is no PEM certificate"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn connections_are_shared_by_repositories_that_need_nothing_of_their_own_and_so_are_holds() {
    let server = Server::start(|_| answer("429 Too Many Requests", "Retry-After: 30", b"")).await;
    let plain = Server::start(|_| answer("200 OK", "", b"")).await;
    let shared = fetcher();
    let own = shared.with(Access {
        insecure: true,
        ..Access::default()
    });
    let own = own.unwrap();
    let alike = shared
        .with(Access {
            scope: Some(plain.url.clone()),
            ..Access::default()
        })
        .unwrap();
    for fetcher in [&shared, &alike, &own] {
        fetcher.get(&plain.url, None, &limits()).await.unwrap();
    }
    assert_eq!(plain.connections(), 2);
    shared.get(&server.url, None, &limits()).await.unwrap_err();
    let error = alike.get(&server.url, None, &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::OnHold { .. }), "{error}");
    // Who takes any certificate may have been told so by anybody.
    let error = own.get(&server.url, None, &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::Status { .. }), "{error}");
}
