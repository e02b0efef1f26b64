//! Reads and decompresses response bodies within their limits.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header;
use tokio::time::{Instant, timeout_at};

use super::body::{Body, BodySpool};
use super::error::FetchError;
use super::{FetchLimits, RequestTracker, Validators, error};
use crate::text::{printable, truncate};

/// Compressed bytes decompressed between two yields to the runtime. Deflate expands them at most 1,032 times.
const GZIP_CHUNK: usize = 1024;

pub(super) fn is_gzip(response: &Response, url: &str, verbatim: bool) -> Result<bool, FetchError> {
    let values = response.headers().get_all(header::CONTENT_ENCODING).iter();
    let values: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_lowercase())
        .collect();
    match values.join(", ").as_str() {
        "" | "identity" => Ok(false),
        // Some servers set it for every .tgz, meaning the archive itself.
        "gzip" | "x-gzip" => Ok(!verbatim),
        other => Err(FetchError::Encoding {
            url: url.to_owned(),
            encoding: truncate(&printable(other), 100),
        }),
    }
}

/// Bytes per second below which a transfer is stalled, as with curl's `--speed-limit`.
const MIN_SPEED: u64 = 1024;

/// Each time that `stall` passes, the body must have brought [`MIN_SPEED`] times its seconds.
pub(super) async fn read_body(
    mut response: Response,
    spool: BodySpool,
    url: &str,
    is_gzip: bool,
    validators: Validators,
    limits: &FetchLimits,
    tracker: &RequestTracker,
) -> Result<Body, FetchError> {
    let too_large = |actual: u64| FetchError::TooLarge {
        name: url.to_owned(),
        limit: limits.max_bytes,
        actual,
        validators: validators.clone(),
    };
    let interrupted = |bytes: u64, detail: String| FetchError::Interrupted {
        url: url.to_owned(),
        bytes,
        detail,
    };
    if let Some(length) = response.content_length().filter(|length| *length > limits.max_bytes) {
        return Err(too_large(length));
    }
    let aborted = spool.aborted();
    tokio::pin!(aborted);
    let mut decoder = Decoder::Identity(Box::new(spool));
    let mut received = 0;
    let least = MIN_SPEED.saturating_mul(limits.stall.as_secs()).max(1);
    let mut deadline = Instant::now() + limits.stall;
    let mut due = least;
    loop {
        let chunk = tokio::select! {
            error = &mut aborted => return Err(error),
            chunk = timeout_at(deadline, response.chunk()) => chunk,
        }
        .map_err(|_| FetchError::Stalled {
            url: url.to_owned(),
            limit: limits.stall,
            bytes: received,
        })?;
        let Some(chunk) = chunk.map_err(|error| interrupted(received, error::root_cause(&error)))? else {
            let spool = decoder
                .finish(|detail| interrupted(received, detail))
                .map_err(|error| error.with_validators(&validators))?;
            return spool.finish(validators);
        };
        if received == 0 && is_gzip {
            // Only now, because an empty body is valid but not a gzip stream.
            decoder = decoder.into_gzip();
        }
        received += chunk.len() as u64;
        tracker.received(chunk.len() as u64);
        if received >= due {
            deadline = Instant::now() + limits.stall;
            due = received.saturating_add(least);
        }
        if received > limits.max_bytes {
            return Err(too_large(received));
        }
        for piece in chunk.chunks(if is_gzip { GZIP_CHUNK } else { usize::MAX }) {
            decoder
                .push(piece, |detail| interrupted(received, detail))
                .map_err(|error| error.with_validators(&validators))?;
            if is_gzip {
                // Lets the total timeout interrupt a decompression bomb.
                tokio::task::yield_now().await;
            }
        }
    }
}

enum Decoder {
    Identity(Box<BodySpool>),
    Gzip(Box<MultiGzDecoder<Box<BodySpool>>>),
}

impl Decoder {
    fn into_gzip(self) -> Self {
        match self {
            Self::Identity(spool) => Self::Gzip(Box::new(MultiGzDecoder::new(spool))),
            gzip @ Self::Gzip(_) => gzip,
        }
    }

    /// Decodes a chunk. `interrupted` builds the error of an invalid gzip stream.
    fn push(&mut self, piece: &[u8], interrupted: impl FnOnce(String) -> FetchError) -> Result<(), FetchError> {
        match self {
            Self::Identity(spool) => spool.push(piece),
            Self::Gzip(decoder) => decoder
                .write_all(piece)
                .map_err(|error| spool_error(error, interrupted)),
        }
    }

    fn finish(self, interrupted: impl FnOnce(String) -> FetchError) -> Result<BodySpool, FetchError> {
        match self {
            Self::Identity(spool) => Ok(*spool),
            Self::Gzip(decoder) => match decoder.finish() {
                Ok(spool) => Ok(*spool),
                Err(error) => Err(spool_error(error, interrupted)),
            },
        }
    }
}

/// Returns the error that the spool reported through the decoder, or else the error of an invalid gzip stream.
fn spool_error(error: io::Error, interrupted: impl FnOnce(String) -> FetchError) -> FetchError {
    error
        .downcast::<FetchError>()
        .unwrap_or_else(|error| interrupted(error.to_string()))
}
