//! From the chunks of an answer to a body: counted, unpacked, counted again.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header;

use super::body::{Body, Spool};
use super::error::FetchError;
use super::{Limits, Validators, connect_error as classify};
use crate::text::{printable, truncate};

/// Compressed bytes that are unpacked at a time: deflate makes at most 1,032 times as much of them, which is hashed and
/// written before others get their turn. What is not packed is passed on as it comes.
const PIECE: usize = 8 * 1024;

/// Whether a body has to be unpacked. What was not asked for and would have to be is refused, not guessed at.
pub(super) fn is_packed(response: &Response, url: &str, verbatim: bool) -> Result<bool, FetchError> {
    let values = response.headers().get_all(header::CONTENT_ENCODING).iter();
    let values: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_lowercase())
        .collect();
    match values.join(", ").as_str() {
        "" | "identity" => Ok(false),
        // Some servers say so of every .tgz, meaning the archive itself.
        "gzip" | "x-gzip" => Ok(!verbatim),
        other => Err(FetchError::Encoding {
            url: url.to_owned(),
            encoding: truncate(&printable(other), 100),
        }),
    }
}

/// Takes a body in, under the limits of bytes and of silence.
pub(super) async fn receive(
    mut response: Response,
    spool: Spool,
    url: &str,
    is_packed: bool,
    validators: Validators,
    limits: &Limits,
) -> Result<Body, FetchError> {
    let too_large = |seen: u64| FetchError::TooLarge {
        what: url.to_owned(),
        limit: limits.max_bytes,
        seen,
        validators: validators.clone(),
    };
    let cut_short = |bytes: u64, detail: String| FetchError::CutShort {
        url: url.to_owned(),
        bytes,
        detail,
    };
    if let Some(length) = response.content_length().filter(|length| *length > limits.max_bytes) {
        return Err(too_large(length));
    }
    let mut incoming = Incoming::Plain(Box::new(Sink {
        spool,
        what: url.to_owned(),
        failure: None,
    }));
    let mut on_the_wire = 0;
    loop {
        let chunk = tokio::time::timeout(limits.stall, response.chunk()).await;
        let chunk = chunk.map_err(|_| FetchError::Stalled {
            url: url.to_owned(),
            limit: limits.stall,
            bytes: on_the_wire,
        })?;
        let Some(chunk) = chunk.map_err(|error| cut_short(on_the_wire, classify::innermost(&error)))? else {
            let spool = incoming
                .finish(|detail| cut_short(on_the_wire, detail))
                .map_err(|error| error.of_body_with(&validators))?;
            return spool.finish(validators);
        };
        if on_the_wire == 0 && is_packed {
            // Only now: a body without any bytes is no gzip stream, and is empty all the same.
            incoming = incoming.packed();
        }
        on_the_wire += chunk.len() as u64;
        if on_the_wire > limits.max_bytes {
            return Err(too_large(on_the_wire));
        }
        for piece in chunk.chunks(if is_packed { PIECE } else { usize::MAX }) {
            incoming
                .push(piece, |detail| cut_short(on_the_wire, detail))
                .map_err(|error| error.of_body_with(&validators))?;
            if is_packed {
                // A bomb takes its time; the deadline of the whole is seen in between.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// A body on its way into the spool.
enum Incoming {
    Plain(Box<Sink>),
    Packed(Box<MultiGzDecoder<Box<Sink>>>),
}

impl Incoming {
    fn packed(self) -> Self {
        match self {
            Self::Plain(sink) => Self::Packed(Box::new(MultiGzDecoder::new(sink))),
            packed @ Self::Packed(_) => packed,
        }
    }

    /// Takes a piece. `cut_short` makes the error of compression that is broken.
    fn push(&mut self, piece: &[u8], cut_short: impl FnOnce(String) -> FetchError) -> Result<(), FetchError> {
        let (written, sink) = match self {
            Self::Plain(sink) => (sink.write_all(piece), sink),
            Self::Packed(decoder) => (decoder.write_all(piece), decoder.get_mut()),
        };
        written.map_err(|error| sink.failure.take().unwrap_or_else(|| cut_short(error.to_string())))
    }

    fn finish(self, cut_short: impl Fn(String) -> FetchError) -> Result<Spool, FetchError> {
        match self {
            Self::Plain(sink) => Ok(sink.spool),
            Self::Packed(mut decoder) => {
                if let Err(error) = decoder.try_finish() {
                    let failure = decoder.get_mut().failure.take();
                    return Err(failure.unwrap_or_else(|| cut_short(error.to_string())));
                }
                let sink = decoder.finish().map_err(|error| cut_short(error.to_string()))?;
                Ok(sink.spool)
            }
        }
    }
}

/// The spool as the decoder wants it, which keeps our error beside the system's.
struct Sink {
    spool: Spool,
    what: String,
    failure: Option<FetchError>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.spool.push(bytes, || self.what.clone()) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.failure = Some(error);
                Err(io::Error::other("the body can't be kept"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
