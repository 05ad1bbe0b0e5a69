//! Reading texts: files, JSON lines and folders of them, piece by piece.
//!
//! Files are read, not mapped, and never held whole: a document comes in pieces, cut where a word has ended.

use super::compressed::{self, unpacked};
use super::parquet::Parquet;
use crate::error::{Error, Result};
use crate::tokenizer::END;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use train::files;

/// Endings of files that are texts, in folders.
const TEXTS: &[&str] = &["txt", "md", "text"];
/// Endings of files whose lines are JSON objects.
const LINES: &[&str] = &["jsonl", "ndjson"];
/// And of those whose rows are.
const ROWS: &[&str] = &["parquet"];

/// Documents come in pieces of about this many bytes: a tokenizer takes some hundred bytes of memory for each.
const PIECE: usize = 64 << 10;
/// How much is read at once.
const BLOCK: usize = 256 << 10;
/// The longest line of a JSON-lines file.
const LINE: usize = 256 << 20;
/// Folders in folders, and files, up to these numbers.
const DEEPEST: usize = 64;
const MOST_FILES: usize = 1 << 20;

/// What texts are made of: pieces, and after the last piece of a document its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The next piece of a document.
    Text(&'a str),
    /// The document ends here.
    End,
}

/// All files under a path, in order.
pub struct Texts {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Texts {
    /// Opens a file, or every text and JSON-lines file under a folder, sorted by path.
    pub fn open(path: &Path) -> Result<Texts> {
        let mut paths = Vec::new();
        if path.is_dir() {
            collect(path, &mut BTreeSet::new(), DEEPEST, &mut paths)?;
            if paths.is_empty() {
                return Err(Error::file(
                    path,
                    "no .txt, .md, .jsonl or .parquet files in this folder, packed (.gz, .zst) or not",
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
        Ok(Texts { files: paths, bytes })
    }

    /// How many bytes all files have.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A number that changes when the files do: their names, sizes and every byte.
    pub fn fingerprint(&self) -> Result<u32> {
        let mut sum = Sum::default();
        for path in &self.files {
            let file = compressed::open(path)?;
            sum.begin(path);
            whole(path, file, &mut sum)?;
            sum.end();
        }
        Ok(sum.hasher.finalize())
    }

    /// Calls `f` with every document: the texts between end marks of a text file, the `text` field of each JSON line. Gives
    /// the fingerprint of what was read, unless `f` said that it has enough.
    pub fn documents(&self, mut f: impl FnMut(Part<'_>) -> Result<bool>) -> Result<Option<u32>> {
        let mut sum = Sum::default();
        for path in &self.files {
            let file = compressed::open(path)?;
            sum.begin(path);
            let all = match has_ending(path, LINES) {
                true => lines(path, file, &mut sum, &mut f)?,
                false if has_ending(path, ROWS) => rows(path, file, &mut sum, &mut f)?,
                false => plain(path, file, &mut sum, PIECE, BLOCK, &mut f)?,
            };
            if !all {
                return Ok(None);
            }
            sum.end();
        }
        Ok(Some(sum.hasher.finalize()))
    }
}

impl Texts {
    /// Calls `f` with every record, a JSON object, and where it stands: lines of `.jsonl` files, rows of `.parquet` ones. Gives
    /// the fingerprint of what was read, unless `f` said that it has enough.
    pub fn records(&self, mut f: impl FnMut(&Json, &dyn Fn(String) -> Error) -> Result<bool>) -> Result<Option<u32>> {
        let mut sum = Sum::default();
        for path in &self.files {
            let file = compressed::open(path)?;
            sum.begin(path);
            if has_ending(path, ROWS) {
                whole(path, file, &mut sum)?;
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
            } else if has_ending(path, LINES) {
                let mut reader = BufReader::with_capacity(BLOCK, file);
                let mut line = Vec::new();
                for number in 1usize.. {
                    let fault = |what: String| Error::file(path, format!("line {number}: {what}"));
                    line.clear();
                    let read = (&mut reader).take(LINE as u64 + 1).read_until(b'\n', &mut line);
                    match read.map_err(|e| Error::file(path, e))? {
                        0 => break,
                        n if n > LINE => return Err(fault(format!("longer than {LINE} bytes: a line is one record"))),
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

    /// Whether all files hold records, and not plain texts.
    pub(crate) fn holds_records(&self) -> bool {
        self.files.iter().all(|path| has_ending(path, LINES) || has_ending(path, ROWS))
    }

    /// Whether all files hold records, and the first of them is none of a plain text.
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

/// The fingerprint as it grows.
#[derive(Default)]
struct Sum {
    hasher: crc32fast::Hasher,
    length: u64,
}

impl Sum {
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

/// Documents of a text file, in pieces; whether to go on.
fn plain(
    path: &Path,
    mut file: impl Read,
    sum: &mut Sum,
    piece: usize,
    block: usize,
    f: &mut impl FnMut(Part<'_>) -> Result<bool>,
) -> Result<bool> {
    let mut cutter = Cutter { piece, begun: false };
    let (mut text, mut rest, mut buffer) = (String::new(), Vec::new(), vec![0; block]);
    let mut before = 0;
    loop {
        let n = file.read(&mut buffer).map_err(|e| Error::file(path, e))?;
        sum.add(&buffer[..n]);
        rest.extend_from_slice(&buffer[..n]);
        let valid = match std::str::from_utf8(&rest) {
            Ok(_) => rest.len(),
            // A character whose other half has not been read yet.
            Err(e) if e.error_len().is_none() && n > 0 => e.valid_up_to(),
            Err(e) => {
                let at = before + e.valid_up_to();
                return Err(Error::file(path, format!("not UTF-8 text after {at} bytes: convert it first")));
            }
        };
        text.push_str(&String::from_utf8_lossy(&rest[..valid]));
        rest.drain(..valid);
        before += valid;
        let mut from = 0;
        while let Some(at) = text[from..].find(END) {
            if !cutter.last(&text[from..from + at], f)? {
                return Ok(false);
            }
            from += at + END.len();
        }
        text.drain(..from);
        if n == 0 {
            return cutter.last(&text, f);
        }
        let used = match cutter.some(&text, f)? {
            None => return Ok(false),
            Some(used) => used,
        };
        text.drain(..used);
    }
}

/// Cuts one document after another into pieces.
struct Cutter {
    piece: usize,
    /// Whether a piece of the document at hand has been shown.
    begun: bool,
}

const NEWLINES: [char; 2] = ['\n', '\r'];

impl Cutter {
    /// Shows pieces of a document that goes on, and says how many bytes are done with; `None` if that was enough.
    fn some(&mut self, text: &str, f: &mut impl FnMut(Part<'_>) -> Result<bool>) -> Result<Option<usize>> {
        let mut from = 0;
        if !self.begun {
            from = text.len() - text.trim_start_matches(NEWLINES).len();
        }
        while text.len() - from > self.piece {
            let Some(length) = cut(&text[from..], self.piece) else { break };
            let shown = &text[from..from + length];
            // White space alone may turn out to be all there is.
            if !self.begun && shown.trim().is_empty() {
                from += length;
                continue;
            }
            self.begun = true;
            if !f(Part::Text(shown))? {
                return Ok(None);
            }
            from += length;
        }
        Ok(Some(from))
    }

    /// Shows the last pieces of a document; whether to go on.
    fn last(&mut self, text: &str, f: &mut impl FnMut(Part<'_>) -> Result<bool>) -> Result<bool> {
        let text = text.trim_end_matches(NEWLINES);
        let Some(done) = self.some(text, f)? else { return Ok(false) };
        let rest = &text[done..];
        if !rest.is_empty() && (self.begun || !rest.trim().is_empty()) {
            self.begun = true;
            if !f(Part::Text(rest))? {
                return Ok(false);
            }
        }
        match std::mem::take(&mut self.begun) {
            true => f(Part::End),
            false => Ok(true),
        }
    }
}

/// Where to cut a text that is longer than a piece: behind a word, before the space that follows, so that tokenizers find
/// the same words. A text without spaces is cut anywhere, but for the end mark that may be coming.
fn cut(text: &str, piece: usize) -> Option<usize> {
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
    let most = (0..=4 * piece - END.len().min(piece)).rev().find(|at| text.is_char_boundary(*at))?;
    (most > 0).then_some(most)
}

/// Documents of a JSON-lines file; whether to go on.
fn lines(path: &Path, file: impl Read, sum: &mut Sum, f: &mut impl FnMut(Part<'_>) -> Result<bool>) -> Result<bool> {
    let mut reader = BufReader::with_capacity(BLOCK, file);
    let mut line = Vec::new();
    for number in 1usize.. {
        let fault = |what: String| Error::file(path, format!("line {number}: {what}"));
        line.clear();
        let n = (&mut reader).take(LINE as u64 + 1).read_until(b'\n', &mut line).map_err(|e| Error::file(path, e))?;
        if n == 0 {
            break;
        }
        sum.add(&line);
        if n > LINE {
            return Err(fault(format!("longer than {LINE} bytes: a line holds one document")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|e| fault(format!("not UTF-8 text after {} bytes: convert it first", e.valid_up_to())))?;
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

/// A document that is at hand whole; whether to go on.
fn document(text: &str, f: &mut impl FnMut(Part<'_>) -> Result<bool>) -> Result<bool> {
    if text.trim().is_empty() {
        return Ok(true);
    }
    let mut rest = text;
    while rest.len() > PIECE
        && let Some(at) = cut(rest, PIECE)
    {
        if !f(Part::Text(&rest[..at]))? {
            return Ok(false);
        }
        rest = &rest[at..];
    }
    Ok(f(Part::Text(rest))? && f(Part::End)?)
}

/// Documents of a Parquet file; whether to go on.
fn rows(path: &Path, file: impl Read, sum: &mut Sum, f: &mut impl FnMut(Part<'_>) -> Result<bool>) -> Result<bool> {
    whole(path, file, sum)?;
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

/// Every byte of a file, for its fingerprint.
fn whole(path: &Path, mut file: impl Read, sum: &mut Sum) -> Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block).map_err(|e| Error::file(path, e))? {
            0 => return Ok(()),
            n => sum.add(&block[..n]),
        }
    }
}

/// Whether a file has one of these endings, before the one that says how it is packed.
fn has_ending(path: &Path, endings: &[&str]) -> bool {
    unpacked(path).extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e))
}

/// All text files under a folder. Links are followed, but no folder is entered twice.
fn collect(folder: &Path, seen: &mut BTreeSet<PathBuf>, depth: usize, paths: &mut Vec<PathBuf>) -> Result<()> {
    let fault = |e: std::io::Error| Error::file(folder, e);
    if !seen.insert(folder.canonicalize().map_err(fault)?) {
        return Ok(());
    }
    if depth == 0 {
        return Err(Error::file(folder, format!("more than {DEEPEST} folders in one another")));
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        entries.push(entry.map_err(fault)?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, seen, depth - 1, paths)?;
        } else if [TEXTS, LINES, ROWS].iter().any(|endings| has_ending(&path, endings)) {
            paths.push(path);
        }
        if paths.len() > MOST_FILES {
            return Err(Error::file(folder, format!("more than {MOST_FILES} files: join them into larger ones")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Documents as they come, put together again.
    fn read(text: &[u8], piece: usize, block: usize) -> Result<Vec<String>> {
        let (mut documents, mut open) = (Vec::new(), String::new());
        let mut longest = 0;
        plain(Path::new("x"), text, &mut Sum::default(), piece, block, &mut |part| {
            match part {
                Part::Text(text) => {
                    assert!(!text.is_empty());
                    longest = longest.max(text.len());
                    open.push_str(text);
                }
                Part::End => documents.push(std::mem::take(&mut open)),
            }
            Ok(true)
        })?;
        assert!(open.is_empty() && longest <= 4 * piece, "{longest}");
        Ok(documents)
    }

    #[test]
    fn documents_are_the_same_however_they_are_cut() {
        let words =
            ["a", "the ", " ", "\n", "\r\n", "Zoë", "日本語", "<|end", "oftext|>", END, END, "  \n", "long-word-here"];
        let mut random = Random::new(3, 3);
        for round in 0..600 {
            let text: String = (0..random.below(60)).map(|_| random.pick(&words)).collect();
            let expected: Vec<&str> = text
                .split(END)
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
        let texts = Texts::open(&folder).expect("read");
        assert_eq!(texts.files.len(), 1);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
