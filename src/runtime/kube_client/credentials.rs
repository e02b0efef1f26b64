//! The token of a kubeconfig, for servers beside the API server, and clients whose user must not be asked for one.

use std::future::ready;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Request, Response};
use kube::Client;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt as _};
use kube::config::ExecInteractiveMode;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::connect::{ConnectError, ConnectOptions, config, prepared_config, unusable};

const BEARER: &[u8] = b"Bearer ";

/// Returns the value of the header `Authorization`, if the user of the options has a token. Runs the user's credential plugin.
///
/// Other credentials, such as client certificates, are for the API server only. Errors quote nothing that a plugin writes.
pub async fn bearer_token(options: &ConnectOptions) -> Result<Option<HeaderValue>, ConnectError> {
    let config = match config(options).await {
        Ok(config) => config,
        // A server may need no token.
        Err(_) if options.kubeconfig.is_none() && options.context.is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(layer) = config.auth_layer().map_err(|error| without_token(&error))? else {
        return Ok(None);
    };
    let read = service_fn(|request: Request<Body>| {
        let header = request.headers().get(AUTHORIZATION).cloned();
        ready(Ok::<_, BoxError>(Response::new(header)))
    });
    let header = layer.layer(read).oneshot(Request::new(Body::empty())).await;
    let header = header.map_err(|_| ConnectError(NO_TOKEN.to_owned()))?.into_body();
    Ok(header.filter(|header| header.as_bytes().starts_with(BEARER)))
}

const NO_TOKEN: &str = "the credential plugin of the kubeconfig returned no valid token";

fn without_token(error: &kube::Error) -> ConnectError {
    ConnectError(match error {
        kube::Error::Auth(AuthError::AuthExecStart(error)) => {
            format!("failed to start the credential plugin of the kubeconfig: {error}")
        }
        kube::Error::Auth(AuthError::AuthExecRun { out, .. }) => {
            format!("the credential plugin of the kubeconfig failed: {}", out.status)
        }
        kube::Error::Auth(AuthError::ReadTokenFile(error, file)) => {
            format!("failed to read the token file {}: {error}", file.display())
        }
        // Others may quote the output of the plugin.
        _ => NO_TOKEN.to_owned(),
    })
}

/// Returns a client for a command line that is being completed: a credential plugin must neither ask nor print.
pub async fn connect_silently(options: &ConnectOptions) -> Result<Client, ConnectError> {
    let mut config = prepared_config(options).await?;
    if let Some(plugin) = &mut config.auth_info.exec {
        plugin.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    let builder = ClientBuilder::try_from(config).map_err(|error| unusable(&error))?;
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use rstest::rstest;

    use super::*;

    fn kubeconfig(directory: &Path, user: &str) -> ConnectOptions {
        let file = directory.join("config");
        let config = format!(
            "
apiVersion: v1
kind: Config
current-context: one
clusters: [{{name: one, cluster: {{server: 'https://one.example:6443'}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: one, context: {{cluster: one, user: u}}}}]
"
        );
        fs::write(&file, config).unwrap();
        ConnectOptions {
            kubeconfig: Some(file),
            ..ConnectOptions::default()
        }
    }

    fn plugin(script: &str) -> String {
        let args = serde_json::to_string(&["-c", script]).unwrap();
        let version = "client.authentication.k8s.io/v1";
        format!("{{exec: {{apiVersion: {version}, command: sh, args: {args}, interactiveMode: Never}}}}")
    }

    fn credential(status: &str) -> String {
        plugin(&format!(
            r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
        ))
    }

    async fn token(user: &str) -> Result<Option<HeaderValue>, ConnectError> {
        let directory = tempfile::tempdir().unwrap();
        bearer_token(&kubeconfig(directory.path(), user)).await
    }

    #[rstest]
    #[case("{token: hush}".to_owned())]
    #[case(credential(r#"{"token":"hush"}"#))]
    #[case(credential(r#"{"token":"hush","expirationTimestamp":"2999-01-01T00:00:00Z"}"#))]
    #[tokio::test]
    async fn the_token_is_the_one_of_the_kubeconfig(#[case] user: String) {
        let token = token(&user).await.unwrap().unwrap();
        assert_eq!(token.to_str().unwrap(), "Bearer hush");
        assert!(token.is_sensitive());
    }

    #[tokio::test]
    async fn the_token_may_be_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "hush").unwrap();
        let options = kubeconfig(directory.path(), &format!("{{tokenFile: '{}'}}", file.display()));
        assert_eq!(bearer_token(&options).await.unwrap().unwrap(), "Bearer hush");
    }

    #[rstest]
    #[case("{}")]
    #[case("{username: me, password: hush}")]
    #[tokio::test]
    async fn other_credentials_are_not_sent(#[case] user: &str) {
        assert_eq!(token(user).await.unwrap(), None);
    }

    #[rstest]
    #[case(plugin("echo hush; echo hush >&2; exit 3"))]
    #[case(plugin("echo 'token: {hush'"))]
    #[case("{exec: {command: /nowhere/hush-plugin, apiVersion: v1, env: [{name: A, value: hush}]}}".to_owned())]
    #[tokio::test]
    async fn errors_do_not_quote_the_plugin(#[case] user: String) {
        let error = token(&user).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_that_was_asked_for_is_an_error() {
        let options = ConnectOptions {
            kubeconfig: Some(PathBuf::from("/nowhere/config")),
            ..ConnectOptions::default()
        };
        bearer_token(&options).await.unwrap_err();
    }
}
