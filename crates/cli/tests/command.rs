//! The command from outside: exit codes, one-line errors, files written.

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

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tensorloom-cli-{}-{name}", std::process::id()))
}

/// Wrong use: exit code 2 and one line that has these words.
fn refused(args: &[&str], words: &[&str]) {
    let output = loom(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
}

const LLAMA: &str = "crates/models/tests/data/llama";
const GPT2: &str = "crates/models/tests/data/gpt2";

#[test]
fn wrong_use_is_one_line_and_exit_code_2() {
    refused(&["chec"], &["chec"]);
    refused(&["check"], &["no file"]);
    refused(&["check", "nothing.module"], &["nothing.module"]);
    refused(&["check", "--jsn", "x"], &["--json"]);
    refused(&["logits", LLAMA, "--out", "x"], &["--token-ids"]);
    refused(&["logits", LLAMA, "--token-ids", "1,x", "--out", "x"], &["1,5,7"]);
    refused(&["logits", LLAMA, "--token-ids", "1,2", "--token-ids", "1", "--out", "x"], &["equal length"]);
    refused(&["logits", "nowhere", "--token-ids", "1", "--out", "x"], &["nowhere", "directory"]);
    refused(&["logits", LLAMA, "--token-ids", "1", "--out", "x", "--dtype", "f8"], &["f32 or bf16"]);
    refused(&["generate", LLAMA, "--token-ids", "1,640"], &["640", "vocabulary"]);
    // Rotated positions go on; learnt ones end.
    refused(&["generate", GPT2, "--token-ids", "1", "--max-new-tokens", "1000"], &["at most 64"]);
    refused(&["compile", "llama", "--emit", "poem"], &["schedule, schema"]);
}

#[test]
fn check_reports_every_mistake() {
    let output = loom(&["check", "--json", "crates/lang/tests/diagnostics/cases/E004.module"]);
    assert_eq!(output.status.code(), Some(1));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = list.as_array().expect("a list");
    assert!(list.len() > 5);
    for key in ["code", "severity", "file", "line", "column", "message"] {
        assert!(list[0].get(key).is_some(), "{key}");
    }
    let clean = loom(&["check", "--json", "llama"]);
    assert_eq!(clean.status.code(), Some(0));
    assert_eq!(text(&clean.stdout).trim(), "[]");
}

#[test]
fn eval_and_generate_print_what_they_promise() {
    let out = temporary("out.safetensors");
    let path = out.to_str().expect("a path");
    let args = ["logits", LLAMA, "--token-ids", "1,5,7", "--labels", "1,5,7", "--out", path];
    let output = loom(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(std::fs::metadata(&out).is_ok_and(|file| file.len() > 1000));
    let _ = std::fs::remove_file(&out);

    let output = loom(&["generate", LLAMA, "--token-ids", "1,5,7", "--max-new-tokens", "4", "--greedy", "--json"]);
    let ids: Vec<i64> = serde_json::from_slice(&output.stdout).expect("a list of ids");
    assert_eq!(ids, [40, 7, 0, 7]);
    assert!(text(&output.stderr).contains("tokens/s"));
}

/// Bytes that `loom explain` plans for forward and backward together.
fn planned(extra: &[&str]) -> usize {
    let sizes = ["d_model=64", "heads=4", "kv_heads=2", "n_layers=6", "d_ff=128", "vocab_size=64"];
    let mut args = vec!["explain", "llama", "--seq-len", "128"];
    args.extend(sizes.iter().flat_map(|size| ["--set", size]));
    args.extend(extra);
    let output = loom(&args);
    let shown = text(&output.stdout);
    let line = shown.lines().find(|line| line.contains("and backward")).unwrap_or_else(|| panic!("{shown}"));
    let bytes = line.split(" steps, ").nth(1).and_then(|rest| rest.split(' ').next());
    bytes.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn checkpoints_lower_the_planned_memory() {
    let (kept, again) = (planned(&[]), planned(&["--set", "checkpoint=true"]));
    assert!(again * 2 < kept, "{again} of {kept} bytes");
}

/// The same module with everything kept and with checkpoints.
#[test]
fn checkpoints_inside_a_module_lower_the_planned_memory() {
    let bytes = |name: &str| -> usize {
        let file = "crates/lang/tests/modules/lower/memory.module";
        let output = loom(&["explain", file, "--model", name, "--batch-size", "512"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let shown = text(&output.stdout);
        let line = shown.lines().find(|line| line.contains("and backward")).unwrap_or_else(|| panic!("{shown}"));
        let bytes = line.split(" steps, ").nth(1).and_then(|rest| rest.split(' ').next());
        bytes.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let (kept, checkpointed) = (bytes("Kept"), bytes("Checkpointed"));
    assert!(checkpointed * 3 < kept * 2, "{checkpointed} of {kept} bytes");
    for name in ["Listed", "Marked"] {
        let bytes = bytes(name);
        assert!(bytes * 10 < kept * 9, "{name}: {bytes} of {kept} bytes");
    }
}

#[test]
fn explain_reports_fusion_and_refuses_what_must_be_one_step() {
    let file = "crates/lang/tests/modules/lower/annotations.module";
    let output = loom(&["explain", file, "--model", "Fused", "--batch-size", "64"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("profile      gate: 1 steps") && shown.contains(": 1 step\n"), "{shown}");
    let plain = temporary("fused.module");
    let apart = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
    let apart = apart.replace("in -> add(bias) -> silu() -> x", "in -> softmax(dim=0) -> softmax(dim=1) -> x");
    std::fs::write(&plain, apart).unwrap();
    let output = loom(&["explain", plain.to_str().unwrap(), "--model", "Fused", "--batch-size", "64"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let _ = std::fs::remove_file(&plain);
}

#[test]
fn schedules_schemas_and_metadata_are_json() {
    let emit = |what: &str| -> serde_json::Value {
        let sizes = ["--set", "n_layers=1", "--set", "d_model=32", "--set", "heads=2", "--set", "kv_heads=2"];
        let output = loom(&[&["compile", "llama", "--emit", what], &sizes[..]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{what}: {e}: {}", text(&output.stderr)))
    };
    let schedule = emit("schedule");
    let (buffers, ops) = (schedule["buffers"].as_array().unwrap(), schedule["ops"].as_array().unwrap());
    assert!(ops.len() > 5 && ops.iter().enumerate().all(|(i, op)| op["order"] == i));
    assert!(ops.iter().any(|op| op["kernel"].as_str().unwrap().starts_with("matmul")));
    for op in ops {
        for place in op["inputs"].as_array().unwrap().iter().chain(op["outputs"].as_array().unwrap()) {
            assert!(place["buffer"].as_u64().unwrap() < buffers.len() as u64);
        }
    }
    // Buffers that share memory are not alive together, but for results that take an operand's place.
    let live =
        |i: usize| (buffers[i]["lifetime_start"].as_u64().unwrap(), buffers[i]["lifetime_end"].as_u64().unwrap());
    for (i, buffer) in buffers.iter().enumerate().filter(|(_, b)| b["kind"] == "activation") {
        for other in buffer["aliases"].as_array().unwrap() {
            let (a, b) = (live(i), live(other.as_u64().unwrap() as usize));
            assert!(a.1 <= b.0 || b.1 <= a.0, "{a:?} {b:?}");
        }
    }
    assert!(buffers.iter().any(|b| b["name"] == "blocks[0].attention.qkv_weight" && b["kind"] == "weight"));
    let config = emit("config");
    assert_eq!(config["architecture"], "LlamaForCausalLM");
    let width = config["parameters"].as_array().unwrap().iter().find(|p| p["name"] == "d_model").unwrap();
    assert_eq!((&width["field"], &width["default"]), (&"hidden_size".into(), &"4096".into()));
    let metadata = emit("metadata");
    assert_eq!(metadata["inputs"][0]["dtype"], "i32");
    assert_eq!(metadata["outputs"][0]["shape"][2], 32000);
}

#[test]
fn verify_backward_tells_right_from_wrong() {
    let right = loom(&[
        "verify-backward",
        "crates/lang/tests/modules/check/linear.module",
        "--model",
        "Twice",
        "--set",
        "width=4",
    ]);
    assert_eq!(right.status.code(), Some(0), "{}", text(&right.stdout));
    let good = include_str!("../../lang/std/modules/linear.module");
    let broken = [
        ("(d_out, weight) -> matmul() -> d_in", "(d_out, weight) -> matmul(alpha=2.0) -> d_in"),
        ("(d_out, saved.in) -> matmul(transpose=TN", "(d_out, saved.in) -> matmul(alpha=-1.0, transpose=TN"),
        ("rows -> reduce_sum(dims=[0])", "rows -> reduce_mean(dims=[0])"),
    ];
    for (i, (from, to)) in broken.iter().enumerate() {
        assert!(good.contains(from));
        let file = temporary(&format!("broken{i}.module"));
        std::fs::write(&file, good.replace(from, to)).expect("written");
        let path = file.to_str().expect("a path");
        let sizes = ["--set", "in_dim=6", "--set", "out_dim=5", "--set", "use_bias=true", "--batch-size", "2"];
        let output = loom(&[&["verify-backward", path, "--model", "Linear"], &sizes[..]].concat());
        let _ = std::fs::remove_file(&file);
        assert_eq!(output.status.code(), Some(1), "{to}: {}", text(&output.stdout));
        assert!(text(&output.stdout).contains("DIFFERS"), "{to}");
    }
}

/// Writes a safetensors file of f32 tensors named 0, 1, ….
fn write_inputs(path: &Path, tensors: &[(&[usize], &[f32])]) {
    let data: Vec<Vec<u8>> = tensors.iter().map(|(_, x)| x.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&data).enumerate().map(|(i, ((shape, _), bytes))| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).expect("sizes fit");
        (i.to_string(), view)
    });
    safetensors::serialize_to_file(views, None, path).expect("it can be written");
}

fn read_output(path: &Path, name: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = std::fs::read(path).expect("outputs were written");
    let all = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let t = all.tensor(name).expect("the output is there");
    let values = t.data().chunks(4).map(|c| f32::from_le_bytes(c.try_into().expect("four bytes"))).collect();
    (t.shape().to_vec(), values)
}

#[test]
fn run_takes_a_graph_through_every_transform_on_both_devices() {
    let (ir, input, output) = (temporary("square.ir"), temporary("in.safetensors"), temporary("out.safetensors"));
    std::fs::write(&ir, "graph (%x: f32[3], %i: i32[]) {\n  %y = mul(%x, %x) : f32[3]\n  return %y, %i\n}\n").unwrap();
    let [ir, out] = [&ir, &output].map(|p| p.to_str().unwrap());
    // The integer has neither tangent nor cotangent.
    let x: (&[usize], &[f32]) = (&[3], &[1.0, -2.0, 3.0]);
    let bad = temporary("bad.safetensors");
    write_inputs(&bad, &[x, (&[], &[0.0])]);
    refused(&["run", ir, "--in", bad.to_str().unwrap(), "--out", out], &["input 1 must be i32[]", "f32[]"]);

    let plain = temporary("plain.ir");
    std::fs::write(&plain, "graph (%x: f32[3]) {\n  %y = mul(%x, %x) : f32[3]\n  return %y\n}\n").unwrap();
    let plain = plain.to_str().unwrap();
    for device in ["interp", "cpu"] {
        let go = |tensors: &[(&[usize], &[f32])], more: &[&str]| {
            write_inputs(&input, tensors);
            let words = ["run", plain, "--in", input.to_str().unwrap(), "--out", out, "--device", device];
            let output = loom(&[&words[..], more].concat());
            assert!(output.status.success(), "{}", text(&output.stderr));
            output
        };
        go(&[x], &[]);
        assert_eq!(read_output(&output, "0"), (vec![3], vec![1.0, 4.0, 9.0]));
        go(&[x, (&[3], &[1.0, 1.0, 0.5])], &["--transform", "jvp"]);
        assert_eq!(read_output(&output, "1"), (vec![3], vec![2.0, -4.0, 3.0]));
        go(&[x, (&[3], &[1.0, 0.0, 2.0])], &["--transform", "vjp"]);
        assert_eq!(read_output(&output, "1"), (vec![3], vec![2.0, 0.0, 12.0]));
        let batch: (&[usize], &[f32]) = (&[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        go(&[batch], &["--transform", "vmap:1"]);
        assert_eq!(read_output(&output, "0"), (vec![2, 3], vec![1.0, 4.0, 9.0, 16.0, 25.0, 36.0]));
        let timed = go(&[x], &["--bench", "3", "--threads", "1"]);
        let times: serde_json::Value = serde_json::from_slice(&timed.stdout).expect("JSON");
        assert!(times["median_s"].as_f64().is_some_and(|s| s > 0.0) && times["compile_s"].is_number());
    }
    for (what, word) in [("graph", "mul("), ("program", "arena"), ("loops", "vector"), ("explain", "kernel over")] {
        let output = loom(&["run", plain, "--emit", what]);
        assert!(output.status.success() && text(&output.stdout).contains(word), "{what}: {}", text(&output.stderr));
    }
    let asm = ["run", plain, "--emit", "asm"];
    if cfg!(feature = "disassembler") {
        assert!(text(&loom(&asm).stdout).contains("ret"));
    } else {
        refused(&asm, &["--features disassembler"]);
    }
    let file = input.to_str().unwrap();
    refused(&["run", plain], &["--in"]);
    refused(&["run", plain, "--in", file], &["--out"]);
    refused(&["run", plain, "--in", plain, "--out", out], &["safetensors"]);
    refused(&["run", plain, "--in", file, "--out", out, "--transform", "vmap:7"], &["axis 7"]);
    refused(&["run", plain, "--in", file, "--out", out, "--transform", "spin"], &["jvp, vjp or vmap"]);
    refused(&["run", plain, "--in", file, "--out", out, "--device", "abacus"], &["also accepts interp"]);
    refused(&["run", file, "--in", file, "--out", out], &["stream did not contain"]);
    std::fs::write(&bad, "graph (%x: f32[3]) {\n  %y = mull(%x) : f32[3]\n  return %y\n}\n").unwrap();
    refused(&["run", bad.to_str().unwrap(), "--in", file, "--out", out], &["mull", "2:"]);
}

#[test]
fn programs_are_printed_at_every_level() {
    let ir = temporary("debug.ir");
    let graph = "graph (%x: f32[8]) {\n  %y = exp(%x) : f32[8]\n  %z = mul(%y, %y) : f32[8]\n  return %z\n}\n";
    std::fs::write(&ir, graph).unwrap();
    let (input, out) = (temporary("debug.safetensors"), temporary("debug-out.safetensors"));
    write_inputs(&input, &[(&[8], &[0.5; 8])]);
    let run = |level: &str| {
        let [ir, input, out] = [&ir, &input, &out].map(|p| p.to_str().unwrap());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
        command.current_dir(root).args(["run", ir, "--in", input, "--out", out, "--threads", "1"]);
        let output = command.env("LOOM_DEBUG", level).output().expect("loom runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    assert_eq!(run("0"), "");
    assert!(run("7").starts_with("warning: LOOM_DEBUG=7 is not a level"));
    // No pass changes this graph.
    let parts = [
        (1, "== program 1: 2 nodes, cpu\ngraph ("),
        (3, "-- schedule: 1 step, "),
        (4, "-- loops of "),
        (5, ": code, cpu ("),
    ];
    for level in 1..=5 {
        let shown = run(&level.to_string());
        for (from, part) in parts {
            assert_eq!(shown.contains(part), level >= from, "level {level}: `{part}`\n{shown}");
        }
    }
    // This program has a disassembler.
    assert!(!cfg!(target_arch = "x86_64") || run("5").lines().any(|line| line.ends_with("  ret")), "{}", run("5"));
    for file in [&ir, &input, &out] {
        let _ = std::fs::remove_file(file);
    }
}

/// Every `loom` command of the documents names a command that there is, and options that it has.
#[test]
fn commands_of_the_documents_are_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/conformance", "book/src"] {
        pages.extend(std::fs::read_dir(root.join(folder)).expect("a folder").flatten().map(|f| f.path()));
    }
    pages.extend(
        std::fs::read_dir(root.join("crates")).expect("a folder").flatten().map(|f| f.path().join("README.md")),
    );
    pages.retain(|p| p.extension().is_some_and(|e| e == "md") && p.exists());
    pages.sort();
    let mut helps: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages {
        let page_text = std::fs::read_to_string(&page).expect("a page");
        let mut fence: Option<&str> = None;
        for line in page_text.lines() {
            if let Some(kind) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(kind) };
                continue;
            }
            if fence != Some("sh") || !line.starts_with("loom ") {
                continue;
            }
            let words = line.split(" #").next().unwrap_or("").split_whitespace();
            let words: Vec<&str> = words.take_while(|w| !["|", ">", "&&", "&"].contains(w)).collect();
            // `launch` and `profile` run another command.
            let at = words.iter().rposition(|w| *w == "loom").unwrap_or(0) + 1;
            let at = if words.get(at) == Some(&"profile") { at + 1 } else { at };
            let Some(name) = words.get(at) else { continue };
            let help = helps.entry(name.to_string()).or_insert_with(|| text(&loom(&[name, "--help"]).stdout));
            let known = |o: &str| help.split(|c: char| !c.is_alphanumeric() && c != '-').any(|w| w == o);
            let options = words[at..].iter().filter(|w| w.starts_with("--")).map(|w| w.split('=').next().unwrap_or(w));
            let bad: Vec<&str> = options.filter(|o| !known(o)).collect();
            if help.is_empty() || !bad.is_empty() {
                wrong.push(format!("{}: `{line}`: {name} {bad:?}", page.display()));
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn help_is_short_and_shells_are_served() {
    let good = |args: &[&str]| {
        let output = loom(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let help = good(&["--help"]);
    assert_eq!(help, good(&["-h"]));
    assert_eq!(help, good(&["help"]));
    // A line for each command, and few beside them.
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() > 20 && commands.iter().all(|line| line.starts_with("  ") && !line.starts_with("   ")));
    assert!(help.lines().count() - commands.len() < 20, "{help}");
    // The book has every command.
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/command_line.md");
    let page = std::fs::read_to_string(book).expect("the page");
    let missing = commands.iter().filter_map(|line| line.split_whitespace().next());
    let missing: Vec<&str> = missing.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?} are not in the book");
    assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    assert_eq!(good(&["help", "train"]), good(&["train", "--help"]));
    // Settings stand in groups, each once.
    let train = good(&["train", "--help"]);
    for (name, ..) in models::train::SETTING_DESCRIPTIONS {
        let option = format!("--{name}");
        let rest = |line: &'_ str| line.trim_start().strip_prefix(&option).map(|rest| rest.starts_with([' ', '[']));
        assert_eq!(train.lines().filter(|line| rest(line) == Some(true)).count(), 1, "{option}: {train}");
    }
    for group in ["Model:", "Data:", "Steps:", "Files and reports:", "Machine:"] {
        assert_eq!(train.matches(group).count(), 1, "{group}: {train}");
    }
    if cfg!(feature = "completions") {
        for shell in ["bash", "zsh", "fish"] {
            let script = good(&["completions", shell]);
            for word in ["verify-backward", "checkpoint-every", "top-p"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        refused(&["completions", "csh"], &["bash", "zsh"]);
    } else {
        refused(&["completions", "bash"], &["--features completions"]);
    }
    if cfg!(feature = "man") {
        assert!(good(&["man"]).contains("generate"));
        let page = good(&["man", "generate"]);
        assert!(page.contains(".TH") && page.contains("temperature"), "{page}");
        refused(&["man", "nothing"], &["nothing"]);
    } else {
        refused(&["man"], &["--features man"]);
    }
}

/// The last value counts, values may begin with a dash, and what is misspelt is named with what was meant.
#[test]
fn options_are_read_as_ever() {
    let output = loom(&[
        "generate",
        LLAMA,
        "--token-ids=1,5,7",
        "--max-new-tokens",
        "9",
        "--max-new-tokens",
        "4",
        "--json",
        "--json",
    ]);
    let ids: Vec<i64> = serde_json::from_slice(&output.stdout).expect("a list of ids");
    assert_eq!(ids, [40, 7, 0, 7]);
    let out = temporary("dash.safetensors");
    let path = out.to_str().expect("a path");
    let output = loom(&["logits", LLAMA, "--token-ids", "1,5,7", "--labels", "-100,5,7", "--out", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let _ = std::fs::remove_file(&out);
    refused(&["generat"], &["no command `generat`", "`generate`"]);
    refused(&["generate", LLAMA, "--max-neww", "3"], &["unknown option `--max-neww`", "`--max-new-tokens`"]);
    refused(&["generate", LLAMA, "more", "--token-ids", "1"], &["unexpected argument `more`"]);
    refused(&["generate"], &["<DIR>", "missing"]);
    refused(&["generate", LLAMA, "--token-ids"], &["`--token-ids` needs a value"]);
    refused(&["generate", LLAMA, "--json=3", "--token-ids", "1"], &["`--json`"]);
    refused(&["--nothing"], &["--nothing"]);
}

#[test]
fn every_command_that_runs_something_takes_a_device() {
    let sizes = ["--set", "n_layers=1", "--set", "d_model=8", "--set", "heads=2", "--set", "kv_heads=2"];
    let graph = temporary("device.ir");
    std::fs::write(&graph, "graph (%x: f32[3]) {\n  return %x\n}\n").unwrap();
    let graph = graph.to_str().expect("a path");
    let out = temporary("device-run");
    let out = out.to_str().expect("a path");
    let commands: [&[&str]; 8] = [
        &["train", "--out", out],
        &["generate", LLAMA, "--token-ids", "1"],
        &["logits", LLAMA, "--token-ids", "1", "--out", "x"],
        &[&["explain", "llama"], &sizes[..]].concat(),
        &[&["compile", "llama", "--emit", "program"], &sizes[..]].concat(),
        &["run", graph, "--emit", "program"],
        &["bench"],
        &["doctor"],
    ];
    for command in commands {
        refused(&[command, &["--device", "abacus:7"][..]].concat(), &["no device `abacus:7`", "cpu"]);
    }
    for device in ["cpu", "auto"] {
        for command in [1, 3, 4, 5] {
            let output = loom(&[commands[command], &["--device", device][..]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
    }
    assert!(!Path::new(out).exists());
}

/// A graph goes out as ONNX, comes in again as a directory, and gives the same from either, by tensors of both kinds.
#[test]
fn onnx_models_go_out_and_come_in() {
    let folder = std::env::temp_dir().join(format!("loom-onnx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let text = "graph (%0: f32[2,2], %1: f32[2]) {\n  %2 = broadcast(%1) {shape=[2, 2], dims=[1]} : f32[2,2]\n  %3 = mul(%0, %2) : f32[2,2]\n  %4 = exp(%3) : f32[2,2]\n  return %4\n}\n";
    std::fs::write(path("g.ir"), text).expect("written");
    let npy = |name: &str, shape: &str, data: &[f32]| {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
        std::fs::write(path(name), bytes).expect("written");
    };
    npy("x.npy", "(2, 2)", &[0.0, 1.0, 2.0, 3.0]);
    npy("w.npy", "(2,)", &[1.0, -1.0]);
    let ran = |args: &[&str]| {
        let output = loom(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    ran(&["export", &path("g.ir"), "--onnx", &path("g.onnx")]);
    let said = ran(&["import", &path("g.onnx"), "--out", &path("dir")]);
    assert!(said.contains("input input_0: f32[2,2]") && said.contains("output output_0: f32[2,2]"), "{said}");
    let (x, w) = (format!("input_0={}", path("x.npy")), format!("input_1={}", path("w.npy")));
    let read = |file: &str, name: &str| -> Vec<u8> {
        let bytes = std::fs::read(path(file)).expect("results");
        let found = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
        found.tensor(name).expect("the result").data().to_vec()
    };
    ran(&["run", &path("dir"), "--in", &x, "--in", &w, "--out", &path("a")]);
    ran(&["run", &path("g.onnx"), "--in", &path("x.npy"), "--in", &path("w.npy"), "--out", &path("b")]);
    ran(&["run", &path("g.ir"), "--in", &path("x.npy"), "--in", &path("w.npy"), "--out", &path("c")]);
    let a = read("a", "output_0");
    assert_eq!((a.clone(), a.clone()), (read("b", "output_0"), read("c", "0")));
    let numbers: Vec<f32> = a.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    for (got, want) in numbers.iter().zip([1.0, (-1f32).exp(), 2f32.exp(), (-3f32).exp()]) {
        assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "{numbers:?}");
    }
    // A value that is given is no input any more, and what is missing is named.
    ran(&["run", &path("g.onnx"), "--value", &w, "--in", &x, "--out", &path("d")]);
    assert_eq!(read("d", "output_0"), a);
    assert!(ran(&["run", &path("dir"), "--emit", "graph"]).contains("exp("));
    refused(&["run", &path("g.onnx"), "--in", &x, "--out", &path("e")], &["input_1", "no tensor"]);
    refused(
        &["run", &path("g.onnx"), "--shape", "nobody=3", "--in", &x, "--out", &path("e")],
        &["no input `nobody`", "input_0"],
    );
    refused(&["import", &path("g.ir"), "--out", &path("dir2")], &[".onnx"]);
    refused(&["import", &path("g.onnx"), "--out", &path("dir2"), "--dim", "batch"], &["NAME="]);
    std::fs::write(path("bad.onnx"), "not a model").expect("written");
    refused(&["import", &path("bad.onnx"), "--out", &path("dir2")], &["bad.onnx", "not an ONNX model"]);
    refused(&["run", &folder.to_string_lossy(), "--in", &x, "--out", &path("e")], &["model.json"]);
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// What a driver says of itself, by a stand-in for it: too old, without a GPU, or at odds with the kernel's module.
#[cfg(target_os = "linux")]
#[test]
fn drivers_that_cannot_serve_are_named_with_the_remedy() {
    const DRIVER: &str = r#"
#include <stdlib.h>
int cuDriverGetVersion(int *version) { *version = atoi(getenv("SHIM_VERSION")); return 0; }
int cuInit(unsigned flags) { return atoi(getenv("SHIM_INIT")); }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_OF_THE_TEST"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "as the test wants it"; return 0; }
"#;
    let folder = std::env::temp_dir().join(format!("tensorloom-driver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = folder.join("driver.c");
    std::fs::write(&source, DRIVER).expect("written");
    let library = folder.join("libcuda.so.1");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !built.is_ok_and(|s| s.success()) {
        println!("no C compiler: not looked at");
        return;
    }
    std::fs::copy(&library, folder.join("libcuda.so")).expect("copied");
    let cases = [
        ("11080", "0", &["CUDA 11.8", "at least CUDA 12.0", "install a newer driver"][..]),
        ("13000", "100", &["finds no GPU", "nvidia-smi"]),
        ("13000", "803", &["cuInit", "CUDA_ERROR_OF_THE_TEST", "nvidia-smi"]),
    ];
    for (version, init, words) in cases {
        let run = |arguments: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_loom"))
                .args(arguments)
                .env("LD_LIBRARY_PATH", &folder)
                .env("SHIM_VERSION", version)
                .env("SHIM_INIT", init)
                .output()
                .expect("loom runs")
        };
        let told = run(&["doctor"]);
        let (shown, lines) = (text(&told.stdout), text(&told.stderr));
        assert_eq!(told.status.code(), Some(0), "{lines}");
        assert!(words.iter().all(|w| shown.contains(w)), "{version} {init}: {shown}");
        let told = run(&["bench", "--device", "cuda"]);
        let lines = text(&told.stderr);
        assert_ne!(told.status.code(), Some(0), "{lines}");
        assert!(
            words.iter().all(|w| lines.contains(w)) && !lines.contains("internal error"),
            "{version} {init}: {lines}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
