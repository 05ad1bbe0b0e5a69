//! Thrift's compact protocol, as far as Parquet's headers use it: structs by field numbers.

use std::collections::BTreeMap;

/// Maximum depth of nested structs.
const MAX_DEPTH: usize = 32;

/// A value of a header.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ThriftValue {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<ThriftValue>),
    Struct(BTreeMap<i16, ThriftValue>),
    /// A value that is not needed.
    Other,
}

impl ThriftValue {
    pub(super) fn get(&self, id: i16) -> Option<&ThriftValue> {
        match self {
            ThriftValue::Struct(fields) => fields.get(&id),
            _ => None,
        }
    }

    pub(super) fn number(&self, id: i16) -> Option<i64> {
        match self.get(id)? {
            ThriftValue::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// A number that is a count or an offset.
    pub(super) fn size(&self, id: i16) -> Option<usize> {
        self.number(id).and_then(|n| usize::try_from(n).ok())
    }

    pub(super) fn list(&self, id: i16) -> Option<&[ThriftValue]> {
        match self.get(id)? {
            ThriftValue::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            ThriftValue::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// A reader of bytes.
pub(super) struct ThriftReader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> ThriftReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ThriftReader<'a> {
        ThriftReader { bytes, at: 0 }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let n = self.varint()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// Parses a struct; `None` if the bytes are invalid.
    pub(super) fn structure(&mut self) -> Option<ThriftValue> {
        self.structure_in(MAX_DEPTH)
    }

    fn structure_in(&mut self, deeper: usize) -> Option<ThriftValue> {
        let mut fields = BTreeMap::new();
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(ThriftValue::Struct(fields));
            }
            id = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            // A boolean field has no separate value.
            let value = match head & 15 {
                1 => ThriftValue::Number(1),
                2 => ThriftValue::Number(0),
                kind => self.value(kind, deeper.checked_sub(1)?)?,
            };
            fields.insert(id, value);
        }
    }

    fn value(&mut self, kind: u8, deeper: usize) -> Option<ThriftValue> {
        Some(match kind {
            1 | 2 => ThriftValue::Number(i64::from(self.byte()? == 1)),
            3 => ThriftValue::Number(i64::from(self.byte()? as i8)),
            4..=6 => ThriftValue::Number(self.zigzag()?),
            7 => {
                self.take(8)?;
                ThriftValue::Other
            }
            8 => {
                let n = usize::try_from(self.varint()?).ok()?;
                ThriftValue::Bytes(self.take(n)?.to_vec())
            }
            9 | 10 => {
                let head = self.byte()?;
                let n = match head >> 4 {
                    15 => usize::try_from(self.varint()?).ok()?,
                    n => usize::from(n),
                };
                // Every element has at least one byte.
                if n > self.bytes.len() - self.at {
                    return None;
                }
                let mut list = Vec::new();
                for _ in 0..n {
                    list.push(self.value(head & 15, deeper.checked_sub(1)?)?);
                }
                ThriftValue::List(list)
            }
            11 => {
                let n = self.varint()?;
                let kinds = if n == 0 { 0 } else { self.byte()? };
                for _ in 0..n {
                    self.value(kinds >> 4, deeper.checked_sub(1)?)?;
                    self.value(kinds & 15, deeper.checked_sub(1)?)?;
                }
                ThriftValue::Other
            }
            12 => self.structure_in(deeper.checked_sub(1)?)?,
            _ => return None,
        })
    }
}
