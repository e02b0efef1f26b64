//! From the HTTP client's errors to ours.
//!
//! The client tells little by type, so the chain of causes is walked for what does: our resolver's error, TLS, the system.

use std::error::Error;
use std::io;

use ::url::Url;
use reqwest::StatusCode;

use crate::text::{printable, public_url, truncate};

use super::error::FetchError;
use super::resolve::{Refused, Unresolved};
use super::url::host_and_port;

/// Why no answer came.
pub(super) fn no_answer(error: &reqwest::Error, url: &Url, proxy: Option<&Url>) -> FetchError {
    let host = match proxy {
        None => host_and_port(url),
        Some(proxy) => format!("{} by way of the proxy {}", host_and_port(url), host_and_port(proxy)),
    };
    for cause in causes(error) {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return FetchError::AddressRefused {
                host: refused.name.clone(),
                address: refused.address.to_string(),
                why: refused.why,
            };
        }
        if let Some(unresolved) = cause.downcast_ref::<Unresolved>() {
            return FetchError::Dns {
                host: unresolved.name.clone(),
                detail: shown(&unresolved.source),
            };
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            let detail = shown(tls);
            return match tls {
                rustls::Error::InvalidCertificate(_) => FetchError::Untrusted { host, detail },
                _ => FetchError::Handshake { host, detail },
            };
        }
        // The type of this one is the client's own.
        if let Some(proxy) = proxy
            && cause.to_string().contains("proxy authorization required")
        {
            return FetchError::Status {
                url: public_url(proxy),
                status: StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                retry_after: None,
                challenges: Vec::new(),
            };
        }
        let broken_off = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        let is_handshake = error.is_connect() && url.scheme() == "https";
        if let Some(system) = cause.downcast_ref::<io::Error>()
            && is_handshake
            && broken_off.contains(&system.kind())
        {
            return FetchError::Handshake {
                host,
                detail: shown(system),
            };
        }
    }
    let detail = innermost(error);
    if error.is_connect() {
        FetchError::Connect { host, detail }
    } else {
        FetchError::ConnectionLost { host, detail }
    }
}

/// What the client says about a body that did not come whole.
pub(super) fn innermost(error: &reqwest::Error) -> String {
    // The outermost names the URL with all that it may hold; the innermost is the cause.
    causes(error)
        .last()
        .map_or_else(|| "no cause is known".to_owned(), shown)
}

/// All causes, the client's own error left out.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            // As its source, a system error names that of what it was made from, and hides the thing itself.
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => cause.source(),
        }
    })
}

fn shown(error: &(impl std::fmt::Display + ?Sized)) -> String {
    const SHOWN_BYTES: usize = 200;
    truncate(&printable(&error.to_string()), SHOWN_BYTES)
}
