//! Repositories declared in a folder of manifests, synced into SQLite by the real binary: no cluster anywhere.

use std::time::Duration;

use serde_json::Value;

use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::{self, Portolan, command};
use crate::support::process::ScratchFolder;

const SOON: Duration = Duration::from_secs(30);

/// A folder of manifests with a database beside it.
struct World {
    folder: ScratchFolder,
    server: ChartServer,
}

impl World {
    async fn new() -> Self {
        let folder = ScratchFolder::new("folder");
        std::fs::create_dir(folder.join("manifests")).unwrap();
        Self {
            folder,
            server: ChartServer::start().await,
        }
    }

    fn database_url(&self) -> String {
        format!("sqlite://{}", self.folder.join("portolan.db").display())
    }

    fn manifests(&self) -> String {
        self.folder.join("manifests").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url()]);
        command
    }

    async fn run(&self, more: &[&str]) -> Portolan {
        let mut command = self.command(&["run", "--manifests", &self.manifests()]);
        command.args(more);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan
    }

    /// Writes a manifest as editors do: whole, in one step.
    fn write(&self, file: &str, text: impl AsRef<str>) {
        let path = self.folder.join("manifests").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = self.folder.join("draft");
        std::fs::write(&draft, text.as_ref()).unwrap();
        std::fs::rename(draft, path).unwrap();
    }

    fn serve(&self, name: &str, versions: &[&str]) -> String {
        let index = crate::cluster::index(&[("web", versions)]);
        self.server.serve(&format!("/{name}/index.yaml"), Page::new(index));
        self.server.url(&format!("/{name}"))
    }

    /// What `portolan status -o json` says of a repository.
    async fn status(&self, name: &str) -> Option<Value> {
        let output = portolan::run(self.command(&["status", "-o", "json"])).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        all.into_iter().find(|repository| repository["name"] == name)
    }

    async fn until_status(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, async || match self.status(name).await {
            Some(status) if fits(&status) => Ok(status),
            status => Err(format!("{status:?}")),
        })
        .await
    }

    /// Waits until the newest version of the chart `web` of a repository is this one.
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

fn manifest(name: &str, url: &str, more: &str) -> String {
    format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\nspec:\n  type: helm\n  url: {url}\n{more}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_followed_from_a_manifest_to_its_removal() {
    let world = World::new().await;
    let (first, second) = (world.serve("first", &["1.0.0"]), world.serve("second", &["1.0.0"]));
    let both = format!(
        "{}---\n{}",
        manifest("first", &first, ""),
        manifest("second", &second, "")
    );
    world.write("deep/er/repositories.yaml", &both);
    let portolan = world.run(&["--min-interval=1s"]).await;

    // Many documents a file; both are synced.
    world.until_newest("first", "1.0.0").await;
    world.until_newest("second", "1.0.0").await;

    // A resync by hand.
    world.serve("first", &["1.1.0", "1.0.0"]);
    let output = portolan::run(command(["resync", "first", "--manifests", &world.manifests()])).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.until_newest("first", "1.1.0").await;

    // A change of the spec, and an interval that fires.
    world.serve("second", &["1.2.0"]);
    let every_second = manifest("second", &second, "  interval: \"* * * * * *\"\n");
    world.write(
        "deep/er/repositories.yaml",
        format!("{}---\n{every_second}", manifest("first", &first, "")),
    );
    world.until_newest("second", "1.2.0").await;
    world.serve("second", &["1.3.0"]);
    world.until_newest("second", "1.3.0").await;

    // A file that is half written keeps the last good state, and says so.
    world.write(
        "deep/er/repositories.yaml",
        "apiVersion: kubeapps.com/v1alpha1\nkind: [AppRepo",
    );
    portolan.line_with("repositories.yaml", SOON).await;
    world.serve("second", &["1.4.0"]);
    world.until_newest("second", "1.4.0").await;

    // Bad index, repair.
    world.server.break_path("/second/index.yaml", Fault::html());
    let broken = world
        .until_status("second", "the failure to show", |status| {
            status["ready"] == Value::Bool(false)
        })
        .await;
    assert!(broken.to_string().contains("NotAnIndex"), "{broken}");
    world.until_newest("second", "1.4.0").await;
    world.server.repair("/second/index.yaml");
    world
        .until_status("second", "it to recover", |status| status["ready"] == Value::Bool(true))
        .await;

    // A document that is gone is a deletion.
    world.write("deep/er/repositories.yaml", &every_second);
    eventually(SOON, "the rows of the first to go", async || {
        world.status("first").await.is_none().then_some(())
    })
    .await;
    assert!(world.status("second").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_removed_while_portolan_was_down_is_cleaned_up_at_start() {
    let world = World::new().await;
    for name in ["kept", "removed"] {
        let url = world.serve(name, &["1.0.0"]);
        world.write(&format!("{name}.yaml"), manifest(name, &url, ""));
    }
    let mut portolan = world.run(&[]).await;
    world.until_newest("removed", "1.0.0").await;
    world.until_newest("kept", "1.0.0").await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;

    std::fs::remove_file(world.folder.join("manifests/removed.yaml")).unwrap();
    let _portolan = world.run(&[]).await;
    eventually(SOON, "the rows to go", async || {
        world.status("removed").await.is_none().then_some(())
    })
    .await;
    assert!(world.status("kept").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_once_syncs_all_that_is_declared_and_tells_by_its_exit_code() {
    let world = World::new().await;
    let url = world.serve("good", &["1.0.0"]);
    world.write("good.yaml", manifest("good", &url, ""));
    let once = ["run", "--once", "--manifests", &world.manifests()];
    let output = portolan::run(world.command(&once)).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(world.status("good").await.is_some());

    world.write("bad.yaml", manifest("bad", &world.server.url("/nowhere"), ""));
    let output = portolan::run(world.command(&once)).await;
    assert_eq!(output.status.code(), Some(1));
    let bad = world.status("bad").await.unwrap();
    assert!(bad.to_string().contains("NotFound"), "{bad}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_work_with_no_network() {
    let folder = ScratchFolder::new("examples");
    let database = format!("sqlite://{}", folder.join("portolan.db").display());
    let examples = crate::support::project("examples").display().to_string();
    let output = portolan::run(command([
        "run",
        "--once",
        "--manifests",
        &examples,
        "--database-url",
        &database,
    ]))
    .await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = portolan::run(command(["search", "tides", "--database-url", &database])).await;
    assert!(String::from_utf8_lossy(&found.stdout).contains("tide-table"));
    let all = portolan::run(command([
        "search",
        "--database-url",
        &database,
        "-o",
        "json",
        "example",
    ]))
    .await;
    assert!(
        !String::from_utf8_lossy(&all.stdout).contains("barge"),
        "a chart whose newest version is deprecated is left out"
    );
}
