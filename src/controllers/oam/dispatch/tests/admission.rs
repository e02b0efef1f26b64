use rstest::rstest;
use serde_json::{Value, json};

use super::super::admission::{Admission, ResourceTypes, check_release};
use super::super::decide::ObjectIdentity;

fn object(api_version: &str, kind: &str, namespace: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}})
}

fn check(allow_cross_namespace: bool, types: &str, objects: &[Value]) -> Result<(), String> {
    let resource_types = ResourceTypes::parse(types).unwrap();
    let admission = Admission {
        allow_cross_namespace,
        resource_types,
    };
    admission.check("shop", objects).map_err(|error| error.to_string())
}

#[test]
fn all_objects_are_admitted_by_default() {
    let objects = [object("v1", "Secret", "kube-system"), json!({"kind": "ClusterRole"})];
    assert_eq!(check(true, "", &objects), Ok(()));
}

#[test]
fn objects_of_other_namespaces_can_be_forbidden() {
    let objects = [object("v1", "Secret", "shop"), object("v1", "ConfigMap", "other")];
    assert_eq!(check(false, "", &objects[..1]), Ok(()));
    let expected = "forbidden resource: ConfigMap other/x is outside the namespace of application";
    assert_eq!(check(false, "", &objects).unwrap_err(), expected);
}

#[test]
fn cluster_scoped_objects_are_outside_the_namespace() {
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "");
    let expected = "forbidden resource: ClusterRole /x is outside the namespace of application";
    assert_eq!(check(false, "", &[role]).unwrap_err(), expected);
}

#[rstest]
#[case("v1", "Secret", "sh.helm.release.v1.web.v1", false)]
#[case("v1", "Secret", "login", true)]
#[case("v1", "ConfigMap", "sh.helm.release.v1.web.v1", true)]
#[case("example.com/v1", "Secret", "sh.helm.release.v1.web.v1", true)]
fn secrets_of_helm_releases_are_forbidden(
    #[case] version: &str,
    #[case] kind: &str,
    #[case] name: &str,
    #[case] admitted: bool,
) {
    let mut object = object(version, kind, "shop");
    object["metadata"]["name"] = name.into();
    let result = check_release(&ObjectIdentity::of(&object)).map_err(|error| error.to_string());
    assert_eq!(result.is_ok(), admitted);
    if let Err(message) = result {
        let expected = "forbidden resource: Secrets of Helm releases are not deployed: shop/sh.helm.release.v1.web.v1";
        assert_eq!(message, expected);
    }
}

#[rstest]
#[case("whitelist:Deployment.v1.apps,ConfigMap.v1", "apps/v1", "Deployment", true)]
#[case("whitelist:Deployment.v1.apps, ConfigMap.v1", "v1", "ConfigMap", true)]
#[case("whitelist:Deployment.v1.apps", "v1", "Secret", false)]
#[case("whitelist:", "v1", "Secret", false)]
#[case("blacklist:Secret.v1", "v1", "Secret", false)]
#[case("blacklist:Secret.v1", "example.com/v1", "Secret", true)]
fn kinds_are_admitted_by_list(#[case] types: &str, #[case] version: &str, #[case] kind: &str, #[case] admitted: bool) {
    let result = check(true, types, &[object(version, kind, "shop")]);
    assert_eq!(result.is_ok(), admitted);
    if let Err(message) = result {
        assert_eq!(
            message,
            format!("forbidden resource: type ({kind}) of resource shop/x is not allowed")
        );
    }
}

#[rstest]
#[case("Deployment.v1.apps")]
#[case("allowlist:Deployment.v1.apps")]
fn an_unknown_list_is_an_error(#[case] types: &str) {
    assert!(
        ResourceTypes::parse(types)
            .unwrap_err()
            .contains("whitelist:Kind.version.group")
    );
}
