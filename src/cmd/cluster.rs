//! The settings of the API server, from flags.

use std::fs;
use std::path::{Path, PathBuf};

use kube::Client;

use super::Failure;
use super::flags::ClusterFlags;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ConnectOptions, connect};

/// The namespace of the pod, mounted into each container.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The default namespace of Kubeapps' programs.
const DEFAULT_NAMESPACE: &str = "kubeapps";

/// Returns the API server that the flags name.
///
/// # Errors
/// Invalid usage: the address cannot be parsed.
pub fn connect_options(flags: &ClusterFlags) -> Result<ConnectOptions, Failure> {
    let apiserver = given(flags.apiserver.as_deref()).map(str::parse).transpose();
    Ok(ConnectOptions {
        kubeconfig: flags
            .kubeconfig
            .as_ref()
            .filter(|file| !file.is_empty())
            .map(PathBuf::from),
        context: given(flags.context.as_deref()).map(str::to_owned),
        apiserver: apiserver
            .map_err(|error| Failure::usage(format!("--apiserver is no address ({error}): write https://HOST:PORT")))?,
    })
}

/// Builds a client from the flags.
///
/// # Errors
/// No API server is configured, or its configuration is invalid.
pub async fn client(flags: &ClusterFlags, requests: &RequestMetrics) -> Result<Client, Failure> {
    connect(&connect_options(flags)?, requests)
        .await
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The namespace that Portolan itself is in: `flag`, else that of the pod, else `kubeapps`.
#[must_use]
pub fn own_namespace(flag: Option<&str>) -> String {
    own_namespace_by(flag, Path::new(POD_NAMESPACE_FILE), DEFAULT_NAMESPACE)
}

fn own_namespace_by(flag: Option<&str>, file: &Path, otherwise: &str) -> String {
    if let Some(namespace) = given(flag) {
        return namespace.to_owned();
    }
    let of_pod = fs::read_to_string(file).unwrap_or_default();
    given(Some(&of_pod)).unwrap_or(otherwise).to_owned()
}

/// The namespace of the pod that this process runs in; that of `flag` outside of one.
#[must_use]
pub fn pod_namespace(flag: Option<&str>) -> String {
    own_namespace_by(
        None,
        Path::new(POD_NAMESPACE_FILE),
        given(flag).unwrap_or(DEFAULT_NAMESPACE),
    )
}

/// The value of a flag that counts as absent when it is empty, as Go's flags have it.
pub fn given(flag: Option<&str>) -> Option<&str> {
    flag.map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_wrong_usage() {
        let flags = ClusterFlags {
            apiserver: Some("not an address".into()),
            ..ClusterFlags::default()
        };
        assert_eq!(connect_options(&flags).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn an_empty_flag_counts_as_absent() {
        let flags = ClusterFlags {
            kubeconfig: Some("".into()),
            context: Some(String::new()),
            apiserver: Some(" ".into()),
        };
        let options = connect_options(&flags).unwrap();
        assert!(options.kubeconfig.is_none() && options.context.is_none() && options.apiserver.is_none());
    }

    #[test]
    fn the_own_namespace_is_that_of_the_flag_else_of_the_pod_else_kubeapps() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namespace");
        assert_eq!(own_namespace_by(None, &file, DEFAULT_NAMESPACE), "kubeapps");
        fs::write(&file, "portolan\n").unwrap();
        assert_eq!(own_namespace_by(Some(""), &file, DEFAULT_NAMESPACE), "portolan");
        assert_eq!(own_namespace_by(Some("other"), &file, DEFAULT_NAMESPACE), "other");
    }
}
