//! Tests memory-mapped weights.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::{Architecture, Model};

/// A folder with a model whose embedding table and fused gate and up projection are large enough to be memory-mapped.
struct Written(PathBuf, Model);

impl Written {
    fn new(name: &str) -> Written {
        let folder = std::env::temp_dir().join(format!("tensorloom-in-place-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let sizes =
            [("vocab_size", 3001), ("d_model", 96), ("n_layers", 2), ("heads", 4), ("kv_heads", 2), ("d_ff", 701)];
        let sizes = sizes.iter().map(|(name, n)| (name.to_string(), ConstValue::int(*n)));
        let given: BTreeMap<String, ConstValue> = sizes.chain([("tied".to_string(), ConstValue::bool(true))]).collect();
        let model =
            Architecture::from_library("llama", given).and_then(|found| Model::new_random(found, DType::F32, 4));
        let model = model.unwrap_or_else(|e| panic!("{e}"));
        model.export(&folder).unwrap_or_else(|e| panic!("{e}"));
        Written(folder, model)
    }

    fn load(&self, dtype: DType) -> Model {
        Model::load(&self.0, dtype).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const IDS: [i32; 7] = [5, 2999, 3, 77, 1000, 0, 2];

fn logits(model: &Model) -> Vec<f32> {
    let cpu = Cpu::new(2);
    let mut decoding = model.decode_session(16, &cpu).unwrap_or_else(|e| panic!("{e}"));
    let mut all = decoding.append(&IDS).unwrap_or_else(|e| panic!("{e}"));
    all.extend(decoding.append(&[9]).unwrap_or_else(|e| panic!("{e}")));
    all
}

#[test]
fn weights_where_the_file_has_them_give_the_same_bits() {
    let written = Written::new("same");
    // The first model's weights are in memory, those of the second are mapped; bf16 ones are first converted, then mapped too.
    assert_eq!(logits(&written.1), logits(&written.load(DType::F32)));
    let narrow = logits(&written.load(DType::BF16));
    in_bf16(&written.0.join("model.safetensors"));
    assert_eq!(narrow, logits(&written.load(DType::BF16)));
}

/// Converts a file's f32 tensors to bf16.
fn in_bf16(path: &Path) {
    let bytes = std::fs::read(path).expect("there");
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..start]).expect("a header");
    for (_, tensor) in header.as_object_mut().expect("tensors").iter_mut().filter(|(name, _)| *name != "__metadata__") {
        tensor["dtype"] = "BF16".into();
        for end in tensor["data_offsets"].as_array_mut().expect("offsets") {
            *end = (end.as_u64().expect("a number") / 2).into();
        }
    }
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut new = (text.len() as u64).to_le_bytes().to_vec();
    new.extend(text);
    let wide = bytes[start..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    new.extend(wide.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()));
    std::fs::write(path, new).expect("written");
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_is_cut_off_while_it_is_used_is_an_error() {
    let written = Written::new("cut");
    let model = written.load(DType::F32);
    let cpu = Cpu::new(2);
    let mut decoding = model.decode_session(16, &cpu).unwrap_or_else(|e| panic!("{e}"));
    decoding.append(&IDS).unwrap_or_else(|e| panic!("{e}"));
    let path = written.0.join("model.safetensors");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    file.set_len(5000).expect("cut");
    let error = decoding.append(&[9]).expect_err("weights are gone").to_string();
    assert!(error.contains("model.safetensors") && error.contains("truncated"), "{error}");
}

#[test]
fn a_weight_in_the_file_that_is_no_number_is_refused() {
    let written = Written::new("nan");
    let path = written.0.join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("there");
    let middle = bytes.len() / 8 * 4;
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let at = start + (middle - start) / 4 * 4;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, bytes).expect("written");
    let model = written.load(DType::F32);
    let error = model.decode_session(16, &Cpu::new(2)).err().expect("refused").to_string();
    assert!(error.contains("finite") && error.contains("NaN"), "{error}");
}
