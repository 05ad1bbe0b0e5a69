//! Reads documents from text files, JSON lines, Parquet files and folders, piece by piece.
//!
//! Files are streamed: a document is passed on in pieces, split after a word.

use super::decompress::{self, strip_compression_suffix};
use super::parquet::Parquet;
use crate::error::{Error, Result};
use crate::tokenizer::END_OF_TEXT;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use train::files;

/// Extensions of text files in folders.
const TEXT_SUFFIXES: &[&str] = &["txt", "md", "text"];
/// Extensions of files whose lines are JSON objects.
const JSONL_SUFFIXES: &[&str] = &["jsonl", "ndjson"];
/// Extensions of files whose rows are objects.
const PARQUET_SUFFIXES: &[&str] = &["parquet"];

/// The approximate size of a piece in bytes: a tokenizer needs some hundred bytes of memory per byte.
const PIECE_BYTES: usize = 64 << 10;
/// Number of bytes per read.
const READ_BLOCK: usize = 256 << 10;
/// Maximum length of a line in a JSON-lines file.
const MAX_LINE_BYTES: usize = 256 << 20;
/// Maximum depth of nested folders, and maximum number of files.
const MAX_DEPTH: usize = 64;
const MAX_FILES: usize = 1 << 20;

/// A part of a stream of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentPart<'a> {
    /// The next piece of a document.
    Text(&'a str),
    /// The end of a document.
    End,
}

/// All files under a path, in order.
pub struct TextDataset {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl TextDataset {
    /// Opens a file, or all data files under a folder, sorted by path.
    pub fn open(path: &Path) -> Result<TextDataset> {
        let mut paths = Vec::new();
        if path.is_dir() {
            collect_files(path, &mut BTreeSet::new(), MAX_DEPTH, &mut paths)?;
            if paths.is_empty() {
                return Err(Error::file(
                    path,
                    "no .txt, .md, .jsonl or .parquet files in this folder, compressed (.gz, .zst) or not",
                ));
            }
        } else {
            paths.push(path.to_path_buf());
        }
        let mut bytes = 0;
        for path in &paths {
            if let Err(e) = std::fs::metadata(path)
                && e.kind() == std::io::ErrorKind::NotFound
            {
                return Err(Error::file(path, "not found: give a text file, a .jsonl or .parquet file or a folder"));
            }
            bytes += files::open(path)?.metadata().map_err(|e| Error::file(path, e))?.len();
        }
        Ok(TextDataset { files: paths, bytes })
    }

    /// The total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A checksum of the files: their names, sizes and bytes.
    pub fn fingerprint(&self) -> Result<u32> {
        let mut sum = FileFingerprint::default();
        for path in &self.files {
            let file = decompress::open(path)?;
            sum.begin(path);
            hash_file(path, file, &mut sum)?;
            sum.end();
        }
        Ok(sum.hasher.finalize())
    }

    /// Calls `f` with the parts of every document: the texts between end tokens in a text file, the `text` field of each JSON
    /// line. Returns the checksum of the data, unless `f` stopped it.
    pub fn documents(&self, mut f: impl FnMut(DocumentPart<'_>) -> Result<bool>) -> Result<Option<u32>> {
        let mut sum = FileFingerprint::default();
        for path in &self.files {
            let file = decompress::open(path)?;
            sum.begin(path);
            let all = match has_ending(path, JSONL_SUFFIXES) {
                true => jsonl_documents(path, file, &mut sum, &mut f)?,
                false if has_ending(path, PARQUET_SUFFIXES) => parquet_documents(path, file, &mut sum, &mut f)?,
                false => text_documents(path, file, &mut sum, PIECE_BYTES, READ_BLOCK, &mut f)?,
            };
            if !all {
                return Ok(None);
            }
            sum.end();
        }
        Ok(Some(sum.hasher.finalize()))
    }
}

impl TextDataset {
    /// Calls `f` with every record, a JSON object, and a function that adds its location to an error: lines of `.jsonl` files,
    /// rows of `.parquet` files. Returns the checksum of the data, unless `f` stopped it.
    pub fn records(&self, mut f: impl FnMut(&Json, &dyn Fn(String) -> Error) -> Result<bool>) -> Result<Option<u32>> {
        let mut sum = FileFingerprint::default();
        for path in &self.files {
            let file = decompress::open(path)?;
            sum.begin(path);
            if has_ending(path, PARQUET_SUFFIXES) {
                hash_file(path, file, &mut sum)?;
                let parquet = Parquet::open(path)?;
                let mut n = 0usize;
                for group in 0..parquet.groups() {
                    for row in parquet.rows(group, &[])? {
                        n += 1;
                        if !f(&row, &|what| Error::file(path, format!("row {n}: {what}")))? {
                            return Ok(None);
                        }
                    }
                }
            } else if has_ending(path, JSONL_SUFFIXES) {
                let mut reader = BufReader::with_capacity(READ_BLOCK, file);
                let mut line = Vec::new();
                for number in 1usize.. {
                    let fault = |what: String| Error::file(path, format!("line {number}: {what}"));
                    line.clear();
                    let read = (&mut reader).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
                    match read.map_err(|e| Error::file(path, e))? {
                        0 => break,
                        n if n > MAX_LINE_BYTES => {
                            return Err(fault(format!(
                                "longer than {MAX_LINE_BYTES} bytes: each line must be one record"
                            )));
                        }
                        _ => sum.add(&line),
                    }
                    if line.trim_ascii().is_empty() {
                        continue;
                    }
                    let json: Json = serde_json::from_slice(&line).map_err(|e| fault(format!("not JSON: {e}")))?;
                    if !f(&json, &fault)? {
                        return Ok(None);
                    }
                }
            } else {
                return Err(Error::file(path, "no records: give .jsonl or .parquet files"));
            }
            sum.end();
        }
        Ok(Some(sum.hasher.finalize()))
    }

