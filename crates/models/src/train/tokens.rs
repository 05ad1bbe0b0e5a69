//! A tokenized corpus on disk: the training set, followed by the validation set.
//!
//! Documents are concatenated, each followed by the end token (the tokenizer's `eos_token`), and with the special tokens that the
//! tokenizer adds to every text, such as BOS: sequences are slices of this stream, so no padding is needed. Attention may reach
//! into the previous document, which is separated by the end token. Tokens are read when they are needed, not memory-mapped, so
//! if a file is truncated during a run, this is an error and not a signal.

use super::text::{DocumentPart, TextDataset};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use train::files::{self, AtomicFile};

/// One of this many documents belongs to the validation set.
const VALIDATION_INTERVAL: usize = 20;
/// The number of bytes of text that are tokenized at once: a tokenizer needs some hundred bytes of memory for each, and heap
/// fragmentation over thousands of rounds grows with it.
const ENCODE_BATCH_BYTES: usize = 128 << 10;
/// The number of tokens per read in a full scan.
const READ_BLOCK: usize = 1 << 18;

/// The tokens of a corpus.
pub struct TokenDataset {
    path: PathBuf,
    file: File,
    train: usize,
    valid: usize,
    vocabulary: usize,
    fingerprint: u32,
}

/// Receives the number of bytes that have been read, and of all bytes; returns whether to continue.
pub type ReadProgress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

impl TokenDataset {
    /// Tokenizes documents, or opens `tokens.bin` in a folder if it was made from the same documents by the same tokenizer.
    pub fn prepare(
        texts: &TextDataset,
        tokenizer: &Tokenizer,
        vocabulary: usize,
        folder: &Path,
        reading: ReadProgress<'_>,
    ) -> Result<TokenDataset> {
        let key =
            json!({ "texts": texts.fingerprint()?, "tokenizer": tokenizer.fingerprint()?, "end": tokenizer.eos_id() });
        if let Some(found) = TokenDataset::reuse(folder, &key, vocabulary) {
            return Ok(found);
        }
        files::create_dir_all(folder)?;
        let mut writer = TokenWriter::new(tokenizer, vocabulary, folder)?;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        let mut done = 0;
        let read = texts.documents(|part| {
            match part {
                DocumentPart::Text(text) => {
                    bytes += text.len();
                    waiting.push(Some(text.to_string()));
                }
                DocumentPart::End => waiting.push(None),
            }
            if bytes > ENCODE_BATCH_BYTES {
                done += bytes as u64;
                bytes = 0;
                writer.encode(&mut waiting)?;
                return Ok(reading(done.min(texts.bytes()), texts.bytes()));
            }
            Ok(true)
        })?;
        let Some(read) = read else { return Err(Error::Stopped) };
        if key.get("texts").and_then(Json::as_u64) != Some(u64::from(read)) {
            return Err(Error::Input("the data changed while it was being read: start the run again".into()));
        }
        writer.encode(&mut waiting)?;
        writer.finish(&key)?;
        let path = folder.join("tokens.bin");
        TokenDataset::reuse(folder, &key, vocabulary).ok_or_else(|| Error::file(&path, "could not be read back"))
    }

    /// Opens the tokens in a folder, if their checksum is valid.
    fn reuse(folder: &Path, key: &Json, vocabulary: usize) -> Option<TokenDataset> {
        let found = TokenDataset::open(folder, vocabulary).ok()?;
        (found.0 == *key).then_some(found.1)
    }

    /// Opens the tokens in a folder and verifies every byte; also returns the description of their source.
    fn open(folder: &Path, vocabulary: usize) -> Result<(Json, TokenDataset)> {
        let (path, about) = (folder.join("tokens.bin"), folder.join("tokens.json"));
        let damaged = |path: &Path| Error::file(path, "damaged: delete it to have it rebuilt");
        let text = files::read_text(&about, files::MAX_CONFIG_BYTES)?;
        let json: Json = serde_json::from_str(&text).map_err(|_| damaged(&about))?;
        let number = |name: &str| json.get(name).and_then(Json::as_u64).ok_or_else(|| damaged(&about));
        let (train, valid, sum) = (number("train")?, number("valid")?, number("sum")?);
        let file = files::open(&path)?;
        let length = file.metadata().map_err(|e| Error::file(&path, e))?.len();
        let ids = train.checked_add(valid).and_then(|ids| ids.checked_mul(4));
        if ids != Some(length) || u64::from(file_crc32(&file, &path)?) != sum {
            return Err(damaged(&path));
        }
        let key = json.get("key").cloned().unwrap_or_default();
        let fingerprint = crc32fast::hash(format!("{key} {sum}").as_bytes());
        let (train, valid) = (train as usize, valid as usize);
        Ok((key, TokenDataset { path, file, train, valid, vocabulary, fingerprint }))
    }

