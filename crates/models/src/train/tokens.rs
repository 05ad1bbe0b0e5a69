//! A corpus as ids on disk, memory-mapped: what is trained on, then what is held out.
//!
//! Documents stand one after another, each followed by the end token: sequences are cut from this stream, so no position
//! is wasted on padding. Attention may look into the document before; the end token tells them apart.

use super::text::Texts;
use crate::error::{Error, Result};
use crate::export::{move_into_place, partial, write_file};
use crate::tokenizer::Tokenizer;
use memmap2::Mmap;
use serde_json::{Value as Json, json};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Of this many documents, the last is held out.
const HELD_OUT: usize = 20;

/// The ids of a corpus.
pub struct Tokens {
    map: Mmap,
    train: usize,
    valid: usize,
    fingerprint: u32,
}

impl Tokens {
    /// Ids of the texts, from `tokens.bin` in a folder if it was made from the same texts by the same tokenizer.
    pub fn prepare(texts: &Texts, tokenizer: &Tokenizer, vocabulary: usize, folder: &Path) -> Result<Tokens> {
        let key = json!({ "texts": texts.fingerprint(), "tokenizer": tokenizer.fingerprint()? });
        if let Some(found) = Tokens::reuse(folder, &key) {
            return Ok(found);
        }
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
        let path = folder.join("tokens.bin");
        let temporary = partial(&path);
        let fault = |e: std::io::Error| Error::file(&path, e);
        let mut file = BufWriter::new(std::fs::File::create(&temporary).map_err(fault)?);
        let (mut train, mut valid) = (0, Vec::new());
        let mut waiting: Vec<String> = Vec::new();
        let (mut bytes, mut documents) = (0, 0);
        let mut flush = |waiting: &mut Vec<String>| -> Result<()> {
            let texts: Vec<&str> = waiting.iter().map(String::as_str).collect();
            for ids in tokenizer.encode_all(&texts)? {
                if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
                    return Err(Error::Input(format!(
                        "the tokenizer gives id {id}, but the model knows {vocabulary} ids: use the model's own tokenizer"
                    )));
                }
                let end = tokenizer.end().map(|id| id as u32);
                let ids = ids.into_iter().chain(end);
                documents += 1;
                if documents % HELD_OUT == 0 {
                    valid.extend(ids);
                } else {
                    for id in ids {
                        file.write_all(&id.to_le_bytes()).map_err(fault)?;
                        train += 1;
                    }
                }
            }
            waiting.clear();
            Ok(())
        };
        texts.documents(|text| {
            bytes += text.len();
            waiting.push(text.into_owned());
            if bytes > 1 << 20 {
                bytes = 0;
                flush(&mut waiting)?;
            }
            Ok(())
        })?;
        flush(&mut waiting)?;
        for id in &valid {
            file.write_all(&id.to_le_bytes()).map_err(fault)?;
        }
        file.flush().map_err(fault)?;
        drop(file);
        let (mut train, mut valid) = (train, valid.len());
        if train + valid == 0 {
            let _ = std::fs::remove_file(&temporary);
            return Err(Error::Input("the data is empty: give files with text in them".into()));
        }
        if valid == 0 {
            // Few documents: the last part of the stream is held out.
            valid = train / HELD_OUT;
            train -= valid;
        }
        move_into_place(&temporary, &path)?;
        let about = json!({ "key": key, "train": train, "valid": valid });
        write_file(&folder.join("tokens.json"), format!("{about:#}\n").as_bytes())?;
        Tokens::reuse(folder, &key).ok_or_else(|| Error::file(&path, "could not be read back"))
    }

    fn reuse(folder: &Path, key: &Json) -> Option<Tokens> {
        let about: Json = serde_json::from_str(&std::fs::read_to_string(folder.join("tokens.json")).ok()?).ok()?;
        let number = |name: &str| about.get(name)?.as_u64().and_then(|n| usize::try_from(n).ok());
        let (train, valid) = (number("train")?, number("valid")?);
        let file = std::fs::File::open(folder.join("tokens.bin")).ok()?;
        // SAFETY: the file is ours and only read; every access is bounds-checked against the mapped length.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        let fits = map.len() == (train + valid) * 4;
        let fingerprint = crc32fast::hash(key.to_string().as_bytes());
        (fits && about.get("key") == Some(key)).then_some(Tokens { map, train, valid, fingerprint })
    }

    /// A number that changes when the texts or the tokenizer do.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// How many ids are trained on.
    pub fn train_len(&self) -> usize {
        self.train
    }

    /// How many are held out.
    pub fn valid_len(&self) -> usize {
        self.valid
    }

    fn at(&self, index: usize) -> i32 {
        let b = &self.map[index * 4..index * 4 + 4];
        i32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// Ids of the trained part.
    pub(crate) fn train(&self, from: usize, count: usize) -> impl Iterator<Item = i32> + '_ {
        (from..(from + count).min(self.train)).map(|i| self.at(i))
    }

    /// Ids of the held-out part.
    pub(crate) fn valid(&self, from: usize, count: usize) -> impl Iterator<Item = i32> + '_ {
        (from..(from + count).min(self.valid)).map(|i| self.at(self.train + i))
    }
}
