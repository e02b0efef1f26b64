//! The way to the API server.

use std::{fs, path::Path, time::Duration};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::Failure;
use super::flags::ClusterFlags;
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::response_size::limit_response_size;
use crate::runtime::kube_client::response_timeout::ResponseTimeout;

/// Where a pod finds the namespace that it runs in.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The longest silence of the API server in an answer. The watches end after 290 s, at the server's word.
const SILENCE: Duration = Duration::from_secs(300);
/// The namespace that Kubeapps' programs take for their own when nothing says another.
const DEFAULT_NAMESPACE: &str = "kubeapps";

/// A client by the flags, whose requests are counted.
///
/// # Errors
/// When no API server is named by flags, kubeconfig or environment, or what names it can't be used.
pub async fn client(flags: &ClusterFlags, requests: &RequestMetrics) -> Result<Client, Failure> {
    let mut config = config(flags).await?;
    // The queue tries again by itself, and tells; a client that does so silently only holds a worker.
    config.default_retry = false;
    // A list that is never answered would end the watch for good. A watch that is silent ends by itself before.
    config.read_timeout = Some(SILENCE);
    let user_agent = concat!("portolan/", env!("CARGO_PKG_VERSION"));
    config.headers.push((
        axum::http::header::USER_AGENT,
        axum::http::HeaderValue::from_static(user_agent),
    ));
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| Failure::failed(format!("can't make a client for the API server: {error}")))?;
    let builder = builder.with_layer(&ResponseTimeout::default()).with_layer(requests);
    Ok(limit_response_size(builder.build()))
}

async fn config(flags: &ClusterFlags) -> Result<Config, Failure> {
    let apiserver = match given(flags.apiserver.as_deref()) {
        Some(url) => Some(url.parse().map_err(|error| {
            Failure::usage(format!("--apiserver is no address ({error}): write https://HOST:PORT"))
        })?),
        None => None,
    };
    let options = KubeConfigOptions {
        context: given(flags.context.as_deref()).map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let file = flags
        .kubeconfig
        .as_deref()
        .filter(|file| !file.is_empty())
        .map(Path::new);
    let unusable = |error: &dyn std::fmt::Display| {
        let what = file.map_or_else(
            || "kubeconfig".to_owned(),
            |file| format!("kubeconfig {}", file.display()),
        );
        Failure::failed(format!("can't use the {what}: {error}"))
    };
    let config = if let Some(file) = file {
        let kubeconfig = Kubeconfig::read_from(file).map_err(|error| unusable(&error))?;
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| unusable(&error))
    } else if options.context.is_some() {
        Config::from_kubeconfig(&options)
            .await
            .map_err(|error| unusable(&error))
    } else {
        Config::infer().await.map_err(|error| {
            Failure::failed(format!(
                "no API server is known ({error}): name one with --kubeconfig, run in a pod, or watch a folder with --manifests DIR"
            ))
        })
    };
    match (config, apiserver) {
        (Ok(config), None) => Ok(config),
        (Ok(mut config), Some(cluster_url)) => {
            config.cluster_url = cluster_url;
            Ok(config)
        }
        // An address alone will do, as with kubectl, where the server asks for no credentials.
        (Err(_), Some(cluster_url)) if file.is_none() && options.context.is_none() => Ok(Config::new(cluster_url)),
        (Err(failure), _) => Err(failure),
    }
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
    use std::ffi::OsString;

    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: 'https://one.example:6443'}}
- {name: two, cluster: {server: 'https://two.example:6443'}}
users: [{name: u, user: {token: t}}]
contexts:
- {name: one, context: {cluster: one, user: u, namespace: here}}
- {name: two, context: {cluster: two, user: u}}
";

    fn flags(file: &Path) -> ClusterFlags {
        ClusterFlags {
            kubeconfig: Some(OsString::from(file)),
            ..ClusterFlags::default()
        }
    }

    #[tokio::test]
    async fn context_and_address_of_the_flags_stand_above_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        fs::write(&file, KUBECONFIG).unwrap();
        let one = config(&flags(&file)).await.unwrap();
        assert_eq!(
            (one.cluster_url.host(), one.default_namespace.as_str()),
            (Some("one.example"), "here")
        );
        let two = config(&ClusterFlags {
            context: Some("two".into()),
            ..flags(&file)
        })
        .await
        .unwrap();
        assert_eq!(two.cluster_url.host(), Some("two.example"));
        let other = config(&ClusterFlags {
            apiserver: Some("https://127.0.0.1:1".into()),
            ..flags(&file)
        })
        .await
        .unwrap();
        assert_eq!(other.cluster_url.port_u16(), Some(1));
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let failure = config(&flags(Path::new("/nowhere/config"))).await.unwrap_err();
        assert!(failure.to_string().contains("/nowhere/config"), "{failure}");
        assert_eq!(failure.exit_code(), 1);
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_wrong_usage() {
        let flags = ClusterFlags {
            apiserver: Some("not an address".into()),
            ..ClusterFlags::default()
        };
        assert_eq!(config(&flags).await.unwrap_err().exit_code(), 2);
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
