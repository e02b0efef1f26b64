//! Fetches one icon and converts it to the form in which it is stored.

use std::io::Read;

use super::archive::{DISK_FULL_PAUSE, ImportError};
use super::icon_decoder::{self as icon, Icon, IconError, IconLimits};
use crate::budget::Budgets;
use crate::catalog::MissingIcon;
use crate::http::{self as fetch, Body, Fetcher, Request, Response};

pub(super) struct IconFetcher<'a> {
    pub(super) session: &'a Fetcher,
    pub(super) budgets: &'a Budgets,
    pub(super) namespace: &'a str,
    pub(super) limits: IconLimits,
    pub(super) fetch_limits: fetch::FetchLimits,
}

enum FetchedIcon {
    DataUrl(String),
    Body(Body),
}

impl IconFetcher<'_> {
    pub(super) async fn icon(&self, missing: &MissingIcon) -> Result<Icon, ImportError> {
        let (limits, fetched) = (self.limits, self.fetch(missing).await?);
        let memory = icon::COPIES * fetched.bytes() + limits.memory();
        let decoding = self.budgets.run(self.namespace, memory, move || {
            let bytes = fetched.read(&limits)?;
            icon::read(bytes, &limits).map_err(ImportError::from)
        });
        // The small icon is not counted.
        let (icon, _) = decoding.await?;
        icon
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
        let Response { body, .. } = self.session.send(&Request::new(url), &bounds).await?;
        Ok(FetchedIcon::Body(body))
    }
}

impl FetchedIcon {
    fn bytes(&self) -> u64 {
        match self {
            Self::DataUrl(url) => url.len() as u64,
            Self::Body(body) => body.bytes,
        }
    }

    fn read(self, limits: &IconLimits) -> Result<Vec<u8>, ImportError> {
        match self {
            Self::DataUrl(url) => Ok(icon::data_url(&url, limits.bytes)?.1),
            Self::Body(body) => read_all(body.bytes, body.into_reader()),
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
            retry_after: None,
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
