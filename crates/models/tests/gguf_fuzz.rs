//! Fuzzes the GGUF reader with damaged files: an error, never a panic.
//!
//! A few seconds by default; `GGUF_FUZZ_SECONDS=600` runs longer.

use ir::DType;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tensorloom_models::{Model, Tokenizer, gguf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Boundary values.
const EVIL: [u64; 10] = [0, 1, 2, 9, 255, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX, 1 << 40, i64::MAX as u64];

fn mutate(bytes: &mut Vec<u8>, head: usize, dice: &mut Dice) {
    for _ in 0..1 + dice.below(4) {
        if bytes.is_empty() {
            return;
        }
        let near = if dice.below(8) == 0 { bytes.len() } else { head.min(bytes.len()) };
        let at = dice.below(near);
        match dice.below(9) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.next() as u8,
            2 | 3 => {
                let width = [1, 2, 4, 8][dice.below(4)];
                let n = EVIL[dice.below(EVIL.len())].wrapping_add(dice.below(3) as u64).wrapping_sub(1);
                for (i, byte) in n.to_le_bytes().into_iter().take(width).enumerate() {
                    if let Some(b) = bytes.get_mut(at + i) {
                        *b = byte;
                    }
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let extra: Vec<u8> = (0..dice.below(64)).map(|_| dice.next() as u8).collect();
                bytes.splice(at..at, extra);
            }
            6 => {
                let end = (at + dice.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            7 => {
                let (from, n) = (dice.below(near), dice.below(64));
                let part: Vec<u8> = bytes[from..(from + n).min(bytes.len())].to_vec();
                for (i, b) in part.into_iter().enumerate() {
                    if let Some(to) = bytes.get_mut(at + i) {
                        *to = b;
                    }
                }
            }
            // Sizes, types and offsets of tensors change by one.
            _ => bytes[at] = bytes[at].wrapping_add(dice.below(3) as u8).wrapping_sub(1),
        }
    }
}

fn seconds() -> u64 {
    std::env::var("GGUF_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

/// A golden model as a file, quantized if a format is named.
fn written(name: &str, format: &str) -> Vec<u8> {
    let texts = ["the cat sat on the mat", "a dog ran"];
    let tokenizer = Tokenizer::train(texts.into_iter().cycle().take(20), 270).expect("trains");
    let mut model = Model::load(&data(name), DType::F32).expect("loads");
    if !format.is_empty() {
        model.quantize(&format.parse().expect("a scheme")).expect("quantises");
    }
    let unique =
        format!("tensorloom-fuzz-{name}{format}-{}-{:?}.gguf", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(unique);
    model.save_gguf(&path, Some(&tokenizer)).expect("writes");
    let bytes = std::fs::read(&path).expect("there");
    let _ = std::fs::remove_file(&path);
    bytes
}

/// Each tensor with every type of the same size, including quantized vectors and unexpected row counts.
#[test]
fn tensors_of_another_kind_are_read_or_refused() {
    let path = std::env::temp_dir().join(format!("tensorloom-kinds-{}.gguf", std::process::id()));
    let mut read = 0;
    for (name, format) in [("qwen2", ""), ("llama3", "q8"), ("gpt_neox", "")] {
        let good = written(name, format);
        let header = gguf::parse(&good, good.len() as u64).expect("good");
        // One layer is sufficient.
        for tensor in header.tensors.iter().filter(|t| !t.name.starts_with("blk.") || t.name.starts_with("blk.0.")) {
            let text = tensor.name.as_bytes();
            let at = good.windows(text.len()).position(|w| w == text).expect("there") + text.len();
            let kind = at + 4 + 8 * tensor.shape.len();
            for code in [0u8, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 30] {
                let mut changed = good.clone();
                changed[kind] = code;
                if gguf::parse(&changed, changed.len() as u64).is_ok() {
                    std::fs::write(&path, &changed).expect("written");
                    let _ = Model::load(&path, DType::F32);
                    read += 1;
                }
            }
        }
    }
    let _ = std::fs::remove_file(&path);
    assert!(read > 50, "{read}");
}

#[test]
fn damaged_files_are_errors() {
    let seed = std::env::var("GGUF_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5DEE_CE66u64);
    let mut dice = Dice(seed | 1);
    // Families with special names, orders and tensors; experts and quantized matrices.
    let sources = [
        ("llama", ""),
        ("llama3", "q8"),
        ("mixtral", "q4"),
        ("gpt2", ""),
        ("gpt_neox", "q8"),
        ("gemma", ""),
        ("mamba", "q8"),
    ];
    let golden = std::fs::read(data("gguf/kinds.gguf")).expect("golden file");
    let files: Vec<(Vec<u8>, usize)> = sources
        .into_iter()
        .map(|(name, format)| written(name, format))
        .chain([golden])
        .map(|bytes| {
            let head = gguf::parse(&bytes, bytes.len() as u64).expect("good").data as usize;
            (bytes, head)
        })
        .collect();
    let path = std::env::temp_dir().join(format!("tensorloom-fuzz-{}.gguf", std::process::id()));
    let end = Instant::now() + Duration::from_secs(seconds());
    let (mut heads, mut good, mut models, mut loaded) = (0u64, 0u64, 0u64, 0u64);
    while Instant::now() < end {
        let (bytes, head) = &files[dice.below(files.len())];
        let mut changed = bytes.clone();
        mutate(&mut changed, *head, &mut dice);
        heads += 1;
        // The header alone, and with a declared file length beyond the actual one.
        let found = gguf::parse(&changed, changed.len() as u64);
        let _ = gguf::parse(&changed[..changed.len().min(200)], changed.len() as u64);
        if let Ok(header) = &found {
            good += 1;
            let length = changed.len() as u64;
            assert!(header.tensors.iter().all(|t| header.data + t.offset + t.bytes <= length));
        }
        // If the header is valid, the model and the tokenizer are loaded.
        if found.is_ok() || dice.below(50) == 0 {
            std::fs::write(&path, &changed).expect("written");
            models += 1;
            loaded += u64::from(Model::load(&path, DType::F32).is_ok());
            let _ = Tokenizer::from_dir(&path).map(|t| t.encode("the cat"));
        }
    }
    let _ = std::fs::remove_file(&path);
    println!("{heads} heads, {good} of them good; {models} models, {loaded} of them good");
    assert!(heads > 50 && good > 0 && models > 10);
}

/// Cases that mutations should find, tested explicitly.
#[test]
fn wrong_counts_kinds_and_places_are_named() {
    let good = std::fs::read(data("gguf/kinds.gguf")).expect("golden file");
    let length = good.len() as u64;
    let header = gguf::parse(&good, length).expect("good");
    let why = |bytes: &[u8], length: u64| format!("{:?}", gguf::parse(bytes, length).expect_err("bad"));
    let set = |at: usize, n: u64, width: usize| {
        let mut bytes = good.clone();
        bytes[at..at + width].copy_from_slice(&n.to_le_bytes()[..width]);
        bytes
    };
    assert!(why(b"GGML", 4).contains("has only 4 bytes"));
    assert!(why(&set(0, 0, 4), length).contains("magic number GGUF is missing"));
    assert!(why(&set(4, 9, 4), length).contains("version 9"));
    assert!(why(&set(4, 3 << 24, 4), length).contains("other byte order"));
    assert!(why(&set(8, 1 << 50, 8), length).contains("are too many"));
    assert!(why(&set(8, 60_000, 8), length).contains("in a file of"));
    assert!(why(&set(16, u64::MAX, 8), length).contains("are too many"));
    assert!(why(&set(24, 1 << 60, 8), length).contains("a string of"));
    assert!(why(&good, length - 1000).contains("after the end of the file"));
    // The first tensor's entry: name, rank, sizes, type, offset.
    let name = header.tensors[0].name.as_bytes();
    let at = good.windows(name.len()).position(|w| w == name).expect("there") + name.len();
    assert!(why(&set(at, 0, 4), length).contains("0 dimensions"));
    assert!(why(&set(at + 4, 33, 8), length).contains("is not valid for"));
    assert!(why(&set(at + 4, u64::MAX, 8), length).contains("a dimension of size"));
    assert!(why(&set(at + 20, 77, 4), length).contains("type 77"));
    assert!(why(&set(at + 24, 7, 8), length).contains("multiple of 32"));
    assert!(why(&set(at + 24, 64, 8), length).contains("overlaps another tensor"));
    assert!(why(&set(at + 24, 1 << 50, 8), length).contains("after the end of the file"));
    for cut in [0, 3, 23, 24, 100, header.data as usize - 64] {
        assert!(gguf::parse(&good[..cut], cut as u64).is_err(), "{cut}");
        assert!(gguf::parse(&good[..cut], length).is_err(), "{cut}");
    }
}
