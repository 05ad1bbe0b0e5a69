//! Bad directories: the error names the file, the tensor, what was expected and what was found.

use ir::DType;
use models::{Model, NamedTensor, write_tensors};
use std::path::{Path, PathBuf};

/// A copy of the golden Llama to damage.
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

    /// Writes the checkpoint again, with its tensors changed.
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
