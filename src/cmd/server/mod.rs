//! `--server`: the catalog of `portolan serve`, read with the token of the caller.

mod chart;
mod client;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use axum::http::HeaderValue;
use clap::Args;
use url::{Host, Url};

use super::flags::cluster::ClusterFlags;
use super::flags::non_empty;
use super::{Error, failed_to};
use crate::runtime::kube_client::bearer_token;
pub use client::{ServerClient, warn_of_stale_answer};

const TOKEN_VARIABLE: &str = "PORTOLAN_TOKEN";
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerFlags {
    /// Read the catalog from this `portolan serve` instead of the database: https://HOST[/PATH], or http:// with a loopback
    /// address. It gets your token: that of --token-file, $PORTOLAN_TOKEN or the kubeconfig
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// File with the token for --server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl ServerFlags {
    /// Returns a client of the server; `None` if the catalog is read from the database.
    pub async fn client(&self) -> Result<Option<ServerClient>, Error> {
        let Some(server) = non_empty(self.server.as_deref()) else {
            return Ok(None);
        };
        let address = parse_address(server)?;
        let token = self.token().await?;
        ServerClient::new(address, token).map(Some)
    }

    async fn token(&self) -> Result<Option<HeaderValue>, Error> {
        if let Some(file) = &self.token_file {
            let read = failed_to(format!("read the token file {}", file.display()));
            return header(&read_token(file).map_err(read)?, &file.display().to_string()).map(Some);
        }
        let variable = std::env::var(TOKEN_VARIABLE).ok();
        match non_empty(variable.as_deref()) {
            Some(token) => header(token, TOKEN_VARIABLE).map(Some),
            None => Ok(bearer_token(&self.cluster.connect_options()?).await?),
        }
    }
}

fn read_token(file: &Path) -> io::Result<String> {
    let mut token = String::new();
    File::open(file)?.take(MAX_TOKEN_BYTES).read_to_string(&mut token)?;
    Ok(token)
}

/// Returns the value of the header `Authorization`. The error has no part of the token.
fn header(token: &str, source: &str) -> Result<HeaderValue, Error> {
    let token = token.trim();
    let value = HeaderValue::try_from(format!("Bearer {token}")).ok();
    let mut value = value
        .filter(|_| !token.is_empty())
        .ok_or_else(|| Error::Failed(format!("{source} has no valid token")))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Refuses addresses to which others on the way could read the token.
fn parse_address(text: &str) -> Result<Url, Error> {
    let invalid = |reason: &str| Error::Usage(format!("invalid value for --server: {reason}"));
    let mut url = Url::parse(text).map_err(|_| invalid("use https://HOST or https://HOST/PATH"))?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if is_loopback => {}
        "http" => {
            return Err(invalid(
                "without TLS, others on the way can read your token; use https://, or `kubectl port-forward` and \
                 http://localhost:PORT",
            ));
        }
        _ => return Err(invalid("use https://HOST or https://HOST/PATH")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("it must have no user and password; use --token-file"));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://catalog.example")]
    #[case("https://catalog.example:8443/portolan/")]
    #[case("http://localhost:8090")]
    #[case("http://127.0.0.1:8090")]
    #[case("http://[::1]:8090")]
    fn a_token_is_sent_over_tls_or_to_this_host(#[case] address: &str) {
        parse_address(address).unwrap();
    }

    #[rstest]
    #[case("http://catalog.example")]
    #[case("http://localhost.example")]
    #[case("http://10.0.0.1:8090")]
    #[case("http://0.0.0.0:8090")]
    #[case("https://me:hush@catalog.example")]
    #[case("ftp://catalog.example")]
    #[case("catalog.example")]
    fn other_addresses_are_invalid_usage(#[case] address: &str) {
        let error = parse_address(address).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }

    #[test]
    fn a_token_loses_its_line_break_and_is_never_printed() {
        let value = header("hush\n", "file").unwrap();
        assert_eq!(value, "Bearer hush");
        assert!(!format!("{value:?}").contains("hush"));
        for invalid in ["", " \n", "hu\nsh"] {
            let error = header(invalid, "file").unwrap_err();
            assert_eq!(error, Error::Failed("file has no valid token".to_owned()));
        }
    }
}
