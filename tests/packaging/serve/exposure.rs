//! How the catalog is reached: routes, policies, monitors, and the notes that name its address.

use serde_json::{Value, json};

use super::{CLIENTS, CONTROLLER, POSTGRES, SERVE, SQLITE, find, objects, pod, ports};
use crate::packaging::{chart, helm_output};

#[tokio::test]
async fn routes_lead_from_the_external_url_to_the_service() {
    let routes = "--set=serve.ingress.enabled=true,serve.ingress.className=public,serve.ingress.tlsSecret=charts,\
                  serve.httpRoute.enabled=true,serve.httpRoute.parentRefs[0].name=gate,serve.service.port=80";
    for (url, host, path) in [
        ("https://Charts.example.com", "charts.example.com", "/"),
        ("https://charts.example.com:8443/", "charts.example.com", "/"),
        (
            "https://charts.example.com/team/charts/",
            "charts.example.com",
            "/team/charts",
        ),
    ] {
        let url = format!("--set=serve.externalUrl={url}");
        for database in [POSTGRES, SQLITE] {
            let objects = objects(&[database, routes, &url]).await;
            let service = find(&objects, "Service", SERVE);
            assert_eq!(service["spec"]["ports"][0]["port"], 80);
            let ingress = &find(&objects, "Ingress", SERVE)["spec"];
            assert_eq!(ingress["ingressClassName"], "public");
            assert_eq!(ingress["tls"], json!([{ "hosts": [host], "secretName": "charts" }]));
            let backend = json!({ "service": { "name": SERVE, "port": { "name": "catalog" } } });
            let rule = json!({
                "host": host,
                "http": { "paths": [{ "path": path, "pathType": "Prefix", "backend": backend }] },
            });
            assert_eq!(ingress["rules"], json!([rule]));
            let route = &find(&objects, "HTTPRoute", SERVE)["spec"];
            let rule = json!({
                "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                "backendRefs": [{ "name": SERVE, "port": 80 }],
            });
            let expected = json!({ "parentRefs": [{ "name": "gate" }], "hostnames": [host], "rules": [rule] });
            assert_eq!(*route, expected);
        }
    }
}

#[tokio::test]
async fn the_service_leads_to_the_pods_that_serve() {
    for (database, deployment) in [(POSTGRES, SERVE), (SQLITE, CONTROLLER)] {
        let objects = objects(&[database]).await;
        let service = &find(&objects, "Service", SERVE)["spec"];
        let labels = &pod(&objects, deployment)["metadata"]["labels"];
        let selector = service["selector"].as_object().unwrap();
        assert!(!selector.is_empty() && selector.iter().all(|(name, value)| &labels[name] == value));
        let port = json!({ "name": "catalog", "port": 8090, "targetPort": "catalog" });
        assert_eq!(service["ports"], json!([port]));
        assert!(ports(&pod(&objects, deployment)["spec"]["containers"][0]).contains(&"catalog"));
    }
}

#[tokio::test]
async fn a_network_policy_admits_the_clients_of_the_catalog_and_the_readers_of_metrics() {
    let egress = r#"--set-json=networkPolicy.egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]"#;
    let policy = async |more: &[&str]| {
        let objects = objects(&[&[POSTGRES, CLIENTS], more].concat()).await;
        find(&objects, "NetworkPolicy", SERVE)["spec"].clone()
    };
    let closed = policy(&[]).await;
    let admitted = |app: &str, port: &str| {
        json!({
            "from": [{ "podSelector": { "matchLabels": { "app": app } } }],
            "ports": [{ "protocol": "TCP", "port": port }],
        })
    };
    assert_eq!(
        closed["ingress"],
        json!([admitted("ingress", "catalog"), admitted("prometheus", "http")])
    );
    assert_eq!(closed["policyTypes"], json!(["Ingress"]));
    // Those of the controller, unless there are others.
    let shared = policy(&[egress]).await;
    assert_eq!(shared["egress"][0]["to"][0]["ipBlock"]["cidr"], "10.0.0.0/8");
    let own = r#"--set-json=serve.networkPolicy.egress=[{"ports": [{"port": 5432, "protocol": "TCP"}]}]"#;
    let limited = policy(&[egress, own]).await;
    assert_eq!(
        limited["egress"],
        json!([{ "ports": [{ "port": 5432, "protocol": "TCP" }] }])
    );
    assert_eq!(limited["policyTypes"], json!(["Ingress", "Egress"]));
}

