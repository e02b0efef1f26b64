//! Who gets a repository's credentials, and who does not.

use super::*;
use crate::http::secret::Secret;

const HEADER: &str = "Basic dXNlcjpzZWNyZXQ=";

fn access(scope: &Url) -> Access {
    Access {
        authorization: Some(Secret::new(HEADER.to_owned())),
        scope: Some(scope.clone()),
        ..Access::default()
    }
}

/// What was sent as `Authorization` with the request at this place.
fn sent(server: &Server, at: usize) -> Option<String> {
    let request = &server.requests()[at];
    let line = request
        .lines()
        .find(|line| line.to_lowercase().starts_with("authorization:"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

async fn server() -> Server {
    Server::start(|_| answer("200 OK", "", b"hello")).await
}

async fn redirecting_to(target: &Url) -> Server {
    let target = target.to_string();
    Server::start(move |_| redirect(&target)).await
}

#[tokio::test]
async fn credentials_go_to_the_repository_and_to_nobody_else() {
    let (own, other) = (server().await, server().await);
    let fetcher = fetcher().with(access(&own.at("charts"))).unwrap();
    // The archive of an index may stand on another port, or under another name.
    let mut other_name = own.at("a.tgz");
    other_name.set_host(Some("localhost")).unwrap();
    for url in [
        own.at("charts/index.yaml"),
        own.at("elsewhere.tgz"),
        other.at("a.tgz"),
        other_name,
    ] {
        fetcher.get(&url, None, &limits()).await.unwrap();
    }
    assert_eq!(sent(&own, 0).as_deref(), Some(HEADER));
    assert_eq!(sent(&own, 1).as_deref(), Some(HEADER));
    assert_eq!(sent(&own, 2), None);
    assert_eq!(sent(&other, 0), None);
}

#[tokio::test]
async fn a_redirect_takes_no_credentials_elsewhere_and_gets_them_back_at_home() {
    let away = Arc::new(parking_lot::Mutex::new(String::new()));
    let home = Server::start({
        let away = Arc::clone(&away);
        move |request| match request.starts_with("GET /home") {
            true => answer("200 OK", "", b"hello"),
            false => redirect(&away.lock()),
        }
    })
    .await;
    let elsewhere = redirecting_to(&home.at("home")).await;
    *away.lock() = elsewhere.url.to_string();
    let answer = fetcher()
        .with(access(&home.url))
        .unwrap()
        .send(&Request::new(home.at("start")), &limits())
        .await
        .unwrap();
    assert_eq!(answer.url, home.at("home"));
    assert_eq!(sent(&home, 0).as_deref(), Some(HEADER));
    assert_eq!(sent(&elsewhere, 0), None);
    assert_eq!(sent(&home, 1).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_go_everywhere_only_when_that_is_asked_for() {
    let target = server().await;
    let home = redirecting_to(&target.url).await;
    let everywhere = Access {
        pass_credentials: true,
        ..access(&home.url)
    };
    fetcher()
        .with(everywhere)
        .unwrap()
        .get(&home.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&target, 0).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_for_https_never_go_over_http() {
    let target = server().await;
    let to = target.url.to_string();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let home = Server::start_with(Some(acceptor), move |_| redirect(&to)).await;
    for pass_credentials in [false, true] {
        let access = Access {
            pass_credentials,
            ca: Some(pem.clone()),
            ..access(&home.url)
        };
        let fetcher = fetcher().with(access).unwrap();
        for url in [&home.url, &target.url] {
            fetcher.get(url, None, &limits()).await.unwrap();
        }
    }
    assert_eq!(sent(&home, 0).as_deref(), Some(HEADER));
    assert!((0..4).all(|at| sent(&target, at).is_none()));

    // The same host and port under another scheme is another place, whatever is passed on.
    let scope = format!("https{}", target.url.as_str().strip_prefix("http").unwrap());
    fetcher()
        .with(access(&scope.parse().unwrap()))
        .unwrap()
        .get(&target.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&target, 4), None);
}

#[tokio::test]
async fn a_registry_counts_as_https() {
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let registry = Server::start_with(Some(acceptor), |_| answer("200 OK", "", b"")).await;
    let scope = registry.url.as_str().replacen("https", "oci", 1).parse().unwrap();
    let access = Access {
        ca: Some(pem),
        ..access(&scope)
    };
    fetcher()
        .with(access)
        .unwrap()
        .get(&registry.at("v2/"), None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&registry, 0).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn credentials_without_a_scope_go_nowhere() {
    let server = server().await;
    let access = Access {
        scope: None,
        ..access(&server.url)
    };
    fetcher()
        .with(access)
        .unwrap()
        .get(&server.url, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&server, 0), None);
}

#[tokio::test]
async fn user_information_of_the_repository_obeys_the_same_rule() {
    let (own, other) = (server().await, server().await);
    let mut scope = own.at("charts");
    scope.set_username("us%40er").unwrap();
    scope.set_password(Some("p:w")).unwrap();
    let of_url = Access {
        scope: Some(scope.clone()),
        ..Access::default()
    };
    let fetcher = fetcher().with(of_url).unwrap();
    for url in [&scope, &own.at("a.tgz"), &other.url] {
        fetcher.get(url, None, &limits()).await.unwrap();
    }
    // us@er:p:w
    for at in [0, 1] {
        assert_eq!(sent(&own, at).as_deref(), Some("Basic dXNAZXI6cDp3"));
    }
    assert_eq!(sent(&other, 0), None);

    // A header of the repository's Secret wins.
    fetcher
        .with(access(&scope))
        .unwrap()
        .get(&scope, None, &limits())
        .await
        .unwrap();
    assert_eq!(sent(&own, 2).as_deref(), Some(HEADER));
}

#[tokio::test]
async fn a_server_cannot_choose_credentials() {
    let target = server().await;
    let mut url = target.url.clone();
    url.set_username("admin").unwrap();
    url.set_password(Some("admin")).unwrap();
    let home = redirecting_to(&url).await;
    let answer = fetcher()
        .send(&Request::new(home.url.clone()), &limits())
        .await
        .unwrap();
    assert_eq!((sent(&target, 0), answer.url), (None, target.url.clone()));
}

#[tokio::test]
async fn a_token_goes_to_the_place_that_is_asked_and_no_further() {
    let target = server().await;
    let home = redirecting_to(&target.url).await;
    let everywhere = Access {
        pass_credentials: true,
        ..access(&home.url)
    };
    let fetcher = fetcher().with(everywhere).unwrap();
    let request = Request {
        authorization: Authorization::Bearer(Secret::new("token".to_owned())),
        ..Request::new(home.url.clone())
    };
    fetcher.send(&request, &limits()).await.unwrap();
    assert_eq!(sent(&home, 0).as_deref(), Some("Bearer token"));
    assert_eq!(sent(&target, 0), None);

    let mut url = home.url.clone();
    url.set_username("user").unwrap();
    let request = Request {
        authorization: Authorization::None,
        ..Request::new(url)
    };
    fetcher.send(&request, &limits()).await.unwrap();
    assert_eq!((sent(&home, 1), sent(&target, 1)), (None, None));
}

/// As of a token server: its answer is a secret, wherever the credentials stay.
#[tokio::test]
async fn what_is_asked_for_over_tls_only_is_not_taken_from_elsewhere() {
    let target = server().await;
    let to = target.url.to_string();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let home = Server::start_with(Some(acceptor), move |_| redirect(&to)).await;
    let trusting = Access {
        ca: Some(pem),
        ..Access::default()
    };
    let fetcher = fetcher().with(trusting).unwrap();
    let request = |tls_only| Request {
        tls_only,
        ..Request::new(home.url.clone())
    };
    let error = fetcher.send(&request(true), &limits()).await.unwrap_err();
    assert!(matches!(error, FetchError::BadRedirect { .. }), "{error}");
    assert!(target.requests().is_empty());
    fetcher.send(&request(false), &limits()).await.unwrap();
}

#[tokio::test]
async fn credentials_that_are_no_header_are_refused_before_anything_is_sent() {
    let server = server().await;
    let broken = || Secret::new("Basic x\r\nX-Injected: secret".to_owned());
    let of_access = fetcher().with(Access {
        authorization: Some(broken()),
        ..Access::default()
    });
    let of_request = Request {
        authorization: Authorization::Bearer(broken()),
        ..Request::new(server.url.clone())
    };
    let of_request = fetcher().send(&of_request, &limits()).await;
    for error in [of_access.unwrap_err(), of_request.unwrap_err()] {
        assert_eq!((error.reason(), error.is_transient()), ("InvalidCredentials", false));
        assert!(!format!("{error} {error:?}").contains("Injected"), "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn no_secret_is_printed() {
    let url: Url = "http://user:hunter2@nowhere.invalid/a?token=hunter2".parse().unwrap();
    let access = Access {
        authorization: Some(Secret::new("Bearer hunter2".to_owned())),
        ca: Some(connections::tls("127.0.0.1").1),
        proxies: Some(Proxies {
            http: Some("http://user:hunter2@127.0.0.1:1".to_owned()),
            ..Proxies::default()
        }),
        ..access(&url)
    };
    let fetcher = fetcher().with(access.clone()).unwrap();
    let request = Request {
        authorization: Authorization::Bearer(Secret::new("hunter2".to_owned())),
        ..Request::new(url)
    };
    // Refused by the proxy's machine, not resolved, not trusted, cut short: each by way of the client's own errors.
    let by_proxy = fetcher.send(&request, &limits()).await.unwrap_err();
    let unresolved = fetcher
        .with(Access::default())
        .unwrap()
        .send(&request, &limits())
        .await
        .unwrap_err();
    let cut_short = Server::always("HTTP/1.1 200 OK\nContent-Length: 10", b"hello").await;
    let mut cut_url = cut_short.at("a?token=hunter2");
    cut_url.set_password(Some("hunter2")).unwrap();
    let cut_short = fetcher
        .with(Access::default())
        .unwrap()
        .send(&Request::new(cut_url), &limits())
        .await
        .unwrap_err();
    assert_eq!(
        [by_proxy.reason(), unresolved.reason(), cut_short.reason()],
        ["ConnectFailed", "DNSFailure", "ConnectionInterrupted"]
    );
    let shown = format!(
        "{access:?} {fetcher:?} {request:?} {by_proxy} {by_proxy:?} {unresolved} {unresolved:?} {cut_short} {cut_short:?}"
    );
    assert!(
        shown.contains("nowhere.invalid") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[tokio::test]
async fn what_a_401_asks_for_is_told_within_bounds() {
    let long = "x".repeat(5_000);
    let headers = format!(
        "WWW-Authenticate: Bearer realm=\"https://auth.example.com/token\"\nWWW-Authenticate: {long}\n{}",
        ["WWW-Authenticate: Basic realm=\"a\""; 20].join("\n")
    );
    for (status, count) in [("401 Unauthorized", 8), ("403 Forbidden", 0)] {
        let headers = headers.clone();
        let server = Server::start(move |_| answer(status, &headers, b"")).await;
        let error = fetcher().get(&server.url, None, &limits()).await.unwrap_err();
        let FetchError::Status { challenges, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(challenges.len(), count);
        assert!(challenges.iter().all(|challenge| challenge.len() < 100));
    }
}

/// Set in the process that the next test starts, for this one to act on.
const LOGGED: &str = "PORTOLAN_TEST_LOGGED";

#[tokio::test]
async fn what_runs_with_all_log_lines() {
    // The log of a process is set up once, so that another one's is.
    if std::env::var_os(LOGGED).is_none() {
        return;
    }
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).init();
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let target = Server::start_with(Some(acceptor), |_| answer("200 OK", "", b"hello")).await;
    let to = target.at("b?token=hunter2").to_string();
    let proxy = Server::start(move |_| redirect(&to)).await;
    let mut scope: Url = "http://charts.invalid/?token=hunter2".parse().unwrap();
    scope.set_password(Some("hunter2")).unwrap();
    let mut proxy_url = proxy.url.clone();
    proxy_url.set_password(Some("hunter2")).unwrap();
    let fetcher = fetcher().with(Access {
        authorization: Some(Secret::new("Bearer hunter2".to_owned())),
        ca: Some(pem),
        pass_credentials: true,
        proxies: Some(Proxies {
            http: Some(proxy_url.to_string()),
            ..Proxies::default()
        }),
        ..access(&scope)
    });
    fetcher.unwrap().get(&scope, None, &limits()).await.unwrap();
    assert_eq!(sent(&target, 0).as_deref(), Some("Bearer hunter2"));
}

#[tokio::test]
async fn no_secret_is_logged_even_by_the_client_itself() {
    let output = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "source::fetch::tests::credentials::what_runs_with_all_log_lines",
        ])
        .env(LOGGED, "yes")
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("starting new connection") && shown.contains("TRACE"),
        "{shown}"
    );
    // Omh1bnRlcjI= = :hunter2
    for secret in ["hunter2", "Omh1bnRlcjI"] {
        let line = shown.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}
