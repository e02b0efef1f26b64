//! Secrets as functions read them.

use k8s_openapi::api::core::v1::Secret;

use crate::runtime::kube_client::ApiError;
use crate::runtime::manifests::is_object_name;

/// Reads Secrets with the rights of the Application.
pub trait Secrets: Sync {
    /// Returns a Secret, `None` if it does not exist.
    fn get(&self, namespace: &str, name: &str) -> impl Future<Output = Result<Option<Secret>, ApiError>> + Send;
}

/// Returns a Secret that exists.
///
/// # Errors
/// The name is not valid, the Secret does not exist, or the request fails. The message contains no data.
pub(super) async fn existing(secrets: &impl Secrets, namespace: &str, name: &str) -> Result<Secret, String> {
    if !is_object_name(name) {
        return Err("the name of a Secret in $params is not valid".to_owned());
    }
    match secrets.get(namespace, name).await {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(format!("Secret {name} not found in namespace {namespace}")),
        Err(error) => Err(format!(
            "failed to read Secret {name} in namespace {namespace}: {error}"
        )),
    }
}

/// Returns the value of a key.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let data = secret.data.as_ref()?;
    data.get(key).map(|value| value.0.as_slice())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use kube::api::ObjectMeta;

    use super::*;

    /// Secrets in memory, by namespace and name.
    #[derive(Default)]
    pub(in super::super) struct FakeSecrets(pub BTreeMap<(String, String), Secret>);

    impl FakeSecrets {
        pub(in super::super) fn with(namespace: &str, name: &str, data: &[(&str, &[u8])]) -> Self {
            let data = data
                .iter()
                .map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
            let secret = Secret {
                metadata: ObjectMeta {
                    namespace: Some(namespace.to_owned()),
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
                data: Some(data.collect()),
                ..Secret::default()
            };
            Self(BTreeMap::from([((namespace.to_owned(), name.to_owned()), secret)]))
        }
    }

    impl Secrets for FakeSecrets {
        async fn get(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ApiError> {
            Ok(self.0.get(&(namespace.to_owned(), name.to_owned())).cloned())
        }
    }

    #[tokio::test]
    async fn a_name_that_is_a_path_is_not_read() {
        let secrets = FakeSecrets::with("a", "../b/secrets/c", &[]);
        assert!(existing(&secrets, "a", "../b/secrets/c").await.is_err());
    }
}
