//! Errors about the Secrets of a repository. They never contain a value.

use std::fmt;

use super::copy::KubeappsCopy;
use crate::api::NamespacedName;

const MAX_KEYS: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretError {
    NotFound {
        secret: NamespacedName,
        copy: KubeappsCopy,
        /// Portolan may not read the copy, so that its existence is unknown.
        copy_forbidden: bool,
    },
    KeyNotFound {
        secret: NamespacedName,
        key: String,
        keys: Vec<String>,
    },
    Invalid {
        secret: NamespacedName,
        why: String,
    },
    Forbidden {
        secret: NamespacedName,
    },
    Unavailable {
        secret: NamespacedName,
        cause: String,
    },
}

impl SecretError {
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "SecretNotFound",
            Self::KeyNotFound { .. } => "SecretKeyNotFound",
            Self::Invalid { .. } => "InvalidSecret",
            Self::Forbidden { .. } => "SecretForbidden",
            Self::Unavailable { .. } => "SecretUnavailable",
        }
    }

    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

impl std::error::Error for SecretError {}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound {
                secret,
                copy,
                copy_forbidden,
            } => {
                write!(f, "Secret {secret} referenced in spec.auth not found")?;
                match copy {
                    KubeappsCopy::None => {}
                    KubeappsCopy::Named(copy) if *copy_forbidden => {
                        write!(f, ", and not allowed to read Kubeapps' copy {copy}")?;
                    }
                    KubeappsCopy::Named(copy) => write!(f, ", nor Kubeapps' copy {copy}")?,
                    KubeappsCopy::Ambiguous(copy) => {
                        write!(f, ", and Kubeapps' copy {copy} may belong to another repository")?;
                    }
                }
                write!(f, "; create it in namespace {}", secret.namespace)
            }
            Self::KeyNotFound { secret, key, keys } => {
                write!(f, "key `{key}` referenced in spec.auth not found in Secret {secret}: ")?;
                if keys.is_empty() {
                    return f.write_str("it is empty");
                }
                let named: Vec<String> = keys.iter().take(MAX_KEYS).map(|key| format!("`{key}`")).collect();
                write!(f, "it has {}", named.join(", "))?;
                match keys.len().saturating_sub(MAX_KEYS) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::Invalid { secret, why } => write!(f, "invalid Secret {secret}: {why}"),
            Self::Forbidden { secret } => write!(
                f,
                "not allowed to read Secret {secret}: grant the service account the verb get on secrets in namespace {} \
                 (chart value rbac.secrets)",
                secret.namespace
            ),
            Self::Unavailable { secret, cause } => write!(f, "failed to read Secret {secret}: {cause}"),
        }
    }
}
