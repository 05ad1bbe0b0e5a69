//! Untrusted tokenizers: for any `tokenizer.json`, reading and using it ends soon, in little memory, without a panic.

use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};
use tensorloom_models::{SplitMix64, Tokenizer};

fn rounds(usual: usize) -> usize {
    std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

struct Wild(SplitMix64);

impl Wild {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn text(&mut self, most: usize) -> String {
        const PIECES: [&str; 22] = [
            "a",
            "b",
            " ",
            "  ",
            "\n",
            "the",
            "é",
            "e\u{301}",
            "日",
            "\u{FDFA}",
            "👩‍👩‍👧",
            "\u{0}",
            "▁",
            "Ġ",
            "<0x0A>",
            "1",
            "'s",
            "…",
            "ﬁ",
            "\u{200d}",
            "İ",
            "\u{FFFD}",
        ];
        (0..self.below(most + 1)).map(|_| *self.pick(&PIECES)).collect()
    }

    fn pattern(&mut self) -> Json {
        const REGEXES: [&str; 16] = [
            "",
            "x*",
            "a|",
            "(?=a)",
            "\\b",
            "^",
            "$",
            "\\s+",
            "(a+)+$",
            "(a|a)*c",
            ".",
            "(?s).",
            "(?:)",
            "\\s+(?!\\S)|\\s+",
            "[",
            "(.*)(.*)(.*)x",
        ];
        match self.below(3) {
            0 => json!({ "String": self.text(2) }),
            _ => json!({ "Regex": self.pick(&REGEXES) }),
        }
    }

    /// A table for SentencePiece's normalizer: a small valid one, a broken one, or noise.
    fn charsmap(&mut self) -> String {
        let mut units = vec![0u32; 512];
        // From the root at 256, `a` leads to a leaf.
        units[0] = 256 << 10;
        let at = 256 ^ usize::from(b'a');
        units[at] = u32::from(b'a') | 1 << 8 | (at as u32 ^ 300) << 10;
        units[300] = 1 << 31 | 2;
        let texts = b"x\0yy\0".to_vec();
        let mut bytes = (4 * units.len() as u32).to_le_bytes().to_vec();
        units.iter().for_each(|unit| bytes.extend(unit.to_le_bytes()));
        bytes.extend(texts);
        match self.below(4) {
            0 => {}
            1 => bytes.truncate(self.0.below(bytes.len())),
            2 => (0..1 + self.below(8)).for_each(|_| {
                let at = *[0, 3, 4 * 1, 4 * 1 + 2, 4 * (at + 1), 4 * (at + 1) + 1, 4 * 301, 4 * 301 + 1, 4 * 513]
                    .get(self.0.below(9))
                    .unwrap_or(&0);
                bytes[at] = self.0.below(256) as u8;
            }),
            _ => bytes = (0..self.below(4000)).map(|_| self.0.below(256) as u8).collect(),
        }
        base64(&bytes)
    }

    fn normalizer(&mut self, depth: usize) -> Json {
        let content = self.text(4);
        match self.below(if depth == 0 { 9 } else { 10 }) {
            0 => {
                json!({ "type": self.pick(&["NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "ByteLevel"]) })
            }
            1 => json!({ "type": "Precompiled", "precompiled_charsmap": self.charsmap() }),
            2 | 3 | 4 => json!({ "type": "Replace", "pattern": self.pattern(), "content": content }),
            5 => json!({ "type": "Prepend", "prepend": content }),
            6 => json!({ "type": "Strip", "strip_left": self.below(2) == 0, "strip_right": self.below(2) == 0 }),
            7 => {
                json!({ "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true })
            }
            8 => Json::Null,
            _ => {
                json!({ "type": "Sequence", "normalizers": (0..self.below(4)).map(|_| self.normalizer(depth - 1)).filter(|n| !n.is_null()).collect::<Vec<_>>() })
            }
        }
    }

    fn pre_tokenizer(&mut self, depth: usize) -> Json {
        let behavior = *self.pick(&["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]);
        match self.below(if depth == 0 { 8 } else { 9 }) {
            0 => json!({ "type": self.pick(&["Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"]) }),
            1 => {
                json!({ "type": "ByteLevel", "add_prefix_space": self.below(2) == 0, "trim_offsets": true, "use_regex": self.below(2) == 0 })
            }
            2 | 3 => {
                json!({ "type": "Split", "pattern": self.pattern(), "behavior": behavior, "invert": self.below(2) == 0 })
            }
            4 => {
                json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": self.pick(&["always", "never", "first"]), "split": true })
            }
            5 => json!({ "type": "Punctuation", "behavior": behavior }),
            6 => json!({ "type": "Digits", "individual_digits": self.below(2) == 0 }),
            7 => Json::Null,
            _ => {
                json!({ "type": "Sequence", "pretokenizers": (0..self.below(4)).map(|_| self.pre_tokenizer(depth - 1)).filter(|n| !n.is_null()).collect::<Vec<_>>() })
            }
        }
    }

    fn decoder(&mut self, depth: usize) -> Json {
        let content = self.text(3);
        match self.below(if depth == 0 { 8 } else { 9 }) {
            0 => json!({ "type": self.pick(&["ByteFallback", "Fuse"]) }),
            1 => json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true }),
            2 => json!({ "type": "WordPiece", "prefix": content, "cleanup": true }),
            3 => json!({ "type": "BPEDecoder", "suffix": content }),
            4 => json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true }),
            5 => json!({ "type": "CTC", "pad_token": content, "word_delimiter_token": "|", "cleanup": true }),
            6 => json!({ "type": "Strip", "content": " ", "start": self.below(100), "stop": self.below(100) }),
            7 => json!({ "type": "Replace", "pattern": self.pattern(), "content": content }),
            _ => {
                json!({ "type": "Sequence", "decoders": (0..self.below(4)).map(|_| self.decoder(depth - 1)).collect::<Vec<_>>() })
            }
        }
    }

    fn post_processor(&mut self) -> Json {
        let id = *self.pick(&[0u64, 3, 1 << 20, u32::MAX as u64]);
        match self.below(4) {
            0 => {
                json!({ "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": self.below(2) == 0, "use_regex": true })
            }
            1 => json!({ "type": "BertProcessing", "sep": ["b", id], "cls": ["a", id] }),
            2 => json!({
                "type": "TemplateProcessing",
                "single": [{ "SpecialToken": { "id": "a", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
                "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
                "special_tokens": { "a": { "id": "a", "ids": [id, 1], "tokens": ["a", "b"] } }
            }),
            _ => Json::Null,
        }
    }

    fn vocabulary(&mut self) -> Vec<String> {
        let mut words: Vec<String> = (0..self.below(40)).map(|_| self.text(3)).filter(|w| !w.is_empty()).collect();
        words.extend(["a", "b", "ab", "aba", "<unk>", "the", "▁", " "].map(String::from));
        words.sort();
        words.dedup();
        words
    }

    fn model(&mut self) -> Json {
        let words = self.vocabulary();
        let unknown = (*self.pick(&["<unk>", "none", "a"])).to_string();
        let stretch = *self.pick(&[1u64, 1, 1, 7, 1 << 20]);
        let vocab: serde_json::Map<String, Json> =
            words.iter().enumerate().map(|(i, word)| (word.clone(), json!(i as u64 * stretch))).collect();
        match self.below(4) {
            0 => json!({ "type": "WordLevel", "vocab": vocab, "unk_token": unknown }),
            1 => {
                json!({ "type": "WordPiece", "vocab": vocab, "unk_token": unknown, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100 })
            }
            2 => {
                let scores: Vec<Json> = words.iter().map(|word| json!([word, -(self.below(20) as f64)])).collect();
                let id = *self.pick(&[0u64, 2, 1000]);
                json!({ "type": "Unigram", "unk_id": id, "vocab": scores, "byte_fallback": self.below(2) == 0 })
            }
            _ => {
                let merges: Vec<Json> = (0..self.below(6))
                    .map(|_| json!([self.pick(&["a", "b", "ab", "zz"]), self.pick(&["a", "b", "ab"])]))
                    .collect();
                json!({
                    "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                    "fuse_unk": self.below(2) == 0, "byte_fallback": self.below(2) == 0, "ignore_merges": self.below(2) == 0,
                    "vocab": vocab, "merges": merges
                })
            }
        }
    }

    fn tokenizer(&mut self) -> Json {
        let added: Vec<Json> = (0..self.below(4))
            .map(|i| {
                json!({
                    "id": *self.pick(&[0u64, 60, 61, 1 << 21]) + i as u64, "content": self.text(2), "single_word": self.below(2) == 0,
                    "lstrip": self.below(2) == 0, "rstrip": self.below(2) == 0, "normalized": self.below(2) == 0, "special": self.below(2) == 0
                })
            })
            .collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": self.normalizer(2),
            "pre_tokenizer": self.pre_tokenizer(2), "post_processor": self.post_processor(), "decoder": self.decoder(2), "model": self.model()
        })
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let block = |chunk: &[u8]| {
        let n = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        let digit =
            |i: usize| if i <= chunk.len() { char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize]) } else { '=' };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(block).collect()
}

/// Loads a tokenizer and calls all its functions.
fn used(path: &std::path::Path, text: &str) -> Result<(), tensorloom_models::Error> {
    let tokenizer = Tokenizer::read(path)?;
    let (ids, whole) = (tokenizer.encode(text)?, tokenizer.encode_with_special_tokens(text)?);
    tokenizer.encode_prompt(text)?;
    tokenizer.encode_all(&[text, "a", ""])?;
    tokenizer.decode(&ids)?;
    tokenizer.decode(&whole)?;
    tokenizer.decode(&[-1, i32::MAX, 0, 1 << 20])?;
    let mut stream = tokenizer.stream();
    for id in ids.iter().take(200) {
        stream.push(*id)?;
    }
    stream.flush()?;
    tokenizer.token_bytes();
    Ok(())
}

/// The peak memory of this process in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) << 10
}

#[test]
fn tokenizers_of_strangers_end_soon_in_little_memory() {
    let path = std::env::temp_dir().join(format!("tensorloom-wild-{}.json", std::process::id()));
    let seed = std::env::var("TENSORLOOM_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (mut wild, before, mut read) = (Wild(SplitMix64::new(seed, 4)), peak(), 0);
    // Caught panics are not printed.
    std::panic::set_hook(Box::new(|info| {
        if !tensorloom_models::panic_is_caught() {
            eprintln!("{info}");
        }
    }));
    let count = rounds(1) * 200;
    for round in 0..count {
        let json = wild.tokenizer();
        let text = match wild.below(8) {
            0 => "a".repeat(3000),
            _ => wild.text(400),
        };
        std::fs::write(&path, json.to_string()).unwrap();
        let began = Instant::now();
        let found = std::panic::catch_unwind(|| used(&path, &text));
        let took = began.elapsed();
        let shown = || format!("round {round} of seed {seed}: {json} on {text:?}");
        read += usize::from(matches!(found, Ok(Ok(()))));
        assert!(found.is_ok(), "a panic: {}", shown());
        assert!(took < Duration::from_secs(2), "{took:?}: {}", shown());
    }
    let _ = std::fs::remove_file(&path);
    println!("{read} of {count} tokenizers could be used; {} MB at most", peak() >> 20);
    assert!(read > count / 10, "{read} of {count} tokenizers could be used");
    assert!(peak() - before < 256 << 20, "{} MB", (peak() - before) >> 20);
}
