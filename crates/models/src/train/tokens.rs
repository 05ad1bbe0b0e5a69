//! A corpus as ids on disk: what is trained on, then what is held out.
//!
//! Documents stand one after another, each followed by the end token (the tokenizer's `eos_token`), and with what the tokenizer puts
//! around every text, such as BOS: sequences are cut from this stream, so no position
//! is wasted on padding. Attention may look into the document before; the end token tells them apart.
//! Ids are read when they are needed, not mapped, so a file that is cut off during a run is an error and not a signal.

use super::text::{Part, Texts};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use train::files::{self, NewFile};

/// Of this many documents, the last is held out.
const HELD_OUT: usize = 20;
/// So many bytes of text are encoded at once: a tokenizer takes some hundred bytes of memory for each, and what the allocator can't
/// put together again over thousands of rounds grows with that.
const AT_ONCE: usize = 128 << 10;
/// Ids that are read at once when all are looked at.
const BLOCK: usize = 1 << 18;

/// The ids of a corpus.
pub struct Tokens {
    path: PathBuf,
    file: File,
    train: usize,
    valid: usize,
    vocabulary: usize,
    fingerprint: u32,
}

/// Told how many bytes of how many have been read; says whether to go on.
pub type Reading<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

impl Tokens {
    /// Ids of the texts, from `tokens.bin` in a folder if it was made from the same texts by the same tokenizer.
    pub fn prepare(
        texts: &Texts,
        tokenizer: &Tokenizer,
        vocabulary: usize,
        folder: &Path,
        reading: Reading<'_>,
    ) -> Result<Tokens> {
        let key =
            json!({ "texts": texts.fingerprint()?, "tokenizer": tokenizer.fingerprint()?, "end": tokenizer.end() });
        if let Some(found) = Tokens::reuse(folder, &key, vocabulary) {
            return Ok(found);
        }
        files::make_folder(folder)?;
        let mut writer = Writer::new(tokenizer, vocabulary, folder)?;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let mut done = 0;
        let read = texts.documents(|part| {
            match part {
                Part::Text(text) => {
                    bytes += text.len();
                    waiting.push(Some(text.to_string()));
                }
                Part::End => waiting.push(None),
            }
            if bytes > AT_ONCE {
                done += bytes as u64;
                bytes = 0;
                writer.encode(&mut waiting)?;
                return Ok(reading(done.min(texts.bytes()), texts.bytes()));
            }
            Ok(true)
        })?;
        let Some(read) = read else { return Err(Error::Stopped) };
        if key.get("texts").and_then(Json::as_u64) != Some(u64::from(read)) {
            return Err(Error::Input("the data changed while it was being read: start again".into()));
        }
        writer.encode(&mut waiting)?;
        writer.finish(&key)?;
        let path = folder.join("tokens.bin");
        Tokens::reuse(folder, &key, vocabulary).ok_or_else(|| Error::file(&path, "could not be read back"))
    }

    /// The ids of a folder, if every one of them is as it was written.
    fn reuse(folder: &Path, key: &Json, vocabulary: usize) -> Option<Tokens> {
        let found = Tokens::open(folder, vocabulary).ok()?;
        (found.0 == *key).then_some(found.1)
    }

    /// Opens what a folder holds and looks at every byte; also gives what it was made of.
    fn open(folder: &Path, vocabulary: usize) -> Result<(Json, Tokens)> {
        let (path, about) = (folder.join("tokens.bin"), folder.join("tokens.json"));
        let damaged = |path: &Path| Error::file(path, "damaged: remove it, and it is made again");
        let text = files::read_text(&about, files::CONFIG)?;
        let json: Json = serde_json::from_str(&text).map_err(|_| damaged(&about))?;
        let number = |name: &str| json.get(name).and_then(Json::as_u64).ok_or_else(|| damaged(&about));
        let (train, valid, sum) = (number("train")?, number("valid")?, number("sum")?);
        let file = files::open(&path)?;
        let length = file.metadata().map_err(|e| Error::file(&path, e))?.len();
        let ids = train.checked_add(valid).and_then(|ids| ids.checked_mul(4));
        if ids != Some(length) || u64::from(sum_of(&file, &path)?) != sum {
            return Err(damaged(&path));
        }
        let key = json.get("key").cloned().unwrap_or_default();
        let fingerprint = crc32fast::hash(format!("{key} {sum}").as_bytes());
        let (train, valid) = (train as usize, valid as usize);
        Ok((key, Tokens { path, file, train, valid, vocabulary, fingerprint }))
    }

    /// Looks at every byte of the ids in a folder; how many are trained on, and how many held out.
    pub fn verify(folder: &Path) -> Result<(usize, usize)> {
        Tokens::open(folder, 0).map(|(_, tokens)| (tokens.train, tokens.valid))
    }

    /// A number that changes when the texts, the tokenizer or the ids do.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// A file beside the ids.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// How many ids are trained on.
    pub fn train_len(&self) -> usize {
        self.train
    }

    /// How many are held out.
    pub fn valid_len(&self) -> usize {
        self.valid
    }

