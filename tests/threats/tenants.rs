//! Two tenants of one server with different credentials and different content.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use tokio::net::TcpListener;

use super::{SOON, World, repository, secret};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;

const AUTH: &str = "  auth:\n    header:\n      secretKeyRef: {name: keys, key: header}\n  interval: \"* * * * * *\"\n";

/// A request of a tenant; `unchanged` if the response was 304.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TenantRequest {
    tenant: String,
    path: String,
    unchanged: bool,
}

/// A server with different content for each tenant under the same URL and ETag.
#[derive(Default)]
struct Shared(Mutex<Vec<TenantRequest>>);

fn boat(tenant: &str) -> Archive {
    Chart::new("boat", "1.0.0")
        .file("README.md", format!("of {tenant}\n"))
        .pack()
}

fn only(tenant: &str) -> Archive {
    Chart::new(&format!("only-{tenant}"), "1.0.0").pack()
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let text = |headers: &HeaderMap, name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let authorization = text(request.headers(), header::AUTHORIZATION).unwrap_or_default();
    let tenant = authorization.strip_prefix("Bearer ").unwrap_or_default().to_owned();
    let is_same = text(request.headers(), header::IF_NONE_MATCH).as_deref() == Some("\"same\"");
    let path = request.uri().path().to_owned();
    let (status, body) = match (tenant.as_str(), path.as_str()) {
        ("alpha" | "beta", _) if is_same => (StatusCode::NOT_MODIFIED, Vec::new()),
        ("alpha" | "beta", "/charts/index.yaml") => {
            // Without a digest, both indexes have the same entry.
            let mut entry = boat(&tenant).index_entry(&["boat.tgz"]);
            entry.as_object_mut().unwrap().remove("digest");
            (
                StatusCode::OK,
                index([entry, only(&tenant).index_entry(&[])]).into_bytes(),
            )
        }
        ("alpha" | "beta", "/charts/boat.tgz") => (StatusCode::OK, boat(&tenant).bytes),
        ("alpha" | "beta", _) => (StatusCode::NOT_FOUND, Vec::new()),
        _ => (StatusCode::UNAUTHORIZED, Vec::new()),
    };
    let unchanged = status == StatusCode::NOT_MODIFIED;
    shared.0.lock().unwrap().push(TenantRequest {
        tenant,
        path,
        unchanged,
    });
    Response::builder()
        .status(status)
        .header(header::ETAG, "\"same\"")
        .body(body.into())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_of_one_url_see_only_the_content_of_their_own_credentials() {
    let world = World::new().await;
    let shared = Arc::<Shared>::default();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/charts", listener.local_addr().unwrap());
    let service = Router::new().fallback(answer).with_state(Arc::clone(&shared));
    tokio::spawn(async move { axum::serve(listener, service).await });

    for tenant in ["alpha", "beta", "gamma"] {
        world.manifest(
            &format!("{tenant}-secret"),
            &secret(tenant, "keys", &[("header", &format!("Bearer {tenant}"))]),
        );
        world.manifest(tenant, &repository(tenant, "charts", "helm", &url, AUTH));
    }
    // One without credentials, and one that refers to another namespace.
    world.manifest(
        "delta",
        &repository("delta", "charts", "helm", &url, "  interval: \"* * * * * *\"\n"),
    );
    world.manifest(
        "epsilon",
        &repository(
            "epsilon",
            "charts",
            "helm",
            &url,
            &AUTH.replace("name: keys", "name: alpha/keys"),
        ),
    );
    let _portolan = world.run(&["--chart-files=all", "--min-interval=1s"]).await;
    let status = async |namespace: &str| {
        let all = world.output(&["status", "-n", namespace, "-o", "json"]).await;
        serde_json::from_str::<Vec<serde_json::Value>>(&all)
            .unwrap()
            .into_iter()
            .next()
            .unwrap_or_default()
    };
    let until = async |namespace: &str, reason: &str| {
        eventually(SOON, &format!("{namespace} to be {reason}"), async || {
            let status = status(namespace).await;
            if status["reason"] == reason {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })
        .await;
    };
    let request_count = |tenant: &str, unchanged: bool| {
        let requests = shared.0.lock().unwrap();
        requests
            .iter()
            .filter(|one| one.tenant == tenant && one.unchanged == unchanged && one.path.ends_with(".yaml"))
            .count()
    };
    for tenant in ["alpha", "beta"] {
        until(tenant, "Synced").await;
    }
    for tenant in ["gamma", "delta"] {
        until(tenant, "Unauthorized").await;
    }
    until("epsilon", "InvalidSecret").await;
    // Each has sent a conditional request with the shared ETag.
    eventually(SOON, "both to receive 304", async || {
        (request_count("alpha", true) > 1 && request_count("beta", true) > 1).then_some(())
    })
    .await;
    assert!(
        request_count("alpha", false) > 0 && request_count("beta", false) > 0,
        "each must download the index once"
    );

    let rows = async || {
        world
            .select("SELECT repo_namespace || ' ' || chart_id FROM charts WHERE repo_name = 'charts' ORDER BY 1")
            .await
    };
    let expected = [
        "alpha charts/boat",
        "alpha charts/only-alpha",
        "beta charts/boat",
        "beta charts/only-beta",
    ];
    assert_eq!(rows().await, expected);
    eventually(SOON, "the files of both", async || {
        let files = world.select("SELECT repo_namespace || ' ' || (info ->> 'Readme') FROM files WHERE info ->> 'Readme' LIKE 'of %' ORDER BY 1").await;
        if files == ["alpha of alpha\n", "beta of beta\n"] { Ok(()) } else { Err(format!("{files:?}")) }
    })
    .await;

    // With other credentials the stored ETag must not be used.
    world.manifest("beta-secret", &secret("beta", "keys", &[("header", "Bearer alpha")]));
    eventually(SOON, "the content of the new credentials", async || {
        let rows = rows().await;
        if rows
            == [
                "alpha charts/boat",
                "alpha charts/only-alpha",
                "beta charts/boat",
                "beta charts/only-alpha",
            ]
        {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    })
    .await;
    world.until_honest_files_are_served().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_whose_requests_to_a_host_all_stall_yields_to_another_one() {
    const STALLING: usize = 24;
    let world = World::new().await;
    let host = &world.attacker;
    let entry = boat("all").index_entry(&["boat.tgz"]);
    let declare = |namespace: &str, name: &str| {
        host.serve(&format!("/{name}/index.yaml"), Page::new(index([entry.clone()])));
        let url = host.url(&format!("/{name}"));
        world.manifest(name, &repository(namespace, name, "helm", &url, ""));
    };
    let names: Vec<String> = (0..STALLING).map(|number| format!("stalling-{number}")).collect();
    for name in &names {
        declare("hostile", name);
        host.break_path(&format!("/{name}/index.yaml"), Fault::StallAfter(20));
    }
    let _portolan = world.run(&["--sync-workers=64", "--stall-timeout=5s"]).await;
    let stalled = || {
        names
            .iter()
            .flat_map(|name| host.requests(&format!("/{name}/index.yaml")))
    };
    eventually(SOON, "all permits of the host to be taken", async || {
        match stalled().count() {
            8.. => Ok(()),
            requests => Err(requests),
        }
    })
    .await;
    declare("patient", "patient");
    world.until_ready("patient").await;
    let served = host.requests("/patient/index.yaml")[0].at;
    // In the order of arrival, it would follow all others.
    let before = stalled().filter(|request| request.at < served).count();
    assert!((8..16).contains(&before), "{before}");
}
