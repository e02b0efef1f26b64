/// Rejects a hostile index (YAML bomb, a million versions) early. By default, 100 MiB with 25,000 versions pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Keys under `entries`, including skipped ones.
    pub charts: u64,
    pub versions_per_chart: u64,
    /// Allocated bytes of the versions of a chart. Bounds the decoder's memory.
    pub chart_bytes: u64,
    pub depth: usize,
    pub nodes: u64,
    pub scalar_bytes: u64,
    /// Bytes of anchored nodes (`&name`), which stay in memory until the end.
    pub anchored_bytes: u64,
    /// Nodes behind all aliases (`*name`), counted per use.
    pub aliased_nodes: u64,
    pub aliased_bytes: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            charts: 100_000,
            versions_per_chart: 50_000,
            // The largest known row is 345 KB; 25,000 versions with long URLs take about 10 MiB.
            chart_bytes: 12 * MIB,
            depth: 32,
            // 100 MiB divided by 5 bytes, the shortest useful node.
            nodes: 20_000_000,
            scalar_bytes: MIB,
            anchored_bytes: 4 * MIB,
            // 25,000 versions that share maintainers, keywords and a merged map use about 1.5 million.
            aliased_nodes: 5_000_000,
            aliased_bytes: 128 * MIB,
        }
    }
}

/// Levels above the content of a chart version: index, `entries`, version list, version.
pub(super) const LEVELS_ABOVE: usize = 4;

impl DecodeLimits {
    /// For each byte of [`DecodeLimits::chart_bytes`]: the chart, its row, their spare capacity, and the row as JSON.
    pub const MEMORY_FACTOR: u64 = 5;

    /// Lowers the limits until a decode needs at most `memory` bytes.
    #[must_use]
    pub fn within(memory: u64) -> Self {
        let default = Self::default();
        let chart_bytes = default.chart_bytes.min(memory / Self::MEMORY_FACTOR);
        Self {
            chart_bytes,
            anchored_bytes: default.anchored_bytes.min(chart_bytes / 4),
            ..default
        }
    }

    /// For one scalar (JSON may escape each byte with six) or one JSON version. Bounds the parser's own buffers.
    pub(super) const fn max_bytes_without_progress(&self) -> u64 {
        self.scalar_bytes.saturating_mul(6)
    }
}
