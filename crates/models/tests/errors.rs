//! Invalid directories: the error names the file, the tensor, the expected and the actual value.

use ir::DType;
use std::path::{Path, PathBuf};
use tensorloom_models::{Model, NamedTensor, write_tensors};

/// A copy of the golden Llama to be damaged.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Copy {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llama");
        let to = std::env::temp_dir().join(format!("tensorloom-errors-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&to).expect("a folder");
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(from.join(file), to.join(file)).expect("a copy");
        }
        Copy(to)
    }

    fn error(&self) -> String {
        match Model::load(&self.0, DType::F32) {
            Ok(_) => panic!("loaded"),
            Err(error) => error.to_string(),
        }
    }

    /// Rewrites the checkpoint with modified tensors.
    fn rewrite(&self, change: impl Fn(&mut Vec<NamedTensor>)) {
        let path = self.0.join("model.safetensors");
        let bytes = std::fs::read(&path).expect("the checkpoint");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("the checkpoint");
        let mut list: Vec<NamedTensor> = tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| NamedTensor {
                name,
                shape: view.shape().to_vec(),
                dtype: DType::F32,
                bytes: view.data().to_vec(),
            })
            .collect();
        change(&mut list);
        write_tensors(&path, &list).expect("written");
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check(found: &str, parts: &[&str]) {
    for part in parts {
        assert!(found.contains(part), "`{part}` is missing in: {found}");
    }
    assert!(!found.trim_end().contains('\n'), "more than one line: {found}");
}

#[test]
fn a_missing_tensor_is_named() {
    let copy = Copy::new("missing");
    copy.rewrite(|list| list.retain(|t| t.name != "model.layers.1.self_attn.k_proj.weight"));
    let parts = ["model.layers.1.self_attn.k_proj.weight", "blocks[1].attention.qkv_weight", "[64, 32]"];
    check(&copy.error(), &parts);
}

#[test]
fn a_misshaped_tensor_is_named_with_both_shapes() {
    let copy = Copy::new("misshaped");
    copy.rewrite(|list| {
        let norm = list.iter_mut().find(|t| t.name == "model.norm.weight").expect("the norm");
        norm.shape = vec![16];
        norm.bytes.truncate(64);
    });
    check(&copy.error(), &["model.safetensors", "model.norm.weight", "[32]", "[16]"]);
}

#[test]
fn an_unknown_tensor_is_not_dropped_silently() {
    let copy = Copy::new("unknown");
    copy.rewrite(|list| {
        let mut extra = list[0].clone();
        extra.name = "model.layers.0.mlp.up_proj.bias".into();
        list.push(extra);
    });
    check(&copy.error(), &["model.layers.0.mlp.up_proj.bias", "no parameter"]);
}

#[test]
fn a_truncated_file_is_refused() {
    let copy = Copy::new("truncated");
    let path = copy.0.join("model.safetensors");
    let bytes = std::fs::read(&path).expect("the checkpoint");
    for length in [0, 7, 100, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).expect("written");
        check(&copy.error(), &["model.safetensors"]);
    }
}

#[test]
fn a_config_without_a_model_says_which_there_are() {
    let copy = Copy::new("architecture");
    let path = copy.0.join("config.json");
    let text = std::fs::read_to_string(&path).expect("the config");
    std::fs::write(&path, text.replace("LlamaForCausalLM", "UnheardOfLM")).expect("written");
    check(&copy.error(), &["config.json", "UnheardOfLM", "LlamaForCausalLM", "MambaForCausalLM"]);
    std::fs::write(&path, "{").expect("written");
    check(&copy.error(), &["config.json", "JSON"]);
}

/// A mapping that omits a parameter, or names a missing tensor, is an error in the model's source.
#[test]
fn a_parameter_without_a_mapping_is_named() {
    let copy = Copy::new("mapping");
    let text = "model M(width: int = 4):\n  params:\n    a: [width]\n    b: [width]\n\n  forward:\n    in: [B, T, int32]\n    \
                out: [B, width]\n    graph:\n      zeros([B, width]) -> z\n      (z, a, b) -> add3() -> out\n\n  \
                hf_mapping:\n    a: \"model.norm.weight\"\n";
    let config = |text: &str| {
        let own = serde_json::json!({ "file": "m", "model": "M", "given": {}, "files": { "m": text } });
        let config = serde_json::json!({ "architectures": ["M"], "tensorloom": own });
        std::fs::write(copy.0.join("config.json"), config.to_string()).expect("written");
    };
    config(text);
    check(&copy.error(), &["M: `hf_mapping`", "`b`"]);
    config(&format!("{text}    b: \"model.nothing.weight\"\n"));
    let named = "model.norm.weight";
    copy.rewrite(|tensors| tensors.retain(|tensor| tensor.name == named));
    check(&copy.error(), &["model.norm.weight", "[4]", "[32]"]);
    let whole = text.replace("width: int = 4", "width: int = 32") + "    b: \"model.nothing.weight\"\n";
    config(&whole);
    check(&copy.error(), &["model.nothing.weight", "`b`", "[32]"]);
}

