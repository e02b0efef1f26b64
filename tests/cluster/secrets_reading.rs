//! Reads Secrets from a real API server, and watches their changes.

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use portolan::api::NamespacedName;
use portolan::api::SecretKeyRef;
use portolan::controllers::apprepository::origin::{ClusterOrigin, Origin};
use portolan::controllers::apprepository::secrets::{
    RepositoryCredentials, SecretError, SecretRefs, credentials, watch,
};
use portolan::runtime::watch::Scope;
use serde_json::{Value, json};

use super::SOON;
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;

/// A namespace of a team, one of Kubeapps, and a client.
struct Namespaces {
    control_plane: &'static ControlPlane,
    client: Client,
    team: String,
    kubeapps: String,
}

impl Namespaces {
    async fn new() -> Self {
        let control_plane = control_plane().await;
        Self {
            client: control_plane.client().await,
            team: control_plane.namespace().await,
            kubeapps: control_plane.namespace().await,
            control_plane,
        }
    }

    /// Creates or changes a Secret.
    async fn write(&self, namespace: &str, name: &str, values: Value) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": values });
        let apply = PatchParams::apply("tests").force();
        secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
    }

    async fn delete(&self, namespace: &str, name: &str) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// A client that may get Secrets in one namespace, and read the cluster ID.
    async fn client_for(&self, namespace: &str) -> Client {
        let account = format!("--serviceaccount={}:reader", self.team);
        let token = self.control_plane.token_for(&self.team, "reader").await;
        let run = async |arguments: &[&str]| self.control_plane.kubectl(arguments).await;
        let role = [
            "create",
            "role",
            "reader",
            "--verb=get",
            "--resource=secrets",
            "-n",
            namespace,
        ];
        run(&role).await;
        run(&[
            "create",
            "rolebinding",
            "reader",
            "--role=reader",
            &account,
            "-n",
            namespace,
        ])
        .await;
        let name = format!("origin-{}", self.team);
        let arguments = ["--verb=get", "--resource=namespaces", "--resource-name=kube-system"];
        run(&[&["create", "clusterrole", name.as_str()], &arguments[..]].concat()).await;
        let role = format!("--clusterrole={name}");
        run(&["create", "clusterrolebinding", &name, &role, &account]).await;
        self.control_plane.client_with(&token).await
    }

    async fn read_with(
        &self,
        client: Client,
        repository: &NamespacedName,
        secret: &str,
        key: &str,
    ) -> Result<RepositoryCredentials, SecretError> {
        let origin = Origin::Cluster(Box::new(ClusterOrigin::new(client, "").await.unwrap()));
        let header = SecretKeyRef {
            name: secret.to_owned(),
            key: key.to_owned(),
        };
        let refs = SecretRefs {
            header: Some(&header),
            ca: None,
        };
        credentials(&origin, repository, refs, &self.kubeapps).await
    }

    async fn read(&self, name: &str, secret: &str) -> Result<RepositoryCredentials, SecretError> {
        let repository = NamespacedName::new(&*self.team, name);
        self.read_with(self.client.clone(), &repository, secret, "header").await
    }
}

fn authorization(read: Result<RepositoryCredentials, SecretError>) -> Result<String, &'static str> {
    match read {
        Ok(credentials) => Ok(credentials.authorization.unwrap().expose().to_owned()),
        Err(error) => Err(error.reason()),
    }
}

#[tokio::test]
async fn the_secret_takes_precedence_over_kubeapps_copy() {
    let namespaces = Namespaces::new().await;
    let (team, kubeapps) = (&namespaces.team, &namespaces.kubeapps);
    assert_eq!(
        authorization(namespaces.read("charts", "auth").await),
        Err("SecretNotFound")
    );

    let copy = format!("{team}-apprepo-charts");
    namespaces
        .write(kubeapps, &copy, json!({ "header": "of the copy" }))
        .await;
    assert_eq!(
        authorization(namespaces.read("charts", "auth").await).unwrap(),
        "of the copy"
    );
    assert_eq!(
        authorization(namespaces.read("others", "auth").await),
        Err("SecretNotFound")
    );

    namespaces.write(team, "auth", json!({ "another": "x" })).await;
    assert_eq!(
        authorization(namespaces.read("charts", "auth").await),
        Err("SecretKeyNotFound")
    );

    namespaces
        .write(team, "auth", json!({ "header": " of its own\n" }))
        .await;
    assert_eq!(
        authorization(namespaces.read("charts", "auth").await).unwrap(),
        "of its own"
    );
}