    fn read(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        let mut bytes = vec![0; count * 4];
        files::read_at(&self.file, &self.path, from as u64 * 4, &mut bytes)?;
        let ids: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        match ids.iter().all(|id| usize::try_from(*id).is_ok_and(|id| id < self.vocabulary)) {
            true => Ok(ids),
            false => Err(Error::file(&self.path, "changed while it was being read: remove it, and it is made again")),
        }
    }

    /// Ids of the trained part.
    pub(crate) fn train(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        self.read(from, count.min(self.train.saturating_sub(from)))
    }

    /// Ids of the held-out part.
    pub(crate) fn valid(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        self.read(self.train + from, count.min(self.valid.saturating_sub(from)))
    }

    /// Shows all ids of the trained part.
    pub(crate) fn each_train(&self, f: impl FnMut(i32)) -> Result<()> {
        self.each(0, self.train, f)
    }

    /// Shows all ids of the held-out part.
    pub(crate) fn each_valid(&self, f: impl FnMut(i32)) -> Result<()> {
        self.each(self.train, self.valid, f)
    }

    fn each(&self, from: usize, count: usize, mut f: impl FnMut(i32)) -> Result<()> {
        for at in (from..from + count).step_by(BLOCK) {
            self.read(at, BLOCK.min(from + count - at))?.into_iter().for_each(&mut f);
        }
        Ok(())
    }
}

/// CRC-32 of a whole file.
pub(crate) fn sum_of(file: &File, path: &Path) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let (mut file, mut block) = (file, vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(|e| Error::file(path, e))? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&block[..n]),
        }
    }
}

/// Writes `tokens.bin`, and beside it what it was made of.
struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    vocabulary: usize,
    folder: PathBuf,
    /// What is trained on; what is held out follows it in the end.
    parts: [BufWriter<NewFile>; 2],
    counts: [usize; 2],
    documents: usize,
    /// Whether the next piece begins a document.
    begins: bool,
    /// The last token of the document so far.
    last: Option<u32>,
    /// What the tokenizer puts before and behind every text.
    around: [Vec<u32>; 2],
}

impl<'a> Writer<'a> {
    fn new(tokenizer: &'a Tokenizer, vocabulary: usize, folder: &Path) -> Result<Writer<'a>> {
        let create = |name: &str| NewFile::create(&folder.join(name)).map(BufWriter::new);
        let parts = [create("tokens.bin")?, create("held-out.bin")?];
        let ids = |ids: Vec<i32>| ids.into_iter().map(|id| id as u32).collect::<Vec<u32>>();
        let (before, after) = tokenizer.around()?;
        let (around, folder) = ([ids(before), ids(after)], folder.to_path_buf());
        Ok(Writer {
            tokenizer,
            vocabulary,
            folder,
            parts,
            counts: [0; 2],
            documents: 0,
            begins: true,
            last: None,
            around,
        })
    }

    /// Encodes pieces, between which `None` ends a document.
    fn encode(&mut self, waiting: &mut Vec<Option<String>>) -> Result<()> {
        let texts: Vec<&str> = waiting.iter().flatten().map(String::as_str).collect();
        let mut encoded = self.tokenizer.encode_all(&texts)?.into_iter();
        for piece in waiting.iter() {
            let held_out = usize::from((self.documents + 1).is_multiple_of(HELD_OUT));
            let before = if self.begins { self.around[0].clone() } else { Vec::new() };
            let ids = match piece {
                Some(_) => [before, encoded.next().unwrap_or_default()].concat(),
                None => {
                    self.documents += 1;
                    let mut tokens = [before, self.around[1].clone()].concat();
                    // A text that ends with the end token gets no second one.
                    let last = tokens.last().copied().or(self.last);
                    tokens.extend(self.tokenizer.end().map(|end| end as u32).filter(|end| last != Some(*end)));
                    tokens
                }
            };
            self.begins = piece.is_none();
            self.last = if self.begins { None } else { ids.last().copied().or(self.last) };
            if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) {
                return Err(Error::Input(format!(
                    "the tokenizer gives id {id}, but the model knows {} ids: use the model's own tokenizer",
                    self.vocabulary
                )));
            }
            self.counts[held_out] += ids.len();
            let part = &mut self.parts[held_out];
            for id in ids {
                part.write_all(&id.to_le_bytes()).map_err(|e| Error::file(part.get_ref().path(), e))?;
            }
        }
        waiting.clear();
        Ok(())
    }

    fn finish(self, key: &Json) -> Result<()> {
        let [mut train, mut valid] = self.counts;
        if train + valid == 0 {
            return Err(Error::Input("the data is empty: give files with text in them".into()));
        }
        if valid == 0 {
            // Few documents: the last part of the stream is held out.
            valid = train / HELD_OUT;
            train -= valid;
        }
        let [all, held_out] = self.parts.map(unbuffered);
        let (mut all, held_out) = (all?, held_out?);
        let mut rest = files::open(held_out.partial())?;
        std::io::copy(&mut rest, &mut all).map_err(|e| Error::file(all.path(), e))?;
        let sum = sum_of(&files::open(all.partial())?, all.path())?;
        all.finish()?;
        let about = json!({ "key": key, "train": train, "valid": valid, "sum": sum });
        Ok(files::write(&self.folder.join("tokens.json"), format!("{about:#}\n").as_bytes())?)
    }
}

