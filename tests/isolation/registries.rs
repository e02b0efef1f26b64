//! Registries that never list their tags, beside an honest one.

use super::charts;
use crate::support::archives::Chart;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::registry::{Registry, Setup};
use crate::support::world::{SOON, World};

const LIST: &str = "/v2/charts/web/tags/list";

fn declare(world: &World, namespace: &str, name: &str, url: &str) {
    let manifest = format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{namespace: {namespace}, name: {name}}}\n\
         spec: {{type: oci, url: \"{url}\", ociRepositories: [web]}}\n"
    );
    world.write(&format!("{namespace}-{name}.yaml"), manifest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_registries_delay_no_other_namespace() {
    const HOSTILE: usize = 16;
    let world = World::new().await;
    let mut servers = Vec::new();
    for number in 0..HOSTILE {
        let server = ChartServer::start().await;
        server.serve(LIST, Page::new("{}"));
        server.break_path(LIST, Fault::StallAfter(1));
        declare(
            &world,
            &format!("hostile-{}", number % 4),
            &format!("r{number}"),
            &server.url("/charts"),
        );
        servers.push(server);
    }
    let _portolan = world
        .run(&["--stall-timeout=1h", "--fetch-timeout=1h"])
        .await
        .with_probes();
    eventually(SOON, "all hostile registries to hang", async || {
        let asked = servers.iter().filter(|server| server.count(LIST) > 0).count();
        (asked == HOSTILE).then_some(()).ok_or(asked)
    })
    .await;
    let registry = Registry::start(Setup::default()).await;
    registry
        .push_charts("charts/web", [Chart::new("web", "1.0.0").pack()])
        .await;
    declare(&world, "honest", "stable", &registry.url("/charts"));
    eventually(SOON, "the honest registry", async || {
        (charts(&world, "honest").await == ["stable/web"]).then_some(())
    })
    .await;
}
