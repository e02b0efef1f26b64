use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between removals of keys that were not used lately: each looks at all keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A rate for each key. Keys beyond the maximum share one, so memory is bounded, and none evicts another.
///
/// The algorithm is that of governor (GCRA), whose tables of keys can't be bounded in this way.
pub(in crate::serve) struct RateTable<K> {
    /// Between two requests at the rate.
    interval: Duration,
    /// The time in which a burst is available again.
    burst: Duration,
    max_keys: usize,
    table: Mutex<Table<K>>,
}

struct Table<K> {
    /// The time at which all of the burst is available again. Keys without an entry have all of it.
    full_at: HashMap<K, Instant>,
    /// Of all keys beyond the maximum.
    others_full_at: Option<Instant>,
    swept: Option<Instant>,
}

impl<K: Copy + Eq + Hash> RateTable<K> {
    pub(in crate::serve) fn new(per_second: NonZeroU32, burst: NonZeroU32, max_keys: usize) -> Self {
        Self::with_interval(Duration::from_secs(1) / per_second.get(), burst, max_keys)
    }

    /// Admits a request each `interval`, and a burst after a pause.
    pub(in crate::serve) fn with_interval(interval: Duration, burst: NonZeroU32, max_keys: usize) -> Self {
        Self {
            interval,
            burst: interval.saturating_mul(burst.get()),
            max_keys,
            table: Mutex::new(Table {
                full_at: HashMap::new(),
                others_full_at: None,
                swept: None,
            }),
        }
    }

    /// Counts a request. If it exceeds the rate, returns the time to wait.
    pub(in crate::serve) fn check(&self, key: K) -> Result<(), Duration> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let full_at = table.slot(key, self.max_keys, now);
        let next = (*full_at).max(now) + self.interval;
        let wait = next.saturating_duration_since(now).saturating_sub(self.burst);
        if !wait.is_zero() {
            return Err(wait);
        }
        *full_at = next;
        Ok(())
    }
}

impl<K: Copy + Eq + Hash> Table<K> {
    fn slot(&mut self, key: K, max_keys: usize, now: Instant) -> &mut Instant {
        let has_place = self.full_at.contains_key(&key) || self.make_place(max_keys, now);
        if has_place {
            self.full_at.entry(key).or_insert(now)
        } else {
            self.others_full_at.get_or_insert(now)
        }
    }

    fn make_place(&mut self, max_keys: usize, now: Instant) -> bool {
        let is_recent = self.swept.is_some_and(|swept| now < swept + SWEEP_INTERVAL);
        if self.full_at.len() >= max_keys && !is_recent {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept = Some(now);
        }
        self.full_at.len() < max_keys
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn table(max_keys: usize) -> RateTable<u32> {
        let (rate, burst) = (NonZeroU32::new(50).unwrap(), NonZeroU32::new(200).unwrap());
        RateTable::new(rate, burst, max_keys)
    }

    fn admitted(table: &RateTable<u32>, key: u32, requests: usize) -> usize {
        (0..requests).filter(|_| table.check(key).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_has_a_burst_and_then_a_rate() {
        let table = table(4096);
        assert_eq!(admitted(&table, 1, 300), 200);
        assert_eq!(table.check(1), Err(Duration::from_millis(20)));
        assert_eq!(admitted(&table, 2, 300), 200);
        advance(Duration::from_secs(1)).await;
        assert_eq!(admitted(&table, 1, 300), 50);
        advance(Duration::from_secs(60)).await;
        assert_eq!(admitted(&table, 1, 300), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_the_maximum_share_a_rate_and_evict_none() {
        let table = table(3);
        assert_eq!(admitted(&table, 0, 300), 200);
        for key in 1..3 {
            assert_eq!(admitted(&table, key, 1), 1);
        }
        let others: usize = (3..1000).map(|key| admitted(&table, key, 1)).sum();
        assert_eq!(others, 200);
        assert_eq!([admitted(&table, 0, 1), admitted(&table, 1, 1)], [0, 1]);
        assert_eq!(table.table.lock().full_at.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_have_all_of_their_burst_give_way() {
        let table = table(3);
        for key in 0..3 {
            admitted(&table, key, 1);
        }
        admitted(&table, 0, 200);
        assert_eq!(admitted(&table, 3, 300), 200);
        advance(SWEEP_INTERVAL).await;
        assert_eq!(admitted(&table, 4, 300), 200);
        assert_eq!(table.table.lock().full_at.len(), 2);
    }
}
