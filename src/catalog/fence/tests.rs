use std::cmp::Ordering;

use super::*;

fn lease(created: i64, transitions: i64, holder: &str) -> HeldLease {
    HeldLease {
        origin: "cluster".to_owned(),
        name: "kubeapps/portolan".to_owned(),
        generation: LeaseGeneration { created, transitions },
        holder: holder.to_owned(),
    }
}

#[test]
fn a_lease_that_was_deleted_and_created_again_has_a_newer_generation() {
    let again = lease(200, 0, "b");
    let verdict = |created, transitions, holder| again.verdict(LeaseGeneration { created, transitions }, holder);
    assert_eq!(verdict(100, 7, "a"), FenceVerdict::Outdated);
    assert_eq!(verdict(200, 0, "b"), FenceVerdict::Current);
    assert_eq!(verdict(200, 0, "a"), FenceVerdict::Fenced);
    assert_eq!(verdict(200, 1, "a"), FenceVerdict::Fenced);
    assert_eq!(verdict(201, 0, "a"), FenceVerdict::Fenced);
}

/// A process of the model: the Lease as it holds it, and the instant at which it believes to lose it.
#[derive(Clone)]
struct Process {
    held: Option<(HeldLease, u64)>,
    sleeps_until: u64,
}

/// The Lease, its holder and the database's row.
struct Model {
    now: u64,
    lease: Option<(LeaseGeneration, usize, u64)>,
    row: Option<HeldLease>,
    /// The generations of committed writes.
    writes: Vec<LeaseGeneration>,
    refused: usize,
    processes: Vec<Process>,
}

const DURATION: u64 = 15;
const DEADLINE: u64 = 10;

impl Model {
    fn new(processes: usize) -> Self {
        let process = Process {
            held: None,
            sleeps_until: 0,
        };
        Self {
            now: 1,
            lease: None,
            row: None,
            writes: Vec::new(),
            refused: 0,
            processes: vec![process; processes],
        }
    }

    /// Takes or renews the Lease, as far as the API server permits.
    fn contend(&mut self, process: usize) {
        let generation = match self.lease {
            None => LeaseGeneration {
                created: i64::try_from(self.now).unwrap(),
                transitions: 0,
            },
            Some((generation, holder, _)) if holder == process && self.processes[process].held.is_some() => generation,
            Some((_, _, renewed)) if self.now < renewed + DURATION => return,
            Some((generation, _, _)) => LeaseGeneration {
                transitions: generation.transitions + 1,
                ..generation
            },
        };
        self.lease = Some((generation, process, self.now));
        let held = lease(generation.created, generation.transitions, &process.to_string());
        self.processes[process].held = Some((held, self.now + DEADLINE));
    }

    /// Commits a transaction of a process that believes to lead, or of one that has just woken.
    fn write(&mut self, process: usize) {
        let Some((held, _)) = self.processes[process].held.clone() else {
            return;
        };
        let verdict = self
            .row
            .as_ref()
            .map_or(FenceVerdict::Outdated, |row| held.verdict(row.generation, &row.holder));
        match verdict {
            FenceVerdict::Current => self.writes.push(held.generation),
            FenceVerdict::Outdated => {
                self.writes.push(held.generation);
                self.row = Some(held);
            }
            FenceVerdict::Fenced => {
                self.refused += 1;
                self.processes[process].held = None;
            }
        }
    }

    fn step(&mut self, process: usize, action: u64) {
        match action {
            0 => self.lease = None, // deleted by a user
            1 => self.processes[process].sleeps_until = self.now + 4 * DURATION,
            2..=4 => self.now += 1 + action,
            _ => {}
        }
        if self.now < self.processes[process].sleeps_until {
            return;
        }
        match action {
            5..=9 => self.contend(process),
            // Without a look at the deadline: the process was suspended between the look and the write.
            10.. => self.write(process),
            _ => {}
        }
    }
}

/// The next number of a generator that needs no crate (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn no_interleaving_lets_an_older_leader_write_after_a_newer_one() {
    let (mut refused, mut written) = (0, 0);
    for seed in 1..2000_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut model = Model::new(3);
        for _ in 0..300 {
            let number = next(&mut state);
            model.step(usize::try_from(number % 3).unwrap(), (number >> 8) % 16);
        }
        let is_ordered = |pair: &[LeaseGeneration]| pair[0].cmp(&pair[1]) != Ordering::Greater;
        assert!(
            model.writes.windows(2).all(is_ordered),
            "seed {seed}: {:?}",
            model.writes
        );
        refused += model.refused;
        written += model.writes.len();
    }
    assert!(
        refused > 1000 && written > 10_000,
        "the model exercises too little: {refused}, {written}"
    );
}
