//! Options of the process that come from flags of `portolan run` or of KubeVela.

use std::num::NonZeroU32;

use super::kubevela::KubeVela;
use super::{ControllerName, Run};
use crate::api::NamespacedName;
use crate::cmd::Error;
use crate::cmd::debug::public_argument;
use crate::cmd::flags::cluster::kubeapps_namespace;
use crate::cmd::flags::leader::checked;
use crate::cmd::flags::vela::VelaFlags;
use crate::cmd::flags::{count, non_empty};
use crate::cmd::logging::FileOptions;
use crate::manager::{DatabaseOptions, DebugListener, LeaderElection, LeaseOptions, Listener, PasswordSecret};
use crate::runtime::kube_client::RequestLimits;
use crate::runtime::leader_election::Timing;
use crate::server::ListenAddress;

/// The Secret with the password of Kubeapps' Postgres.
const KUBEAPPS_SECRET: &str = "kubeapps-db";

impl Run {
    pub(super) fn oam(&self) -> Option<&VelaFlags> {
        self.kubevela.as_ref().map(|kubevela| &kubevela.flags)
    }

    pub(super) fn database(&self) -> Result<DatabaseOptions, Error> {
        self.database.settings()?;
        let mut options = self.database.options();
        // A named Secret is read again when Postgres refuses the password of the environment.
        let is_named = non_empty(self.database_secret_name.as_deref()).is_some();
        if (options.login.password.is_none() || is_named) && self.manifests.is_none() && !options.is_sqlite() {
            options.password_secret = self.password_secret();
        }
        Ok(options)
    }

    /// A URL may contain a password or need none, so only Kubeapps' `HOST:PORT` has a default.
    pub(super) fn password_secret(&self) -> Option<PasswordSecret> {
        let is_url = self.database.database_url.reveal().contains("://");
        let default = (!is_url).then_some(KUBEAPPS_SECRET);
        let name = non_empty(self.database_secret_name.as_deref()).or(default)?;
        Some(PasswordSecret {
            name: NamespacedName::new(kubeapps_namespace(self.namespace.as_deref()), name),
            key: self.database_secret_key.clone(),
        })
    }

    pub(in crate::cmd) fn log_file(&self) -> Option<FileOptions> {
        let flags = self.oam()?;
        let path = non_empty(Some(&flags.log_file_path))?;
        Some(FileOptions {
            path: path.into(),
            max_size: u64::from(flags.log_file_max_size) * 1024 * 1024,
        })
    }

    pub(super) fn has_leader_election(&self) -> bool {
        self.leader.enable_leader_election || self.oam().is_some_and(|flags| flags.enable_leader_election)
    }

    pub(super) fn leader_election(&self) -> Result<LeaderElection, Error> {
        let is_enabled = self.has_leader_election();
        self.check_shards()?;
        let Some(flags) = self.oam() else {
            let lease = self.leader.lease(self.namespace.as_deref())?;
            return Ok(if is_enabled {
                LeaderElection::Enabled(lease)
            } else {
                LeaderElection::Disabled
            });
        };
        // vela-core's pod is in the namespace of its definitions. In that of our pod, both would lead.
        let namespace = non_empty(Some(&flags.leader_election_namespace)).unwrap_or(&flags.definition_namespace);
        let lease = LeaseOptions {
            namespace: namespace.to_owned(),
            name: self
                .leader
                .lease_name()?
                .map_or_else(|| flags.lease_name(), str::to_owned),
            timing: timing(flags)?,
            shards: self.leader.shards()?,
        };
        Ok(if is_enabled {
            LeaderElection::Enabled(lease)
        } else {
            LeaderElection::RefuseIfHeld(lease)
        })
    }