    /// Verifies the tokens in a folder; returns the sizes of the training set and the validation set.
    pub fn verify(folder: &Path) -> Result<(usize, usize)> {
        TokenDataset::open(folder, 0).map(|(_, tokens)| (tokens.train, tokens.valid))
    }

    /// A checksum of the documents, the tokenizer and the tokens.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// The path of a file beside the tokens.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// The number of training tokens.
    pub fn train_len(&self) -> usize {
        self.train
    }

    /// The number of validation tokens.
    pub fn valid_len(&self) -> usize {
        self.valid
    }

    fn read(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        let mut bytes = vec![0; count * 4];
        files::read_at(&self.file, &self.path, from as u64 * 4, &mut bytes)?;
        let ids: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        match ids.iter().all(|id| usize::try_from(*id).is_ok_and(|id| id < self.vocabulary)) {
            true => Ok(ids),
            false => Err(Error::file(&self.path, "changed while it was being read: delete it to have it rebuilt")),
        }
    }

    /// Reads training tokens.
    pub(crate) fn train(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        self.read(from, count.min(self.train.saturating_sub(from)))
    }

    /// Reads validation tokens.
    pub(crate) fn valid(&self, from: usize, count: usize) -> Result<Vec<i32>> {
        self.read(self.train + from, count.min(self.valid.saturating_sub(from)))
    }

    /// Calls `f` with every training token.
    pub(crate) fn for_each_train(&self, f: impl FnMut(i32)) -> Result<()> {
        self.for_each_id(0, self.train, f)
    }

    /// Calls `f` with every validation token.
    pub(crate) fn for_each_valid(&self, f: impl FnMut(i32)) -> Result<()> {
        self.for_each_id(self.train, self.valid, f)
    }

    fn for_each_id(&self, from: usize, count: usize, mut f: impl FnMut(i32)) -> Result<()> {
        for at in (from..from + count).step_by(READ_BLOCK) {
            self.read(at, READ_BLOCK.min(from + count - at))?.into_iter().for_each(&mut f);
        }
        Ok(())
    }
}

/// CRC-32 of a whole file.
pub(crate) fn file_crc32(file: &File, path: &Path) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let (mut file, mut block) = (file, vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(|e| Error::file(path, e))? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&block[..n]),
        }
    }
}

/// Writes `tokens.bin`, and a description of its source beside it.
struct TokenWriter<'a> {
    tokenizer: &'a Tokenizer,
    vocabulary: usize,
    folder: PathBuf,
    /// The training set and the validation set, which is appended at the end.
    parts: [BufWriter<AtomicFile>; 2],
    counts: [usize; 2],
    documents: usize,
    /// Whether the next piece starts a document.
    begins: bool,
    /// The last token of the document so far.
    last: Option<u32>,
    /// The tokens that the tokenizer adds before and after every text.
    surrounding_ids: [Vec<u32>; 2],
}

