//! Thrift's compact protocol, as far as Parquet's headers use it: structures by the numbers of their fields.

use std::collections::BTreeMap;

/// Structures in structures up to this depth.
const DEEPEST: usize = 32;

/// A value of a header.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Field>),
    Struct(BTreeMap<i16, Field>),
    /// Read, and of no use here.
    Other,
}

impl Field {
    pub(super) fn get(&self, id: i16) -> Option<&Field> {
        match self {
            Field::Struct(fields) => fields.get(&id),
            _ => None,
        }
    }

    pub(super) fn number(&self, id: i16) -> Option<i64> {
        match self.get(id)? {
            Field::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// A number that counts or places something.
    pub(super) fn size(&self, id: i16) -> Option<usize> {
        self.number(id).and_then(|n| usize::try_from(n).ok())
    }

    pub(super) fn list(&self, id: i16) -> Option<&[Field]> {
        match self.get(id)? {
            Field::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Field::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Bytes and how far they have been read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
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

    /// A structure; `None` where the bytes are none.
    pub(super) fn structure(&mut self) -> Option<Field> {
        self.structure_in(DEEPEST)
    }

    fn structure_in(&mut self, deeper: usize) -> Option<Field> {
        let mut fields = BTreeMap::new();
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(Field::Struct(fields));
            }
            id = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            // A field that is true or false has no bytes of its own.
            let value = match head & 15 {
                1 => Field::Number(1),
                2 => Field::Number(0),
                kind => self.value(kind, deeper.checked_sub(1)?)?,
            };
            fields.insert(id, value);
        }
    }

    fn value(&mut self, kind: u8, deeper: usize) -> Option<Field> {
        Some(match kind {
            1 | 2 => Field::Number(i64::from(self.byte()? == 1)),
            3 => Field::Number(i64::from(self.byte()? as i8)),
            4..=6 => Field::Number(self.zigzag()?),
            7 => {
                self.take(8)?;
                Field::Other
            }
            8 => {
                let n = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(n)?.to_vec())
            }
            9 | 10 => {
                let head = self.byte()?;
                let n = match head >> 4 {
                    15 => usize::try_from(self.varint()?).ok()?,
                    n => usize::from(n),
                };
                // Every element has a byte at least.
                if n > self.bytes.len() - self.at {
                    return None;
                }
                let mut list = Vec::new();
                for _ in 0..n {
                    list.push(self.value(head & 15, deeper.checked_sub(1)?)?);
                }
                Field::List(list)
            }
            11 => {
                let n = self.varint()?;
                let kinds = if n == 0 { 0 } else { self.byte()? };
                for _ in 0..n {
                    self.value(kinds >> 4, deeper.checked_sub(1)?)?;
                    self.value(kinds & 15, deeper.checked_sub(1)?)?;
                }
                Field::Other
            }
            12 => self.structure_in(deeper.checked_sub(1)?)?,
            _ => return None,
        })
    }
}
