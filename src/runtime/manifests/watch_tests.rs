//! The watch of a real folder: files are written, events are waited for.

use std::{os::unix::fs::symlink, pin::Pin};

use futures::StreamExt;

use super::*;
use crate::api::{AppRepository, REQUESTED_AT};

const DEADLINE: Duration = Duration::from_secs(20);

type Events = Pin<Box<dyn Stream<Item = Result<Event<DeserializeGuard<AppRepository>>, Error>> + Send>>;

/// Notified only: a test that passes by the clock would show nothing.
fn watch(folder: &Path) -> (Events, Problems) {
    watch_with(folder, Duration::from_hours(1))
}

fn watch_with(folder: &Path, rescan: Duration) -> (Events, Problems) {
    let (events, problems) = events(folder.to_owned(), &Settings { rescan });
    (Box::pin(events), problems)
}

fn write(folder: &Path, file: &str, name: &str, url: &str) {
    let content = format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\nspec: {{type: helm, url: {url}}}\n"
    );
    fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
    fs::write(folder.join(file), content).unwrap();
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

/// Events up to the end of the list that comes first.
async fn listed(events: &mut Events) -> Vec<String> {
    let mut seen = vec![];
    while seen.last().is_none_or(|last| last != "done") {
        seen.push(next(events).await);
    }
    seen
}

#[tokio::test]
async fn files_are_told_as_they_come_change_and_go() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.yaml", "a", "u1");
    let (mut events, problems) = watch(folder.path());
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);
    assert!(problems.is_complete() && problems.list().is_empty());

    write(folder.path(), "a.yaml", "a", "u2");
    assert_eq!(next(&mut events).await, "apply u2");
    write(folder.path(), "new/directory/b.yaml", "b", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    assert_eq!(next(&mut events).await, "delete u2");
    fs::remove_dir_all(folder.path().join("new")).unwrap();
    assert_eq!(next(&mut events).await, "delete u3");
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "..1/a.yaml", "a", "u1");
    symlink("..1", folder.path().join("..data")).unwrap();
    symlink("..data/a.yaml", folder.path().join("a.yaml")).unwrap();
    let (mut events, _) = watch(folder.path());
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);

    write(folder.path(), "..2/a.yaml", "a", "u2");
    symlink("..2", folder.path().join("..data_tmp")).unwrap();
    fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
    fs::remove_dir_all(folder.path().join("..1")).unwrap();
    assert_eq!(next(&mut events).await, "apply u2");
}

#[tokio::test]
async fn a_broken_file_is_a_problem_until_it_is_put_right() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.yaml", "a", "u1");
    write(folder.path(), "b.yaml", "b", "u2");
    let (mut events, problems) = watch(folder.path());
    assert_eq!(listed(&mut events).await.len(), 4);

    fs::write(folder.path().join("a.yaml"), "spec: [").unwrap();
    // An event of another file shows that the broken one has been looked at, too.
    write(folder.path(), "b.yaml", "b", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
    assert_eq!(problems.list()[0].path, Path::new("a.yaml"));
    write(folder.path(), "a.yaml", "a", "u4");
    assert_eq!(next(&mut events).await, "apply u4");
    assert!(problems.list().is_empty());
}

#[tokio::test]
async fn a_request_for_a_resync_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.yaml", "a", "u1");
    let (mut events, _) = watch(folder.path());
    listed(&mut events).await;
    let name = NamespacedName {
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    };
    for token in ["first", "second"] {
        request_resync(folder.path(), &name, token).unwrap();
        let Ok(Event::Apply(DeserializeGuard(Ok(object)))) = timeout(DEADLINE, events.next()).await.unwrap().unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(object.annotation(REQUESTED_AT), Some(token));
    }
}

#[tokio::test]
async fn a_folder_that_comes_later_is_waited_for_and_one_that_goes_deletes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("manifests");
    let (mut events, problems) = watch(&folder);
    assert!(next(&mut events).await.starts_with("error the folder"));
    assert!(problems.list()[0].message.contains("can't be read") && !problems.is_complete());

    write(&folder, "a.yaml", "a", "u1");
    let mut seen = next(&mut events).await;
    while seen.starts_with("error") {
        seen = next(&mut events).await;
    }
    assert_eq!(seen, "init");
    while seen != "done" {
        seen = next(&mut events).await;
    }

    // Made anew under the old name: what is told next is its content, by a notifier that was set up anew.
    fs::rename(&folder, parent.path().join("away")).unwrap();
    write(&folder, "a.yaml", "a", "u2");
    while seen != "apply u2" {
        assert!(!seen.starts_with("delete"), "{seen}");
        seen = next(&mut events).await;
    }
    write(&folder, "a.yaml", "a", "u3");
    assert_eq!(next(&mut events).await, "apply u3");
}

#[tokio::test]
async fn what_is_not_notified_is_found_by_the_clock() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(outside.path(), "a.yaml", "a", "u1");
    symlink(outside.path().join("a.yaml"), folder.path().join("a.yaml")).unwrap();
    let (mut events, _) = watch_with(folder.path(), Duration::from_millis(100));
    assert_eq!(listed(&mut events).await, ["init", "listed u1", "done"]);
    write(outside.path(), "a.yaml", "a", "u2");
    assert_eq!(next(&mut events).await, "apply u2");
}

#[test]
fn a_folder_at_rest_is_not_read_again_once_all_of_it_could_be_read() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.yaml", "a", "u1");
    let mut state: Option<Folder<AppRepository>> = None;
    let mut look = |last: Option<u64>| step(&mut state, folder.path(), last).unwrap();
    let (fingerprint, first) = look(None).unwrap();
    assert!(first.look_again && fingerprint.is_some());
    assert!(look(fingerprint).is_none());

    write(folder.path(), "a.yaml", "a", "u20");
    symlink("nowhere.yaml", folder.path().join("b.yaml")).unwrap();
    let (unreadable, second) = look(fingerprint).unwrap();
    assert!(second.look_again && unreadable.is_none());
}

#[test]
fn a_request_can_only_be_left_for_a_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "..", "../x", "a/b", ".a", "A"] {
        let name = NamespacedName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        assert!(request_resync(folder.path(), &name, "now").is_err(), "{name}");
    }
    assert!(!folder.path().join(".portolan").exists());
}

#[test]
fn a_folder_has_one_id_whatever_path_leads_to_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    symlink("a", folder.path().join("b")).unwrap();
    let id = |name: &str| folder_id(&folder.path().join(name)).unwrap();
    assert_eq!(id("a"), id("b"));
    assert_eq!(id("a"), id("b/../a"));
    assert_ne!(id("a"), id("."));
    assert!(folder_id(&folder.path().join("c")).is_err());
}
