//! The definitions in `definitions/`, which are part of the executable.

/// Returns path and text of each file.
macro_rules! files {
    ($($path:literal,)*) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/definitions/", $path)))),*]
    };
}

/// Paths below `definitions/`, and the texts.
pub const STARTER_SET: &[(&str, &str)] = files![
    "components/cron-task.yaml",
    "components/daemon.yaml",
    "components/k8s-objects.yaml",
    "components/raw.yaml",
    "components/ref-objects.yaml",
    "components/statefulset.yaml",
    "components/task.yaml",
    "components/webservice.yaml",
    "components/worker.yaml",
    "policies/apply-once.yaml",
    "policies/garbage-collect.yaml",
    "policies/override.yaml",
    "policies/read-only.yaml",
    "policies/replication.yaml",
    "policies/resource-update.yaml",
    "policies/shared-resource.yaml",
    "policies/take-over.yaml",
    "policies/topology.yaml",
    "traits/affinity.yaml",
    "traits/annotations.yaml",
    "traits/command.yaml",
    "traits/configmap.yaml",
    "traits/container-image.yaml",
    "traits/container-ports.yaml",
    "traits/cpuscaler.yaml",
    "traits/env.yaml",
    "traits/expose.yaml",
    "traits/gateway.yaml",
    "traits/hostalias.yaml",
    "traits/hpa.yaml",
    "traits/ingress-1-20.yaml",
    "traits/ingress.yaml",
    "traits/init-container.yaml",
    "traits/json-merge-patch.yaml",
    "traits/json-patch.yaml",
    "traits/k8s-update-strategy.yaml",
    "traits/labels.yaml",
    "traits/lifecycle.yaml",
    "traits/nocalhost.yaml",
    "traits/node-affinity.yaml",
    "traits/podsecuritycontext.yaml",
    "traits/pure-ingress.yaml",
    "traits/pvc.yaml",
    "traits/resource.yaml",
    "traits/scaler.yaml",
    "traits/securitycontext.yaml",
    "traits/service-account.yaml",
    "traits/service-binding.yaml",
    "traits/sidecar.yaml",
    "traits/startup-probe.yaml",
    "traits/storage.yaml",
    "traits/topologyspreadconstraints.yaml",
    "traits/volumes.yaml",
    "workflowsteps/apply-application-in-parallel.yaml",
    "workflowsteps/apply-application.yaml",
    "workflowsteps/apply-component.yaml",
    "workflowsteps/apply-deployment.yaml",
    "workflowsteps/apply-object.yaml",
    "workflowsteps/apply-remaining.yaml",
    "workflowsteps/apply-terraform-config.yaml",
    "workflowsteps/apply-terraform-provider.yaml",
    "workflowsteps/check-metrics.yaml",
    "workflowsteps/clean-jobs.yaml",
    "workflowsteps/collect-service-endpoints.yaml",
    "workflowsteps/create-config.yaml",
    "workflowsteps/delete-config.yaml",
    "workflowsteps/depends-on-app.yaml",
    "workflowsteps/deploy.yaml",
    "workflowsteps/export-data.yaml",
    "workflowsteps/export-service.yaml",
    "workflowsteps/export2config.yaml",
    "workflowsteps/export2secret.yaml",
    "workflowsteps/generate-jdbc-connection.yaml",
    "workflowsteps/list-config.yaml",
    "workflowsteps/notification.yaml",
    "workflowsteps/print-message-in-status.yaml",
    "workflowsteps/read-config.yaml",
    "workflowsteps/read-object.yaml",
    "workflowsteps/request.yaml",
    "workflowsteps/restart-workflow.yaml",
    "workflowsteps/step-group.yaml",
    "workflowsteps/suspend.yaml",
    "workflowsteps/webhook.yaml",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cmd::vela::manifests;
    use crate::cmd::vela::render::definition_set::DefinitionSet;

    #[test]
    fn all_definitions_of_the_repository_are_part_of_the_executable() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("definitions");
        let files = manifests::files(&directory).unwrap();
        let files = files
            .iter()
            .map(|file| file.strip_prefix(&directory).unwrap().to_str().unwrap());
        let embedded = STARTER_SET.iter().map(|(path, _)| *path);
        assert_eq!(embedded.collect::<Vec<_>>(), files.collect::<Vec<_>>());
        DefinitionSet::starter().map_err(|error| format!("{error:?}")).unwrap();
    }
}
