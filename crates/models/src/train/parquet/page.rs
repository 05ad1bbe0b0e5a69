//! Pages of a column: levels, and values in all supported encodings.

use serde_json::Value as Json;

/// The storage type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnType {
    /// Parquet's number of the physical type.
    pub(super) physical: i64,
    /// Size in bytes of a value of fixed length.
    pub(super) length: usize,
    pub(super) unsigned: bool,
}

/// A decoded value; dictionaries are not converted to JSON for every use.
#[derive(Clone, Debug)]
pub(super) enum PageValue {
    Json(Json),
    /// Bytes that are not valid UTF-8.
    Bytes,
}

impl PageValue {
    pub(super) fn json(&self) -> Json {
        match self {
            PageValue::Json(json) => json.clone(),
            PageValue::Bytes => Json::Null,
        }
    }
}

type PageResult<T> = Result<T, String>;

fn truncated_error() -> String {
    "a page is truncated".to_string()
}

/// A bit reader, lowest bit first.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn next(&mut self, width: usize) -> Option<u64> {
        let mut value = 0u64;
        for i in 0..width {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << i;
            self.at += 1;
        }
        Some(value)
    }
}

/// Decodes the RLE/bit-packing hybrid encoding: `count` numbers of `width` bits each.
pub(super) fn decode_rle_bit_packed(bytes: &[u8], width: usize, count: usize) -> PageResult<Vec<u32>> {
    let mut out = Vec::with_capacity(count.min(1 << 20));
    let mut at = 0;
    if width > 32 {
        return Err("level values of more than 32 bits".into());
    }
    while out.len() < count {
        let head = varint(bytes, &mut at).ok_or_else(truncated_error)?;
        if head & 1 == 0 {
            let n = bytes.get(at..at + width.div_ceil(8)).ok_or_else(truncated_error)?;
            at += n.len();
            let value = n.iter().rev().fold(0u32, |all, b| all << 8 | u32::from(*b));
            let run = usize::try_from(head >> 1).unwrap_or(usize::MAX).min(count - out.len());
            if run == 0 {
                return Err("an empty run".into());
            }
            out.resize(out.len() + run, value);
        } else {
            let groups = usize::try_from(head >> 1).map_err(|_| truncated_error())?;
            let n = groups.checked_mul(width).ok_or_else(truncated_error)?;
            // The last group may be truncated after the last value.
            let packed = &bytes[at.min(bytes.len())..at.saturating_add(n).min(bytes.len())];
            at = at.saturating_add(n);
            let mut bits = BitReader { bytes: packed, at: 0 };
            for _ in 0..groups.saturating_mul(8).min(count - out.len()) {
                out.push(bits.next(width).ok_or_else(truncated_error)? as u32);
            }
            if groups == 0 {
                return Err("an empty run".into());
            }
        }
    }
    Ok(out)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let n = varint(bytes, at)?;
    Some((n >> 1) as i64 ^ -((n & 1) as i64))
}

/// Decodes delta-encoded integers; also returns the offset of their end.
fn decode_delta_binary_packed(bytes: &[u8]) -> PageResult<(Vec<i64>, usize)> {
    let mut at = 0;
    let mut head = || varint(bytes, &mut at).and_then(|n| usize::try_from(n).ok()).ok_or_else(truncated_error);
    let (block, minis, count) = (head()?, head()?, head()?);
    let first = zigzag(bytes, &mut at).ok_or_else(truncated_error)?;
    if minis == 0 || block % minis != 0 || block / minis % 8 != 0 || block > 1 << 20 {
        return Err("invalid block sizes in delta encoding".into());
    }
    let each = block / minis;
    let mut out = Vec::new();
    if count > 0 {
        out.push(first);
    }
    let mut last = first;
    while out.len() < count {
        let least = zigzag(bytes, &mut at).ok_or_else(truncated_error)?;
        let widths = bytes.get(at..at + minis).ok_or_else(truncated_error)?.to_vec();
        at += minis;
        for width in widths {
            if out.len() >= count {
                break;
            }
            if width > 64 {
                return Err("deltas of more than 64 bits".into());
            }
            let n = each / 8 * usize::from(width);
            let mut bits = BitReader { bytes: bytes.get(at..at + n).ok_or_else(truncated_error)?, at: 0 };
            at += n;
            for _ in 0..each.min(count - out.len()) {
                let delta = bits.next(usize::from(width)).ok_or_else(truncated_error)? as i64;
                last = last.wrapping_add(least).wrapping_add(delta);
                out.push(last);
            }
        }
    }
    Ok((out, at))
}

