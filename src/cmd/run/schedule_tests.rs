//! The parts as `portolan run` puts them together, but for the cron trigger.

use std::{ffi::OsString, fs, time::Duration};

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Run;
use crate::api::NamespacedName;
use crate::catalog::Record;
use crate::cmd::{self as cli, Command};
use crate::http as source;
use crate::manager::Patience;
use crate::manager::setup::{Metrics, Setup};
use crate::runtime::controller::WorkerPool;

const INDEX: &str = "apiVersion: v1\nentries: {web: [{name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}]}\n";

fn parse(arguments: &[&str]) -> Run {
    match cli::parse(arguments.iter().map(OsString::from)).unwrap().command {
        Command::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn healthy_and_stalled_repositories_are_synced_at_their_ticks_though_the_trigger_never_runs() {
    source::install_crypto_provider();
    let folder = tempfile::tempdir().unwrap();
    for (name, index) in [("good", INDEX), ("bad", "not an index")] {
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\n\
             spec: {{type: helm, url: \"file:./{name}\", interval: \"* * * * * *\"}}\n"
        );
        fs::write(folder.path().join(format!("{name}.yaml")), manifest).unwrap();
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("index.yaml"), index).unwrap();
    }
    let manifests = folder.path().to_str().unwrap();
    let database = format!("sqlite://{manifests}/portolan.db");
    let run = parse(&[
        "portolan",
        "run",
        "--manifests",
        manifests,
        "--database-url",
        &database,
        "--min-interval=1s",
    ]);
    let test = async {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let options = run.options()?;
        let setup = Setup::new(&options, &metrics, Patience::Wait, false, CancellationToken::new())
            .await
            .unwrap();
        let catalog = setup.catalog.unwrap().catalog;
        let parts = setup.apprepository.unwrap();
        let controller = parts.into_controller(&setup.context, options.apprepository.as_ref().unwrap());
        let metrics = crate::runtime::controller::Metrics::register(&mut registry);
        tokio::spawn(WorkerPool::new(setup.context.queue, controller.classes, metrics).run());
        controller
            .sources
            .into_iter()
            .for_each(|source| drop(tokio::spawn(source)));
        for (name, stalls) in [("good", false), ("bad", true)] {
            let name = NamespacedName {
                namespace: "default".to_owned(),
                name: name.to_owned(),
            };
            let mut last = None;
            for _ in 0..3 {
                let is_next = |record: &Record| record.last_attempt > last && record.state.stalled == stalls;
                last = timeout(Duration::from_secs(60), async {
                    loop {
                        match catalog.record(&name).await.unwrap() {
                            Some(record) if is_next(&record) => return record.last_attempt,
                            _ => sleep(Duration::from_millis(50)).await,
                        }
                    }
                })
                .await
                .unwrap_or_else(|_| {
                    panic!(
                        "{name}: the last attempt was at {last:?}, now it is {}",
                        Timestamp::now()
                    )
                });
            }
        }
        Ok(())
    };
    cli::block_on(test).unwrap();
}
