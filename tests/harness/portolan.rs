use crate::support::eventually::SOON;
use crate::support::portolan::{Metrics, Portolan, command, run};
use crate::support::process::ScratchDir;

#[tokio::test]
async fn the_binary_starts_serves_probes_and_shuts_down() {
    let directory = ScratchDir::new("manifests");
    let database = format!("sqlite://{}", directory.join("portolan.db").display());
    let manifests = directory.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let mut run = command(["run", "--database-url", &database, "--manifests"]);
    run.arg(manifests);
    let mut portolan = Portolan::start(run);
    portolan.ready(SOON).await;
    portolan.line_with("portolan", SOON).await;
    assert!(
        portolan
            .metrics()
            .await
            .sum("workqueue_adds_total", &[("name", "no such queue")])
            .is_none()
    );
    assert!(std::path::Path::new(&format!("/proc/{}", portolan.id())).exists());
    portolan.signal("TERM");
    assert!(portolan.exit(SOON).await.success(), "{:?}", portolan.lines());
}

#[tokio::test]
async fn a_command_runs_to_completion() {
    let output = run(command(["--help"])).await;
    assert!(output.status.success());
}

#[test]
fn metrics_are_parsed_with_labels() {
    let text = "# HELP a A.\na_total{x=\"1\",y=\"say \\\"{}, \\\\ and\\n\"} 2\na_total{x=\"2\"} 3.5\nb 1e3\n# EOF\n";
    let metrics = Metrics::parse(text);
    assert_eq!(metrics.sum("a_total", &[]), Some(5.5));
    assert_eq!(metrics.sum("a_total", &[("y", "say \"{}, \\ and\n")]), Some(2.0));
    assert_eq!(metrics.sum("b", &[]), Some(1000.0));
    assert_eq!(metrics.sum("a", &[]), None);
}
