//! The connection to the API server.

use std::{ffi::OsString, fs, path::Path};

use clap::Args;
use kube::Client;

use super::non_empty;
use crate::cmd::Error;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ConnectOptions, connect};

const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const DEFAULT_NAMESPACE: &str = "kubeapps";

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// Path to the kubeconfig file (default: $KUBECONFIG, ~/.kube/config or the service account of the pod)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<OsString>,
    /// Name of the kubeconfig context
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// URL of the API server; overrides the kubeconfig
    #[arg(long, value_name = "URL")]
    pub apiserver: Option<String>,
}

impl ClusterFlags {
    pub fn connect_options(&self) -> Result<ConnectOptions, Error> {
        let apiserver = non_empty(self.apiserver.as_deref()).map(str::parse).transpose();
        let kubeconfig = self.kubeconfig.clone().filter(|file| !file.is_empty());
        Ok(ConnectOptions {
            kubeconfig: kubeconfig.map(Into::into),
            context: non_empty(self.context.as_deref()).map(str::to_owned),
            apiserver: apiserver.map_err(|error| {
                Error::Usage(format!("invalid value for --apiserver: {error}; use https://HOST:PORT"))
            })?,
            limits: None,
            write_fence: None,
        })
    }

    pub async fn client(&self) -> Result<Client, Error> {
        Ok(connect(&self.connect_options()?, &RequestMetrics::default()).await?)
    }
}

/// Returns Kubeapps' namespace: `flag`, or else the namespace of the pod, or else `kubeapps`.
pub fn kubeapps_namespace(flag: Option<&str>) -> String {
    first_non_empty([flag, Some(&pod_namespace(Path::new(POD_NAMESPACE_FILE)))])
}

/// Returns the namespace of the Lease: the namespace of the pod, or else `flag`, or else `kubeapps`.
pub fn lease_namespace(flag: Option<&str>) -> String {
    first_non_empty([Some(&pod_namespace(Path::new(POD_NAMESPACE_FILE))), flag])
}

fn pod_namespace(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn first_non_empty(namespaces: [Option<&str>; 2]) -> String {
    let namespace = namespaces.into_iter().find_map(non_empty);
    namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_address_is_invalid_usage() {
        let flags = ClusterFlags {
            apiserver: Some("not an address".into()),
            ..ClusterFlags::default()
        };
        assert_eq!(flags.connect_options().unwrap_err().exit_code(), 2);
    }

    #[test]
    fn an_empty_flag_counts_as_absent() {
        let flags = ClusterFlags {
            kubeconfig: Some("".into()),
            context: Some(String::new()),
            apiserver: Some(" ".into()),
        };
        let options = flags.connect_options().unwrap();
        assert!(options.kubeconfig.is_none() && options.context.is_none() && options.apiserver.is_none());
    }

    #[test]
    fn kubeapps_namespace_is_the_flag_or_the_namespace_of_the_pod_or_kubeapps() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("namespace");
        let namespace = |flag| first_non_empty([flag, Some(&pod_namespace(&file))]);
        assert_eq!(namespace(None), "kubeapps");
        fs::write(&file, "portolan\n").unwrap();
        assert_eq!(namespace(Some("")), "portolan");
        assert_eq!(namespace(Some("other")), "other");
    }
}
