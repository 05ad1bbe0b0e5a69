//! Zero compression: removes blocks of zeros from messages that are often sparse, such as tokens sent to experts.
//!
//! A bit for each block states whether it is nonzero; the nonzero blocks follow. Data that would not become shorter is not
//! compressed.

use crate::error::{Error, Result};

/// The block size in bytes; a row of a tensor is rarely smaller.
const BLOCK: usize = 64;

/// The size of the bit mask in bytes.
fn bits(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK).div_ceil(8)
}

/// Removes zero blocks, unless the result would be longer.
pub(crate) fn packed(bytes: Vec<u8>) -> Vec<u8> {
    let full = |block: &[u8]| block.iter().any(|b| *b != 0);
    let kept: usize = bytes.chunks(BLOCK).filter(|b| full(b)).map(<[u8]>::len).sum();
    if bits(bytes.len()) + kept >= bytes.len() {
        return bytes;
    }
    let mut short = vec![0; bits(bytes.len())];
    short.reserve_exact(kept);
    for (i, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, b)| full(b)) {
        short[i / 8] |= 1 << (i % 8);
        short.extend_from_slice(block);
    }
    short
}

/// Restores the original data of this many bytes.
pub(crate) fn unpacked(short: Vec<u8>, bytes: usize, rank: usize) -> Result<Vec<u8>> {
    if short.len() == bytes {
        return Ok(short);
    }
    let wrong = || Error::Mismatch { rank, reason: "its message is not as long as its own bits say".into() };
    let (bits, mut rest) = short.split_at_checked(bits(bytes)).ok_or_else(wrong)?;
    let mut all = vec![0; bytes];
    for (_, block) in all.chunks_mut(BLOCK).enumerate().filter(|(i, _)| bits[i / 8] >> (i % 8) & 1 == 1) {
        let (own, behind) = rest.split_at_checked(block.len()).ok_or_else(wrong)?;
        block.copy_from_slice(own);
        rest = behind;
    }
    if rest.is_empty() { Ok(all) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_zeros_cost_a_bit_for_a_block() {
        let mut state = 7u64;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for len in [0, 1, 63, 64, 65, 128, 511, 512, 513, 4096, 5000] {
            for share in [0, 1, 5, 10] {
                let mut bytes = vec![0u8; len];
                let mut full = 0;
                for block in bytes.chunks_mut(BLOCK) {
                    if draw(10) < share {
                        // A block with one nonzero byte is kept.
                        block[draw(block.len() as u64) as usize] = 1 + draw(255) as u8;
                        full += block.len();
                    }
                }
                let short = packed(bytes.clone());
                assert_eq!(short.len(), len.min(full + len.div_ceil(BLOCK).div_ceil(8)), "{len} bytes, {share} of 10");
                assert_eq!(unpacked(short, len, 0).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_message_of_another_length_is_an_error() {
        let bytes = [vec![1; 64], vec![0; 1000]].concat();
        let short = packed(bytes.clone());
        for wrong in [Vec::new(), short[..short.len() - 1].to_vec(), [&short[..], &[0]].concat(), vec![255; 3]] {
            assert!(unpacked(wrong, bytes.len(), 1).is_err());
        }
        assert_eq!(unpacked(short, bytes.len(), 1).unwrap(), bytes);
    }
}
