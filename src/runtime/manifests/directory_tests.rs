//! Snapshots in, events out.

use super::*;
use crate::api::AppRepository;

/// A directory and its files.
struct Fixture {
    directory: ManifestDirectory<AppRepository>,
    snapshot: Snapshot,
}

fn repository(name: &str, url: &str) -> String {
    format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: {name}}}\nspec: {{type: helm, url: {url}}}\n---\n"
    )
}

fn url(object: &Value) -> Option<&str> {
    object["spec"]["url"].as_str()
}

impl Fixture {
    fn new() -> Self {
        Self {
            directory: ManifestDirectory::new(Path::new("/manifests"), Path::new("/real"), url),
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

    /// Applies one snapshot.
    fn refresh(&mut self) -> (Vec<String>, bool) {
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
        let step = self.directory.advance(snapshot);
        (step.events.iter().map(short).collect(), step.needs_confirmation)
    }

    /// Applies snapshots until no change needs confirmation.
    fn events(&mut self) -> Vec<String> {
        let (mut events, mut again) = self.refresh();
        while again {
            let (more, yet_again) = self.refresh();
            events.extend(more);
            again = yet_again;
        }
        events
    }

    fn problems(&self) -> Vec<String> {
        self.directory.problems().iter().map(ToString::to_string).collect()
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

fn object(fixture: &Fixture, name: &str) -> AppRepository {
    let key = NamespacedName {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    fixture.directory.objects[&key].1.0.clone().unwrap()
}

#[test]
fn the_first_snapshot_gives_a_complete_list() {
    let mut fixture = Fixture::new()
        .with("a.yaml", repository("a", "u1") + &repository("b", "u2"))
        .with("b.yml", repository("c", "u3"));
    assert_eq!(
        fixture.refresh(),
        (
            ["init", "listed a u1", "listed b u2", "listed c u3", "done"]
                .map(String::from)
                .to_vec(),
            false
        )
    );
    assert!(fixture.directory.is_complete() && fixture.problems().is_empty());
    assert_eq!(fixture.events(), [""; 0]);
    assert_eq!(Fixture::new().events(), ["init", "done"]);
}

#[test]
fn a_change_is_reported_after_confirmation() {
    let mut fixture = Fixture::new().with("a.yaml", repository("a", "u1") + &repository("b", "u2"));
    fixture.events();
    fixture.write("a.yaml", repository("a", "u9") + &repository("c", "u3"));
    assert_eq!(fixture.refresh(), (vec![], true));
    assert_eq!(
        fixture.refresh(),
        (
            ["delete b u2", "apply a u9", "apply c u3"].map(String::from).to_vec(),
            false
        )
    );
    fixture.write("new.yaml", repository("d", "u4"));
    assert_eq!(fixture.events(), ["apply d u4"]);
    fixture.remove("a.yaml");
    assert_eq!(fixture.events(), ["delete a u9", "delete c u3"]);
}

#[test]
fn a_file_replaced_by_renaming_deletes_nothing() {
    let mut fixture = Fixture::new().with("a.yaml", repository("a", "u1"));
    fixture.events();
    assert_eq!(fixture.remove("a.yaml").refresh(), (vec![], true));
    assert_eq!(
        fixture.write("a.yaml", repository("a", "u1")).refresh(),
        (vec![], false)
    );
    // Truncated for a moment, then complete again.
    assert_eq!(fixture.write("a.yaml", "").refresh(), (vec![], true));
    assert_eq!(fixture.write("a.yaml", repository("a", "u2")).refresh(), (vec![], true));
    assert_eq!(fixture.events(), ["apply a u2"]);
    // Deleted before it was accepted.
    assert_eq!(fixture.write("b.yaml", "a: [").refresh(), (vec![], true));
    assert_eq!(fixture.remove("b.yaml").events(), [""; 0]);
}

#[test]
fn a_file_that_fails_to_parse_keeps_its_objects_and_is_reported() {
    let mut fixture = Fixture::new()
        .with("a.yaml", repository("a", "u1"))
        .with("b.yaml", repository("b", "u2"));
    fixture.events();
    fixture.write("a.yaml", repository("a", "u9") + "spec: [");
    fixture.write("b.yaml", repository("b", "u3"));
    assert_eq!(fixture.events(), ["apply b u3"]);
    let problems = fixture.problems();
    assert!(
        problems[0].starts_with("a.yaml: invalid YAML") && problems[0].ends_with("keeping previous objects"),
        "{problems:?}"
    );
    assert!(fixture.directory.is_complete(), "a.yaml was read");
    fixture.write("a.yaml", repository("a", "u9"));
    assert_eq!(fixture.events(), ["apply a u9"]);
    assert!(fixture.problems().is_empty());
}

#[test]
fn an_empty_or_unreadable_file_keeps_its_objects() {
    let mut fixture = Fixture::new().with("a.yaml", repository("a", "u1"));
    fixture.events();
    fixture.write("a.yaml", "");
    assert_eq!(fixture.events(), [""; 0]);
    assert!(fixture.problems()[0].contains("delete it"));
    fixture
        .snapshot
        .files
        .insert("a.yaml".into(), Err("file is larger than 4194304 bytes".to_owned()));
    assert_eq!(fixture.events(), [""; 0]);
    assert!(fixture.problems()[0].contains("larger"));
    fixture.write("a.yaml", "# nothing any more\n");
    assert_eq!(fixture.events(), ["delete a u1"]);
}

#[test]
fn a_file_that_never_parsed_makes_the_list_incomplete() {
    let mut fixture = Fixture::new()
        .with("a.yaml", repository("a", "u1"))
        .with("b.yaml", "spec: [");
    assert_eq!(fixture.events(), ["init", "listed a u1", "done"]);
    assert!(!fixture.directory.is_complete());
    fixture.write("a.yaml", repository("a", "u2"));
    assert_eq!(fixture.events(), ["apply a u2"]);
    fixture.write("b.yaml", repository("b", "u3"));
    assert_eq!(
        fixture.events(),
        ["init", "listed a u2", "listed b u3", "done"],
        "the list is repeated once it is complete"
    );
    assert!(fixture.directory.is_complete());
}

#[test]
fn a_directory_that_a_file_url_names_is_not_searched_for_manifests() {
    let mut fixture = Fixture::new()
        .with("repos.yaml", repository("a", "file:./charts"))
        .with("charts/index.yaml", repository("evil", "file:../team"))
        .with("charts/values.yaml", "{{ .Values }}: [")
        .with("team/b.yaml", repository("b", "u2"));
    fixture
        .snapshot
        .unread
        .insert("charts/deep".into(), "failed to read directory".to_owned());
    assert_eq!(
        fixture.events(),
        ["init", "listed a file:./charts", "listed b u2", "done"]
    );
    assert!(fixture.directory.is_complete() && fixture.problems().is_empty());
    // Files are manifests again once no repository names their directory.
    fixture.write("repos.yaml", repository("a", "u1"));
    let events = fixture.events();
    assert!(events.contains(&"apply evil file:../team".to_owned()), "{events:?}");
    assert_eq!(fixture.problems().len(), 2);
}

#[test]
fn nothing_is_deleted_while_parts_of_the_directory_are_unread() {
    let mut fixture = Fixture::new()
        .with("sub/a.yaml", repository("a", "u1"))
        .with("b.yaml", repository("b", "u2"));
    fixture.events();
    fixture.remove("sub/a.yaml").write("b.yaml", repository("b", "u3"));
    fixture
        .snapshot
        .unread
        .insert("sub".into(), "failed to read directory".to_owned());
    assert_eq!(fixture.events(), ["apply b u3"]);
    assert_eq!(fixture.problems(), ["sub: failed to read directory"]);
    assert!(!fixture.directory.is_complete());
    fixture.snapshot.unread.clear();
    assert_eq!(
        fixture.refresh(),
        (
            ["init", "listed a u1", "listed b u3", "done"]
                .map(String::from)
                .to_vec(),
            true
        )
    );
    assert_eq!(fixture.events(), ["delete a u1"]);
}

#[test]
fn of_duplicate_names_the_first_path_wins_and_the_other_is_reported() {
    let mut fixture = Fixture::new()
        .with("b.yaml", repository("a", "second"))
        .with("a.yaml", repository("a", "first") + &repository("a", "third"));
    assert_eq!(fixture.events(), ["init", "listed a first", "done"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[1].starts_with("b.yaml: AppRepository default/a is already declared in a.yaml"),
        "{problems:?}"
    );
    fixture.remove("a.yaml");
    assert_eq!(fixture.events(), ["apply a second"]);
    assert!(fixture.problems().is_empty());
}

#[test]
fn other_kinds_are_ignored_and_lists_are_expanded() {
    let others = "apiVersion: v1\nkind: ConfigMap\ndata: {1: a}\n---\napiVersion: other.com/v1alpha1\nkind: AppRepository\n---\njust text\n---\n";
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "metadata": {"name": "b"}, "spec": {"type": "helm", "url": "u2"}}]}"#;
    let typed = "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepositoryList\nitems: [{metadata: {name: c}, spec: {type: oci, url: u3}}]";
    let mut fixture = Fixture::new()
        .with("a.yaml", others.to_owned() + &repository("a", "u1"))
        .with("b.json", list)
        .with("c.yaml", typed);
    assert_eq!(
        fixture.events(),
        ["init", "listed a u1", "listed b u2", "listed c u3", "done"]
    );
    assert!(fixture.problems().is_empty());
}

#[test]
fn an_undecodable_object_is_reported_and_does_not_block_others() {
    let broken = repository("a", "[1]").replace("helm", "[]") + &repository("b", "u2");
    let mut fixture = Fixture::new().with("a.yaml", &broken);
    assert_eq!(fixture.events(), ["init", "listed a broken", "listed b u2", "done"]);
    assert!(fixture.problems()[0].starts_with("a.yaml: failed to decode AppRepository default/a"));
    fixture.write(
        "a.yaml",
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {name: b}\n",
    );
    assert_eq!(
        fixture.events(),
        ["delete a broken", "apply b broken"],
        "spec is missing"
    );
}

#[test]
fn an_object_with_an_invalid_name_or_version_is_a_problem() {
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
        let mut fixture = Fixture::new().with("a.yaml", content.replace("'[a]'", "[a]"));
        assert_eq!(fixture.events(), ["init", "listed ok u", "done"], "{name} {namespace}");
        assert!(fixture.problems()[0].contains("invalid name"));
    }
    let mut fixture = Fixture::new().with("a.yaml", repository("a", "u").replace("v1alpha1", "v1"));
    assert_eq!(fixture.events(), ["init", "done"]);
    assert_eq!(
        fixture.problems(),
        ["a.yaml: apiVersion of AppRepository must be `kubeapps.com/v1alpha1`"]
    );
}

#[test]
fn metadata_matches_that_of_a_cluster() {
    let printed = "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: a\n  namespace: team-a\n  uid: of-a-cluster\n  \
        resourceVersion: '7'\n  generation: 3\n  creationTimestamp: yesterday\n  deletionTimestamp: '2026-01-01T00:00:00Z'\n  finalizers: [x]\n  \
        labels: {a: 1}\n  annotations: {apprepositories.kubeapps.com/suspend: true, portolan.dev/manifest: /etc/passwd}\n\
        spec: {type: helm, url: u}\nstatus: {conditions: none}\n";
    let mut fixture = Fixture::new().with("sub/a.yaml", printed);
    assert_eq!(fixture.events(), ["init", "listed a u", "done"]);
    let (_, DeserializeGuard(object)) = &fixture.directory.objects.values().next().unwrap();
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
fn the_uid_depends_only_on_directory_and_name() {
    let uid = |mut fixture: Fixture, name: &str| {
        fixture.events();
        object(&fixture, name).metadata.uid.unwrap()
    };
    let first = uid(Fixture::new().with("a.yaml", repository("a", "u1")), "a");
    assert_eq!(first, uid(Fixture::new().with("b.yaml", repository("a", "u2")), "a"));
    assert_ne!(first, uid(Fixture::new().with("a.yaml", repository("b", "u1")), "b"));
    let mut elsewhere = Fixture::new().with("a.yaml", repository("a", "u1"));
    elsewhere.directory = ManifestDirectory::new(Path::new("/manifests"), Path::new("/elsewhere"), url);
    assert_ne!(first, uid(elsewhere, "a"));
    let lengths: Vec<_> = first.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{first}");
}

#[test]
fn a_resync_request_overrides_the_annotation_of_the_document() {
    let with_own = repository("a", "u1").replace(
        "{name: a}",
        &format!("{{name: a, annotations: {{{REQUESTED_AT}: by-hand}}}}"),
    );
    let mut fixture = Fixture::new().with("a.yaml", with_own);
    fixture.events();
    assert_eq!(object(&fixture, "a").annotation(REQUESTED_AT), Some("by-hand"));
    let name = NamespacedName {
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    };
    fixture.snapshot.requests.insert(name.clone(), "now".to_owned());
    assert_eq!(
        fixture.refresh(),
        (vec!["apply a u1".to_owned()], false),
        "requests need no confirmation"
    );
    assert_eq!(object(&fixture, "a").annotation(REQUESTED_AT), Some("now"));
    fixture.snapshot.requests.remove(&name);
    assert_eq!(fixture.events(), ["apply a u1"]);
    assert_eq!(object(&fixture, "a").annotation(REQUESTED_AT), Some("by-hand"));
}

#[test]
fn a_document_moved_to_another_file_is_changed_and_not_deleted() {
    let mut fixture = Fixture::new().with("a.yaml", repository("a", "u1") + &repository("b", "u2"));
    fixture.events();
    let uid = object(&fixture, "b").metadata.uid;
    fixture
        .write("a.yaml", repository("a", "u1"))
        .write("z.yaml", repository("b", "u2"));
    assert_eq!(fixture.events(), ["apply b u2"]);
    assert_eq!(object(&fixture, "b").metadata.uid, uid);
}
