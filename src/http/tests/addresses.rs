//! Addresses that may not be reached, by literal, by name, by redirect.

use std::net::{IpAddr, SocketAddr};

use super::*;

/// A fetcher whose resolver knows these names and no others.
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
            .find(|(known, _)| *known == name)
            .map(|(_, found)| found.clone());
        Box::pin(async move { found.ok_or_else(|| std::io::Error::other("no such name")) })
    });
    Fetcher::build(settings, lookup, Routes::default()).unwrap()
}

fn public_only() -> Settings {
    Settings {
        allow_private_networks: false,
        ..Settings::default()
    }
}

async fn refusal(fetcher: &Fetcher, url: &Url) -> String {
    let error = fetcher.get(url, None, &limits()).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient()),
        ("AddressRefused", false),
        "{error}"
    );
    error.to_string()
}

#[tokio::test]
async fn an_address_that_may_not_be_reached_is_not_asked() {
    for host in [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "0xa9fea9fe",
        "100.100.100.200",
    ] {
        let message = refusal(&fetcher(), &format!("http://{host}/latest/meta-data/").parse().unwrap()).await;
        assert!(
            message.contains("metadata") && message.contains("; use a URL"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_name_that_has_only_addresses_that_may_not_be_reached_is_refused() {
    let fetcher = fetcher_with_names(
        Settings::default(),
        &[
            ("evil.example", &["169.254.169.254"]),
            ("mapped.example", &["::ffff:169.254.169.254", "fd00:ec2::254"]),
        ],
    );
    let message = refusal(&fetcher, &"http://evil.example/secret?token=secret".parse().unwrap()).await;
    assert!(
        message.contains("evil.example") && message.contains("169.254.169.254") && !message.contains("secret"),
        "{message}"
    );
    refusal(&fetcher, &"https://mapped.example/".parse().unwrap()).await;
}

#[tokio::test]
async fn of_a_names_addresses_only_those_are_asked_that_may_be() {
    let server = Server::start(|_| answer("200 OK", "", b"hello")).await;
    let fetcher = fetcher_with_names(
        Settings::default(),
        &[("both.example", &["169.254.169.254", "127.0.0.1"])],
    );
    let mut url = server.at("index.yaml");
    url.set_host(Some("both.example")).unwrap();
    assert!(fetcher.get(&url, None, &limits()).await.is_ok());
}

#[tokio::test]
async fn private_addresses_are_refused_by_setting() {
    let server = Server::start(|_| answer("200 OK", "", b"hello")).await;
    let mut by_name = server.url.clone();
    by_name.set_host(Some("inside.example")).unwrap();
    let names: &[(&str, &[&str])] = &[("inside.example", &["127.0.0.1"])];
    for url in [&server.url, &by_name] {
        let message = refusal(&fetcher_with_names(public_only(), names), url).await;
        assert!(message.contains("--allow-private-networks"), "{message}");
        let allowed = fetcher_with_names(Settings::default(), names)
            .get(url, None, &limits())
            .await;
        assert!(allowed.is_ok());
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_redirect_leads_to_no_address_that_may_not_be_reached() {
    for target in [
        "http://169.254.169.254/latest/",
        "http://[::ffff:a9fe:a9fe]/",
        "//2852039166/",
        "http://evil.example/",
        "http://metadata.google.internal/",
    ] {
        let server = Server::start(move |_| redirect(target)).await;
        let fetcher = fetcher_with_names(Settings::default(), &[("evil.example", &["169.254.1.1"])]);
        refusal(&fetcher, &server.url).await;
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_repository_with_access_of_its_own_is_held_to_the_same_addresses() {
    let fetcher = fetcher_with_names(public_only(), &[("evil.example", &["10.0.0.1"])]);
    let own = fetcher
        .with(Access {
            insecure: true,
            ..Access::default()
        })
        .unwrap();
    refusal(&own, &"https://evil.example/".parse().unwrap()).await;
    refusal(&own, &"https://127.0.0.1/".parse().unwrap()).await;
}
