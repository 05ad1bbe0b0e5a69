//! `loom train` from outside: killed and resumed, stopped by Ctrl-C, on a full disk, on wrong input.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(root()).args(args);
    command
}

fn loom(args: &[&str]) -> Output {
    command(args).output().expect("loom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of a test's own, gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-train-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path").to_string()
    }

    fn file(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.join(name), content).expect("written");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SIZES: &str = "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true";

/// A run of a few seconds, with so many steps.
fn small<'a>(out: &'a str, steps: &'a str) -> Vec<&'a str> {
    let mut args = vec![
        "train",
        "--out",
        out,
        "--steps",
        steps,
        "--set",
        SIZES,
        "--synthetic-bytes",
        "60000",
        "--vocab-size",
        "300",
    ];
    args.extend([
        "--micro-batch-size",
        "4",
        "--seq-len",
        "32",
        "--warmup-steps",
        "4",
        "--checkpoint-every",
        "15",
        "--eval-every",
        "40",
    ]);
    args.extend(["--eval-batches", "2", "--sample-every", "1000", "--threads", "1"]);
    args
}

fn start(args: &[&str]) -> Child {
    command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("loom runs")
}

fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "the run ended by itself");
}

fn last_loss(out: &str) -> String {
    let log = std::fs::read_to_string(Path::new(out).join("log.jsonl")).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let last = lines.filter(|line| line.get("last").is_some()).last().expect("a line");
    format!("{} {} {}", last["step"], last["last"], last["loss"])
}

/// How often the run is killed; `LOOM_KILLS=20` for a longer test.
fn kills() -> u64 {
    std::env::var("LOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5)
}

#[cfg(unix)]
#[test]
fn killed_at_any_moment_a_run_resumes_to_the_same_bits() {
    let folder = Folder::new("killed");
    let (straight, broken) = (folder.path("straight"), folder.path("broken"));
    let steps = "300";
    let began = std::time::Instant::now();
    let output = loom(&small(&straight, steps));
    let whole = began.elapsed();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut random = models::SplitMix64::new(u64::from(std::process::id()), 1);
    let model = |out: &str| std::fs::read(Path::new(out).join("model.safetensors")).expect("a model");
    let same = || {
        assert_eq!(last_loss(&straight), last_loss(&broken));
        assert!(model(&straight) == model(&broken), "the models differ");
    };
    // Where nothing was saved yet, there is nothing to resume.
    let args = || {
        let mut args = small(&broken, steps);
        let saved = std::fs::read_dir(Path::new(&broken).join("checkpoints")).into_iter().flatten().flatten();
        if saved.filter(|file| file.path().extension().is_some_and(|e| e == "safetensors")).count() > 0 {
            args.push("--resume");
        }
        args
    };
    let mut hits = 0;
    while hits < kills() {
        let mut child = start(&args());
        std::thread::sleep(whole.mul_f64(0.05 + 0.5 * random.uniform()));
        // A run that came to its end before it was hit counts as resumed, not as killed, and another begins.
        match child.try_wait().expect("it can be asked") {
            None => {
                child.kill().expect("it can be killed");
                child.wait().expect("it ends");
                hits += 1;
            }
            Some(status) => {
                assert!(status.success());
                same();
                std::fs::remove_dir_all(&broken).expect("the folder goes");
            }
        }
    }
    let output = loom(&args());
    assert!(output.status.success(), "{}", text(&output.stderr));
    same();
}

#[cfg(unix)]
#[test]
fn signals_save_and_end_cleanly() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        stopped_by(signal);
    }
}

#[cfg(unix)]
fn stopped_by(signal: &str) {
    let folder = Folder::new(&format!("stopped{signal}"));
    let out = folder.path("run");
    let args = small(&out, "100000");
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("loom runs");
    let log = Path::new(&out).join("log.jsonl");
    for _ in 0..600 {
        if std::fs::metadata(&log).is_ok_and(|file| file.len() > 300) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(&child, signal);
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{signal}");
    let mut shown = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("piped"), &mut shown).expect("text");
    assert!(shown.contains("stopped and saved at step") && shown.contains("--resume"), "{shown}");
    assert!(Path::new(&out).join("model.safetensors").is_file());
    let newest = std::fs::read_dir(Path::new(&out).join("checkpoints")).expect("checkpoints");
    assert!(newest.count() >= 1);
}

