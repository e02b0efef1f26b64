//! Proxies of the environment and of a repository.

use super::*;

async fn proxy() -> Server {
    Server::start(|_| response("200 OK", "", b"by proxy")).await
}

fn through(proxies: Proxies) -> Access {
    Access {
        proxies: Some(proxies),
        ..Access::default()
    }
}

fn fetcher_behind(variables: &[(&str, &str)], settings: Settings) -> Fetcher {
    let variable = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Fetcher::build(
        settings,
        system_lookup(),
        ProxyConfig::from_environment(variable).unwrap(),
    )
    .unwrap()
}

#[tokio::test]
async fn a_repository_uses_its_own_proxy_except_for_no_proxy_hosts() {
    let (proxy, direct) = (
        proxy().await,
        Server::start(|_| response("200 OK", "", b"direct")).await,
    );
    let mut authority = proxy.url.clone();
    authority.set_username("user").unwrap();
    authority.set_password(Some("p%40ss")).unwrap();
    let fetcher = fetcher()
        .with(through(Proxies {
            http: Some(authority.to_string()),
            no_proxy: Some("charts.example, direct.example".to_owned()),
            ..Proxies::default()
        }))
        .unwrap();
    let fetched = fetcher
        .get(&"http://charts.invalid/index.yaml".parse().unwrap(), None, &limits())
        .await;
    let Ok(Fetched::Body(body)) = fetched else {
        panic!("{fetched:?}")
    };
    assert_eq!(bytes(body), b"by proxy");
    let request = proxy.requests().remove(0);
    assert!(
        request.starts_with("GET http://charts.invalid/index.yaml "),
        "{request}"
    );
    // user:p@ss
    assert!(
        request
            .to_lowercase()
            .contains("proxy-authorization: basic dxnlcjpwqhnz"),
        "{request}"
    );

    let error = fetcher
        .get(&"http://charts.example/".parse().unwrap(), None, &limits())
        .await;
    assert_eq!(error.unwrap_err().reason(), "DNSFailure");
    fetcher.get(&direct.url, None, &limits()).await.unwrap();
    assert_eq!((proxy.requests().len(), direct.requests().len()), (1, 1));
}

/// A proxy can forge responses of any host, so its `Retry-After` must not affect other repositories.
#[tokio::test]
async fn a_backoff_from_a_repositorys_proxy_applies_only_to_the_same_proxy() {
    let good = proxy().await;
    let hostile = Server::start(|_| response("503 Service Unavailable", "Retry-After: 900", b"")).await;
    let shared = fetcher_behind(&[("http_proxy", good.url.as_str())], Settings::default());
    let url: Url = "http://charts.invalid/index.yaml".parse().unwrap();
    let own = through(Proxies {
        http: Some(hostile.url.to_string()),
        ..Proxies::default()
    });
    let tenant = shared.with(own.clone()).unwrap();
    assert!(matches!(
        tenant.get(&url, None, &limits()).await.unwrap_err(),
        FetchError::Status { .. }
    ));
    // The next sync with the same settings shares the backoff.
    let again = shared.with(own).unwrap();
    assert!(matches!(
        again.get(&url, None, &limits()).await.unwrap_err(),
        FetchError::BackingOff { .. }
    ));
    shared.get(&url, None, &limits()).await.unwrap();
    shared
        .with(Access::default())
        .unwrap()
        .get(&url, None, &limits())
        .await
        .unwrap();
    assert_eq!((hostile.requests().len(), good.requests().len()), (1, 2));
}

#[test]
fn transport_keys_differ_by_proxies_and_tls_settings() {
    let proxies = |http: Option<&str>, https: Option<&str>| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        through(Proxies {
            http: text(http),
            https: text(https),
            no_proxy: None,
        })
    };
    let settings = [
        Access::default(),
        proxies(None, None),
        proxies(Some("a"), None),
        proxies(None, Some("a")),
        proxies(Some("a"), Some("")),
        Access {
            insecure: true,
            ..Access::default()
        },
        Access {
            ca: Some(b"a".to_vec()),
            ..Access::default()
        },
    ];
    for (at, one) in settings.iter().enumerate() {
        for (other_at, other) in settings.iter().enumerate() {
            assert_eq!(
                one.transport_key() == other.transport_key(),
                at == other_at,
                "{one:?} {other:?}"
            );
        }
    }
    // Credentials do not change the connection.
    let authorized = Access {
        authorization: Some(Secret::new("Basic dTpw".to_owned())),
        pass_credentials: true,
        ..Access::default()
    };
    assert_eq!(authorized.transport_key(), None);
}

