//! Permissions of the service account of `portolan serve`, and of the controller that serves itself.

use super::{CONTROLLER, REPOSITORIES, SERVE, expected_in_all, permissions, permissions_of};

const POSTGRES: &str = "--set=serve.enabled=true,database.existingSecret=postgres";

const REVIEWS: [&str; 2] = ["tokenreviews: create", "subjectaccessreviews: create"];

const SERVING: (&str, &[&str]) = (
    "sea:portolan:serve in everywhere",
    &["namespaces kube-system: get", REVIEWS[0], REVIEWS[1]],
);

#[tokio::test]
async fn serving_needs_the_cluster_and_reviews_in_all_namespaces() {
    let serving = expected_in_all(&[SERVING]);
    for more in ["--set=watchSecrets=true", "--set=watchNamespace=team"] {
        assert_eq!(permissions_of(SERVE, &[POSTGRES, more]).await, serving, "{more}");
        let controller = permissions_of(CONTROLLER, &[POSTGRES, more]).await;
        let without = permissions(&["--set=database.existingSecret=postgres", more]).await;
        assert_eq!(controller, without, "{more}");
    }
}

#[tokio::test]
async fn archives_that_are_proxied_add_repositories_and_secrets_of_the_watched_namespaces() {
    let archives = ["apprepositories: get", "secrets: get"];
    for (more, roles) in [
        (
            "rbac.secrets=true",
            &[("sea:portolan:archives in everywhere", &archives[..])][..],
        ),
        (
            "rbac.secrets=false",
            &[("sea:portolan:archives in everywhere", &archives[..1])][..],
        ),
        (
            "watchNamespace=team",
            &[("sea:portolan:archives in team", &archives[..])][..],
        ),
        (
            "watchNamespace=team,kubeappsNamespace=apps",
            &[
                ("sea:portolan:archives in team", &archives[..]),
                ("sea:portolan:archives in apps", &archives[1..]),
            ][..],
        ),
    ] {
        let settings = format!("--set=serve.archives=proxy,{more}");
        let expected = expected_in_all(&[&[SERVING][..], roles].concat());
        assert_eq!(permissions_of(SERVE, &[POSTGRES, &settings]).await, expected, "{more}");
    }
}

#[tokio::test]
async fn a_controller_that_serves_has_the_rights_for_both() {
    let all = permissions(&["--set=serve.enabled=true"]).await;
    assert_eq!(all["sea:portolan:origin in everywhere"][1..], REVIEWS);
    assert_eq!(all["sea:portolan in everywhere"][0], REPOSITORIES[0]);
    let proxied = permissions(&["--set=serve.enabled=true,serve.archives=proxy"]).await;
    assert_eq!(
        proxied["sea:portolan in everywhere"][0],
        "apprepositories: get list watch patch"
    );
    assert!(permissions_of(SERVE, &["--set=serve.enabled=true"]).await.is_empty());
}

#[tokio::test]
async fn no_role_is_created_without_rbac() {
    let none = permissions_of(SERVE, &[POSTGRES, "--set=rbac.create=false,serve.archives=proxy"]).await;
    assert!(none.is_empty(), "{none:#?}");
}