/// A file with a header length, a header and these bytes after it.
fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn malformed_headers_are_refused() {
    let copy = Copy::new("malformed");
    let path = copy.0.join("model.safetensors");
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!("{{\"a\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}")
    };
    let cases = [
        raw("{", &[]),
        raw("[]", &[]),
        raw("{\"a\":1}", &[]),
        raw(&one("F31", "[1]", "[0,4]"), &[0; 4]),
        raw(&one("F32", "[2]", "[0,4]"), &[0; 4]),
        raw(&one("F32", "[1]", "[4,0]"), &[0; 4]),
        raw(&one("F32", "[1]", "[0,4]"), &[0; 3]),
        raw(&one("F32", "[1]", "[0,4]"), &[0; 9]),
        raw(&one("F32", "[1]", "[8,12]"), &[0; 12]),
        raw(&one("F32", "[-1]", "[0,4]"), &[0; 4]),
        raw(&one("F32", "[18446744073709551615,4]", "[0,4]"), &[0; 4]),
        u64::MAX.to_le_bytes().to_vec(),
        [0xff; 64].to_vec(),
    ];
    for (i, bytes) in cases.iter().enumerate() {
        std::fs::write(&path, bytes).expect("written");
        let found = copy.error();
        assert!(found.contains("model.safetensors") && found.contains("not a safetensors file"), "case {i}: {found}");
    }
}

#[test]
fn an_index_that_lies_is_refused() {
    let copy = Copy::new("index");
    let index = copy.0.join("model.safetensors.index.json");
    std::fs::rename(copy.0.join("model.safetensors"), copy.0.join("part.safetensors")).expect("moved");
    for (text, word) in [
        ("{", "JSON"),
        ("{}", "weight_map"),
        (r#"{"weight_map": {"a": "../part.safetensors"}}"#, "leaves the directory"),
        (r#"{"weight_map": {"a": "nowhere.safetensors"}}"#, "nowhere.safetensors"),
    ] {
        std::fs::write(&index, text).expect("written");
        check(&copy.error(), &[word]);
    }
}

/// Small integers are exact in every dtype: the model is the same, and so are the bytes after an export.
#[test]
fn tensors_of_every_dtype_are_read_and_written_back() {
    let copy = Copy::new("dtypes");
    copy.rewrite(|list| {
        for (k, tensor) in list.iter_mut().enumerate() {
            let n = tensor.bytes.len() / 4;
            tensor.bytes = (0..n).flat_map(|i| f32::from(((i * 7 + k * 3) % 2) as u8).to_le_bytes()).collect();
        }
    });
    let expected = Model::load(&copy.0, DType::F32).expect("loads");
    let values = |model: &Model| {
        let found = model.evaluate_on(&[vec![1, 5, 7]], None, &cpu::Cpu::new(1)).expect("runs");
        found.logits.to_f32_vec()
    };
    let logits = values(&expected);
    assert!(logits.iter().all(|x| x.is_finite()));
    copy.rewrite(|list| {
        for (k, tensor) in list.iter_mut().enumerate() {
            let dtype = DType::ALL[k % DType::ALL.len()];
            let words = tensor.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let bits = words.map(|x| ir::Scalar::from_f64(dtype, f64::from(x)).bits().to_le_bytes());
            tensor.bytes = bits.flat_map(|b| b.into_iter().take(dtype.size())).collect();
            tensor.dtype = dtype;
        }
    });
    let model = Model::load(&copy.0, DType::F32).expect("loads");
    assert_eq!(values(&model), logits);
    let out = copy.0.join("out");
    model.export(&out).expect("exports");
    let read = |dir: &Path| std::fs::read(dir.join("model.safetensors")).expect("a file");
    let (before, after) = (read(&copy.0), read(&out));
    let (before, after) =
        (safetensors::SafeTensors::deserialize(&before), safetensors::SafeTensors::deserialize(&after));
    let (before, after) = (before.expect("safetensors"), after.expect("safetensors"));
    assert_eq!(before.len(), after.len());
    for (name, view) in before.tensors() {
        let again = after.tensor(&name).expect("the same names");
        assert_eq!((view.dtype(), view.shape(), view.data()), (again.dtype(), again.shape(), again.data()), "{name}");
    }
}
