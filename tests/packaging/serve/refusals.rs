//! Values of `serve` that would render, and then break: each is refused with a sentence.

use rstest::rstest;

use super::{POSTGRES, SQLITE};
use crate::packaging::combinations::refusal;

const ROUTED: &str = "--set=serve.externalUrl=https://charts.example.com,serve.ingress.enabled=true";

#[rstest]
#[case::no_database(&[SQLITE, "--set=oam.enabled=true,oam.args={--controllers=oam}"], "serve.enabled needs a database of repositories")]
#[case::replicas(&[SQLITE, "--set=serve.replicas=2"], "serve.replicas=2 needs Postgres: set database.existingSecret or database.url")]
#[case::role_of_sqlite(&[SQLITE, "--set=serve.database.existingSecret=a"], "serve.database.existingSecret is another role of Postgres")]
#[case::lease(&[SQLITE, "--set=leaderElection.enabled=true"], "set leaderElection.enabled=false, or for Postgres set database.existingSecret")]
#[case::metrics_port(&[SQLITE, "--set=metrics.port=8090"], "metrics.port=8090 is the port of the catalog")]
#[case::webhook_port(&[SQLITE, "--set=oam.enabled=true,oam.webhooks.enabled=true,oam.webhooks.port=8090"], "oam.webhooks.port=8090 is the port of the catalog")]
#[case::label(&[POSTGRES, r"--set=serve.podLabels.app\.kubernetes\.io/name=mine"], "serve.podLabels: the chart sets app.kubernetes.io/name")]
#[case::spool(&[POSTGRES, "--set=serve.spool.limit=2Gi"], "serve.spool.limit=2Gi is larger than its volume, serve.spool.sizeLimit=1Gi")]
#[case::memory(&[POSTGRES, "--set=serve.catalogMemory=129Mi"], "serve.catalogMemory=129Mi is more than half of serve.resources.limits.memory=256Mi")]
#[case::memory_of_the_controller(&[SQLITE, "--set=serve.catalogMemory=257Mi"], "is more than half of resources.limits.memory=512Mi")]
#[case::account(&[POSTGRES, "--set=serve.serviceAccount.create=false"], "serve.serviceAccount.name is needed")]
#[case::ingress_without_url(&[POSTGRES, "--set=serve.ingress.enabled=true"], "serve.ingress.enabled needs the host and the path of requests; set serve.externalUrl")]
#[case::route_without_url(&[POSTGRES, "--set=serve.httpRoute.enabled=true"], "serve.httpRoute.enabled needs the host")]
#[case::route_without_gateway(&[POSTGRES, ROUTED, "--set=serve.httpRoute.enabled=true"], "name it in serve.httpRoute.parentRefs")]
#[case::route_to_nothing(&[ROUTED], "serve.ingress.enabled routes to a catalog that is not served; set serve.enabled")]
#[case::address(&[POSTGRES, ROUTED, "--set=serve.externalUrl=https://10.0.0.1"], "serve.externalUrl has an address; set a name")]
#[case::address_of_version_6(&[POSTGRES, ROUTED, "--set=serve.externalUrl=https://[fd00::1]:8443/a"], "serve.externalUrl has an address; set a name")]
#[case::policy(&[POSTGRES, "--set=networkPolicy.enabled=true"], "networkPolicy.enabled admits nobody to the catalog")]
#[case::policy_with_sqlite(&[SQLITE, "--set=networkPolicy.enabled=true"], "in serve.networkPolicy.from")]
#[tokio::test]
async fn values_that_cannot_serve_are_refused_with_a_sentence(#[case] settings: &[&str], #[case] sentence: &str) {
    let error = refusal(settings).await.expect("a refusal");
    assert!(error.contains(sentence), "{error}");
}

#[tokio::test]
async fn values_that_can_serve_are_accepted() {
    for settings in [
        &[SQLITE, "--set=serve.replicas=1,serve.catalogMemory=256Mi"][..],
        &[POSTGRES, "--set=leaderElection.enabled=true,serve.catalogMemory=128Mi"],
        &[
            POSTGRES,
            "--set=serve.resources.limits.memory=2Gi,serve.catalogMemory=1Gi",
        ],
        &[
            POSTGRES,
            "--set=serve.resources.limits.memory=null,serve.catalogMemory=1Gi",
        ],
        &[POSTGRES, "--set=serve.spool.limit=1Gi"],
        // Another release fills the database.
        &[POSTGRES, "--set=oam.enabled=true,oam.args={--controllers=oam}"],
        // Without routes, the URL may have an address.
        &[POSTGRES, "--set=serve.externalUrl=http://10.0.0.1:8090"],
        &[POSTGRES, ROUTED, "--set=serve.externalUrl=https://10.example.com"],
    ] {
        assert_eq!(refusal(settings).await, None, "{settings:?}");
    }
}

#[tokio::test]
async fn values_of_another_form_are_refused() {
    for (setting, complaint) in [
        ("serve.enabled=perhaps", "/serve/enabled"),
        ("serve.replicas=0", "/serve/replicas"),
        ("serve.externalUrl=charts.example.com", "/serve/externalUrl"),
        (
            "serve.externalUrl=https://me:secret@charts.example.com",
            "/serve/externalUrl",
        ),
        ("serve.externalUrl=https://charts.example.com/a?b", "/serve/externalUrl"),
        ("serve.externalUrl=https://charts.example.com//a", "/serve/externalUrl"),
        ("serve.allowedHosts={https://a}", "/serve/allowedHosts/0"),
        ("serve.anonymous={Team}", "/serve/anonymous/0"),
        ("serve.anonymous=*", "/serve/anonymous"),
        ("serve.trustedProxies={proxy.example.com}", "/serve/trustedProxies/0"),
        ("serve.archives=off", "/serve/archives"),
        ("serve.rate=0", "/serve/rate"),
        ("serve.burst=0", "/serve/burst"),
        ("serve.connections=0", "/serve/connections"),
        ("serve.catalogMemory=lots", "/serve/catalogMemory"),
        ("serve.service.port=8080", "/serve/service/port"),
        (
            "serve.httpRoute.parentRefs[0].namespace=a",
            "/serve/httpRoute/parentRefs/0",
        ),
        ("serve.networkPolicy.from=ingress", "/serve/networkPolicy/from"),
        ("serve.tls=a", "/serve"),
    ] {
        let error = refusal(&["--set", setting]).await.expect("a refusal");
        // As in the messages of older versions of helm.
        let error = error.replace('.', "/");
        assert!(error.contains(complaint), "{setting}: {error}");
    }
}
