//! Division of the objects among replicas: rendezvous hashing of UIDs over shards. Each replica owns some shards.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};

/// The shard whose holder does the work that is done once for all objects.
const PRIMARY: u32 = 0;

/// Clones share them. A shard is added when its Lease is taken; the process ends when it loses a Lease.
#[derive(Clone, Debug)]
pub struct Shards {
    count: u32,
    owned: Arc<RwLock<BTreeSet<u32>>>,
}

impl Shards {
    /// Returns a division without shards of this process.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self {
            count: count.max(1),
            owned: Arc::default(),
        }
    }

    #[must_use]
    pub fn all() -> Self {
        let shards = Self::new(1);
        shards.add(PRIMARY);
        shards
    }

    /// Returns true if there is nothing to divide.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.count == 1
    }

    pub fn add(&self, shard: u32) {
        self.owned.write().insert(shard);
    }

    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.owned.read().contains(&PRIMARY)
    }

    #[must_use]
    pub fn owns(&self, uid: &str) -> bool {
        let owned = self.owned.read();
        self.is_single() && !owned.is_empty() || owned.contains(&shard_of(uid, self.count))
    }
}

/// Another number of shards moves only the objects that a new shard takes, or that the removed shard had.
fn shard_of(uid: &str, count: u32) -> u32 {
    let hash = |shard: &u32| {
        Sha256::new()
            .chain_update(shard.to_be_bytes())
            .chain_update(uid)
            .finalize()
    };
    (0..count).max_by_key(hash).unwrap_or(PRIMARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: u32 = 3000;

    fn shards(count: u32) -> Vec<u32> {
        (0..OBJECTS)
            .map(|object| shard_of(&format!("uid-{object}"), count))
            .collect()
    }

    #[test]
    fn each_shard_has_a_similar_number_of_objects() {
        for count in 2..=6 {
            let shards = shards(count);
            for shard in 0..count {
                let objects = shards.iter().filter(|of| **of == shard).count();
                let expected = (OBJECTS / count) as usize;
                assert!(objects.abs_diff(expected) < expected / 4, "{objects} of {expected}");
            }
        }
    }

    #[test]
    fn one_more_shard_moves_only_the_objects_that_it_takes() {
        for count in 1..6 {
            let (before, after) = (shards(count), shards(count + 1));
            let moved: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
            assert!(moved.iter().all(|(_, shard)| **shard == count));
            assert!(moved.len() < (OBJECTS / count) as usize, "{}", moved.len());
        }
    }

    #[test]
    fn the_shard_of_an_object_never_changes() {
        let uid = "7f1c4f0e-6f0b-4a53-9d1b-2b6f3a0d9c11";
        assert_eq!([2, 3, 5, 16].map(|count| shard_of(uid, count)), EXPECTED);
    }

    /// Replicas of different releases divide the objects alike.
    const EXPECTED: [u32; 4] = [1, 2, 2, 2];

    #[test]
    fn an_object_is_owned_by_exactly_one_replica() {
        let replicas = [Shards::new(3), Shards::new(3), Shards::new(3)];
        replicas[0].add(1);
        replicas[0].add(2);
        replicas[1].add(0);
        for object in 0..100 {
            let uid = format!("uid-{object}");
            assert_eq!(replicas.iter().filter(|replica| replica.owns(&uid)).count(), 1);
        }
        assert_eq!(replicas.map(|replica| replica.is_primary()), [false, true, false]);
        assert!(Shards::all().owns("any") && Shards::all().is_primary());
        assert!(!Shards::new(1).owns("any"));
    }
}
