//! Signatures of senders, in the formats that they document.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::hmac;

use super::receiver::{Receiver, ReceiverKind};
use crate::text::hex;

/// Age of a signed request, and the difference of the clocks.
const MAX_AGE: u64 = 300;
/// Signatures of a request while its sender rotates its keys.
const MAX_SIGNATURES: usize = 8;
/// Standard Webhooks: the token is the key in base64.
const ENCODED_KEY: &[u8] = b"whsec_";

/// The reason of a refusal. It is logged, and never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mismatch {
    #[error("the header {0} is absent or not as documented")]
    Header(&'static str),
    #[error("the header {0} does not match the token")]
    Wrong(&'static str),
    #[error("webhook-timestamp is older or newer than 5 minutes")]
    Late,
}

const AUTHORIZATION: &str = "authorization";
const X_SIGNATURE: &str = "x-signature";
const X_HUB_SIGNATURE: &str = "x-hub-signature-256";
const X_GITLAB_TOKEN: &str = "x-gitlab-token";
const WEBHOOK_ID: &str = "webhook-id";
const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
const WEBHOOK_SIGNATURE: &str = "webhook-signature";

impl Receiver {
    /// Verifies a sender that sends the token itself.
    pub(super) fn verify_headers(&self, headers: &HeaderMap) -> Result<(), Mismatch> {
        let name = match self.kind {
            ReceiverKind::Authorization => AUTHORIZATION,
            ReceiverKind::Gitlab if !headers.contains_key(WEBHOOK_SIGNATURE) => X_GITLAB_TOKEN,
            _ => return Ok(()),
        };
        let value = headers.get(name).ok_or(Mismatch::Header(name))?;
        check(self.is_equal(&self.token, value.as_bytes()), name)
    }

    /// Verifies a sender that signs its requests.
    pub(super) fn verify_body(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Mismatch> {
        match self.kind {
            ReceiverKind::GenericHmac => self.verify_hex(headers, X_SIGNATURE, body),
            ReceiverKind::Github => self.verify_hex(headers, X_HUB_SIGNATURE, body),
            ReceiverKind::Gitlab if headers.contains_key(WEBHOOK_SIGNATURE) => self.verify_webhook(headers, body, now),
            ReceiverKind::Gitlab | ReceiverKind::Authorization | ReceiverKind::Generic => Ok(()),
        }
    }

    /// Verifies `ALGORITHM=HEX`. GitHub uses SHA-256 only.
    fn verify_hex(&self, headers: &HeaderMap, name: &'static str, body: &[u8]) -> Result<(), Mismatch> {
        let (algorithm, presented) = text(headers, name)?.split_once('=').ok_or(Mismatch::Header(name))?;
        let algorithm = match (self.kind, algorithm) {
            (_, "sha256") => hmac::HMAC_SHA256,
            (ReceiverKind::GenericHmac, "sha512") => hmac::HMAC_SHA512,
            _ => return Err(Mismatch::Header(name)),
        };
        let expected = hex(hmac::sign(&hmac::Key::new(algorithm, &self.token), body).as_ref());
        let presented = presented.to_ascii_lowercase();
        // The key of the address is the signature of the repository's name. An address alone, for example in a log, signs nothing.
        let is_key = self.has_key(&presented);
        check(
            self.is_equal(expected.as_bytes(), presented.as_bytes()) && !is_key,
            name,
        )
    }

    /// Verifies `v1,BASE64` of ID, time and body: GitLab signs as Standard Webhooks demand.
    fn verify_webhook(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Mismatch> {
        let (id, timestamp) = (text(headers, WEBHOOK_ID)?, text(headers, WEBHOOK_TIMESTAMP)?);
        let signed_at: i64 = timestamp.parse().map_err(|_| Mismatch::Header(WEBHOOK_TIMESTAMP))?;
        if now.as_second().abs_diff(signed_at) > MAX_AGE {
            return Err(Mismatch::Late);
        }
        let encoded = self.token.strip_prefix(ENCODED_KEY);
        let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let key = decoded.as_deref().unwrap_or(&self.token);
        let mut signature = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        signature.update(format!("{id}.{timestamp}.").as_bytes());
        signature.update(body);
        let expected = STANDARD.encode(signature.sign().as_ref());
        let presented = text(headers, WEBHOOK_SIGNATURE)?.split(' ').take(MAX_SIGNATURES);
        let mut presented = presented.filter_map(|signature| signature.strip_prefix("v1,"));
        let is_signed = presented.any(|presented| self.is_equal(expected.as_bytes(), presented.as_bytes()));
        check(is_signed, WEBHOOK_SIGNATURE)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Mismatch> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.filter(|value| !value.is_empty()).ok_or(Mismatch::Header(name))
}

const fn check(is_right: bool, name: &'static str) -> Result<(), Mismatch> {
    if is_right { Ok(()) } else { Err(Mismatch::Wrong(name)) }
}