#[tokio::test]
async fn proxies_of_a_repository_replace_those_of_the_environment() {
    let proxy = proxy().await;
    let fetcher = fetcher_behind(&[("http_proxy", proxy.url.as_str())], Settings::default());
    let url: Url = "http://charts.invalid/".parse().unwrap();
    fetcher.get(&url, None, &limits()).await.unwrap();
    // A repository's own TLS settings keep the proxies of the environment.
    let insecure = Access {
        insecure: true,
        ..Access::default()
    };
    fetcher
        .with(insecure)
        .unwrap()
        .get(&url, None, &limits())
        .await
        .unwrap();
    assert_eq!(proxy.requests().len(), 2);
    let own = fetcher.with(through(Proxies::default())).unwrap();
    assert_eq!(own.get(&url, None, &limits()).await.unwrap_err().reason(), "DNSFailure");
    assert_eq!(proxy.requests().len(), 2);
}

#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let (acceptor, pem) = connections::tls("charts.invalid");
    let proxy = Server::tunnel(acceptor, |_| response("200 OK", "", b"hello")).await;
    let fetcher = fetcher()
        .with(Access {
            ca: Some(pem),
            ..through(Proxies {
                https: Some(proxy.url.authority().to_owned()),
                ..Proxies::default()
            })
        })
        .unwrap();
    let url = "https://charts.invalid/index.yaml".parse().unwrap();
    assert!(matches!(fetcher.get(&url, None, &limits()).await, Ok(Fetched::Body(_))));
    let requests = proxy.requests();
    assert!(requests[0].starts_with("CONNECT charts.invalid:443 "), "{requests:?}");
    assert!(requests[1].starts_with("GET /index.yaml "), "{requests:?}");
}

#[tokio::test]
async fn literal_addresses_are_checked_before_a_proxy_is_used() {
    let proxy = proxy().await;
    let fetcher = fetcher_behind(&[("HTTP_PROXY", proxy.url.as_str())], Settings::default());
    for host in ["169.254.169.254", "metadata.google.internal"] {
        let error = fetcher
            .get(&format!("http://{host}/").parse().unwrap(), None, &limits())
            .await;
        assert_eq!(error.unwrap_err().reason(), "AddressRefused");
    }
    assert!(proxy.requests().is_empty());
}

#[tokio::test]
async fn only_the_operators_proxy_may_have_a_private_address_if_private_networks_are_disabled() {
    let proxy = proxy().await;
    let public_only = || Settings {
        allow_private_networks: false,
        ..Settings::default()
    };
    let mut by_name = proxy.url.clone();
    by_name.set_host(Some("localhost")).unwrap();
    let url: Url = "http://charts.invalid/".parse().unwrap();
    for address in [&proxy.url, &by_name] {
        let fetcher = fetcher_behind(&[("HTTP_PROXY", address.as_str())], public_only());
        fetcher.get(&url, None, &limits()).await.unwrap();
        let own = fetcher.with(through(Proxies {
            http: Some(address.to_string()),
            ..Proxies::default()
        }));
        assert_eq!(own.unwrap_err().reason(), "AddressRefused");
    }
    assert_eq!(proxy.requests().len(), 2);

    let names: &[(&str, &[&str])] = &[("proxy.example", &["127.0.0.1"])];
    let fetcher = addresses::fetcher_with_names(public_only(), names);
    let own = fetcher.with(through(Proxies {
        http: Some(format!("proxy.example:{}", proxy.url.port().unwrap())),
        ..Proxies::default()
    }));
    let error = own.unwrap().get(&url, None, &limits()).await.unwrap_err();
    assert_eq!(error.reason(), "AddressRefused", "{error}");
    assert_eq!(proxy.requests().len(), 2);
}

#[test]
fn an_invalid_proxy_is_rejected_before_a_request_is_sent() {
    let own = fetcher().with(through(Proxies {
        http: Some("ftp://user:hunter2@proxy.example".to_owned()),
        ..Proxies::default()
    }));
    let message = own.unwrap_err().to_string();
    assert!(
        message.contains("the HTTP proxy of the repository") && message.contains("use http://"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn an_unreachable_proxy_is_named_in_the_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let own = fetcher().with(through(Proxies {
        http: Some(format!("user:hunter2@{address}")),
        ..Proxies::default()
    }));
    let error = own
        .unwrap()
        .get(&"http://charts.invalid/".parse().unwrap(), None, &limits())
        .await
        .unwrap_err();
    let message = error.to_string();
    assert_eq!((error.reason(), error.is_transient()), ("ConnectFailed", true));
    assert!(
        message.contains(&format!("the proxy {address}")) && !message.contains("hunter2"),
        "{message}"
    );
}

#[tokio::test]
async fn a_407_of_the_proxy_has_its_own_reason() {
    let proxy = Server::start(|_| response("407 Proxy Authentication Required", "", b"")).await;
    let fetcher = fetcher()
        .with(through(Proxies {
            http: Some(proxy.url.to_string()),
            https: Some(proxy.url.to_string()),
            no_proxy: None,
        }))
        .unwrap();
    for url in ["http://charts.invalid/", "https://charts.invalid/"] {
        let error = fetcher.get(&url.parse().unwrap(), None, &limits()).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.is_transient()),
            ("ProxyAuthenticationRequired", false),
            "{error}"
        );
    }
}
