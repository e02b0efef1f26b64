//! Limits of what all repositories share.

use std::num::NonZeroU32;

use clap::Args;

use super::parse::bytes;
use crate::budget::{self, Budgets, Sizes};
use crate::cmd::Error;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Resources")]
pub struct ResourceFlags {
    /// Memory of decoding, filters and chart files together (default: half of the container's limit, with the controller
    /// oam a third of what its evaluators leave; 256Mi without a limit)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Maximum number of threads that decode, filter or unpack (default: the cores of the container, at most 8, and at
    /// most one for each 64Mi of --memory-budget)
    #[arg(long, value_name = "N")]
    pub cpu_permits: Option<NonZeroU32>,
    /// Maximum size of all temporary files together
    #[arg(long, value_name = "BYTES", default_value = "1Gi", value_parser = bytes)]
    pub spool_limit: u64,
}

impl ResourceFlags {
    pub fn budgets(&self) -> Result<Budgets, Error> {
        let sizes = self.sizes(budget::memory_limit())?;
        tracing::debug!(
            memory = sizes.memory,
            cpu_permits = sizes.cpu_permits,
            spool = sizes.spool,
            "budgets"
        );
        Ok(Budgets::new(sizes))
    }

    /// Returns the flags for a process with the controller oam. Its caches take as much as five eighths of the budget besides, and
    /// its evaluators, which are other processes in the container, take `evaluators` bytes.
    #[must_use]
    pub fn with_oam(&self, evaluators: u64) -> Self {
        self.with_oam_within(evaluators, budget::memory_limit())
    }

    fn with_oam_within(&self, evaluators: u64, container: Option<u64>) -> Self {
        let default = container.map(|limit| (limit.saturating_sub(evaluators) / 3).max(Sizes::MIN_MEMORY));
        Self {
            memory_budget: self.memory_budget.or(default),
            ..self.clone()
        }
    }

    fn sizes(&self, container: Option<u64>) -> Result<Sizes, Error> {
        let by_container = container.map(|limit| limit / 2);
        let memory = self.memory_budget.or(by_container).unwrap_or(Sizes::DEFAULT_MEMORY);
        if memory < Sizes::MIN_MEMORY {
            let origin = match (self.memory_budget, container) {
                (None, Some(limit)) => format!(", half of the container's limit of {limit},"),
                _ => String::new(),
            };
            return Err(Error::Usage(format!(
                "the memory budget of {memory} bytes{origin} is below the minimum of {}; raise the limit of the container or --memory-budget",
                Sizes::MIN_MEMORY
            )));
        }
        Ok(Sizes {
            memory,
            cpu_permits: match self.cpu_permits {
                Some(permits) => u64::from(permits.get()),
                None => Sizes::cpu_permits(memory),
            },
            spool: self.spool_limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        resources: ResourceFlags,
    }

    fn sizes(flags: &[&str], container: Option<u64>) -> Result<Sizes, Error> {
        let arguments = ["test"].iter().chain(flags);
        Test::try_parse_from(arguments).unwrap().resources.sizes(container)
    }

    #[test]
    fn the_default_is_half_of_the_container() {
        assert_eq!(sizes(&[], None).unwrap().memory, 256 * MIB);
        assert_eq!(sizes(&[], Some(100 * MIB)).unwrap().memory, 50 * MIB);
        assert_eq!(
            sizes(&["--memory-budget=64Mi"], Some(100 * MIB)).unwrap().memory,
            64 * MIB
        );
    }

    #[test]
    fn a_budget_below_the_minimum_is_refused_with_its_origin() {
        let Err(Error::Usage(message)) = sizes(&[], Some(40 * MIB)) else {
            panic!("it was accepted")
        };
        assert!(
            message.contains("20971520 bytes, half of the container's limit of 41943040"),
            "{message}"
        );
        assert!(sizes(&["--memory-budget=31Mi"], None).is_err());
        assert!(sizes(&["--memory-budget=32Mi"], None).is_ok());
    }

    #[test]
    fn the_controller_oam_leaves_memory_to_its_caches_and_evaluators() {
        let of = |flags: &[&str], container| {
            let arguments = ["test"].iter().chain(flags);
            let flags = Test::try_parse_from(arguments).unwrap().resources;
            flags
                .with_oam_within(256 * MIB, container)
                .sizes(container)
                .unwrap()
                .memory
        };
        let limit = 512 * MIB;
        let budget = of(&[], Some(limit));
        // Tags of registries and results take a quarter each, cached objects three eighths.
        assert!(budget + 7 * budget / 8 + 256 * MIB + 40 * MIB <= limit);
        assert!(budget > 80 * MIB);
        assert_eq!(of(&[], Some(128 * MIB)), 32 * MIB);
        assert_eq!(of(&[], None), 256 * MIB);
        assert_eq!(of(&["--memory-budget=64Mi"], Some(limit)), 64 * MIB);
    }

    #[test]
    fn each_cpu_permit_has_memory() {
        assert_eq!(sizes(&["--memory-budget=100Mi"], None).unwrap().cpu_permits, 1);
        assert_eq!(sizes(&["--cpu-permits=9"], None).unwrap().cpu_permits, 9);
        assert!((1..=8).contains(&sizes(&["--memory-budget=100Gi"], None).unwrap().cpu_permits));
    }
}
