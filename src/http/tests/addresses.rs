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
    let lookup: HostLookup = Arc::new(move |name| {
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

#[tokio::test]
async fn loopback_is_refused_by_address_by_name_and_after_a_redirect() {
    let server = Server::start(|_| response("200 OK", "", b"hello")).await;
    let settings = Settings {
        allow_loopback: false,
        ..Settings::default()
    };
    let fetcher = fetcher_with_names(settings, &[("inside.example", &["127.0.0.1", "0.0.0.0", "::1"])]);
    let mut by_name = server.url.clone();
    by_name.set_host(Some("inside.example")).unwrap();
    for url in [&server.url, &by_name] {
        let message = refused_message(&fetcher, url).await;
        assert!(message.contains("--allow-loopback"), "{message}");
    }
    assert!(server.requests().is_empty());
}

/// A name that resolves to an allowed address first and to a forbidden one later: there is no second lookup between the
/// check and the connection.
#[tokio::test]
async fn the_checked_address_is_the_one_that_is_connected_to() {
    let server = Server::start(|_| {
        vec![
            Part::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()),
            Part::Close,
        ]
    })
    .await;
    let lookups = Arc::<std::sync::atomic::AtomicUsize>::default();
    let counted = Arc::clone(&lookups);
    let lookup: HostLookup = Arc::new(move |_| {
        let is_first = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let address: IpAddr = if is_first { "127.0.0.1" } else { "169.254.169.254" }.parse().unwrap();
        Box::pin(async move { Ok(vec![SocketAddr::new(address, 0)]) })
    });
    let fetcher = Fetcher::build(Settings::default(), lookup, ProxyConfig::default()).unwrap();
    let mut url = server.url.clone();
    url.set_host(Some("rebinding.example")).unwrap();
    assert!(fetcher.get(&url, None, &limits()).await.is_ok());
    assert_eq!(lookups.load(std::sync::atomic::Ordering::SeqCst), 1);
    refused_message(&fetcher, &url).await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_api_server_is_refused_at_its_port_only() {
    let api_server = Server::start(|_| response("200 OK", "", b"secret")).await;
    let charts = Server::start(|_| response("200 OK", "", b"hello")).await;
    let port = api_server.url.port().unwrap();
    let names: &[(&str, &[&str])] = &[("alias.example", &["127.0.0.1", "::ffff:127.0.0.1"])];
    let fetcher = fetcher_with_names(Settings::default(), names);
    let fetcher = fetcher.without_api_server(vec![("127.0.0.1".to_owned(), port)]).await;
    let own = fetcher.with(Access {
        insecure: true,
        ..Access::default()
    });
    let alias = |server: &Server| {
        let mut url = server.url.clone();
        url.set_host(Some("alias.example")).unwrap();
        url
    };
    let mapped = format!("http://[::ffff:127.0.0.1]:{port}/").parse().unwrap();
    let to = api_server.url.to_string();
    let redirecting = Server::start(move |_| redirect(&to)).await;
    let of_steps = fetcher.with_private_networks(false).with_private_networks(true);
    for fetcher in [&fetcher, &own.unwrap(), &of_steps] {
        for url in [&api_server.url, &alias(&api_server), &mapped, &redirecting.url] {
            let message = refused_message(fetcher, url).await;
            assert!(message.contains("it is the API server"), "{message}");
        }
        for url in [&charts.url, &alias(&charts)] {
            assert!(fetcher.get(url, None, &limits()).await.is_ok(), "{url}");
        }
    }
    assert!(api_server.requests().is_empty());
}
