//! Secrets of clusters that are refused, replaced or not accepted. Their values are in no status and no log.

use serde_json::{Value, json};

use super::fleet::{CERTIFICATE, Fleet, PATIENT, TOKEN, assert_kept, credential, placed};
use super::isolation::RECOVERY;
use crate::oam_apps::apps::config;
use crate::oam_apps::site::says;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::portolan::Portolan;

/// Part of each secret value; it must not appear in logs or statuses.
const HIDDEN: &str = "hunter2";
/// The last years of certificates.
const VALID: i32 = 2090;
const EXPIRED: i32 = 2021;

fn with(mut data: Value, key: &str, value: &str) -> Value {
    data[key] = value.into();
    data
}

fn without(mut data: Value, key: &str) -> Value {
    data.as_object_mut().unwrap().remove(key);
    data
}

fn assert_hidden(portolan: &Portolan, app: &Value) {
    assert!(!app.to_string().contains(HIDDEN), "{app:#}");
    let lines = portolan.lines();
    let line = lines.iter().find(|line| line.contains(HIDDEN));
    assert_eq!(line, None);
}

impl Fleet {
    fn certificate(&self, last_year: i32) -> Value {
        let (certificate, key) = self.east.control_plane.admin_pem(last_year);
        let data = without(credential(&self.east, &self.east.control_plane.url()), "token");
        with(with(data, "tls.crt", &certificate), "tls.key", &key)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_secret_is_named_with_its_reason_until_it_is_mended() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let good = credential(east, &east.control_plane.url());
    let bad = with(good.clone(), "token", HIDDEN);
    let unverified = "the Secret has no ca.crt, so the certificate of the API server is not verified";
    let cases = [
        ("unverified", TOKEN, without(bad.clone(), "ca.crt"), unverified),
        (
            "metadata",
            TOKEN,
            with(bad.clone(), "endpoint", "https://169.254.169.254"),
            "it is link-local",
        ),
        (
            "plain",
            TOKEN,
            with(bad.clone(), "endpoint", "http://127.0.0.1:1"),
            "endpoint is not https",
        ),
        (
            "dynamic",
            "Dynamic",
            bad.clone(),
            "the credential type Dynamic is not supported",
        ),
        (
            "empty",
            TOKEN,
            without(bad.clone(), "token"),
            "the Secret has no token; add it",
        ),
        (
            "wrong",
            TOKEN,
            bad,
            "does not accept the credential; renew it in the Secret",
        ),
        (
            "expired",
            CERTIFICATE,
            fleet.certificate(EXPIRED),
            "does not accept the credential; renew it in the Secret",
        ),
    ];
    for (name, type_, data, _) in &cases {
        fleet.join_with(name, type_, json!({}), data.clone()).await;
    }
    let portolan = fleet.portolan(&[PATIENT, "--log-debug"]).await;
    for (name, ..) in &cases {
        site.declare(name, placed(&[config(name, "one")], &[name])).await;
    }
    for (name, _, _, words) in &cases {
        let app = site.until_said(name, words).await;
        assert!(says(&app, &format!("cluster {name}")), "{:#}", app["status"]);
        assert_hidden(&portolan, &app);
    }

    for (name, ..) in &cases {
        fleet.join_with(name, TOKEN, json!({}), good.clone()).await;
    }
    let names = cases.map(|(name, ..)| name.to_owned());
    fleet.until_all_running(&names, RECOVERY).await;
    for name in &names {
        assert!(east.get(CONFIG_MAP, name).await.is_some(), "{name}");
    }
    assert_hidden(&portolan, &Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_without_an_authority_is_accepted_with_the_flag() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let data = without(credential(east, &east.control_plane.url()), "ca.crt");
    fleet.join_with("east", TOKEN, json!({}), data).await;
    let _portolan = fleet.portolan(&["--allow-insecure-clusters"]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_needs_permission() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let kubeconfig = site.control_plane.kubeconfig();
    let mut command = site.command(&kubeconfig, &fleet.flags(&[PATIENT]));
    command.env_remove("PORTOLAN_ALLOW_LOOPBACK");
    let portolan = Portolan::start(command);
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_said("shop", "it is this machine; see --allow-loopback")
        .await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    drop(portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_credential_is_used_without_a_restart() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    fleet
        .join_with("east", CERTIFICATE, json!({}), fleet.certificate(VALID))
        .await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;

    fleet.join("east", east).await;
    assert_kept(east, "settings", "one").await;
    // Another address is another cluster, which has none of the objects yet.
    let west = fleet.west().await;
    fleet.join("east", &west).await;
    west.until(CONFIG_MAP, "settings", "created", |_| true).await;
    assert_kept(&west, "settings", "one").await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_becomes_wrong_is_named_and_nothing_counts_as_deleted() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    let wrong = with(credential(east, &east.control_plane.url()), "token", HIDDEN);
    fleet.join_with("east", TOKEN, json!({}), wrong).await;
    site.declare("shop", placed(&[config("other", "one")], &["east"])).await;
    let app = site
        .until_said("shop", "does not accept the credential; renew it in the Secret")
        .await;
    assert_hidden(&portolan, &app);
    let records = fleet.records("shop", "east").await;
    assert!(
        records.iter().any(|record| record["name"] == "settings"),
        "{records:#?}"
    );
    site.delete(APPLICATION, "shop").await;
    fleet.until_waiting("shop", "east").await;
    assert!(east.get(CONFIG_MAP, "settings").await.is_some());

    fleet.join("east", east).await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_an_older_kubevela_joins_its_cluster() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let labels = json!({ "cluster.core.oam.dev/cluster-credential": "X509Certificate" });
    let data = fleet.certificate(VALID);
    fleet.put_secret("east", "kubernetes.io/tls", &labels, &data).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
}
