//! Fetches one icon and converts it to a small PNG.

use std::io::{Read, Seek};
use std::time::Duration;

use super::archive::{DISK_FULL_PAUSE, ImportError};
use super::budget::{Budget, Panicked};
use super::icon_decoder::{self as icon, IconError, Limits};
use crate::catalog::MissingIcon;
use crate::http::{self as fetch, Fetcher, Request, Response};

/// Pause before an SVG is fetched again; SVGs are not stored.
const SVG_RETRY: Duration = Duration::from_hours(24);

pub(super) struct IconFetcher<'a> {
    pub(super) session: &'a Fetcher,
    pub(super) budget: &'a Budget,
    pub(super) limits: Limits,
    pub(super) fetch_limits: fetch::Limits,
}

struct FetchedIcon<R> {
    bytes: u64,
    source: IconSource<R>,
}

enum IconSource<R> {
    Url(String),
    Spool { content_type: Option<String>, reader: R },
}

impl IconFetcher<'_> {
    pub(super) async fn png(&self, missing: &MissingIcon) -> Result<Vec<u8>, ImportError> {
        let (limits, mut fetched) = (self.limits, self.fetch(missing).await?);
        // The file, a copy in the decoder, and the text of a `data:` URL.
        let memory = 3 * fetched.bytes + limits.memory();
        let decoding = self.budget.run(memory, move || {
            let (content_type, bytes) = fetched.read(&limits)?;
            icon::png(&bytes, content_type.as_deref(), &limits).map_err(ImportError::from)
        });
        // The small PNG is not counted.
        let (png, _) = decoding
            .await
            .map_err(|Panicked| ImportError::failed("icon decoder panicked; please report this bug"))?;
        png
    }

    async fn fetch(&self, missing: &MissingIcon) -> Result<FetchedIcon<impl Read + Seek + Send + use<>>, ImportError> {
        if missing.url.starts_with("data:") {
            return Ok(FetchedIcon {
                bytes: missing.url.len() as u64,
                source: IconSource::Url(missing.url.clone()),
            });
        }
        let url = url::Url::parse(&missing.url).map_err(|_| ImportError::failed("the URL of the icon is not valid"))?;
        let bounds = fetch::Limits {
            max_bytes: self.limits.bytes as u64,
            ..self.fetch_limits
        };
        let Response { headers, body, .. } = self.session.send(&Request::new(url), &bounds).await?;
        let content_type = headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(FetchedIcon {
            bytes: body.bytes,
            source: IconSource::Spool {
                content_type,
                reader: body.into_reader(),
            },
        })
    }
}

impl<R: Read + Seek> FetchedIcon<R> {
    fn read(&mut self, limits: &Limits) -> Result<(Option<String>, Vec<u8>), ImportError> {
        match &mut self.source {
            IconSource::Url(url) => icon::data_url(url, limits.bytes).map_err(ImportError::from),
            IconSource::Spool { content_type, reader } => {
                let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or_default());
                reader
                    .rewind()
                    .and_then(|()| reader.read_to_end(&mut bytes))
                    .map_err(|_| ImportError::Deferred(DISK_FULL_PAUSE))?;
                Ok((content_type.clone(), bytes))
            }
        }
    }
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

    impl Seek for Unreadable {
        fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn a_temporary_file_error_is_not_a_failure_of_the_icon() {
        let mut fetched = FetchedIcon {
            bytes: 10,
            source: IconSource::Spool {
                content_type: None,
                reader: Unreadable,
            },
        };
        let read = fetched.read(&Limits::default());
        assert!(matches!(read, Err(ImportError::Deferred(time)) if time == DISK_FULL_PAUSE));
    }
}
