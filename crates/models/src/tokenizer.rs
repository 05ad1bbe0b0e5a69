//! Tokenization with HuggingFace's `tokenizer.json`; BPE tokenizers can be trained.

use crate::catch_panic::catch_panic;
use crate::companions::{self, FileSelection};
use crate::error::{Error, Result};
use crate::special_tokens::{SpecialTokens, TokenizerMetadata, dir_with_file};
use crate::tokenizer_growth;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::utils::parallelism::MaybeParallelRefIterator;
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper};
use tokenizers::{NormalizedString, Normalizer, PreTokenizerWrapper, TokenizerImpl};
use train::files;

const UNENCODED: &str = "the text could not be encoded";

/// Creates the library's tokenizer from the text of a `tokenizer.json`.
fn parse_tokenizer(text: impl AsRef<[u8]>) -> Result<tokenizers::Tokenizer> {
    let made = catch_panic("its rules", || tokenizers::Tokenizer::from_bytes(text))?;
    let (count, largest) = made.get_vocab(true).into_values().fold((0, 0), |(n, most), id| (n + 1, id.max(most)));
    // Tables are indexed by ID, so memory grows with the largest ID.
    if largest > 16 * count + (1 << 16) {
        return Err(Error::Input(format!(
            "its {count} tokens have IDs up to {largest}, which leaves too many unused IDs"
        )));
    }
    check_added(&made)?;
    Ok(made)
}

/// Rejects added tokens that are empty after normalization: the search for them would find the same position endlessly.
fn check_added(tokenizer: &tokenizers::Tokenizer) -> Result<()> {
    let Some(normalizer) = tokenizer.get_normalizer() else { return Ok(()) };
    let added: BTreeMap<_, _> = tokenizer.get_added_tokens_decoder().into_iter().collect();
    for (id, token) in added.into_iter().filter(|(_, token)| token.normalized) {
        let mut text = NormalizedString::from(token.content.as_str());
        catch_panic("its added tokens", || normalizer.normalize(&mut text))?;
        if text.get().is_empty() {
            let content = &token.content;
            return Err(Error::Input(format!("its added token {content:?} ({id}) is empty after normalization")));
        }
    }
    Ok(())
}

/// The end-of-text token of trained tokenizers.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Maximum size of a `tokenizer.json`.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Maximum length in bytes of a word in BPE training; a longer one is split. Training takes time quadratic in a word's length.
const MAX_WORD_BYTES: usize = 64;
/// Maximum vocabulary size of a trained tokenizer.
pub(crate) const MAX_VOCABULARY: usize = 1 << 20;

