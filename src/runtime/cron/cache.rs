//! Cache of parsed intervals: an object is reconciled often, and its interval rarely changes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Cron, IntervalError, parse};

const MAX_ENTRIES: usize = 1000;

#[derive(Clone, Debug, Default)]
pub struct Intervals(Arc<Mutex<HashMap<String, Arc<Cron>>>>);

impl Intervals {
    pub fn parse(&self, text: &str) -> Result<Arc<Cron>, IntervalError> {
        if let Some(cron) = self.0.lock().get(text) {
            return Ok(Arc::clone(cron));
        }
        let cron = Arc::new(parse(text)?);
        let mut entries = self.0.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(text.to_owned(), Arc::clone(&cron));
        Ok(cron)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_intervals_are_cached_and_invalid_ones_are_not() {
        let intervals = Intervals::default();
        let first = intervals.parse("*/5 * * * *").unwrap();
        assert!(Arc::ptr_eq(&first, &intervals.clone().parse("*/5 * * * *").unwrap()));
        assert_ne!(first, intervals.parse("*/6 * * * *").unwrap());
        for _ in 0..2 {
            assert!(intervals.parse("now and then").is_err());
        }
    }

    #[test]
    fn the_cache_is_cleared_at_its_limit() {
        let intervals = Intervals::default();
        for number in 0..=MAX_ENTRIES {
            let (minute, hour) = (number % 60, number / 60);
            assert!(intervals.parse(&format!("{minute} {hour} * * *")).is_ok());
        }
        assert_eq!(intervals.0.lock().len(), 1);
    }
}
