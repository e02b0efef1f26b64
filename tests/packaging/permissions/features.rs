//! Permissions of leader election, shards and Jobs, and those of users.

use super::{
    KUBE_VERSION, SERVE, chart, documents, expected, helm_output, permissions, permissions_of, read_shards, rule, with,
};

#[tokio::test]
async fn leader_election_adds_permissions_on_leases_in_the_namespace_of_the_release() {
    let leader = |rules: &[&str]| {
        expected(&[
            ("portolan in team", &with("secrets: get")),
            ("portolan:leader in sea", rules),
            ("sea:portolan:kubeapps in team", &["cronjobs: list"]),
        ])
    };
    let read_shards = read_shards("portolan");
    let alone = leader(&["leases portolan: get update", &read_shards, "leases: create"]);
    let divided = leader(&["leases portolan-0 portolan-1: get update", "leases: create list delete"]);
    for (settings, expected) in [
        ("--set=leaderElection.enabled=true,watchNamespace=team", &alone),
        (
            "--set=replicas=2,database.existingSecret=postgres,watchNamespace=team",
            &alone,
        ),
        (
            "--set=shards=2,database.existingSecret=postgres,watchNamespace=team",
            &divided,
        ),
    ] {
        assert_eq!(permissions(&[settings]).await, *expected, "{settings}");
    }
}

#[tokio::test]
async fn releases_add_rights_to_secrets_and_config_maps_of_the_watched_namespaces_and_a_right_of_users() {
    let releases = [
        "secrets configmaps: get list watch",
        "helmreleases: list watch",
        "helmrepositories ocirepositories: list watch",
        "applications: list watch",
    ];
    for (settings, role) in [
        ("--set=releases.enabled=true", "sea:portolan in everywhere"),
        ("--set=releases.enabled=true,watchNamespace=team", "portolan in team"),
    ] {
        let all = permissions(&[settings]).await;
        let definitions = "customresourcedefinitions: list watch";
        assert_eq!(all["sea:portolan:origin in everywhere"][1], definitions);
        assert_eq!(all[role], [&with("secrets: get")[..], &releases].concat(), "{settings}");
    }
    // A Deployment that serves gets none.
    let postgres = "--set=releases.enabled=true,serve.enabled=true,database.existingSecret=postgres";
    let serving = permissions_of(SERVE, &[postgres]).await;
    assert!(!format!("{serving:?}").contains("secrets"), "{serving:?}");

    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--set=releases.enabled=true",
    ];
    let roles = helm_output(&[&arguments[..], &["--show-only=templates/user-roles.yaml"]].concat()).await;
    assert_eq!(rule(&documents(&roles)[0]["rules"][1]), "releases: list");
}

#[tokio::test]
async fn the_debug_bundle_adds_lists_of_events_and_leases() {
    let all = permissions(&["--set=rbac.debugBundle=true,rbac.secrets=false"]).await;
    assert_eq!(all["sea:portolan in everywhere"][3..], ["events: list", "leases: list"]);
}

#[tokio::test]
async fn jobs_add_permissions_in_the_namespace_of_kubeapps_only() {
    let database =
        "--set=database.url=postgres://db/charts,database.passwordSecret.name=postgres,kubeappsNamespace=apps";
    let jobs = expected(&[
        ("sea:portolan in everywhere", &with("secrets: get")),
        (
            "sea:portolan:kubeapps in apps",
            &[
                "cronjobs: get list watch create update patch delete",
                "jobs: list watch create patch delete",
                "apprepositories/finalizers: update",
                "pods: list watch",
                "secrets: get list create patch delete",
            ],
        ),
    ]);
    for setting in ["--set=executor.mode=job", "--set=executor.allowAnnotation=true"] {
        assert_eq!(permissions(&[database, setting]).await, jobs, "{setting}");
        let without_secrets = permissions(&[database, setting, "--set=rbac.secrets=false"]).await;
        let rules = &without_secrets["sea:portolan:kubeapps in apps"];
        assert_eq!(rules[..4], jobs["sea:portolan:kubeapps in apps"][..4], "{setting}");
        assert_eq!(rules[4..], ["secrets postgres: get"], "{setting}");
    }
}

#[tokio::test]
async fn the_controller_of_kubevelas_applications_alone_has_no_rights_to_repositories() {
    let settings = "--set=oam.enabled=true,oam.clusterAdmin=false,oam.args={--controllers=oam}";
    let roles: Vec<String> = permissions(&[settings]).await.into_keys().collect();
    assert_eq!(
        roles,
        ["sea:portolan:leader in vela-system", "sea:portolan:oam in everywhere"]
    );
}

#[tokio::test]
async fn users_get_permissions_on_applications_only_if_these_are_enabled() {
    let of_users = async |settings: &str| {
        let arguments = ["template", "portolan", &chart(), KUBE_VERSION, "--set", settings];
        helm_output(&[&arguments[..], &["--show-only=templates/user-roles.yaml"]].concat()).await
    };
    assert!(!of_users("").await.contains("app.k8s.io"));
    let roles = documents(&of_users("applications.enabled=true").await);
    let rules: Vec<String> = roles.iter().map(|role| rule(&role["rules"][1])).collect();
    assert_eq!(
        rules,
        [
            "applications applications/status: get list watch",
            "applications: create update patch delete deletecollection"
        ]
    );
}
