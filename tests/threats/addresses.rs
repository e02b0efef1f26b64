//! URLs, redirects and challenges that lead to a cloud metadata service or to this machine.
//!
//! A proxy records the requests and would forward those for a metadata service to a server of the test.

use std::net::ToSocketAddrs;

use axum::http::{StatusCode, header};
use serde_json::json;

use super::{HONEST, SOON, World, chart_in_registry, repository};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::portolan::Portolan;
use crate::support::proxy::Proxy;

/// Metadata services in different notations.
const METADATA: [&str; 18] = [
    "http://169.254.169.254",
    "http://2852039166",
    "http://0xa9fea9fe",
    "http://0xA9.0xFE.0xA9.0xFE",
    "http://0251.0376.0251.0376",
    "http://169.254.43518",
    "http://169.254.169.254.",
    "http://①⑥⑨.②⑤④.169.254",
    "http://169%2e254%2e169%2e254",
    "http://charts@169.254.169.254",
    "http://[::ffff:169.254.169.254]",
    "http://[::ffff:a9fe:a9fe]",
    "http://[64:ff9b::a9fe:a9fe]",
    "http://[2002:a9fe:a9fe::1]",
    "http://[fd00:ec2::254]",
    "http://[fe80::1]",
    "http://metadata.google.internal.",
    "http://100.100.100.200",
];

/// Host name of the honest repository behind the proxy.
const NAME: &str = "charts.example.com";

/// A world whose Portolan uses a proxy for all hosts except this machine.
struct Proxied {
    world: World,
    proxy: Proxy,
    metadata: ChartServer,
}

impl Proxied {
    async fn new() -> Self {
        let (world, proxy, metadata) = (World::new().await, Proxy::start().await, ChartServer::start().await);
        let entry = Chart::new("stolen", "1.0.0").pack().index_entry(&["stolen.tgz"]);
        metadata.serve("/latest/index.yaml", Page::new(index([entry])));
        for host in [
            "169.254.169.254",
            "100.100.100.200",
            "metadata.google.internal",
            "[fd00:ec2::254]",
        ] {
            proxy.add_host(&format!("{host}:80"), metadata.host());
        }
        proxy.add_host(&format!("{NAME}:80"), world.honest.host());
        world.declare(HONEST, &format!("http://{NAME}/charts"), "");
        Self { world, proxy, metadata }
    }

    async fn run(&self, more: &[&str]) -> Portolan {
        let manifests = self.world.directory.join("manifests").display().to_string();
        let mut command = self.world.command(&["run", "--manifests", &manifests]);
        command
            .args(more)
            .env("HTTP_PROXY", self.proxy.url())
            .env("NO_PROXY", "127.0.0.0/8,::1,localhost");
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan
    }