/// Files may not grow beyond a limit, as on a disk that is full: the run says so, and an older checkpoint stays good.
#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_older_one() {
    let folder = Folder::new("full");
    let out = folder.path("run");
    // A model of 2.5 MB: larger than the limit below, which must leave room for generated code.
    let larger = "d_model=128,n_layers=3,heads=4,kv_heads=2,d_ff=384,max_seq=64,tied=true";
    let mut args = small(&out, "30");
    args.extend(["--set", larger]);
    let output = loom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let newest = Path::new(&out).join("checkpoints/step-00000030.safetensors");
    let before = std::fs::read(&newest).expect("a checkpoint");
    let args = ["train", "--resume", "--out", &out, "--steps", "50"];
    let words = args.map(|word| format!("'{word}'")).join(" ");
    let script = format!("ulimit -f 2100; exec \"$0\" {words}");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_loom")])
        .current_dir(root())
        .output()
        .expect("a shell");
    let error = text(&output.stderr);
    assert!(error.contains("checkpoint not written, keeping the one of step 30"), "{error}");
    assert_eq!(output.status.code(), Some(2), "the model itself could not be written either: {error}");
    assert!(std::fs::read(&newest).expect("still there") == before);
    let output = loom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("resumed at step 30"), "{}", text(&output.stderr));
}

