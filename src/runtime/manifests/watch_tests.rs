//! Watches of real directories.

use std::{os::unix::fs::symlink, pin::Pin};

use futures::StreamExt;
use tokio::time::timeout;

use super::*;
use crate::api::{AppRepository, REQUESTED_AT};

const DEADLINE: Duration = Duration::from_secs(20);

type Events = Pin<Box<dyn Stream<Item = Result<Event<DeserializeGuard<AppRepository>>, DirectoryError>> + Send>>;

fn watch(directory: &Path) -> (Events, Problems) {
    let problems = Problems::default();
    let events = events(directory.to_owned(), |_| None, problems.clone());
    (Box::pin(events), problems)
}

fn write(directory: &Path, file: &str, name: &str, url: &str) {
    let content = format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\nspec: {{type: helm, url: {url}}}\n"
    );
    fs::create_dir_all(directory.join(file).parent().unwrap()).unwrap();
    fs::write(directory.join(file), content).unwrap();
}

async fn next(events: &mut Events) -> String {
    let is = |object: DeserializeGuard<AppRepository>| object.0.map_or("broken".to_owned(), |object| object.spec.url);
    match timeout(DEADLINE, events.next()).await.unwrap().unwrap() {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(object)) => format!("listed {}", is(object)),
        Ok(Event::InitDone) => "done".to_owned(),
        Ok(Event::Apply(object)) => format!("apply {}", is(object)),
        Ok(Event::Delete(object)) => format!("delete {}", is(object)),
        Err(error) => format!("error {error}"),
    }
}

/// Returns the events of the first list.
async fn listed(events: &mut Events) -> Vec<String> {
    let mut seen = vec![];
    while seen.last().is_none_or(|last| last != "done") {
        seen.push(next(events).await);
    }
    seen
}

#[tokio::test]
async fn created_changed_and_deleted_files_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a", "u1");
    let (mut events, problems) = watch(directory.path());
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);
    assert!(problems.is_complete() && problems.list().is_empty());

    write(directory.path(), "a.yaml", "a", "u2");
    assert_eq!(next(&mut events).await, "apply u2");
    write(directory.path(), "new/directory/b.yaml", "b", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
    fs::remove_file(directory.path().join("a.yaml")).unwrap();
    assert_eq!(next(&mut events).await, "delete u2");
    fs::remove_dir_all(directory.path().join("new")).unwrap();
    assert_eq!(next(&mut events).await, "delete u3");
}

#[tokio::test]
async fn an_updated_config_map_mount_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "..1/a.yaml", "a", "u1");
    symlink("..1", directory.path().join("..data")).unwrap();
    symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
    let (mut events, _) = watch(directory.path());
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);

    write(directory.path(), "..2/a.yaml", "a", "u2");
    symlink("..2", directory.path().join("..data_tmp")).unwrap();
    fs::rename(directory.path().join("..data_tmp"), directory.path().join("..data")).unwrap();
    fs::remove_dir_all(directory.path().join("..1")).unwrap();
    assert_eq!(next(&mut events).await, "apply u2");
}

#[tokio::test]
async fn a_broken_file_is_a_problem_until_it_is_fixed() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a", "u1");
    write(directory.path(), "b.yaml", "b", "u2");
    let (mut events, problems) = watch(directory.path());
    assert_eq!(listed(&mut events).await.len(), 4);

    fs::write(directory.path().join("a.yaml"), "spec: [").unwrap();
    // An event of another file proves that the broken one was read too.
    write(directory.path(), "b.yaml", "b", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
    assert_eq!(problems.list()[0].path, Path::new("a.yaml"));
    let gauge = Gauge::<i64>::default();
    problems.report_to(gauge.clone());
    let read = super::problems::<AppRepository>(directory.path(), |_| None).unwrap();
    assert_eq!(read[0].path, Path::new("a.yaml"));
    write(directory.path(), "a.yaml", "a", "u4");
    assert_eq!(next(&mut events).await, "apply u4");
    assert!(problems.list().is_empty());
    assert_eq!(gauge.get(), 0);
    fs::write(directory.path().join("a.yaml"), "spec: [").unwrap();
    write(directory.path(), "b.yaml", "b", "u5");
    assert_eq!(next(&mut events).await, "apply u5");
    assert_eq!(gauge.get(), 1);
}

