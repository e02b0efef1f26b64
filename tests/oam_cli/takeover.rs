//! Applications that are handed over from vela-core, and given back.

use std::sync::Arc;

use axum::http::Method;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use portolan::api::oam::ApplicationRevision;
use portolan::api::oam::labels::SERVICE_ACCOUNT_ANNOTATION;
use portolan::controllers::oam::trackers::encode;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::diff::{CONFIG, config, create_finished, definition, owned};
use super::{Output, Site, application, assert_line, execute, worker};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::cue::executable;
use crate::support::fault_proxy::{ApiFault, FaultProxy, Pause};

const VERSION: &str = "--compat-version=portolan";
const REQUIRED: &str = "app.oam.dev/controller-version-require";
const REDACTED: &str = "portolan.dev/redacted-secrets";

/// A control plane for commands with -A, which change the Applications of other tests.
pub async fn unshared_control_plane() -> &'static ControlPlane {
    static STARTED: OnceCell<ControlPlane> = OnceCell::const_new();
    STARTED.get_or_init(ControlPlane::start).await
}

impl Site {
    async fn takeover(&self, arguments: &[&str]) -> Output {
        let command = ["takeover", VERSION];
        self.vela(&[&command, arguments].concat()).await
    }

    /// Defines the type of [`worker`].
    pub async fn define_worker(&self) {
        self.define("worker", CONFIG).await;
    }

    async fn preview(&self, name: &str) -> String {
        let evaluator = executable();
        let arguments = [name, "--dry-run", "--cue-evaluator", evaluator.to_str().unwrap()];
        self.takeover(&arguments).await.ok()
    }

    /// Returns the version that an Application requires.
    async fn required(&self, name: &str) -> Option<String> {
        self.application(name).await.annotations().get(REQUIRED).cloned()
    }

    async fn edit(&self, name: &str, change: Value) {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(change);
        self.applications().patch(name, &parameters, &patch).await.unwrap();
    }

    async fn require(&self, name: &str, version: &str) {
        self.edit(name, json!({ "metadata": { "annotations": { REQUIRED: version } } }))
            .await;
    }

