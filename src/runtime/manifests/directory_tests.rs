//! Snapshots in, events out.

use super::*;
use crate::api::AppRepository;

/// A folder and the files that stand in it.
struct Given {
    folder: Folder<AppRepository>,
    snapshot: Snapshot,
}

fn repository(name: &str, url: &str) -> String {
    format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\nspec: {{type: helm, url: {url}}}\n---\n"
    )
}

impl Given {
    fn new() -> Self {
        Self {
            folder: Folder::new(Path::new("/manifests"), Path::new("/real")),
            snapshot: Snapshot::default(),
        }
    }

    fn with(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.write(path, content);
        self
    }

    fn write(&mut self, path: &str, content: impl AsRef<[u8]>) -> &mut Self {
        self.snapshot.files.insert(path.into(), Ok(content.as_ref().to_vec()));
        self
    }

    fn remove(&mut self, path: &str) -> &mut Self {
        self.snapshot.files.remove(Path::new(path));
        self
    }

    /// One look at the folder.
    fn look(&mut self) -> (Vec<String>, bool) {
        let Snapshot {
            files,
            unread,
            requests,
        } = &self.snapshot;
        let snapshot = Snapshot {
            files: files.clone(),
            unread: unread.clone(),
            requests: requests.clone(),
        };
        let step = self.folder.advance(snapshot);
        (step.events.iter().map(short).collect(), step.look_again)
    }

    /// Looks until nothing is left to be seen twice.
    fn events(&mut self) -> Vec<String> {
        let (mut events, mut again) = self.look();
        while again {
            let (more, yet_again) = self.look();
            events.extend(more);
            again = yet_again;
        }
        events
    }

    fn problems(&self) -> Vec<String> {
        self.folder.problems().iter().map(ToString::to_string).collect()
    }
}

fn short(event: &Event<DeserializeGuard<AppRepository>>) -> String {
    let is = |DeserializeGuard(object): &DeserializeGuard<AppRepository>| match object {
        Ok(object) => format!("{} {}", object.metadata.name.clone().unwrap(), object.spec.url),
        Err(invalid) => format!("{} broken", invalid.metadata.name.clone().unwrap()),
    };
    match event {
        Event::Init => "init".to_owned(),
        Event::InitApply(object) => format!("listed {}", is(object)),
        Event::InitDone => "done".to_owned(),
        Event::Apply(object) => format!("apply {}", is(object)),
        Event::Delete(object) => format!("delete {}", is(object)),
    }
}

