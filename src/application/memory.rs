//! What was written last: the store shows a write only after a while, and what it shows meanwhile must not be taken for what is
//! there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::known::{Known, Said};
use crate::informer::ObjectName;

/// The statuses that were written last. A handle: clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<HashMap<ObjectName, Written>>>);

#[derive(Debug)]
struct Written {
    uid: Option<String>,
    /// The version of the object that the store showed when the status was written.
    seen: Option<String>,
    /// The version that the write has made.
    version: Option<String>,
    at: Instant,
    said: Said,
}

impl Memory {
    /// What the status of an Application says as far as is known: what was written last, unless the store has shown another version
    /// since.
    #[must_use]
    pub fn said_of(&self, name: &ObjectName, application: &Known) -> Option<Said> {
        let meta = &application.metadata;
        match self.lock().get(name) {
            Some(written) if written.uid == meta.uid && written.seen == meta.resource_version => {
                Some(written.said.clone())
            }
            _ => application.said.clone(),
        }
    }

    /// Whether this status was written last. If so it is shared with what the store shows, and held once.
    #[must_use]
    pub fn holds(&self, name: &ObjectName, application: &Known) -> bool {
        let mut memory = self.lock();
        let written = memory
            .get_mut(name)
            .filter(|written| written.uid == application.metadata.uid);
        let Some((written, said)) = written.zip(application.said.as_ref()) else {
            return false;
        };
        let holds = written.said == *said;
        if holds {
            written.said = said.clone();
        }
        holds
    }

    /// The newest version of an Application that is known.
    #[must_use]
    pub fn version_of(&self, name: &ObjectName, application: &Known) -> Option<String> {
        let meta = &application.metadata;
        match self.lock().get(name) {
            Some(written) if written.uid == meta.uid && written.seen == meta.resource_version => {
                written.version.clone()
            }
            _ => meta.resource_version.clone(),
        }
    }

    /// How long ago a status was written.
    #[must_use]
    pub fn age(&self, name: &ObjectName) -> Option<Duration> {
        self.lock().get(name).map(|written| written.at.elapsed())
    }

    /// Notes that a status that says this was written to what the store shows as `application`, which is now of `version`.
    pub fn note(&self, name: ObjectName, application: &Known, version: Option<String>, said: Said) {
        let written = Written {
            uid: application.metadata.uid.clone(),
            seen: application.metadata.resource_version.clone(),
            version,
            at: Instant::now(),
            said,
        };
        self.lock().insert(name, written);
    }

    /// Takes the memory of an object away that is gone.
    pub fn forget(&self, name: &ObjectName) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, Written>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
