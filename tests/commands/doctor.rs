//! `portolan doctor` for the controllers of AppRepositories and of app.k8s.io. `oam_start` has that of KubeVela.

use std::process::Command;

use super::{CommandOutput, World, build_index, execute};
use crate::support::control_plane::ControlPlane;
use crate::support::portolan::command;

/// Runs doctor with a cluster.
async fn doctor(server: &ControlPlane, arguments: &[&str]) -> CommandOutput {
    let mut command: Command = command(["doctor", "--cue-evaluator=/nowhere", "--kubeconfig"]);
    command.arg(server.kubeconfig()).args(arguments);
    execute(command).await
}

/// Needs a control plane of its own: definitions are cluster-scoped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_checks_the_controllers_that_are_enabled() {
    let server = ControlPlane::start().await;
    let all = doctor(&server, &[]).await;
    assert_eq!(all.code, Some(1));
    for line in [
        "problem  no CUE evaluator",
        "ok       not installed: apprepositories of kubeapps.com/v1alpha1, so the controller apprepository has nothing to do",
        "ok       not installed: applications of app.k8s.io/v1beta1, so the controller application has nothing to do",
        "problem  custom resource definitions are missing: applications.core.oam.dev, ",
    ] {
        assert!(
            all.stdout.lines().any(|found| found.starts_with(line)),
            "{line} in {}",
            all.stdout
        );
    }
    let enabled = ["--controllers=apprepository,application"];
    let missing = doctor(&server, &enabled).await;
    assert!(!missing.stdout.contains("CUE evaluator"), "{}", missing.stdout);
    let problem = "problem  custom resource definitions are missing: apprepositories of kubeapps.com/v1alpha1; \
                   `portolan crds apprepositories --apply` installs them";
    assert!(missing.stdout.contains(problem), "{}", missing.stdout);
    assert_eq!(missing.failed(1), "error: 2 problems found\n");

    let mut install = command(["crds", "--apply", "--kubeconfig"]);
    install.arg(server.kubeconfig());
    execute(install).await.ok();
    let text = doctor(&server, &enabled).await.ok();
    let expected = [
        "ok       custom resource definitions of kubeapps.com are installed",
        "ok       rights are sufficient for the controller apprepository",
        "ok       custom resource definitions of app.k8s.io are installed",
        "ok       rights are sufficient for the controller application",
    ];
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines, expected);

    let namespace = server.namespace().await;
    let token = server.token_for(&namespace, "default").await;
    let mut command = command([
        "doctor",
        "--controllers=apprepository",
        "--watch-namespace=shop",
        "--kubeconfig",
    ]);
    command.arg(server.kubeconfig_for(&server.url(), &token));
    let unprivileged = execute(command).await;
    for line in [
        "problem  no right to patch apprepositories/status.kubeapps.com in namespace shop",
        "problem  no right to get namespaces kube-system",
    ] {
        assert!(
            unprivileged.stdout.lines().any(|found| found == line),
            "{}",
            unprivileged.stdout
        );
    }
    assert_eq!(unprivileged.failed(1), "error: 6 problems found\n");
}

#[tokio::test]
async fn doctor_names_the_schema_version_of_the_database() {
    let world = World::new().await;
    let doctor = async || {
        let mut command = world.command(&["doctor", "--controllers=application"]);
        command.arg("--apiserver=http://127.0.0.1:1");
        execute(command).await.stdout
    };
    let text = doctor().await;
    assert!(text.starts_with("problem  database "), "{text}");
    let url = world.serve("stable", build_index(1));
    world.execute(&["sync", "stable", &url, "helm"]).await.ok();
    let text = doctor().await;
    assert!(
        text.starts_with("ok       database answers, schema version 8\n"),
        "{text}"
    );
}
