//! The header of a GGUF file: metadata, and the positions of tensors. Everything is checked against
//! the file's length before anything is allocated.

use ir::DType;
use ir::composites::quantized::QuantFormat;
use std::collections::{BTreeMap, BTreeSet};

/// Why a header can't be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// More bytes are needed.
    Truncated,
    /// The header is invalid.
    Invalid(String),
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// Any integer.
    Int(i128),
    /// f32 or f64.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of values of one type.
    List(Vec<GgufValue>),
}

/// The storage format of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufTensorType {
    /// Plain elements of a dtype.
    Plain(DType),
    /// Quantized blocks.
    Packed(QuantFormat),
}

impl GgufTensorType {
    /// Returns the type with this number in files.
    pub fn of(id: u32) -> Option<GgufTensorType> {
        TENSOR_TYPES.iter().find(|(n, _)| *n == id).map(|(_, kind)| *kind)
    }

    /// The type's number in files.
    pub fn id(self) -> Option<u32> {
        TENSOR_TYPES.iter().find(|(_, kind)| *kind == self).map(|(n, _)| *n)
    }
}

const TENSOR_TYPES: &[(u32, GgufTensorType)] = &[
    (0, GgufTensorType::Plain(DType::F32)),
    (1, GgufTensorType::Plain(DType::F16)),
    (2, GgufTensorType::Packed(QuantFormat::Q4_0)),
    (3, GgufTensorType::Packed(QuantFormat::Q4_1)),
    (6, GgufTensorType::Packed(QuantFormat::Q5_0)),
    (7, GgufTensorType::Packed(QuantFormat::Q5_1)),
    (8, GgufTensorType::Packed(QuantFormat::Q8_0)),
    (10, GgufTensorType::Packed(QuantFormat::Q2K)),
    (11, GgufTensorType::Packed(QuantFormat::Q3K)),
    (12, GgufTensorType::Packed(QuantFormat::Q4K)),
    (13, GgufTensorType::Packed(QuantFormat::Q5K)),
    (14, GgufTensorType::Packed(QuantFormat::Q6K)),
    (24, GgufTensorType::Plain(DType::I8)),
    (25, GgufTensorType::Plain(DType::I16)),
    (26, GgufTensorType::Plain(DType::I32)),
    (27, GgufTensorType::Plain(DType::I64)),
    (28, GgufTensorType::Plain(DType::F64)),
    (30, GgufTensorType::Plain(DType::BF16)),
];

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Its storage format.
    pub kind: GgufTensorType,
    /// Its offset from the start of the data.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl TensorEntry {
    /// One of several tensors that are stored in this one, if there are enough.
    pub(super) fn part(&self, index: usize) -> Option<TensorEntry> {
        let (count, shape) = self.shape.split_first()?;
        let bytes = self.kind.bytes(shape).filter(|_| index < *count)?;
        let (name, shape) = (self.name.clone(), shape.to_vec());
        Some(TensorEntry { name, shape, kind: self.kind, offset: self.offset + bytes * index as u64, bytes })
    }
}

/// The header of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Metadata values by key.
    pub pairs: BTreeMap<String, GgufValue>,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorEntry>,
    /// The offset of the data.
    pub data: u64,
}

impl Header {
    /// Returns an integer by its key.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.pairs.get(name)? {
            GgufValue::Int(n) => i64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Returns a number by its key.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.pairs.get(name)? {
            GgufValue::Float(x) => Some(*x),
            GgufValue::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// Returns a string by its key.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.pairs.get(name)? {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an array by its key.
    pub fn list(&self, name: &str) -> Option<&[GgufValue]> {
        match self.pairs.get(name)? {
            GgufValue::List(list) => Some(list),
            _ => None,
        }
    }
}

/// Limits far above those of existing files.
const MAX_PAIRS: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 20;
const MAX_ITEMS: u64 = 1 << 24;
const MAX_STRING_BYTES: u64 = 1 << 26;
const MAX_NAME_BYTES: u64 = 1 << 16;
/// Maximum depth of nested arrays.
const MAX_DEPTH: usize = 3;

/// A reader of consecutive bytes.
struct ByteReader<'a> {
    all: &'a [u8],
    at: usize,
    /// The length of the whole file.
    length: u64,
}

fn invalid<T>(why: impl Into<String>) -> Result<T, HeaderError> {
    Err(HeaderError::Invalid(why.into()))
}

