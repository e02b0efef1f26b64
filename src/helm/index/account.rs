//! Counts and digest of one chart.

use serde::{Deserialize, Serialize};

use super::Skipped;

/// The contribution of one chart to the [`Summary`](super::Summary) of its index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartStats {
    /// Number of versions.
    pub versions: u64,
    /// Number of versions that repeat an earlier one.
    pub duplicates: u64,
    /// The newest version is deprecated, so the chart is left out.
    pub deprecated: bool,
    /// SHA-256 over the name, the versions and their digests. None if the chart was skipped entirely.
    #[serde(with = "hex")]
    pub digest: Option<[u8; 32]>,
    /// Entries that could not be used.
    pub skipped: Skipped,
    /// Number of YAML nodes of the versions.
    pub nodes: u64,
}

/// A digest in JSON.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    pub(super) fn serialize<S: Serializer>(digest: &Option<[u8; 32]>, serializer: S) -> Result<S::Ok, S::Error> {
        digest.map(|digest| crate::text::hex(&digest)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 32]>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let digest = text.map(|text| crate::text::from_hex(&text).ok_or_else(|| de::Error::custom("no digest")));
        digest.transpose()
    }
}
