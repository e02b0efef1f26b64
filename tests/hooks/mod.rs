//! `portolan serve --only=hooks`: webhooks that request syncs, with a real API server.

mod faults;
mod looks;
mod pushes;
mod senders;

use std::path::Path;

use portolan::api::{POLL_AT, RECEIVER};
use reqwest::{Client, RequestBuilder};
use serde_json::json;

use crate::cluster::World;
use crate::support::portolan::{Portolan, command};
use crate::support::ports::free_port;
use crate::support::world::{SOON, succeeded};

/// The default schedule never fires, so that only requested syncs run.
const NEVER: &str = "--crontab=@yearly";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A running `portolan serve --only=hooks`.
struct Receiving {
    portolan: Portolan,
    url: String,
    client: Client,
}

impl Receiving {
    /// Starts it for the namespace of a world, and waits until it is ready.
    async fn start(world: &World) -> Self {
        Self::start_with(world, &world.kubeconfig).await
    }

    async fn start_with(world: &World, kubeconfig: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = command(["serve", "--only=hooks", "--serve", &address]);
        command
            .args(["--watch-namespace", &world.namespace])
            .arg("--kubeconfig")
            .arg(kubeconfig);
        portolan::http::install_crypto_provider();
        let client = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let receiving = Self {
            portolan: Portolan::start(command),
            url: format!("http://{address}"),
            client,
        };
        receiving.portolan.ready(SOON).await;
        receiving
    }

    fn request(&self, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.url));
        headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value))
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
        let sent = self.request(path, headers).body(body.to_owned()).send().await;
        sent.unwrap().status().as_u16()
    }

    /// Returns the number of requests with this result, if there were any.
    async fn count(&self, result: &str) -> Option<f64> {
        let metrics = self.portolan.metrics().await;
        metrics.sum("portolan_receiver_requests_total", &[("result", result)])
    }
}

/// Gives a repository a receiver, and returns the path of its address.
async fn receiver(world: &World, repository: &str, type_: &str, token: &str) -> String {
    let secret = format!("{repository}-receiver");
    let values = json!({ "type": type_, "token": token });
    world.write_secret(&world.namespace, &secret, values).await;
    world.annotate(repository, RECEIVER, &secret).await;
    address(world, repository).await
}

/// Returns the path that `portolan receiver address` prints.
async fn address(world: &World, repository: &str) -> String {
    let name = format!("{}/{repository}", world.namespace);
    let mut command = command(["receiver", "address", &name, "--url", "https://hooks.example/"]);
    command.arg("--kubeconfig").arg(&world.kubeconfig);
    let printed = succeeded(command).await;
    let path = printed.trim_end().strip_prefix("https://hooks.example").unwrap();
    path.to_owned()
}

/// Declares a repository that no controller syncs, with a receiver.
async fn declared(world: &World, repository: &str, type_: &str) -> String {
    world.declare(repository, "https://charts.example").await;
    receiver(world, repository, type_, TOKEN).await
}

async fn poll_at(world: &World, repository: &str) -> Option<String> {
    let object = world.repositories.get(repository).await.unwrap();
    object.annotation(POLL_AT).map(str::to_owned)
}