#[tokio::test]
async fn each_deployment_has_a_monitor() {
    for (kind, value, endpoints) in [
        ("PodMonitor", "podMonitor", "podMetricsEndpoints"),
        ("ServiceMonitor", "serviceMonitor", "endpoints"),
    ] {
        let settings = format!("--set=metrics.port=9090,metrics.{value}.enabled=true,metrics.{value}.labels.team=a");
        let deployed = objects(&[POSTGRES, &settings]).await;
        let monitor = find(&deployed, kind, SERVE);
        assert_eq!(monitor["metadata"]["labels"]["team"], "a");
        // `portolan serve` has one port for health and metrics.
        let endpoint = json!([{ "port": "http", "path": "/metrics", "interval": "30s" }]);
        assert_eq!(monitor["spec"][endpoints], endpoint);
        assert!(ports(&pod(&deployed, SERVE)["spec"]["containers"][0]).contains(&"http"));
        let service = find(&deployed, "Service", SERVE);
        assert_eq!(ports(&service["spec"]).contains(&"http"), kind == "ServiceMonitor");
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        for (name, value) in selector {
            assert_eq!(&service["metadata"]["labels"][name], value);
        }
        let embedded = objects(&[SQLITE, &settings]).await;
        assert_eq!(embedded.iter().filter(|object| object["kind"] == kind).count(), 1);
    }
}

#[tokio::test]
async fn only_several_pods_have_a_disruption_budget_and_are_spread() {
    let one = objects(&[POSTGRES]).await;
    assert!(!one.iter().any(|object| object["kind"] == "PodDisruptionBudget"));
    assert_eq!(pod(&one, SERVE)["spec"]["topologySpreadConstraints"], Value::Null);
    let several = objects(&[
        POSTGRES,
        "--set=serve.replicas=2,podDisruptionBudget.maxUnavailable=50%",
    ])
    .await;
    let budget = find(&several, "PodDisruptionBudget", SERVE);
    assert_eq!(budget["spec"]["maxUnavailable"], "50%");
    let spread = &pod(&several, SERVE)["spec"]["topologySpreadConstraints"];
    assert_eq!(spread.as_array().map(Vec::len), Some(2));
    // A rollout takes no pod away before another one is ready.
    let strategy = &find(&several, "Deployment", SERVE)["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(*strategy, json!({ "maxSurge": 1, "maxUnavailable": 0 }));
}

#[tokio::test]
async fn the_notes_name_the_address_and_the_token() {
    let notes = async |settings: &[&str]| {
        let arguments = [
            "install",
            "portolan",
            &chart(),
            "--dry-run=client",
            "--no-hooks",
            "--namespace=sea",
        ];
        helm_output(&[&arguments, settings].concat()).await
    };
    let without = notes(&[]).await;
    assert!(!without.contains("catalog-reader"), "{without}");
    let forwarded = notes(&[SQLITE, "--set=watchNamespace=team"]).await;
    for text in [
        "kubectl port-forward --namespace sea service/portolan-serve 8090 &",
        "TOKEN=$(kubectl create token catalog-reader --duration=1h --namespace team)",
        "http://localhost:8090/api/v1/charts",
        "away during upgrades",
    ] {
        assert!(forwarded.contains(text), "{text}: {forwarded}");
    }
    let external = notes(&[
        POSTGRES,
        "--set=serve.externalUrl=https://charts.example.com/a/,serve.anonymous={team}",
    ])
    .await;
    for text in [
        "\" https://charts.example.com/a/api/v1/charts",
        "sees the charts of team without a token",
        "Set serve.database.existingSecret",
    ] {
        assert!(external.contains(text), "{text}: {external}");
    }
    assert!(
        !external.contains("port-forward") && !external.contains("away during upgrades"),
        "{external}"
    );
}
