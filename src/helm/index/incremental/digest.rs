//! A 128-bit HighwayHash of a chart's text. Publishers know neither the key nor digests, and can't search for two texts
//! with the same digest.

use highway::{HighwayHash as _, HighwayHasher, Key};

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DigestKey([u64; 4]);

impl DigestKey {
    pub const BYTES: usize = 32;
}

impl std::fmt::Debug for DigestKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("DigestKey")
    }
}

impl From<[u8; Self::BYTES]> for DigestKey {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

pub(super) struct Digester {
    hash: HighwayHasher,
    masked_count: u64,
}

impl Digester {
    pub(super) fn new(digest_key: &DigestKey) -> Self {
        Self {
            hash: HighwayHasher::new(Key(digest_key.0)),
            masked_count: 0,
        }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.hash.append(piece);
    }

    /// Replaces a text that is excluded from the digest. UTF-8 text never contains 0xff, and the number of masks is
    /// hashed too, so no plain text has the digest of a masked one.
    pub(super) fn mask(&mut self) {
        self.hash.append(&[0xff]);
        self.masked_count += 1;
    }

    pub(super) fn finish(mut self) -> Digest {
        self.hash.append(&self.masked_count.to_le_bytes());
        let mut digest = [0; 16];
        for (bytes, half) in digest.as_chunks_mut().0.iter_mut().zip(self.hash.finalize128()) {
            *bytes = half.to_le_bytes();
        }
        Digest(digest)
    }
}

#[cfg(test)]
mod tests {
    use highway::PortableHash;

    use super::*;

    const SECRET: DigestKey = DigestKey([7; 4]);

    fn digest(pieces: &[Option<&[u8]>]) -> Digest {
        let mut digester = Digester::new(&SECRET);
        for piece in pieces {
            match piece {
                Some(text) => digester.update(text),
                None => digester.mask(),
            }
        }
        digester.finish()
    }

    #[test]
    fn the_digest_does_not_depend_on_the_chunks() {
        let expected = digest(&[Some(b"a chart of some length, more than a block")]);
        for at in 0..40 {
            let (left, right) = b"a chart of some length, more than a block".split_at(at);
            assert_eq!(digest(&[Some(left), Some(right)]), expected);
        }
    }

    #[test]
    fn every_byte_of_the_key_counts() {
        for at in 0..DigestKey::BYTES {
            let mut bytes = [0; DigestKey::BYTES];
            bytes[at] = 1;
            assert_ne!(DigestKey::from(bytes), DigestKey::from([0; DigestKey::BYTES]), "{at}");
        }
    }

    #[test]
    fn a_digest_is_the_same_on_every_processor() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for length in (0..200).chain([999, 1000]) {
            let mut portable = PortableHash::new(Key(SECRET.0));
            portable.append(&text[..length]);
            portable.append(&0u64.to_le_bytes());
            let [low, high] = portable.finalize128();
            for piece in [1, 3, 31, 32, 33, 64, 1000] {
                let pieces: Vec<Option<&[u8]>> = text[..length].chunks(piece).map(Some).collect();
                let Digest(found) = digest(&pieces);
                assert_eq!(
                    found,
                    (u128::from(high) << 64 | u128::from(low)).to_le_bytes(),
                    "{length} by {piece}"
                );
            }
        }
    }

    #[test]
    fn a_text_that_looks_like_a_mask_has_a_different_digest() {
        assert_ne!(digest(&[Some(b"a"), None, Some(b"b")]), digest(&[Some(b"a\xffb")]));
    }

    #[test]
    fn another_key_gives_other_digests() {
        let mut other = Digester::new(&DigestKey([7, 7, 7, 8]));
        other.update(b"a");
        assert_ne!(other.finish(), digest(&[Some(b"a")]));
    }
}
