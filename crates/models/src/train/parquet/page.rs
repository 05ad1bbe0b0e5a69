//! Pages of a column: levels, and values in the encodings that writers use.

use serde_json::Value as Json;

/// How a column's values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Parquet's number of the type.
    pub(super) physical: i64,
    /// Bytes of a value of fixed length.
    pub(super) length: usize,
    pub(super) unsigned: bool,
}

/// A value, so that dictionaries are not made into JSON again and again.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Json(Json),
    /// Bytes that are no text.
    Bytes,
}

impl Item {
    pub(super) fn json(&self) -> Json {
        match self {
            Item::Json(json) => json.clone(),
            Item::Bytes => Json::Null,
        }
    }
}

type Found<T> = Result<T, String>;

fn short() -> String {
    "a page is truncated".to_string()
}

/// Bits of a number, lowest first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
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

/// Numbers by runs and in bits: `count` of `width` bits each.
pub(super) fn hybrid(bytes: &[u8], width: usize, count: usize) -> Found<Vec<u32>> {
    let mut out = Vec::with_capacity(count.min(1 << 20));
    let mut at = 0;
    if width > 32 {
        return Err("level values of more than 32 bits".into());
    }
    while out.len() < count {
        let head = varint(bytes, &mut at).ok_or_else(short)?;
        if head & 1 == 0 {
            let n = bytes.get(at..at + width.div_ceil(8)).ok_or_else(short)?;
            at += n.len();
            let value = n.iter().rev().fold(0u32, |all, b| all << 8 | u32::from(*b));
            let run = usize::try_from(head >> 1).unwrap_or(usize::MAX).min(count - out.len());
            if run == 0 {
                return Err("an empty run".into());
            }
            out.resize(out.len() + run, value);
        } else {
            let groups = usize::try_from(head >> 1).map_err(|_| short())?;
            let n = groups.checked_mul(width).ok_or_else(short)?;
            // The last group may be cut where nothing is left to say.
            let packed = &bytes[at.min(bytes.len())..at.saturating_add(n).min(bytes.len())];
            at = at.saturating_add(n);
            let mut bits = Bits { bytes: packed, at: 0 };
            for _ in 0..groups.saturating_mul(8).min(count - out.len()) {
                out.push(bits.next(width).ok_or_else(short)? as u32);
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

/// Whole numbers as differences from each other; also says where they end.
fn deltas(bytes: &[u8]) -> Found<(Vec<i64>, usize)> {
    let mut at = 0;
    let mut head = || varint(bytes, &mut at).and_then(|n| usize::try_from(n).ok()).ok_or_else(short);
    let (block, minis, count) = (head()?, head()?, head()?);
    let first = zigzag(bytes, &mut at).ok_or_else(short)?;
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
        let least = zigzag(bytes, &mut at).ok_or_else(short)?;
        let widths = bytes.get(at..at + minis).ok_or_else(short)?.to_vec();
        at += minis;
        for width in widths {
            if out.len() >= count {
                break;
            }
            if width > 64 {
                return Err("deltas of more than 64 bits".into());
            }
            let n = each / 8 * usize::from(width);
            let mut bits = Bits { bytes: bytes.get(at..at + n).ok_or_else(short)?, at: 0 };
            at += n;
            for _ in 0..each.min(count - out.len()) {
                let delta = bits.next(usize::from(width)).ok_or_else(short)? as i64;
                last = last.wrapping_add(least).wrapping_add(delta);
                out.push(last);
            }
        }
    }
    Ok((out, at))
}

/// Values of a page in their encoding; `dictionary` is the column's.
pub(super) fn values(
    bytes: &[u8],
    encoding: i64,
    kind: Kind,
    count: usize,
    dictionary: Option<&[Item]>,
) -> Found<Vec<Item>> {
    match encoding {
        0 => plain(bytes, kind, count),
        2 | 8 => {
            let dictionary = dictionary.ok_or("the dictionary page is missing")?;
            if count == 0 {
                return Ok(Vec::new());
            }
            let (width, rest) = bytes.split_first().ok_or_else(short)?;
            let indices = hybrid(rest, usize::from(*width), count)?;
            let item = |i: u32| dictionary.get(i as usize).cloned().ok_or("a dictionary index is out of range");
            Ok(indices.into_iter().map(item).collect::<Result<_, _>>()?)
        }
        // True and false by runs, behind their length.
        3 if kind.physical == 0 => {
            let bits = hybrid(bytes.get(4..).ok_or_else(short)?, 1, count)?;
            Ok(bits.into_iter().map(|b| Item::Json(Json::Bool(b == 1))).collect())
        }
        5 if matches!(kind.physical, 1 | 2) => {
            let (numbers, _) = deltas(bytes)?;
            let whole = |n: i64| match (kind.physical, kind.unsigned) {
                (1, false) => Json::from(n as i32),
                (1, true) => Json::from(n as u32),
                (_, false) => Json::from(n),
                (_, true) => Json::from(n as u64),
            };
            Ok(numbers.into_iter().take(count).map(|n| Item::Json(whole(n))).collect())
        }
        6 => {
            let (lengths, mut at) = deltas(bytes)?;
            let mut out = Vec::new();
            for length in lengths.into_iter().take(count) {
                let n = usize::try_from(length).map_err(|_| short())?;
                out.push(text(bytes.get(at..at.saturating_add(n)).ok_or_else(short)?));
                at += n;
            }
            Ok(out)
        }
        7 => {
            let (prefixes, from) = deltas(bytes)?;
            let rest = &bytes[from.min(bytes.len())..];
            let (lengths, mut at) = deltas(rest)?;
            let (mut last, mut out) = (Vec::new(), Vec::new());
            for (prefix, length) in prefixes.into_iter().zip(lengths).take(count) {
                let (p, n) =
                    (usize::try_from(prefix).map_err(|_| short())?, usize::try_from(length).map_err(|_| short())?);
                if p > last.len() {
                    return Err("a prefix that is longer than the previous value".into());
                }
                last.truncate(p);
                last.extend_from_slice(rest.get(at..at.saturating_add(n)).ok_or_else(short)?);
                at += n;
                out.push(text(&last));
            }
            Ok(out)
        }
        other => Err(format!("the encoding number {other} is not supported: write the file with another encoding")),
    }
}

fn text(bytes: &[u8]) -> Item {
    match std::str::from_utf8(bytes) {
        Ok(text) => Item::Json(Json::String(text.to_string())),
        Err(_) => Item::Bytes,
    }
}

fn plain(bytes: &[u8], kind: Kind, count: usize) -> Found<Vec<Item>> {
    let fixed = |size: usize, f: &dyn Fn(&[u8]) -> Json| -> Found<Vec<Item>> {
        let all = bytes.get(..count.checked_mul(size).ok_or_else(short)?).ok_or_else(short)?;
        Ok(all.chunks_exact(size.max(1)).map(|b| Item::Json(f(b))).collect())
    };
    let number = |b: &[u8]| b.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    match kind.physical {
        0 => {
            let mut bits = Bits { bytes, at: 0 };
            (0..count).map(|_| Ok(Item::Json(Json::Bool(bits.next(1).ok_or_else(short)? == 1)))).collect()
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
                let n = bytes.get(at..at + 4).map(number).ok_or_else(short)? as usize;
                at += 4;
                out.push(text(bytes.get(at..at.saturating_add(n)).ok_or_else(short)?));
                at += n;
            }
            Ok(out)
        }
        7 if kind.length > 0 => fixed(kind.length, &|_| Json::Null),
        other => Err(format!("values of the unknown type {other}")),
    }
}
