//! A chart's text in 128 bits.
//!
//! SipHash-1-3 with a key that publishers do not know: whoever writes an index never sees a digest, so he can't look for a text
//! that has the digest of another one, and only ever deceives about a chart of his own.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// The key of a repository's digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

impl From<[u8; 16]> for Secret {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// The digest of a chart's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

/// Digests a text piece by piece.
pub(super) struct Digester {
    hash: SipHasher13,
    masks: u64,
}

impl Digester {
    pub(super) fn new(secret: &Secret) -> Self {
        Self {
            hash: SipHasher13::new_with_key(&secret.0),
            masks: 0,
        }
    }

    pub(super) fn text(&mut self, piece: &[u8]) {
        self.hash.write(piece);
    }

    /// Stands for a text that does not count. What was digested once is UTF-8, where this byte does not occur, and the number of
    /// masks is part of the digest: so no text that holds such bytes itself has the digest of one with masks.
    pub(super) fn mask(&mut self) {
        self.hash.write(&[0xff]);
        self.masks += 1;
    }

    pub(super) fn finish(mut self) -> Digest {
        self.hash.write(&self.masks.to_le_bytes());
        Digest(self.hash.finish128().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret([7; 16]);

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
    fn a_text_that_looks_like_a_mask_is_none() {
        assert_ne!(digest(&[Some(b"a"), None, Some(b"b")]), digest(&[Some(b"a\xffb")]));
    }

    #[test]
    fn another_secret_gives_other_digests() {
        let mut other = Digester::new(&Secret([8; 16]));
        other.text(b"a");
        assert_ne!(other.finish(), digest(&[Some(b"a")]));
    }
}
