use crate::controllers::oam::trackers::Refusal;

const MAX_NAMED: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The older trackers must not be deleted.
    #[error("error encountered during garbage collection: {0}")]
    Refused(#[from] Refusal),
    #[error("error encountered during garbage collection: {0}")]
    Failed(String),
}

#[derive(Debug, Default)]
pub(super) struct CollectFailures {
    named: Vec<String>,
    unnamed: usize,
}

impl CollectFailures {
    pub fn push(&mut self, failure: String) {
        if self.named.len() < MAX_NAMED {
            self.named.push(failure);
        } else {
            self.unnamed += 1;
        }
    }

    pub fn result(self) -> Result<(), CollectError> {
        if self.named.is_empty() {
            return Ok(());
        }
        let mut text = self.named.join("; ");
        if self.unnamed > 0 {
            text = format!("{text}; and {} more", self.unnamed);
        }
        Err(CollectError::Failed(text))
    }
}
