//! Fetches one icon and converts it to a small PNG.

use std::io::{Read, Seek};
use std::time::Duration;

use super::archive::{Miss, NO_ROOM};
use super::budget::{Budget, Panicked};
use super::icon_decoder::{self as icon, IconError, Limits};
use crate::catalog::WantedIcon;
use crate::http::{self as fetch, Answer, Fetcher, Request};

/// Pause before an SVG is fetched again; SVGs are not stored.
const SVG_RETRY: Duration = Duration::from_hours(24);

pub(super) struct Icons<'a> {
    pub(super) session: &'a Fetcher,
    pub(super) budget: &'a Budget,
    pub(super) limits: Limits,
    pub(super) fetch_limits: fetch::Limits,
}

struct Waiting<R> {
    bytes: u64,
    place: Place<R>,
}

enum Place<R> {
    Url(String),
    Spool {
        content_type: Option<String>,
        reader: R,
    },
}

impl Icons<'_> {
    pub(super) async fn png(&self, wanted: &WantedIcon) -> Result<Vec<u8>, Miss> {
        let (limits, mut waiting) = (self.limits, self.fetch(wanted).await?);
        // The file, a copy in the decoder, and the text of a `data:` URL.
        let memory = 3 * waiting.bytes + limits.memory();
        let decoding = self.budget.run(memory, move || {
            let (content_type, bytes) = waiting.read(&limits)?;
            icon::png(&bytes, content_type.as_deref(), &limits).map_err(Miss::from)
        });
        // The small PNG is not counted.
        let (png, _) = decoding.await.map_err(|Panicked| {
            Miss::failed("the icon can't be read because of a defect in Portolan; please report it")
        })?;
        png
    }

    async fn fetch(&self, wanted: &WantedIcon) -> Result<Waiting<impl Read + Seek + Send + use<>>, Miss> {
        if wanted.url.starts_with("data:") {
            return Ok(Waiting {
                bytes: wanted.url.len() as u64,
                place: Place::Url(wanted.url.clone()),
            });
        }
        let url = url::Url::parse(&wanted.url).map_err(|_| Miss::failed("the icon's URL can't be read"))?;
        let bounds = fetch::Limits {
            max_bytes: self.limits.bytes as u64,
            ..self.fetch_limits
        };
        let Answer { headers, body, .. } = self.session.send(&Request::new(url), &bounds).await?;
        let content_type = headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(Waiting {
            bytes: body.bytes,
            place: Place::Spool {
                content_type,
                reader: body.into_reader(),
            },
        })
    }
}

impl<R: Read + Seek> Waiting<R> {
    fn read(&mut self, limits: &Limits) -> Result<(Option<String>, Vec<u8>), Miss> {
        match &mut self.place {
            Place::Url(url) => icon::data_url(url, limits.bytes).map_err(Miss::from),
            Place::Spool { content_type, reader } => {
                let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or_default());
                reader
                    .rewind()
                    .and_then(|()| reader.read_to_end(&mut bytes))
                    .map_err(|_| Miss::Held(NO_ROOM))?;
                Ok((content_type.clone(), bytes))
            }
        }
    }
}

impl From<IconError> for Miss {
    fn from(error: IconError) -> Self {
        Self::Failed {
            message: error.to_string(),
            again: (error == IconError::Svg).then_some(SVG_RETRY),
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
    fn an_icon_is_not_to_blame_for_our_own_temporary_file() {
        let mut waiting = Waiting {
            bytes: 10,
            place: Place::Spool {
                content_type: None,
                reader: Unreadable,
            },
        };
        let read = waiting.read(&Limits::default());
        assert!(matches!(read, Err(Miss::Held(time)) if time == NO_ROOM));
    }
}
