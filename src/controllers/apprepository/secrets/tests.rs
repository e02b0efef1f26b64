use std::fs;

use futures::stream;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::controllers::apprepository::CachedRepository;
use crate::controllers::apprepository::origin::Directory;

/// The PEM framing; the certificate itself is not parsed.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

const KUBEAPPS: &str = "kubeapps";

fn reference(name: &str, key: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.to_owned(),
        key: key.to_owned(),
    }
}

fn object_name(text: &str) -> NamespacedName {
    let (namespace, name) = text.split_once('/').unwrap();
    NamespacedName::new(namespace, name)
}

/// Creates a directory with Secrets, given as `NAMESPACE/NAME` and values.
fn folder(secrets: &[(&str, serde_json::Value)]) -> (tempfile::TempDir, Origin) {
    let folder = tempfile::tempdir().unwrap();
    for (at, (name, values)) in secrets.iter().enumerate() {
        let name = object_name(name);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": values,
            "metadata": { "namespace": name.namespace, "name": name.name },
        });
        fs::write(folder.path().join(format!("{at}.json")), secret.to_string()).unwrap();
    }
    let origin = Origin::Directory(Directory::new(folder.path()).unwrap());
    (folder, origin)
}

/// Reads the credentials of a repository that references this Secret and key.
async fn read(
    secrets: &[(&str, serde_json::Value)],
    repository: &str,
    name: &str,
    key: &str,
) -> Result<RepositoryCredentials, SecretError> {
    let (_folder, origin) = folder(secrets);
    let header = reference(name, key);
    let refs = SecretRefs {
        header: Some(&header),
        ca: None,
    };
    credentials(&origin, &object_name(repository), refs, KUBEAPPS).await
}

fn authorization(read: Result<RepositoryCredentials, SecretError>) -> Result<String, &'static str> {
    match read {
        Ok(credentials) => Ok(credentials.authorization.unwrap().expose().to_owned()),
        Err(error) => Err(error.reason()),
    }
}

#[tokio::test]
async fn a_repository_without_references_reads_no_secrets() {
    let origin = Origin::Directory(Directory::new(tempfile::tempdir().unwrap().path()).unwrap());
    let name = NamespacedName::new("team-a", "charts");
    let none = credentials(&origin, &name, SecretRefs::default(), KUBEAPPS).await;
    assert_eq!(
        none,
        Ok(RepositoryCredentials::default()),
        "although the folder is gone"
    );
}