/// A tokenizer.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: SpecialTokens,
    /// Whether only `tokenizer.json` describes it.
    bare: bool,
    /// The number of tokens in `tokenizer.json` itself.
    own: usize,
    /// The directory or GGUF file that it was read from.
    from: Option<PathBuf>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, and the files beside it that specify its special tokens.
    pub fn read(path: &Path) -> Result<Tokenizer> {
        let tokenizer = Tokenizer::read_alone(path)?;
        match path.parent().filter(|_| path.file_name().is_some_and(|name| name == "tokenizer.json")) {
            Some(dir) => tokenizer.described(dir, dir),
            None => Ok(tokenizer),
        }
    }

    fn read_alone(path: &Path) -> Result<Tokenizer> {
        let fault = |what: String| Error::file(path, format!("not a tokenizer.json of HuggingFace: {what}"));
        let bytes = files::read(path, MAX_FILE_BYTES)?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| fault(e.to_string()))?;
        tokenizer_growth::check_expansion(&json).map_err(|what| Error::file(path, what))?;
        drop(json);
        let mut inner = parse_tokenizer(bytes).map_err(|e| fault(e.to_string()))?;
        // As in transformers: truncation and padding are options of a call, not of the tokenizer.
        inner.with_truncation(None).map_err(|e| fault(e.to_string()))?;
        inner.with_padding(None);
        Ok(Tokenizer::of(inner))
    }

    /// Adds the tokens that the files of its directory specify; `model` contains those of its model.
    fn described(mut self, dir: &Path, model: &Path) -> Result<Tokenizer> {
        let named = TokenizerMetadata::of_dir(dir)?;
        self.bare = !named.described && named.tokens.is_empty();
        if named.unframed {
            self.inner.with_post_processor(None::<PostProcessorWrapper>);
        }
        let wrong =
            |e: tokenizers::Error| Error::Input(format!("{}: its added tokens are not supported: {e}", dir.display()));
        for token in &named.added {
            let Some(token) = added(token, false).filter(|token| !self.lists(token)) else { continue };
            match token.special {
                true => self.inner.add_special_tokens([token]),
                false => self.inner.add_tokens([token]),
            }
            .map_err(wrong)?;
        }
        let listed: Vec<String> = self.inner.get_added_tokens_decoder().into_values().map(|t| t.content).collect();
        // As in transformers: strings and objects are never equal, objects are equal if their flags are, and the last one is used.
        let mut further: Vec<(bool, AddedToken)> = Vec::new();
        for (json, given) in &named.special {
            let Some(token) = added(json, true).filter(|token| !listed.contains(&token.content)) else { continue };
            let known = further.iter().any(|(object, known)| *object == json.is_object() && *known == token);
            // A default token of the class that is not in the vocabulary is ignored.
            if !known && (*given || self.id(&token.content).is_some()) {
                further.push((json.is_object(), token));
            }
        }
        for (_, token) in further {
            self.inner.add_special_tokens([token]).map_err(wrong)?;
        }
        check_added(&self.inner).map_err(|e| Error::Input(format!("{}: {e}", dir.display())))?;
        self.special = SpecialTokens::from_dir(model, Some(&self))?;
        self.from = Some(dir.to_path_buf());
        Ok(self)
    }

    /// Whether the tokenizer contains an added token with the same flags.
    fn lists(&self, token: &AddedToken) -> bool {
        let listed = self.inner.get_added_tokens_decoder();
        listed.values().any(|known| known == token)
    }

    /// Creates a tokenizer from a `tokenizer.json` that was converted from the file at `path`, with its special tokens.
    pub(crate) fn of_json(json: &serde_json::Value, special: SpecialTokens, path: &Path) -> Result<Tokenizer> {
        let fault = |e: String| Error::file(path, format!("its tokenizer is not supported: {e}"));
        tokenizer_growth::check_expansion(json).map_err(fault)?;
        let mut inner = parse_tokenizer(json.to_string()).map_err(|e| fault(e.to_string()))?;
        inner.with_truncation(None).map_err(|e| fault(e.to_string()))?;
        inner.with_padding(None);
        let from = Some(path.to_path_buf());
        Ok(Tokenizer { special, bare: false, from, ..Tokenizer::of(inner) })
    }

    /// Converts the tokenizer to a `tokenizer.json`.
    pub(crate) fn to_json(&self) -> Result<serde_json::Value> {
        let text = self.inner.to_string(false).map_err(|e| Error::Input(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| Error::Input(e.to_string()))
    }

    /// The tokenizer of a HuggingFace directory, or of a GGUF file.
    pub fn from_dir(dir: &Path) -> Result<Tokenizer> {
        if crate::gguf::is_gguf(dir) {
            return crate::gguf::GgufFile::open(dir)?.tokenizer();
        }
        let own = dir_with_file(dir, "tokenizer.json");
        let path = own.join("tokenizer.json");
        if !path.is_file() {
            // Tokenizer files in other formats, which transformers can convert to this one.
            let other = ["tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"];
            let what = match other.iter().find(|name| own.join(name).is_file()) {
                Some(name) => format!(
                    "no tokenizer.json found, only {name}: convert it with \
                     `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` of transformers"
                ),
                None => "no tokenizer found: put the model's tokenizer.json next to its config.json, or use token IDs"
                    .into(),
            };
            return Err(Error::file(&path, what));
        }
        Tokenizer::read_alone(&path)?.described(&own, dir)
    }

    fn of(inner: tokenizers::Tokenizer) -> Tokenizer {
        let own = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        Tokenizer { inner, special: SpecialTokens::default(), bare: true, own, from: None }
    }

    /// Trains a byte-level BPE tokenizer: it can encode any text, and decoding restores it.
    pub fn train<'a>(texts: impl Iterator<Item = &'a str> + Send, size: usize) -> Result<Tokenizer> {
        let fault = |e: tokenizers::Error| Error::Input(format!("cannot train the tokenizer: {e}"));
        if size < 257 {
            return Err(Error::Input(format!(
                "the vocabulary size {size} is too small: 256 bytes and the end-of-text token need 257"
            )));
        }
        if size > MAX_VOCABULARY {
            return Err(Error::Input(format!(
                "the vocabulary size {size} is too large: the maximum is {MAX_VOCABULARY}"
            )));
        }
        type Parts = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;
        let mut trainer = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(size)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .build();
        let mut inner: Parts = TokenizerImpl::new(BPE::default());
        let bytes = ByteLevel::default().add_prefix_space(false);
        inner.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
        inner.train(&mut trainer, texts.flat_map(split_words)).map_err(fault)?;
        let text = inner.to_string(false).map_err(fault)?;
        let inner = tokenizers::Tokenizer::from_bytes(text).map_err(fault)?;
        let mut made = Tokenizer::of(inner);
        made.bare = false;
        made.special.named.insert("eos_token".into(), END_OF_TEXT.into());
        made.special.eos = made.id(END_OF_TEXT);
        made.special.eos_ids = made.special.eos.into_iter().collect();
        made.special.start = made.special.eos;
        Ok(made)
    }

    /// Writes `tokenizer.json`, and `tokenizer_config.json` with the names of its special tokens; for a tokenizer that was read
    /// from a directory, copies the files from there.
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        if let Some(from) = self.from.as_ref().filter(|from| from.is_dir()) {
            return companions::copy(from, dir, FileSelection::Tokenizer);
        }
        let text = self.inner.to_string(true).map_err(|e| Error::Input(e.to_string()))?;
        let path = dir.join("tokenizer.json");
        files::write(&path, text.as_bytes())?;
        let mut written = vec![path];
        if !self.special.named.is_empty() {
            let mut config = serde_json::Map::new();
            config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
            let named = self.special.named.iter();
            config.extend(named.map(|(name, token)| (name.clone(), token.as_str().into())));
            let path = dir.join("tokenizer_config.json");
            files::write(&path, format!("{:#}\n", serde_json::Value::Object(config)).as_bytes())?;
            written.push(path);
        }
        Ok(written)
    }

    /// A checksum of the tokenizer.
    pub(crate) fn fingerprint(&self) -> Result<u32> {
        let text = self.inner.to_string(false).map_err(|e| Error::Input(e.to_string()))?;
        Ok(crc32fast::hash(text.as_bytes()))
    }

    /// The vocabulary size.
    pub fn size(&self) -> usize {
        let ids = self.inner.get_vocab(true).into_values();
        ids.max().map_or(0, |id| id as usize + 1)
    }

    /// The vocabulary size of `tokenizer.json`, without tokens that other files add.
    pub(crate) fn own_size(&self) -> usize {
        self.own
    }

    /// The special tokens of the tokenizer and its model.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Whether no file specifies its special tokens.
    pub(crate) fn is_bare(&self) -> bool {
        self.bare
    }

    /// The ID of `eos_token`, which ends a text in training, if the tokenizer has one.
    pub fn eos_id(&self) -> Option<i32> {
        self.special.eos
    }

    /// Encodes a text without special tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let ids = catch_panic(UNENCODED, || self.inner.encode_fast(text, false))?;
        Ok(ids.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// Encodes a text; returns the byte range of each token too.
    pub(crate) fn encode_with_offsets(&self, text: &str) -> Result<Vec<(i32, std::ops::Range<usize>)>> {
        let found = catch_panic(UNENCODED, || self.inner.encode(text, false))?;
        Ok(found.get_ids().iter().zip(found.get_offsets()).map(|(id, (from, to))| (*id as i32, *from..*to)).collect())
    }

    /// The tokenizer without its post-processor, which can exclude spaces from the offsets of tokens.
    pub(crate) fn without_post_processor(&self) -> Tokenizer {
        let mut plain = self.clone();
        plain.inner.with_post_processor(None::<PostProcessorWrapper>);
        plain
    }

    /// Encodes a prompt: adds the tokenizer's leading special tokens.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<i32>> {
        let mut ids = self.encode_with_special_tokens(text)?;
        // Trailing special tokens would end the text before its continuation.
        let (_, after) = self.surrounding_ids()?;
        if !after.is_empty() && after.last().copied() == self.eos_id() {
            ids.pop();
        }
        Ok(ids)
    }

    /// Encodes a complete text: adds the tokenizer's leading and trailing special tokens.
    pub fn encode_with_special_tokens(&self, text: &str) -> Result<Vec<i32>> {
        let found = catch_panic(UNENCODED, || self.inner.encode_fast(text, true))?;
        Ok(found.get_ids().iter().map(|id| *id as i32).collect())
    }

    /// The tokens that the tokenizer adds before and after every text.
    pub(crate) fn surrounding_ids(&self) -> Result<(Vec<i32>, Vec<i32>)> {
        let (plain, whole) = (self.encode("a")?, self.encode_with_special_tokens("a")?);
        let at = whole.windows(plain.len().max(1)).position(|part| part == plain).unwrap_or(0);
        Ok((whole[..at].to_vec(), whole[(at + plain.len()).min(whole.len())..].to_vec()))
    }

    /// The chat templates in its directory, by name.
    pub(crate) fn templates(&self) -> Result<BTreeMap<String, String>> {
        self.from.as_deref().map_or(Ok(BTreeMap::new()), crate::chat_files::read_templates)
    }

    /// The vocabulary entry of a token ID.
    pub fn token(&self, id: i32) -> Option<String> {
        u32::try_from(id).ok().and_then(|id| self.inner.id_to_token(id))
    }

    /// The ID of a vocabulary entry.
    pub fn id(&self, token: &str) -> Option<i32> {
        self.inner.token_to_id(token).and_then(|id| i32::try_from(id).ok())
    }

    /// The bytes that each token adds to a text, by ID; none for tokens that are not text.
    pub fn token_bytes(&self) -> Vec<Option<Vec<u8>>> {
        let special: std::collections::BTreeSet<u32> = {
            let added = self.inner.get_added_tokens_decoder();
            let special = added.into_iter().filter(|(_, token)| token.special);
            let ids: std::collections::BTreeSet<u32> = special.map(|(id, _)| id).collect();
            ids
        };
        let by_bytes = byte_characters();
        // Byte-level tokenizers write each byte as one character; others mark spaces, and write bytes as <0x0A>.
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

    /// Encodes several texts independently.
    pub fn encode_all(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        // Each thread keeps only the IDs: an encoding also contains the text of every token, which
        // would need hundreds of bytes for each byte of text.
        let ids = |text: &&str| {
            catch_panic(UNENCODED, || self.inner.encode_fast(*text, false).map(|found| found.get_ids().to_vec()))
        };
        texts.maybe_par_iter().map(ids).collect()
    }

    /// Decodes token IDs without special tokens.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        catch_panic("the token IDs could not be decoded", || self.inner.decode(&ids, true))
    }

    /// Decodes token IDs with special tokens.
    pub fn decode_all(&self, ids: &[i32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        self.inner.decode(&ids, false).map_err(|e| Error::Input(e.to_string()))
    }

    /// Creates a streaming decoder.
    pub fn stream(&self) -> TextStream<&Tokenizer> {
        TextStream::new(self)
    }
}

