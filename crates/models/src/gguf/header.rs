//! The head of a GGUF file: pairs of names and values, and where tensors lie. Everything is checked against the file's length
//! before anything is allocated.

use ir::DType;
use ir::composites::quantized::Format;
use std::collections::{BTreeMap, BTreeSet};

/// Why a head can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More bytes are needed.
    Short,
    /// It is wrong.
    Bad(String),
}

/// A value of a pair.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer.
    Int(i128),
    /// f32 or f64.
    Float(f64),
    /// A truth.
    Bool(bool),
    /// A text.
    Text(String),
    /// Several of one kind.
    List(Vec<Value>),
}

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Elements of a dtype.
    Plain(DType),
    /// Blocks.
    Packed(Format),
}

impl Kind {
    /// By the number that files have for it.
    pub fn of(id: u32) -> Option<Kind> {
        KINDS.iter().find(|(n, _)| *n == id).map(|(_, kind)| *kind)
    }

    /// The number that files have for it.
    pub fn id(self) -> Option<u32> {
        KINDS.iter().find(|(_, kind)| *kind == self).map(|(n, _)| *n)
    }
}

const KINDS: &[(u32, Kind)] = &[
    (0, Kind::Plain(DType::F32)),
    (1, Kind::Plain(DType::F16)),
    (2, Kind::Packed(Format::Q4_0)),
    (3, Kind::Packed(Format::Q4_1)),
    (6, Kind::Packed(Format::Q5_0)),
    (7, Kind::Packed(Format::Q5_1)),
    (8, Kind::Packed(Format::Q8_0)),
    (10, Kind::Packed(Format::Q2K)),
    (11, Kind::Packed(Format::Q3K)),
    (12, Kind::Packed(Format::Q4K)),
    (13, Kind::Packed(Format::Q5K)),
    (14, Kind::Packed(Format::Q6K)),
    (24, Kind::Plain(DType::I8)),
    (25, Kind::Plain(DType::I16)),
    (26, Kind::Plain(DType::I32)),
    (27, Kind::Plain(DType::I64)),
    (28, Kind::Plain(DType::F64)),
    (30, Kind::Plain(DType::BF16)),
];

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its sizes, outermost first.
    pub shape: Vec<usize>,
    /// How it is stored.
    pub kind: Kind,
    /// Where it begins, from the start of the data.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl TensorEntry {
    /// One of several tensors that lie in this one, if it has so many.
    pub(super) fn part(&self, index: usize) -> Option<TensorEntry> {
        let (count, shape) = self.shape.split_first()?;
        let bytes = self.kind.bytes(shape).filter(|_| index < *count)?;
        let (name, shape) = (self.name.clone(), shape.to_vec());
        Some(TensorEntry { name, shape, kind: self.kind, offset: self.offset + bytes * index as u64, bytes })
    }
}

/// The head of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Values by name.
    pub pairs: BTreeMap<String, Value>,
    /// Tensors as they are listed.
    pub tensors: Vec<TensorEntry>,
    /// Where the data begins.
    pub data: u64,
}

impl Header {
    /// An integer by its name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.pairs.get(name)? {
            Value::Int(n) => i64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// A number by its name.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.pairs.get(name)? {
            Value::Float(x) => Some(*x),
            Value::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// A text by its name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.pairs.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list by its name.
    pub fn list(&self, name: &str) -> Option<&[Value]> {
        match self.pairs.get(name)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }
}

/// Limits that no file in use comes near.
const MOST_PAIRS: u64 = 1 << 16;
const MOST_TENSORS: u64 = 1 << 20;
const MOST_ITEMS: u64 = 1 << 24;
const LONGEST_TEXT: u64 = 1 << 26;
const LONGEST_NAME: u64 = 1 << 16;
/// Lists in lists.
const DEEPEST: usize = 3;

/// Reads bytes one after the other.
struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
    /// Length of the whole file.
    length: u64,
}

fn bad<T>(why: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Bad(why.into()))
}