    /// Asserts that only the honest repository was requested.
    fn assert_nothing_was_reached(&self) {
        let requests: Vec<String> = self
            .proxy
            .requests()
            .into_iter()
            .map(|request| request.target)
            .collect();
        let honest = format!("http://{NAME}/charts/");
        assert!(
            !requests.is_empty() && requests.iter().all(|target| target.starts_with(&honest)),
            "{requests:?}"
        );
        assert_eq!(self.metadata.count("/latest/index.yaml"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_url_and_no_redirect_reaches_a_metadata_service_in_any_notation() {
    let proxied = Proxied::new().await;
    let world = &proxied.world;
    for (number, host) in METADATA.iter().enumerate() {
        world.declare(&format!("direct-{number}"), &format!("{host}/latest"), "");
        world.declare(
            &format!("redirected-{number}"),
            &world.attacker.url(&format!("/{number}")),
            "",
        );
        let fault = Fault::redirect_as(
            [301, 302, 303, 307, 308][number % 5],
            &format!("{}/latest/index.yaml", ascii(host)),
        );
        world.attacker.break_path(&format!("/{number}/index.yaml"), fault);
    }
    // The last of several redirects, without a scheme.
    world.declare("hops", &world.attacker.url("/hops"), "");
    world.attacker.break_path("/hops/index.yaml", Fault::redirect("/hop"));
    world
        .attacker
        .break_path("/hop", Fault::redirect("//169.254.169.254/latest/index.yaml"));
    let portolan = proxied.run(&["--log-level=debug"]).await;
    let names = (0..METADATA.len()).flat_map(|number| [format!("direct-{number}"), format!("redirected-{number}")]);
    for name in names.chain(["hops".to_owned()]) {
        let status = world.until_failed(&name, "AddressRefused").await;
        assert_eq!(
            (&status["stalled"], &status["charts"]),
            (&json!(true), &json!(0)),
            "{status}"
        );
    }
    world.until_honest_is_served().await;
    portolan.line_with("AddressRefused", SOON).await;
    proxied.assert_nothing_was_reached();
}

/// Returns the URL in ASCII, as a header requires.
fn ascii(url: &str) -> String {
    url::Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.as_str().trim_end_matches('/').to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_archive_and_no_icon_is_fetched_from_a_metadata_service() {
    let proxied = Proxied::new().await;
    let world = &proxied.world;
    let boat = Chart::new("boat", "1.0.0");
    for (number, host) in METADATA.iter().enumerate() {
        let archive = Chart::new("boat", "1.0.0")
            .field("icon", format!("{host}/latest/index.yaml"))
            .pack();
        let entry = archive.index_entry(&[&format!("{host}/latest/index.yaml")]);
        world.attack(&format!("archive-{number}"), index([entry]));
    }
    let entry = boat
        .field("icon", world.attacker.url("/icon.png"))
        .pack()
        .index_entry(&["boat.tgz"]);
    world.attack("redirected", index([entry]));
    for path in ["/redirected/boat.tgz", "/icon.png"] {
        world
            .attacker
            .break_path(path, Fault::redirect("http://169.254.169.254/latest/index.yaml"));
    }
    let _portolan = proxied.run(&["--chart-files=all", "--icons"]).await;
    for name in (0..METADATA.len())
        .map(|number| format!("archive-{number}"))
        .chain(["redirected".to_owned()])
    {
        let error = world.until_files_failed(&name).await;
        assert!(error.contains("are not allowed"), "{name}: {error}");
        let error = world.until_icon_failed(&name).await;
        assert!(error.contains("are not allowed"), "{name}: {error}");
    }
    world.until_honest_files_are_served().await;
    proxied.assert_nothing_was_reached();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registry_leads_to_a_metadata_service() {
    let proxied = Proxied::new().await;
    let world = &proxied.world;
    let metadata = "http://169.254.169.254/latest/index.yaml";
    let challenge = |realm: &str| {
        let value = format!("Bearer realm=\"{realm}\",service=\"s\"");
        Fault::Answer(
            StatusCode::UNAUTHORIZED,
            vec![(header::WWW_AUTHENTICATE, value)],
            "".into(),
        )
    };
    let tags = |name: &str| format!("/v2/{name}/boat/tags/list");
    let list = "  ociRepositories: [boat]\n";
    let attacks = [
        ("realm", challenge(metadata)),
        ("decimal-realm", challenge("http://2852039166/token")),
        ("redirect", Fault::redirect(metadata)),
        (
            "next-page",
            Fault::Answer(
                StatusCode::OK,
                vec![(header::LINK, format!("<{metadata}>; rel=\"next\""))],
                json!({"name": "next-page/boat", "tags": ["1.0.0"]}).to_string().into(),
            ),
        ),
    ];
    for (name, fault) in attacks {
        world.attacker.break_path(&tags(name), fault);
        world.manifest(
            name,
            &repository("default", name, "oci", &world.attacker.url(&format!("/{name}")), list),
        );
    }
    // A redirected blob.
    let blob = chart_in_registry(&world.attacker, "blob/boat");
    world.attacker.break_path(&blob, Fault::redirect_as(307, metadata));
    world.manifest(
        "blob",
        &repository("default", "blob", "oci", &world.attacker.url("/blob"), list),
    );
    world.manifest(
        "direct",
        &repository("default", "direct", "oci", "http://169.254.169.254/latest", list),
    );

    let _portolan = proxied.run(&[]).await;
    for name in ["realm", "decimal-realm", "redirect", "direct"] {
        world.until_failed(name, "AddressRefused").await;
    }
    let status = world
        .until_status("next-page", "to fail", |status| status["ready"] == false)
        .await;
    assert_eq!(status["charts"], 0, "{status}");
    let status = world
        .until_status("blob", "to have a status", |status| !status["ready"].is_null())
        .await;
    assert!(status.to_string().contains("are not allowed"), "{status}");
    assert_eq!(world.attacker.count(&blob), 1);
    world.until_honest_is_served().await;
    proxied.assert_nothing_was_reached();
}

/// The honest repository is reached through the proxy, because all servers of a test have private addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_private_networks_include_this_machine() {
    let proxied = Proxied::new().await;
    let world = &proxied.world;
    let port = world.attacker.host().rsplit_once(':').unwrap().1;
    let mut hosts: Vec<String> = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "charts.localhost",
    ]
    .map(str::to_owned)
    .into();
    // The host name of this machine, whose address is private only after it is resolved.
    hosts.extend(own_name());
    let entry = Chart::new("private", "1.0.0").pack().index_entry(&["private.tgz"]);
    world.attacker.serve("/private/index.yaml", Page::new(index([entry])));
    for (number, host) in hosts.iter().enumerate() {
        let url = format!("http://{host}:{port}/private");
        world.declare(&format!("direct-{number}"), &url, "");
        world.declare(
            &format!("redirected-{number}"),
            &format!("http://{NAME}/charts/{number}"),
            "",
        );
        let fault = Fault::redirect(&format!("{url}/index.yaml"));
        world.honest.break_path(&format!("/charts/{number}/index.yaml"), fault);
    }
    let mut command = world.command(&[
        "run",
        "--manifests",
        &world.directory.join("manifests").display().to_string(),
    ]);
    command.args(["--allow-private-networks=false", "--chart-files=all"]);
    let own = own_name().unwrap_or_default();
    let no_proxy = format!("127.0.0.0/8,::1,localhost,{own}");
    command.env("HTTP_PROXY", proxied.proxy.url()).env("NO_PROXY", no_proxy);
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    for number in 0..hosts.len() {
        for name in [format!("direct-{number}"), format!("redirected-{number}")] {
            let status = world.until_failed(&name, "AddressRefused").await;
            assert!(
                status["message"].as_str().unwrap().contains("--allow-private-networks"),
                "{status}"
            );
        }
    }
    world.until_honest_files_are_served().await;
    assert_eq!(world.attacker.count("/private/index.yaml"), 0);
    proxied.assert_nothing_was_reached();
}

/// Returns the host name of this machine if it can be resolved.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()?
        .trim()
        .to_ascii_lowercase();
    (name.as_str(), 80).to_socket_addrs().ok()?.next()?;
    Some(name)
}