impl<'a> TokenWriter<'a> {
    fn new(tokenizer: &'a Tokenizer, vocabulary: usize, folder: &Path) -> Result<TokenWriter<'a>> {
        let create = |name: &str| AtomicFile::create(&folder.join(name)).map(BufWriter::new);
        let parts = [create("tokens.bin")?, create("held-out.bin")?];
        let ids = |ids: Vec<i32>| ids.into_iter().map(|id| id as u32).collect::<Vec<u32>>();
        let (before, after) = tokenizer.surrounding_ids()?;
        let (around, folder) = ([ids(before), ids(after)], folder.to_path_buf());
        Ok(TokenWriter {
            tokenizer,
            vocabulary,
            folder,
            parts,
            counts: [0; 2],
            documents: 0,
            begins: true,
            last: None,
            surrounding_ids: around,
        })
    }

    /// Tokenizes pieces; `None` ends a document.
    fn encode(&mut self, waiting: &mut Vec<Option<String>>) -> Result<()> {
        let texts: Vec<&str> = waiting.iter().flatten().map(String::as_str).collect();
        let mut encoded = self.tokenizer.encode_all(&texts)?.into_iter();
        for piece in waiting.iter() {
            let held_out = usize::from((self.documents + 1).is_multiple_of(VALIDATION_INTERVAL));
            let before = if self.begins { self.surrounding_ids[0].clone() } else { Vec::new() };
            let ids = match piece {
                Some(_) => [before, encoded.next().unwrap_or_default()].concat(),
                None => {
                    self.documents += 1;
                    let mut tokens = [before, self.surrounding_ids[1].clone()].concat();
                    // A document that ends with the end token already gets no second one.
                    let last = tokens.last().copied().or(self.last);
                    tokens.extend(self.tokenizer.eos_id().map(|end| end as u32).filter(|end| last != Some(*end)));
                    tokens
                }
            };
            self.begins = piece.is_none();
            self.last = if self.begins { None } else { ids.last().copied().or(self.last) };
            if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocabulary) {
                return Err(Error::Input(format!(
                    "the tokenizer gives token ID {id}, but the model's vocabulary has {} tokens: use the model's own \
                     tokenizer",
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
            return Err(Error::Input("the data is empty: give files with text".into()));
        }
        if valid == 0 {
            // With few documents, the last part of the stream is the validation set.
            valid = train / VALIDATION_INTERVAL;
            train -= valid;
        }
        let [all, held_out] = self.parts.map(unbuffered);
        let (mut all, held_out) = (all?, held_out?);
        let mut rest = files::open(held_out.temp_path())?;
        std::io::copy(&mut rest, &mut all).map_err(|e| Error::file(all.path(), e))?;
        let sum = file_crc32(&files::open(all.temp_path())?, all.path())?;
        all.commit()?;
        let about = json!({ "key": key, "train": train, "valid": valid, "sum": sum });
        Ok(files::write(&self.folder.join("tokens.json"), format!("{about:#}\n").as_bytes())?)
    }
}

/// Flushes a buffered file and returns it.
pub(crate) fn unbuffered(file: BufWriter<AtomicFile>) -> Result<AtomicFile> {
    let (mut file, rest) = file.into_parts();
    match rest {
        Ok(rest) => Ok(file.write_bytes(&rest).map(|()| file)?),
        Err(_) => Err(Error::file(file.path(), "writing was interrupted")),
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

        fn prepare(&self, text: &str) -> Result<TokenDataset> {
            let path = self.folder.join("text.txt");
            std::fs::write(&path, text).expect("written");
            let texts = TextDataset::open(&path)?;
            TokenDataset::prepare(&texts, &self.tokenizer, 280, &self.folder, &mut |_, _| true)
        }
    }

    impl Drop for Corpus {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    /// A document of many pieces has the same tokens as in one piece.
    #[test]
    fn long_documents_have_the_ids_of_the_whole() {
        let corpus = Corpus::new("long");
        let text = "the cat sat  on the mat.\n\n Then the dog\tran — away! ".repeat(12_000);
        let tokens = corpus.prepare(&text).expect("prepared");
        let mut ids = corpus.tokenizer.encode(text.trim_matches(['\n', '\r'])).expect("encodes");
        ids.extend(corpus.tokenizer.eos_id());
        let (train, valid) = (tokens.train_len(), tokens.valid_len());
        assert_eq!(train + valid, ids.len());
        assert_eq!(tokens.train(0, train).expect("read"), ids[..train]);
        assert_eq!(tokens.valid(0, valid).expect("read"), ids[train..]);
        let mut seen = Vec::new();
        tokens.for_each_train(|id| seen.push(id)).expect("read");
        assert_eq!(seen, ids[..train]);
    }

    #[test]
    fn every_twentieth_document_is_held_out() {
        let corpus = Corpus::new("held");
        let documents: Vec<String> = (0..45).map(|i| format!("the cat {i}")).collect();
        let tokens = corpus.prepare(&documents.join(crate::tokenizer::END_OF_TEXT)).expect("prepared");
        let ids = |i: usize| {
            let mut ids = corpus.tokenizer.encode(&documents[i]).expect("encodes");
            ids.extend(corpus.tokenizer.eos_id());
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
        // One byte in the middle of the documents is changed.
        let mut other = text.clone();
        other.replace_range(600_004..600_005, "x");
        assert_ne!(corpus.prepare(&other).expect("prepared").fingerprint(), first);
        // One token in the middle of the file is changed: the file is written again.
        assert_eq!(corpus.prepare(&text).expect("prepared").fingerprint(), first);
        let path = corpus.folder.join("tokens.bin");
        let mut bytes = std::fs::read(&path).expect("there");
        let middle = bytes.len() / 8 * 4;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).expect("written");
        assert!(TokenDataset::verify(&corpus.folder).is_err());
        let before = written();
        assert_eq!(corpus.prepare(&text).expect("prepared").fingerprint(), first);
        assert!(written() > before && TokenDataset::verify(&corpus.folder).is_ok());
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