/// Splits a text into pieces with words that are short enough for training: the whole text, unless some are too long.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut start = 0;
        let cut = rest.char_indices().find_map(|(at, c)| {
            if c.is_whitespace() {
                start = at + c.len_utf8();
            }
            (at + c.len_utf8() - start > MAX_WORD_BYTES).then_some(at)
        });
        let (piece, behind) = rest.split_at(cut.unwrap_or(rest.len()));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Parses an added token: its text, or an object with its flags.
fn added(json: &serde_json::Value, special: bool) -> Option<AddedToken> {
    let flag = |name: &str, absent: bool| json.get(name).and_then(serde_json::Value::as_bool).unwrap_or(absent);
    let special = special || flag("special", false);
    let token = AddedToken::from(crate::special_tokens::text(json)?, special);
    let token =
        token.single_word(flag("single_word", false)).lstrip(flag("lstrip", false)).rstrip(flag("rstrip", false));
    Some(token.normalized(flag("normalized", !special)))
}

/// Maximum number of tokens of the current line that are decoded again with each new one.
const DECODE_WINDOW: usize = 64;

/// The byte of each character of a byte-level vocabulary.
fn byte_characters() -> BTreeMap<char, u8> {
    let plain = |byte: &u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let shifted = (0..256u32).filter(|byte| !plain(byte)).enumerate().map(|(n, byte)| (256 + n as u32, byte));
    let all = (0..256u32).filter(plain).map(|byte| (byte, byte)).chain(shifted);
    all.filter_map(|(character, byte)| Some((char::from_u32(character)?, byte as u8))).collect()
}