/// Secrets as in a cluster with Kubeapps, read by various repositories.
#[rstest]
// In one's own namespace.
#[case("team-a/charts", "auth", "header", Ok("of team-a"))]
#[case("team-b/charts", "auth", "header", Err("SecretNotFound"))]
#[case("kubeapps/charts", "apprepo-charts", "header", Ok("of kubeapps"))]
// Kubeapps' copy, where the own Secret is absent and only there.
#[case("team-a/private", "apprepo-private", "header", Ok("copy for team-a"))]
#[case("team-a/private", "auth", "header", Ok("of team-a"))]
#[case("team-a/private", "auth", "other", Err("SecretKeyNotFound"))]
#[case("team-a/private", "apprepo-private", "other", Err("SecretKeyNotFound"))]
// Another's copy, by a name that both make.
#[case("a/b-apprepo-c", "x", "header", Err("SecretNotFound"))]
#[case("a-apprepo-b/c", "x", "header", Err("SecretNotFound"))]
#[case("a/apprepo-b", "x", "header", Err("SecretNotFound"))]
#[case("a-apprepo/b", "x", "header", Err("SecretNotFound"))]
// What belongs to the repositories of Kubeapps' own namespace.
#[case("apprepo/x", "x", "header", Err("SecretNotFound"))]
#[case("apprepo-y/x", "x", "header", Err("SecretNotFound"))]
#[case("pullsecret-y/x", "x", "header", Err("SecretNotFound"))]
// Another namespace's Secret, by a name that is a path, or the name of a copy.
#[case("team-b/charts", "../../team-a/secrets/auth", "header", Err("InvalidSecret"))]
#[case("team-b/charts", "auth?x", "header", Err("InvalidSecret"))]
#[case("team-b/charts", "team-a-apprepo-private", "header", Err("SecretNotFound"))]
#[case("team-b/private", "team-a-apprepo-private", "header", Err("SecretNotFound"))]
#[tokio::test]
async fn choosing_names_does_not_give_access_to_other_secrets(
    #[case] repository: &str,
    #[case] secret: &str,
    #[case] key: &str,
    #[case] expected: Result<&str, &'static str>,
) {
    let secrets = [
        ("team-a/auth", "of team-a"),
        ("kubeapps/apprepo-charts", "of kubeapps"),
        ("kubeapps/team-a-apprepo-private", "copy for team-a"),
        ("kubeapps/a-apprepo-b-apprepo-c", "copy for one of two"),
        ("kubeapps/a-apprepo-apprepo-b", "copy for one of two"),
        ("kubeapps/apprepo-apprepo-x", "of kubeapps"),
        ("kubeapps/apprepo-y-apprepo-x", "of kubeapps"),
        ("kubeapps/pullsecret-y-apprepo-x", "of kubeapps"),
    ]
    .map(|(name, value)| (name, json!({ "header": value })));
    let got = authorization(read(&secrets, repository, secret, key).await);
    assert_eq!(got, expected.map(str::to_owned), "{repository} that names {secret}");
}

#[tokio::test]
async fn a_docker_config_is_detected_by_its_key() {
    let config = r#"{"auths": {"registry.example.com": {"username": "captain", "password": "hush"}}}"#;
    let secrets = [("team-a/auth", json!({ ".dockerconfigjson": config, "header": config }))];
    let docker = authorization(read(&secrets, "team-a/charts", "auth", ".dockerconfigjson").await);
    assert_eq!(docker, Ok("Basic Y2FwdGFpbjpodXNo".to_owned()));
    let raw = authorization(read(&secrets, "team-a/charts", "auth", "header").await);
    assert_eq!(raw, Ok(config.to_owned()));
}

#[tokio::test]
async fn credentials_and_ca_may_come_from_one_secret_or_two() {
    for ca_from in ["auth", "authority"] {
        let values = json!({ "header": "Bearer hush", "ca.crt": CERTIFICATE });
        let (_folder, origin) = folder(&[("team-a/auth", values.clone()), ("team-a/authority", values)]);
        let (header, ca) = (reference("auth", "header"), reference(ca_from, "ca.crt"));
        let refs = SecretRefs {
            header: Some(&header),
            ca: Some(&ca),
        };
        let name = NamespacedName::new("team-a", "charts");
        let read = credentials(&origin, &name, refs, KUBEAPPS).await.unwrap();
        assert_eq!(read.authorization, Some(Secret::new("Bearer hush".to_owned())));
        assert_eq!(read.ca.as_deref(), Some(CERTIFICATE.as_bytes()));
        let versions = read
            .versions
            .split(' ')
            .map(|version| version.split_once('@').unwrap().0);
        let expected = if ca_from == "auth" {
            &["team-a/auth"][..]
        } else {
            &["team-a/auth", "team-a/authority"]
        };
        assert_eq!(versions.collect::<Vec<_>>(), expected);
        assert!(!format!("{read:?}").contains("hush"));
    }
}

#[rstest]
#[case(json!({ "ca.crt": "" }))]
#[case(json!({ "ca.crt": "hush" }))]
#[case(json!({ "ca.crt": "-----BEGIN CERTIFICATE-----\nhush" }))]
#[case(json!({ "ca.crt": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" }))]
#[tokio::test]
async fn a_ca_without_certificates_is_refused(#[case] values: serde_json::Value) {
    let (_folder, origin) = folder(&[("team-a/auth", values)]);
    let ca = reference("auth", "ca.crt");
    let refs = SecretRefs {
        header: None,
        ca: Some(&ca),
    };
    let name = NamespacedName::new("team-a", "charts");
    let error = credentials(&origin, &name, refs, KUBEAPPS).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidSecret");
    assert!(!error.is_transient() && !error.to_string().contains("hush"), "{error}");
}

