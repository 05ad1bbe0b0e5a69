//! Text to ids and back, by HuggingFace's `tokenizer.json`; byte-pair tokenizers can be trained.

use crate::error::{Error, Result};
use crate::expansion;
use std::path::{Path, PathBuf};
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::utils::parallelism::MaybeParallelRefIterator;
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper};
use tokenizers::{PreTokenizerWrapper, TokenizerImpl};
use training::files;

/// The token that ends a text.
pub const END: &str = "<|endoftext|>";

/// Names of such tokens in other tokenizers.
const ENDS: &[&str] = &[END, "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>"];

/// The longest `tokenizer.json`, and the longest text that one may put in front of others.
const LARGEST: u64 = 512 << 20;
const LONGEST_PREFIX: usize = 1000;
/// The largest vocabulary that is trained.
pub(crate) const MOST_IDS: usize = 1 << 20;

/// A tokenizer.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    end: Option<i32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn read(path: &Path) -> Result<Tokenizer> {
        let fault = |what: String| Error::file(path, format!("not a tokenizer of HuggingFace's form: {what}"));
        let bytes = files::read(path, LARGEST)?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| fault(e.to_string()))?;
        for name in ["normalizer", "decoder"] {
            let Some(rule) = json.get(name) else { continue };
            let (growth, prefix) = (expansion::of(rule), expansion::prefix(rule));
            if growth > expansion::MOST || prefix > LONGEST_PREFIX {
                return Err(Error::file(
                    path,
                    format!(
                        "its {name} may make texts {growth:.0} times as long, and {prefix} bytes more: at most {} times and {LONGEST_PREFIX} bytes are allowed",
                        expansion::MOST
                    ),
                ));
            }
        }
        drop(json);
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| fault(e.to_string()))?;
        // As transformers does: these belong to a call, not to the tokenizer.
        inner.with_truncation(None).map_err(|e| fault(e.to_string()))?;
        inner.with_padding(None);
        Ok(Tokenizer::of(inner))
    }

    /// A tokenizer from the text of a `tokenizer.json` that was made from the file at `path`, with the id that ends a text.
    pub(crate) fn of_json(text: &str, end: Option<i32>, path: &Path) -> Result<Tokenizer> {
        let inner = tokenizers::Tokenizer::from_bytes(text);
        let inner = inner.map_err(|e| Error::file(path, format!("its tokenizer can't be used: {e}")))?;
        let found = Tokenizer::of(inner);
        Ok(Tokenizer { end: end.or(found.end), ..found })
    }

    /// The tokenizer as a `tokenizer.json`.
    pub(crate) fn to_json(&self) -> Result<serde_json::Value> {
        let text = self.inner.to_string(false).map_err(|e| Error::Input(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| Error::Input(e.to_string()))
    }

    /// The tokenizer of a HuggingFace directory, or of a GGUF file.
    pub fn of_dir(dir: &Path) -> Result<Tokenizer> {
        if crate::gguf::is_gguf(dir) {
            return crate::gguf::Gguf::open(dir)?.tokenizer();
        }
        let path = dir.join("tokenizer.json");
        if !path.is_file() {
            return Err(Error::file(
                &path,
                "there is no tokenizer here: put the model's tokenizer.json beside its config.json, or use ids",
            ));
        }
        Tokenizer::read(&path)
    }

    fn of(inner: tokenizers::Tokenizer) -> Tokenizer {
        let end = ENDS.iter().find_map(|name| inner.token_to_id(name)).and_then(|id| i32::try_from(id).ok());
        Tokenizer { inner, end }
    }

    /// Trains a byte-pair tokenizer: any text can be encoded, and decoding gives it back.
    pub fn train<'a>(texts: impl Iterator<Item = &'a str> + Send, size: usize) -> Result<Tokenizer> {
        let fault = |e: tokenizers::Error| Error::Input(format!("the tokenizer could not be trained: {e}"));
        if size < 257 {
            return Err(Error::Input(format!("a vocabulary of {size} is too small: 256 bytes and an end need 257")));
        }
        if size > MOST_IDS {
            return Err(Error::Input(format!(
                "a vocabulary of {size} is too large: at most {MOST_IDS} ids are trained"
            )));
        }
        type Parts = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
        let mut trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(size)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END, true)])
            .build();
        let mut inner: Parts = TokenizerImpl::new(BPE::default());
        let bytes = ByteLevel::default().add_prefix_space(false);
        inner.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
        inner.train(&mut trainer, texts).map_err(fault)?;
        let text = inner.to_string(false).map_err(fault)?;
        let inner = tokenizers::Tokenizer::from_bytes(text).map_err(fault)?;
        Ok(Tokenizer::of(inner))
    }

    /// Writes `tokenizer.json` and the small files that transformers reads beside it.
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let text = self.inner.to_string(true).map_err(|e| Error::Input(e.to_string()))?;
        let path = dir.join("tokenizer.json");
        files::write(&path, text.as_bytes())?;
        let mut written = vec![path];
        if let Some(end) = self.end.and_then(|id| self.inner.id_to_token(id as u32)) {
            let config = serde_json::json!({ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end });
            let path = dir.join("tokenizer_config.json");
            files::write(&path, format!("{config:#}\n").as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }

    /// A number that changes when the tokenizer does.
    pub(crate) fn fingerprint(&self) -> Result<u32> {
        let text = self.inner.to_string(false).map_err(|e| Error::Input(e.to_string()))?;
        Ok(crc32fast::hash(text.as_bytes()))
    }

    /// How many ids there are.
    pub fn size(&self) -> usize {
        let ids = self.inner.get_vocab(true).into_values();
        ids.max().map_or(0, |id| id as usize + 1)
    }

    /// The id that ends a text, if the tokenizer has one.
    pub fn end(&self) -> Option<i32> {
        self.end
    }

    /// Ids of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let fault = |e: tokenizers::Error| Error::Input(format!("the text could not be encoded: {e}"));
        let ids = self.inner.encode_fast(text, false).map_err(fault)?;
        Ok(ids.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// Ids of a text that a model is to go on with: with the tokens in front that the tokenizer puts there.
    pub fn prompt(&self, text: &str) -> Result<Vec<i32>> {
        let fault = |e: tokenizers::Error| Error::Input(format!("the text could not be encoded: {e}"));
        let found = self.inner.encode_fast(text, true).map_err(fault)?;
        let mut ids: Vec<i32> = found.get_ids().iter().map(|id| *id as i32).collect();
        // What ends every text would end this one before it goes on.
        if ids.len() > 1 && ids.last().copied() == self.end && !self.encode(text)?.ends_with(&ids[ids.len() - 1..]) {
            ids.pop();
        }
        Ok(ids)
    }

    /// Ids of a text that a model reads as a whole: with the tokens that the tokenizer puts around it.
    pub fn whole(&self, text: &str) -> Result<Vec<i32>> {
        let fault = |e: tokenizers::Error| Error::Input(format!("the text could not be encoded: {e}"));
        let found = self.inner.encode_fast(text, true).map_err(fault)?;
        Ok(found.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// A token as it is written in the vocabulary.
    pub fn token(&self, id: i32) -> Option<String> {
        u32::try_from(id).ok().and_then(|id| self.inner.id_to_token(id))
    }

    /// The id of a token as it is written in the vocabulary.
    pub fn id(&self, token: &str) -> Option<i32> {
        self.inner.token_to_id(token).and_then(|id| i32::try_from(id).ok())
    }

    /// The bytes that each id adds to a text, by id; none for those that are no text.
    pub fn token_bytes(&self) -> Vec<Option<Vec<u8>>> {
        let special: std::collections::BTreeSet<u32> = {
            let added = self.inner.get_added_tokens_decoder();
            let special = added.into_iter().filter(|(_, token)| token.special);
            let ids: std::collections::BTreeSet<u32> = special.map(|(id, _)| id).collect();
            ids
        };
        let by_bytes = byte_characters();
        // Tokenizers over bytes write each as a character of its own; others mark spaces, and write bytes as <0x0A>.
        let vocabulary = self.inner.get_vocab(false);
        let level = matches!(self.inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
            || vocabulary.contains_key("Ġ") && !vocabulary.contains_key("▁");
        (0..self.size() as u32)
            .map(|id| {
                let token = self.inner.id_to_token(id).filter(|_| !special.contains(&id))?;
                if level {
                    let bytes: Option<Vec<u8>> = token.chars().map(|c| by_bytes.get(&c).copied()).collect();
                    return Some(bytes.unwrap_or_else(|| token.into_bytes()));
                }
                let byte = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => Some(vec![byte]),
                    None => Some(token.replace('▁', " ").into_bytes()),
                }
            })
            .collect()
    }

    /// Ids of several texts, each by itself.
    pub fn encode_all(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        let fault = |e: tokenizers::Error| Error::Input(format!("the text could not be encoded: {e}"));
        // Each thread keeps the ids alone: an encoding has the text of every token too, and those of many texts would be hundreds
        // of bytes for each byte.
        let ids = |text: &&str| self.inner.encode_fast(*text, false).map(|found| found.get_ids().to_vec());
        texts.maybe_par_iter().map(ids).collect::<tokenizers::Result<_>>().map_err(fault)
    }

    /// The text of ids.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        self.inner.decode(&ids, true).map_err(|e| Error::Input(e.to_string()))
    }

    /// The text of ids, that of special tokens too.
    pub fn decode_all(&self, ids: &[i32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        self.inner.decode(&ids, false).map_err(|e| Error::Input(e.to_string()))
    }

    /// Text that grows id by id.
    pub fn stream(&self) -> TextStream<&Tokenizer> {
        TextStream::new(self)
    }
}

/// Ids of a line that are decoded again with each new one.
const WINDOW: usize = 64;

/// The bytes that the characters of a byte-level vocabulary stand for.
fn byte_characters() -> std::collections::BTreeMap<char, u8> {
    let plain = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let shifted = (0..256u32).filter(|byte| !plain(byte)).enumerate().map(|(n, byte)| (256 + n as u32, byte));
    let all = (0..256u32).filter(plain).map(|byte| (byte, byte)).chain(shifted);
    all.filter_map(|(character, byte)| Some((char::from_u32(character)?, byte as u8))).collect()
}

/// Decodes ids as they come; a character of several ids is shown when it is complete.
pub struct TextStream<T> {
    tokenizer: T,
    ids: Vec<i32>,
    shown: usize,
    /// Whether special tokens have a text.
    special: bool,
}

impl<T: std::borrow::Borrow<Tokenizer>> TextStream<T> {
    /// An empty text.
    pub fn new(tokenizer: T) -> TextStream<T> {
        TextStream { tokenizer, ids: Vec::new(), shown: 0, special: false }
    }

    /// An empty text in which special tokens are written too.
    pub fn with_special(tokenizer: T) -> TextStream<T> {
        TextStream { special: true, ..TextStream::new(tokenizer) }
    }

    fn text(&self) -> Result<String> {
        match self.special {
            true => self.tokenizer.borrow().decode_all(&self.ids),
            false => self.tokenizer.borrow().decode(&self.ids),
        }
    }

    /// What is left of a character that was never completed.
    pub fn rest(&mut self) -> Result<String> {
        let text = self.text()?;
        let rest = text.get(self.shown..).unwrap_or("").to_string();
        self.ids.clear();
        self.shown = 0;
        Ok(rest)
    }

    /// What one more id adds to the text.
    pub fn push(&mut self, id: i32) -> Result<String> {
        self.ids.push(id);
        let text = self.text()?;
        let whole = text.trim_end_matches('\u{FFFD}').len();
        let from = self.shown.min(whole);
        let new = text.get(from..whole).unwrap_or("").to_string();
        self.shown = self.shown.max(whole);
        // Long texts would make every step slower; words don't reach back over a line's end.
        if new.ends_with('\n') {
            self.ids.clear();
            self.shown = 0;
        } else if self.ids.len() > WINDOW && whole == text.len() {
            // A line without end: the last ids are enough to tell what the next adds.
            self.ids.drain(..self.ids.len() - WINDOW / 4);
            self.shown = self.text()?.len();
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back() {
        let texts = ["The cat sat on the mat. The cat ran.", "A dog — and \"Zoë\" — sang: 1, 2, 3!\n\nThe end."];
        let tokenizer = Tokenizer::train(texts.iter().copied().cycle().take(40), 300).expect("trains");
        assert!(tokenizer.size() <= 300 && tokenizer.end().is_some());
        let again = Tokenizer::train(texts.iter().copied().cycle().take(40), 300).expect("trains");
        assert_eq!(tokenizer.inner.to_string(false).ok(), again.inner.to_string(false).ok());
        for text in texts.iter().chain(&["", "日本語 tabs\tand\r\nreturns"]) {
            let ids = tokenizer.encode(text).expect("encodes");
            assert_eq!(tokenizer.decode(&ids).expect("decodes"), **text);
            let mut stream = tokenizer.stream();
            let grown: String = ids.iter().map(|id| stream.push(*id).expect("decodes")).collect();
            assert_eq!(grown, **text);
        }
        assert!(Tokenizer::train(texts.into_iter(), 100).is_err());
        assert!(Tokenizer::train(texts.into_iter(), usize::MAX).is_err());
    }

    #[test]
    fn tokens_are_bytes() {
        let text = "the cat — Zoë's — sat\n\ton the mat";
        let tokenizer = Tokenizer::train([text].into_iter().cycle().take(20), 320).expect("trains");
        let bytes = tokenizer.token_bytes();
        let ids = tokenizer.encode(text).expect("encodes");
        let joined: Vec<u8> = ids.iter().flat_map(|id| bytes[*id as usize].clone().expect("text")).collect();
        assert_eq!(String::from_utf8(joined).expect("text"), text);
        assert_eq!(bytes[tokenizer.end().expect("there") as usize], None);
    }

    #[test]
    fn a_long_line_is_streamed_as_it_is() {
        let text = "the cat sat — on the mat — Zoë ".repeat(40);
        let tokenizer = Tokenizer::train([&text[..]].into_iter(), 270).expect("trains");
        let mut stream = tokenizer.stream();
        let ids = tokenizer.encode(&text).expect("encodes");
        let grown: String = ids.iter().map(|id| stream.push(*id).expect("decodes")).collect();
        assert_eq!(grown, text);
    }

    /// Truncation and padding belong to a call: transformers takes them off, and so do we.
    #[test]
    fn truncation_and_padding_of_the_file_are_taken_off() {
        let path = std::env::temp_dir().join(format!("tensorloom-tokenizer-{}.json", std::process::id()));
        let text = "the cat sat on the mat and the dog ran away";
        let plain = Tokenizer::train([text].into_iter(), 280).expect("trains");
        let mut json: serde_json::Value =
            serde_json::from_str(&plain.inner.to_string(false).expect("text")).expect("JSON");
        json["truncation"] = serde_json::json!({
            "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
        });
        json["padding"] = serde_json::json!({
            "strategy": { "Fixed": 1_000_000_000_000u64 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "x"
        });
        std::fs::write(&path, json.to_string()).expect("written");
        let read = Tokenizer::read(&path).expect("read");
        assert_eq!(read.encode(text).expect("encodes"), plain.encode(text).expect("encodes"));
        assert_eq!(read.encode_all(&[text, "a"]).expect("encodes"), plain.encode_all(&[text, "a"]).expect("encodes"));
        assert_eq!(read.fingerprint().expect("text"), plain.fingerprint().expect("text"));
        // Ten replacements of one letter by ten.
        let bomb = serde_json::json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aaaaaaaaaa" });
        json["normalizer"] = serde_json::json!({ "type": "Sequence", "normalizers": vec![bomb; 10] });
        std::fs::write(&path, json.to_string()).expect("written");
        let error = Tokenizer::read(&path).err().expect("refused").to_string();
        assert!(error.contains("normalizer") && error.contains("10000000000 times"), "{error}");
        let _ = std::fs::remove_file(&path);
    }
}