fn object(given: &Given, name: &str) -> AppRepository {
    let key = NamespacedName {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    given.folder.objects[&key].1.0.clone().unwrap()
}

#[test]
fn the_first_look_gives_a_complete_list() {
    let mut given = Given::new()
        .with("a.yaml", repository("a", "u1") + &repository("b", "u2"))
        .with("b.yml", repository("c", "u3"));
    assert_eq!(
        given.look(),
        (
            ["init", "listed a u1", "listed b u2", "listed c u3", "done"]
                .map(String::from)
                .to_vec(),
            false
        )
    );
    assert!(given.folder.is_complete() && given.problems().is_empty());
    assert_eq!(given.events(), [""; 0]);
    assert_eq!(Given::new().events(), ["init", "done"]);
}

#[test]
fn a_change_gives_the_difference_once_it_is_seen_twice() {
    let mut given = Given::new().with("a.yaml", repository("a", "u1") + &repository("b", "u2"));
    given.events();
    given.write("a.yaml", repository("a", "u9") + &repository("c", "u3"));
    assert_eq!(given.look(), (vec![], true));
    assert_eq!(
        given.look(),
        (
            ["delete b u2", "apply a u9", "apply c u3"].map(String::from).to_vec(),
            false
        )
    );
    given.write("new.yaml", repository("d", "u4"));
    assert_eq!(given.events(), ["apply d u4"]);
    given.remove("a.yaml");
    assert_eq!(given.events(), ["delete a u9", "delete c u3"]);
}

#[test]
fn a_file_that_is_moved_away_to_be_written_anew_deletes_nothing() {
    let mut given = Given::new().with("a.yaml", repository("a", "u1"));
    given.events();
    assert_eq!(given.remove("a.yaml").look(), (vec![], true));
    assert_eq!(given.write("a.yaml", repository("a", "u1")).look(), (vec![], false));
    // Cut short for a moment, and whole again.
    assert_eq!(given.write("a.yaml", "").look(), (vec![], true));
    assert_eq!(given.write("a.yaml", repository("a", "u2")).look(), (vec![], true));
    assert_eq!(given.events(), ["apply a u2"]);
    // New, and gone before it was believed.
    assert_eq!(given.write("b.yaml", "a: [").look(), (vec![], true));
    assert_eq!(given.remove("b.yaml").events(), [""; 0]);
}

#[test]
fn a_file_that_does_not_parse_keeps_what_it_declared_and_says_so() {
    let mut given = Given::new()
        .with("a.yaml", repository("a", "u1"))
        .with("b.yaml", repository("b", "u2"));
    given.events();
    given.write("a.yaml", repository("a", "u9") + "spec: [");
    given.write("b.yaml", repository("b", "u3"));
    assert_eq!(given.events(), ["apply b u3"]);
    let problems = given.problems();
    assert!(
        problems[0].starts_with("a.yaml: it is no YAML") && problems[0].ends_with("is kept"),
        "{problems:?}"
    );
    assert!(given.folder.is_complete(), "what a.yaml declares is known");
    given.write("a.yaml", repository("a", "u9"));
    assert_eq!(given.events(), ["apply a u9"]);
    assert!(given.problems().is_empty());
}

#[test]
fn a_file_that_is_empty_or_unreadable_keeps_what_it_declared() {
    let mut given = Given::new().with("a.yaml", repository("a", "u1"));
    given.events();
    given.write("a.yaml", "");
    assert_eq!(given.events(), [""; 0]);
    assert!(given.problems()[0].contains("remove the file"));
    given
        .snapshot
        .files
        .insert("a.yaml".into(), Err("it is larger than 4194304 bytes".to_owned()));
    assert_eq!(given.events(), [""; 0]);
    assert!(given.problems()[0].contains("larger"));
    given.write("a.yaml", "# nothing any more\n");
    assert_eq!(given.events(), ["delete a u1"]);
}

#[test]
fn a_file_that_never_parsed_makes_the_list_incomplete_until_it_does() {
    let mut given = Given::new()
        .with("a.yaml", repository("a", "u1"))
        .with("b.yaml", "spec: [");
    assert_eq!(given.events(), ["init", "listed a u1", "done"]);
    assert!(!given.folder.is_complete());
    given.write("a.yaml", repository("a", "u2"));
    assert_eq!(given.events(), ["apply a u2"]);
    given.write("b.yaml", repository("b", "u3"));
    assert_eq!(
        given.events(),
        ["init", "listed a u2", "listed b u3", "done"],
        "the list is told again once it is complete"
    );
    assert!(given.folder.is_complete());
}

#[test]
fn nothing_is_deleted_while_a_part_of_the_folder_is_unread() {
    let mut given = Given::new()
        .with("sub/a.yaml", repository("a", "u1"))
        .with("b.yaml", repository("b", "u2"));
    given.events();
    given.remove("sub/a.yaml").write("b.yaml", repository("b", "u3"));
    given
        .snapshot
        .unread
        .insert("sub".into(), "the directory can't be read".to_owned());
    assert_eq!(given.events(), ["apply b u3"]);
    assert_eq!(given.problems(), ["sub: the directory can't be read"]);
    assert!(!given.folder.is_complete());
    given.snapshot.unread.clear();
    assert_eq!(
        given.look(),
        (
            ["init", "listed a u1", "listed b u3", "done"]
                .map(String::from)
                .to_vec(),
            true
        )
    );
    assert_eq!(given.events(), ["delete a u1"]);
}

#[test]
fn of_two_documents_with_one_name_the_first_by_path_wins_and_the_other_is_reported() {
    let mut given = Given::new()
        .with("b.yaml", repository("a", "second"))
        .with("a.yaml", repository("a", "first") + &repository("a", "third"));
    assert_eq!(given.events(), ["init", "listed a first", "done"]);
    let problems = given.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[1].starts_with("b.yaml: AppRepository default/a is declared in a.yaml already"),
        "{problems:?}"
    );
    given.remove("a.yaml");
    assert_eq!(given.events(), ["apply a second"]);
    assert!(given.problems().is_empty());
}

#[test]
fn documents_of_other_kinds_are_ignored_and_lists_are_taken_apart() {
    let others = "apiVersion: v1\nkind: ConfigMap\ndata: {1: a}\n---\napiVersion: other.com/v1alpha1\nkind: AppRepository\n---\njust text\n---\n";
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "metadata": {"name": "b"}, "spec": {"type": "helm", "url": "u2"}}]}"#;
    let typed = "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepositoryList\nitems: [{metadata: {name: c}, spec: {type: oci, url: u3}}]";
    let mut given = Given::new()
        .with("a.yaml", others.to_owned() + &repository("a", "u1"))
        .with("b.json", list)
        .with("c.yaml", typed);
    assert_eq!(
        given.events(),
        ["init", "listed a u1", "listed b u2", "listed c u3", "done"]
    );
    assert!(given.problems().is_empty());
}

#[test]
fn an_object_that_does_not_decode_is_told_as_such_and_holds_up_no_other() {
    let broken = repository("a", "[1]").replace("helm", "[]") + &repository("b", "u2");
    let mut given = Given::new().with("a.yaml", &broken);
    assert_eq!(given.events(), ["init", "listed a broken", "listed b u2", "done"]);
    assert!(given.problems()[0].starts_with("a.yaml: AppRepository default/a can't be decoded"));
    given.write(
        "a.yaml",
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {name: b}\n",
    );
    assert_eq!(
        given.events(),
        ["delete a broken", "apply b broken"],
        "there is no spec"
    );
}