impl<'a> Bytes<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], Fault> {
        if n > self.length.saturating_sub(self.at as u64) {
            return bad(format!("{n} bytes are declared, but the file has {} left", self.length - self.at as u64));
        }
        let n = usize::try_from(n).map_err(|_| Fault::Short)?;
        let end = self.at.checked_add(n).filter(|end| *end <= self.all.len()).ok_or(Fault::Short)?;
        let found = &self.all[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64)?);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.number()?))
    }

    fn text(&mut self, longest: u64) -> Result<String, Fault> {
        let n = self.u64()?;
        if n > longest {
            return bad(format!("a string of {n} bytes: the maximum is {longest}"));
        }
        // Tokens may be bytes that are no characters.
        Ok(String::from_utf8_lossy(self.take(n)?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value, Fault> {
        Ok(match kind {
            0 => Value::Int(self.number::<1>()?[0].into()),
            1 => Value::Int((self.number::<1>()?[0] as i8).into()),
            2 => Value::Int(u16::from_le_bytes(self.number()?).into()),
            3 => Value::Int(i16::from_le_bytes(self.number()?).into()),
            4 => Value::Int(self.u32()?.into()),
            5 => Value::Int(i32::from_le_bytes(self.number()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.number()?).into()),
            7 => match self.number::<1>()?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                n => return bad(format!("{n} is not a boolean")),
            },
            8 => Value::Text(self.text(LONGEST_TEXT)?),
            9 => {
                let (inner, count) = (self.u32()?, self.u64()?);
                let least = match inner {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    8 | 10..=12 => 8,
                    9 => 12,
                    n => return bad(format!("an array of the unknown type {n}")),
                };
                if depth == 0 || count > MOST_ITEMS {
                    return bad(format!("an array of {count} items, nested {} levels deep", DEEPEST - depth));
                }
                // Before room is made: the items must be there.
                if count * least > self.length.saturating_sub(self.at as u64) {
                    return bad(format!("an array of {count} items in a file of {} bytes", self.length));
                }
                if count * least > (self.all.len() - self.at) as u64 {
                    return Err(Fault::Short);
                }
                let mut items = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    items.push(self.value(inner, depth - 1)?);
                }
                Value::List(items)
            }
            10 => Value::Int(self.u64()?.into()),
            11 => Value::Int(i64::from_le_bytes(self.number()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.number()?)),
            n => return bad(format!("a value of the unknown type {n}")),
        })
    }
}

/// Reads the head of a file of `length` bytes, of which `bytes` are the first.
pub fn parse(bytes: &[u8], length: u64) -> Result<Header, Fault> {
    let mut b = Bytes { all: bytes, at: 0, length };
    if length < 24 {
        return bad(format!("the file has only {length} bytes"));
    }
    if b.take(4)? != b"GGUF" {
        return bad("the magic number GGUF is missing");
    }
    let version = b.u32()?;
    if !(2..=3).contains(&version) {
        let hint = if version.swap_bytes() <= 3 { ", in the other byte order" } else { "" };
        return bad(format!("version {version}{hint}: only 2 and 3 are supported"));
    }
    let (tensors, pairs) = (b.u64()?, b.u64()?);
    if pairs > MOST_PAIRS || tensors > MOST_TENSORS {
        return bad(format!("{tensors} tensors and {pairs} key-value pairs are too many"));
    }
    // Each takes at least so many bytes.
    if pairs * 13 + tensors * 32 > length {
        return bad(format!("{tensors} tensors and {pairs} key-value pairs in a file of {length} bytes"));
    }
    let mut found = BTreeMap::new();
    for _ in 0..pairs {
        let name = b.text(LONGEST_NAME)?;
        let kind = b.u32()?;
        let value = b.value(kind, DEEPEST)?;
        if found.contains_key(&name) {
            return bad(format!("`{name}` occurs twice"));
        }
        found.insert(name, value);
    }
    let align = match found.get("general.alignment") {
        None => 32,
        Some(Value::Int(n)) if (1..=1 << 20).contains(n) && (*n as u64).is_power_of_two() => *n as u64,
        Some(other) => return bad(format!("the alignment is {other:?}, but it must be a power of two")),
    };
    let mut list = Vec::new();
    let mut seen = BTreeSet::new();
    for _ in 0..tensors {
        let name = b.text(LONGEST_NAME)?;
        let rank = b.u32()?;
        if !(1..=4).contains(&rank) {
            return bad(format!("`{name}` has {rank} dimensions: only 1 to 4 are supported"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            let n = b.u64()?;
            shape.push(
                usize::try_from(n)
                    .ok()
                    .filter(|n| (*n as u64) < 1 << 40)
                    .ok_or(Fault::Bad(format!("`{name}` has a dimension of size {n}")))?,
            );
        }
        shape.reverse();
        let (kind, offset) = (b.u32()?, b.u64()?);
        let kind = Kind::of(kind).ok_or(Fault::Bad(format!(
            "`{name}` has type {kind}: F32, F16, BF16, F64, integers, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and Q2_K to Q6_K \
             are supported"
        )))?;
        let Some(bytes) = kind.bytes(&shape) else {
            return bad(format!("the shape {shape:?} of `{name}` is not valid for {kind:?}"));
        };
        if offset % align != 0 {
            return bad(format!("`{name}` begins at {offset}, which is not a multiple of {align}"));
        }
        if !seen.insert(name.clone()) {
            return bad(format!("the tensor `{name}` occurs twice"));
        }
        list.push(TensorEntry { name, shape, kind, offset, bytes });
    }
    let data = (b.at as u64).next_multiple_of(align);
    let room = length.saturating_sub(data);
    let mut places: Vec<&TensorEntry> = list.iter().collect();
    places.sort_by_key(|t| (t.offset, t.bytes));
    let mut end = 0u64;
    for t in places {
        let last = t.offset.checked_add(t.bytes).filter(|last| *last <= room);
        let Some(last) = last else {
            return bad(format!(
                "`{}` ends after the end of the file: {} bytes at {} of {room}",
                t.name, t.bytes, t.offset
            ));
        };
        if t.offset < end {
            return bad(format!("`{}` begins at {}, which overlaps another tensor", t.name, t.offset));
        }
        end = last;
    }
    Ok(Header { pairs: found, tensors: list, data })
}
