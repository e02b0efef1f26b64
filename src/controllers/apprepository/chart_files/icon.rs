//! Fetches one icon and converts it to a small PNG.

use std::io::Read;
use std::time::Duration;

use super::archive::{DISK_FULL_PAUSE, ImportError};
use super::icon_decoder::{self as icon, IconError, IconLimits};
use crate::budget::Budgets;
use crate::catalog::MissingIcon;
use crate::http::{self as fetch, Body, Fetcher, Request, Response};

/// Pause before an SVG is fetched again; SVGs are not stored.
const SVG_RETRY: Duration = Duration::from_hours(24);

pub(super) struct IconFetcher<'a> {
    pub(super) session: &'a Fetcher,
    pub(super) budgets: &'a Budgets,
    pub(super) namespace: &'a str,
    pub(super) limits: IconLimits,
    pub(super) fetch_limits: fetch::FetchLimits,
}

enum FetchedIcon {
    DataUrl(String),
    Body { content_type: Option<String>, body: Body },
}

impl IconFetcher<'_> {
    pub(super) async fn png(&self, missing: &MissingIcon) -> Result<Vec<u8>, ImportError> {
        let (limits, fetched) = (self.limits, self.fetch(missing).await?);
        let memory = icon::COPIES * fetched.bytes() + limits.memory();
        let decoding = self.budgets.run(self.namespace, memory, move || {
            let (content_type, bytes) = fetched.read(&limits)?;
            icon::png(&bytes, content_type.as_deref(), &limits).map_err(ImportError::from)
        });
        // The small PNG is not counted.
        let (png, _) = decoding.await?;
        png
    }

    async fn fetch(&self, missing: &MissingIcon) -> Result<FetchedIcon, ImportError> {
        if missing.url.starts_with("data:") {
            return Ok(FetchedIcon::DataUrl(missing.url.clone()));
        }
        let url = url::Url::parse(&missing.url).map_err(|_| ImportError::failed("the URL of the icon is not valid"))?;
        let bounds = fetch::FetchLimits {
            max_bytes: self.limits.bytes as u64,
            ..self.fetch_limits
        };
        let Response { headers, body, .. } = self.session.send(&Request::new(url), &bounds).await?;
        let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
        Ok(FetchedIcon::Body {
            content_type: content_type.map(str::to_owned),
            body,
        })
    }
}

impl FetchedIcon {
    fn bytes(&self) -> u64 {
        match self {
            Self::DataUrl(url) => url.len() as u64,
            Self::Body { body, .. } => body.bytes,
        }
    }

    fn read(self, limits: &IconLimits) -> Result<(Option<String>, Vec<u8>), ImportError> {
        match self {
            Self::DataUrl(url) => Ok(icon::data_url(&url, limits.bytes)?),
            Self::Body { content_type, body } => Ok((content_type, read_all(body.bytes, body.into_reader())?)),
        }
    }
}

fn read_all(capacity: u64, mut reader: impl Read) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::with_capacity(usize::try_from(capacity).unwrap_or_default());
    let read = reader.read_to_end(&mut bytes);
    read.map_err(|_| ImportError::Deferred(DISK_FULL_PAUSE))?;
    Ok(bytes)
}

impl From<IconError> for ImportError {
    fn from(error: IconError) -> Self {
        Self::Failed {
            message: error.to_string(),
            retry_after: (error == IconError::Svg).then_some(SVG_RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    struct Unreadable;

    impl Read for Unreadable {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn a_temporary_file_error_is_not_a_failure_of_the_icon() {
        let read = read_all(10, Unreadable);
        assert!(matches!(read, Err(ImportError::Deferred(time)) if time == DISK_FULL_PAUSE));
    }
}