/// Wrong use: exit code 2 and one line that has these words.
fn refused(args: &[&str], words: &[&str]) {
    let output = loom(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    let last = error.trim_end().lines().last().unwrap_or("");
    assert!(last.starts_with("loom: "), "{args:?}: {error}");
    for word in words {
        assert!(last.contains(word), "`{word}` is missing: {error}");
    }
}

#[test]
fn wrong_input_is_one_line_with_a_remedy() {
    let folder = Folder::new("wrong");
    let out = folder.path("run");
    let empty = folder.file("empty.txt", "\n\n");
    let short = folder.file("short.txt", "A few words.");
    let lines = folder.file("lines.jsonl", "{\"text\": \"one\"}\n{\"words\": \"two\"}\n");
    let bytes = folder.path("bytes.txt");
    std::fs::write(&bytes, [0x66, 0xff, 0xfe]).expect("written");
    std::fs::create_dir_all(folder.path("nothing")).expect("a folder");
    let config = folder.file("run.toml", "steps = = 3\n");
    let unknown = folder.file("unknown.toml", "stpes = 3\n");
    let wrong = folder.file("wrong.json", "{}");
    let nothing = folder.path("nothing");
    let check = |extra: &[&str], words: &[&str]| {
        let mut args = small(&out, "3");
        args.extend(extra);
        refused(&args, words);
    };
    check(&["--data", "nowhere.txt"], &["nowhere.txt", "not found"]);
    check(&["--data", &empty], &["empty", "give files with text"]);
    check(&["--data", &nothing], &[".txt", "folder"]);
    check(&["--data", &short], &["tokens", "--seq-len"]);
    check(&["--data", &lines], &["line 2", "`text`"]);
    check(&["--data", &bytes], &["UTF-8"]);
    check(&["--seq-len", "65"], &["maximum of 64", "--seq-len"]);
    check(&["--stpes", "3"], &["--steps"]);
    check(&["--steps", "none"], &["positive integer"]);
    check(&["--lr", "-1"], &["non-negative"]);
    check(&["--device", "abacus"], &["no device `abacus`", "cuda"]);
    check(&["--dtype", "f8"], &["f32 or bf16"]);
    check(&["--config", "nowhere.toml"], &["nowhere.toml", "steps = 500"]);
    check(&["--config", &config], &["line 1", "steps = 500"]);
    check(&["--config", &unknown], &["`stpes`", "`steps`"]);
    check(&["--tokenizer", &wrong], &["not a tokenizer"]);
    check(&["--vocab-size", "100"], &["257"]);
    check(&["--set", "d_modl=32"], &["d_modl", "d_model"]);
    check(&["--model", "lama"], &["llama"]);
    check(&["--lora", "rank=2"], &["HuggingFace directory"]);
    let llama = "crates/models/tests/data/llama";
    refused(&["train", "--out", &out, "--model", llama, "--data", &short], &["no tokenizer found"]);
    refused(&["train", "--resume"], &["--out"]);
    refused(&["train", "fast"], &["unexpected argument `fast`"]);
    // A tokenizer with more ids than the model.
    let trained = folder.path("trained");
    let output = loom(&small(&trained, "1"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tokenizer = format!("{trained}/tokenizer.json");
    let data = folder.file("data.txt", &"Some words to train on. ".repeat(200));
    let args =
        ["train", "--out", &out, "--model", llama, "--data", &data, "--tokenizer", &tokenizer, "--seq-len", "32"];
    refused(&args, &["300 tokens", "64", "own tokenizer"]);
    // Other data than that of the checkpoint.
    let own = folder.path("own");
    let args = [
        "train",
        "--out",
        &own,
        "--data",
        &data,
        "--set",
        SIZES,
        "--seq-len",
        "32",
        "--vocab-size",
        "300",
        "--steps",
        "2",
    ];
    let output = loom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::write(&data, "Other words to train on. ".repeat(300)).expect("written");
    refused(&["train", "--resume", "--out", &own, "--steps", "4"], &["data", "--out"]);
    refused(&small(&trained, "3"), &["already contains a run", "--resume"]);
    // Generating from what was trained.
    refused(&["generate", llama, "--prompt", "x"], &["no tokenizer found"]);
    refused(&["generate", &trained, "--prompt", "x", "--greedy", "--top-k", "3"], &["--greedy"]);
    refused(&["generate", &trained, "--prompt", "x", "--temperature", "-1"], &["out of range"]);
    refused(&["merge", llama, "--out", &out], &["adapter_config.json"]);
    let output =
        loom(&["generate", &trained, "--prompt", "Once", "--max-new-tokens", "8", "--top-k", "5", "--seed", "3"]);
    assert!(text(&output.stdout).starts_with("Once"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("time to first token"), "{}", text(&output.stderr));
}

#[test]
fn a_run_may_be_called_like_its_model() {
    let folder = Folder::new("named");
    let here = |args: &[&str]| {
        let found = command(args).current_dir(&folder.0).output().expect("loom runs");
        assert!(found.status.success(), "{args:?}: {}", text(&found.stderr));
    };
    let sizes =
        ["--set", "d_model=16,n_layers=1,heads=2,max_seq=64", "--synthetic-bytes", "20000", "--vocab-size", "300"];
    let rest = [
        "--micro-batch-size",
        "2",
        "--seq-len",
        "16",
        "--eval-batches",
        "1",
        "--checkpoint-every",
        "2",
        "--threads",
        "1",
    ];
    let run = ["train", "--model", "gpt2", "--out", "gpt2", "--steps", "2"];
    here(&[&run[..], &sizes, &rest].concat());
    here(&["train", "--out", "gpt2", "--resume", "--steps", "4"]);
    here(&["generate", "gpt2", "--token-ids", "1,2,3", "--max-new-tokens", "2"]);
    // A model is not trained on top of itself.
    let again = ["train", "--model", "gpt2", "--out", "gpt2/", "--steps", "2"];
    let found = command(&again).current_dir(&folder.0).output().expect("loom runs");
    assert!(!found.status.success() && text(&found.stderr).contains("--out"), "{}", text(&found.stderr));
}

#[test]
fn an_adapter_is_trained_used_and_merged() {
    let folder = Folder::new("adapter");
    let data = folder.file("text.txt", &"the cat sat on the mat . then the dog ran .\n<|endoftext|>\n".repeat(80));
    let (out, merged) = (folder.path("run"), folder.path("merged"));
    let llama = "crates/models/tests/data/llama";
    let words = "crates/models/tests/data/lora/tokenizer.json";
    let mut args = vec!["train", "--model", llama, "--data", &data, "--tokenizer", words, "--out", &out];
    args.extend([
        "--lora",
        "rank=4,alpha=8,targets=q,v",
        "--steps",
        "40",
        "--micro-batch-size",
        "2",
        "--seq-len",
        "32",
        "--lr",
        "0.02",
    ]);
    let output = loom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("trained"), "{}", text(&output.stderr));
    for file in ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"] {
        assert!(Path::new(&out).join(file).is_file(), "{file}");
    }
    let output = loom(&["merge", &out, "--out", &merged]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Words to words: the adapter's directory answers like the merged model.
    let answer = |dir: &str| {
        let output = loom(&["generate", dir, "--token-ids", "0,2,5", "--max-new-tokens", "12", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(answer(&out), answer(&merged));
    assert_ne!(answer(&out), answer(llama));
    let output = loom(&["generate", &out, "--prompt", "the cat", "--max-new-tokens", "6", "--greedy"]);
    assert!(text(&output.stdout).starts_with("the cat"), "{}", text(&output.stderr));
}

#[test]
fn doctor_says_what_the_machine_can_do() {
    let output = loom(&["doctor"]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    for word in ["device", "cores", "kernels", "products"] {
        assert!(shown.contains(word), "{shown}");
    }
}

/// What a run leaves: checkpoints as many as asked for, all of it good by `loom verify`, and a directory that can be exported
/// with its tokenizer.
#[test]
fn a_run_is_kept_verified_and_exported() {
    let folder = Folder::new("kept");
    let (out, exported) = (folder.path("run"), folder.path("exported"));
    let mut args = small(&out, "40");
    args.extend(["--save-total-limit", "3", "--checkpoint-every", "10"]);
    let output = loom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let steps = || -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(Path::new(&out).join("checkpoints"))
            .expect("checkpoints")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(steps(), [20, 30, 40].map(|step| format!("step-{step:08}.safetensors")));
    let verify = || {
        let output = loom(&["verify", &out]);
        (output.status.code(), text(&output.stdout))
    };
    let (code, shown) = verify();
    assert_eq!(code, Some(0), "{shown}");
    for word in ["step 40", "data/tokens.bin", "tokenizer.json", "model.safetensors", "resumes from step 40"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // One bit of each.
    for (name, still) in [
        ("checkpoints/step-00000040.safetensors", "from step 30"),
        ("data/tokens.bin", "from step 40"),
        ("tokenizer.json", "from step 40"),
    ] {
        let path = Path::new(&out).join(name);
        let whole = std::fs::read(&path).expect("there");
        let mut bytes = whole.clone();
        let middle = if name == "tokenizer.json" { 0 } else { bytes.len() / 2 };
        bytes[middle] ^= 0x10;
        std::fs::write(&path, bytes).expect("written");
        let (code, shown) = verify();
        assert_eq!(code, Some(1), "{shown}");
        let line = shown.lines().find(|line| line.starts_with("damaged")).unwrap_or_else(|| panic!("{shown}"));
        assert!(line.contains(name) && shown.contains(still), "{shown}");
        std::fs::write(&path, whole).expect("written");
    }
    refused(&["verify", &folder.path("nothing")], &["give the output folder of a run"]);
    let output = loom(&["export", &out, "--out", &exported]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |dir: &str, file: &str| std::fs::read(Path::new(dir).join(file)).expect(file);
    for file in ["tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        assert!(read(&out, file) == read(&exported, file), "{file}");
    }
    refused(&["export", &out, "--out", &out], &["choose another"]);
    // Longer than it was made for: it goes on, with a warning.
    let output = loom(&["generate", &exported, "--token-ids", "5,6,7", "--max-new-tokens", "80", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("warning: up to 83 tokens, but the model was trained for 64"));
    let output = loom(&["generate", &exported, "--token-ids", "5,6,7", "--max-new-tokens", "8", "--json"]);
    assert!(!text(&output.stderr).contains("warning"), "{}", text(&output.stderr));
}

/// A long text without a mark in it, in little memory: hundreds of bytes for each of its bytes would be too much.
#[cfg(unix)]
#[test]
fn long_texts_take_little_memory() {
    let folder = Folder::new("long");
    let data =
        folder.file("text.txt", &"a cat sat on the mat, and then some more words of many kinds. ".repeat(65_000));
    let out = folder.path("run");
    let mut args = small(&out, "1");
    args.extend(["--data", &data]);
    let words = args.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v 500000; exec \"$0\" {words}"), env!("CARGO_BIN_EXE_loom")])
        .env("RAYON_NUM_THREADS", "1")
        .current_dir(root())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_version_is_told() {
    let output = loom(&["--version"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("loom {}\n", env!("CARGO_PKG_VERSION")));
}
