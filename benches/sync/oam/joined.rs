//! Applications in joined clusters: drift there, and the cost of clusters that never answer to Applications elsewhere.

use std::net::TcpListener;

use kube::api::PostParams;
use serde_json::{Value, json};

use super::{APPLICATION, Bench, CONTROLLERS, RUNNING, application, start};
use crate::report::Row;
use crate::rig::{ControlPlane, each};
use crate::support::control_plane::ADMIN_TOKEN;

const SIZE: usize = 200;
const DEAD: usize = 20;

pub async fn run() -> Vec<Row> {
    let bench = Bench::new(SIZE, CONTROLLERS).await;
    // Connections to it are never accepted.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener starts");
    let silent = silent.local_addr().expect("it has an address");
    let authority = bench.control_plane.ca_pem();
    for number in 0..DEAD {
        let name = format!("dead-{number}");
        bench.join(&name, &format!("https://{silent}"), authority).await;
        bench.place("lost", number, &name).await;
    }
    let portolan = start(&bench.control_plane.kubeconfig(), &["--allow-loopback"]);
    let case = format!("created, beside {DEAD} in as many joined clusters that never answer");
    let created = bench.created(&case, &portolan).await;

    let east = ControlPlane::start_with(CONTROLLERS).await;
    let there = bench.namespaces.same_in(&east).await;
    bench.join("east", &east.url(), east.ca_pem()).await;
    each(0..20, async |number| bench.place("east", number, "east").await).await;
    bench.watch.all(SIZE + 20, RUNNING).await;
    let case = "20 in a joined cluster scaled by others until restored, the slowest";
    let drift = bench.drift(&portolan, &there, case).await;
    portolan.end().await;
    vec![created, drift]
}

impl Bench {
    /// Joins a cluster with an administrator's token.
    async fn join(&self, name: &str, endpoint: &str, authority: &str) {
        let labels = json!({
            "cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken",
            "cluster.core.oam.dev/cluster-endpoint-type": "Const",
        });
        let data = json!({ "endpoint": endpoint, "ca.crt": authority, "token": ADMIN_TOKEN });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "labels": labels }, "stringData": data,
        });
        let secrets = self.namespaces.within("vela-system", "v1 Secret");
        let secret = serde_json::from_value(secret).expect("a Secret");
        let created = secrets.create(&PostParams::default(), &secret).await;
        created.expect("the API server accepts a Secret");
    }

    /// Creates an Application in a joined cluster.
    async fn place(&self, name: &str, number: usize, cluster: &str) {
        let mut application: Value = application(number);
        application["metadata"]["name"] = format!("{name}-{number}").into();
        application["spec"]["policies"] =
            json!([{ "name": "clusters", "type": "topology", "properties": { "clusters": [cluster] } }]);
        self.namespaces.create(number, APPLICATION, application).await;
    }
}