#[tokio::test]
async fn a_resync_request_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a", "u1");
    let (mut events, _) = watch(directory.path());
    listed(&mut events).await;
    let name = NamespacedName {
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    };
    for token in ["first", "second"] {
        request_resync(directory.path(), &name, token).unwrap();
        let Ok(Event::Apply(DeserializeGuard(Ok(object)))) = timeout(DEADLINE, events.next()).await.unwrap().unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(object.annotation(REQUESTED_AT), Some(token));
    }
}

#[tokio::test]
async fn a_missing_directory_is_awaited_and_a_deleted_one_removes_no_objects() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("manifests");
    let (mut events, problems) = watch(&directory);
    assert!(next(&mut events).await.starts_with("error failed to read directory"));
    assert!(problems.list()[0].message.contains("failed to read directory") && !problems.is_complete());

    write(&directory, "a.yaml", "a", "u1");
    let mut seen = next(&mut events).await;
    while seen.starts_with("error") {
        seen = next(&mut events).await;
    }
    assert_eq!(seen, "init");
    while seen != "done" {
        seen = next(&mut events).await;
    }

    fs::rename(&directory, parent.path().join("away")).unwrap();
    write(&directory, "a.yaml", "a", "u2");
    while seen != "apply u2" {
        assert!(!seen.starts_with("delete"), "{seen}");
        seen = next(&mut events).await;
    }
    write(&directory, "a.yaml", "a", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
}

#[tokio::test]
async fn a_change_behind_a_link_to_another_directory_is_reported() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "a.yaml", "a", "u1");
    symlink(outside.path().join("a.yaml"), directory.path().join("a.yaml")).unwrap();
    let (mut events, _) = watch(directory.path());
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);
    write(outside.path(), "a.yaml", "a", "u2");
    assert_eq!(next(&mut events).await, "apply u2");
}

#[test]
fn an_unchanged_directory_is_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a", "u1");
    let mut state: Option<ManifestDirectory<AppRepository>> = None;
    let mut next_step = |last: Option<u64>| scan(&mut state, directory.path(), last, |_| None).unwrap();
    let first = next_step(None).unwrap();
    assert!(first.changes.needs_confirmation && first.is_complete);
    assert!(next_step(Some(first.fingerprint)).is_none());

    write(directory.path(), "a.yaml", "a", "u20");
    symlink("nowhere.yaml", directory.path().join("b.yaml")).unwrap();
    let second = next_step(Some(first.fingerprint)).unwrap();
    assert!(second.changes.needs_confirmation && !second.is_complete);
}

#[tokio::test]
async fn files_that_could_not_be_read_are_read_again_after_a_while() {
    let directory = tempfile::tempdir().unwrap();
    symlink("nowhere.yaml", directory.path().join("a.yaml")).unwrap();
    let mut watch = DirectoryWatch::<AppRepository>::new(directory.path().to_owned(), |_| None, Problems::default());
    // The first look needs confirmation.
    for _ in 0..2 {
        watch.refresh().await.unwrap();
    }
    let retry_at = watch.retry_at.unwrap();
    watch.refresh().await.unwrap();
    assert_eq!(watch.retry_at, Some(retry_at), "the metadata is the same");
    watch.retry_at = Some(Instant::now());
    watch.refresh().await.unwrap();
    assert!(watch.retry_at.unwrap() > retry_at);
    assert!((POLL_INTERVAL..=RETRY_INTERVAL).contains(&watch.pause));
}

#[test]
fn resync_requests_need_a_valid_name() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["", "..", "../x", "a/b", ".a", "A"] {
        let name = NamespacedName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        assert!(request_resync(directory.path(), &name, "now").is_err(), "{name}");
    }
    assert!(!directory.path().join(".portolan").exists());
}

#[test]
fn the_directory_id_is_independent_of_the_path() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("a")).unwrap();
    symlink("a", directory.path().join("b")).unwrap();
    let id = |name: &str| directory_id(&directory.path().join(name)).unwrap();
    assert_eq!(id("a"), id("b"));
    assert_eq!(id("a"), id("b/../a"));
    assert_ne!(id("a"), id("."));
    assert!(directory_id(&directory.path().join("c")).is_err());
}

#[test]
fn one_object_is_read_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.yaml", "a", "u1");
    write(directory.path(), "below/b.yaml", "b", "u2");
    let url = |namespace: &str, name: &str| {
        let name = NamespacedName::new(namespace, name);
        let object = object::<AppRepository>(directory.path(), |_| None, &name).unwrap();
        object.map(|object| object.spec.url)
    };
    assert_eq!(url("default", "b").as_deref(), Some("u2"));
    assert_eq!(url("default", "c"), None);
    assert_eq!(url("other", "b"), None);
}
