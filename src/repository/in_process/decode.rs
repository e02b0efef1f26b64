//! Decoding an index, and judging whether it is believed.

use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::{Decoded, Found, Run, spool_failed};
use crate::catalog::Refused;
use crate::repository::decide::is_lost;
use crate::repository::declaration::Declaration;
use crate::repository::execute::AttemptError;
use crate::repository::rows::{self, Pushed, Spool};
use crate::repository::{SHRINK_REFUSED, guard};
use crate::source::fetch::Body;
use crate::source::index::{self, Chart, DecodeError, Sink};

impl Run<'_> {
    /// Decodes off the threads that serve everybody else: an index may take a second.
    pub(super) async fn decode(&self, body: Body) -> Result<Found, AttemptError> {
        let mut sink = RowSink {
            declaration: self.attempt.declaration.clone(),
            cancel: self.cancel.clone(),
            spool: Spool::new(self.tools.spool_dir.as_deref()),
            spool_dir: self.tools.spool_dir.clone(),
            twins: Vec::new(),
        };
        let (sha256, validators) = (body.sha256.clone(), body.validators.clone());
        let limits = self.tools.decode_limits;
        let task = tokio::task::spawn_blocking(move || {
            let result = index::decode(body.into_reader(), &limits, &mut sink);
            (result, sink)
        });
        let (result, RowSink { spool, twins, .. }) = match task.await {
            Ok(done) => done,
            // The same bytes would do it again, so this is as good as a refusal by the rules.
            Err(error) if error.is_panic() => {
                tracing::error!(repository = %self.attempt.declaration.name, sha256, "the decoder has panicked over an index");
                let message =
                    "the index can't be decoded because of a defect in Portolan; please report it, with the index";
                return Ok(Found::Refused(self.refuse(
                    validators,
                    sha256,
                    "DecoderFailed",
                    message.to_owned(),
                )));
            }
            Err(_) => return Err(AttemptError::Cancelled),
        };
        Ok(match result {
            Ok(mut summary) => {
                for chart in twins {
                    summary
                        .skipped
                        .add(&chart, None, "another chart of the index has the same name");
                }
                self.judge(Decoded {
                    spool,
                    summary,
                    sha256,
                    validators,
                })
            }
            Err(DecodeError::Sink(SinkError::Cancelled)) => return Err(AttemptError::Cancelled),
            Err(DecodeError::Sink(SinkError::Spool(error))) => Found::Failed(spool_failed(&error)),
            Err(DecodeError::Read(error)) => Found::Failed(spool_failed(&error)),
            Err(error) => Found::Refused(self.refuse(validators, sha256, error.reason(), error.to_string())),
        })
    }

    /// Whether the index is believed.
    fn judge(&self, decoded: Decoded) -> Found {
        let declaration = &self.attempt.declaration;
        // Another URL, type or list of OCI repositories has another size; and a catalogue that has lost its charts is filled
        // again with whatever there is.
        let baseline = (self.attempt.previous.as_ref())
            .filter(|previous| declaration.change_key.has_source_of(&previous.change_key) && !is_lost(previous))
            .and_then(|previous| previous.baseline.as_ref());
        match guard::check(baseline, &decoded.summary, declaration.allow_shrink.as_deref()) {
            Ok(()) => Found::Index(Box::new(decoded)),
            Err(shrunk) => {
                let refused = self.refuse(decoded.validators, decoded.sha256, SHRINK_REFUSED, shrunk.to_string());
                Found::Refused(Refused {
                    confirm: Some(shrunk.digest().to_owned()),
                    ..refused
                })
            }
        }
    }
}

/// Makes rows of charts and keeps them for writing.
struct RowSink {
    declaration: Declaration,
    cancel: CancellationToken,
    spool: Spool,
    spool_dir: Option<PathBuf>,
    /// Charts whose identifier another one has taken.
    twins: Vec<String>,
}

impl Sink for RowSink {
    type Error = SinkError;

    fn chart(&mut self, chart: Chart) -> Result<(), SinkError> {
        if self.cancel.is_cancelled() {
            return Err(SinkError::Cancelled);
        }
        let row = rows::row(&self.declaration, chart);
        if self.spool.push(&row).map_err(SinkError::Spool)? == Pushed::Duplicate {
            self.twins.push(row.info.name);
        }
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), SinkError> {
        self.spool = Spool::new(self.spool_dir.as_deref());
        self.twins.clear();
        Ok(())
    }
}

/// Why a chart could not be kept for writing.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("the sync was cancelled")]
    Cancelled,
    #[error("{0}")]
    Spool(io::Error),
}
