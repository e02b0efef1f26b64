use std::fmt;
use std::str::FromStr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::hmac;

use crate::api::NamespacedName;
use crate::text::{hex, printable, truncate};

/// Shorter tokens could be guessed from a signature that a sender shows.
const MIN_TOKEN: usize = 16;
/// Tokens of known receivers stay in memory.
const MAX_TOKEN: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverKind {
    GenericHmac,
    /// Also Gitea.
    Github,
    Gitlab,
    /// Harbor and distribution send a fixed header.
    Authorization,
    /// Any sender that knows the address.
    Generic,
}

impl FromStr for ReceiverKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "generic-hmac" => Ok(Self::GenericHmac),
            "github" => Ok(Self::Github),
            "gitlab" => Ok(Self::Gitlab),
            "harbor" | "distribution" => Ok(Self::Authorization),
            "generic" => Ok(Self::Generic),
            _ => Err(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    #[error(
        "the Secret has no valid `type`{}; use generic-hmac, github, gitlab, harbor, distribution or generic",
        of(.0)
    )]
    Type(String),
    #[error(
        "the Secret has no `token` of at least {} bytes and at most {}; create one, for example with `openssl rand -hex 32`",
        MIN_TOKEN,
        MAX_TOKEN
    )]
    Token,
}

fn of(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

/// The receiver of a repository. It prints no secret.
pub struct Receiver {
    pub(super) kind: ReceiverKind,
    pub(super) token: Vec<u8>,
    key: String,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Receiver {
    /// Reads the keys `type` and `token`. Files, from which Secrets are made, may end with a line break.
    pub fn of(name: &NamespacedName, secret: &Secret) -> Result<Self, ReceiverError> {
        let value = |key: &str| {
            let value = secret.data.as_ref().and_then(|data| data.get(key));
            value.map(|ByteString(value)| value.trim_ascii()).unwrap_or_default()
        };
        let text = String::from_utf8_lossy(value("type"));
        let invalid = |()| ReceiverError::Type(truncate(&printable(&text), 64));
        let kind = text.parse::<ReceiverKind>().map_err(invalid)?;
        let token = value("token");
        if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) {
            return Err(ReceiverError::Token);
        }
        let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token), name.to_string().as_bytes());
        Ok(Self {
            kind,
            token: token.to_vec(),
            key: hex(signed.as_ref()),
        })
    }

    /// Returns the path of the address.
    #[must_use]
    pub fn path(&self, name: &NamespacedName) -> String {
        format!("/hooks/{name}/{}", self.key)
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.is_equal(self.key.as_bytes(), key.as_bytes())
    }

    /// Compares in constant time: the duration depends on the length of `presented` only.
    pub(super) fn is_equal(&self, expected: &[u8], presented: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.token);
        hmac::verify(&key, presented, hmac::sign(&key, expected).as_ref()).is_ok()
    }
}
