use std::time::Duration;

use clap::Args;

use crate::cmd::flags::cluster::{ClusterFlags, kubeapps_namespace, lease_namespace};
use crate::cmd::flags::{non_empty, parse::positive_duration};
use crate::cmd::{Error, output};
use crate::manager::uninstall::{self, Log, UninstallOptions};

/// Remove what Portolan left in the cluster: finalizers, CronJobs, Jobs, copies of Secrets, Leases
///
/// Stop Portolan first, or use --scale-down. Owner references, statuses, charts and custom resource definitions stay.
/// Applications that are being deleted release their components before. What remains is printed, and the command exits with
/// 1; it can be repeated.
#[derive(Args, Debug)]
pub struct Uninstall {
    /// Namespace of the AppRepositories and Applications (default: all namespaces)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only what belongs to the AppRepositories and Applications that this label selector matches, as for `portolan run`
    #[arg(long, value_name = "SELECTOR")]
    pub watch_label_selector: Option<String>,
    /// Namespace of Kubeapps, with CronJobs, Jobs and copies of Secrets (default: the namespace of the pod, or kubeapps
    /// outside of a pod)
    #[arg(long, value_name = "NAMESPACE")]
    pub kubeapps_namespace: Option<String>,
    /// Namespace of Portolan, with the Leases (default: the namespace of the pod, or that of --kubeapps-namespace)
    #[arg(long, value_name = "NAMESPACE")]
    pub portolan_namespace: Option<String>,
    /// Only the Leases of this name, as for `portolan run` (default: all Leases of Portolan)
    #[arg(long, value_name = "NAME")]
    pub leader_election_name: Option<String>,
    /// Remove the finalizers of KubeVela's Applications and ResourceTrackers too. Only if Portolan ran with the controller
    /// oam: KubeVela's own controller uses the same finalizers
    #[arg(long)]
    pub kubevela: bool,
    /// Delete the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration of this name, which refuse all writes to
    /// KubeVela's Applications once nothing serves them
    #[arg(long, value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// Scale this Deployment in Portolan's namespace to 0 first, and wait until its pods are gone
    #[arg(long, value_name = "DEPLOYMENT")]
    pub scale_down: Option<String>,
    /// Time limit for the end of the pods of --scale-down
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = positive_duration)]
    pub scale_down_timeout: Duration,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Go on although a controller holds a Lease
    #[arg(long)]
    pub force: bool,
    /// Time limit for the objects of each kind
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = positive_duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Uninstall {
    pub(in crate::cmd) async fn execute(self) -> Result<(), Error> {
        let text = |flag: &Option<String>| non_empty(flag.as_deref()).map(str::to_owned);
        let kubeapps = text(&self.kubeapps_namespace);
        let options = UninstallOptions {
            namespace: text(&self.namespace),
            label_selector: text(&self.watch_label_selector),
            portolan_namespace: text(&self.portolan_namespace).unwrap_or_else(|| lease_namespace(kubeapps.as_deref())),
            lease: text(&self.leader_election_name),
            kubeapps_namespace: kubeapps_namespace(kubeapps.as_deref()),
            has_kubevela: self.kubevela,
            webhook_configuration: text(&self.webhook_configuration),
            scale_down: text(&self.scale_down),
            scale_down_timeout: self.scale_down_timeout,
            dry_run: self.dry_run,
            force: self.force,
            timeout: self.timeout,
        };
        let client = self.cluster.client().await?;
        let mut printed = Ok(());
        let print = |line: &str| {
            let line = output::print(&format!("{line}\n"));
            printed = std::mem::replace(&mut printed, Ok(())).and(line);
        };
        let remains = uninstall::run(&client, &options, &Log::new(&output::print_failure), print).await;
        printed?;
        output::fail_if_any(remains?, "something remains; run the command again")
    }
}
