use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::{Client, Resource};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::JobSettings;
use super::metrics::JobMetrics;
use super::progress::view::{JobView, PodView};
use crate::api::{NamespacedName, jobs};
use crate::controllers::Task;
use crate::runtime::watch::{Cached, Change, ErrorPolicy, Scope, Selection, Store, decode, raw_informer};

/// Time after which a missing first list is reported.
const PATIENCE: Duration = Duration::from_secs(15);

pub struct Jobs {
    pub settings: JobSettings,
    pub(super) client: Client,
    pub(super) cron_jobs: Store<Cached<CronJob>>,
    jobs: Store<Cached<Job>>,
    pods: Store<Cached<Pod>>,
    pub(super) metrics: JobMetrics,
    /// Notified when a Job is added or ends, so that waiting Jobs may run.
    pub(super) changed: Arc<Notify>,
    started: Instant,
    /// The last written state of each CronJob, by name.
    pub(super) written: Mutex<HashMap<String, Written>>,
    /// Repositories that had no copy of Secrets at this time.
    pub(super) without_copy: Mutex<HashMap<NamespacedName, Instant>>,
}

/// A CronJob as written: a change of its spec raises the generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub uid: Option<String>,
    pub generation: Option<i64>,
    pub desired: String,
}

impl Jobs {
    #[must_use]
    pub fn new(settings: JobSettings, client: Client, metrics: JobMetrics) -> Self {
        Self {
            settings,
            client,
            cron_jobs: Store::default(),
            jobs: Store::default(),
            pods: Store::default(),
            metrics,
            changed: Arc::default(),
            started: Instant::now(),
            written: Mutex::default(),
            without_copy: Mutex::default(),
        }
    }

    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.cron_jobs.is_synced() && self.jobs.is_synced() && self.pods.is_synced()
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.started.elapsed() >= PATIENCE
    }

    /// Returns the watches. `enqueue` is called with the repository of each relevant change.
    pub fn watches(self: &Arc<Self>, enqueue: impl Fn(NamespacedName) + Clone + Send + Sync + 'static) -> Vec<Task> {
        let (of_cron_job, of_job, of_pod) = (enqueue.clone(), enqueue.clone(), enqueue);
        let jobs = Arc::clone(self);
        vec![
            self.watch::<CronJob>(
                self.cron_jobs.clone(),
                |cron_job| cron_job,
                move |change| {
                    notify(&change, &of_cron_job, cron_job_inputs);
                },
            ),
            self.watch::<Job>(self.jobs.clone(), without_template, move |change| {
                jobs.on_job_change(&change);
                notify(&change, &of_job, JobView::of);
            }),
            self.watch::<Pod>(self.pods.clone(), without_spec, move |change| {
                notify(&change, &of_pod, PodView::of);
            }),
        ]
    }

    fn watch<K>(
        &self,
        store: Store<Cached<K>>,
        convert: impl Fn(K) -> K + Clone + Send + Sync + 'static,
        on_change: impl Fn(Change<Cached<K>>) + Send + Sync + 'static,
    ) -> Task
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        let selection = Selection {
            scope: Scope::Namespace(self.settings.namespace.clone()),
            labels: Some(jobs::selector()),
        };
        raw_informer(
            self.client.clone(),
            selection,
            ErrorPolicy::Required,
            store,
            move |raw| decode(raw, &convert),
            on_change,
        )
        .boxed()
    }

    fn on_job_change(&self, change: &Change<Cached<Job>>) {
        if let Change::Applied {
            old: Some(old), new, ..
        } = change
            && let (Some(old), Some(new)) = (old.object(), new.object())
            && JobView::of(old).is_unfinished()
            && let Some(outcome) = JobView::of(new).outcome
        {
            self.metrics.count_finished(outcome.is_success());
        }
        self.changed.notify_one();
    }

    pub(super) fn all(&self) -> Vec<JobView> {
        let objects = self.jobs.objects(&self.settings.namespace);
        objects
            .iter()
            .filter_map(|job| job.object().map(|job| JobView::of(job)))
            .collect()
    }

    /// Returns the Jobs of a repository, oldest first.
    pub(super) fn jobs_of(&self, name: &NamespacedName) -> Vec<JobView> {
        let objects = self.jobs.objects(&self.settings.namespace);
        let mut jobs: Vec<JobView> = objects
            .iter()
            .filter_map(|job| job.object())
            .filter(|job| jobs::repository_name(job.meta()).as_ref() == Some(name))
            .map(|job| JobView::of(job))
            .collect();
        jobs.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        jobs
    }

    pub(super) fn all_pods(&self) -> Vec<PodView> {
        let objects = self.pods.objects(&self.settings.namespace);
        let pods = objects.iter().filter_map(|pod| pod.object());
        pods.map(|pod| PodView::of(pod)).collect()
    }

    pub(super) fn pods_of(&self, name: &NamespacedName) -> Vec<PodView> {
        let objects = self.pods.objects(&self.settings.namespace);
        objects
            .iter()
            .filter_map(|pod| pod.object())
            .filter(|pod| jobs::repository_name(pod.meta()).as_ref() == Some(name))
            .map(|pod| PodView::of(pod))
            .collect()
    }

    /// Returns the CronJobs of a repository: one, or more after a change of the naming.
    pub(super) fn cron_jobs_of(&self, name: &NamespacedName) -> Vec<Arc<CronJob>> {
        let objects = self.cron_jobs.objects(&self.settings.namespace);
        let cron_jobs = objects.into_iter().filter_map(|cron_job| cron_job.object().cloned());
        cron_jobs
            .filter(|cron_job| jobs::repository_name(&cron_job.metadata).as_ref() == Some(name))
            .collect()
    }

    /// Stores the result of our own write, so that the next reconcile does not act on older state.
    pub(super) fn assume_job(&self, job: Job) {
        self.jobs
            .assume_created(Cached::Object(Arc::new(without_template(job))));
    }
}

