//! Removes what Portolan left in a cluster, so that nothing hangs without it.
//!
//! ```text
//!  Leases active? ─ refuse ─► webhook configurations ─► CronJobs, Jobs ─► finalizers ─► copies of Secrets ─► Leases
//! ```
//!
//! Each step has its own deadline and goes on after failures; the API server may serve only a part of the kinds.

mod finalizers;
mod objects;
mod pages;
mod running;
mod selected;
mod webhooks;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::timeout;

use super::Error;
use crate::api::oam::{self, ResourceTracker};
use crate::api::{AppRepository, FINALIZER, Partial};
use finalizers::Finalizers;
use objects::OwnedSelection;
use selected::SelectedObjects;

#[derive(Clone, Debug)]
pub struct UninstallOptions {
    /// The namespace of AppRepositories and Applications; `None` for all.
    pub namespace: Option<String>,
    /// The labels of AppRepositories and Applications; `None` for all.
    pub label_selector: Option<String>,
    /// The namespace of CronJobs, Jobs and copies of Secrets.
    pub kubeapps_namespace: String,
    /// The namespace of the Leases and the Deployment.
    pub portolan_namespace: String,
    /// The name of the Leases without the number of the shard; `None` for all of ours.
    pub lease: Option<String>,
    /// Includes the finalizers of KubeVela, whose controller has the same.
    pub has_kubevela: bool,
    /// The name of the webhook configurations to delete.
    pub webhook_configuration: Option<String>,
    /// Deployment to scale to zero before.
    pub scale_down: Option<String>,
    /// Deadline of the end of its pods.
    pub scale_down_timeout: Duration,
    pub dry_run: bool,
    /// Goes on although a controller runs.
    pub force: bool,
    /// Deadline of each step.
    pub timeout: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct StepOutcome {
    done: usize,
    /// Objects and lists that failed, one a line.
    failures: Vec<String>,
}

impl StepOutcome {
    fn fail(&mut self, log: &Log<'_>, failure: String) {
        log.print_once(&failure);
        self.failures.push(failure);
    }
}

/// The output for failures. They are printed when they happen, because the process may be killed before it ends.
pub struct Log<'a> {
    print: &'a (dyn Fn(&str) + Sync),
    /// A failure of several passes is printed once.
    printed: Mutex<BTreeSet<String>>,
}

impl<'a> Log<'a> {
    pub fn new(print: &'a (dyn Fn(&str) + Sync)) -> Self {
        Self {
            print,
            printed: Mutex::default(),
        }
    }

    fn print_once(&self, failure: &str) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.insert(failure.to_owned()) {
            (self.print)(failure);
        }
    }
}

/// Prints a line for each step. Returns the number of failures that remain; they are in the log. Fails if a controller
/// runs, or the Deployment to scale down does not exist.
pub async fn run(
    client: &Client,
    options: &UninstallOptions,
    log: &Log<'_>,
    mut print: impl FnMut(&str),
) -> Result<usize, Error> {
    let mut remains = StepOutcome::default();
    if let Some(deployment) = options.scale_down.as_deref().filter(|_| !options.dry_run) {
        let scaled = running::scale_down(
            client,
            &options.portolan_namespace,
            deployment,
            options.scale_down_timeout,
        )
        .await;
        match scaled {
            Ok(true) => print(&format!("Deployment {deployment} scaled to 0")),
            // The controller may run elsewhere.
            Ok(false) => {
                let namespace = &options.portolan_namespace;
                return Err(Error(format!(
                    "the Deployment {namespace}/{deployment} does not exist, so nothing is removed; check --scale-down and --portolan-namespace"
                )));
            }
            Err(error) => remains.fail(
                log,
                format!("failed to scale the Deployment {deployment} to 0: {error}"),
            ),
        }
    }
    if !options.force && !options.dry_run {
        match running::holders(client, &options.portolan_namespace, options.lease.as_deref()).await {
            Ok(holders) if holders.is_empty() => {}
            Ok(holders) => {
                let holders = holders.join(", ");
                return Err(Error(format!(
                    "a controller is running and would set finalizers again: {holders}; stop it, or use --force; if it belongs to another release, use --leader-election-name"
                )));
            }
            Err(error) => remains.fail(log, format!("failed to check if a controller runs: {error}")),
        }
    }
    // Before the finalizers are removed: without them, objects that are being deleted disappear.
    let selected = match timeout(options.timeout, SelectedObjects::find(client, options)).await {
        Ok(Ok(selected)) => selected,
        Ok(Err(error)) => return Err(Error(format!("{error}; nothing was removed"))),
        Err(_) => {
            let limit = options.timeout;
            return Err(Error(format!(
                "failed to list the selected objects within {limit:?}; nothing was removed"
            )));
        }
    };
    for step in steps(options) {
        let verb = if options.dry_run { "would be " } else { "" };
        let outcome = timeout(options.timeout, step.run(client, options, &selected, log)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let mut outcome = StepOutcome::default();
            outcome.fail(log, format!("{}: not done within {:?}", step.text(), options.timeout));
            outcome
        });
        if outcome.done > 0 {
            print(&step.result(verb, outcome.done));
        }
        remains.failures.extend(outcome.failures);
    }
    Ok(remains.failures.len())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    WebhookConfigurations,
    CronJobs,
    Jobs,
    AppRepositories,
    Applications,
    KubeVelaApplications,
    ResourceTrackers,
    Secrets,
    Leases,
}

