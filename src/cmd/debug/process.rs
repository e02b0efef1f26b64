//! Metrics, health and settings of a running process.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;

use super::Bundle;
use super::archive::BundlePart;
use super::settings::public_argument;
use crate::cmd::{Error, failed_to};

const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PROCESS: &str = "/proc/1/cmdline";
/// The size limit of a response, in bytes. More than a part holds, because the end may be a secret that is cut.
const MAX_RESPONSE: usize = 8 << 20;

impl Bundle {
    pub(super) async fn process_parts(&self) -> Vec<BundlePart> {
        let mut files = vec![
            ("metrics.txt", &self.metrics_url, "/metrics"),
            ("readyz.txt", &self.metrics_url, "/readyz?verbose"),
            ("livez.txt", &self.metrics_url, "/livez?verbose"),
            ("info.json", &self.metrics_url, "/info"),
        ];
        if let Some(debug_url) = &self.debug_url {
            files.push(("arguments.txt", debug_url, "/debug/pprof/cmdline"));
            files.push(("log-filter.txt", debug_url, "/debug/log"));
        }
        let client = client();
        let count = files.len();
        let requests = files.into_iter().map(|(name, address, path)| {
            let client = &client;
            async move {
                let client = client.as_ref().map_err(|error| Error::Failed(error.clone()));
                let response = match client {
                    Ok(client) => get(client, address, path, self.token_file.as_deref()).await,
                    Err(error) => Err(error),
                };
                match response {
                    // Arguments are separated by zeros.
                    Ok(text) => BundlePart::new(name, text.replace('\0', "\n")),
                    Err(error) => BundlePart::failed(name, error),
                }
            }
        });
        let mut parts: Vec<BundlePart> = stream::iter(requests).buffered(count).collect().await;
        if self.debug_url.is_none() {
            // In the pod, the first process of the container is the one that runs.
            let first = tokio::fs::read(FIRST_PROCESS).await.ok();
            parts.extend(
                first
                    .and_then(|line| arguments(&line))
                    .map(|text| BundlePart::new("arguments.txt", text)),
            );
        }
        parts
    }
}

/// Returns the arguments of `portolan run` without what may be secret, or nothing for another program.
fn arguments(command_line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.trim_end_matches('\0').split('\0');
    let program = words.next()?;
    let words: Vec<&str> = words.collect();
    let is_ours = program.rsplit('/').next() == Some("portolan") && words.first() == Some(&"run");
    is_ours.then(|| words.into_iter().map(|word| public_argument(word) + "\n").collect())
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
        let token = tokio::fs::read_to_string(file)
            .await
            .map_err(failed_to(format!("read the token {}", file.display())))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arguments_of_the_controller_are_shown_and_no_secret() {
        let line = b"/usr/local/bin/portolan\0run\0--database-url=postgres://me:hunter2@db/x\0--unknown=hunter2\0";
        let shown = "run\n--database-url=postgres://db/x\n--unknown=...\n";
        assert_eq!(arguments(line).as_deref(), Some(shown));
        for other in [&b"/sbin/init\0run\0"[..], b"portolan\0status\0", b"portolan\0", b""] {
            assert_eq!(arguments(other), None);
        }
    }
}
