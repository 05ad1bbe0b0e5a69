//! What lies beside a model's weights, through the commands that write directories and files from another.

use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn loom(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_loom")).args(args).output().expect("loom runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn at(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write(dir: &str, name: &str, content: &Json) {
    let path = Path::new(dir).join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content.to_string()).expect("written");
}

#[test]
fn commands_keep_what_lies_beside_the_weights() {
    let folder = Folder(std::env::temp_dir().join(format!("tensorloom-beside-{}", std::process::id())));
    let (base, data) = (folder.at("base"), folder.at("data.txt"));
    let set = "d_model=32,n_layers=1,heads=2,kv_heads=1,d_ff=32";
    let small = ["--steps", "1", "--micro-batch-size", "1", "--seq-len", "16", "--sample-every", "9"];
    let fresh =
        ["train", "--model", "llama", "--set", set, "--vocab-size", "300", "--synthetic-bytes", "5000", "--out", &base];
    loom(&[&fresh[..], &small].concat());
    std::fs::write(&data, "the cat sat on the mat ".repeat(40)).expect("written");
    let template = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    write(&base, "tokenizer_config.json", &json!({ "eos_token": "a", "bos_token": "b", "chat_template": template }));
    write(&base, "generation_config.json", &json!({ "eos_token_id": [7, 8, 9] }));
    write(&base, "1_Pooling/config.json", &json!({ "pooling_mode_lasttoken": true }));
    let names = ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "1_Pooling/config.json"];
    let same = |dir: &str, names: &[&str]| {
        for name in names {
            let read =
                |dir: &str| std::fs::read(Path::new(dir).join(name)).unwrap_or_else(|e| panic!("{dir}/{name}: {e}"));
            assert_eq!(read(&base), read(dir), "{dir}: {name}");
        }
        assert!(!Path::new(dir).join("checkpoints/latest").exists());
    };
    let from = ["train", "--model", &base, "--data", &data];
    let [tuned, lora, merged, packed, plain] =
        ["tuned", "lora", "merged", "packed", "plain"].map(|name| folder.at(name));
    loom(&[&from[..], &small, &["--out", &tuned]].concat());
    same(&tuned, &names);
    loom(&[&from[..], &small, &["--lora", "rank=2,alpha=4,targets=q", "--out", &lora]].concat());
    same(&lora, &names[..2]);
    loom(&["merge", &lora, "--out", &merged]);
    same(&merged, &names);
    loom(&["quantize", &merged, "--format", "q8", "--out", &packed]);
    same(&packed, &names);
    loom(&["export", &packed, "--out", &plain]);
    same(&plain, &names);
    // Weights of another model are neither written over nor left beside.
    let other = folder.at("other");
    for name in [
        "model.safetensors",
        "tensorloom.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "adapter_model.safetensors",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model.bin.index.json",
    ] {
        write(&other, name, &json!({}));
        for command in [
            vec!["merge", &lora, "--out", &other],
            vec!["quantize", &merged, "--format", "q8", "--out", &other],
            vec!["quantize", &merged, "--out", &other],
            vec!["export", &merged, "--out", &other],
            [&from[..], &small, &["--out", &other]].concat(),
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_loom")).args(&command).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.code() == Some(2) && said.contains(name) && said.contains("--out"),
                "{command:?}: {said}"
            );
            assert_eq!(std::fs::read_to_string(Path::new(&other).join(name)).expect("read"), "{}", "{command:?}");
        }
        std::fs::remove_dir_all(&other).expect("removed");
    }
    // Whole numbers of half precision, which the file says.
    let gguf = folder.at("model.gguf");
    let output = loom(&["quantize", &packed, "--format", "q8", "--dtype", "f16", "--out", &gguf]);
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(note.contains("not stored in the GGUF file") && note.contains("1_Pooling/config.json"), "{note}");
    assert!(!note.contains("tokenizer_config.json"), "{note}");
    let half = folder.at("half.gguf");
    let output = loom(&["quantize", &merged, "--dtype", "f16", "--out", &half]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("f16"), "{output:?}");
    for file in [&gguf, &half] {
        let back = folder.at("back");
        let _ = std::fs::remove_dir_all(&back);
        loom(&["export", file, "--out", &back]);
        let read = |name: &str| -> Json {
            serde_json::from_slice(&std::fs::read(Path::new(&back).join(name)).expect("read")).expect("JSON")
        };
        assert_eq!(read("generation_config.json")["eos_token_id"], json!([7, 8, 9]));
        let config = read("tokenizer_config.json");
        assert_eq!([&config["eos_token"], &config["bos_token"]], [&json!("a"), &json!("b")]);
        assert_eq!(std::fs::read_to_string(Path::new(&back).join("chat_template.jinja")).expect("read"), template);
    }
}
