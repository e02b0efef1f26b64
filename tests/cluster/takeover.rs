//! Replaces Kubeapps' controller: removes its CronJobs and accepts its arguments.

use portolan::api::NamespacedName;
use portolan::controllers::apprepository::kubeapps_cronjobs::cron_job_name;
use serde_json::json;

use super::adopting::{create, cron_job, names, repository};
use super::registry::{RecordedRegistry, chart};
use super::rows::{Postgres, Rows};
use super::{NEVER, SOON, World, condition, index};
use crate::support::chart_server::Fault;
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::{BINARY, Portolan, command_as, run};
use crate::support::postgres::{PASSWORD, USER, database};
use crate::support::process::ScratchDir;
use crate::support::registry::{PASSWORD as REGISTRY_PASSWORD, USER as REGISTRY_USER};
use crate::support::token_server::basic_authorization;

/// Creates Kubeapps' CronJobs for these repositories, and an unrelated one, in a new namespace.
async fn kubeapps_with(world: &World, repositories: &[&NamespacedName]) -> String {
    let kubeapps = control_plane().await.namespace().await;
    for name in repositories {
        create(&world.client, &kubeapps, cron_job(&cron_job_name(name), name)).await;
    }
    create(&world.client, &kubeapps, cron_job("nightly-report", repositories[0])).await;
    kubeapps
}

