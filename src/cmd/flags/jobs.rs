//! Flags of `portolan run` for syncs as Kubernetes Jobs.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use super::parse::{CommaSeparated, bytes, duration};
use super::{count, non_empty};
use crate::cmd::Error;
use crate::controllers::apprepository::jobs::{self, DatabaseAccess, Executor, JobLimits, Resources, TemplatePolicy};
use crate::http::Proxies;

#[derive(Args, Debug)]
#[command(next_help_heading = "Jobs")]
pub struct JobFlags {
    /// Executor of syncs; job needs Postgres, --job-image and permissions on CronJobs, Jobs and pods
    #[arg(long, value_name = "EXECUTOR", value_enum, default_value_t)]
    pub executor: ExecutorFlag,
    /// Obey the annotation portolan.dev/executor of AppRepositories, which their authors set
    #[arg(long)]
    pub allow_executor_annotation: bool,
    /// Image of Jobs: that of this process
    #[arg(long, value_name = "IMAGE")]
    pub job_image: Option<String>,
    /// Program in the image
    #[arg(long, value_name = "PATH", default_value = "/usr/local/bin/portolan")]
    pub job_command: String,
    /// Image pull secrets of Jobs, separated by commas
    #[arg(long, value_name = "NAMES", default_value = "")]
    pub job_pull_secrets: CommaSeparated,
    /// Labels of CronJobs, Jobs and pods: NAME=VALUE, separated by commas
    #[arg(long, value_name = "LABELS", default_value = "")]
    pub job_labels: CommaSeparated,
    /// Annotations of CronJobs, Jobs and pods: NAME=VALUE, separated by commas
    #[arg(long, value_name = "ANNOTATIONS", default_value = "")]
    pub job_annotations: CommaSeparated,
    /// Requests of the container: RESOURCE=QUANTITY, separated by commas
    #[arg(long, value_name = "RESOURCES", default_value = "cpu=50m,memory=128Mi")]
    pub job_requests: CommaSeparated,
    /// Limits of the container: RESOURCE=QUANTITY, separated by commas; repositories can lower them
    #[arg(long, value_name = "RESOURCES", default_value = "cpu=1,memory=1Gi")]
    pub job_limits: CommaSeparated,
    /// Part of spec.syncJobPodTemplate that Jobs use
    #[arg(long, value_name = "PART", value_enum, default_value_t)]
    pub job_pod_template: PodTemplateFlag,
    /// Maximum size of spec.syncJobPodTemplate; larger ones are refused
    #[arg(long, value_name = "BYTES", default_value = "64Ki", value_parser = bytes)]
    pub job_pod_template_limit: u64,
    /// Time for which finished Jobs are kept; 0 keeps them
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub job_ttl: Duration,
    /// Time after which a Job is ended; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub job_deadline: Duration,
    /// Number of succeeded Jobs that a CronJob keeps
    #[arg(long, value_name = "N", default_value = "3")]
    pub job_successful_history: u32,
    /// Number of failed Jobs that a CronJob keeps
    #[arg(long, value_name = "N", default_value = "1")]
    pub job_failed_history: u32,
    /// Handling of a tick while the last Job of the CronJob is unfinished
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    pub job_concurrency: ConcurrencyFlag,
    /// Maximum number of Jobs that run; others wait
    #[arg(long, value_name = "N", default_value = "20")]
    pub max_jobs: NonZeroU32,
    /// Maximum number of Jobs that run for repositories of one namespace
    #[arg(long, value_name = "N", default_value = "5")]
    pub max_jobs_per_namespace: NonZeroU32,
    #[command(flatten)]
    pub sync_flags: SyncFlags,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorFlag {
    /// In this process
    #[default]
    InProcess,
    /// As CronJobs and Jobs of Kubernetes
    Job,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodTemplateFlag {
    /// Nothing
    None,
    /// Proxies, resources within --job-limits, the node selector, user and group IDs
    #[default]
    Limited,
    /// Also labels, annotations, other variables and scheduling
    Full,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConcurrencyFlag {
    /// Skip the new Job
    #[default]
    Forbid,
    /// End the last Job, as Kubeapps does by default
    Replace,
    /// Run both
    Allow,
}

/// The context of the flags.
pub struct JobContext<'a> {
    pub namespace: &'a str,
    pub database: DatabaseAccess,
    pub is_sqlite: bool,
    /// The password of the database is known to this process only.
    pub has_own_password: bool,
    pub index_max_bytes: u64,
    pub fetch_timeout: Duration,
}

impl JobFlags {
    pub fn settings(&self, context: JobContext<'_>) -> Result<jobs::JobSettings, Error> {
        let executor = match self.executor {
            ExecutorFlag::InProcess => Executor::InProcess,
            ExecutorFlag::Job => Executor::Job,
        };
        let settings = jobs::JobSettings {
            executor,
            allow_annotation: self.allow_executor_annotation,
            namespace: context.namespace.to_owned(),
            image: non_empty(self.job_image.as_deref()).unwrap_or_default().to_owned(),
            command: self.job_command.clone(),
            pull_secrets: names(&self.job_pull_secrets),
            labels: pairs("--job-labels", &self.job_labels)?,
            annotations: pairs("--job-annotations", &self.job_annotations)?,
            successful_history: self.job_successful_history,
            failed_history: self.job_failed_history,
            ttl_seconds: Some(self.job_ttl.as_secs()).filter(|seconds| *seconds > 0),
            deadline_seconds: Some(self.job_deadline.as_secs()).filter(|seconds| *seconds > 0),
            concurrency_policy: match self.job_concurrency {
                ConcurrencyFlag::Forbid => "Forbid",
                ConcurrencyFlag::Replace => "Replace",
                ConcurrencyFlag::Allow => "Allow",
            },
            resources: Resources {
                requests: pairs("--job-requests", &self.job_requests)?,
                limits: pairs("--job-limits", &self.job_limits)?,
            },
            template: match self.job_pod_template {
                PodTemplateFlag::None => TemplatePolicy::None,
                PodTemplateFlag::Limited => TemplatePolicy::Limited,
                PodTemplateFlag::Full => TemplatePolicy::Full,
            },
            template_limit: usize::try_from(self.job_pod_template_limit).unwrap_or(usize::MAX),
            limits: JobLimits {
                total: count(self.max_jobs),
                per_namespace: count(self.max_jobs_per_namespace),
            },
            database: context.database,
            proxies: Proxies::from_environment(|name| std::env::var(name).ok()),
            sync_flags: self.sync_flags.0.clone(),
            index_max_bytes: context.index_max_bytes,
            fetch_timeout: context.fetch_timeout,
        };
        if settings.is_enabled() {
            check(&settings, context.is_sqlite, context.has_own_password)?;
        }
        Ok(settings)
    }
}

fn check(settings: &jobs::JobSettings, is_sqlite: bool, has_own_password: bool) -> Result<(), Error> {
    let usage = |text: &str| Err(Error::Usage(format!("syncs as Jobs {text}")));
    if is_sqlite {
        return usage(
            "need Postgres: a SQLite file is locked by this process, and its volume is not shared with Jobs; set --database-url",
        );
    }
    if settings.image.is_empty() {
        return usage("need --job-image, the image of this process");
    }
    if has_own_password {
        return usage(
            "need --database-secret-name: the password in --database-url or DB_PASSWORD must not become part of a Job",
        );
    }
    if settings.proxies.has_credentials() {
        return usage(
            "need proxies without credentials in HTTP_PROXY and HTTPS_PROXY: they become part of Jobs; let the proxy admit the pods by their network",
        );
    }
    Ok(())
}

fn names(list: &CommaSeparated) -> Vec<String> {
    let names = list.0.iter().map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn pairs(flag: &str, list: &CommaSeparated) -> Result<BTreeMap<String, String>, Error> {
    let pair = |text: String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Error::Usage(format!(
            "invalid value for {flag}: `{text}`: expected NAME=VALUE"
        ))),
    };
    names(list).into_iter().map(pair).collect()
}

/// The flags of syncs that are set for this process, with their values. They apply to Jobs too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncFlags(pub Vec<(String, String)>);

/// Flags that `portolan sync` has too. Those of directories and memory belong to this process.
const SHARED: [&str; 18] = [
    "index_max_bytes",
    "connect_timeout",
    "stall_timeout",
    "fetch_timeout",
    "host_requests_per_second",
    "host_burst",
    "host_requests_at_once",
    "allow_private_networks",
    "allow_loopback",
    "user_agent_comment",
    "chart_files",
    "archive_max_bytes",
    "icons",
    "keep_removed_versions",
    "oci_check_digests",
    "database_pooler",
    "max_repository_bytes",
    "max_namespace_bytes",
];

impl FromArgMatches for SyncFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_set = |id: &&str| {
            let source = matches.try_contains_id(id).ok().and_then(|_| matches.value_source(id));
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        };
        let value = |id: &str| {
            let raw = matches.try_get_raw(id).ok().flatten()?.next_back()?;
            Some((id.replace('_', "-"), raw.to_string_lossy().into_owned()))
        };
        Ok(Self(SHARED.into_iter().filter(is_set).filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SyncFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