impl<'a> ByteReader<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], HeaderError> {
        if n > self.length.saturating_sub(self.at as u64) {
            return invalid(format!("{n} bytes are declared, but the file has {} left", self.length - self.at as u64));
        }
        let n = usize::try_from(n).map_err(|_| HeaderError::Truncated)?;
        let end = self.at.checked_add(n).filter(|end| *end <= self.all.len()).ok_or(HeaderError::Truncated)?;
        let found = &self.all[self.at..end];
        self.at = end;
        Ok(found)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64)?);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, HeaderError> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn u64(&mut self) -> Result<u64, HeaderError> {
        Ok(u64::from_le_bytes(self.number()?))
    }

    fn text(&mut self, longest: u64) -> Result<String, HeaderError> {
        let n = self.u64()?;
        if n > longest {
            return invalid(format!("a string of {n} bytes: the maximum is {longest}"));
        }
        // Tokens may be invalid UTF-8.
        Ok(String::from_utf8_lossy(self.take(n)?).into_owned())
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<GgufValue, HeaderError> {
        Ok(match kind {
            0 => GgufValue::Int(self.number::<1>()?[0].into()),
            1 => GgufValue::Int((self.number::<1>()?[0] as i8).into()),
            2 => GgufValue::Int(u16::from_le_bytes(self.number()?).into()),
            3 => GgufValue::Int(i16::from_le_bytes(self.number()?).into()),
            4 => GgufValue::Int(self.u32()?.into()),
            5 => GgufValue::Int(i32::from_le_bytes(self.number()?).into()),
            6 => GgufValue::Float(f32::from_le_bytes(self.number()?).into()),
            7 => match self.number::<1>()?[0] {
                0 => GgufValue::Bool(false),
                1 => GgufValue::Bool(true),
                n => return invalid(format!("{n} is not a boolean")),
            },
            8 => GgufValue::Text(self.text(MAX_STRING_BYTES)?),
            9 => {
                let (inner, count) = (self.u32()?, self.u64()?);
                let least = match inner {
                    0 | 1 | 7 => 1,
                    2 | 3 => 2,
                    4..=6 => 4,
                    8 | 10..=12 => 8,
                    9 => 12,
                    n => return invalid(format!("an array of the unknown type {n}")),
                };
                if depth == 0 || count > MAX_ITEMS {
                    return invalid(format!("an array of {count} items, nested {} levels deep", MAX_DEPTH - depth));
                }
                // Checks before the allocation that the items exist.
                if count * least > self.length.saturating_sub(self.at as u64) {
                    return invalid(format!("an array of {count} items in a file of {} bytes", self.length));
                }
                if count * least > (self.all.len() - self.at) as u64 {
                    return Err(HeaderError::Truncated);
                }
                let mut items = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    items.push(self.value(inner, depth - 1)?);
                }
                GgufValue::List(items)
            }
            10 => GgufValue::Int(self.u64()?.into()),
            11 => GgufValue::Int(i64::from_le_bytes(self.number()?).into()),
            12 => GgufValue::Float(f64::from_le_bytes(self.number()?)),
            n => return invalid(format!("a value of the unknown type {n}")),
        })
    }
}

/// Parses the header of a file of `length` bytes, of which `bytes` are the first.
pub fn parse(bytes: &[u8], length: u64) -> Result<Header, HeaderError> {
    let mut b = ByteReader { all: bytes, at: 0, length };
    if length < 24 {
        return invalid(format!("the file has only {length} bytes"));
    }
    if b.take(4)? != b"GGUF" {
        return invalid("the magic number GGUF is missing");
    }
    let version = b.u32()?;
    if !(2..=3).contains(&version) {
        let hint = if version.swap_bytes() <= 3 { ", in the other byte order" } else { "" };
        return invalid(format!("version {version}{hint}: only 2 and 3 are supported"));
    }
    let (tensors, pairs) = (b.u64()?, b.u64()?);
    if pairs > MAX_PAIRS || tensors > MAX_TENSORS {
        return invalid(format!("{tensors} tensors and {pairs} key-value pairs are too many"));
    }
    // Each entry has at least this many bytes.
    if pairs * 13 + tensors * 32 > length {
        return invalid(format!("{tensors} tensors and {pairs} key-value pairs in a file of {length} bytes"));
    }
    let mut found = BTreeMap::new();
    for _ in 0..pairs {
        let name = b.text(MAX_NAME_BYTES)?;
        let kind = b.u32()?;
        let value = b.value(kind, MAX_DEPTH)?;
        if found.contains_key(&name) {
            return invalid(format!("`{name}` occurs twice"));
        }
        found.insert(name, value);
    }
    let align = match found.get("general.alignment") {
        None => 32,
        Some(GgufValue::Int(n)) if (1..=1 << 20).contains(n) && (*n as u64).is_power_of_two() => *n as u64,
        Some(other) => return invalid(format!("the alignment is {other:?}, but it must be a power of two")),
    };
    let mut list = Vec::new();
    let mut seen = BTreeSet::new();
    for _ in 0..tensors {
        let name = b.text(MAX_NAME_BYTES)?;
        let rank = b.u32()?;
        if !(1..=4).contains(&rank) {
            return invalid(format!("`{name}` has {rank} dimensions: only 1 to 4 are supported"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            let n = b.u64()?;
            shape.push(
                usize::try_from(n)
                    .ok()
                    .filter(|n| (*n as u64) < 1 << 40)
                    .ok_or(HeaderError::Invalid(format!("`{name}` has a dimension of size {n}")))?,
            );
        }
        shape.reverse();
        let (kind, offset) = (b.u32()?, b.u64()?);
        let kind = GgufTensorType::of(kind).ok_or(HeaderError::Invalid(format!(
            "`{name}` has type {kind}: F32, F16, BF16, F64, integers, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and Q2_K to Q6_K \
             are supported"
        )))?;
        let Some(bytes) = kind.bytes(&shape) else {
            return invalid(format!("the shape {shape:?} of `{name}` is not valid for {kind:?}"));
        };
        if offset % align != 0 {
            return invalid(format!("`{name}` begins at {offset}, which is not a multiple of {align}"));
        }
        if !seen.insert(name.clone()) {
            return invalid(format!("the tensor `{name}` occurs twice"));
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
            return invalid(format!(
                "`{}` ends after the end of the file: {} bytes at {} of {room}",
                t.name, t.bytes, t.offset
            ));
        };
        if t.offset < end {
            return invalid(format!("`{}` begins at {}, which overlaps another tensor", t.name, t.offset));
        }
        end = last;
    }
    Ok(Header { pairs: found, tensors: list, data })
}
