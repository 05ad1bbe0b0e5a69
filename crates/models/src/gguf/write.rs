//! Writes a GGUF file, version 3.

use super::header::GgufTensorType;
use crate::error::{Error, Result};
use std::io::{BufWriter, Write};
use std::path::Path;
use train::files::AtomicFile;

/// The alignment of tensors.
const ALIGNMENT: u64 = 32;

/// A metadata value with the type that readers expect.
pub(super) enum MetadataValue {
    U32(u32),
    F32(f32),
    Text(String),
    Flag(bool),
    Texts(Vec<String>),
    Ints(Vec<i32>),
    Floats(Vec<f32>),
}

impl MetadataValue {
    fn put(&self, out: &mut Vec<u8>) {
        let kind = |out: &mut Vec<u8>, n: u32| out.extend(n.to_le_bytes());
        let list = |out: &mut Vec<u8>, inner: u32, count: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(inner.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        };
        match self {
            MetadataValue::U32(n) => {
                kind(out, 4);
                out.extend(n.to_le_bytes());
            }
            MetadataValue::F32(x) => {
                kind(out, 6);
                out.extend(x.to_le_bytes());
            }
            MetadataValue::Flag(flag) => {
                kind(out, 7);
                out.push(u8::from(*flag));
            }
            MetadataValue::Text(text) => {
                kind(out, 8);
                put_text(text, out);
            }
            MetadataValue::Texts(all) => {
                list(out, 8, all.len());
                all.iter().for_each(|text| put_text(text, out));
            }
            MetadataValue::Ints(all) => {
                list(out, 5, all.len());
                all.iter().for_each(|n| out.extend(n.to_le_bytes()));
            }
            MetadataValue::Floats(all) => {
                list(out, 6, all.len());
                all.iter().for_each(|x| out.extend(x.to_le_bytes()));
            }
        }
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A tensor to write: name, shape, storage format, bytes.
pub(super) type GgufTensor = (String, Vec<usize>, GgufTensorType, Vec<u8>);

/// Encodes the header of a file.
pub(super) fn encode_header(
    pairs: &[(String, MetadataValue)],
    tensors: &[GgufTensor],
) -> std::result::Result<Vec<u8>, String> {
    let mut head = b"GGUF".to_vec();
    head.extend(3u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((pairs.len() as u64).to_le_bytes());
    for (name, pair) in pairs {
        put_text(name, &mut head);
        pair.put(&mut head);
    }
    let mut offset = 0u64;
    for (name, shape, kind, bytes) in tensors {
        put_text(name, &mut head);
        head.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|n| head.extend((*n as u64).to_le_bytes()));
        let id = kind.id().ok_or_else(|| format!("`{name}` is stored as {kind:?}, which GGUF does not have"))?;
        head.extend(id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        offset += (bytes.len() as u64).next_multiple_of(ALIGNMENT);
    }
    head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
    Ok(head)
}

/// Writes a file atomically.
pub(super) fn write(path: &Path, pairs: &[(String, MetadataValue)], tensors: &[GgufTensor]) -> Result<()> {
    let head = encode_header(pairs, tensors).map_err(|e| Error::file(path, e))?;
    let mut file = BufWriter::with_capacity(1 << 20, AtomicFile::create(path)?);
    let mut add = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::file(path, e));
    add(&head)?;
    for (_, _, _, bytes) in tensors {
        add(bytes)?;
        let rest = (bytes.len() as u64).next_multiple_of(ALIGNMENT) - bytes.len() as u64;
        add(&[0; ALIGNMENT as usize][..rest as usize])?;
    }
    let (mut file, rest) = file.into_parts();
    match rest {
        Ok(rest) => file.write_bytes(&rest)?,
        Err(_) => return Err(Error::file(path, "writing was interrupted")),
    }
    Ok(file.commit()?)
}
