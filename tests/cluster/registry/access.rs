//! Registries with credentials, and archives in registries: served charts, and recipients of the credentials.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{NEVER, RecordedRegistry, chart, skipped};
use crate::cluster::rows::Postgres;
use crate::cluster::{SOON, World, condition, message};
use crate::support::archives::index;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::registry::{PASSWORD, Registry, Setup};
use crate::support::tls::Authority;
use crate::support::token_server::{TokenServer, basic_authorization};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_with_a_password_is_synced_with_chart_files() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    // In the form that users write.
    for version in ["1.0.0", "1.1.0+b.1"] {
        fixture.registry.helm_push(&chart("harbour", version), "ports").await;
    }
    fixture.registry.helm_push(&chart("pier", "v0.1.0"), "ports/deep").await;
    let flags = [NEVER, "--chart-files=all", "--log-level=debug"];
    let portolan = world.portolan(postgres.url(), &flags).await;
    fixture.declare(&world, "port", &["harbour", "deep/pier"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(message(&object), "3 versions in 2 charts.");

    let infos = postgres.rows.infos().await.unwrap();
    assert_eq!(infos.keys().collect::<Vec<_>>(), ["port/deep%2Fpier", "port/harbour"]);
    let host = fixture.front.host();
    let pier = &infos["port/deep%2Fpier"];
    assert_eq!(
        (pier["ID"].as_str(), pier["name"].as_str()),
        (Some("port/deep%2Fpier"), Some("pier"))
    );
    // The tag itself, not its normalized version.
    assert_eq!(pier["chartVersions"][0]["version"], "v0.1.0");
    assert_eq!(
        pier["chartVersions"][0]["urls"],
        json!([format!("oci://{host}/ports/deep/pier:v0.1.0")])
    );
    let harbour = &infos["port/harbour"];
    assert_eq!(harbour["repo"]["url"], fixture.url().as_str());
    let versions = harbour["chartVersions"].as_array().unwrap();
    let reported: Vec<(&Value, &Value, &Value)> = versions
        .iter()
        .map(|version| (&version["version"], &version["urls"], &version["created"]))
        .collect();
    let zero = json!("0001-01-01T00:00:00Z");
    let (new, old) = (
        json!([format!("oci://{host}/ports/harbour:1.1.0_b.1")]),
        json!([format!("oci://{host}/ports/harbour:1.0.0")]),
    );
    assert_eq!(
        reported,
        [(&json!("1.1.0+b.1"), &new, &zero), (&json!("1.0.0"), &old, &zero)]
    );

    world.until_files("port", 3).await;
    let files = postgres.rows.files().await;
    for (id, digest) in [
        ("port/deep%2Fpier-v0.1.0", &pier["chartVersions"][0]["digest"]),
        ("port/harbour-1.1.0+b.1", &versions[0]["digest"]),
    ] {
        let name = if id.contains("pier") {
            "pier v0.1.0"
        } else {
            "harbour 1.1.0+b.1"
        };
        let digest = digest.as_str().unwrap();
        assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
        let expected = json!({
            "ID": id,
            "Readme": format!("# {name}\n"),
            "DefaultValues": "berths: 3\n",
            "AdditionalDefaultValues": { "values-production": "berths: 30\n" },
            "Schema": r#"{"type": "object"}"#,
            "Repo": { "namespace": world.namespace, "name": "port", "url": fixture.url(), "type": "" },
            "Digest": digest,
        });
        assert_eq!(files[id], expected);
    }

    // A wrong password is reported as such, and not leaked.
    let wrong = json!({ "authorizationHeader": "Basic bmF2aWdhdG9yOmNhbG0=", "ca.crt": fixture.authority.ca_pem });
    world.write_secret(&world.namespace, "login", wrong).await;
    world.resync("port", "one").await;
    let object = world.until_ready_is("port", "False", "Unauthorized").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "Unauthorized")));
    let refused = format!("Access to https://{host}/v2/ports/");
    assert!(message(&object).starts_with(&refused), "{}", message(&object));
    assert_eq!(postgres.rows.infos().await.unwrap(), infos);
    // The same for the list of repositories.
    world.edit("port", json!({ "spec": { "ociRepositories": null } })).await;
    let object = world.until_ready_is("port", "False", "Unauthorized").await;
    assert!(message(&object).contains("credentials"), "{}", message(&object));
    let reported = format!(
        "{:?}{:?}{:?}",
        object.status,
        world.events("port").await,
        portolan.lines()
    );
    for secret in [PASSWORD, "bmF2aWdhdG9yOm"] {
        assert!(!reported.contains(secret), "{secret} is leaked: {reported}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_charts_of_a_registry_with_a_token_server_are_discovered() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let authority = Authority::new();
    let tokens = TokenServer::start_tls(&authority).await;
    let fixture = RecordedRegistry::new(Setup::default().tokens(&tokens), authority).await;
    fixture.push("harbour", &chart("harbour", "1.0.0")).await;
    fixture.push("deep/pier", &chart("pier", "0.1.0")).await;
    fixture.push("closed", &chart("closed", "1.0.0")).await;
    fixture.registry.push_image("ports/crane", "1.0.0").await;
    fixture
        .registry
        .push_chart("elsewhere", "1.0.0", &chart("elsewhere", "1.0.0"))
        .await;
    fixture.push("barred", &chart("barred", "1.0.0")).await;
    tokens.deny("ports/closed");
    // Other registries respond differently.
    fixture
        .front
        .break_path("/v2/ports/barred/tags/list", Fault::status(403));
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    fixture.declare(&world, "port", &[]).await;
    let object = world.until_ready("port").await;
    postgres
        .rows
        .until_charts(&["port/deep%2Fpier 0.1.0", "port/harbour 1.0.0"])
        .await;
    world.until_files("port", 2).await;

    // Repositories without charts are listed with the reason.
    let skipped = skipped(&object);
    let named: BTreeSet<(&str, Option<&str>)> = skipped
        .iter()
        .map(|(chart, version, _)| (chart.as_str(), version.as_deref()))
        .collect();
    assert_eq!(
        named,
        BTreeSet::from([("barred", None), ("closed", None), ("crane", Some("1.0.0"))]),
        "{skipped:?}"
    );
    assert!(
        skipped
            .iter()
            .any(|(_, _, reason)| reason.contains("a container image")),
        "{skipped:?}"
    );
    // The password is sent to the token server, the registry gets only tokens.
    assert!(
        tokens
            .requests()
            .iter()
            .all(|request| request.authorization == Some(basic_authorization()))
    );
    assert!(
        fixture
            .front
            .all_requests()
            .iter()
            .all(|request| request.authorization().is_none_or(|value| value.starts_with("Bearer ")))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_in_a_registry_are_pulled() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let authority = Authority::new();
    let server = ChartServer::start_tls_with(&authority).await;
    server.demand("Bearer of-the-index");
    let open = RecordedRegistry::new(Setup::default(), authority).await;
    let private = Registry::start(Setup::default().password()).await;
    let private = ChartServer::in_front_of_tls(&open.authority, private.upstream()).await;
    let archive = chart("harbour", "1.0.0+b.1");
    open.push("harbour", &archive).await;
    let url = |host: &str| format!("oci://{host}/ports/harbour:1.0.0_b.1");
    for (name, host) in [("open", open.front.host()), ("private", private.host())] {
        let path = format!("/{name}/index.yaml");
        server.serve(&path, Page::new(index([archive.index_entry(&[&url(host)])])));
    }
    let login = json!({ "authorizationHeader": "Bearer of-the-index", "ca.crt": open.authority.ca_pem });
    world.write_secret(&world.namespace, "login", login).await;
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    let key = |key: &str| json!({ "secretKeyRef": { "name": "login", "key": key } });
    let auth = json!({ "header": key("authorizationHeader"), "customCA": key("ca.crt") });
    for name in ["open", "private"] {
        let spec = json!({ "type": "helm", "url": server.url(&format!("/{name}")), "auth": auth });
        world.declare_with(name, json!({ "spec": spec })).await;
    }
    world.until_files("open", 1).await;
    let found = &postgres.rows.files().await["open/harbour-1.0.0+b.1"];
    assert_eq!(
        (&found["Readme"], &found["Digest"]),
        (&json!("# harbour 1.0.0+b.1\n"), &json!(archive.sha256()))
    );

    // The failure is recorded; an empty row keeps the chart's page working until then.
    eventually(SOON, "the failure of the archive to be stored", async || {
        let failures = postgres
            .rows
            .pairs("SELECT chart_files_id, message FROM portolan_files")
            .await
            .unwrap();
        match &failures[..] {
            [(id, message)] if id == "private/harbour-1.0.0+b.1" && message.contains("credentials") => Ok(()),
            others => Err(format!("{others:?}")),
        }
    })
    .await;
    let found = &postgres.rows.files().await["private/harbour-1.0.0+b.1"];
    assert_eq!((&found["Readme"], &found["Digest"]), (&json!(""), &json!("")));
    world.until_ready("private").await;
    // The credentials are for the host of the index only.
    for registry in [&open.front, &private] {
        let seen = registry.all_requests();
        assert!(!seen.is_empty() && seen.iter().all(|request| request.authorization().is_none()));
    }
}
