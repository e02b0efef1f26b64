//! Webhooks that are down.

use serde_json::json;

use super::site::{Reviewed, application};
use crate::oam_apps::APPLICATION;
use crate::oam_apps::apps::{config, spec};
use crate::support::eventually::SOON;
use crate::support::portolan::{command, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_process_the_failure_policy_decides() {
    let fail = Reviewed::new("Fail").await;
    let ignore = Reviewed::new("Ignore").await;
    let app = application("app", spec(&[config("a", "one")]));
    let refused = fail.create("applications", &app).await;
    assert_eq!(refused.code, 500, "{refused:?}");
    assert!(
        refused.message().contains("failed calling webhook"),
        "{}",
        refused.message()
    );
    assert_eq!(ignore.create("applications", &app).await.code, 201);
    // What passed without a review is deployed nevertheless.
    let _portolan = ignore.portolan(&[]).await;
    ignore.site.until_running("app").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_serves_webhooks_too_with_the_same_certificate() {
    let reviewed = Reviewed::new("Fail").await;
    let _leader = reviewed.portolan(&["--enable-leader-election"]).await;
    let other = Reviewed {
        port: crate::support::ports::free_port(),
        ..reviewed
    };
    // The configuration now names the port of the standby.
    let flags = other.flags();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.push("--enable-leader-election");
    let standby = other.site.portolan(&flags).await;
    standby.line_with("waiting for the leader lease", SOON).await;
    for (kind, count) in [
        ("MutatingWebhookConfiguration", 2),
        ("ValidatingWebhookConfiguration", 5),
    ] {
        let ports: Vec<_> = (0..count)
            .map(|index| json!({ "op": "replace", "path": format!("/webhooks/{index}/clientConfig/service/port"), "value": other.port }))
            .collect();
        let patch = json!(ports).to_string();
        other
            .site
            .control_plane
            .kubectl(&["patch", kind, &other.configuration(), "--type=json", "-p", &patch])
            .await;
    }
    other.until_called().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstall_removes_webhooks_before_finalizers() {
    let reviewed = Reviewed::new("Fail").await;
    let mut portolan = reviewed.portolan(&[]).await;
    assert_eq!(
        reviewed
            .create("applications", &application("app", spec(&[config("a", "one")])))
            .await
            .code,
        201
    );
    reviewed.site.until_running("app").await;
    portolan.signal("TERM");
    portolan.exit(SOON).await;
    reviewed.site.delete(APPLICATION, "app").await;
    let mut uninstall = command(["uninstall", "--kubevela", "--kubeconfig"]);
    uninstall.arg(reviewed.site.control_plane.kubeconfig()).args([
        format!("--namespace={}", reviewed.site.namespace),
        format!("--portolan-namespace={}", reviewed.site.namespace),
        format!("--kubeapps-namespace={}", reviewed.site.namespace),
        format!("--webhook-configuration={}", reviewed.configuration()),
    ]);
    let output = run(uninstall).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("2 webhook configurations deleted"), "{text}");
    reviewed.site.until_gone(APPLICATION, "app").await;
}
