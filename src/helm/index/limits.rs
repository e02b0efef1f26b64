//! What an index may cost.

/// Bounds on what decoding an index takes, so that a hostile one (a YAML bomb, a chart with a million versions) is
/// refused while it is still cheap. The defaults leave room for an index of 100 MiB with 25,000 versions of one chart.
///
/// Each bound that is broken is named in the error, [`DecodeError::TooComplex`](super::DecodeError::TooComplex).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Names under `entries`, those that are skipped included.
    pub charts: u64,
    /// Versions of one chart, those that are skipped included.
    pub versions_per_chart: u64,
    /// Bytes of text that one chart may keep: what bounds the decoder's memory.
    pub chart_bytes: u64,
    /// How deep lists and maps may nest below a chart version.
    pub depth: usize,
    /// Scalars, lists and maps in the whole index.
    pub nodes: u64,
    /// Bytes of one text.
    pub scalar_bytes: u64,
    /// Bytes of all that carries an anchor (`&name`), since it is kept until the end.
    pub anchored_bytes: u64,
    /// Nodes that all aliases (`*name`) of the index stand for, each counted as often as it is referred to.
    pub aliased_nodes: u64,
    /// Bytes of text that all aliases of the index stand for.
    pub aliased_bytes: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            charts: 100_000,
            versions_per_chart: 50_000,
            // The largest row known is 345 KB; 25,000 versions with long URLs keep about 10 MiB.
            chart_bytes: 32 * MIB,
            depth: 32,
            // 100 MiB at the five bytes that the shortest useful node takes.
            nodes: 20_000_000,
            scalar_bytes: MIB,
            anchored_bytes: 4 * MIB,
            // 25,000 versions that share their maintainers, keywords and a merged map are about 1.5 million.
            aliased_nodes: 5_000_000,
            aliased_bytes: 128 * MIB,
        }
    }
}

/// Levels of an index above what a chart version holds: the index, `entries`, the chart's list, the version.
pub(super) const LEVELS_ABOVE: usize = 4;

impl DecodeLimits {
    /// Bytes that may be read before anything comes of them: one text, of which JSON may write each byte in six, or one version in
    /// JSON. It bounds what a parser can be made to gather.
    pub(super) const fn unbroken_bytes(&self) -> u64 {
        self.scalar_bytes.saturating_mul(6)
    }
}