/// Decodes tokens as they are generated; a character of several tokens is returned when it is complete.
pub struct TextStream<T> {
    tokenizer: T,
    ids: Vec<i32>,
    shown: usize,
    /// Whether special tokens are included.
    special: bool,
}

impl<T: std::borrow::Borrow<Tokenizer>> TextStream<T> {
    /// Creates a decoder that skips special tokens.
    pub fn new(tokenizer: T) -> TextStream<T> {
        TextStream { tokenizer, ids: Vec::new(), shown: 0, special: false }
    }

    /// Creates a decoder that includes special tokens.
    pub fn with_special(tokenizer: T) -> TextStream<T> {
        TextStream { special: true, ..TextStream::new(tokenizer) }
    }

    fn text(&self) -> Result<String> {
        match self.special {
            true => self.tokenizer.borrow().decode_all(&self.ids),
            false => self.tokenizer.borrow().decode(&self.ids),
        }
    }

    /// Returns the remaining bytes of an incomplete character.
    pub fn flush(&mut self) -> Result<String> {
        let text = self.text()?;
        let rest = text.get(self.shown..).unwrap_or("").to_string();
        self.ids.clear();
        self.shown = 0;
        Ok(rest)
    }

    /// Appends a token; returns the text that it adds.
    pub fn push(&mut self, id: i32) -> Result<String> {
        self.ids.push(id);
        let text = self.text()?;
        let whole = text.trim_end_matches('\u{FFFD}').len();
        let from = self.shown.min(whole);
        let new = text.get(from..whole).unwrap_or("").to_string();
        self.shown = self.shown.max(whole);
        // Decoding a long text at each step would be slow; words don't extend over a newline.
        if new.ends_with('\n') {
            self.ids.clear();
            self.shown = 0;
        } else if self.ids.len() > DECODE_WINDOW && whole == text.len() {
            // In a long line, the last tokens are sufficient to decode the next one.
            self.ids.drain(..self.ids.len() - DECODE_WINDOW / 4);
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
        assert!(tokenizer.size() <= 300 && tokenizer.eos_id().is_some());
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

    /// Training on text without spaces, as in some languages, takes no longer than on other text.
    #[test]
    fn words_without_end_are_learned_from() {
        let mut random = crate::SplitMix64::new(3, 1);
        let text: String = (0..300_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        let tokenizer = Tokenizer::train([&text[..]].into_iter(), 600).expect("trains");
        assert_eq!(tokenizer.size(), 600);
        let ids = tokenizer.encode(&text).expect("encodes");
        assert!(ids.len() < 200_000 && tokenizer.decode(&ids).expect("decodes") == text);
        let pieces: Vec<&str> = split_words("a b").collect();
        assert_eq!(pieces, ["a b"]);
        for text in ["", "é", &"é".repeat(200), &format!("a {} b {}", "x".repeat(64), "y".repeat(65))] {
            assert_eq!(split_words(text).collect::<String>(), *text);
            assert!(
                split_words(text)
                    .all(|piece| piece.split(char::is_whitespace).all(|word| word.len() <= MAX_WORD_BYTES))
            );
        }
    }

    #[test]
    fn tokens_are_bytes() {
        let text = "the cat — Zoë's — sat\n\ton the mat";
        let tokenizer = Tokenizer::train([text].into_iter().cycle().take(20), 320).expect("trains");
        let bytes = tokenizer.token_bytes();
        let ids = tokenizer.encode(text).expect("encodes");
        let joined: Vec<u8> = ids.iter().flat_map(|id| bytes[*id as usize].clone().expect("text")).collect();
        assert_eq!(String::from_utf8(joined).expect("text"), text);
        assert_eq!(bytes[tokenizer.eos_id().expect("there") as usize], None);
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

    /// Truncation and padding are options of a call: they are removed, as in transformers.
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
        // A token of spaces, which the normalizer removes.
        json["normalizer"] = serde_json::json!({ "type": "Strip", "strip_left": true, "strip_right": true });
        json["added_tokens"] = serde_json::json!([{
            "id": 280, "content": "  ", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false
        }]);
        std::fs::write(&path, json.to_string()).expect("written");
        let error = Tokenizer::read(&path).err().expect("refused").to_string();
        assert!(error.contains("\"  \" (280) is empty after normalization"), "{error}");
        let _ = std::fs::remove_file(&path);
    }
}
