//! A chart's text in 128 bits.
//!
//! HighwayHash with a key that publishers do not know: whoever writes an index never sees a digest, so he can't look for a text
//! that has the digest of another one, and only ever deceives about a chart of his own.

use highway::{HighwayHash as _, HighwayHasher, Key};

/// The key of a repository's digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u64; 4]);

impl Secret {
    /// How many bytes it is made of.
    pub const BYTES: usize = 32;
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

impl From<[u8; Self::BYTES]> for Secret {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }
}

/// The digest of a chart's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

/// Digests a text piece by piece.
pub(super) struct Digester {
    hash: HighwayHasher,
    masks: u64,
}

impl Digester {
    pub(super) fn new(secret: &Secret) -> Self {
        Self {
            hash: HighwayHasher::new(Key(secret.0)),
            masks: 0,
        }
    }

    pub(super) fn text(&mut self, piece: &[u8]) {
        self.hash.append(piece);
    }

    /// Stands for a text that does not count. What was digested once is UTF-8, where this byte does not occur, and the number of
    /// masks is part of the digest: so no text that holds such bytes itself has the digest of one with masks.
    pub(super) fn mask(&mut self) {
        self.hash.append(&[0xff]);
        self.masks += 1;
    }

    pub(super) fn finish(mut self) -> Digest {
        self.hash.append(&self.masks.to_le_bytes());
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

    const SECRET: Secret = Secret([7; 4]);

    fn digest(pieces: &[Option<&[u8]>]) -> Digest {
        let mut digester = Digester::new(&SECRET);
        for piece in pieces {
            match piece {
                Some(text) => digester.text(text),
                None => digester.mask(),
            }
        }
        digester.finish()
    }

    #[test]
    fn it_does_not_matter_how_a_text_is_cut_into_pieces() {
        let whole = digest(&[Some(b"a chart of some length, more than a block")]);
        for at in 0..40 {
            let (left, right) = b"a chart of some length, more than a block".split_at(at);
            assert_eq!(digest(&[Some(left), Some(right)]), whole);
        }
    }

    #[test]
    fn every_byte_of_a_secret_is_part_of_it() {
        for at in 0..Secret::BYTES {
            let mut bytes = [0; Secret::BYTES];
            bytes[at] = 1;
            assert_ne!(Secret::from(bytes), Secret::from([0; Secret::BYTES]), "{at}");
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
    fn a_text_that_looks_like_a_mask_is_none() {
        assert_ne!(digest(&[Some(b"a"), None, Some(b"b")]), digest(&[Some(b"a\xffb")]));
    }

    #[test]
    fn another_secret_gives_other_digests() {
        let mut other = Digester::new(&Secret([7, 7, 7, 8]));
        other.text(b"a");
        assert_ne!(other.finish(), digest(&[Some(b"a")]));
    }
}
