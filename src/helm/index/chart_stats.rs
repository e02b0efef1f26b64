use serde::{Deserialize, Serialize};

use super::Skipped;

/// The contribution of one chart to the [`Summary`](super::Summary) of its index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartStats {
    pub versions: u64,
    pub duplicates: u64,
    pub deprecated: bool,
    /// SHA-256 over the name, the versions and their digests. None if the whole chart was skipped.
    #[serde(with = "hex")]
    pub digest: Option<[u8; 32]>,
    pub skipped: Skipped,
    pub nodes: u64,
}

mod hex {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    pub(super) fn serialize<S: Serializer>(digest: &Option<[u8; 32]>, serializer: S) -> Result<S::Ok, S::Error> {
        digest.map(|digest| crate::text::hex(&digest)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 32]>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let digest = text.map(|text| crate::text::from_hex(&text).ok_or_else(|| de::Error::custom("not a digest")));
        digest.transpose()
    }
}
