//! Why what a repository's spec names can't be had from its Secret, in words that say what to do. Never with a value in them.

use std::fmt;

use super::copy::Copy;
use crate::api::NamespacedName;

/// The keys that are named at most where the wanted one is missing.
const MAX_KEYS: usize = 10;

/// Why what a repository's spec names can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretError {
    /// There is no such Secret, nor a copy of Kubeapps' that can be used.
    NotFound {
        /// The Secret that the spec names.
        secret: NamespacedName,
        /// Kubeapps' copy of it.
        copy: Copy,
        /// Whether it is not known if the copy is there, since Portolan may not read it.
        copy_forbidden: bool,
    },
    /// The Secret has not that key.
    KeyNotFound {
        /// The Secret.
        secret: NamespacedName,
        /// The key that the spec names.
        key: String,
        /// Those that there are.
        keys: Vec<String>,
    },
    /// What stands there can't be used.
    Invalid {
        /// The Secret.
        secret: NamespacedName,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The API server does not let Portolan read the Secret.
    Forbidden {
        /// The Secret.
        secret: NamespacedName,
    },
    /// The Secret can't be read now; another try may succeed.
    Unavailable {
        /// The Secret.
        secret: NamespacedName,
        /// What is in the way.
        cause: String,
    },
}

impl SecretError {
    /// The reason of the condition, in `CamelCase`.
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

    /// Whether another try may succeed although nobody does anything.
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
                write!(f, "there is no Secret {secret}, which spec.auth names")?;
                match copy {
                    Copy::None => {}
                    Copy::Named(copy) if *copy_forbidden => {
                        write!(f, ", and Portolan may not look for Kubeapps' copy {copy}")?;
                    }
                    Copy::Named(copy) => write!(f, ", nor Kubeapps' copy {copy}")?,
                    Copy::Ambiguous(copy) => {
                        write!(f, ", and Kubeapps' copy {copy} may be another repository's by its name")?;
                    }
                }
                write!(f, ": make it in the namespace {}", secret.namespace)
            }
            Self::KeyNotFound { secret, key, keys } => {
                write!(f, "the Secret {secret} has no key `{key}`, which spec.auth names: ")?;
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
            Self::Invalid { secret, why } => write!(f, "the Secret {secret} can't be used: {why}"),
            Self::Forbidden { secret } => write!(
                f,
                "Portolan may not read the Secret {secret}: give its service account the verb get on secrets in the \
                 namespace {} (in Portolan's chart: rbac.secrets)",
                secret.namespace
            ),
            Self::Unavailable { secret, cause } => write!(f, "the Secret {secret} can't be read now: {cause}"),
        }
    }
}