/// Calls `enqueue` if the part of the object that `inputs` selects has changed.
fn notify<K, I: PartialEq>(change: &Change<Cached<K>>, enqueue: &impl Fn(NamespacedName), inputs: impl Fn(&K) -> I)
where
    K: Resource<DynamicType = ()> + Clone,
{
    let changed = match change {
        Change::Applied { old, new, .. } => {
            let old = old.as_ref().and_then(Cached::object);
            let is_same = matches!((old, new.object()), (Some(old), Some(new)) if inputs(old) == inputs(new));
            // Also the former repository, if someone edits the annotation.
            if is_same { [None, None] } else { [old, new.object()] }
        }
        Change::Deleted(old) | Change::MissingFromList(old) => [old.object(), None],
        Change::Synced { .. } => [None, None],
    };
    let mut last = None;
    for name in changed
        .into_iter()
        .flatten()
        .filter_map(|object| jobs::repository_name(object.meta()))
    {
        if last.as_ref() != Some(&name) {
            enqueue(name.clone());
            last = Some(name);
        }
    }
}

type CronJobInputs = (Option<serde_json::Value>, Option<serde_json::Value>, bool);

/// Returns the part of a CronJob that we set. Its status changes with each tick.
fn cron_job_inputs(cron_job: &CronJob) -> CronJobInputs {
    let meta = &cron_job.metadata;
    (
        serde_json::to_value(&cron_job.spec).ok(),
        serde_json::to_value((&meta.labels, &meta.annotations, &meta.owner_references)).ok(),
        meta.deletion_timestamp.is_some(),
    )
}

fn without_template(mut job: Job) -> Job {
    if let Some(spec) = &mut job.spec {
        spec.template = PodTemplateSpec::default();
    }
    job
}

fn without_spec(mut pod: Pod) -> Pod {
    pod.spec = None;
    pod
}