#[tokio::test]
async fn a_changed_or_recreated_secret_has_a_new_version() {
    let namespaces = Namespaces::new().await;
    let version = async || namespaces.read("charts", "auth").await.unwrap().versions;
    namespaces
        .write(&namespaces.team, "auth", json!({ "header": "a" }))
        .await;
    let first = version().await;
    assert!(first.starts_with(&format!("{}/auth@", namespaces.team)), "{first}");
    assert_eq!(version().await, first);
    namespaces
        .write(&namespaces.team, "auth", json!({ "header": "b" }))
        .await;
    let second = version().await;
    namespaces.delete(&namespaces.team, "auth").await;
    namespaces
        .write(&namespaces.team, "auth", json!({ "header": "b" }))
        .await;
    let third = version().await;
    assert!(first != second && second != third && first != third);
}

#[tokio::test]
async fn a_name_with_a_path_reaches_no_other_namespace() {
    let namespaces = Namespaces::new().await;
    namespaces
        .write(&namespaces.kubeapps, "hush", json!({ "header": "of another" }))
        .await;
    for name in [
        format!("../../{}/secrets/hush", namespaces.kubeapps),
        format!("..%2F..%2F{}%2Fsecrets%2Fhush", namespaces.kubeapps),
        format!("x/../../../{}/secrets/hush", namespaces.kubeapps),
        "hush?x=y".to_owned(),
    ] {
        assert_eq!(
            authorization(namespaces.read("charts", &name).await),
            Err("InvalidSecret"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_copy_with_an_ambiguous_name_is_not_used() {
    let namespaces = Namespaces::new().await;
    let copy = format!("{}-apprepo-b-apprepo-c", namespaces.team);
    namespaces
        .write(&namespaces.kubeapps, &copy, json!({ "header": "x" }))
        .await;
    assert_eq!(
        authorization(namespaces.read("b-apprepo-c", "auth").await),
        Err("SecretNotFound")
    );
    let other = NamespacedName::new(format!("{}-apprepo-b", namespaces.team), "c");
    let read = namespaces
        .read_with(namespaces.client.clone(), &other, "auth", "header")
        .await;
    assert_eq!(authorization(read), Err("SecretNotFound"));
}

#[tokio::test]
async fn a_missing_permission_is_reported() {
    let namespaces = Namespaces::new().await;
    namespaces
        .write(&namespaces.team, "auth", json!({ "header": "own" }))
        .await;
    let client = namespaces.client_for(&namespaces.team).await;
    let read = async |namespace: &str, secret: &str| {
        let repository = NamespacedName::new(namespace, "charts");
        namespaces
            .read_with(client.clone(), &repository, secret, "header")
            .await
    };
    // The API server applies new roles with a short delay.
    eventually(SOON, "the right to read", async || read(&namespaces.team, "auth").await).await;
    let absent = read(&namespaces.team, "other").await.unwrap_err();
    assert_eq!(absent.reason(), "SecretNotFound");
    assert!(
        absent.to_string().contains("not allowed to read Kubeapps' copy"),
        "{absent}"
    );
    let forbidden = read(&namespaces.kubeapps, "auth").await.unwrap_err();
    assert_eq!(
        (forbidden.reason(), forbidden.is_transient()),
        ("SecretForbidden", false)
    );
    assert!(forbidden.to_string().contains("the verb get on secrets"), "{forbidden}");
}

#[tokio::test]
async fn changes_of_secrets_are_reported_in_all_watched_namespaces() {
    let namespaces = Namespaces::new().await;
    namespaces.write(&namespaces.team, "old", json!({ "a": "b" })).await;
    let (team, kubeapps) = (namespaces.team.clone(), namespaces.kubeapps.clone());
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let scope = Scope::Namespace(team.clone());
    let watching = watch(namespaces.client.clone(), scope, kubeapps.clone(), move |name| {
        let _ = sender.send(name);
    });
    tokio::spawn(watching);
    let mut next_of = async |namespace: &str, name: &str| {
        let expected = NamespacedName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let seen = async { while changes.recv().await != Some(expected.clone()) {} };
        tokio::time::timeout(SOON, seen).await
    };
    // Writes before the first list are part of it, so that the test writes until one is reported.
    for (namespace, name) in [(&team, "first"), (&kubeapps, "copy")] {
        let writing = async {
            for value in 0.. {
                namespaces
                    .write(namespace, name, json!({ "a": value.to_string() }))
                    .await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            seen = next_of(namespace, name) => seen.unwrap(),
            () = writing => unreachable!("the loop does not end"),
        }
    }
    namespaces.write(&team, "old", json!({ "a": "c" })).await;
    next_of(&team, "old").await.unwrap();
    namespaces.delete(&team, "old").await;
    next_of(&team, "old").await.unwrap();
}
