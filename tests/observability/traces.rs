//! Traces of `--otlp-endpoint`.

#[cfg(not(feature = "otel"))]
#[tokio::test]
async fn an_endpoint_is_refused_by_a_build_without_the_feature() {
    use crate::support::portolan::{command, run};

    let output = run(command([
        "run",
        "--manifests",
        "/nowhere",
        "--otlp-endpoint=http://127.0.0.1:9",
    ]))
    .await;
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("without the Cargo feature otel"), "{error}");
}

#[cfg(feature = "otel")]
mod exported {
    use std::time::{Duration, Instant};

    use crate::applications::{Site, shop};
    use crate::observability::receiver::{ReceivedSpan, Receiver};
    use crate::observability::serve_index;
    use crate::support::chart_server::Fault;
    use crate::support::eventually::{SOON, eventually};
    use crate::support::portolan::Portolan;
    use crate::support::world::World;

    async fn until_received(receiver: &Receiver, what: &str, fits: impl Fn(&ReceivedSpan) -> bool) -> ReceivedSpan {
        eventually(SOON, what, async || {
            let spans = receiver.spans();
            spans
                .iter()
                .find(|span| fits(span))
                .cloned()
                .ok_or_else(|| format!("{spans:#?}"))
        })
        .await
    }

    async fn counted(portolan: &Portolan, result: &str) -> f64 {
        let metrics = portolan.metrics().await;
        metrics
            .sum("portolan_trace_spans_total", &[("result", result)])
            .unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sync_is_a_trace_of_its_phases_and_the_log_is_complete() {
        let (world, receiver) = (World::new().await, Receiver::start().await);
        let filter = "  filterRule:\n    jq: .name == \"web\"\n";
        world.declare("stable", &serve_index(&world, "stable"), filter);
        let portolan = world
            .run(&["--otlp-endpoint", &receiver.url, "--log-level=portolan=debug"])
            .await;
        let commit = until_received(&receiver, "the commit", |span| span.name == "commit").await;
        let reconcile = until_received(&receiver, "the reconcile", |span| {
            span.name == "reconcile" && span.trace == commit.trace
        })
        .await;
        assert_eq!(reconcile.attributes["controller"], "apprepository");
        assert_eq!(reconcile.attributes["namespace"], "default");
        assert_eq!(reconcile.attributes["name"], "stable");
        assert!(reconcile.parent.is_empty() && !reconcile.is_error);
        let spans = receiver.spans();
        let find = |name: &str| {
            let mut spans = spans.iter().filter(|span| span.trace == commit.trace);
            spans
                .find(|span| span.name == name)
                .unwrap_or_else(|| panic!("{name}: {spans:#?}"))
        };
        assert_eq!(find("sync").parent, reconcile.id);
        for phase in ["fetch", "decode", "commit"] {
            assert_eq!(find(phase).parent, find("sync").id, "{phase}");
        }
        assert_eq!(find("filter").parent, find("decode").id);
        assert_eq!(receiver.resource("service.name").as_deref(), Some("portolan"));
        assert_eq!(
            receiver.resource("service.version").as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        eventually(SOON, "the metric", async || {
            match counted(&portolan, "exported").await {
                exported if exported >= 5.0 => Ok(()),
                exported => Err(exported.to_string()),
            }
        })
        .await;
        // The same lines as without traces, and no span of a trace in them.
        let lines = portolan.lines();
        assert!(lines.iter().any(|line| line.contains("DEBUG reconcile{")), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("}:sync")), "{lines:#?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn traces_do_not_depend_on_the_log_filter() {
        let (world, receiver) = (World::new().await, Receiver::start().await);
        world.declare("stable", &serve_index(&world, "stable"), "");
        let portolan = world
            .run(&["--otlp-endpoint", &receiver.url, "--log-level=error"])
            .await;
        until_received(&receiver, "the commit", |span| span.name == "commit").await;
        assert!(portolan.lines().is_empty(), "{:#?}", portolan.lines());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn requests_to_the_api_server_have_verb_resource_and_status() {
        let (site, receiver) = (Site::new().await, Receiver::start().await);
        let portolan = site.portolan(&["--otlp-endpoint", &receiver.url]).await;
        site.declare("shop", shop(&[], false)).await;
        site.until_components("shop", "0/0").await;
        let write = until_received(&receiver, "the write of the status", |span| {
            span.name == "api request" && span.attributes["verb"] == "patch"
        })
        .await;
        assert_eq!(write.attributes["http.response.status_code"], "200");
        assert!(
            write.attributes["resource"].starts_with("app.k8s.io/applications"),
            "{write:?}"
        );
        assert_eq!(write.attributes["namespace"], site.namespace);
        let reconcile = until_received(&receiver, "its reconcile", |span| span.id == write.parent).await;
        assert_eq!(reconcile.attributes["controller"], "application");
        drop(portolan);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn spans_have_no_credentials_urls_or_errors() {
        let (world, receiver) = (World::new().await, Receiver::start().await);
        let url = serve_index(&world, "stable").replace("http://", "http://user:hunter2@") + "?token=hunter2";
        world.declare("stable", &url, "");
        world.server.break_path("/stable/index.yaml", Fault::status(500));
        let _portolan = world.run(&["--otlp-endpoint", &receiver.url]).await;
        until_received(&receiver, "the fetch", |span| span.name == "fetch").await;
        let bytes = String::from_utf8_lossy(&receiver.bytes()).into_owned();
        assert!(!bytes.contains("hunter2") && !bytes.contains("index.yaml"), "{bytes}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_ratio_of_zero_exports_nothing() {
        let (world, receiver) = (World::new().await, Receiver::start().await);
        world.declare("stable", &serve_index(&world, "stable"), "");
        let mut portolan = world
            .run(&["--otlp-endpoint", &receiver.url, "--otlp-sampling-ratio=0"])
            .await;
        world
            .until_status("stable", "a sync", |status| status["ready"] == true)
            .await;
        portolan.signal("TERM");
        portolan.exit(SOON).await;
        assert!(receiver.spans().is_empty(), "{:#?}", receiver.spans());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_unreachable_collector_costs_spans_and_one_warning() {
        let world = World::new().await;
        world.declare("stable", &serve_index(&world, "stable"), "");
        let mut portolan = world.run(&["--otlp-endpoint=http://127.0.0.1:9"]).await;
        for name in ["one", "two"] {
            let before = counted(&portolan, "failed").await;
            world.declare(name, &serve_index(&world, name), "");
            eventually(SOON, "spans that failed", async || {
                match counted(&portolan, "failed").await {
                    failed if failed > before => Ok(()),
                    failed => Err(failed.to_string()),
                }
            })
            .await;
        }
        assert_eq!(counted(&portolan, "exported").await, 0.0);
        assert!(
            portolan
                .metrics()
                .await
                .sum("portolan_syncs_total", &[("result", "success")])
                >= Some(2.0)
        );
        portolan.signal("TERM");
        assert!(portolan.exit(SOON).await.success());
        let warnings = portolan.lines();
        let warnings = warnings.iter().filter(|line| line.contains("failed to export traces"));
        assert_eq!(warnings.count(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_last_spans_are_exported_at_shutdown() {
        let (world, receiver) = (World::new().await, Receiver::start().await);
        world.declare("stable", &serve_index(&world, "stable"), "");
        let mut portolan = world.run(&["--otlp-endpoint", &receiver.url]).await;
        world
            .until_status("stable", "a sync", |status| status["ready"] == true)
            .await;
        portolan.signal("TERM");
        assert!(portolan.exit(SOON).await.success());
        let names: Vec<String> = receiver.spans().into_iter().map(|span| span.name).collect();
        assert!(names.iter().any(|name| name == "reconcile"), "{names:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_collector_that_hangs_delays_the_shutdown_by_a_second_at_most() {
        let world = World::new().await;
        // Accepts connections, and never answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("--otlp-endpoint=http://{}", listener.local_addr().unwrap());
        world.declare("stable", &serve_index(&world, "stable"), "");
        let mut portolan = world.run(&[&endpoint]).await;
        world
            .until_status("stable", "a sync", |status| status["ready"] == true)
            .await;
        let stopped = Instant::now();
        portolan.signal("TERM");
        assert!(portolan.exit(SOON).await.success());
        let elapsed = stopped.elapsed();
        assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
        let lines = portolan.lines();
        assert!(
            lines
                .iter()
                .any(|line| line.contains("last spans could not be exported")),
            "{lines:#?}"
        );
    }
}
