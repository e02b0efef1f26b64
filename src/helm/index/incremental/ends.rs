use wide::u8x16;

const BLOCK: usize = 64;
const LANES: usize = 16;

/// Index lines are so short that a `memchr` search per line is slower than testing all bytes with SIMD.
pub(super) struct LineEnds<'t> {
    text: &'t [u8],
    block: usize,
    newlines: u64,
}

impl<'t> LineEnds<'t> {
    pub(super) fn of(text: &'t [u8]) -> Self {
        Self {
            text,
            block: 0,
            newlines: newlines(text),
        }
    }
}

impl Iterator for LineEnds<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.newlines == 0 {
            let next = self.block + BLOCK;
            self.newlines = newlines(self.text.get(next..).filter(|rest| !rest.is_empty())?);
            self.block = next;
        }
        let newline = self.newlines.trailing_zeros() as usize;
        self.newlines &= self.newlines - 1;
        Some(self.block + newline + 1)
    }
}

fn newlines(text: &[u8]) -> u64 {
    let bits = |lanes: &[u8; LANES]| u64::from(u8x16::from(*lanes).simd_eq(u8x16::splat(b'\n')).to_bitmask());
    match text.first_chunk::<BLOCK>() {
        Some(block) => {
            let (lanes, _) = block.as_chunks();
            lanes.iter().rev().fold(0, |mask, lanes| mask << LANES | bits(lanes))
        }
        None => {
            let bytes = text.iter().rev();
            bytes.fold(0, |mask, byte| mask << 1 | u64::from(*byte == b'\n'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(text: &[u8]) -> Vec<usize> {
        let newlines = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        newlines.map(|(at, _)| at + 1).collect()
    }

    #[test]
    fn a_line_ends_after_its_newline_at_any_offset() {
        for length in 0..3 * BLOCK {
            for first in 0..length {
                let mut text = vec![b'\x0b'; length];
                text[first] = b'\n';
                assert_eq!(
                    LineEnds::of(&text).collect::<Vec<_>>(),
                    plainly(&text),
                    "{first} of {length}"
                );
                text[length - 1] = b'\n';
                assert_eq!(
                    LineEnds::of(&text).collect::<Vec<_>>(),
                    plainly(&text),
                    "{first} of {length}, and the end"
                );
            }
            let empty = vec![b'\n'; length];
            assert_eq!(LineEnds::of(&empty).collect::<Vec<_>>(), plainly(&empty));
        }
    }
}