    /// Whether all files contain records, and not plain text.
    pub(crate) fn holds_records(&self) -> bool {
        self.files.iter().all(|path| has_ending(path, JSONL_SUFFIXES) || has_ending(path, PARQUET_SUFFIXES))
    }

    /// Whether all files contain records, and the first of them is not a plain document.
    pub(crate) fn holds_examples(&self) -> Result<bool> {
        if !self.holds_records() {
            return Ok(false);
        }
        let mut examples = false;
        self.records(|record, _| {
            let has = |name: &str| record.get(name).is_some();
            examples = !has("text") && (has("messages") || has("conversations") || has("prompt"));
            Ok(false)
        })?;
        Ok(examples)
    }
}

/// An incremental checksum.
#[derive(Default)]
struct FileFingerprint {
    hasher: crc32fast::Hasher,
    length: u64,
}

impl FileFingerprint {
    fn begin(&mut self, path: &Path) {
        self.hasher.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        self.length = 0;
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
    }

    fn end(&mut self) {
        self.hasher.update(&self.length.to_le_bytes());
    }
}

/// Reads the documents of a text file in pieces; returns whether to continue.
fn text_documents(
    path: &Path,
    mut file: impl Read,
    sum: &mut FileFingerprint,
    piece: usize,
    block: usize,
    f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>,
) -> Result<bool> {
    let mut cutter = DocumentSplitter { piece, begun: false };
    let (mut text, mut rest, mut buffer) = (String::new(), Vec::new(), vec![0; block]);
    let mut before = 0;
    loop {
        let n = file.read(&mut buffer).map_err(|e| Error::file(path, e))?;
        sum.add(&buffer[..n]);
        rest.extend_from_slice(&buffer[..n]);
        let valid = match std::str::from_utf8(&rest) {
            Ok(_) => rest.len(),
            // An incomplete UTF-8 character at the end of the buffer.
            Err(e) if e.error_len().is_none() && n > 0 => e.valid_up_to(),
            Err(e) => {
                let at = before + e.valid_up_to();
                return Err(Error::file(path, format!("not UTF-8 after {at} bytes: convert it to UTF-8")));
            }
        };
        text.push_str(&String::from_utf8_lossy(&rest[..valid]));
        rest.drain(..valid);
        before += valid;
        let mut from = 0;
        while let Some(at) = text[from..].find(END_OF_TEXT) {
            if !cutter.split_rest(&text[from..from + at], f)? {
                return Ok(false);
            }
            from += at + END_OF_TEXT.len();
        }
        text.drain(..from);
        if n == 0 {
            return cutter.split_rest(&text, f);
        }
        let used = match cutter.split_partial(&text, f)? {
            None => return Ok(false),
            Some(used) => used,
        };
        text.drain(..used);
    }
}

/// Splits consecutive documents into pieces.
struct DocumentSplitter {
    piece: usize,
    /// Whether a piece of the current document has been passed on.
    begun: bool,
}

const NEWLINES: [char; 2] = ['\n', '\r'];

impl DocumentSplitter {
    /// Passes on pieces of an incomplete document, and returns the number of bytes consumed; `None` if `f` stopped it.
    fn split_partial(
        &mut self,
        text: &str,
        f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>,
    ) -> Result<Option<usize>> {
        let mut from = 0;
        if !self.begun {
            from = text.len() - text.trim_start_matches(NEWLINES).len();
        }
        while text.len() - from > self.piece {
            let Some(length) = split_point(&text[from..], self.piece) else { break };
            let shown = &text[from..from + length];
            // The document may consist of white space only.
            if !self.begun && shown.trim().is_empty() {
                from += length;
                continue;
            }
            self.begun = true;
            if !f(DocumentPart::Text(shown))? {
                return Ok(None);
            }
            from += length;
        }
        Ok(Some(from))
    }

