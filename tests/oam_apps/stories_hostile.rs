//! Templates that misbehave are stopped and named, and harm no other namespace.

use std::process::Command;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::apps::{config, spec};
use super::estate::{self, estate};
use super::site::{Site, condition, says};
use super::{APPLICATION, CONFIG_MAP, DEFINITION};
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::Portolan;
use crate::support::probes::Probes;
use crate::support::process::ScratchDir;

/// Counts to 10^15 without memory.
const ENDLESS: &str = r#"
    import "list"
    let r = list.Range(0, 1000, 1)
    output: {
        apiVersion: "v1"
        kind: "ConfigMap"
        data: count: "\(len([for a in r for b in r for c in r for d in r for e in r if a+b+c+d+e < 0 {a}]))"
    }
    parameter: {}
"#;
/// Number of Applications with an endless template, more than evaluator processes.
const HOSTILE: usize = 6;

/// Number of Applications with an endless template in one namespace.
const CROWD: usize = 200;
const CROWD_TIMEOUT: Duration = Duration::from_secs(2);
const CROWD_WORKERS: u32 = 2;
/// Margin of the time that another namespace waits, for a busy machine.
const MARGIN: u32 = 20;

/// Counts to a million, which takes a second or two.
pub const SLOW: &str = r#"
    import "list"
    let r = list.Range(0, 90, 1)
    output: {
        apiVersion: "v1"
        kind: "ConfigMap"
        data: count: "\(len([for a in r for b in r for c in r if a+b+c < 0 {a}]))"
    }
    parameter: number: int
"#;
const SLOW_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of namespaces with slow templates: each takes one of four workers.
const SLOW_NAMESPACES: usize = 4;
const SLOW_COMPONENTS: usize = 2;

