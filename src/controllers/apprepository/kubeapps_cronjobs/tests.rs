use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use kube::api::ObjectMeta;
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case("kubeapps", "bitnami", "apprepo-kubeapps-sync-bitnami")]
#[case("foofoofoofoofoofoof", "b", "apprepo-foofoofoofoofoofoof-sync-b")]
#[case(
    "foofoofoofoofoofoofoo",
    "barbarbarbarbarbarbar",
    "apprepo-foofoofo-645137792-sync-barbarba-620299591"
)]
#[case("a", "barbarbarbarbarbarbar", "apprepo-a-sync-barbarba-620299591")]
fn the_name_of_a_cron_job_matches_kubeapps_controller(
    #[case] namespace: &str,
    #[case] repository: &str,
    #[case] expected: &str,
) {
    assert_eq!(cron_job_name(&NamespacedName::new(namespace, repository)), expected);
}

#[test]
fn names_of_cron_jobs_are_within_the_limit_of_kubernetes() {
    let long = "z".repeat(253);
    assert!(cron_job_name(&NamespacedName::new(&long[..63], &long)).len() <= 52);
    assert_eq!(
        cron_job_name(&NamespacedName::new("ä-is-no-name-in-a-cluster", "a")),
        "apprepo-ä-is-no-name-in-a-cluster-sync-a"
    );
}

#[rstest]
#[case("Wikipedia", 0x11E6_0398)]
#[case("", 1)]
fn the_checksum_is_adler_32(#[case] text: &str, #[case] expected: u32) {
    assert_eq!(adler32(text.as_bytes()), expected);
}

#[rstest]
#[case::made_by_the_controller("apprepo-team-a-sync-charts", &[(REPOSITORY_NAME, "charts"), (REPOSITORY_NAMESPACE, "team-a")], true)]
#[case::another_name("nightly", &[(REPOSITORY_NAME, "charts"), (REPOSITORY_NAMESPACE, "team-a")], false)]
#[case::of_another_repository("apprepo-team-b-sync-charts", &[(REPOSITORY_NAME, "charts"), (REPOSITORY_NAMESPACE, "team-a")], false)]
#[case::one_label("apprepo-team-a-sync-charts", &[(REPOSITORY_NAME, "charts")], false)]
#[case::no_label("apprepo-team-a-sync-charts", &[], false)]
fn a_cron_job_belongs_to_a_repository_by_its_labels_and_its_name(
    #[case] cron_job: &str,
    #[case] labels: &[(&str, &str)],
    #[case] belongs: bool,
) {
    let metadata = ObjectMeta {
        name: Some(cron_job.to_owned()),
        labels: Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
        ..ObjectMeta::default()
    };
    let found = repository_of(&metadata.into());
    assert_eq!(found, belongs.then(|| NamespacedName::new("team-a", "charts")));
}

#[test]
fn the_warning_contains_the_number_and_the_next_step() {
    assert_eq!(warning(&[], "kubeapps"), None);
    let message = warning(
        &[NamespacedName::new("a", "b"), NamespacedName::new("c", "d")],
        "kubeapps",
    )
    .unwrap();
    for part in ["2 repositories", "a/b", "namespace kubeapps", "--adopt-kubeapps"] {
        assert!(message.contains(part), "{message}");
    }
}

/// Returns a remover whose API server sends these responses, and those that are not sent yet.
fn remover(answers: &[u16]) -> (CronJobRemover, Arc<Mutex<VecDeque<u16>>>) {
    let unused = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let answers = Arc::clone(&unused);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let code = answers.lock().pop_front().expect("no request more than answers");
        let body = match code {
            200 => json!({ "metadata": {}, "items": [{ "metadata": {
                "name": "apprepo-team-a-sync-charts", "uid": "u",
                "labels": { REPOSITORY_NAME: "charts", REPOSITORY_NAMESPACE: "team-a" },
            } }] }),
            // The response to a deletion.
            202 => json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "code": 202 }),
            code => json!({ "kind": "Status", "status": "Failure", "message": "no", "code": code }),
        };
        let answer = http::Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    let client = Client::new(service, "default");
    let remover = CronJobRemover::new(client, "kubeapps".to_owned(), RepositoryStates::default());
    (remover, unused)
}

/// Returns the removed CronJobs of three syncs, and the number of unused responses.
async fn synced_three_times(answers: &[u16]) -> (Vec<usize>, usize) {
    let (remover, unused) = remover(answers);
    let mut removed = Vec::new();
    for _ in 0..3 {
        removed.push(remover.after_sync(&NamespacedName::new("team-a", "charts")).await);
    }
    let unused = unused.lock().len();
    (removed, unused)
}

#[tokio::test]
async fn a_deletion_removes_cron_jobs_regardless_of_earlier_syncs() {
    let (remover, unused) = remover(&[200, 202, 200, 202, 403]);
    let name = NamespacedName::new("team-a", "charts");
    assert_eq!(remover.after_sync(&name).await, 1);
    assert_eq!(
        remover.after_deletion(&name).await,
        1,
        "recreated by Kubeapps' controller"
    );
    assert_eq!(remover.after_deletion(&name).await, 0, "not allowed");
    assert!(unused.lock().is_empty());
}

#[rstest]
#[case::done_once(&[200, 202], [1, 0, 0])]
#[case::gone_meanwhile(&[200, 404], [0, 0, 0])]
#[case::made_anew_meanwhile(&[200, 409], [0, 0, 0])]
#[case::not_allowed(&[403], [0, 0, 0])]
#[case::not_allowed_to_delete(&[200, 403], [0, 0, 0])]
#[case::away_for_a_moment(&[500, 200, 503, 200, 202], [0, 0, 1])]
#[tokio::test]
async fn cron_jobs_of_a_repository_are_removed_once(#[case] answers: &[u16], #[case] removed: [usize; 3]) {
    assert_eq!(synced_three_times(answers).await, (removed.to_vec(), 0));
}