#[test]
fn an_object_without_a_valid_name_or_version_is_a_problem_of_its_own() {
    for (name, namespace) in [
        ("", "a"),
        ("../../x", "a"),
        ("A", "a"),
        ("a", "''"),
        ("a", "x/y"),
        ("[a]", "a"),
        ("a", "[]"),
        ("a.", "a"),
    ] {
        let content = repository(&format!("'{name}', namespace: {namespace}"), "u") + &repository("ok", "u");
        let mut given = Given::new().with("a.yaml", content.replace("'[a]'", "[a]"));
        assert_eq!(given.events(), ["init", "listed ok u", "done"], "{name} {namespace}");
        assert!(given.problems()[0].contains("no valid name"));
    }
    let mut given = Given::new().with("a.yaml", repository("a", "u").replace("v1alpha1", "v1"));
    assert_eq!(given.events(), ["init", "done"]);
    assert_eq!(
        given.problems(),
        ["a.yaml: the apiVersion of AppRepository must be `kubeapps.com/v1alpha1`"]
    );
}

#[test]
fn metadata_are_as_a_cluster_would_give_them() {
    let printed = "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: a\n  namespace: team-a\n  uid: of-a-cluster\n  \
        resourceVersion: '7'\n  generation: 3\n  creationTimestamp: yesterday\n  deletionTimestamp: '2026-01-01T00:00:00Z'\n  finalizers: [x]\n  \
        labels: {a: 1}\n  annotations: {apprepositories.kubeapps.com/suspend: true, portolan.dev/manifest: /etc/passwd}\n\
        spec: {type: helm, url: u}\nstatus: {conditions: none}\n";
    let mut given = Given::new().with("sub/a.yaml", printed);
    assert_eq!(given.events(), ["init", "listed a u", "done"]);
    let (_, DeserializeGuard(object)) = &given.folder.objects.values().next().unwrap();
    let object = object.as_ref().unwrap();
    assert_eq!(object.metadata.namespace.as_deref(), Some("team-a"));
    assert_eq!(object.annotation(MANIFEST_ANNOTATION), Some("/manifests/sub/a.yaml"));
    assert!(object.is_suspended() && object.status.is_none());
    assert_eq!(object.metadata.labels.as_ref().unwrap()["a"], "1");
    let ObjectMeta {
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        finalizers,
        ..
    } = &object.metadata;
    assert_ne!(uid.as_deref(), Some("of-a-cluster"));
    assert_ne!(resource_version.as_deref(), Some("7"));
    assert!(
        generation.is_none() && creation_timestamp.is_none() && deletion_timestamp.is_none() && finalizers.is_none()
    );
}

#[test]
fn the_uid_follows_the_folder_and_the_name_and_nothing_else() {
    let uid = |mut given: Given, name: &str| {
        given.events();
        object(&given, name).metadata.uid.unwrap()
    };
    let first = uid(Given::new().with("a.yaml", repository("a", "u1")), "a");
    assert_eq!(first, uid(Given::new().with("b.yaml", repository("a", "u2")), "a"));
    assert_ne!(first, uid(Given::new().with("a.yaml", repository("b", "u1")), "b"));
    let mut elsewhere = Given::new().with("a.yaml", repository("a", "u1"));
    elsewhere.folder = Folder::new(Path::new("/manifests"), Path::new("/elsewhere"));
    assert_ne!(first, uid(elsewhere, "a"));
    let lengths: Vec<_> = first.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{first}");
}

#[test]
fn a_request_for_a_resync_becomes_an_annotation_and_a_documents_own_stays_without_one() {
    let with_own = repository("a", "u1").replace(
        "{name: a}",
        &format!("{{name: a, annotations: {{{REQUESTED_AT}: by-hand}}}}"),
    );
    let mut given = Given::new().with("a.yaml", with_own);
    given.events();
    assert_eq!(object(&given, "a").annotation(REQUESTED_AT), Some("by-hand"));
    let name = NamespacedName {
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    };
    given.snapshot.requests.insert(name.clone(), "now".to_owned());
    assert_eq!(
        given.look(),
        (vec!["apply a u1".to_owned()], false),
        "a request is whole: it is believed at once"
    );
    assert_eq!(object(&given, "a").annotation(REQUESTED_AT), Some("now"));
    given.snapshot.requests.remove(&name);
    assert_eq!(given.events(), ["apply a u1"]);
    assert_eq!(object(&given, "a").annotation(REQUESTED_AT), Some("by-hand"));
}

#[test]
fn a_document_that_moves_to_another_file_is_changed_and_not_deleted() {
    let mut given = Given::new().with("a.yaml", repository("a", "u1") + &repository("b", "u2"));
    given.events();
    let uid = object(&given, "b").metadata.uid;
    given
        .write("a.yaml", repository("a", "u1"))
        .write("z.yaml", repository("b", "u2"));
    assert_eq!(given.events(), ["apply b u2"]);
    assert_eq!(object(&given, "b").metadata.uid, uid);
}
