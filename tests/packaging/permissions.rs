//! The exact permissions of each setting of the chart.

mod features;
mod serve;

use std::collections::{BTreeMap, BTreeSet};

use portolan::controllers::application::kinds::{DEFAULT, PROTECTED};
use portolan::runtime::leader_election::MAX_SHARDS;
use serde_json::Value;

use super::release::{CONTROLLER, SERVE};
use super::{KUBE_VERSION, chart, documents, helm_output};
use crate::support::control_plane::control_plane;
use crate::support::process::ScratchDir;
use crate::support::project;

/// Returns the rules of the controller's roles as `resource: verbs`, by role and namespace.
async fn permissions(settings: &[&str]) -> BTreeMap<String, Vec<String>> {
    permissions_of(CONTROLLER, settings).await
}

async fn permissions_of(account: &str, settings: &[&str]) -> BTreeMap<String, Vec<String>> {
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        "sea",
        "--no-hooks",
    ];
    let documents = documents(&helm_output(&[&arguments, settings].concat()).await);
    let of_kind = |suffix: &str| {
        let is_kind = move |document: &&Value| document["kind"].as_str().is_some_and(|kind| kind.ends_with(suffix));
        documents.iter().filter(is_kind).collect::<Vec<_>>()
    };
    let mut permissions = BTreeMap::new();
    for binding in of_kind("RoleBinding") {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let namespace = &binding["metadata"]["namespace"];
        let subject = binding["subjects"][0]["name"].as_str().unwrap();
        assert!([CONTROLLER, SERVE].contains(&subject), "{binding}");
        if subject != account {
            continue;
        }
        assert_eq!(binding["kind"], format!("{}Binding", kind.as_str().unwrap()));
        if name == "cluster-admin" {
            permissions.insert("cluster-admin".to_owned(), vec!["*: *".to_owned()]);
            continue;
        }
        let role = of_kind("Role").into_iter().find(|role| {
            &role["kind"] == kind && &role["metadata"]["name"] == name && &role["metadata"]["namespace"] == namespace
        });
        let rules = role.expect("the bound role")["rules"].as_array().unwrap();
        let scope = namespace.as_str().unwrap_or("everywhere");
        let key = format!("{} in {scope}", name.as_str().unwrap());
        permissions.insert(key, rules.iter().map(rule).collect());
    }
    permissions
}

