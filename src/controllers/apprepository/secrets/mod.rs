//! Reads the Secrets that a repository references: credentials and CA certificates.
//!
//! A Secret is read from the repository's own namespace, or else from Kubeapps' copy (see [`copy`]). Values are dropped
//! after the sync. Invalid names are rejected, since the name becomes part of a path.

pub mod copy;
mod error;
pub mod source;
mod watch;

use std::collections::BTreeMap;

use rustls::pki_types::{CertificateDer, pem::PemObject};

pub use error::SecretError;
pub use watch::watch;

use super::origin::{Origin, SecretReadError};
use crate::api::{AppRepository, NamespacedName, SecretKeyRef};
use crate::controllers::apprepository::CachedRepository;
use crate::http::credentials;
use crate::http::secret::Secret;
use crate::runtime::manifests::{SecretContent, is_object_name};
use crate::runtime::watch::{Cached, Store};
use crate::text::{printable, truncate};
use copy::{KubeappsCopy, copy_of};

/// Key of a Docker configuration, as in Kubeapps. Any other key holds a header.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
const MAX_NAME: usize = 253;

#[derive(Clone, Copy, Debug, Default)]
pub struct SecretRefs<'a> {
    pub header: Option<&'a SecretKeyRef>,
    pub ca: Option<&'a SecretKeyRef>,
}

impl<'a> SecretRefs<'a> {
    #[must_use]
    pub fn of(object: &'a AppRepository) -> Self {
        Self {
            header: object.auth_header(),
            ca: object.custom_ca(),
        }
    }

    fn references(self) -> impl Iterator<Item = &'a SecretKeyRef> {
        self.header.into_iter().chain(self.ca)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RepositoryCredentials {
    pub authorization: Option<Secret>,
    /// CA certificates in PEM form; at least one.
    pub ca: Option<Vec<u8>>,
    /// Names and versions of the Secrets, to detect changes; empty without references. It contains no values.
    pub versions: String,
}

#[derive(Default)]
pub struct Values {
    pub header: Option<SecretValue>,
    pub ca: Option<SecretValue>,
    /// See [`RepositoryCredentials::versions`].
    pub versions: String,
}

pub struct SecretValue {
    reference: SecretKeyRef,
    secret: NamespacedName,
    bytes: Vec<u8>,
}

impl SecretValue {
    /// Returns the key in the Secret, and its value.
    pub fn into_parts(self) -> (String, Vec<u8>) {
        (self.reference.key, self.bytes)
    }
}

/// Reads the credentials in the referenced Secrets; makes no request without references.
pub async fn credentials(
    origin: &Origin,
    name: &NamespacedName,
    refs: SecretRefs<'_>,
    kubeapps_namespace: &str,
) -> Result<RepositoryCredentials, SecretError> {
    values(origin, name, refs, kubeapps_namespace).await?.credentials()
}

pub async fn values(
    origin: &Origin,
    name: &NamespacedName,
    refs: SecretRefs<'_>,
    kubeapps_namespace: &str,
) -> Result<Values, SecretError> {
    let mut reader = SecretReader {
        origin,
        repository: name,
        kubeapps_namespace,
        read: BTreeMap::new(),
    };
    let header = match refs.header {
        Some(reference) => Some(reader.value(reference).await?),
        None => None,
    };
    let ca = match refs.ca {
        Some(reference) => Some(reader.value(reference).await?),
        None => None,
    };
    let read = reader.read.iter();
    let versions: Vec<String> = read
        .filter_map(|(name, content)| Some(format!("{name}@{}", content.as_ref()?.version)))
        .collect();
    Ok(Values {
        header,
        ca,
        versions: versions.join(" "),
    })
}

impl Values {
    pub fn credentials(&self) -> Result<RepositoryCredentials, SecretError> {
        Ok(RepositoryCredentials {
            authorization: self.header.as_ref().map(header).transpose()?,
            ca: self.ca.as_ref().map(certificates).transpose()?,
            versions: self.versions.clone(),
        })
    }
}

/// Reads the Secrets of one repository, each once.
struct SecretReader<'a> {
    origin: &'a Origin,
    repository: &'a NamespacedName,
    kubeapps_namespace: &'a str,
    read: BTreeMap<NamespacedName, Option<SecretContent>>,
}

