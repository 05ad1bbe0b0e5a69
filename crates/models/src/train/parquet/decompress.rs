//! Decompresses pages: Snappy and LZ4 blocks, gzip, Zstandard.

use std::io::Read;

/// Decompresses a page; an error gives the reason.
pub(super) fn decompress(codec: i64, bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let damaged = |what: &str| format!("a page is not valid {what} data");
    let found = match codec {
        0 => bytes.to_vec(),
        1 => snappy(bytes, size).ok_or_else(|| damaged("Snappy"))?,
        2 => read(flate2::bufread::MultiGzDecoder::new(bytes), size).map_err(|e| e.to_string())?,
        6 => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|e| e.to_string())?;
            read(decoder, size).map_err(|e| e.to_string())?
        }
        7 => lz4(bytes, size).ok_or_else(|| damaged("LZ4"))?,
        4 => return Err("compressed with Brotli, which is not supported: use Snappy, gzip or Zstandard".into()),
        other => return Err(format!("compressed with the unsupported codec {other}: use Snappy or Zstandard")),
    };
    match found.len() == size {
        true => Ok(found),
        false => Err(format!("a page has {} bytes, expected {size}", found.len())),
    }
}

fn read(from: impl Read, size: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(size as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Copies bytes from `distance` back, which may overlap the destination.
fn copy_match(out: &mut Vec<u8>, distance: usize, length: usize, most: usize) -> Option<()> {
    let start = out.len().checked_sub(distance).filter(|_| distance > 0)?;
    if out.len() + length > most {
        return None;
    }
    for i in 0..length {
        out.push(out[start + i]);
    }
    Some(())
}

fn snappy(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut at = 0;
    let number = |at: &mut usize, n: usize| -> Option<usize> {
        let slice = bytes.get(*at..*at + n)?;
        *at += n;
        Some(slice.iter().rev().fold(0, |all, b| all << 8 | usize::from(*b)))
    };
    // The length, seven bits per byte.
    let (mut length, mut shift) = (0usize, 0);
    loop {
        let byte = number(&mut at, 1)?;
        length |= (byte & 0x7F).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if length != size {
        return None;
    }
    let mut out = Vec::with_capacity(size);
    while at < bytes.len() {
        let tag = number(&mut at, 1)?;
        let (distance, n) = match tag & 3 {
            0 => {
                let n = match tag >> 2 {
                    short @ 0..60 => short,
                    long => number(&mut at, long - 59)?,
                } + 1;
                out.extend_from_slice(bytes.get(at..at.checked_add(n)?)?);
                at += n;
                if out.len() > size {
                    return None;
                }
                continue;
            }
            1 => ((tag >> 5) << 8 | number(&mut at, 1)?, 4 + (tag >> 2 & 7)),
            2 => (number(&mut at, 2)?, (tag >> 2) + 1),
            _ => (number(&mut at, 4)?, (tag >> 2) + 1),
        };
        copy_match(&mut out, distance, n, size)?;
    }
    Some(out)
}

fn lz4(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let (mut at, mut out) = (0, Vec::with_capacity(size));
    let more = |at: &mut usize, start: usize| -> Option<usize> {
        let mut n = start;
        if start == 15 {
            loop {
                let byte = usize::from(*bytes.get(*at)?);
                *at += 1;
                n += byte;
                if byte != 255 {
                    break;
                }
            }
        }
        Some(n)
    };
    while at < bytes.len() {
        let token = usize::from(bytes[at]);
        at += 1;
        let n = more(&mut at, token >> 4)?;
        out.extend_from_slice(bytes.get(at..at.checked_add(n)?)?);
        at += n;
        if at >= bytes.len() || out.len() > size {
            break;
        }
        let distance = usize::from(*bytes.get(at)?) | usize::from(*bytes.get(at + 1)?) << 8;
        at += 2;
        let n = more(&mut at, token & 15)? + 4;
        copy_match(&mut out, distance, n, size)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decompresses blocks that were written by hand from the format specifications.
    #[test]
    fn blocks_come_out_whole() {
        // "abab" by a literal and an overlapping copy, then 70 more bytes.
        let mut packed = vec![74, 1 << 2, b'a', b'b', (4 - 4) << 2 | 1, 2];
        packed.extend([60 << 2, 67]);
        packed.extend([b'x'; 68]);
        let found = snappy(&packed, 74).expect("Snappy");
        assert_eq!(&found[..6], b"ababab");
        assert!(found[6..].iter().all(|b| *b == b'x') && found.len() == 74);
        // Literal "abc", then nine bytes from three back, then a last literal.
        let packed = [3 << 4 | 5, b'a', b'b', b'c', 3, 0, 1 << 4, b'!'];
        assert_eq!(lz4(&packed, 13).expect("LZ4"), b"abcabcabcabc!");
        // Corrupt blocks are errors, and never exceed their declared size.
        for cut in 0..packed.len() {
            let _ = lz4(&packed[..cut], 13);
        }
        assert!(snappy(&[74, 1, 0], 74).is_none() && snappy(&[4, 9 << 2 | 1, 200], 4).is_none());
        assert!(decompress(4, &[], 0).is_err() && decompress(0, &[1], 2).is_err() && decompress(6, b"no", 2).is_err());
    }
}
