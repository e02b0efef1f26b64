use super::{ControllerName, Run};
use crate::budget::Budgets;
use crate::cmd::Error;
use crate::cmd::flags::cluster::{kubeapps_namespace, lease_namespace};
use crate::cmd::flags::fetch::proxy_namespaces;
use crate::cmd::flags::resources::ResourceFlags;
use crate::cmd::flags::{count, non_empty};
use crate::controllers::apprepository::running_syncs::RunningSyncs;
use crate::controllers::apprepository::spec::Defaults;
use crate::controllers::{application, apprepository, oam};
use crate::manager::{Options, SourceOptions};
use crate::runtime::cron::Intervals;
use crate::runtime::kube_client::ConnectOptions;

impl Run {
    pub(in crate::cmd) fn options(&self) -> Result<Options, Error> {
        if self.manifests.is_some() {
            self.refuse_flags_of_clusters()?;
        }
        let apprepository = self
            .is_enabled(ControllerName::AppRepository)
            .then(|| self.apprepository());
        let apprepository = apprepository.transpose()?;
        let budgets = match &apprepository {
            Some(options) => options.sync.budgets.clone(),
            None => self.resources().budgets()?,
        };
        let application = self.application();
        let oam = self.kubevela_applications(apprepository.as_ref(), &budgets)?;
        if apprepository.is_none() && application.is_none() && oam.is_none() {
            return Err(Error::Usage(
                "no controller to run; --manifests and --once require --controllers=apprepository".to_owned(),
            ));
        }
        Ok(Options {
            source: self.source()?,
            catalog: self.catalog_server(apprepository.as_ref())?,
            releases: self.releases(apprepository.as_ref())?,
            apprepository,
            application,
            oam,
            budgets,
            database: self.database()?,
            cluster_id: self.cluster_id.trim().to_owned(),
            queue_rate: self.syncing.queue_rate,
            queue_burst: self.syncing.queue_burst,
            listeners: self.listeners()?,
            debug: self.debug()?,
            log_filter: None,
            spans: None,
            metrics_auth: self.service.metrics_auth,
            http_connections: self.service.http_connections,
            drain_timeout: self.service.drain_timeout,
            leader_election: self.leader_election()?,
            label_selector: self.leader.label_selector(self.manifests.is_some())?,
        })
    }

    fn refuse_flags_of_clusters(&self) -> Result<(), Error> {
        let flags = [
            ("--enable-leader-election", self.has_leader_election()),
            ("--metrics-auth", self.service.metrics_auth),
            ("--releases", self.releases),
        ];
        match flags.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((flag, _)) => Err(Error::Usage(format!(
                "{flag} requires a cluster and cannot be used with --manifests"
            ))),
        }
    }

    fn source(&self) -> Result<SourceOptions, Error> {
        Ok(match &self.manifests {
            Some(directory) => SourceOptions::Directory(directory.clone()),
            None => SourceOptions::Cluster(ConnectOptions {
                limits: Some(self.request_limits()),
                ..self.cluster.connect_options()?
            }),
        })
    }

    fn is_enabled(&self, name: ControllerName) -> bool {
        self.controllers.contains(&name)
    }

    fn can_run_applications(&self) -> bool {
        self.manifests.is_none() && !self.syncing.once
    }

    fn application(&self) -> Option<application::Options> {
        let is_enabled = self.is_enabled(ControllerName::Application) && self.applications != Some(false);
        (is_enabled && self.can_run_applications()).then(|| application::Options {
            workers: count(self.application_workers),
            kinds: self.application_kinds.clone().unwrap_or_default(),
            sync_period: self.sync_period,
            namespace: self.watch_namespace().map(str::to_owned),
        })
    }

    fn kubevela_applications(
        &self,
        apprepository: Option<&apprepository::Options>,
        budgets: &Budgets,
    ) -> Result<Option<oam::Options>, Error> {
        let Some(flags) = self.oam().filter(|_| self.can_run_applications()) else {
            return Ok(None);
        };
        let fetcher = match apprepository {
            Some(options) => options.sync.fetcher.clone(),
            None => self.fetch.fetcher(budgets, self.fetch.addresses.allow_loopback)?,
        };
        let pod_namespace = lease_namespace(self.namespace.as_deref());
        let options = flags.to_options(self.watch_namespace().map(str::to_owned), &pod_namespace, fetcher);
        options.map(Some).map_err(Error::Usage)
    }

    fn resources(&self) -> ResourceFlags {
        match self.oam() {
            Some(oam) => self.resources.with_oam(oam.evaluators_memory()),
            None => self.resources.clone(),
        }
    }

    /// `None` if the process ends before it could deliver news.
    fn news_sinks(&self, namespace: &str) -> Result<Option<Vec<String>>, Error> {
        let sinks = self.news.sinks(namespace)?;
        Ok((!self.syncing.once).then_some(sinks))
    }

    fn watch_namespace(&self) -> Option<&str> {
        non_empty(self.watch_namespace.as_deref())
    }

    fn apprepository(&self) -> Result<apprepository::Options, Error> {
        let syncing = &self.syncing;
        let intervals = Intervals::default();
        let crontab = intervals
            .parse(&syncing.crontab)
            .map_err(|error| Error::Usage(format!("invalid value for --crontab: {error}")))?;
        let kubeapps_namespace = kubeapps_namespace(self.namespace.as_deref());
        let only_kubeapps = (!self.repos_per_namespace).then_some(kubeapps_namespace.as_str());
        let sync = self
            .fetch
            .sync_options(&self.content, &self.resources(), self.manifests.is_some())?;
        Ok(apprepository::Options {
            workers: count(syncing.sync_workers),
            files_workers: count(syncing.files_workers),
            namespace: self.watch_namespace().or(only_kubeapps).map(str::to_owned),
            defaults: Defaults {
                crontab,
                intervals,
                min_interval: syncing.min_interval,
                index_max_bytes: self.fetch.index_max_bytes,
                proxy_namespaces: proxy_namespaces(
                    self.allow_tenant_proxies || self.manifests.is_some(),
                    self.global_repos_namespace.as_deref(),
                    kubeapps_namespace.clone(),
                ),
                news_sinks: self.news_sinks(&kubeapps_namespace)?,
            },
            kubeapps_namespace,
            chart_files: self.content.settings(&sync.objects, self.serves_catalog()),
            sync,
            import_after_sync: !syncing.once,
            allowed_directories: self.allow_file_root.clone(),
            confirm_removals: syncing.confirm_removals,
            gc_interval: syncing.gc_interval,
            lease_namespace: self.leader.lease(self.namespace.as_deref())?.namespace,
            watch_secrets: syncing.watch_secrets,
            news_private_networks: self.news.news_private_networks,
            adopt_kubeapps: syncing.adopt_kubeapps,
            running: RunningSyncs::default(),
            jobs: self.jobs()?,
        })
    }
}
