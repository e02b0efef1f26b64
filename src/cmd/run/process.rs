//! Options of the process that come from flags of `portolan run` or of KubeVela.

use std::num::NonZeroU32;

use super::Run;
use super::kubevela::KubeVela;
use crate::cmd::Error;
use crate::cmd::flags::cluster::lease_namespace;
use crate::cmd::flags::oam::OamFlags;
use crate::cmd::flags::{count, non_empty};
use crate::cmd::logging::FileOptions;
use crate::manager::{LeaderElection, LeaseOptions, Listener, Profiling};
use crate::runtime::kube_client::RequestLimits;
use crate::runtime::leader_election::Timing;
use crate::server::ListenAddress;

impl Run {
    /// Returns KubeVela's flags if the controller oam is enabled.
    pub(super) fn oam(&self) -> Option<&OamFlags> {
        self.kubevela.as_ref().map(|kubevela| &kubevela.flags)
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
        self.service.enable_leader_election || self.oam().is_some_and(|flags| flags.enable_leader_election)
    }

    pub(super) fn leader_election(&self) -> Result<LeaderElection, Error> {
        let is_enabled = self.has_leader_election();
        let Some(flags) = self.oam() else {
            let lease = || LeaseOptions {
                namespace: lease_namespace(self.namespace.as_deref()),
                ..LeaseOptions::default()
            };
            return Ok(if is_enabled {
                LeaderElection::Enabled(lease())
            } else {
                LeaderElection::Disabled
            });
        };
        // vela-core's pod is in the namespace of its definitions. In that of our pod, both would lead.
        let namespace = non_empty(Some(&flags.leader_election_namespace)).unwrap_or(&flags.definition_namespace);
        let lease = LeaseOptions {
            namespace: namespace.to_owned(),
            name: flags.lease_name(),
            timing: timing(flags)?,
        };
        Ok(if is_enabled {
            LeaderElection::Enabled(lease)
        } else {
            LeaderElection::RefuseIfHeld(lease)
        })
    }

    pub(super) fn request_limits(&self) -> RequestLimits {
        let is_set = self
            .kubevela
            .as_ref()
            .filter(|kubevela| kubevela.flags.kube_api_qps > 0.0);
        let own = NonZeroU32::new(self.api.kube_api_qps);
        let (per_second, burst) = match is_set {
            Some(kubevela) => (
                whole(kubevela.flags.kube_api_qps),
                NonZeroU32::new(kubevela.flags.kube_api_burst),
            ),
            None => (own, None),
        };
        RequestLimits {
            inflight: count(self.api.kube_api_inflight),
            per_second,
            burst,
            timeouts: self.oam().map(OamFlags::request_timeouts),
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

    pub(super) fn profiling(&self) -> Result<Option<Profiling>, Error> {
        let Some(flags) = self.oam() else {
            return Ok(None);
        };
        let address = address("profiling-addr", &flags.profiling_addr)?;
        let arguments = std::env::args_os().skip(1);
        let arguments = arguments.map(|argument| public(&argument.to_string_lossy()));
        Ok(address.map(|address| Profiling {
            address,
            command_line: ["portolan".to_owned()].into_iter().chain(arguments).collect(),
        }))
    }
}

fn timing(flags: &OamFlags) -> Result<Timing, Error> {
    let timing = Timing {
        lease_duration: flags.lease_duration,
        renew_deadline: flags.renew_deadline,
        retry_period: flags.retry_period,
    };
    let is_valid = timing.lease_duration > timing.renew_deadline
        && timing.renew_deadline > timing.retry_period
        && !timing.retry_period.is_zero();
    if is_valid {
        return Ok(timing);
    }
    Err(Error::Usage(
        "--leader-election-lease-duration must be greater than --leader-election-renew-deadline, and that greater than \
         --leader-election-retry-period"
            .to_owned(),
    ))
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

/// Returns the next whole number.
fn whole(number: f64) -> Option<NonZeroU32> {
    // Casts of floats saturate.
    NonZeroU32::new(number.ceil() as u32)
}

/// Returns an argument of the command line unless it may be secret.
fn public(argument: &str) -> String {
    match argument.split_once('=') {
        Some((flag, _)) if !OamFlags::is_known(flag) => format!("{flag}=..."),
        None if argument != "run" && !argument.starts_with("--") => "...".to_owned(),
        _ => argument.to_owned(),
    }
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
            capabilities = flags.disabled_capabilities.join(","),
            "disabled capabilities"
        );
        tracing::info!(namespace = flags.definition_namespace, "definition namespace");
        tracing::info!(storage_driver = flags.storage_driver(), "Use storage driver");
        for warning in self.warnings.iter().chain(&flags.unsupported()) {
            tracing::warn!("{warning}");
        }
    }
}