impl SecretReader<'_> {
    async fn value(&mut self, reference: &SecretKeyRef) -> Result<SecretValue, SecretError> {
        let secret = self.find(reference).await?;
        let content = self.read.get(&secret).and_then(Option::as_ref);
        let data = content.map(|content| &content.data);
        match data.and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(SecretValue {
                reference: reference.clone(),
                secret,
                bytes: value.clone(),
            }),
            None => {
                let keys = data.into_iter().flat_map(BTreeMap::keys);
                Err(SecretError::KeyNotFound {
                    secret,
                    key: sanitize(&reference.key),
                    keys: keys.map(|key| sanitize(key)).collect(),
                })
            }
        }
    }

    /// Returns the name of the Secret, or else of Kubeapps' copy.
    async fn find(&mut self, reference: &SecretKeyRef) -> Result<NamespacedName, SecretError> {
        let secret = NamespacedName::new(&self.repository.namespace, sanitize(&reference.name));
        if !is_object_name(&reference.name) {
            let why = "the name is not a valid Secret name; correct spec.auth".to_owned();
            return Err(SecretError::Invalid { secret, why });
        }
        if self.exists(&secret).await? {
            return Ok(secret);
        }
        let copy = copy_of(self.repository, self.kubeapps_namespace);
        let mut copy_forbidden = false;
        if let KubeappsCopy::Named(copy) = &copy {
            match self.exists(copy).await {
                Ok(true) => return Ok(copy.clone()),
                Ok(false) => {}
                // Without Kubeapps, most installations lack this permission: report the missing Secret instead.
                Err(SecretError::Forbidden { .. }) => copy_forbidden = true,
                Err(error) => return Err(error),
            }
        }
        Err(SecretError::NotFound {
            secret,
            copy,
            copy_forbidden,
        })
    }

    async fn exists(&mut self, secret: &NamespacedName) -> Result<bool, SecretError> {
        if let Some(content) = self.read.get(secret) {
            return Ok(content.is_some());
        }
        let content = self.origin.secret(secret).await.map_err(|error| {
            let secret = secret.clone();
            match error {
                SecretReadError::Forbidden => SecretError::Forbidden { secret },
                SecretReadError::Invalid(why) => SecretError::Invalid { secret, why },
                SecretReadError::Unavailable(cause) => SecretError::Unavailable { secret, cause },
            }
        })?;
        let exists = content.is_some();
        self.read.insert(secret.clone(), content);
        Ok(exists)
    }
}

fn header(value: &SecretValue) -> Result<Secret, SecretError> {
    let key = &value.reference.key;
    let read = if key == DOCKER_CONFIG {
        credentials::from_docker_config(&value.bytes)
    } else {
        credentials::from_header(&value.bytes)
    };
    read.map_err(|error| SecretError::Invalid {
        secret: value.secret.clone(),
        why: format!("key `{}`: {error}", sanitize(key)),
    })
}

fn certificates(value: &SecretValue) -> Result<Vec<u8>, SecretError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&value.bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(value.bytes.clone()),
        _ => Err(SecretError::Invalid {
            secret: value.secret.clone(),
            why: "spec.auth.customCA must reference PEM certificates (-----BEGIN CERTIFICATE-----)".to_owned(),
        }),
    }
}

fn sanitize(text: &str) -> String {
    truncate(&printable(text), MAX_NAME)
}

/// Returns the repositories of its namespace that reference the Secret, and the repository whose copy it is.
#[must_use]
pub fn repositories_of(
    secret: &NamespacedName,
    store: &Store<Cached<CachedRepository>>,
    kubeapps_namespace: &str,
) -> Vec<NamespacedName> {
    let uses = |name: &NamespacedName, object: &AppRepository| {
        let refs = SecretRefs::of(object);
        let is_referenced =
            || name.namespace == secret.namespace && refs.references().any(|reference| reference.name == secret.name);
        let is_copy = || match copy_of(name, kubeapps_namespace) {
            KubeappsCopy::Named(copy) => copy == *secret && refs.references().next().is_some(),
            KubeappsCopy::None | KubeappsCopy::Ambiguous(_) => false,
        };
        is_referenced() || is_copy()
    };
    let mut names = store.names();
    names.retain(|name| matches!(store.get(name), Some(Cached::Object(object)) if uses(name, &object)));
    names.sort();
    names
}

#[cfg(test)]
mod tests;
