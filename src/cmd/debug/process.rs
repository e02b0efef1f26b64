//! Metrics, health and settings of a running process.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;

use super::Bundle;
use super::archive::Part;
use crate::cmd::{Error, failed_to};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of a response, in bytes. More than a part holds, because the end may be a secret that is cut.
const MAX_RESPONSE: usize = 8 << 20;

impl Bundle {
    pub(super) async fn process_parts(&self) -> Vec<Part> {
        let files = [
            ("metrics.txt", &self.metrics_url, "/metrics"),
            ("readyz.txt", &self.metrics_url, "/readyz?verbose"),
            ("livez.txt", &self.metrics_url, "/livez?verbose"),
            ("info.json", &self.metrics_url, "/info"),
            ("arguments.txt", &self.debug_url, "/debug/pprof/cmdline"),
            ("log-filter.txt", &self.debug_url, "/debug/log"),
        ];
        let client = client();
        let requests = files.map(|(name, address, path)| {
            let client = &client;
            async move {
                let client = client.as_ref().map_err(|error| Error::Failed(error.clone()));
                let response = match client {
                    Ok(client) => get(client, address, path, self.token_file.as_deref()).await,
                    Err(error) => Err(error),
                };
                match response {
                    // Arguments are separated by zeros.
                    Ok(text) => Part::new(name, text.replace('\0', "\n")),
                    Err(error) => Part::failed(name, error),
                }
            }
        });
        stream::iter(requests).buffered(files.len()).collect().await
    }
}

fn client() -> Result<reqwest::Client, String> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .timeout(TIMEOUT);
    client.build().map_err(|error| error.to_string())
}

/// Returns the body of a response with any status, since a failed check answers with 503.
async fn get(client: &reqwest::Client, address: &str, path: &str, token: Option<&Path>) -> Result<String, Error> {
    let url = format!("{}{path}", address.trim_end_matches('/'));
    let mut request = client.get(&url);
    // The token is only for the metrics.
    if let Some(file) = token.filter(|_| path == "/metrics") {
        let token = tokio::fs::read_to_string(file).await;
        let token = token.map_err(failed_to(format!("read the token {}", file.display())))?;
        request = request.bearer_auth(token.trim());
    }
    // The error would name the URL, with a password if there is one.
    let failed = |error: reqwest::Error| Error::Failed(format!("failed to get {url}: {}", cause(error)));
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    let is_check = path.starts_with("/readyz") || path.starts_with("/livez");
    if !status.is_success() && !is_check {
        return Err(Error::Failed(format!(
            "failed to get {url}: status {status}: {}",
            text.trim()
        )));
    }
    Ok(text)
}

fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