/// Returns the steps: first what would write again, last the Leases.
fn steps(options: &UninstallOptions) -> Vec<Step> {
    let kubevela = [Step::KubeVelaApplications, Step::ResourceTrackers];
    let webhooks = options
        .webhook_configuration
        .as_ref()
        .map(|_| Step::WebhookConfigurations);
    webhooks
        .into_iter()
        .chain([Step::CronJobs, Step::Jobs, Step::AppRepositories, Step::Applications])
        .chain(kubevela.into_iter().filter(|_| options.has_kubevela))
        .chain([Step::Secrets, Step::Leases])
        .collect()
}

impl Step {
    const fn text(self) -> &'static str {
        match self {
            Self::WebhookConfigurations => "webhook configurations",
            Self::CronJobs => "CronJobs",
            Self::Jobs => "Jobs",
            Self::AppRepositories => "AppRepositories",
            Self::Applications => "Applications",
            Self::KubeVelaApplications => "Applications of KubeVela",
            Self::ResourceTrackers => "ResourceTrackers",
            Self::Secrets => "copies of Secrets",
            Self::Leases => "Leases",
        }
    }

    fn result(self, verb: &str, done: usize) -> String {
        let text = self.text();
        match self {
            Self::WebhookConfigurations | Self::CronJobs | Self::Jobs | Self::Secrets | Self::Leases => {
                format!("{done} {text} {verb}deleted")
            }
            _ => format!("finalizer {verb}removed from {done} {text}"),
        }
    }

    async fn run(
        self,
        client: &Client,
        options: &UninstallOptions,
        selected: &SelectedObjects,
        log: &Log<'_>,
    ) -> StepOutcome {
        let namespace = options.namespace.as_deref();
        let dry_run = options.dry_run;
        let owned = OwnedSelection::Owned(selected);
        match self {
            Self::WebhookConfigurations => webhooks::delete(client, options, log).await,
            Self::CronJobs => objects::delete::<CronJob>(client, options, log, owned).await,
            Self::Jobs => objects::delete::<Job>(client, options, log, owned).await,
            Self::Secrets => objects::delete::<Secret>(client, options, log, owned).await,
            Self::Leases => objects::delete::<Lease>(client, options, log, OwnedSelection::Leases).await,
            Self::AppRepositories => {
                let api = |object: Option<&str>| match object.or(namespace) {
                    Some(namespace) => Api::<Partial<AppRepository>>::namespaced(client.clone(), namespace),
                    None => Api::all(client.clone()),
                };
                let finalizers = Finalizers {
                    kind: "AppRepository",
                    ours: &[FINALIZER],
                    selector: options.label_selector.clone(),
                    is_selected: &|_| true,
                    dry_run,
                };
                finalizers.remove(log, api).await
            }
            Self::Applications => finalizers::remove_adoptions(client, options, log).await,
            Self::KubeVelaApplications => {
                let api = |object: Option<&str>| match object.or(namespace) {
                    Some(namespace) => Api::<Partial<oam::Application>>::namespaced(client.clone(), namespace),
                    None => Api::all(client.clone()),
                };
                let finalizers = Finalizers {
                    kind: "Application of KubeVela",
                    ours: &[crate::controllers::oam::APPLICATION_FINALIZER],
                    selector: options.label_selector.clone(),
                    is_selected: &|_| true,
                    dry_run,
                };
                finalizers.remove(log, api).await
            }
            Self::ResourceTrackers => {
                let finalizers = Finalizers {
                    kind: "ResourceTracker",
                    ours: &[oam::labels::TRACKER_FINALIZER],
                    // They have no namespace, and belong to the Applications of all namespaces.
                    selector: namespace.map(|namespace| format!("{}={namespace}", oam::labels::APP_NAMESPACE)),
                    is_selected: &|meta| selected.has_tracker(meta),
                    dry_run,
                };
                let api = |_: Option<&str>| Api::<Partial<ResourceTracker>>::all(client.clone());
                finalizers.remove(log, api).await
            }
        }
    }
}
