//! What the command shows of a model as data, and adapters from the command line.

use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn loom(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(root).args(args).output().expect("loom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn good(args: &[&str]) -> String {
    let output = loom(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-language-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

const SIZES: [&str; 10] =
    ["--set", "n_layers=1", "--set", "d_model=8", "--set", "heads=2", "--set", "kv_heads=1", "--set", "vocab_size=11"];

fn emit(model: &str, what: &[&str]) -> Json {
    let shown = good(&[&["compile", model, "--emit"], what, &SIZES[..]].concat());
    serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{what:?}: {e}: {shown}"))
}

#[test]
fn the_graph_is_nodes_and_edges() {
    let found = emit("llama", &["graph", "--json"]);
    for (pass, last) in [("forward", "out"), ("backward", "d_lm_head")] {
        let graph = &found[pass];
        let (nodes, edges) = (graph["nodes"].as_array().expect("nodes"), graph["edges"].as_array().expect("edges"));
        assert!(nodes.iter().any(|node| node["op_type"] == "composite"), "{pass}");
        assert!(nodes.iter().enumerate().all(|(i, node)| node["id"] == i && node["outputs"].is_array()));
        for edge in edges {
            let (from, to) = (&edge["source_node"], edge["dest_node"].as_u64().expect("a node"));
            // Without a source it comes from an input; else from a node before.
            assert!(from.is_null() || from.as_u64().is_some_and(|from| from < to), "{edge}");
            assert!(to < nodes.len() as u64 && edge["shape"].is_array() && edge["dtype"].is_string());
        }
        let names = |list: &Json| -> Vec<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|tensor| tensor["name"].as_str().expect("a name").to_string()).collect()
        };
        assert!(names(&graph["inputs"]).contains(&"blocks[0].attention.qkv_weight".to_string()));
        assert!(names(&graph["outputs"]).contains(&last.to_string()), "{:?}", names(&graph["outputs"]));
    }
}

#[test]
fn the_schema_says_which_tensors_make_up_a_parameter() {
    let find = |list: &Json, name: &str| -> Json {
        let mut list = list.as_array().expect("a list").iter();
        list.find(|p| p["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let llama = emit("llama", &["schema"]);
    let fused = find(&llama, "blocks[0].attention.qkv_weight");
    assert_eq!(fused["shape"], serde_json::json!([16, 8]));
    let tensors = fused["from"]["tensors"].as_array().expect("tensors");
    let names: Vec<&str> = tensors.iter().filter_map(|t| t["name"].as_str()).collect();
    let parts = ["q", "k", "v"].map(|part| format!("model.layers.0.self_attn.{part}_proj.weight"));
    assert_eq!(names, parts);
    let mixtral = emit("mixtral", &["schema"]);
    let stacked = find(&mixtral, "blocks[0].moe.up_weight");
    assert_eq!(stacked["from"]["stacked"].as_array().map(Vec::len), Some(8));
    let shown = good(&[
        "compile",
        "crates/lang/tests/modules/lower/annotations.module",
        "--model",
        "Chain",
        "--emit",
        "schema",
    ]);
    let plain: Json = serde_json::from_str(&shown).expect("JSON");
    assert!(find(&plain, "w1")["from"].is_null(), "nothing is mapped");
}

#[test]
fn profiles_are_timed_in_both_passes() {
    let file = "crates/lang/tests/modules/lower/annotations.module";
    let shown = good(&["explain", file, "--model", "Fused", "--batch-size", "4096", "--time"]);
    let lines: Vec<&str> = shown.lines().filter(|line| line.trim_start().starts_with("time ")).collect();
    assert_eq!(lines.len(), 2, "{shown}");
    for (line, pass) in lines.iter().zip(["gate forward: ", "gate with backward: "]) {
        let rest = line.split_once(pass).unwrap_or_else(|| panic!("{line}")).1;
        let time: f64 = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        assert!(time > 0.0, "{line}");
        // One result of 4096 rows of four.
        assert!(!line.contains(" 0 steps") && line.ends_with(" bytes"), "{line}");
    }
    assert!(lines[0].ends_with("1 steps that write 65536 bytes"), "{}", lines[0]);
    let output = loom(&["explain", file, "--model", "Chain", "--time"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("@profile"));
}

#[test]
fn probes_are_written_beside_the_logits() {
    let dir = temporary("probes");
    std::fs::create_dir_all(&dir).expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/data/scaled");
    std::fs::copy(data.join("model.safetensors"), dir.join("model.safetensors")).expect("a copy");
    let config = std::fs::read_to_string(data.join("config.json")).expect("the configuration");
    let marked = config.replace("-> s\\n", "-> s @probe(\\\"s\\\") @probe(\\\"g\\\", capture=grad_stats)\\n");
    std::fs::write(dir.join("config.json"), marked).expect("written");
    let (dir, out) = (dir.to_str().expect("a path"), temporary("probes.safetensors"));
    let out_path = out.to_str().expect("a path");
    good(&["logits", dir, "--token-ids", "1,2,3", "--labels", "1,2,3", "--out", out_path, "--probes"]);
    let bytes = std::fs::read(&out).expect("written");
    let found = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    for name in ["logits", "loss", "grad.mix", "probe.s.stats", "probe.s.grad_stats"] {
        assert!(found.tensor(name).is_ok(), "{name} of {:?}", found.names());
    }
    let _ = (std::fs::remove_dir_all(dir), std::fs::remove_file(&out));
}

/// Trains factors, merges them, and the merged model is another one.
#[test]
fn factors_are_trained_and_merged_from_the_command_line() {
    let out = temporary("ia3");
    std::fs::create_dir_all(&out).expect("a folder");
    let words = "the cat sat on the mat . then the dog ran in the house .\n<|endoftext|>\n".repeat(40);
    std::fs::write(out.join("text.txt"), words).expect("written");
    let at = |name: &str| out.join(name).to_str().expect("a path").to_string();
    let (llama, tokenizer) = ("crates/models/tests/data/llama", "crates/models/tests/data/lora/tokenizer.json");
    let (run, merged, data) = (at("run"), at("merged"), at("text.txt"));
    let settings = [
        "--steps",
        "4",
        "--micro-batch-size",
        "2",
        "--seq-len",
        "16",
        "--lr",
        "0.1",
        "--warmup-steps",
        "1",
        "--prompt",
        "the cat",
    ];
    let train = ["train", "--model", llama, "--data", &data, "--tokenizer", tokenizer, "--out", &run];
    let shown = good(&[&train[..], &settings, &["--ia3", "targets=k,v,down,feedforward=down"]].concat());
    assert!(shown.contains("adapter_config.json") && shown.contains("merge"), "{shown}");
    let config: Json =
        serde_json::from_str(&std::fs::read_to_string(out.join("run/adapter_config.json")).expect("written"))
            .expect("JSON");
    assert_eq!(
        (&config["peft_type"], &config["feedforward_modules"]),
        (&"IA3".into(), &serde_json::json!(["down_proj"]))
    );
    good(&["merge", &run, "--out", &merged]);
    let read = |dir: &Path| std::fs::read(dir.join("model.safetensors")).expect("weights");
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(llama);
    assert_ne!(read(&base), read(&out.join("merged")));
    let other = at("other");
    let both = ["--out", &other, "--lora", "rank=2", "--ia3", "targets=k"];
    let both = loom(&[&train[..train.len() - 2], &both].concat());
    assert_eq!(both.status.code(), Some(2));
    assert!(text(&both.stderr).contains("give only one of them"), "{}", text(&both.stderr));
    let _ = std::fs::remove_dir_all(&out);
}

/// A lock pins what imports resolved to: files of the library by version, others by what is in them.
#[test]
fn a_lock_pins_versions_until_it_is_written_anew() {
    let folder = temporary("lock");
    std::fs::create_dir_all(&folder).expect("a folder");
    let module = |name: &str, call: &str| {
        format!(
            "module {name}(n: int = 4):\n  forward:\n    in: [B, n]\n    out: [B, n]\n    graph:\n      in -> {call} -> out\n"
        )
    };
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("written");
    write("parts.module", module("Gate", "relu()"));
    write("gates.v2.module", module("Soft", "silu()"));
    let imports = "from parts import Gate\nfrom gates.v2 import Soft\nfrom std.modules.linear import Linear\n\n";
    write("main.module", format!("{imports}{}", module("Main", "Gate() -> Soft()")));
    let main = folder.join("main.module");
    let main = main.to_str().expect("a path");
    good(&["check", main, "--lock"]);
    let lock = std::fs::read_to_string(folder.join("module.lock")).expect("written");
    assert!(lock.starts_with("version: 1\nresolved_modules:\n"), "{lock}");
    for line in ["  gates: v2.0.0", "  parts: local@", "  std.modules.linear: v1.0.0"] {
        assert!(lock.contains(line), "{lock}");
    }
    assert!(!lock.contains("main"), "{lock}");
    good(&["check", main]);
    write("parts.module", module("Gate", "silu()"));
    let output = loom(&["check", main]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("L004") && text(&output.stderr).contains("parts"),
        "{}",
        text(&output.stderr)
    );
    good(&["check", main, "--lock"]);
    good(&["check", main]);
    write("main.module", format!("from gates.v3 import Soft\n\n{}", module("Main", "Soft()")));
    let output = loom(&["check", main]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("L002"), "{}", text(&output.stderr));
    let _ = std::fs::remove_dir_all(&folder);
}

const SIZED: &str = "\
module M(d: int = 8, heads: int = 2, mode: enum(fast, slow) = fast):
  let:
    N: batch_dim
    T: seq_dim
    h = d // heads
    rows = T * heads

  params:
    w: [h, h]

  forward:
    in: [N, rows, h]
    out: [N, rows, h]
    graph:
      in -> matmul(w, transpose=NT) -> a @profile(\"product\", memory=true) @hook(AfterProduct)
      a -> silu() -> b @memory(recompute)
      b -> silu() -> out @assert(out.shape[-1] == h, message=\"too wide\")
    save: [in, a]
";

fn written(name: &str, text: &str) -> PathBuf {
    let path = temporary(name).with_extension("module");
    std::fs::write(&path, text).expect("written");
    path
}

/// Values of `--set` are checked, and inputs have the sizes that `let:` and arithmetic give them.
#[test]
fn settings_are_checked_and_sizes_are_computed() {
    let file = written("sized", SIZED);
    let path = file.to_str().expect("a path");
    let shown = good(&["explain", path, "--batch-size", "3", "--seq-len", "5", "--set", "d=12"]);
    assert!(shown.contains("in: f32[3,10,6]"), "{shown}");
    assert!(shown.contains("memory       product: its steps write 720 bytes"), "{shown}");
    good(&["explain", path, "--set", "mode=slow"]);
    for (set, expected) in [
        (&["--set", "nosuch=3"][..], "has no parameter `nosuch`"),
        (&["--set", "head=3"], "did you mean `heads`?"),
        (&["--set", "d=eight"], "must be an integer"),
        (&["--set", "mode=medium"], "one of fast, slow"),
        (&["--set", "d=4", "--set", "d=8"], "given twice"),
        (&["--set", "N=-2"], "negative"),
    ] {
        let output = loom(&[&["explain", path], set].concat());
        assert_eq!(output.status.code(), Some(2), "{set:?}");
        assert!(text(&output.stderr).contains(expected), "{set:?}: {}", text(&output.stderr));
    }
    for (set, expected) in [("d=-4", "negative"), ("heads=0", "division by zero")] {
        let output = loom(&["explain", path, "--set", set]);
        assert_eq!(output.status.code(), Some(1), "{set}");
        assert!(text(&output.stderr).contains(expected), "{set}: {}", text(&output.stderr));
    }
    let fixed = written("fixed", &SIZED.replace("[N, rows, h]", "[2, heads, h]"));
    let output = loom(&["explain", fixed.to_str().expect("a path"), "--batch-size", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("`--batch-size` has no effect"), "{}", text(&output.stderr));
    let broken = written("broken", &SIZED.replace("== h,", "== 3,"));
    let output = loom(&["explain", broken.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("too wide"), "{}", text(&output.stderr));
    // Step and tolerance of the comparison: a tight one fails what a loose one lets through.
    good(&["verify-backward", path, "--epsilon", "1e-4", "--tolerance", "1e-3"]);
    let output = loom(&["verify-backward", path, "--tolerance", "1e-300"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let output = loom(&["verify-backward", path, "--epsilon", "0"]);
    assert_eq!(output.status.code(), Some(2));
    for file in [file, fixed, broken] {
        let _ = std::fs::remove_file(file);
    }
}

/// The graph has the annotations of its statements and sizes as written; the schedule has passes, what is computed
/// again, and what is kept.
#[test]
fn graphs_and_schedules_say_what_is_written_and_kept() {
    let file = written("emitted", SIZED);
    let path = file.to_str().expect("a path");
    let shown = good(&["compile", path, "--emit", "graph", "--json"]);
    let graph: Json = serde_json::from_str(&shown).expect("JSON");
    let forward = &graph["forward"];
    assert_eq!(graph["symbols"], serde_json::json!({ "N": -1 }));
    let inputs = forward["inputs"].as_array().expect("inputs");
    let find = |name: &str| inputs.iter().find(|input| input["name"] == name).expect("an input");
    assert_eq!(find("in")["sizes"], serde_json::json!(["N", "rows", "h"]));
    assert_eq!(find("in")["symbolic_shape"], serde_json::json!([-1, 32, 4]));
    assert_eq!(find("w")["sizes"], serde_json::json!(["h", "h"]));
    fn notes(node: &Json, found: &mut Vec<String>) {
        match node {
            Json::Object(fields) => {
                if let Some(list) = fields.get("annotations").and_then(Json::as_array) {
                    found.extend(list.iter().filter_map(|note| note["type"].as_str()).map(String::from));
                }
                fields.values().for_each(|inner| notes(inner, found));
            }
            Json::Array(items) => items.iter().for_each(|inner| notes(inner, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    notes(forward, &mut found);
    for name in ["profile", "hook", "memory", "assert"] {
        assert!(found.iter().any(|note| note == name), "{name}: {found:?}");
    }
    let shown = good(&["compile", path, "--emit", "schedule"]);
    let schedule: Json = serde_json::from_str(&shown).expect("JSON");
    let training = &schedule["training"];
    let ops = training["ops"].as_array().expect("ops");
    let passes: Vec<&str> = ops.iter().filter_map(|op| op["pass"].as_str()).collect();
    assert_eq!(passes.len(), ops.len());
    assert!(passes.contains(&"forward") && passes.contains(&"backward"), "{passes:?}");
    let layout = &training["activation_layout"];
    let total = layout["total_size"].as_u64().expect("a size");
    let fields = layout["fields"].as_array().expect("fields");
    assert_eq!(fields.iter().filter_map(|field| field["size_bytes"].as_u64()).sum::<u64>(), total);
    assert!(training["recompute_segments"].is_array());
    for (op, pass) in ops.iter().zip(&passes) {
        assert_eq!(op["recompute"].is_u64(), *pass == "recompute", "{op}");
    }
    // Keeping less makes the layout smaller or computes something again.
    let kept = written("kept", &SIZED.replace(" @memory(recompute)", ""));
    let shown = good(&["compile", kept.to_str().expect("a path"), "--emit", "schedule"]);
    let all: Json = serde_json::from_str(&shown).expect("JSON");
    assert!(all["training"]["activation_layout"]["total_size"].as_u64().expect("a size") >= total);
    for file in [file, kept] {
        let _ = std::fs::remove_file(file);
    }
}

/// A project's own files are found beside, above and along `LOOM_PATH`; a file that can't be read is said to be that.
#[test]
fn imports_are_searched_and_unreadable_files_are_named() {
    let root = temporary("search");
    let module = |name: &str, call: &str| {
        format!(
            "module {name}(n: int = 4):\n  forward:\n    in: [B, n]\n    out: [B, n]\n    graph:\n      in -> {call} -> out\n"
        )
    };
    let write = |name: &str, text: &[u8]| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("project/module.lock", b"version: 1\nresolved_modules:\n");
    write("project/parts/gates.module", module("Gate", "relu()").as_bytes());
    write("project/std/extra.module", module("Extra", "silu()").as_bytes());
    write("shared/far.module", module("Far", "relu()").as_bytes());
    write("project/models/bad.module", &[b'm', 0xff, 0xfe, b'\n']);
    let imports = "from parts.gates import Gate\nfrom std.extra import Extra\nfrom far import Far\n\n";
    write(
        "project/models/main.module",
        format!("{imports}{}", module("Main", "Gate() -> Extra() -> Far()")).as_bytes(),
    );
    let main = root.join("project/models/main.module");
    let main = main.to_str().expect("a path");
    let checked = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
        command.current_dir(&root).env("LOOM_PATH", root.join("shared")).args(["check", file]);
        command.output().expect("loom runs")
    };
    let output = checked(main);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    write("project/models/uses.module", format!("from bad import Bad\n\n{}", module("Main", "Bad()")).as_bytes());
    let output = checked(root.join("project/models/uses.module").to_str().expect("a path"));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("cannot be read") && said.contains("UTF-8") && !said.contains("was not found"), "{said}");
    let output = checked(root.join("project/models/bad.module").to_str().expect("a path"));
    assert!(text(&output.stderr).contains("UTF-8"), "{}", text(&output.stderr));
    write("project/models/empty.module", b"");
    let output = checked(root.join("project/models/empty.module").to_str().expect("a path"));
    assert!(text(&output.stderr).contains("write `module Name"), "{}", text(&output.stderr));
    let _ = std::fs::remove_dir_all(&root);
}

/// `--recipe` of the commands that run a model, from a policy or a file; what is emulated is said, and wrong words have a remedy.
#[test]
fn recipes_are_followed_by_every_command_that_runs_a_model() {
    let file = written(
        "few",
        "recipe Late:\n  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n  scaling_strategy: delayed\n  amax_history_len: 4\n\n\
         recipe Fours:\n  forward_activation_dtype: fp4_e2m1\n  weight_storage_dtype: int8\n",
    );
    let file = file.display().to_string();
    let (second, missing) = (format!("{file}:Fours"), format!("{file}:Lat"));
    let llama = ["explain", "std/models/llama", "--set", "n_layers=1", "--recipe"];
    let explained = |recipe: &str| good(&[&llama[..], &[recipe]].concat());
    assert!(!explained("bf16").contains("emulated"));
    for (recipe, says) in [
        ("fp8_hybrid", "gradients to fp8_e5m2"),
        (file.as_str(), "delayed scaling over 4 steps"),
        (second.as_str(), "stored in int8 (a scale for each row)"),
    ] {
        let shown = explained(recipe);
        assert!(shown.lines().any(|line| line.trim_start().starts_with("emulated ") && line.contains(says)), "{shown}");
    }
    for (recipe, says) in
        [("fp8_hybird", "`fp8_hybrid`"), (missing.as_str(), "Late, Fours"), ("none.module", "none.module")]
    {
        let output = loom(&[&llama[..], &[recipe]].concat());
        assert_eq!(output.status.code(), Some(2), "{recipe}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/data/llama");
    let data = data.display().to_string();
    let dir = temporary("few-logits");
    std::fs::create_dir_all(&dir).expect("a folder");
    let logits = |recipe: &[&str]| {
        let out = dir.join("out.safetensors").display().to_string();
        good(&[&["logits", &data, "--token-ids", "1,5,7,2,40", "--out", &out][..], recipe].concat());
        std::fs::read(&out).expect("written")
    };
    let plain = logits(&[]);
    assert_ne!(plain, logits(&["--recipe", "fp8_hybrid"]));
    assert_eq!(plain, logits(&["--recipe", "fp32"]));
    // Weights in few bits are packed where a model only writes.
    good(&[
        "generate",
        &data,
        "--token-ids",
        "1,5,7",
        "--max-new-tokens",
        "4",
        "--greedy",
        "--json",
        "--recipe",
        &second,
    ]);
}
