//! Hostile input: each is one line that begins with `loom: ` and exit code 2, soon and in little memory.

use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn data(name: &str) -> String {
    root().join("crates/models/tests/data").join(name).to_str().expect("a path").to_string()
}

/// A folder of a test's own, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-hostile-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path").to_string()
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.0.join(name), content).expect("written");
        self.path(name)
    }

    /// A copy of a model's directory.
    fn model(&self, name: &str, of: &str) -> String {
        let to = self.0.join(name);
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir_all(&to).expect("a folder");
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(Path::new(&data(of)).join(file), to.join(file)).expect("a copy");
        }
        to.to_str().expect("a path").to_string()
    }

    /// The same with fields of its configuration changed.
    fn configured(&self, of: &str, fields: &[(&str, Json)]) -> String {
        let dir = self.model("configured", of);
        let path = Path::new(&dir).join("config.json");
        let mut json: Json = serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        for (name, value) in fields {
            json[*name] = value.clone();
        }
        std::fs::write(&path, json.to_string()).expect("written");
        dir
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes of memory, in KiB, that hostile input may not exceed.
const MEMORY: usize = 6 << 20;

/// Runs in a folder, with bounded memory; a run that does not end is killed.
fn loom(folder: &Folder, args: &[&str]) -> Output {
    let mut command = match cfg!(unix) {
        true => {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_loom")]);
            command
        }
        false => Command::new(env!("CARGO_BIN_EXE_loom")),
    };
    command.args(args).current_dir(&folder.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("loom runs");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if child.try_wait().expect("it can be asked").is_some() {
            return child.wait_with_output().expect("its output");
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    child.kill().expect("it can be killed");
    panic!("{args:?} does not end");
}

/// What a refusal says, which must be all there is.
fn refused(folder: &Folder, args: &[&str]) -> String {
    let output = loom(folder, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(error.starts_with("loom: ") && error.trim_end().lines().count() == 1, "{args:?}: {error}");
    error
}

/// Does what it is asked, or refuses in one line.
fn sound(folder: &Folder, args: &[&str]) {
    let output = loom(folder, args);
    match output.status.code() {
        Some(0) => {}
        _ => {
            refused(folder, args);
        }
    }
}

const SMALL: &[&str] = &[
    "train",
    "--out",
    "run",
    "--set",
    "d_model=8,n_layers=1,heads=2,kv_heads=1,d_ff=8,max_seq=16",
    "--synthetic-bytes",
    "4000",
    "--vocab-size",
    "260",
    "--steps",
    "2",
    "--micro-batch-size",
    "2",
    "--seq-len",
    "8",
    "--eval-batches",
    "1",
];

const SIZES: &[&str] = &[
    "--set",
    "n_layers=1",
    "--set",
    "d_model=8",
    "--set",
    "heads=2",
    "--set",
    "kv_heads=2",
    "--set",
    "d_ff=8",
    "--set",
    "vocab_size=16",
];

/// Each option that takes a number, with everything that is none.
#[test]
fn numbers_that_are_none_are_refused() {
    let folder = Folder::new("numbers");
    let llama = data("llama");
    let generate = ["generate", &llama, "--token-ids", "1,2"];
    let eval = ["logits", &llama, "--token-ids", "1,2", "--out", "o"];
    let compile = [&["compile", "llama", "--emit", "program"], SIZES].concat();
    let explain = [&["explain", "llama"], SIZES].concat();
    let verify = [&["verify-backward", "llama"], SIZES].concat();
    let wholes: &[(&[&str], &[&str])] = &[
        (
            SMALL,
            &["synthetic-bytes", "vocab-size", "steps", "micro-batch-size", "seq-len", "gradient-accumulation-steps"],
        ),
        (SMALL, &["warmup-steps", "checkpoint-every", "save-total-limit"]),
        (SMALL, &["eval-every", "eval-batches", "sample-every", "log-every", "seed", "threads"]),
        (&generate, &["max-new-tokens", "top-k", "seed", "threads"]),
        (&eval, &["threads"]),
        (&compile, &["batch-size", "seq-len"]),
        (&explain, &["batch-size", "seq-len"]),
        (&verify, &["batch-size", "seq-len"]),
        (&["bench"], &["threads"]),
    ];
    let never = ["-1", "999999999999999999999999", "NaN", "inf", "1e400", "1.5", "", " ", "x", "0x10", "1,2"];
    // Where a number may be 0 or as large as a word can hold, it is not refused for that.
    let zero = ["warmup-steps", "seed", "threads"];
    let any = [
        "warmup-steps",
        "checkpoint-every",
        "save-total-limit",
        "eval-every",
        "sample-every",
        "log-every",
        "seed",
        "top-k",
    ];
    for (command, options) in wholes {
        for name in *options {
            let option = format!("--{name}");
            let mut values = never.to_vec();
            if !zero.contains(name) || command[0] != "train" && *name == "threads" {
                values.push("0");
            }
            if !any.contains(name) {
                values.extend(["9223372036854775807", "18446744073709551615"]);
            }
            for value in values {
                if *name == "seed" && value == "0" {
                    continue;
                }
                let error = refused(&folder, &[command, &[&option[..], value][..]].concat());
                assert!(error.contains(name), "`{name}` is not named: {error}");
            }
        }
    }
    let shares: &[(&[&str], &[&str])] = &[
        (SMALL, &["lr", "min-lr-ratio", "weight-decay", "max-grad-norm", "beta1", "beta2"]),
        (&generate, &["temperature", "top-p"]),
    ];
    for (command, options) in shares {
        for name in *options {
            for value in ["-1", "NaN", "inf", "-inf", "1e400", "", "x", "1,5"] {
                let error = refused(&folder, &[command, &[&format!("--{name}")[..], value][..]].concat());
                assert!(error.contains(name), "`{name}` is not named: {error}");
            }
        }
    }
    for value in ["", "x", "1,,2", "1.5", "-1", "99999999999", "640", "1,2,NaN"] {
        for name in ["--token-ids", "--labels"] {
            refused(&folder, &["logits", &llama, "--token-ids", "1,2", "--out", "o", name, value]);
        }
    }
    for value in ["rank=0", "rank=-1", "rank=99999999999", "alpha=nan", "alpha=inf", "dropout=1", "dropout=nan"] {
        let words = data("lora/tokenizer.json");
        let args = ["train", "--out", "run", "--model", &llama, "--tokenizer", &words, "--lora", value];
        refused(&folder, &args);
    }
    assert!(!folder.0.join("run").exists(), "nothing was written");
}

/// Sizes of a model, from the command line and from a configuration.
#[test]
fn absurd_sizes_are_refused_by_name() {
    let folder = Folder::new("sizes");
    for name in ["d_model", "n_layers", "heads", "vocab_size", "kv_heads", "d_ff", "max_seq"] {
        for value in ["-1", "0", "1.5", "x", "NaN", "9223372036854775807"] {
            refused(&folder, &[SMALL, &["--set", &format!("{name}={value}")[..]][..]].concat());
        }
    }
    refused(&folder, &[SMALL, &["--set", "d_model=100000", "--set", "d_ff=4000000000"][..]].concat());
    refused(
        &folder,
        &[SMALL, &["--micro-batch-size", "1048576", "--seq-len", "4000", "--set", "max_seq=4000"][..]].concat(),
    );
    // What a step needs is known when it is compiled; its data has been made by then.
    let output = loom(
        &folder,
        &[SMALL, &["--micro-batch-size", "1048576", "--seq-len", "500", "--set", "max_seq=4000"][..]].concat(),
    );
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.trim_end().lines().last().is_some_and(|line| line.contains("--micro-batch-size")), "{error}");
    let fields = [
        ("num_hidden_layers", 4),
        ("vocab_size", 0),
        ("hidden_size", 0),
        ("intermediate_size", 0),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 0),
        ("head_dim", 1),
        ("max_position_embeddings", 1),
        ("rms_norm_eps", 2),
        ("rope_theta", 2),
        ("tie_word_embeddings", 2),
        ("architectures", 0),
    ];
    let values = [
        json!(-1),
        json!(100_000_000),
        json!(1_000_000_000_000i64),
        json!(i64::MAX),
        json!(1e300),
        json!("x"),
        json!([]),
        json!({}),
    ];
    for (field, kind) in fields {
        for value in &values {
            let dir = folder.configured("llama", &[(field, value.clone())]);
            let args = ["generate", &dir, "--token-ids", "1,2", "--max-new-tokens", "2"];
            match kind {
                0 | 4 => {
                    let error = refused(&folder, &args);
                    assert!(error.contains("config.json") && !error.contains(".module"), "{field} {value}: {error}");
                }
                _ => sound(&folder, &args),
            }
        }
    }
    for (field, value) in [("num_local_experts", json!(100_000_000)), ("num_experts_per_tok", json!(-1))] {
        refused(&folder, &["generate", &folder.configured("mixtral", &[(field, value)]), "--token-ids", "1,2"]);
    }
    for kind in ["linear", "dynamic", "yarn", "longrope", "llama3", "weird"] {
        for factor in [json!(0), json!(-2.0), json!("x"), json!([])] {
            let rope = json!({
                "rope_type": kind, "rope_theta": 10000.0, "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            });
            refused(
                &folder,
                &["generate", &folder.configured("llama", &[("rope_parameters", rope)]), "--token-ids", "1,2"],
            );
        }
    }
}

/// Each argument that names a file, with everything that is no good file.
#[cfg(unix)]
#[test]
fn files_that_are_none_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("files");
    let graph = folder.file("g.ir", b"graph (%x: f32[3]) {\n  %y = mul(%x, %x) : f32[3]\n  return %y\n}\n");
    let input = folder.path("in.safetensors");
    let header = br#"{"0":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#;
    std::fs::write(&input, [&(header.len() as u64).to_le_bytes()[..], header, &[0; 12]].concat()).expect("written");
    std::fs::create_dir(folder.path("folder")).expect("a folder");
    assert!(Command::new("mkfifo").arg(folder.path("fifo")).status().is_ok_and(|status| status.success()));
    symlink(folder.path("loop"), folder.path("loop")).expect("a link");
    let binary: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let llama = data("llama");
    let hostile = [
        ("missing", folder.path("nowhere")),
        ("folder", folder.path("folder")),
        ("pipe", folder.path("fifo")),
        ("device", "/dev/zero".to_string()),
        ("empty", folder.file("empty", b"")),
        ("no text", folder.file("binary", &binary)),
        ("link to itself", folder.path("loop")),
        ("long name", folder.path(&"x".repeat(300))),
        ("no name", String::new()),
        ("not allowed", folder.file("secret", b"{}")),
    ];
    std::fs::set_permissions(folder.path("secret"), std::fs::Permissions::from_mode(0)).expect("changed");
    // An administrator may read everything.
    let readable = std::fs::read(folder.path("secret")).is_ok();
    for (kind, path) in &hostile {
        if *kind == "not allowed" && readable {
            continue;
        }
        let path = path.as_str();
        let check = |args: &[&str]| {
            refused(&folder, args);
        };
        // An empty name means that none was given.
        if *kind != "no name" {
            check(&[SMALL, &["--data", path][..]].concat());
            check(&[SMALL, &["--tokenizer", path][..]].concat());
        }
        if *kind != "empty" {
            check(&[SMALL, &["--config", path][..]].concat());
            for command in ["check", "fmt", "explain", "verify-backward"] {
                check(&[command, path]);
            }
            check(&["compile", path, "--emit", "graph"]);
        }
        check(&["train", "--out", "run", "--model", path]);
        check(&["train", "--resume", "--out", path]);
        check(&["run", path, "--in", &input, "--out", "o"]);
        check(&["run", &graph, "--in", path, "--out", "o"]);
        check(&["logits", path, "--token-ids", "1", "--out", "o"]);
        check(&["generate", path, "--token-ids", "1"]);
        check(&["generate", path, "--prompt", "x"]);
        check(&["export", path, "--out", "o2"]);
        check(&["merge", path, "--out", "o2"]);
        check(&["merge", &data("lora"), "--base", path, "--out", "o2"]);
        check(&["verify", path]);
        // Where something is to be written, a device stays one, and a folder too.
        if matches!(*kind, "pipe" | "device" | "no name" | "long name" | "folder") {
            check(&["logits", &llama, "--token-ids", "1", "--out", path]);
            check(&["run", &graph, "--in", &input, "--out", path]);
        }
        if matches!(*kind, "pipe" | "device" | "no name" | "long name" | "empty" | "link to itself") {
            check(&["export", &llama, "--out", path]);
        }
        if matches!(*kind, "pipe" | "device" | "long name" | "empty" | "link to itself") {
            check(&["train", "--out", path]);
        }
        if matches!(*kind, "no name" | "long name") {
            continue;
        }
        for file in ["config.json", "model.safetensors"] {
            let dir = folder.model("model", "llama");
            let inside = Path::new(&dir).join(file);
            std::fs::remove_file(&inside).expect("removed");
            symlink(path, &inside).expect("a link");
            check(&["logits", &dir, "--token-ids", "1", "--out", "o"]);
        }
        let dir = folder.model("model", "llama");
        symlink(path, Path::new(&dir).join("tokenizer.json")).expect("a link");
        check(&["generate", &dir, "--prompt", "x"]);
    }
    assert!(Path::new("/dev/zero").exists() && !folder.0.join("run/checkpoints").exists());
}

/// Headers, configurations and graphs made to take long or much.
#[test]
fn files_made_to_hurt_are_refused() {
    let folder = Folder::new("hurt");
    let dir = folder.model("model", "llama");
    let weights = Path::new(&dir).join("model.safetensors");
    let put = |header: &[u8], data: usize| {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &vec![0; data]].concat();
        std::fs::write(&weights, bytes).expect("written");
    };
    let eval = ["logits", &dir, "--token-ids", "1,2", "--out", "o"];
    let entry =
        |i: usize| format!("\"t{i}\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[{},{}]}}", 4 * i, 4 * i + 4);
    let count = 900_000;
    let entries: Vec<String> = (0..count).map(entry).collect();
    put(format!("{{{}}}", entries.join(",")).as_bytes(), 4 * count);
    let started = Instant::now();
    refused(&folder, &eval);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    put("{\"a\":".repeat(100_000).as_bytes(), 0);
    refused(&folder, &eval);
    std::fs::write(&weights, [&(1u64 << 62).to_le_bytes()[..], b"{}"].concat()).expect("written");
    refused(&folder, &eval);
    std::fs::write(Path::new(&dir).join("config.json"), "[".repeat(1_000_000)).expect("written");
    refused(&folder, &eval);
    // Numbers that are none.
    for bits in [f32::NAN.to_bits(), f32::INFINITY.to_bits()] {
        let dir = folder.model("nan", "llama");
        let path = Path::new(&dir).join("model.safetensors");
        let mut bytes = std::fs::read(&path).expect("there");
        let at = bytes.len() - 400;
        bytes[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        std::fs::write(&path, bytes).expect("written");
        let error = refused(&folder, &["generate", &dir, "--token-ids", "1,2"]);
        assert!(error.contains("finite") && error.contains("element"), "{error}");
    }
    let empty = folder.path("empty.safetensors");
    std::fs::write(&empty, [&2u64.to_le_bytes()[..], b"{}"].concat()).expect("written");
    let iota = |n: &str| {
        format!("graph () {{\n  %y = iota() {{dtype=f32, shape=[{n}], axis=0}} : f32[{n}]\n  return %y\n}}\n")
    };
    let graphs = [
        iota("1152921504606846976"),
        iota("1099511627776"),
        "graph (%x: f32[99999999999,99999999999,9999999999]) {\n  return %x\n}\n".to_string(),
        format!("graph ({}", "(".repeat(200_000)),
    ];
    for (i, text) in graphs.iter().enumerate() {
        let file = folder.file(&format!("{i}.ir"), text.as_bytes());
        for device in ["interp", "cpu"] {
            refused(&folder, &["run", &file, "--in", &empty, "--out", "o", "--device", device]);
        }
    }
    // A tokenizer whose rules make texts ten thousand million times as long, and one that fills up.
    let text = std::fs::read_to_string(data("lora/tokenizer.json")).expect("a tokenizer");
    let mut json: Json = serde_json::from_str(&text).expect("JSON");
    let bomb = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aaaaaaaaaa" });
    json["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![bomb; 10] });
    let bombs = folder.file("bomb.json", json.to_string().as_bytes());
    let error = refused(&folder, &[SMALL, &["--tokenizer", &bombs[..]][..]].concat());
    assert!(error.contains("normalizer"), "{error}");
    // Folders of links to one another.
    #[cfg(unix)]
    {
        std::fs::create_dir(folder.path("texts")).expect("a folder");
        for name in ["texts/x", "texts/y"] {
            std::os::unix::fs::symlink(folder.path("texts"), folder.path(name)).expect("a link");
        }
        let error = refused(&folder, &[SMALL, &["--data", "texts"][..]].concat());
        assert!(error.contains("no .txt"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn words_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let word = std::ffi::OsStr::from_bytes(b"ch\xffck");
    for args in [vec![word], vec![std::ffi::OsStr::new("check"), word]] {
        let output = Command::new(env!("CARGO_BIN_EXE_loom")).args(&args).output().expect("loom runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.starts_with("loom: ") && error.trim_end().lines().count() == 1 && error.contains("UTF-8"),
            "{error}"
        );
    }
}

/// A reader that has had enough ends the command quietly; a disk that is full does not.
#[cfg(unix)]
#[test]
fn closed_pipes_end_quietly_and_full_disks_loudly() {
    let shell = |script: &str| {
        let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_loom")]).current_dir(root()).output();
        let output = output.expect("a shell");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let sizes = SIZES.join(" ");
    // The reader is gone before anything is printed.
    for command in [format!("compile llama --emit schedule {sizes}"), format!("explain llama {sizes}"), "--help".into()]
    {
        let script = format!("{{ sleep 0.2; \"$0\" {command}; echo \"code $?\" >&2; }} | true");
        assert_eq!(shell(&script).1, "code 0\n", "{command}");
        if Path::new("/dev/full").exists() {
            let (code, error) = shell(&format!("\"$0\" {command} > /dev/full"));
            assert_eq!(code, Some(2), "{command}: {error}");
            assert!(error.contains("No space left") && error.lines().count() == 1, "{command}: {error}");
        }
    }
    // Lines for people go nowhere, and the command does its work.
    let llama = data("llama");
    let (code, _) = shell(&format!("\"$0\" generate {llama} --ids 1,2 --max-new 2 2>&- >/dev/null"));
    assert_eq!(code, Some(0));
}

#[test]
fn a_model_with_two_outputs_is_evaluated_with_labels() {
    let folder = Folder::new("outputs");
    let text = "from std.modules.linear import Linear\n\nmodel Two(vocab_size: int = 16, width: int = 4):\n  params:\n    table: \
                [vocab_size, width]\n    head: [vocab_size, width]\n\n  forward:\n    in: [B, T, int32]\n    outputs:\n      out: \
                [B, T, vocab_size]\n      hidden: [B, T, width]\n\n    graph:\n      in -> embedding(table) -> hidden\n      hidden -> Linear(head) -> out\n";
    let own = json!({ "file": "m", "model": "Two", "given": {}, "files": { "m": text } });
    let dir = folder.0.join("two");
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::write(dir.join("config.json"), json!({ "architectures": ["Two"], "tensorloom": own }).to_string())
        .expect("written");
    let tensor = |name: &str, k: usize| models::NamedTensor {
        name: name.into(),
        shape: vec![16, 4],
        dtype: ir::DType::F32,
        bytes: (0..64).flat_map(|i| (((i * 7 + k) % 11) as f32 / 11.0 - 0.4).to_le_bytes()).collect(),
    };
    models::write_tensors(&dir.join("model.safetensors"), &[tensor("table", 1), tensor("head", 5)]).expect("written");
    let dir = dir.to_str().expect("a path");
    let output = loom(&folder, &["logits", dir, "--token-ids", "1,5,7", "--labels", "1,5,7", "--out", "o"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(folder.0.join("o")).expect("outputs");
    let found = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let shape = |name: &str| found.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")).shape().to_vec();
    assert_eq!(shape("logits"), [1, 3, 16]);
    for name in ["grad.table", "grad.head"] {
        assert_eq!(shape(name), [16, 4], "{name}");
        let gradient = found.tensor(name).expect("there");
        let sum: f32 =
            gradient.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four")).abs()).sum();
        assert!(sum > 0.0 && sum.is_finite(), "{name}");
    }
}
