//! The filter of the log at `/debug/log`.

use super::serve_index;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{Portolan, command, run};
use crate::support::ports::free_port;
use crate::support::world::World;

struct DebugClient {
    client: reqwest::Client,
    url: String,
}

impl DebugClient {
    fn new(address: &str) -> Self {
        portolan::http::install_crypto_provider();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        Self {
            client: client.build().unwrap(),
            url: format!("http://{address}/debug/log"),
        }
    }

    async fn show(&self) -> String {
        self.client.get(&self.url).send().await.unwrap().text().await.unwrap()
    }

    async fn set(&self, filter: &'static str) -> (u16, String) {
        let response = self.client.put(&self.url).body(filter).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

/// Each repository that is declared shows one line at debug.
async fn logs_of_a_new_repository(world: &World, portolan: &Portolan, name: &str) -> Vec<String> {
    portolan.forget_lines();
    world.declare(name, &serve_index(world, name), "");
    eventually(SOON, "the repository to be synced", async || {
        let text = portolan.get("/metrics").await.map_err(|error| error.to_string())?.1;
        let series = format!("portolan_repository_charts{{namespace=\"default\",name=\"{name}\"}}");
        if text.contains(&series) { Ok(()) } else { Err(text) }
    })
    .await;
    portolan.lines()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_filter_is_changed_while_the_process_runs() {
    let world = World::new().await;
    let address = format!("127.0.0.1:{}", free_port());
    let portolan = world.run(&[&format!("--debug-addr={address}")]).await;
    let debug = DebugClient::new(&address);
    assert!(debug.show().await.contains("info"), "{}", debug.show().await);
    let has_debug = |lines: &[String]| lines.iter().any(|line| line.contains("DEBUG"));

    assert!(!has_debug(&logs_of_a_new_repository(&world, &portolan, "before").await));
    let (status, filter) = debug.set("debug").await;
    assert!(status == 200 && filter.contains("debug"), "{status} {filter}");
    assert!(has_debug(&logs_of_a_new_repository(&world, &portolan, "during").await));

    let (status, reason) = debug.set("portolan=loud").await;
    assert!(
        status == 400 && reason.contains("use a level such as debug"),
        "{status} {reason}"
    );
    assert_eq!(debug.set("").await.0, 400);
    assert!(
        debug.show().await.contains("debug"),
        "an invalid filter changes nothing"
    );

    assert_eq!(debug.set("info").await.0, 200);
    assert!(!has_debug(&logs_of_a_new_repository(&world, &portolan, "after").await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_filter_is_read_only_at_other_addresses_than_loopback() {
    let world = World::new().await;
    let port = free_port();
    let _portolan = world.run(&[&format!("--debug-addr=:{port}")]).await;
    let debug = DebugClient::new(&format!("127.0.0.1:{port}"));
    let (status, reason) = debug.set("debug").await;
    assert!(status == 403 && reason.contains("--debug-addr"), "{status} {reason}");
    assert!(!debug.show().await.contains("debug"));
}

#[tokio::test]
async fn an_invalid_debug_address_is_wrong_usage() {
    let output = run(command(["run", "--manifests", "/nowhere", "--debug-addr=6060"])).await;
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("invalid value for --debug-addr: missing port"),
        "{error}"
    );
}
