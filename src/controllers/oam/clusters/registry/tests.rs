mod site;
mod sources;

use tokio::time::{Instant, sleep};
use tracing::Level;

use self::site::{DEADLINE, Mode, Site, get_pod, secret, typed};
use super::*;
use crate::controllers::oam::clusters::IdentityKinds;
use crate::trace::log_lines::LogLines;

#[tokio::test(start_paused = true)]
async fn clusters_are_listed_by_name_and_only_their_metadata_is_read() {
    let mut site = Site::new();
    for name in ["test", "prod", "local"] {
        let secret = secret(name, "hunter2", "1");
        site.servers.secrets.lock().insert(name.to_owned(), secret);
    }
    assert!(site.clusters.list().unwrap_err().contains("not listed yet"));
    let running = tokio::spawn(site.clusters.clone().run());
    site.clusters.wait_until_known().await;
    let problem = site.clusters.list().unwrap_err();
    let expected = "failed to look for joined clusters in namespace vela-system: failed to list secrets: ";
    assert!(problem.starts_with(expected), "{problem}");
    assert_eq!(site.error("prod"), ClusterError::Unknown(problem));
    site.servers.may_list.store(true, Ordering::SeqCst);
    let known = timeout(DEADLINE, async {
        loop {
            if let Ok(known) = site.clusters.list() {
                return known;
            }
            sleep(Duration::from_secs(1)).await;
        }
    });
    let known = known.await.unwrap();
    let names: Vec<&str> = known.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["prod", "test"]);
    assert_eq!(known[0].labels["region"], "eu");
    assert_eq!(site.changes(), ["prod", "test"]);
    let list = site.servers.lists.lock()[0].clone();
    assert!(
        list.contains("cluster-credential-type") && list.contains("PartialObjectMetadataList"),
        "{list}"
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_connected_when_it_is_used() {
    let mut site = Site::joined();
    site.store(secret("test", "hunter2", "1"));
    assert_eq!(
        site.clusters.counts(),
        ClusterCounts {
            unused: 2,
            ..ClusterCounts::default()
        }
    );
    let missing = ClusterError::NotJoined {
        cluster: "dev".to_owned(),
    };
    assert_eq!(site.error("dev"), missing);
    let connecting = ClusterError::Connecting {
        cluster: "prod".to_owned(),
    };
    assert_eq!(site.error("prod"), connecting);
    site.tried("prod").await;
    let connection = site.up("prod").await;
    assert_eq!(connection.version["gitVersion"], "v1.35.0");
    assert_eq!(connection.can_impersonate, IdentityKinds::ALL);
    get_pod(&connection).await.unwrap();
    let counts = ClusterCounts {
        up: 1,
        unused: 1,
        ..ClusterCounts::default()
    };
    assert_eq!(site.clusters.counts(), counts);
    let other = site.up("test").await;
    assert_ne!(other.number, connection.number);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_fails_is_probed_ever_more_rarely_and_keeps_its_connection() {
    let mut site = Site::joined();
    let connection = site.up("prod").await;
    get_pod(&connection).await.unwrap();
    site.set(Mode::Refusing);
    get_pod(&connection).await.unwrap_err();
    let start = Instant::now();
    assert!(matches!(site.error("prod"), ClusterError::Unreachable { problem, .. } if problem.contains("prod:6443")));
    assert_eq!(site.clusters.counts().unreachable, 1);
    get_pod(&connection).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO, "requests fail at once");
    sleep(Duration::from_secs(16)).await;
    let probes = site.probes_since(start);
    assert!(
        probes[0] <= Duration::from_millis(1_010) && probes.len() >= 4,
        "{probes:?}"
    );
    assert!(
        probes.windows(3).all(|three| three[2] - three[1] > three[1] - three[0]),
        "{probes:?}"
    );
    site.changes();
    site.set(Mode::Up);
    let again = site.up("prod").await;
    assert_eq!(again.number, connection.number);
    get_pod(&connection).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_answers_only_probes_is_asked_ever_more_rarely() {
    let mut site = Site::joined();
    site.set(Mode::ProbesOnly);
    let mut connection = site.up("prod").await;
    let mut last = Duration::ZERO;
    for _ in 0..6 {
        let failed = Instant::now();
        get_pod(&connection).await.unwrap_err();
        connection = site.up("prod").await;
        assert!(failed.elapsed() > last);
        last = failed.elapsed();
    }
    site.set(Mode::Up);
    get_pod(&connection).await.unwrap();
    site.set(Mode::ProbesOnly);
    let failed = Instant::now();
    get_pod(&connection).await.unwrap_err();
    site.up("prod").await;
    assert!(
        failed.elapsed() <= Duration::from_millis(1_010),
        "the backoff was reset"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rare_request_without_a_response_is_no_outage() {
    let mut site = Site::joined();
    let connection = site.up("prod").await;
    get_pod(&connection).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    site.set(Mode::HangingPods);
    get_pod(&connection).await.unwrap_err();
    let start = Instant::now();
    site.up("prod").await;
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    get_pod(&connection).await.unwrap_err();
    let start = Instant::now();
    site.up("prod").await;
    assert!(
        start.elapsed() > Duration::from_millis(500),
        "it is the second failure in a row"
    );
}

#[tokio::test(start_paused = true)]
async fn half_open_a_cluster_gets_one_request() {
    let mut site = Site::joined();
    site.set(Mode::ProbesOnly);
    let connection = site.up("prod").await;
    get_pod(&connection).await.unwrap_err();
    site.up("prod").await;
    site.set(Mode::Hanging);
    let start = Instant::now();
    let (one, other) = tokio::join!(get_pod(&connection), get_pod(&connection));
    let errors = [one, other].map(|result| result.unwrap_err().to_string());
    assert_eq!(
        errors.iter().filter(|error| error.contains("no response yet")).count(),
        1
    );
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(matches!(site.error("prod"), ClusterError::Unreachable { .. }));
}

#[tokio::test(start_paused = true)]
async fn only_another_credential_makes_another_connection() {
    let mut site = Site::joined();
    let connection = site.up("prod").await;
    site.changes();
    site.store(secret("prod", "hunter2", "2"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(site.up("prod").await.number, connection.number);
    assert!(site.changes().is_empty());
    site.store(secret("prod", "hunter3", "3"));
    assert_eq!(timeout(DEADLINE, site.changes.recv()).await.unwrap().unwrap(), "prod");
    let other = site.up("prod").await;
    assert_ne!(other.number, connection.number);
    get_pod(&connection).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_no_credential_is_refused_until_it_changes() {
    let mut site = Site::listed();
    site.store(typed("prod", "Dynamic"));
    site.tried("prod").await;
    assert!(matches!(site.error("prod"), ClusterError::Refused { problem, .. } if problem.contains("Dynamic")));
    assert_eq!(site.clusters.counts().refused, 1);
    assert!(site.servers.requests.lock().is_empty());
    site.store(secret("prod", "hunter2", "2"));
    site.up("prod").await;
}

#[tokio::test(start_paused = true)]
async fn the_own_cluster_is_refused() {
    let site = Site::listed();
    *site.servers.remote_uid.lock() = "own".to_owned();
    site.store(secret("prod", "hunter2", "1"));
    site.tried("prod").await;
    assert!(
        matches!(site.error("prod"), ClusterError::Refused { problem, .. } if problem.contains("use the name local"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_named_that_may_be_the_own_one() {
    let (log, _logging) = LogLines::start(Level::WARN);
    let mut site = Site::listed();
    site.servers.hides_uid.store(true, Ordering::SeqCst);
    for name in ["prod", "test"] {
        site.store(secret(name, "hunter2", "1"));
        site.up(name).await;
    }
    let lines = log.lines();
    let is_named = |name: &str| {
        lines
            .iter()
            .any(|line| line.contains(name) && line.contains("grant `get`"))
    };
    assert!(lines.len() == 2 && is_named("prod") && is_named("test"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_review_fails_or_that_does_not_accept_the_credential_is_not_used() {
    for (mode, why) in [(Mode::WithoutReviews, "500"), (Mode::Unauthorized, "renew it")] {
        let mut site = Site::joined();
        site.set(mode);
        site.tried("prod").await;
        assert!(matches!(site.error("prod"), ClusterError::Unreachable { problem, .. } if problem.contains(why)));
        site.set(Mode::Up);
        assert_eq!(site.up("prod").await.can_impersonate, IdentityKinds::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn the_right_to_impersonate_is_noticed_when_it_is_granted_later() {
    let mut site = Site::joined();
    site.set(Mode::WithoutImpersonation);
    let connection = site.up("prod").await;
    assert_eq!(connection.can_impersonate, IdentityKinds::NONE);
    site.changes();
    site.set(Mode::ImpersonatingAccounts);
    let accounts = IdentityKinds::of([false, false, true]);
    assert_eq!(timeout(DEADLINE, site.changes.recv()).await.unwrap().unwrap(), "prod");
    assert_eq!(site.up("prod").await.can_impersonate, accounts);
    site.set(Mode::Up);
    assert_eq!(timeout(DEADLINE, site.changes.recv()).await.unwrap().unwrap(), "prod");
    let granted = site.up("prod").await;
    assert!(granted.can_impersonate == IdentityKinds::ALL && granted.number == connection.number);
}

#[tokio::test(start_paused = true)]
async fn another_credential_is_reported_before_it_is_connected() {
    let mut site = Site::joined();
    site.up("prod").await;
    site.changes();
    site.set(Mode::Hanging);
    site.store(secret("prod", "hunter3", "2"));
    assert_eq!(timeout(DEADLINE, site.changes.recv()).await.unwrap().unwrap(), "prod");
    assert!(matches!(site.error("prod"), ClusterError::Connecting { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_monitor_that_panicked_is_started_again() {
    let mut site = Site::joined();
    site.set(Mode::Panicking);
    let connecting = site.error("prod");
    assert!(matches!(connecting, ClusterError::Connecting { .. }));
    let has_panicked = async {
        while !site.servers.has_panicked.load(Ordering::SeqCst) {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(DEADLINE, has_panicked).await.unwrap();
    site.set(Mode::Up);
    site.up("prod").await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_secret_and_the_end_of_the_registry_end_its_monitor() {
    let site = Site::listed();
    site.set(Mode::Refusing);
    for name in ["prod", "test"] {
        site.store(secret(name, "hunter2", "1"));
        site.tried(name).await;
    }
    let probes = |site: &Site| site.servers.requests.lock().len();
    let before = probes(&site);
    sleep(Duration::from_secs(120)).await;
    assert!(probes(&site) > before, "both are probed");
    site.remove("prod");
    let missing = ClusterError::NotJoined {
        cluster: "prod".to_owned(),
    };
    assert_eq!(site.error("prod"), missing);
    let servers = Arc::clone(&site.servers);
    drop(site);
    let before = servers.requests.lock().len();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(servers.requests.lock().len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_first_attempts_or_after_its_limit() {
    let site = Site::joined();
    site.set(Mode::Refusing);
    let start = Instant::now();
    site.tried("prod").await;
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    site.set(Mode::Hanging);
    for name in ["a", "b", "c"] {
        site.store(secret(name, "hunter2", "1"));
    }
    let start = Instant::now();
    let names = ["a", "b", "c", "prod", "absent"].map(ToOwned::to_owned);
    site.clusters.wait_until_tried(&names.into()).await;
    assert!(start.elapsed() <= Duration::from_millis(5_010), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_gone_with_its_secret() {
    let site = Site::joined();
    for (name, is_gone) in [
        ("prod", false),
        ("local", false),
        ("dev", true),
        ("../secrets/prod", true),
    ] {
        assert_eq!(site.clusters.is_gone(name).await.unwrap(), is_gone, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_with_the_name_local_is_ignored_with_one_warning() {
    let (log, _logging) = LogLines::start(Level::WARN);
    let site = Site::listed();
    site.store(secret("local", "hunter2", "1"));
    site.store(secret("local", "hunter2", "2"));
    assert!(site.clusters.list().unwrap().is_empty());
    assert_eq!(log.lines().len(), 1, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn too_many_clusters_are_not_listed_and_those_in_use_go_on() {
    let mut site = Site::joined();
    site.up("prod").await;
    for number in 0..MAX_CLUSTERS {
        site.store(secret(&format!("cluster-{number}"), "hunter2", "1"));
    }
    assert!(site.clusters.list().unwrap_err().contains("more than 1000"));
    assert!(matches!(site.error("cluster-1"), ClusterError::Unknown(_)));
    site.up("prod").await;
    site.remove("cluster-0");
    assert_eq!(site.clusters.list().unwrap().len(), MAX_CLUSTERS as usize);
}