/// Decodes the values of a page; `dictionary` is the column's.
pub(super) fn decode_values(
    bytes: &[u8],
    encoding: i64,
    kind: ColumnType,
    count: usize,
    dictionary: Option<&[PageValue]>,
) -> PageResult<Vec<PageValue>> {
    match encoding {
        0 => decode_plain(bytes, kind, count),
        2 | 8 => {
            let dictionary = dictionary.ok_or("the dictionary page is missing")?;
            if count == 0 {
                return Ok(Vec::new());
            }
            let (width, rest) = bytes.split_first().ok_or_else(truncated_error)?;
            let indices = decode_rle_bit_packed(rest, usize::from(*width), count)?;
            let item = |i: u32| dictionary.get(i as usize).cloned().ok_or("a dictionary index is out of range");
            Ok(indices.into_iter().map(item).collect::<Result<_, _>>()?)
        }
        // Booleans in RLE, preceded by their length.
        3 if kind.physical == 0 => {
            let bits = decode_rle_bit_packed(bytes.get(4..).ok_or_else(truncated_error)?, 1, count)?;
            Ok(bits.into_iter().map(|b| PageValue::Json(Json::Bool(b == 1))).collect())
        }
        5 if matches!(kind.physical, 1 | 2) => {
            let (numbers, _) = decode_delta_binary_packed(bytes)?;
            let whole = |n: i64| match (kind.physical, kind.unsigned) {
                (1, false) => Json::from(n as i32),
                (1, true) => Json::from(n as u32),
                (_, false) => Json::from(n),
                (_, true) => Json::from(n as u64),
            };
            Ok(numbers.into_iter().take(count).map(|n| PageValue::Json(whole(n))).collect())
        }
        6 => {
            let (lengths, mut at) = decode_delta_binary_packed(bytes)?;
            let mut out = Vec::new();
            for length in lengths.into_iter().take(count) {
                let n = usize::try_from(length).map_err(|_| truncated_error())?;
                out.push(text(bytes.get(at..at.saturating_add(n)).ok_or_else(truncated_error)?));
                at += n;
            }
            Ok(out)
        }
        7 => {
            let (prefixes, from) = decode_delta_binary_packed(bytes)?;
            let rest = &bytes[from.min(bytes.len())..];
            let (lengths, mut at) = decode_delta_binary_packed(rest)?;
            let (mut last, mut out) = (Vec::new(), Vec::new());
            for (prefix, length) in prefixes.into_iter().zip(lengths).take(count) {
                let (p, n) = (
                    usize::try_from(prefix).map_err(|_| truncated_error())?,
                    usize::try_from(length).map_err(|_| truncated_error())?,
                );
                if p > last.len() {
                    return Err("a prefix that is longer than the previous value".into());
                }
                last.truncate(p);
                last.extend_from_slice(rest.get(at..at.saturating_add(n)).ok_or_else(truncated_error)?);
                at += n;
                out.push(text(&last));
            }
            Ok(out)
        }
        other => Err(format!("the encoding number {other} is not supported: write the file with another encoding")),
    }
}

fn text(bytes: &[u8]) -> PageValue {
    match std::str::from_utf8(bytes) {
        Ok(text) => PageValue::Json(Json::String(text.to_string())),
        Err(_) => PageValue::Bytes,
    }
}

fn decode_plain(bytes: &[u8], kind: ColumnType, count: usize) -> PageResult<Vec<PageValue>> {
    let fixed = |size: usize, f: &dyn Fn(&[u8]) -> Json| -> PageResult<Vec<PageValue>> {
        let all = bytes.get(..count.checked_mul(size).ok_or_else(truncated_error)?).ok_or_else(truncated_error)?;
        Ok(all.chunks_exact(size.max(1)).map(|b| PageValue::Json(f(b))).collect())
    };
    let number = |b: &[u8]| b.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    match kind.physical {
        0 => {
            let mut bits = BitReader { bytes, at: 0 };
            (0..count)
                .map(|_| Ok(PageValue::Json(Json::Bool(bits.next(1).ok_or_else(truncated_error)? == 1))))
                .collect()
        }
        1 if kind.unsigned => fixed(4, &|b| Json::from(number(b))),
        1 => fixed(4, &|b| Json::from(number(b) as u32 as i32)),
        2 if kind.unsigned => fixed(8, &|b| Json::from(number(b))),
        2 => fixed(8, &|b| Json::from(number(b) as i64)),
        3 => fixed(12, &|_| Json::Null),
        4 => fixed(4, &|b| Json::from(f64::from(f32::from_bits(number(b) as u32)))),
        5 => fixed(8, &|b| Json::from(f64::from_bits(number(b)))),
        6 => {
            let (mut at, mut out) = (0, Vec::new());
            for _ in 0..count {
                let n = bytes.get(at..at + 4).map(number).ok_or_else(truncated_error)? as usize;
                at += 4;
                out.push(text(bytes.get(at..at.saturating_add(n)).ok_or_else(truncated_error)?));
                at += n;
            }
            Ok(out)
        }
        7 if kind.length > 0 => fixed(kind.length, &|_| Json::Null),
        other => Err(format!("values of the unknown type {other}")),
    }
}