/// Sorted names of the remaining CronJobs.
fn left(repositories: &[&NamespacedName]) -> Vec<String> {
    let mut names: Vec<String> = repositories.iter().map(|name| cron_job_name(name)).collect();
    names.push("nightly-report".to_owned());
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cron_job_of_a_repository_is_removed_after_its_first_sync() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let [good, bad] = ["good", "bad"].map(|name| repository(&world.namespace, name));
    let unmanaged = repository("another-team", "charts");
    let kubeapps = kubeapps_with(&world, &[&good, &bad, &unmanaged]).await;
    let url = world.serve("good", index(&[("web", &["1.0.0"])]));
    world.declare("good", &url).await;
    let url = world.serve("bad", index(&[("web", &["1.0.0"])]));
    world.server.break_path("/bad/index.yaml", Fault::status(404));
    world.declare("bad", &url).await;

    let namespace = format!("--namespace={kubeapps}");
    let portolan = world
        .portolan(postgres.url(), &[NEVER, "--adopt-kubeapps", &namespace])
        .await;
    world.until_ready_is("bad", "False", "NotFound").await;
    eventually(SOON, "the CronJob of the synced repository to be removed", async || {
        let there = names(&world.client, &kubeapps).await;
        if there == left(&[&bad, &unmanaged]) {
            Ok(())
        } else {
            Err(format!("{there:?}"))
        }
    })
    .await;
    // Kubeapps still syncs the other repository.
    let object = world.resync_and_wait("bad", "one").await;
    assert!(condition(&object, "Stalled").is_some());
    assert_eq!(names(&world.client, &kubeapps).await, left(&[&bad, &unmanaged]));
    world.server.clear_faults("/bad/index.yaml");
    world.resync("bad", "two").await;
    world.until_ready("bad").await;
    eventually(SOON, "the CronJob of the other to be removed", async || {
        let there = names(&world.client, &kubeapps).await;
        if there == left(&[&unmanaged]) {
            Ok(())
        } else {
            Err(format!("{there:?}"))
        }
    })
    .await;
    assert!(!portolan.lines().iter().any(|line| line.contains("synced twice")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_repository_has_its_cron_job_removed_again() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let name = repository(&world.namespace, "charts");
    let kubeapps = kubeapps_with(&world, &[&name]).await;
    let url = world.serve("charts", index(&[("web", &["1.0.0"])]));
    let namespace = format!("--namespace={kubeapps}");
    let _portolan = world
        .portolan(postgres.url(), &[NEVER, "--adopt-kubeapps", &namespace])
        .await;
    let cron_job_is_removed = async || {
        eventually(SOON, "the CronJob to be removed", async || {
            let there = names(&world.client, &kubeapps).await;
            if there == left(&[]) {
                Ok(())
            } else {
                Err(format!("{there:?}"))
            }
        })
        .await;
    };
    world.declare("charts", &url).await;
    cron_job_is_removed().await;

    world.delete("charts").await;
    world.gone("charts").await;
    create(&world.client, &kubeapps, cron_job(&cron_job_name(&name), &name)).await;
    world.declare("charts", &url).await;
    cron_job_is_removed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_flag_cron_jobs_stay_and_are_logged_once() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let [one, two] = ["one", "two"].map(|name| repository(&world.namespace, name));
    let unmanaged = repository("another-team", "charts");
    let kubeapps = kubeapps_with(&world, &[&one, &two, &unmanaged]).await;
    for name in ["one", "two"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
    }
    let namespace = format!("--namespace={kubeapps}");
    let portolan = world.portolan(postgres.url(), &[NEVER, &namespace]).await;
    let warning = portolan.line_with("are also synced by CronJobs", SOON).await;
    assert!(warning.contains(&format!("2 repositories (first: {one})")), "{warning}");
    assert!(
        warning.contains("WARN") && warning.contains("--adopt-kubeapps"),
        "{warning}"
    );
    for name in ["one", "two"] {
        world.until_ready(name).await;
        world.resync_and_wait(name, "again").await;
    }
    let lines = portolan.lines();
    assert_eq!(
        lines.iter().filter(|line| line.contains("CronJobs")).count(),
        1,
        "{lines:#?}"
    );
    assert_eq!(names(&world.client, &kubeapps).await, left(&[&one, &two, &unmanaged]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deployment_of_kubeapps_controller_starts_unchanged() {
    // All namespaces are watched, so that the test needs a control plane without other tests.
    let control_plane = ControlPlane::start().await;
    for crd in portolan::api::crds() {
        control_plane.install_crd(&crd).await;
    }
    let (world, kubeapps) = (World::on(&control_plane).await, World::on(&control_plane).await);
    let database = database().await;
    let values = json!({ "postgres-password": PASSWORD });
    world
        .write_secret(&kubeapps.namespace, "kubeapps-postgresql", values)
        .await;
    let address = url::Url::parse(&database.url).unwrap();
    let host = format!("{}:{}", address.host_str().unwrap(), address.port().unwrap());
    // The container of Kubeapps' chart, with user values.
    let arguments = [
        "--user-agent-comment=kubeapps/2.12.1".to_owned(),
        "--repo-sync-image=docker.io/bitnami/kubeapps-asset-syncer:2.12.1-debian-12-r0".to_owned(),
        "--repo-sync-image-pullsecrets=regcred".to_owned(),
        "--repo-sync-cmd=/asset-syncer".to_owned(),
        format!("--namespace={}", kubeapps.namespace),
        format!("--global-repos-namespace={}", kubeapps.namespace),
        "--database-secret-name=kubeapps-postgresql".to_owned(),
        "--database-secret-key=postgres-password".to_owned(),
        format!("--database-url={host}"),
        format!("--database-user={USER}"),
        format!("--database-name={}", database.name),
        "--crontab=*/10 * * * *".to_owned(),
        "--repos-per-namespace=true".to_owned(),
        "--custom-annotations=\"sidecar.istio.io/inject=false\"".to_owned(),
        "--custom-labels=\"team=harbour\",\"tier=sync\"".to_owned(),
        "--ttl-lifetime-afterfinished-job=3600".to_owned(),
        "--concurrency-policy=Forbid".to_owned(),
        "-v=4".to_owned(),
    ];
    let directory = ScratchDir::new("kubeapps");
    let program = directory.join("apprepository-controller");
    std::os::unix::fs::symlink(BINARY, &program).unwrap();
    let mut command = command_as(&program, &arguments);
    command
        .env("KUBECONFIG", control_plane.kubeconfig())
        .env(
            "REPO_SYNC_IMAGE",
            "docker.io/bitnami/kubeapps-asset-syncer:2.12.1-debian-12-r0",
        )
        .env("OCI_CATALOG_URL", "kubeapps-internal-kubeappsapis:50061");
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    for place in [&world, &kubeapps] {
        let url = place.serve("bitnami", index(&[("web", &["1.0.0"])]));
        place.declare("bitnami", &url).await;
        place.until_ready("bitnami").await;
        let agent = place.server.requests("/bitnami/index.yaml")[0].headers["user-agent"].clone();
        assert!(agent.to_str().unwrap().ends_with("(kubeapps/2.12.1)"), "{agent:?}");
    }
    let rows = Rows::of(&database.url).await;
    let mut namespaces = [&world.namespace, &kubeapps.namespace].map(|name| (name.clone(), "bitnami/web".to_owned()));
    namespaces.sort();
    let found = rows
        .pairs("SELECT repo_namespace, chart_id FROM charts ORDER BY 1")
        .await
        .unwrap();
    assert_eq!(found, namespaces);
    let lines = portolan.lines().join("\n");
    assert_eq!(lines.matches("ignoring deprecated flags").count(), 1, "{lines}");
    assert!(!lines.contains(PASSWORD), "{lines}");
    // It can be deleted, with its finalizer.
    world.delete("bitnami").await;
    world.gone("bitnami").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sync_job_of_a_private_registry_still_works() {
    let (fixture, database) = (RecordedRegistry::with_password().await, database().await);
    for (name, version) in [("harbour", "1.0.0"), ("pier", "0.1.0"), ("crane", "2.0.0")] {
        fixture.push(name, &chart(name, version)).await;
    }
    let rows = Rows::of(&database.url).await;
    let address = url::Url::parse(&database.url).unwrap();
    let host = format!("{}:{}", address.host_str().unwrap(), address.port().unwrap());
    let directory = ScratchDir::new("kubeapps");
    let program = directory.join("asset-syncer");
    std::os::unix::fs::symlink(BINARY, &program).unwrap();
    let docker =
        json!({ "auths": { fixture.front.host(): { "username": REGISTRY_USER, "password": REGISTRY_PASSWORD } } });
    // The container of a Job of Kubeapps' controller, with either form of credentials.
    for (name, variable, value) in [
        ("by-header", "AUTHORIZATION_HEADER", basic_authorization()),
        ("by-docker", "DOCKER_CONFIG_JSON", docker.to_string()),
    ] {
        let mut job = command_as(
            &program,
            [
                "sync",
                &format!("--database-url={host}"),
                &format!("--database-user={USER}"),
                &format!("--database-name={}", database.name),
                "--user-agent-comment=kubeapps/2.12.1",
                "--global-repos-namespace=kubeapps",
                "--namespace=team",
                name,
                &fixture.url(),
                "oci",
                "--oci-repositories",
                "harbour,pier,crane",
                "--tls-insecure-skip-verify",
                "--filter-rules",
                r#"{"jq":".name == $var0 | not","variables":{"$var0":"crane"}}"#,
            ],
        );
        job.env("DB_PASSWORD", PASSWORD)
            .env(variable, value)
            .env_remove("PORTOLAN_CHART_FILES");
        let output = run(job).await;
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{text}");
        assert!(
            !text.contains(REGISTRY_PASSWORD) && !text.contains(basic_authorization().as_str()),
            "{text}"
        );
        let of_this = |line: &String| line.starts_with(name);
        let charts: Vec<String> = rows.charts().await.unwrap().into_iter().filter(of_this).collect();
        assert_eq!(charts, [format!("{name}/harbour 1.0.0"), format!("{name}/pier 0.1.0")]);
        let files = rows.files().await;
        assert_eq!(files[&format!("{name}/harbour-1.0.0")]["Readme"], "# harbour 1.0.0\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_jobs_of_repositories_that_were_never_synced_are_removed_with_them() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let [gone, broken, elsewhere] = [
        repository(&world.namespace, "gone"),
        repository(&world.namespace, "broken"),
        repository("another-team", "gone"),
    ];
    let kubeapps = kubeapps_with(&world, &[&gone, &broken, &elsewhere]).await;
    world.declare("broken", &world.server.url("/nowhere")).await;
    let namespace = format!("--namespace={kubeapps}");
    // `gone` was deleted before Portolan started.
    let _portolan = world
        .portolan(postgres.url(), &[NEVER, "--adopt-kubeapps", &namespace])
        .await;
    let until_left = async |expected: Vec<String>| {
        eventually(SOON, "the CronJobs to be removed", async || {
            let there = names(&world.client, &kubeapps).await;
            if there == expected {
                Ok(())
            } else {
                Err(format!("{there:?}"))
            }
        })
        .await;
    };
    until_left(left(&[&broken, &elsewhere])).await;
    world
        .until("broken", "the failure", |object| condition(object, "Stalled").is_some())
        .await;
    assert_eq!(names(&world.client, &kubeapps).await, left(&[&broken, &elsewhere]));
    world.delete("broken").await;
    world.gone("broken").await;
    until_left(left(&[&elsewhere])).await;
}