fn rule(rule: &Value) -> String {
    let words = |field: &str| {
        let words = rule[field].as_array().into_iter().flatten();
        words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let names = match words("resourceNames") {
        names if names.is_empty() => names,
        names => format!(" {names}"),
    };
    format!("{}{names}: {}", words("resources"), words("verbs"))
}

const REPOSITORIES: [&str; 3] = [
    "apprepositories: list watch patch",
    "apprepositories/status: patch",
    "events: create",
];

fn expected(roles: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let origin = (
        "sea:portolan:origin in everywhere",
        &["namespaces kube-system: get"][..],
    );
    expected_in_all(&[roles, &[origin]].concat())
}

fn expected_in_all(roles: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
    roles
        .iter()
        .map(|(role, rules)| ((*role).to_owned(), owned(rules)))
        .collect()
}

/// Returns the rules on repositories with a rule on Secrets.
fn with(secrets: &str) -> Vec<&str> {
    REPOSITORIES.into_iter().chain([secrets]).collect()
}

#[tokio::test]
async fn the_documented_role_gives_kubeapps_service_account_the_same_permissions() {
    let page = std::fs::read_to_string(project("docs/how-to/kubeapps.md")).unwrap();
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let manifest = blocks
        .into_iter()
        .find(|block| block.contains("kind: ClusterRole"))
        .unwrap();
    let rules = documents(manifest)[0]["rules"].as_array().unwrap().clone();
    let expected: Vec<&str> = with("secrets: get")
        .into_iter()
        .chain(["namespaces kube-system: get"])
        .collect();
    assert_eq!(rules.iter().map(rule).collect::<Vec<_>>(), expected);

    let directory = ScratchDir::new("docs");
    let file = directory
        .write("permissions.yaml", manifest.replace("name: NAME", "name: controller"))
        .display()
        .to_string();
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", &file];
    let accepted = control_plane().await.kubectl(&apply).await;
    assert!(accepted.contains("clusterrolebinding"), "{accepted}");
}

#[tokio::test]
async fn by_default_secrets_are_read_by_name_and_cron_jobs_listed() {
    let by_default = expected(&[
        ("sea:portolan in everywhere", &with("secrets: get")),
        ("sea:portolan:kubeapps in sea", &["cronjobs: list"]),
    ]);
    assert_eq!(permissions(&[]).await, by_default);
}

#[tokio::test]
async fn permissions_on_secrets_can_be_disabled() {
    let none = expected(&[
        ("sea:portolan in everywhere", &REPOSITORIES),
        ("sea:portolan:kubeapps in sea", &["cronjobs: list"]),
    ]);
    assert_eq!(permissions(&["--set=rbac.secrets=false"]).await, none);
    assert_eq!(permissions(&["--set=rbac.secrets=false,watchSecrets=true"]).await, none);
}

#[tokio::test]
async fn authorizing_readers_of_metrics_adds_reviews() {
    let all = permissions(&["--set=metrics.auth=true"]).await;
    let reviews = ["tokenreviews: create", "subjectaccessreviews: create"];
    assert_eq!(all["sea:portolan:origin in everywhere"][1..], reviews);
}

#[tokio::test]
async fn watching_secrets_and_adopting_cron_jobs_add_the_required_verbs() {
    let settings = "--set=watchSecrets=true,adoptKubeapps=true,kubeappsNamespace=apps";
    let more = expected(&[
        ("sea:portolan in everywhere", &with("secrets: get list watch")),
        ("sea:portolan:kubeapps in apps", &["cronjobs: list delete"]),
    ]);
    assert_eq!(permissions(&[settings]).await, more);
}

#[tokio::test]
async fn permissions_are_limited_to_the_watched_namespace_and_that_of_kubeapps() {
    let one = expected(&[
        ("portolan in team", &with("secrets: get")),
        ("sea:portolan:kubeapps in team", &["cronjobs: list"]),
    ]);
    assert_eq!(permissions(&["--set=watchNamespace=team"]).await, one);
    let two = expected(&[
        ("portolan in team", &with("secrets: get list watch")),
        (
            "sea:portolan:kubeapps in apps",
            &["cronjobs: list", "events: create", "secrets: get list watch"],
        ),
    ]);
    let settings = "--set=watchNamespace=team,kubeappsNamespace=apps,watchSecrets=true";
    assert_eq!(permissions(&[settings]).await, two);
}

const APPLICATIONS: [&str; 3] = [
    "applications: get list watch patch",
    "applications/status: patch",
    "applications/finalizers: update",
];

const ORIGIN_AND_DEFINITIONS: (&str, &[&str]) = (
    "sea:portolan:origin in everywhere",
    &["namespaces kube-system: get", "customresourcedefinitions: list watch"],
);

const COMPONENTS: [&str; 6] = [
    "configmaps persistentvolumeclaims pods replicationcontrollers services: get list watch patch",
    "daemonsets deployments replicasets statefulsets: get list watch patch",
    "horizontalpodautoscalers: get list watch patch",
    "cronjobs jobs: get list watch patch",
    "ingresses: get list watch patch",
    "poddisruptionbudgets: get list watch patch",
];

#[tokio::test]
async fn applications_add_permissions_on_their_kinds_in_the_watched_namespaces() {
    let rules = [&with("secrets: get")[..], &APPLICATIONS, &COMPONENTS].concat();
    let everywhere = expected_in_all(&[
        ("sea:portolan in everywhere", &rules),
        ("sea:portolan:kubeapps in sea", &["cronjobs: list"]),
        ORIGIN_AND_DEFINITIONS,
    ]);
    assert_eq!(permissions(&["--set=applications.enabled=true"]).await, everywhere);
    let in_one = expected_in_all(&[
        ("portolan in team", &rules),
        ("sea:portolan:kubeapps in team", &["cronjobs: list"]),
        ORIGIN_AND_DEFINITIONS,
    ]);
    let settings = "--set=applications.enabled=true,watchNamespace=team";
    assert_eq!(permissions(&[settings]).await, in_one);
}

const OAM: [&str; 13] = [
    "applications: get list watch patch",
    "applicationrevisions: get list watch create update patch delete",
    "definitionrevisions: get list watch create delete",
    "resourcetrackers: get list watch create update patch delete",
    "componentdefinitions policydefinitions policies traitdefinitions workflows workflowstepdefinitions \
     workloaddefinitions: list watch",
    "applicationrevisions/status applications/status componentdefinitions/status policydefinitions/status \
     traitdefinitions/status workflowstepdefinitions/status: patch",
    "configmaps: get create patch",
    "events: create",
    "horizontalpodautoscalers: list",
    "customresourcedefinitions: list watch",
    "mutatingwebhookconfigurations validatingwebhookconfigurations: list",
    "endpointslices: list",
    "services: get",
];

#[tokio::test]
async fn the_controller_of_kubevelas_applications_may_do_everything_unless_rules_are_given() {
    let (repositories, read_shards) = (with("secrets: get"), read_shards("kubevela"));
    let others = [
        ("sea:portolan in everywhere", &repositories[..]),
        ("sea:portolan:kubeapps in sea", &["cronjobs: list"][..]),
    ];
    let admin = [
        ("cluster-admin", &["*: *"][..]),
        (
            "sea:portolan:leader in vela-system",
            &["leases kubevela: get", &read_shards][..],
        ),
    ];
    let by_default = permissions(&["--set=oam.enabled=true"]).await;
    assert_eq!(by_default, expected(&[&others[..], &admin].concat()));

    let rules = [&OAM[..], &["deployments: get list watch"]].concat();
    let limited = [
        ("sea:portolan:oam in everywhere", &rules[..]),
        (
            "sea:portolan:leader in apps",
            &["leases kubevela: get update", &read_shards, "leases: create"][..],
        ),
    ];
    let settings = [
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace=apps,leaderElection.enabled=true",
        r#"--set-json=oam.rules=[{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]}]"#,
    ];
    assert_eq!(
        permissions(&settings).await,
        expected(&[&others[..], &limited].concat())
    );
}

#[tokio::test]
async fn joined_clusters_add_permissions_on_the_secrets_beside_the_definitions() {
    let settings =
        "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.namespace=apps,oam.clusters.enabled=true";
    let all = permissions(&[settings]).await;
    assert_eq!(all["sea:portolan:clusters in apps"], ["secrets: get list watch"]);
    let added = [
        "namespaces kube-system: get",
        "clustergateways/proxy: get create update patch delete",
        "managedclusters: get list watch",
    ];
    assert_eq!(all["sea:portolan:oam in everywhere"][OAM.len()..], added);
    let admin = permissions(&["--set=oam.enabled=true,oam.clusters.enabled=true"]).await;
    assert!(!admin.keys().any(|role| role.contains("clusters")), "{admin:#?}");
}

#[tokio::test]
async fn webhooks_add_permissions_for_their_certificate_and_for_what_they_look_up() {
    let added = async |more: &str| {
        let settings = format!("--set=oam.enabled=true,oam.clusterAdmin=false,{more}");
        let before = permissions(&[&settings]).await;
        let mut after = permissions(&[&settings, "--set=oam.webhooks.enabled=true"]).await;
        after.retain(|role, _| !before.contains_key(role));
        after
    };
    let reviews = ["subjectaccessreviews: create", "workloaddefinitions: get create"];
    let configurations =
        "mutatingwebhookconfigurations validatingwebhookconfigurations sea-portolan-admission: get patch";
    let all = [&reviews[..], &[configurations]].concat();
    let certificate = ["secrets portolan-webhook: get update", "secrets: create"];
    let own = [
        ("sea:portolan:webhooks in everywhere", &all[..]),
        ("sea:portolan:certificate in sea", &certificate[..]),
    ];
    assert_eq!(added("replicas=1").await, expected_in_all(&own));
    let given = ("sea:portolan:webhooks in everywhere", &reviews[..]);
    let shards = ("sea:portolan:pods in sea", &["pods: list"][..]);
    let settings = "oam.webhooks.certificateSecret=mine,oam.webhooks.caBundle=Cg==,oam.args={--enable-sharding}";
    assert_eq!(added(settings).await, expected_in_all(&[given, shards]));
    let admin = permissions(&["--set=oam.enabled=true,oam.webhooks.enabled=true"]).await;
    let is_added = |role: &String| role.contains("webhooks") || role.contains("certificate");
    assert!(!admin.keys().any(is_added), "{admin:#?}");
}

/// Returns the rule by which replicas with shards are found, of before an upgrade.
fn read_shards(lease: &str) -> String {
    let names = (0..MAX_SHARDS).map(|shard| format!("{lease}-{shard}"));
    format!("leases {}: get", names.collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn leases_are_written_by_name_and_listed_only_with_shards() {
    let leader = async |settings: &str, role: &str| {
        let settings = format!("--set=database.existingSecret=postgres,{settings}");
        permissions(&[&settings]).await.remove(role)
    };
    let own = "portolan:leader in sea";
    assert_eq!(leader("replicas=1", own).await, None);
    let written = |lease: &str| {
        vec![
            format!("leases {lease}: get update"),
            read_shards(lease),
            "leases: create".to_owned(),
        ]
    };
    assert_eq!(leader("replicas=2", own).await, Some(written("portolan")));
    assert_eq!(
        leader("replicas=2,watchLabelSelector=team=a", own).await,
        Some(written("portolan"))
    );
    let named = leader("replicas=2,extraArgs={--leader-election-name=blue}", own).await;
    assert_eq!(named, Some(written("blue")));
    let in_two_words = leader("replicas=2,extraArgs={--leader-election-name,blue.green}", own).await;
    assert_eq!(in_two_words, Some(written("blue.green")));
    let shards = leader("replicas=2,shards=3", own).await;
    let expected = [
        "leases portolan-0 portolan-1 portolan-2: get update",
        "leases: create list delete",
    ];
    assert_eq!(shards, Some(expected.map(str::to_owned).into()));
    // The name of vela-core's Lease depends on flags whose defaults the chart does not know.
    let sharded = leader(
        "replicas=2,oam.enabled=true,oam.args={--enable-sharding}",
        "sea:portolan:leader in vela-system",
    )
    .await;
    assert_eq!(
        sharded,
        Some(["leases: get update", "leases: create"].map(str::to_owned).into())
    );
}

/// Returns the resources of the definitions that the init container installs.
fn starter_set_resources() -> Vec<String> {
    let directories = std::fs::read_dir(project("definitions")).unwrap();
    let directories = directories
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    let files = directories.flat_map(|directory| std::fs::read_dir(directory).unwrap());
    let kinds = files.map(|file| {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let definition: Value = serde_yaml::from_str(&text).unwrap();
        format!("{}s", definition["kind"].as_str().unwrap().to_lowercase())
    });
    Vec::from_iter(kinds.collect::<BTreeSet<_>>())
}

#[tokio::test]
async fn installing_definitions_adds_permissions_to_write_them() {
    let settings = "--set=oam.enabled=true,oam.clusterAdmin=false,oam.definitions.install=true";
    let all = permissions(&[settings]).await;
    let added = [
        "customresourcedefinitions: get create patch".to_owned(),
        format!("{}: get create patch", starter_set_resources().join(" ")),
    ];
    assert_eq!(all["sea:portolan:oam in everywhere"][OAM.len()..], added);
}

#[tokio::test]
async fn identities_of_applications_are_impersonated_only_if_chosen() {
    for (choice, resources) in [
        ("serviceAccounts", "serviceaccounts"),
        ("users", "serviceaccounts users groups"),
    ] {
        let settings = format!("--set=oam.enabled=true,oam.clusterAdmin=false,oam.impersonate={choice}");
        let all = permissions(&[&settings]).await;
        let added = [
            format!("{resources}: impersonate"),
            "subjectaccessreviews: create".to_owned(),
        ];
        assert_eq!(all["sea:portolan:oam in everywhere"][OAM.len()..], added);
    }
}

/// Returns the rules on components with these kinds.
async fn component_rules(kinds: &str) -> Vec<String> {
    let kinds = format!("--set-json=applications.kinds={kinds}");
    let mut permissions = permissions(&["--set=applications.enabled=true", &kinds]).await;
    let rules = permissions.remove("sea:portolan in everywhere").unwrap();
    rules
        .into_iter()
        .skip(REPOSITORIES.len() + 1 + APPLICATIONS.len())
        .collect()
}

#[tokio::test]
async fn permissions_on_components_follow_the_kinds() {
    assert_eq!(component_rules("[]").await, COMPONENTS);
    assert_eq!(
        component_rules(r#"["apps/Deployment", "+example.com/Policy"]"#).await,
        ["deployments: get list watch patch", "policies: get list watch patch"]
    );
    // What is protected may be read only, unless it is named; Secrets and cluster-scoped kinds are never granted.
    let all = component_rules(r#"["*", "+/ResourceQuota", "+Secret", "+/Namespace"]"#).await;
    let quotas =
        "configmaps persistentvolumeclaims pods replicationcontrollers resourcequotas services: get list watch patch";
    let readable = [
        "limitranges serviceaccounts: get list watch",
        "networkpolicies: get list watch",
        "roles rolebindings: get list watch",
    ];
    assert_eq!(all, [&[quotas], &COMPONENTS[1..], &readable].concat());
}

#[tokio::test]
async fn more_permissions_on_components_can_be_added() {
    let rules = r#"--set-json=applications.componentRules=[{"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["list"]}]"#;
    let permissions = permissions(&["--set=applications.enabled=true", rules]).await;
    assert_eq!(permissions["sea:portolan in everywhere"].last().unwrap(), "*: list");
}

/// Returns the resources of these kinds as `GROUP/PLURAL`, as the API server serves them. All are namespaced.
async fn resources(kinds: &[(&str, &str)]) -> BTreeSet<String> {
    let client = control_plane().await.client().await;
    let discovery = kube::Discovery::new(client).run_aggregated().await.unwrap();
    let resource = |(group, kind): &(&str, &str)| {
        let group = discovery.groups().find(|served| served.name() == *group).unwrap();
        let (resource, capabilities) = group.recommended_kind(kind).unwrap();
        assert_eq!(capabilities.scope, kube::discovery::Scope::Namespaced, "{kind}");
        format!("{}/{}", resource.group, resource.plural)
    };
    kinds.iter().map(resource).collect()
}

#[tokio::test]
async fn permissions_on_components_are_those_of_the_kinds_in_the_binary() {
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--show-only=templates/rbac.yaml",
    ];
    let rendered = async |kinds: &str| {
        let settings = ["--set=applications.enabled=true", "--set-json", kinds];
        let rendered = helm_output(&[&arguments[..], &settings].concat()).await;
        let rules = documents(&rendered)[0]["rules"].as_array().unwrap().clone();
        let components = rules.into_iter().skip(REPOSITORIES.len() + 1 + APPLICATIONS.len());
        let resources = components.flat_map(|rule| {
            let group = rule["apiGroups"][0].as_str().unwrap().to_owned();
            let names = rule["resources"].as_array().unwrap().clone();
            names
                .into_iter()
                .map(move |name| format!("{group}/{}", name.as_str().unwrap()))
        });
        resources.collect::<BTreeSet<_>>()
    };
    let default = resources(&DEFAULT).await;
    assert_eq!(rendered("applications.kinds=[]").await, default);
    let protected = resources(&PROTECTED).await;
    let all = default.union(&protected).cloned().collect();
    assert_eq!(rendered(r#"applications.kinds=["*"]"#).await, all);
}