    /// Takes an Application over, and changes it between the read and the write of the command.
    async fn takeover_during(&self, name: &str, change: impl Future<Output = ()>) -> Output {
        let proxy = FaultProxy::in_front_of(self.control_plane).await;
        let pause = Arc::new(Pause::default());
        let fault = ApiFault::Paused(Arc::clone(&pause));
        proxy.inject(1, fault, |request| request.method == Method::PATCH);
        let kubeconfig = self.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let kubeconfig = kubeconfig.to_str().unwrap();
        let arguments = [
            "vela",
            "takeover",
            name,
            VERSION,
            "-n",
            &self.namespace,
            "--kubeconfig",
            kubeconfig,
        ];
        let changed = async {
            pause.arrived.given().await;
            change.await;
            pause.goes_on.give();
        };
        let command = execute(&arguments);
        tokio::pin!(command);
        tokio::select! {
            output = &mut command => panic!("the command has not written: {output:?}"),
            () = changed => {}
        }
        command.await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_taken_over_once_and_given_back_once() {
    let site = Site::new().await;
    site.define_worker().await;
    site.create_application("shop", worker("nginx:1")).await;
    let says = |output: Output, state: &str| {
        assert_eq!(output.ok(), format!("{}/shop: {state}\n", site.namespace));
    };
    says(site.takeover(&["shop", "--give-back"]).await, "not taken over");
    assert_eq!(site.required("shop").await, None);

    says(site.takeover(&["shop"]).await, "taken over");
    assert_eq!(site.required("shop").await.as_deref(), Some("portolan"));
    let version = site.application("shop").await.resource_version();
    says(site.takeover(&["shop"]).await, "already taken over");
    says(site.takeover(&["shop", "--dry-run"]).await, "already taken over");
    says(
        site.takeover(&["shop", "--give-back", "--dry-run"]).await,
        "would be given back",
    );
    assert_eq!(site.application("shop").await.resource_version(), version);

    says(site.takeover(&["shop", "--give-back"]).await, "given back");
    assert_eq!(site.required("shop").await, None);
    for version in [&["--compat-version="][..], &[]] {
        let output = site.vela(&[&["takeover", "shop"], version].concat()).await;
        assert!(output.failed(2).contains("--compat-version"));
    }
    assert_eq!(site.required("shop").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_applications_of_a_namespace_or_of_the_cluster_are_handed_over() {
    let control_plane = unshared_control_plane().await;
    let (one, other) = (Site::of(control_plane).await, Site::of(control_plane).await);
    for site in [&one, &other] {
        site.define_worker().await;
        site.create_application("shop", worker("nginx:1")).await;
    }
    let everywhere = ["vela", "takeover", VERSION, "-A"];
    let text = one.run(&everywhere).await.ok();
    for site in [&one, &other] {
        assert_line(&text, &format!("{}/shop: taken over", site.namespace));
        assert_eq!(site.required("shop").await.as_deref(), Some("portolan"));
    }
    let text = one.takeover(&["--all", "--give-back"]).await.ok();
    assert_eq!(text, format!("{}/shop: given back\n", one.namespace));
    let text = one.run(&[&everywhere[..], &["--give-back"]].concat()).await.ok();
    assert_line(&text, &format!("{}/shop: not taken over", one.namespace));
    assert_line(&text, &format!("{}/shop: given back", other.namespace));
    for site in [&one, &other] {
        assert_eq!(site.required("shop").await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trackers_of_other_namespaces_are_not_read() {
    let site = Site::new().await;
    site.define_worker().await;
    site.create_application("shop", worker("nginx:1")).await;
    let proxy = FaultProxy::in_front_of(site.control_plane).await;
    let kubeconfig = site.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let place = ["-n", &site.namespace, "--kubeconfig", kubeconfig];
    let command = ["vela", "takeover", "--all", VERSION];
    execute(&[&command[..], &place].concat()).await.ok();
    let requests = proxy.requests().into_iter();
    let lists = requests.filter(|request| request.is_of("resourcetrackers"));
    let selectors: Vec<_> = lists.map(|mut request| request.query.remove("labelSelector")).collect();
    assert_eq!(selectors, [Some(format!("app.oam.dev/namespace={}", site.namespace))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_that_are_refused_are_named_and_the_others_are_taken_over() {
    let site = Site::new().await;
    site.define_worker().await;
    for name in ["frozen", "leaving", "plain", "remote", "second", "unreadable"] {
        site.create_application(name, worker("nginx:1")).await;
    }
    let mut bound = worker("nginx:1");
    bound["policies"] = json!([{ "name": "envs", "type": "env-binding" }]);
    site.create_application("bound", bound).await;
    let unknown = json!({ "components": [{ "name": "web", "type": "missing" }] });
    site.create_application("unknown", unknown).await;
    site.create_tracker("unreadable", "another", 1, encode(Vec::new(), None).unwrap())
        .await;
    site.require("frozen", "Disabled").await;
    site.edit("leaving", json!({ "metadata": { "finalizers": ["example.com/held"] } }))
        .await;
    let parameters = DeleteParams::default();
    site.applications().delete("leaving", &parameters).await.unwrap();
    let remote = serde_json::from_value(json!({
        "cluster": "edge", "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": site.namespace,
    }));
    let uid = site.application("remote").await.uid().unwrap();
    site.create_tracker("remote", &uid, 1, encode(vec![remote.unwrap()], None).unwrap())
        .await;

    let namespace = &site.namespace;
    let expect = |stderr: &str| {
        for refused in [
            format!("{namespace}/bound: not supported: policy envs of type env-binding"),
            format!("{namespace}/frozen: requires version \"Disabled\", not \"portolan\""),
            format!("{namespace}/leaving: is being deleted; wait until it is gone"),
            format!("{namespace}/unknown: cannot be parsed: failed to parseComponents"),
            format!("{namespace}/unreadable: its resourcetrackers cannot be read: resourcetracker "),
            "error: 5 failures; these Applications are left as they are".to_owned(),
        ] {
            assert!(stderr.contains(&refused), "{refused}: {stderr}");
        }
    };
    let output = site.takeover(&["--all"]).await;
    assert_eq!(
        output.stdout,
        format!("{namespace}/plain: taken over\n{namespace}/remote: taken over\n{namespace}/second: taken over\n")
    );
    expect(&output.failed(1));
    for (name, required) in [
        ("bound", None),
        ("frozen", Some("Disabled")),
        ("leaving", None),
        ("plain", Some("portolan")),
        ("remote", Some("portolan")),
        ("second", Some("portolan")),
        ("unknown", None),
        ("unreadable", None),
    ] {
        assert_eq!(site.required(name).await.as_deref(), required, "{name}");
    }
    expect(&site.takeover(&["--all", "--dry-run"]).await.failed(1));

    let error = site.takeover(&["frozen", "--give-back"]).await.failed(1);
    assert!(error.contains("requires version \"Disabled\""), "{error}");
    assert_eq!(site.required("frozen").await.as_deref(), Some("Disabled"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_application_or_a_clear_set_of_them_is_named() {
    for arguments in [&["shop", "--all"][..], &["shop", "-A"], &["-A", "-n", "team"], &[]] {
        let command = ["vela", "takeover", VERSION];
        execute(&[&command, arguments].concat()).await.failed(2);
    }
}

/// Creates an Application whose workflow has ended, with its revision and its object, a ConfigMap.
async fn create_deployed(site: &Site) {
    let spec = json!({ "components": [config("web", json!({ "text": "one" }))] });
    let uid = create_finished(site, spec).await;
    let manifest = owned(site, "web", "shop", json!({ "text": "one" }));
    site.create_config_map(&manifest).await;
    let elsewhere = serde_json::from_value(json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "other", "namespace": "vela-system",
    }));
    let entries = vec![site.entry(&manifest), elsewhere.unwrap()];
    site.create_tracker("shop", &uid, 1, encode(entries, None).unwrap())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_shows_what_the_first_pass_would_change() {
    // A component refers to objects by a definition of the starter set.
    crate::oam_apps::setup::shared().await;
    let site = Site::new().await;
    create_deployed(&site).await;
    let namespace = &site.namespace;
    let version = site.application("shop").await.resource_version();
    let same = site.preview("shop").await;
    let elsewhere = "elsewhere Application other (Namespace: vela-system): in another namespace, where it may get \
                     other privileges; it is kept";
    assert_line(&same, &format!("{namespace}/shop: would be taken over"));
    assert_line(&same, elsewhere);
    assert_line(&same, "unchanged 1 objects");
    assert_eq!(same.lines().count(), 3, "{same}");

    let drift = Patch::Merge(json!({ "data": { "text": "drifted" } }));
    let parameters = PatchParams::default();
    site.config_maps().patch("web", &parameters, &drift).await.unwrap();
    let drifted = site.preview("shop").await;
    assert_line(&drifted, &format!("change ConfigMap {namespace}/web"));
    assert_line(&drifted, "+ data.text: \"one\"");
    assert!(
        !drifted.contains("revision") && !drifted.contains("unchanged"),
        "{drifted}"
    );
    assert_eq!(site.application("shop").await.resource_version(), version);
    assert_eq!(site.required("shop").await, None);

    let spec = json!({ "components": [config("web", json!({ "text": "two" }))] });
    site.edit("shop", json!({ "spec": spec })).await;
    let changed = site.preview("shop").await;
    assert_line(&changed, "revision a new one is created, and the workflow runs");
    assert_line(&changed, "+ data.text: \"two\"");

    let user = json!({ "metadata": { "annotations": { SERVICE_ACCOUNT_ANNOTATION: "deployer" } } });
    site.edit("shop", user).await;
    let limited = site.preview("shop").await;
    assert_line(&limited, "+ data.text: \"two\"");
    assert!(!limited.contains("elsewhere"), "{limited}");

    let properties = json!({ "objects": [{ "resource": "configmap", "name": "web" }] });
    let copy = json!({ "name": "copy", "type": "ref-objects", "properties": properties });
    site.create_application("copies", json!({ "components": [copy] })).await;
    let unknown = site.preview("copies").await;
    assert_line(
        &unknown,
        "unknown changes: component copy with references to existing objects",
    );

    let step = json!({ "name": "deploy", "type": "apply-component", "properties": { "component": "missing" } });
    let components = [config("web", json!({ "text": "one" }))];
    let stuck = json!({ "components": components, "workflow": { "steps": [step] } });
    site.create_application("stuck", stuck).await;
    let output = site.takeover(&["stuck", "--dry-run"]).await;
    assert_eq!(output.stdout, "");
    assert!(output.failed(1).contains("/stuck: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_of_components_that_call_functions_are_unknown_and_none_is_removed() {
    let site = Site::new().await;
    create_deployed(&site).await;
    site.define("calls", &format!("import \"vela/kube\"\n{CONFIG}")).await;
    let renamed = config("api", json!({ "text": "one" }));
    let spec = json!({ "components": [renamed] });
    site.edit("shop", json!({ "spec": spec })).await;
    let known = site.preview("shop").await;
    assert!(known.contains("remove "), "{known}");

    let calls = json!({ "name": "web", "type": "calls", "properties": { "text": "one" } });
    let spec = json!({ "components": [calls, renamed] });
    site.edit("shop", json!({ "spec": spec })).await;
    let unknown = site.preview("shop").await;
    assert_line(&unknown, "unknown changes: component web calls functions");
    assert_line(&unknown, &format!("create ConfigMap {}/api", site.namespace));
    assert!(!unknown.contains("remove "), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_version_needs_the_definitions_of_its_revision_alone() {
    let site = Site::new().await;
    let spec = json!({ "components": [{ "name": "web", "type": "pinned" }] });
    site.create_application("shop", spec.clone()).await;
    let version = json!({ "metadata": { "annotations": { "app.oam.dev/publishVersion": "one" } } });
    site.edit("shop", version).await;
    let latest = json!({ "name": "shop-v1", "revision": 1 });
    site.set_status("shop", json!({ "latestRevision": latest })).await;
    let error = site.takeover(&["shop"]).await.failed(1);
    assert!(error.contains("/shop: cannot be parsed: "), "{error}");

    let recorded = json!({
        "application": application("shop", spec),
        "componentDefinitions": { "pinned": definition("pinned", CONFIG) },
    });
    site.create_revision("shop-v1", "shop", Some("one"), recorded).await;
    site.takeover(&["shop"]).await.ok();
    assert_eq!(site.required("shop").await.as_deref(), Some("portolan"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_changes_meanwhile_is_taken_over_only_if_its_status_alone_did() {
    let site = Site::new().await;
    site.define_worker().await;
    for name in ["changed", "running"] {
        site.create_application(name, worker("nginx:1")).await;
    }
    let changed = site.takeover_during("changed", site.edit("changed", json!({ "spec": worker("nginx:2") })));
    let error = changed.await.failed(1);
    assert!(
        error.contains("/changed: has changed meanwhile; run the command again"),
        "{error}"
    );
    assert_eq!(site.required("changed").await, None);

    let running = site.set_status("running", json!({ "status": "running" }));
    let output = site.takeover_during("running", running).await.ok();
    assert_eq!(output, format!("{}/running: taken over\n", site.namespace));
    assert!(site.required("running").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_whose_revision_lacks_data_of_secrets_is_not_given_back() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    site.require("shop", "portolan").await;
    let recorded = json!({ "application": application("shop", worker("nginx:1")) });
    site.create_revision("shop-v1", "shop", None, recorded).await;
    let revisions: Api<ApplicationRevision> = Api::namespaced(site.client.clone(), &site.namespace);
    let mark = async |value: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { REDACTED: value } } }));
        let parameters = PatchParams::default();
        revisions.patch("shop-v1", &parameters, &patch).await.unwrap();
    };
    mark("true".into()).await;
    for more in [&["--dry-run"][..], &[]] {
        let error = site
            .takeover(&[&["shop", "--give-back"], more].concat())
            .await
            .failed(1);
        assert!(
            error.contains("/shop: vela-core would deploy empty Secrets from shop-v1"),
            "{error}"
        );
    }
    assert_eq!(site.required("shop").await.as_deref(), Some("portolan"));

    mark(Value::Null).await;
    site.takeover(&["shop", "--give-back"]).await.ok();
    assert_eq!(site.required("shop").await, None);
}
