//! Writing a GGUF file, version 3.

use super::header::Kind;
use crate::error::{Error, Result};
use std::io::{BufWriter, Write};
use std::path::Path;
use train::files::NewFile;

/// Tensors begin at multiples of this.
const ALIGN: u64 = 32;

/// A pair's value with the kind that readers expect of it.
pub(super) enum Pair {
    U32(u32),
    F32(f32),
    Text(String),
    Flag(bool),
    Texts(Vec<String>),
    Ints(Vec<i32>),
    Floats(Vec<f32>),
}

impl Pair {
    fn put(&self, out: &mut Vec<u8>) {
        let kind = |out: &mut Vec<u8>, n: u32| out.extend(n.to_le_bytes());
        let list = |out: &mut Vec<u8>, inner: u32, count: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(inner.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        };
        match self {
            Pair::U32(n) => {
                kind(out, 4);
                out.extend(n.to_le_bytes());
            }
            Pair::F32(x) => {
                kind(out, 6);
                out.extend(x.to_le_bytes());
            }
            Pair::Flag(flag) => {
                kind(out, 7);
                out.push(u8::from(*flag));
            }
            Pair::Text(text) => {
                kind(out, 8);
                put_text(text, out);
            }
            Pair::Texts(all) => {
                list(out, 8, all.len());
                all.iter().for_each(|text| put_text(text, out));
            }
            Pair::Ints(all) => {
                list(out, 5, all.len());
                all.iter().for_each(|n| out.extend(n.to_le_bytes()));
            }
            Pair::Floats(all) => {
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

/// A tensor to write: name, shape, how it is stored, its bytes.
pub(super) type Tensor = (String, Vec<usize>, Kind, Vec<u8>);

/// The head of a file.
pub(super) fn head(pairs: &[(String, Pair)], tensors: &[Tensor]) -> std::result::Result<Vec<u8>, String> {
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
        let id = kind.id().ok_or_else(|| format!("`{name}` is stored as {kind:?}, which GGUF doesn't have"))?;
        head.extend(id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        offset += (bytes.len() as u64).next_multiple_of(ALIGN);
    }
    head.resize(head.len().next_multiple_of(ALIGN as usize), 0);
    Ok(head)
}

/// Writes a file, whole or not at all.
pub(super) fn write(path: &Path, pairs: &[(String, Pair)], tensors: &[Tensor]) -> Result<()> {
    let head = head(pairs, tensors).map_err(|e| Error::file(path, e))?;
    let mut file = BufWriter::with_capacity(1 << 20, NewFile::create(path)?);
    let mut add = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::file(path, e));
    add(&head)?;
    for (_, _, _, bytes) in tensors {
        add(bytes)?;
        let rest = (bytes.len() as u64).next_multiple_of(ALIGN) - bytes.len() as u64;
        add(&[0; ALIGN as usize][..rest as usize])?;
    }
    let (mut file, rest) = file.into_parts();
    match rest {
        Ok(rest) => file.add(&rest)?,
        Err(_) => return Err(Error::file(path, "a write was interrupted")),
    }
    Ok(file.finish()?)
}
