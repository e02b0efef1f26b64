//! Users and groups that the webhook records, and rights to definitions.

use serde_json::{Value, json};

use super::site::{Reviewed, Written, application};
use crate::oam_apps::APPLICATION;
use crate::oam_apps::apps::{config, spec};

const GATE: &str = "--feature-gates=AuthenticateApplication=true";
/// The webhooks of these tests are called for one namespace only.
const TRUST: &str = "--trust-identity-annotations";
const MASTERS: &str = "system:masters";

fn annotated(annotations: &Value) -> Value {
    let mut app = application("app", spec(&[config("a", "one")]));
    app["metadata"]["annotations"] = annotations.clone();
    app
}

async fn create_as(reviewed: &Reviewed, user: &str, groups: &[&str], app: &Value) -> Written {
    let groups: Vec<&str> = groups.iter().copied().chain([MASTERS]).collect();
    reviewed
        .write("POST", "applications", "", app, Some((user, &groups)))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_match_are_recorded_and_forged_annotations_are_cleared() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[GATE, TRUST]).await;
    let forged = json!({ "app.oam.dev/username": "admin", "app.oam.dev/group": "system:masters" });
    let groups = ["kubevela:client", "dev", "kubevela:admin"];
    let created = create_as(&reviewed, "alice", &groups, &annotated(&forged)).await;
    assert_eq!(created.code, 201, "{created:?}");
    let annotations = &created.body["metadata"]["annotations"];
    assert_eq!(annotations["app.oam.dev/group"], "kubevela:client,kubevela:admin");
    assert_eq!(annotations["app.oam.dev/username"], Value::Null);

    let account = json!({ "app.oam.dev/service-account-name": "admin" });
    let refused = create_as(&reviewed, "alice", &[], &annotated(&account)).await;
    assert_eq!(refused.code, 400, "{refused:?}");
    let expected = "service-account annotation is not permitted when authentication enabled";
    assert!(refused.message().contains(expected), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_author_is_recorded_and_portolan_is_not() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed
        .portolan(&[
            GATE,
            TRUST,
            "--authentication-with-user",
            "--authentication-group-pattern=*",
        ])
        .await;
    let created = create_as(&reviewed, "alice", &[], &annotated(&json!({}))).await;
    assert_eq!(
        created.body["metadata"]["annotations"]["app.oam.dev/username"], "alice",
        "{created:?}"
    );
    let bob = Some(("bob", &[MASTERS][..]));
    let change = json!({ "spec": spec(&[config("a", "two")]) });
    let changed = reviewed.write("PATCH", "applications", "/app", &change, bob).await;
    assert_eq!(
        changed.body["metadata"]["annotations"]["app.oam.dev/username"], "bob",
        "{changed:?}"
    );
    // Portolan's own writes, such as its finalizer, keep the author.
    let is_seen = |app: &Value| app["status"]["status"].is_string();
    let app = reviewed.site.until(APPLICATION, "app", "reconciled", is_seen).await;
    assert_eq!(app["metadata"]["annotations"]["app.oam.dev/username"], "bob");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_author_without_the_right_to_a_definition_is_refused() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed
        .portolan(&["--feature-gates=ValidateDefinitionPermissions=true"])
        .await;
    let rules = json!([{ "apiGroups": ["core.oam.dev"], "resources": ["applications"], "verbs": ["*"] }]);
    let role = "rbac.authorization.k8s.io/v1 Role";
    reviewed.site.apply(role, "author", json!({ "rules": rules })).await;
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "author" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol" }],
    });
    reviewed
        .site
        .apply("rbac.authorization.k8s.io/v1 RoleBinding", "author", binding)
        .await;
    let app = annotated(&json!({}));
    let carol = Some(("carol", &[][..]));
    let refused =
        crate::support::eventually::eventually(crate::support::eventually::SOON, "the role to count", async || {
            let written = reviewed.write("POST", "applications", "", &app, carol).await;
            if written.code == 403 {
                Err(format!("{written:?}"))
            } else {
                Ok(written)
            }
        })
        .await;
    assert_eq!(refused.code, 400, "{refused:?}");
    let namespace = &reviewed.site.namespace;
    let expected = format!(
        "user \"carol\" cannot get ComponentDefinition \"k8s-objects\" in namespace \"{namespace}\" or \"vela-system\""
    );
    assert!(refused.message().contains(&expected), "{}", refused.message());
    assert_eq!(create_as(&reviewed, "alice", &[], &app).await.code, 201);
}