/// A file with all that was still in its buffer.
pub(crate) fn unbuffered(file: BufWriter<NewFile>) -> Result<NewFile> {
    let (mut file, rest) = file.into_parts();
    match rest {
        Ok(rest) => Ok(file.add(&rest).map(|()| file)?),
        Err(_) => Err(Error::file(file.path(), "a write was interrupted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Corpus {
        folder: PathBuf,
        tokenizer: Tokenizer,
    }

    impl Corpus {
        fn new(name: &str) -> Corpus {
            let folder = std::env::temp_dir().join(format!("tensorloom-tokens-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).expect("a folder");
            let text = "the cat sat on the mat and the dog ran away from it, over and over again\n";
            let tokenizer = Tokenizer::train([text].into_iter(), 280).expect("trains");
            Corpus { folder, tokenizer }
        }

        fn prepare(&self, text: &str) -> Result<Tokens> {
            let path = self.folder.join("text.txt");
            std::fs::write(&path, text).expect("written");
            let texts = Texts::open(&path)?;
            Tokens::prepare(&texts, &self.tokenizer, 280, &self.folder, &mut |_, _| true)
        }
    }

    impl Drop for Corpus {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// A document of many pieces has the ids that it has whole.
    #[test]
    fn long_documents_have_the_ids_of_the_whole() {
        let corpus = Corpus::new("long");
        let text = "the cat sat  on the mat.\n\n Then the dog\tran — away! ".repeat(12_000);
        let tokens = corpus.prepare(&text).expect("prepared");
        let mut ids = corpus.tokenizer.encode(text.trim_matches(['\n', '\r'])).expect("encodes");
        ids.extend(corpus.tokenizer.end());
        let (train, valid) = (tokens.train_len(), tokens.valid_len());
        assert_eq!(train + valid, ids.len());
        assert_eq!(tokens.train(0, train).expect("read"), ids[..train]);
        assert_eq!(tokens.valid(0, valid).expect("read"), ids[train..]);
        let mut seen = Vec::new();
        tokens.each_train(|id| seen.push(id)).expect("read");
        assert_eq!(seen, ids[..train]);
    }

    #[test]
    fn every_twentieth_document_is_held_out() {
        let corpus = Corpus::new("held");
        let documents: Vec<String> = (0..45).map(|i| format!("the cat {i}")).collect();
        let tokens = corpus.prepare(&documents.join(crate::tokenizer::END)).expect("prepared");
        let ids = |i: usize| {
            let mut ids = corpus.tokenizer.encode(&documents[i]).expect("encodes");
            ids.extend(corpus.tokenizer.end());
            ids
        };
        assert_eq!(tokens.valid(0, 1000).expect("read"), [ids(19), ids(39)].concat());
        assert_eq!(tokens.train(0, ids(0).len()).expect("read"), ids(0));
    }

    #[test]
    fn any_change_of_texts_or_ids_is_seen() {
        let corpus = Corpus::new("changes");
        let text = "the cat sat on the mat. ".repeat(40_000);
        let first = corpus.prepare(&text).expect("prepared").fingerprint();
        assert_eq!(corpus.prepare(&text).expect("reused").fingerprint(), first);
        let written =
            || std::fs::metadata(corpus.folder.join("tokens.bin")).expect("there").modified().expect("a time");
        // One byte somewhere in the middle of the texts.
        let mut other = text.clone();
        other.replace_range(600_004..600_005, "x");
        assert_ne!(corpus.prepare(&other).expect("prepared").fingerprint(), first);
        // One id somewhere in the middle of the file: it is made again.
        assert_eq!(corpus.prepare(&text).expect("prepared").fingerprint(), first);
        let path = corpus.folder.join("tokens.bin");
        let mut bytes = std::fs::read(&path).expect("there");
        let middle = bytes.len() / 8 * 4;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).expect("written");
        assert!(Tokens::verify(&corpus.folder).is_err());
        let before = written();
        assert_eq!(corpus.prepare(&text).expect("prepared").fingerprint(), first);
        assert!(written() > before && Tokens::verify(&corpus.folder).is_ok());
    }

    #[test]
    fn ids_that_are_cut_off_during_a_run_are_an_error() {
        let corpus = Corpus::new("cut");
        let tokens = corpus.prepare(&"the cat sat on the mat. ".repeat(1000)).expect("prepared");
        let count = tokens.train_len();
        assert!(tokens.train(count - 5, 5).is_ok());
        let file = std::fs::OpenOptions::new().write(true).open(corpus.folder.join("tokens.bin")).expect("there");
        file.set_len(40).expect("cut");
        assert!(tokens.train(0, 5).is_ok());
        let error = tokens.train(count - 5, 5).expect_err("gone").to_string();
        assert!(error.contains("tokens.bin") && error.contains("shorter"), "{error}");
    }
}