#[tokio::test]
async fn errors_contain_names_but_no_values() {
    let secrets = [("team-a/auth", json!({ "one": "hush", "two\u{1b}": "hush" }))];
    for (secret, key, parts) in [
        ("other", "one", &["team-a/other", "kubeapps/team-a-apprepo-charts"][..]),
        ("auth", "three", &["team-a/auth", "`three`", "`one`"]),
        ("Auth/../..", "one", &["Auth/../..", "not a valid"]),
    ] {
        let error = read(&secrets, "team-a/charts", secret, key).await.unwrap_err();
        let said = error.to_string();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains("hush") && !said.contains('\u{1b}'), "{said}");
        assert!(!error.is_transient());
    }
    let ambiguous = read(&secrets, "a/b-apprepo-c", "auth", "one").await.unwrap_err();
    assert!(
        ambiguous.to_string().contains("may belong to another repository"),
        "{ambiguous}"
    );
}

#[tokio::test]
async fn an_unreadable_directory_is_a_transient_error() {
    let (folder, origin) = folder(&[]);
    drop(folder);
    let header = reference("auth", "header");
    let refs = SecretRefs {
        header: Some(&header),
        ca: None,
    };
    let name = NamespacedName::new("team-a", "charts");
    let error = credentials(&origin, &name, refs, KUBEAPPS).await.unwrap_err();
    assert!(error.is_transient() && error.reason() == "SecretUnavailable", "{error}");
}

async fn store(objects: serde_json::Value) -> Store<Cached<CachedRepository>> {
    let store = Store::default();
    let objects: Vec<AppRepository> = serde_json::from_value(objects).unwrap();
    let events = objects
        .into_iter()
        .map(|object| Event::Apply(DeserializeGuard(Ok(object))));
    let events = stream::iter(events.map(Ok::<_, std::convert::Infallible>));
    crate::runtime::watch::run(events, store.clone(), |_| {}).await;
    store
}

#[tokio::test]
async fn a_secret_maps_to_the_repositories_that_may_use_it() {
    let object = |name: &str, auth: serde_json::Value| {
        let name = object_name(name);
        json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": { "namespace": name.namespace, "name": name.name },
            "spec": { "type": "helm", "url": "https://charts.example.com", "auth": auth },
        })
    };
    let header = |name: &str| json!({ "header": { "secretKeyRef": { "name": name, "key": "k" } } });
    let ca = json!({ "customCA": { "secretKeyRef": { "name": "auth", "key": "ca.crt" } } });
    let store = store(json!([
        object("team-a/one", header("auth")),
        object("team-a/two", ca),
        object("team-a/other", header("other")),
        object("team-a/open", json!({})),
        object("team-b/one", header("auth")),
        object("a/b-apprepo-c", header("auth")),
        object("kubeapps/charts", header("auth")),
    ]))
    .await;
    for (secret, expected) in [
        ("team-a/auth", &["team-a/one", "team-a/two"][..]),
        ("team-b/auth", &["team-b/one"]),
        ("team-b/other", &[]),
        ("kubeapps/auth", &["kubeapps/charts"]),
        ("kubeapps/team-a-apprepo-other", &["team-a/other"]),
        ("kubeapps/team-a-apprepo-open", &[]),
        ("kubeapps/a-apprepo-b-apprepo-c", &[]),
        ("kubeapps/kubeapps-apprepo-charts", &[]),
        ("other/team-a-apprepo-other", &[]),
    ] {
        let found = repositories_of(&object_name(secret), &store, KUBEAPPS);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected,
            "{secret}"
        );
    }
}
