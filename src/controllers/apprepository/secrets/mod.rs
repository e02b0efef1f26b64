//! The Secrets that repositories name: credentials, and certificates of authorities.
//!
//! ```text
//!  spec.auth ─► the Secret in the repository's own namespace ─── absent ──► Kubeapps' copy of it, if its name tells whose it is
//!                             └──────────────┬────────────────────────────────┘
//!                                     the key's value ─► header or certificates
//! ```
//! They are read when they are needed and dropped with the sync. Read are Secrets of the repository's own namespace, and of
//! Kubeapps' namespace the one that [`copy`] says; a name that is none is not asked for, since a path could be made of it.

pub mod copy;
mod error;
pub mod source;

use std::collections::BTreeMap;

use rustls::pki_types::{CertificateDer, pem::PemObject};

pub use error::SecretError;

use super::origin::{Origin, SecretReadError};
use crate::api::NamespacedName;
use crate::api::{AppRepository, SecretKeyRef};
use crate::http::credentials;
use crate::http::secret::Secret;
use crate::runtime::informer::{Seen, Store};
use crate::runtime::manifests::{SecretContent, is_object_name};
use crate::text::{printable, truncate};
use copy::{Copy, copy_of};

/// The key whose value is a configuration of Docker, not a header: as with Kubeapps.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// What of a name that a user wrote is shown.
const MAX_NAME: usize = 253;

/// Where Secrets are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSettings {
    /// The namespace in which Kubeapps is, with its copies of Secrets.
    pub kubeapps_namespace: String,
}

/// What a repository's spec names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The credentials.
    pub header: Option<&'a SecretKeyRef>,
    /// The certificates of authorities.
    pub ca: Option<&'a SecretKeyRef>,
}

impl<'a> Wanted<'a> {
    /// What an object names.
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

/// What was read, for one sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credentials {
    /// The value of the Authorization header.
    pub authorization: Option<Secret>,
    /// Certificates of authorities to be trusted, in PEM form; at least one.
    pub ca: Option<Vec<u8>>,
    /// The names and versions of the Secrets that were read: another text, and something may have changed. Empty if the
    /// spec names none. It holds nothing of what is in them.
    pub versions: String,
}

/// Reads what a repository's spec names. Asks for nothing if it names nothing.
///
/// # Errors
/// See [`SecretError`].
pub async fn credentials(
    origin: &Origin,
    name: &NamespacedName,
    wanted: Wanted<'_>,
    settings: &SecretSettings,
) -> Result<Credentials, SecretError> {
    let mut reader = Reader {
        origin,
        repository: name,
        settings,
        read: BTreeMap::new(),
    };
    let authorization = match wanted.header {
        Some(reference) => Some(header(reference, &reader.value(reference).await?)?),
        None => None,
    };
    let ca = match wanted.ca {
        Some(reference) => Some(certificates(reader.value(reference).await?)?),
        None => None,
    };
    let read = reader
        .read
        .iter()
        .filter_map(|(name, content)| Some((name, content.as_ref()?)));
    let versions: Vec<String> = read
        .map(|(name, content)| format!("{name}@{}", content.version))
        .collect();
    Ok(Credentials {
        authorization,
        ca,
        versions: versions.join(" "),
    })
}

/// A value, and the Secret that it is from.
struct Value {
    secret: NamespacedName,
    bytes: Vec<u8>,
}

/// Reads the Secrets of one repository, each of them once.
struct Reader<'a> {
    origin: &'a Origin,
    repository: &'a NamespacedName,
    settings: &'a SecretSettings,
    /// What was looked for; nothing where it is absent.
    read: BTreeMap<NamespacedName, Option<SecretContent>>,
}

impl Reader<'_> {
    async fn value(&mut self, reference: &SecretKeyRef) -> Result<Value, SecretError> {
        let secret = self.find(reference).await?;
        let data = self
            .read
            .get(&secret)
            .and_then(Option::as_ref)
            .map(|content| &content.data);
        match data.and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Value {
                secret,
                bytes: value.clone(),
            }),
            None => Err(SecretError::KeyNotFound {
                secret,
                key: shown(&reference.key),
                keys: data
                    .into_iter()
                    .flat_map(BTreeMap::keys)
                    .map(|key| shown(key))
                    .collect(),
            }),
        }
    }

    /// Reads the Secret that is referred to, or else Kubeapps' copy of it; gives the name of the one that there is.
    async fn find(&mut self, reference: &SecretKeyRef) -> Result<NamespacedName, SecretError> {
        let own = NamespacedName {
            namespace: self.repository.namespace.clone(),
            name: shown(&reference.name),
        };
        if !is_object_name(&reference.name) {
            let why = "this is no name that a Secret can have; correct spec.auth".to_owned();
            return Err(SecretError::Invalid { secret: own, why });
        }
        if self.exists(&own).await? {
            return Ok(own);
        }
        let copy = copy_of(self.repository, &self.settings.kubeapps_namespace);
        let mut copy_forbidden = false;
        if let Copy::Named(copy) = &copy {
            match self.exists(copy).await {
                Ok(true) => return Ok(copy.clone()),
                Ok(false) => {}
                // Most who may not read there have never had Kubeapps: what they miss is their own Secret.
                Err(SecretError::Forbidden { .. }) => copy_forbidden = true,
                Err(error) => return Err(error),
            }
        }
        Err(SecretError::NotFound {
            secret: own,
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

fn header(reference: &SecretKeyRef, value: &Value) -> Result<Secret, SecretError> {
    let read = if reference.key == DOCKER_CONFIG {
        credentials::from_docker_config(&value.bytes)
    } else {
        credentials::from_header(&value.bytes)
    };
    read.map_err(|error| SecretError::Invalid {
        secret: value.secret.clone(),
        why: format!("its key `{}`: {error}", shown(&reference.key)),
    })
}

/// The certificates, which are looked at as far as this: whether there are any.
fn certificates(value: Value) -> Result<Vec<u8>, SecretError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&value.bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(value.bytes),
        _ => Err(SecretError::Invalid {
            secret: value.secret,
            why: "what spec.auth.customCA names must be certificates in PEM form (-----BEGIN CERTIFICATE-----)"
                .to_owned(),
        }),
    }
}

fn shown(text: &str) -> String {
    truncate(&printable(text), MAX_NAME)
}

/// The AppRepositories whose credentials or certificates may come from this Secret: those of its namespace that name it,
/// and the one whose copy by Kubeapps it is.
#[must_use]
pub fn repositories_of(
    secret: &NamespacedName,
    store: &Store<AppRepository>,
    settings: &SecretSettings,
) -> Vec<NamespacedName> {
    let uses = |name: &NamespacedName, object: &AppRepository| {
        let wanted = Wanted::of(object);
        let own =
            || name.namespace == secret.namespace && wanted.references().any(|reference| reference.name == secret.name);
        let copy = || match copy_of(name, &settings.kubeapps_namespace) {
            Copy::Named(copy) => copy == *secret && wanted.references().next().is_some(),
            Copy::None | Copy::Ambiguous(_) => false,
        };
        own() || copy()
    };
    let mut names = store.names();
    names.retain(|name| matches!(store.get(name), Some(Seen::Object(object)) if uses(name, &object)));
    names.sort();
    names
}

#[cfg(test)]
mod tests;
