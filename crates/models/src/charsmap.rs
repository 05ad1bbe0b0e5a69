//! Validates the tables of a `Precompiled` normalizer.
//!
//! SentencePiece writes a trie as a double array of 32-bit units, preceded by its size in bytes, and then the zero-terminated
//! replacement texts. Readers of such a table do not check bounds: here every reachable unit is checked.

/// Checks a base64 table of a `tokenizer.json`; returns the factor by which it can lengthen a text.
pub(crate) fn check_charsmap(text: &str) -> Result<f64, String> {
    let bytes = decode_base64(text).ok_or("its `precompiled_charsmap` is not base64")?;
    let (size, rest) = bytes.split_first_chunk().ok_or("the size of its `precompiled_charsmap` is missing")?;
    let count = u32::from_le_bytes(*size) as usize / 4;
    if rest.len() / 4 < count {
        return Err(format!(
            "its `precompiled_charsmap` has {} bytes, but its size field says {}",
            rest.len(),
            4 * count
        ));
    }
    let (units, texts) = rest.split_at(4 * count);
    let units: Vec<usize> =
        units.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize).collect();
    let texts = std::str::from_utf8(texts).map_err(|_| "the strings of its `precompiled_charsmap` are not UTF-8")?;
    let broken = || "its `precompiled_charsmap` has an offset outside its table".to_string();
    let offset = |unit: usize| (unit >> 10) << ((unit & (1 << 9)) >> 6);
    let mut seen = vec![false; count];
    // Trie nodes: the offset of their children, and the number of bytes of the text that lead to them.
    let mut open = vec![(offset(*units.first().ok_or_else(broken)?), 0usize)];
    let mut growth = 1f64;
    while let Some((node, depth)) = open.pop() {
        if node | 0xff >= count {
            return Err(broken());
        }
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        for label in 1..256 {
            let unit = units[node ^ label];
            if unit & ((1 << 31) | 0xff) != label {
                continue;
            }
            let next = (node ^ label) ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let start = units.get(next).ok_or_else(broken)? & ((1 << 31) - 1);
                let text = texts.get(start..).ok_or_else(broken)?;
                let length = text.bytes().position(|b| b == 0).unwrap_or(text.len());
                growth = growth.max(length as f64 / (depth + 1) as f64);
            }
            open.push((next, depth + 1));
        }
    }
    Ok(growth)
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let (mut out, mut bits, mut held) = (Vec::with_capacity(text.len() / 4 * 3 + 3), 0u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    Some(out)
}