/// Defines a type of components in the namespace.
pub async fn define(site: &Site, name: &str, template: &str) {
    let definition = json!({
        "spec": {
            "workload": { "type": "autodetects.core.oam.dev" },
            "schematic": { "cue": { "template": template } },
        }
    });
    site.apply(DEFINITION, name, definition).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_templates_are_stopped_and_delay_no_other_namespace() {
    let estate = estate().await;
    let _probes = Probes::of(&estate.portolan);
    let namespaces = [
        estate.control_plane.namespace().await,
        estate.control_plane.namespace().await,
    ];
    let [hostile, friendly] = namespaces.map(|namespace| Site::of(&estate.control_plane, namespace));
    let (hostile, friendly) = (hostile.await, friendly.await);
    define(&hostile, "endless", ENDLESS).await;
    let component = json!({ "name": "endless", "type": "endless", "properties": {} });
    for number in 0..HOSTILE {
        hostile
            .declare(&format!("app-{number}"), spec(std::slice::from_ref(&component)))
            .await;
    }
    friendly.declare("shop", spec(&[config("settings", "one")])).await;
    // At most one timeout of ten seconds, however many templates wait.
    friendly.until_running("shop").await;
    assert!(friendly.get(CONFIG_MAP, "settings").await.is_some());

    let stopped = "was stopped: more than 10s";
    eventually(4 * SOON, "an endless template to be named", async || {
        let mut statuses = Vec::new();
        for number in 0..HOSTILE {
            let app = hostile
                .get(APPLICATION, &format!("app-{number}"))
                .await
                .unwrap_or_default();
            if says(&app, stopped) {
                return Ok(());
            }
            statuses.push(app["status"].to_string());
        }
        Err(statuses.join("\n"))
    })
    .await;
    assert_eq!(hostile.managed_objects().await, Vec::<Value>::new());
    // The evaluator still works.
    friendly.declare("shop", spec(&[config("settings", "two")])).await;
    friendly
        .until(CONFIG_MAP, "settings", "changed", |object| {
            object["data"]["key"] == "two"
        })
        .await;
    for number in 0..HOSTILE {
        hostile.delete(APPLICATION, &format!("app-{number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_template_is_named_and_leaves_what_was_applied() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    let template = |value: &str| {
        let value = format!("data: key: {value}");
        format!("output: {{apiVersion: \"v1\", kind: \"ConfigMap\", {value}}}\nparameter: {{}}\n")
    };
    define(&site, "special", &template("\"one\"")).await;
    let declare = async |number: usize| {
        // A new spec makes a new revision, with the definition of now.
        let component = json!({ "name": "settings", "type": "special", "properties": { "number": number } });
        site.declare("shop", spec(&[component])).await;
    };
    declare(1).await;
    site.until_running("shop").await;
    define(&site, "special", &template("1 & 2")).await;
    declare(2).await;
    let app = site.until_said("shop", "conflicting values").await;
    assert_ne!(app["status"]["status"], "running");
    assert_eq!(condition(&app, "Parsed")["status"], "True");
    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(
        settings["data"]["key"], "one",
        "an error of the evaluator deletes nothing"
    );

    define(&site, "special", &template("\"three\"")).await;
    declare(3).await;
    site.until_running("shop").await;
    eventually(Duration::from_secs(10), "the new value", async || {
        let settings = site.get(CONFIG_MAP, "settings").await?;
        (settings["data"]["key"] == "three").then_some(())
    })
    .await;
}

/// Returns the command that runs in the shared control plane for all namespaces. The shard keeps it away from the
/// Applications of other tests.
pub fn shard_command(site: &Site, directory: &ScratchDir) -> Command {
    let mut command = estate::run(directory, &site.control_plane.kubeconfig());
    command.args([
        &format!("--leader-election-namespace={}", site.namespace),
        "--enable-sharding",
        &format!("--shard-id={}", site.namespace),
    ]);
    command
}

/// Runs a shard with one thread that serves its probes and all tenants: a probe that is late shows that the thread was held.
pub async fn shard(site: &Site, directory: &ScratchDir, timeout: Duration) -> Portolan {
    let mut command = shard_command(site, directory);
    command.args([
        &format!("--cue-timeout={}s", timeout.as_secs()),
        &format!("--cue-workers={CROWD_WORKERS}"),
    ]);
    command.env("TOKIO_WORKER_THREADS", "1");
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    portolan.with_probes()
}

pub async fn declare_in_shard(site: &Site, shard: &str, name: &str, spec: Value) {
    let labels = json!({ "controller.core.oam.dev/scheduled-shard-id": shard });
    let app = json!({ "metadata": { "labels": labels }, "spec": spec });
    site.apply(APPLICATION, name, app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_endless_templates_delays_another_namespace_by_its_share_of_the_evaluator_only() {
    let (hostile, friendly) = (Site::new().await, Site::new().await);
    let (directory, shard_id) = (ScratchDir::new("crowd"), &hostile.namespace);
    let _portolan = shard(&hostile, &directory, CROWD_TIMEOUT).await;
    define(&hostile, "endless", ENDLESS).await;
    let endless = json!({ "name": "endless", "type": "endless", "properties": {} });
    let declared = stream::iter(0..CROWD).map(|number| {
        let name = format!("app-{number}");
        let spec = spec(std::slice::from_ref(&endless));
        let hostile = &hostile;
        async move { declare_in_shard(hostile, shard_id, &name, spec).await }
    });
    declared.buffer_unordered(8).collect::<Vec<()>>().await;
    let stopped = format!("was stopped: more than {CROWD_TIMEOUT:?}");
    let count_stopped = async || {
        let apps = hostile.list(APPLICATION, "").await;
        apps.iter().filter(|app| says(app, &stopped)).count()
    };
    eventually(SOON, "a template to be stopped", async || {
        (count_stopped().await > 0).then_some(())
    })
    .await;

    let declared = Instant::now();
    declare_in_shard(&friendly, shard_id, "shop", spec(&[config("settings", "one")])).await;
    friendly.until_running("shop").await;
    let elapsed = declared.elapsed();
    let turn = CROWD_TIMEOUT / CROWD_WORKERS;
    assert!(elapsed < MARGIN * turn, "{elapsed:?}");
    let waiting = CROWD - count_stopped().await;
    println!("ran after {elapsed:?}, with {waiting} of {CROWD} endless templates still waiting");
    // Each takes a turn: without fair shares, the other namespace would have waited for all of them.
    assert!(waiting > CROWD / 2, "{waiting}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_beside_four_with_slow_templates_is_served_before_them() {
    let friendly = Site::new().await;
    let (directory, shard_id) = (ScratchDir::new("slow"), &friendly.namespace);
    let portolan = shard(&friendly, &directory, SLOW_TIMEOUT).await;
    let mut hostile = Vec::new();
    for _ in 0..SLOW_NAMESPACES {
        let site = Site::new().await;
        define(&site, "slow", SLOW).await;
        let components: Vec<Value> = (0..SLOW_COMPONENTS)
            .map(|number| json!({ "name": format!("slow-{number}"), "type": "slow", "properties": { "number": number } }))
            .collect();
        declare_in_shard(&site, shard_id, "shop", spec(&components)).await;
        hostile.push(site);
    }
    let phase = async |site: &Site| site.get(APPLICATION, "shop").await.unwrap_or_default()["status"]["status"].clone();
    let deferred = async || {
        let metrics = portolan.metrics().await;
        let deferred = metrics.sum("portolan_oam_passes_total", &[("result", "evaluator")]);
        deferred.filter(|count| *count >= SLOW_NAMESPACES as f64)
    };
    eventually(SOON, "passes to give their workers back", deferred).await;
    declare_in_shard(&friendly, shard_id, "shop", spec(&[config("settings", "one")])).await;
    friendly.until_running("shop").await;
    for site in &hostile {
        assert_ne!(phase(site).await, "running");
    }
    for site in &hostile {
        eventually(4 * SOON, "the slow Application to run", async || {
            (phase(site).await == "running").then_some(())
        })
        .await;
    }
    let metrics = portolan.metrics().await;
    let evaluated = metrics
        .sum("portolan_cue_evaluations_total", &[("result", "success")])
        .unwrap();
    let slow = (SLOW_NAMESPACES * SLOW_COMPONENTS) as f64;
    // The component of the other namespace, with its health and the conditions of its step, takes a few.
    assert!(
        (slow..slow + 8.0).contains(&evaluated),
        "{evaluated} evaluations, {slow} of them slow"
    );
}
