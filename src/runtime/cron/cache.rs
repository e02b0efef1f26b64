//! Intervals that were read before: an object is looked at again and again, and its interval stays the same.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Cron, IntervalError, parse};

/// Texts that are kept. More would be others each time, so then all are read anew.
const KEPT: usize = 1000;

/// Reads each interval once. A handle, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Intervals(Arc<Mutex<HashMap<String, Arc<Cron>>>>);

impl Intervals {
    /// As [`parse`].
    ///
    /// # Errors
    /// As of [`parse`].
    pub fn parse(&self, text: &str) -> Result<Arc<Cron>, IntervalError> {
        let lock = || self.0.lock();
        if let Some(cron) = lock().get(text) {
            return Ok(Arc::clone(cron));
        }
        let cron = Arc::new(parse(text)?);
        let mut known = lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(&cron));
        Ok(cron)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_once_and_what_is_none_is_told_each_time() {
        let intervals = Intervals::default();
        let first = intervals.parse("*/5 * * * *").unwrap();
        assert!(Arc::ptr_eq(&first, &intervals.clone().parse("*/5 * * * *").unwrap()));
        assert_ne!(first, intervals.parse("*/6 * * * *").unwrap());
        for _ in 0..2 {
            assert!(intervals.parse("now and then").is_err());
        }
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let intervals = Intervals::default();
        for number in 0..=KEPT {
            let (minute, hour) = (number % 60, number / 60);
            assert!(intervals.parse(&format!("{minute} {hour} * * *")).is_ok());
        }
        assert_eq!(intervals.0.lock().len(), 1);
    }
}