    /// Refuses shards that only one replica could own.
    fn check_shards(&self) -> Result<(), Error> {
        if self.leader.shards.get() > 1 && !self.has_leader_election() {
            return Err(Error::Usage("--shards requires --enable-leader-election".to_owned()));
        }
        let has_database = self.controllers.contains(&ControllerName::AppRepository);
        if self.leader.shards.get() > 1 && has_database && self.database.options().is_sqlite() {
            return Err(Error::Usage(
                "--shards requires Postgres: a SQLite file has one writer, so a second replica could not open it; set \
                 --database-url, or remove --shards"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) fn request_limits(&self) -> RequestLimits {
        let vela = self.oam().filter(|flags| flags.kube_api_qps > 0.0);
        let (per_second, burst) = match vela {
            Some(flags) => (whole(flags.kube_api_qps), NonZeroU32::new(flags.kube_api_burst)),
            None => (NonZeroU32::new(self.api.kube_api_qps), None),
        };
        RequestLimits {
            inflight: count(self.api.kube_api_inflight),
            per_second,
            burst,
            timeouts: self.oam().map(VelaFlags::request_timeouts),
        }
    }

    /// Returns the listeners for health and metrics. KubeVela's addresses apply unless `--listen` is set.
    pub(super) fn listeners(&self) -> Result<Vec<Listener>, Error> {
        let service = &self.service;
        let metrics = service.metrics_bind_address.clone();
        match self.kubevela.as_ref().filter(|kubevela| !kubevela.has_listen) {
            Some(kubevela) => kubevela_listeners(kubevela, metrics),
            None => {
                let main = Listener {
                    address: service.metrics_addr.as_ref().unwrap_or(&service.listen).clone(),
                    flag: "--listen",
                    has_probes: true,
                    has_metrics: metrics.is_none(),
                };
                Ok([main].into_iter().chain(metrics.map(metrics_listener)).collect())
            }
        }
    }

    /// Returns the listener of `--debug-addr`, or else of KubeVela's `--profiling-addr`.
    pub(super) fn debug(&self) -> Result<Option<DebugListener>, Error> {
        let debug_addr = non_empty(self.service.debug_addr.as_deref());
        let (flag, text) = match (debug_addr, self.oam()) {
            (Some(text), _) => ("--debug-addr", text),
            (None, Some(flags)) => ("--profiling-addr", flags.profiling_addr.as_str()),
            (None, None) => return Ok(None),
        };
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|argument| public_argument(&argument.to_string_lossy()));
        Ok(
            address(flag.trim_start_matches('-'), text)?.map(|address| DebugListener {
                address,
                flag,
                command_line: ["portolan".to_owned()].into_iter().chain(arguments).collect(),
            }),
        )
    }
}

fn timing(flags: &VelaFlags) -> Result<Timing, Error> {
    checked(Timing {
        lease_duration: flags.lease_duration,
        renew_deadline: flags.renew_deadline,
        retry_period: flags.retry_period,
    })
}

fn metrics_listener(address: ListenAddress) -> Listener {
    Listener {
        address,
        flag: "--metrics-bind-address",
        has_probes: false,
        has_metrics: true,
    }
}

/// Serves probes at both addresses, as KubeVela's manager does.
fn kubevela_listeners(kubevela: &KubeVela, metrics: Option<ListenAddress>) -> Result<Vec<Listener>, Error> {
    let flags = &kubevela.flags;
    let health = address("health-addr", &flags.health_addr)?.map(|address| Listener {
        address,
        flag: "--health-addr",
        has_probes: true,
        has_metrics: false,
    });
    let metrics = match metrics {
        Some(address) => Some(metrics_listener(address)),
        None => address("metrics-addr", &flags.metrics_addr)?.map(|address| Listener {
            address,
            flag: "--metrics-addr",
            has_probes: true,
            has_metrics: true,
        }),
    };
    Ok(match (health, metrics) {
        (Some(health), Some(metrics)) if health.address == metrics.address => vec![Listener {
            has_metrics: true,
            ..health
        }],
        (health, metrics) => health.into_iter().chain(metrics).collect(),
    })
}

/// Returns none for an empty address and for 0, which switch a listener off.
fn address(flag: &str, text: &str) -> Result<Option<ListenAddress>, Error> {
    match text.trim() {
        "" | "0" => Ok(None),
        address => address
            .parse()
            .map(Some)
            .map_err(|error| Error::Usage(format!("invalid value for --{flag}: {error}"))),
    }
}

fn whole(number: f64) -> Option<NonZeroU32> {
    // Casts of floats saturate.
    NonZeroU32::new(number.ceil() as u32)
}

impl KubeVela {
    /// Logs the settings that KubeVela logs first, and one warning for each flag without effect.
    pub(super) fn log(&self) {
        let flags = &self.flags;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            compat_version = flags.compat_version(),
            "starting the controller oam"
        );
        tracing::info!(
            capabilities = flags.disabled_capabilities.0.join(","),
            "disabled capabilities"
        );
        tracing::info!(namespace = flags.definition_namespace, "definition namespace");
        tracing::info!(storage_driver = flags.storage_driver(), "Use storage driver");
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}
