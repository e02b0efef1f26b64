//! Repositories declared in a directory of manifests, synced into SQLite by the real binary, without a cluster.

mod bodies;
mod delta;
mod sharing;

use serde_json::Value;

use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::{self, command};
use crate::support::process::ScratchDir;
use crate::support::world::{SOON, World, manifest, succeeded};

impl World {
    /// Serves a repository with these versions of the chart `web`, and returns its URL.
    fn serve_web(&self, name: &str, versions: &[&str]) -> String {
        let index = crate::cluster::index(&[("web", versions)]);
        self.server.serve(&format!("/{name}/index.yaml"), Page::new(index));
        self.server.url(&format!("/{name}"))
    }

    /// Waits until this is the newest version of the repository's chart `web`.
    async fn until_newest(&self, name: &str, version: &str) {
        eventually(SOON, &format!("version {version} of {name}/web"), async || {
            let output = portolan::run(self.command(&["show", &format!("{name}/web"), "-o", "json"])).await;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains(&format!("\"{version}\"")) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_watched_from_a_manifest_to_its_removal() {
    let world = World::new().await;
    let (first, second) = (
        world.serve_web("first", &["1.0.0"]),
        world.serve_web("second", &["1.0.0"]),
    );
    let both = format!(
        "{}---\n{}",
        manifest("first", &first, ""),
        manifest("second", &second, "")
    );
    world.write("deep/er/repositories.yaml", &both);
    let portolan = world.run(&["--min-interval=1s"]).await;

    // Several documents per file are synced.
    world.until_newest("first", "1.0.0").await;
    world.until_newest("second", "1.0.0").await;

    // A requested sync.
    world.serve_web("first", &["1.1.0", "1.0.0"]);
    world.resync("first").await;
    world.until_newest("first", "1.1.0").await;

    // A changed spec, and an interval that fires.
    world.serve_web("second", &["1.2.0"]);
    let every_second = manifest("second", &second, "  interval: \"* * * * * *\"\n");
    world.write(
        "deep/er/repositories.yaml",
        format!("{}---\n{every_second}", manifest("first", &first, "")),
    );
    world.until_newest("second", "1.2.0").await;
    world.serve_web("second", &["1.3.0"]);
    world.until_newest("second", "1.3.0").await;

    // An incomplete file keeps the last valid state, and is reported.
    world.write(
        "deep/er/repositories.yaml",
        "apiVersion: kubeapps.com/v1alpha1\nkind: [AppRepo",
    );
    portolan.line_with("repositories.yaml", SOON).await;
    world.serve_web("second", &["1.4.0"]);
    world.until_newest("second", "1.4.0").await;

    // An invalid index, and its repair.
    world.server.break_path("/second/index.yaml", Fault::html());
    let broken = world
        .until_status("second", "the failure to be reported", |status| {
            status["ready"] == Value::Bool(false)
        })
        .await;
    assert!(broken.to_string().contains("NotAnIndex"), "{broken}");
    world.until_newest("second", "1.4.0").await;
    world.server.clear_faults("/second/index.yaml");
    world
        .until_status("second", "recovery", |status| status["ready"] == Value::Bool(true))
        .await;

    // A removed document is a deletion.
    world.write("deep/er/repositories.yaml", &every_second);
    eventually(SOON, "the rows of the first to be deleted", async || {
        world.status("first").await.is_none().then_some(())
    })
    .await;
    assert!(world.status("second").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_removed_while_portolan_was_down_is_cleaned_up_at_start() {
    let world = World::new().await;
    for name in ["kept", "removed"] {
        world.declare(name, &world.serve_web(name, &["1.0.0"]), "");
    }
    let mut portolan = world.run(&[]).await;
    world.until_newest("removed", "1.0.0").await;
    world.until_newest("kept", "1.0.0").await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;

    std::fs::remove_file(world.manifest("removed")).unwrap();
    let _portolan = world.run(&[]).await;
    eventually(SOON, "the rows to be deleted", async || {
        world.status("removed").await.is_none().then_some(())
    })
    .await;
    assert!(world.status("kept").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_directory_removes_nothing_until_it_is_confirmed() {
    let world = World::new().await;
    world.declare("web", &world.serve_web("web", &["1.0.0"]), "");
    let mut portolan = world.run(&[]).await;
    world.until_newest("web", "1.0.0").await;
    portolan.signal("TERM");
    portolan.exit(SOON).await;

    std::fs::remove_file(world.manifest("web")).unwrap();
    let gc = |flags: &[&str]| {
        let mut command = world.command(&["gc", "--manifests", &world.manifests()]);
        command.args(flags);
        portolan::run(command)
    };
    let refused = gc(&[]).await;
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        error.contains("1 of 1") && error.contains("--confirm-removals"),
        "{error}"
    );
    assert!(world.status("web").await.is_some());
    let confirmed = gc(&["--confirm-removals"]).await;
    assert_eq!(confirmed.status.code(), Some(0));
    let printed = String::from_utf8(confirmed.stdout).unwrap();
    assert!(printed.starts_with("removed 1 repositories"), "{printed}");
    assert!(world.status("web").await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_once_syncs_everything_and_reports_by_exit_code() {
    let world = World::new().await;
    world.declare("good", &world.serve_web("good", &["1.0.0"]), "");
    world.once(&[]).await;
    assert!(world.status("good").await.is_some());

    world.declare("bad", &world.server.url("/nowhere"), "");
    let output = portolan::run(world.once_command(&[])).await;
    assert_eq!(output.status.code(), Some(1));
    let bad = world.status("bad").await.unwrap();
    assert!(bad.to_string().contains("NotFound"), "{bad}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_work_with_no_network() {
    let directory = ScratchDir::new("examples");
    let database = format!("sqlite://{}", directory.join("portolan.db").display());
    let examples = crate::support::project("examples").display().to_string();
    let once = ["run", "--once", "--manifests", &examples, "--database-url", &database];
    succeeded(command(once)).await;
    let found = succeeded(command(["search", "tides", "--database-url", &database])).await;
    assert!(found.contains("tide-table"), "{found}");
    let all = ["search", "--database-url", &database, "-o", "json", "example"];
    let all = succeeded(command(all)).await;
    assert!(
        !all.contains("barge"),
        "a chart with a deprecated newest version is excluded"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_below_the_manifests_is_no_manifest() {
    let world = World::new().await;
    let index = crate::cluster::index(&[("web", &["1.0.0"])]);
    // The directory of an index may contain anything, also what looks like a repository.
    world.write("charts/index.yaml", &index);
    world.write("charts/template.yaml", "{{ .Values }}: [");
    let hostile = "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {name: hostile}\nspec: {type: helm, url: x}\nentries: {}\n";
    world.write("charts/odd/index.yaml", hostile);
    world.write("elsewhere/index.yaml", &index);
    for name in ["files", "removed"] {
        world.declare(name, "file:./charts", "");
    }
    let mut portolan = world.run(&[]).await;
    world.until_newest("files", "1.0.0").await;
    world.until_newest("removed", "1.0.0").await;
    let problems = portolan.metrics().await.sum("portolan_manifest_problems", &[]);
    assert_eq!(problems, Some(0.0));
    assert!(world.status("hostile").await.is_none());
    portolan.signal("TERM");
    portolan.exit(SOON).await;

    // Nothing of it stops removals.
    std::fs::remove_file(world.manifest("removed")).unwrap();
    let _portolan = world.run(&[]).await;
    eventually(SOON, "the rows to be deleted", async || {
        world.status("removed").await.is_none().then_some(())
    })
    .await;
    assert!(world.status("files").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_was_never_readable_removes_nothing_and_is_named() {
    let world = World::new().await;
    for name in ["kept", "unreadable"] {
        world.declare(name, &world.serve_web(name, &["1.0.0"]), "");
    }
    let mut portolan = world.run(&[]).await;
    world.until_newest("unreadable", "1.0.0").await;
    world.until_newest("kept", "1.0.0").await;
    portolan.signal("TERM");
    portolan.exit(SOON).await;

    std::fs::write(world.manifest("unreadable"), "kind: [").unwrap();
    let portolan = world.run(&["--crontab=@yearly"]).await;
    portolan.line_with("unreadable.yaml", SOON).await;
    let problems = portolan.metrics().await.sum("portolan_manifest_problems", &[]);
    assert_eq!(problems, Some(1.0));
    let status = world.command(&["status", "--manifests", &world.manifests()]);
    let shown = succeeded(status).await;
    assert!(
        shown.contains("manifests with problems:\n  unreadable.yaml: invalid YAML"),
        "{shown}"
    );
    // A deletion asks for a comparison with the declarations.
    std::fs::remove_file(world.manifest("kept")).unwrap();
    world.declare("other", &world.serve_web("other", &["1.0.0"]), "");
    world.until_newest("other", "1.0.0").await;
    assert!(world.status("unreadable").await.is_some());
    // It is removed once all manifests can be read.
    std::fs::remove_file(world.manifest("unreadable")).unwrap();
    eventually(SOON, "the rows to be deleted", async || {
        let left = [world.status("unreadable").await, world.status("kept").await];
        left.iter().all(Option::is_none).then_some(())
    })
    .await;
}