    /// Passes on the last pieces of a document; returns whether to continue.
    fn split_rest(&mut self, text: &str, f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>) -> Result<bool> {
        let text = text.trim_end_matches(NEWLINES);
        let Some(done) = self.split_partial(text, f)? else { return Ok(false) };
        let rest = &text[done..];
        if !rest.is_empty() && (self.begun || !rest.trim().is_empty()) {
            self.begun = true;
            if !f(DocumentPart::Text(rest))? {
                return Ok(false);
            }
        }
        match std::mem::take(&mut self.begun) {
            true => f(DocumentPart::End),
            false => Ok(true),
        }
    }
}

/// Where to split a text that is longer than a piece: after a word, before the following space, so that tokenizers find the same
/// words. A text without spaces is split anywhere, but not inside an end token.
fn split_point(text: &str, piece: usize) -> Option<usize> {
    let most = (0..=piece.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
    let mut after = text[most..].chars().next();
    for (at, c) in text[..most].char_indices().rev() {
        if !c.is_whitespace() && after.is_some_and(char::is_whitespace) {
            return Some(at + c.len_utf8());
        }
        after = Some(c);
    }
    if text.len() <= 4 * piece {
        return None;
    }
    let most = (0..=4 * piece - END_OF_TEXT.len().min(piece)).rev().find(|at| text.is_char_boundary(*at))?;
    (most > 0).then_some(most)
}

/// Reads the documents of a JSON-lines file; returns whether to continue.
fn jsonl_documents(
    path: &Path,
    file: impl Read,
    sum: &mut FileFingerprint,
    f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>,
) -> Result<bool> {
    let mut reader = BufReader::with_capacity(READ_BLOCK, file);
    let mut line = Vec::new();
    for number in 1usize.. {
        let fault = |what: String| Error::file(path, format!("line {number}: {what}"));
        line.clear();
        let n = (&mut reader)
            .take(MAX_LINE_BYTES as u64 + 1)
            .read_until(b'\n', &mut line)
            .map_err(|e| Error::file(path, e))?;
        if n == 0 {
            break;
        }
        sum.add(&line);
        if n > MAX_LINE_BYTES {
            return Err(fault(format!("longer than {MAX_LINE_BYTES} bytes: each line must be one document")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|e| fault(format!("not UTF-8 after {} bytes: convert it to UTF-8", e.valid_up_to())))?;
        if text.trim().is_empty() {
            continue;
        }
        let json: Json = serde_json::from_str(text).map_err(|e| fault(format!("not JSON: {e}")))?;
        let Some(Json::String(text)) = json.get("text") else {
            return Err(fault("no field `text` that is a string".into()));
        };
        if !document(text, f)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Passes on a complete document; returns whether to continue.
fn document(text: &str, f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>) -> Result<bool> {
    if text.trim().is_empty() {
        return Ok(true);
    }
    let mut rest = text;
    while rest.len() > PIECE_BYTES
        && let Some(at) = split_point(rest, PIECE_BYTES)
    {
        if !f(DocumentPart::Text(&rest[..at]))? {
            return Ok(false);
        }
        rest = &rest[at..];
    }
    Ok(f(DocumentPart::Text(rest))? && f(DocumentPart::End)?)
}

/// Reads the documents of a Parquet file; returns whether to continue.
fn parquet_documents(
    path: &Path,
    file: impl Read,
    sum: &mut FileFingerprint,
    f: &mut impl FnMut(DocumentPart<'_>) -> Result<bool>,
) -> Result<bool> {
    hash_file(path, file, sum)?;
    let parquet = Parquet::open(path)?;
    for group in 0..parquet.groups() {
        for (n, row) in parquet.rows(group, &["text"])?.iter().enumerate() {
            match row.get("text") {
                Some(Json::String(text)) => {
                    if !document(text, f)? {
                        return Ok(false);
                    }
                }
                Some(Json::Null) => {}
                _ => {
                    let what = format!("row {n} of group {group}: no column `text` that is a string");
                    return Err(Error::file(path, what));
                }
            }
        }
    }
    Ok(true)
}

/// Adds every byte of a file to its checksum.
fn hash_file(path: &Path, mut file: impl Read, sum: &mut FileFingerprint) -> Result<()> {
    let mut block = vec![0; READ_BLOCK];
    loop {
        match file.read(&mut block).map_err(|e| Error::file(path, e))? {
            0 => return Ok(()),
            n => sum.add(&block[..n]),
        }
    }
}

/// Whether a file has one of these extensions, before that of a compression format.
fn has_ending(path: &Path, endings: &[&str]) -> bool {
    strip_compression_suffix(path).extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e))
}

/// All text files under a folder. Links are followed, but no folder is visited twice.
fn collect_files(folder: &Path, seen: &mut BTreeSet<PathBuf>, depth: usize, paths: &mut Vec<PathBuf>) -> Result<()> {
    let fault = |e: std::io::Error| Error::file(folder, e);
    if !seen.insert(folder.canonicalize().map_err(fault)?) {
        return Ok(());
    }
    if depth == 0 {
        return Err(Error::file(folder, format!("folders are nested more than {MAX_DEPTH} levels deep")));
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        entries.push(entry.map_err(fault)?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect_files(&path, seen, depth - 1, paths)?;
        } else if [TEXT_SUFFIXES, JSONL_SUFFIXES, PARQUET_SUFFIXES].iter().any(|endings| has_ending(&path, endings)) {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(Error::file(folder, format!("more than {MAX_FILES} files: join them into larger ones")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Reads documents and concatenates their pieces.
    fn read(text: &[u8], piece: usize, block: usize) -> Result<Vec<String>> {
        let (mut documents, mut open) = (Vec::new(), String::new());
        let mut longest = 0;
        text_documents(Path::new("x"), text, &mut FileFingerprint::default(), piece, block, &mut |part| {
            match part {
                DocumentPart::Text(text) => {
                    assert!(!text.is_empty());
                    longest = longest.max(text.len());
                    open.push_str(text);
                }
                DocumentPart::End => documents.push(std::mem::take(&mut open)),
            }
            Ok(true)
        })?;
        assert!(open.is_empty() && longest <= 4 * piece, "{longest}");
        Ok(documents)
    }

    #[test]
    fn documents_are_the_same_however_they_are_cut() {
        let words = [
            "a",
            "the ",
            " ",
            "\n",
            "\r\n",
            "Zoë",
            "日本語",
            "<|end",
            "oftext|>",
            END_OF_TEXT,
            END_OF_TEXT,
            "  \n",
            "long-word-here",
        ];
        let mut random = SplitMix64::new(3, 3);
        for round in 0..600 {
            let text: String = (0..random.below(60)).map(|_| random.choice(&words)).collect();
            let expected: Vec<&str> = text
                .split(END_OF_TEXT)
                .map(|document| document.trim_matches(NEWLINES))
                .filter(|document| !document.trim().is_empty())
                .collect();
            for (piece, block) in [(16, 1), (16, 7), (20, 64), (1000, 5), (1000, 1000)] {
                let found = read(text.as_bytes(), piece, block).expect("read");
                // Long runs of white space before a document's first word may be lost.
                let same = found.len() == expected.len()
                    && found.iter().zip(&expected).all(|(a, b)| a == b || piece < 1000 && a.trim() == b.trim());
                assert!(same, "round {round}, pieces of {piece}, blocks of {block}: {text:?}\n{found:?}\n{expected:?}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_place() {
        for block in [1, 3, 100] {
            let error = read(b"some text\xff\xfe", 10, block).expect_err("no text").to_string();
            assert!(error.contains("after 9 bytes"), "{error}");
            let error = read("half of ë".as_bytes().split_last().expect("text").1, 10, block).expect_err("no text");
            assert!(error.to_string().contains("after 8 bytes"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_contains_itself_is_read_once() {
        let folder = std::env::temp_dir().join(format!("tensorloom-cycle-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("inner")).expect("a folder");
        std::fs::write(folder.join("inner/a.txt"), "one").expect("written");
        for name in ["x", "y", "inner/z"] {
            std::os::unix::fs::symlink(&folder, folder.join(name)).expect("a link");
        }
        let texts = TextDataset::open(&folder).expect("read");
        assert_eq!(texts.files.len(), 1);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
