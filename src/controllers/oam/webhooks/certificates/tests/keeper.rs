//! Rounds of replicas over one API server.

use std::time::Duration;

use axum::http::Method;
use kube::Client;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, timeout};

use super::super::keeper::{Keeper, SelfSignedError};
use super::super::{CertificateSource, keep};
use super::api_server::{ApiServer, SECRET, configuration_path};
use super::*;

const FIRST: &str = "2026-01-01T00:00:00Z";
const DUE: &str = "2026-10-01T00:00:00Z";
const EXPIRED: &str = "2027-02-01T00:00:00Z";

const NO_WRITE: [&str; 3] = [
    "GET mutatingwebhookconfigurations",
    "GET validatingwebhookconfigurations",
    "GET portolan-webhooks",
];

/// The parts of a replica that outlive its keeper.
struct Replica {
    settings: SelfSigned,
    client: Client,
    served: ServedCertificate,
}

impl Replica {
    fn new(server: &ApiServer) -> Self {
        Self {
            settings: settings(),
            client: server.client(),
            served: served(),
        }
    }

    fn keeper(&self) -> Keeper<'_> {
        Keeper::new(&self.settings, &self.client, &self.served)
    }

    /// Returns true if API servers with the CA of both configurations accept the served certificate.
    fn is_trusted(&self, server: &ApiServer, now: &str) -> bool {
        let name = &settings().dns_name();
        ["mutating", "validating"].iter().all(|kind| {
            let (ca, _) = server.cas(kind);
            ca.is_some_and(|ca| is_accepted(&self.served, &ca, name, at(now)))
        })
    }

    /// Returns true if it serves the certificate of the Secret.
    fn is_current(&self, server: &ApiServer, now: &str) -> bool {
        let name = &settings().dns_name();
        let bundle = value(&server.secret(), CA).to_owned();
        let end = bundle.find("-----END").unwrap();
        let first = format!("{}-----END CERTIFICATE-----\n", &bundle[..end]);
        is_accepted(&self.served, &first, name, at(now))
    }
}

