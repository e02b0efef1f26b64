//! Limits of the `deploy` steps of an application, which tenants write.

use serde::Serialize;

use super::PlacementError;

/// Maximum number of components that the steps of an application deploy, counted at each of their places.
pub(super) const MAX_PLACED: usize = 5_000;
/// Maximum size of these components as JSON, counted at each of their places, and of the policies that steps name.
const MAX_BYTES: usize = 32 << 20;
/// Maximum number of comparisons of a change with a component: as many as one step may need.
const MAX_COMPARISONS: usize = 500_000;

pub(super) fn check_limit(count: usize, what: &'static str, limit: usize) -> Result<(), PlacementError> {
    if count <= limit {
        Ok(())
    } else {
        Err(PlacementError::TooMany { count, what, limit })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlacementUsage {
    placed: usize,
    bytes: usize,
    comparisons: usize,
}

impl PlacementUsage {
    pub(super) fn add_placed(&mut self, count: usize) -> Result<(), PlacementError> {
        add(&mut self.placed, count, "components and placements", MAX_PLACED)
    }

    pub(super) fn add_bytes(&mut self, count: usize) -> Result<(), PlacementError> {
        let what = "bytes of components at their placements, with their policies,";
        add(&mut self.bytes, count, what, MAX_BYTES)
    }

    pub(super) fn add_comparisons(&mut self, count: usize) -> Result<(), PlacementError> {
        let what = "comparisons of overrides with components";
        add(&mut self.comparisons, count, what, MAX_COMPARISONS)
    }
}

fn add(used: &mut usize, count: usize, what: &'static str, limit: usize) -> Result<(), PlacementError> {
    *used = used.saturating_add(count);
    if *used <= limit {
        Ok(())
    } else {
        Err(PlacementError::TooLarge {
            count: *used,
            what,
            limit,
        })
    }
}

pub(super) fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}
