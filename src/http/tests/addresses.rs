//! Address policy for literals, names and redirects.

use std::net::{IpAddr, SocketAddr};

use super::*;

/// Returns a fetcher whose resolver knows only these names.
pub(super) fn fetcher_with_names(settings: Settings, names: &[(&str, &[&str])]) -> Fetcher {
    let names: Vec<(String, Vec<SocketAddr>)> = names
        .iter()
        .map(|(name, addresses)| {
            let addresses = addresses.iter().map(|text| text.parse::<IpAddr>().unwrap());
            (
                name.to_string(),
                addresses.map(|address| SocketAddr::new(address, 0)).collect(),
            )
        })
        .collect();
    let lookup: Lookup = Arc::new(move |name| {
        let found = names
            .iter()
            .find(|(entry, _)| *entry == name)
            .map(|(_, found)| found.clone());
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    });
    Fetcher::build(settings, lookup, ProxyConfig::default()).unwrap()
}

fn public_only() -> Settings {
    Settings {
        allow_private_networks: false,
        ..Settings::default()
    }
}

async fn refused_message(fetcher: &Fetcher, url: &Url) -> String {
    let error = fetcher.get(url, None, &limits()).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient()),
        ("AddressRefused", false),
        "{error}"
    );
    error.to_string()
}

#[tokio::test]
async fn metadata_addresses_are_refused() {
    for host in [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "0xa9fea9fe",
        "100.100.100.200",
    ] {
        let message = refused_message(&fetcher(), &format!("http://{host}/latest/meta-data/").parse().unwrap()).await;
        assert!(
            message.contains("metadata") && message.contains("are not allowed"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_name_with_only_forbidden_addresses_is_refused() {
    let fetcher = fetcher_with_names(
        Settings::default(),
        &[
            ("evil.example", &["169.254.169.254"]),
            ("mapped.example", &["::ffff:169.254.169.254", "fd00:ec2::254"]),
        ],
    );
    let message = refused_message(&fetcher, &"http://evil.example/secret?token=secret".parse().unwrap()).await;
    assert!(
        message.contains("evil.example") && message.contains("169.254.169.254") && !message.contains("secret"),
        "{message}"
    );
    refused_message(&fetcher, &"https://mapped.example/".parse().unwrap()).await;
}

#[tokio::test]
async fn forbidden_addresses_of_a_name_are_skipped() {
    let server = Server::start(|_| response("200 OK", "", b"hello")).await;
    let fetcher = fetcher_with_names(
        Settings::default(),
        &[("both.example", &["169.254.169.254", "127.0.0.1"])],
    );
    let mut url = server.at("index.yaml");
    url.set_host(Some("both.example")).unwrap();
    assert!(fetcher.get(&url, None, &limits()).await.is_ok());
}

#[tokio::test]
async fn private_addresses_are_refused_if_private_networks_are_disabled() {
    let server = Server::start(|_| response("200 OK", "", b"hello")).await;
    let mut by_name = server.url.clone();
    by_name.set_host(Some("inside.example")).unwrap();
    let names: &[(&str, &[&str])] = &[("inside.example", &["127.0.0.1"])];
    for url in [&server.url, &by_name] {
        let message = refused_message(&fetcher_with_names(public_only(), names), url).await;
        assert!(message.contains("--allow-private-networks"), "{message}");
        let allowed = fetcher_with_names(Settings::default(), names)
            .get(url, None, &limits())
            .await;
        assert!(allowed.is_ok());
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn redirects_to_forbidden_addresses_are_refused() {
    for target in [
        "http://169.254.169.254/latest/",
        "http://[::ffff:a9fe:a9fe]/",
        "//2852039166/",
        "http://evil.example/",
        "http://metadata.google.internal/",
    ] {
        let server = Server::start(move |_| redirect(target)).await;
        let fetcher = fetcher_with_names(Settings::default(), &[("evil.example", &["169.254.1.1"])]);
        refused_message(&fetcher, &server.url).await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn the_address_policy_applies_to_repositories_with_their_own_tls_settings() {
    let fetcher = fetcher_with_names(public_only(), &[("evil.example", &["10.0.0.1"])]);
    let own = fetcher
        .with(Access {
            insecure: true,
            ..Access::default()
        })
        .unwrap();
    refused_message(&own, &"https://evil.example/".parse().unwrap()).await;
    refused_message(&own, &"https://127.0.0.1/".parse().unwrap()).await;
}