/// Returns the time that a round takes.
async fn keep_once(keeper: &mut Keeper<'_>, now: &str) -> Result<Duration, SelfSignedError> {
    let start = Instant::now();
    keeper.keep_once(at(now)).await.map(|()| start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn the_first_certificate_is_stored_trusted_and_served_at_once() {
    let server = ApiServer::with_configurations();
    let replica = Replica::new(&server);
    let mut keeper = replica.keeper();
    assert_eq!(keep_once(&mut keeper, FIRST).await.unwrap(), Duration::ZERO);
    assert!(replica.is_current(&server, FIRST) && replica.is_trusted(&server, FIRST));
    let (ca, other) = server.cas("mutating");
    assert_eq!((ca.unwrap().as_str(), other), (value(&server.secret(), CA), None));
    let requests = server.take_requests();
    let writes: Vec<_> = requests.iter().filter(|request| !request.starts_with("GET")).collect();
    assert_eq!(
        writes,
        [
            "POST secrets",
            "PATCH mutatingwebhookconfigurations",
            "PATCH validatingwebhookconfigurations"
        ]
    );
    keep_once(&mut keeper, FIRST).await.unwrap();
    assert_eq!(server.take_requests(), NO_WRITE);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_comes_second_serves_the_certificate_of_the_first() {
    let server = ApiServer::with_configurations();
    let (first, second) = (Replica::new(&server), Replica::new(&server));
    let stored = issued(at(FIRST), None, &[]);
    let faster = stored.clone();
    server.before(Method::POST, move |server| server.put_secret(&faster));
    keep_once(&mut first.keeper(), FIRST).await.unwrap();
    assert_eq!(server.secret().data, stored.data);
    keep_once(&mut second.keeper(), FIRST).await.unwrap();
    for replica in [first, second] {
        assert!(replica.is_current(&server, FIRST) && replica.is_trusted(&server, FIRST));
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_certificate_is_trusted_for_half_a_minute_before_it_is_served() {
    let server = ApiServer::with_configurations();
    let (first, second) = (Replica::new(&server), Replica::new(&server));
    let (mut keeper, mut slower) = (first.keeper(), second.keeper());
    keep_once(&mut keeper, FIRST).await.unwrap();
    keep_once(&mut slower, FIRST).await.unwrap();
    server.take_requests();
    assert!(
        timeout(Duration::from_secs(29), keep_once(&mut keeper, DUE))
            .await
            .is_err()
    );
    let requests = server.take_requests();
    let put = requests
        .iter()
        .position(|request| request == "PUT portolan-webhooks")
        .unwrap();
    let patch = requests
        .iter()
        .position(|request| request.starts_with("PATCH"))
        .unwrap();
    assert!(put < patch);
    // The first process ended before it served its new certificate.
    assert!(!first.is_current(&server, DUE));
    for replica in [&first, &second] {
        assert!(replica.is_trusted(&server, DUE));
    }
    assert_eq!(keep_once(&mut slower, DUE).await.unwrap(), Duration::from_secs(30));
    assert_eq!(server.take_requests(), NO_WRITE);
    let restarted = Replica::new(&server);
    keep_once(&mut restarted.keeper(), DUE).await.unwrap();
    for replica in [&second, &restarted] {
        assert!(replica.is_current(&server, DUE) && replica.is_trusted(&server, DUE));
    }
}

#[tokio::test(start_paused = true)]
async fn two_replicas_renew_once() {
    let server = ApiServer::with_configurations();
    let replica = Replica::new(&server);
    let mut keeper = replica.keeper();
    keep_once(&mut keeper, FIRST).await.unwrap();
    let old = server.secret();
    let renewed = issued(at(DUE), Some(old.clone()), &[value(&old, CA)]);
    let faster = renewed.clone();
    server.before(Method::PUT, move |server| server.put_secret(&faster));
    keep_once(&mut keeper, DUE).await.unwrap();
    assert_eq!(server.secret().data, renewed.data);
    assert!(replica.is_current(&server, DUE) && replica.is_trusted(&server, DUE));
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_an_older_secret_writes_no_older_ca() {
    let server = ApiServer::with_configurations();
    let replica = Replica::new(&server);
    // While it is about to write the first CA, another replica renews.
    server.before(Method::PATCH, |server| {
        let old = server.secret();
        let renewed = issued(at(FIRST), Some(old.clone()), &[value(&old, CA)]);
        server.put_secret(&renewed);
        for kind in ["mutating", "validating"] {
            let mut configuration = server.object(&configuration_path(kind));
            let bundle = serde_json::to_value(&renewed.data.as_ref().unwrap()[CA]).unwrap();
            configuration["webhooks"][1]["clientConfig"]["caBundle"] = bundle;
            server.put(&configuration_path(kind), configuration);
        }
    });
    keep_once(&mut replica.keeper(), FIRST).await.unwrap();
    let (ca, _) = server.cas("mutating");
    assert_eq!(ca.unwrap(), value(&server.secret(), CA));
    assert_eq!(
        server
            .take_requests()
            .iter()
            .filter(|request| request.starts_with("PATCH"))
            .count(),
        1
    );
    assert!(replica.is_current(&server, FIRST) && replica.is_trusted(&server, FIRST));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_not_trusted_replaces_only_an_expired_one() {
    let server = ApiServer::with_configurations();
    let replica = Replica::new(&server);
    let mut keeper = replica.keeper();
    server.fail(Method::PATCH, 403);
    let error = keep_once(&mut keeper, FIRST).await.unwrap_err().to_string();
    assert_eq!(error, "failed to patch MutatingWebhookConfiguration portolan: no");
    assert!(replica.is_current(&server, FIRST), "the first one is served");
    keep_once(&mut keeper, DUE).await.unwrap_err();
    assert!(!replica.is_current(&server, DUE));
    server.put_secret(&issued(at(EXPIRED), None, &[]));
    keep_once(&mut keeper, EXPIRED).await.unwrap_err();
    assert!(replica.is_current(&server, EXPIRED));
    server.recover();
    keep_once(&mut keeper, EXPIRED).await.unwrap();
    assert!(replica.is_trusted(&server, EXPIRED));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_cannot_be_renewed_is_served() {
    let server = ApiServer::with_configurations();
    server.put_secret(&issued(at(FIRST), None, &[]));
    server.fail(Method::PUT, 403);
    let replica = Replica::new(&server);
    let error = keep_once(&mut replica.keeper(), DUE).await.unwrap_err().to_string();
    assert_eq!(error, "failed to update Secret vela-system/portolan-webhooks: no");
    assert!(replica.is_current(&server, DUE) && replica.is_trusted(&server, DUE));
}

#[tokio::test(start_paused = true)]
async fn certificates_of_a_deleted_or_damaged_secret_stay_trusted() {
    let server = ApiServer::with_configurations();
    let (first, second) = (Replica::new(&server), Replica::new(&server));
    let (mut keeper, mut slower) = (first.keeper(), second.keeper());
    keep_once(&mut keeper, FIRST).await.unwrap();
    keep_once(&mut slower, FIRST).await.unwrap();
    server.delete(SECRET);
    assert_eq!(keep_once(&mut keeper, FIRST).await.unwrap(), Duration::from_secs(30));
    assert!(first.is_current(&server, FIRST) && first.is_trusted(&server, FIRST));
    assert!(!second.is_current(&server, FIRST) && second.is_trusted(&server, FIRST));
    keep_once(&mut slower, FIRST).await.unwrap();
    let mut secret = server.secret();
    secret.data.as_mut().unwrap().remove(KEY);
    server.put_secret(&secret);
    keep_once(&mut slower, FIRST).await.unwrap();
    assert!(!first.is_current(&server, FIRST) && first.is_trusted(&server, FIRST));
    assert!(second.is_current(&server, FIRST) && second.is_trusted(&server, FIRST));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_comes_later_gets_the_ca() {
    let server = ApiServer::default();
    let replica = Replica::new(&server);
    let mut keeper = replica.keeper();
    keep_once(&mut keeper, FIRST).await.unwrap();
    server.add_configuration("mutating");
    keep_once(&mut keeper, FIRST).await.unwrap();
    server.add_configuration("validating");
    keep_once(&mut keeper, FIRST).await.unwrap();
    assert!(replica.is_trusted(&server, FIRST));
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_another_program_ends_the_start_and_stays_as_it_is() {
    let server = ApiServer::with_configurations();
    let mut secret = issued(at(FIRST), None, &[]);
    secret.type_ = Some("Opaque".to_owned());
    server.put_secret(&secret);
    let before = server.object(SECRET);
    let source = CertificateSource::SelfSigned(settings());
    let Err(error) = keep(&source, &server.client(), &served()).await;
    assert_eq!(
        error.to_string(),
        "Secret vela-system/portolan-webhooks is not overwritten with a self-signed certificate, because its type is Opaque \
         instead of kubernetes.io/tls; delete it, choose another name, or serve a certificate of another issuer from files \
         (--webhook-cert-dir)"
    );
    assert_eq!(server.object(SECRET), before);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_again() {
    let server = ApiServer::with_configurations();
    server.fail(Method::GET, 503);
    let mut registry = Registry::default();
    let served = ServedCertificate::new(CertificateMetrics::register(&mut registry)).unwrap();
    let metric = || {
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        out.lines().find_map(|line| {
            line.strip_prefix("portolan_webhook_certificate_outdated ")
                .map(str::to_owned)
        })
    };
    let (source, client) = (CertificateSource::SelfSigned(settings()), server.client());
    let keep = keep(&source, &client, &served);
    let mut keep = std::pin::pin!(keep);
    assert!(timeout(Duration::from_secs(120), keep.as_mut()).await.is_err());
    assert!(!served.is_ready() && metric().as_deref() == Some("1"));
    server.recover();
    assert!(timeout(Duration::from_secs(6), keep.as_mut()).await.is_err());
    assert!(served.is_ready() && metric().as_deref() == Some("0"));
    server.take_requests();
    assert!(timeout(Duration::from_secs(180), keep).await.is_err());
    assert_eq!(server.take_requests().len(), 3 * NO_WRITE.len());
}
