//! Whole runs with every kind of data: many files, compressed ones, Parquet, weighted mixtures, examples; resuming in the middle
//! of an epoch; memory that doesn't grow with the data.

use cpu::Cpu;
use ir::DType;
use std::io::Write;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{
    Batch, BatchSampler, NoProgress, StepProgress, TextDataset, TokenDataset, TrainObserver, TrainSettings, run,
    validation_batches, write_stories,
};
use tensorloom_models::{Classifier, Tokenizer};

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-data-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("made");
    path
}

/// An observer that stops after this many steps.
struct Until(usize, usize);

impl TrainObserver for Until {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, progress: &StepProgress) {
        self.0 = progress.step;
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.0 >= self.1
    }
}

fn settings(out: &Path, pairs: &[(&str, &str)]) -> TrainSettings {
    let mut settings = TrainSettings { out: out.to_path_buf(), ..TrainSettings::default() };
    let defaults = [
        ("set", "d_model=16,n_layers=1,heads=2,kv_heads=1,d_ff=24,max_seq=64,tied=true"),
        ("vocab", "300"),
        ("steps", "12"),
        ("batch", "4"),
        ("seq", "32"),
        ("lr", "0.01"),
        ("warmup", "2"),
        ("checkpoint-every", "5"),
        ("eval-every", "6"),
        ("eval-batches", "2"),
        ("sample-every", "100"),
        ("log-every", "3"),
    ];
    for (name, value) in defaults.iter().chain(pairs) {
        settings.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    settings
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("packed");
    encoder.finish().expect("packed")
}

/// Twenty files of stories, every third compressed, and a Parquet file as a second data set.
fn corpus(folder: &Path) -> String {
    let many = folder.join("many");
    std::fs::create_dir_all(&many).expect("made");
    for i in 0..20u64 {
        let stories = write_stories(i + 1, 3000);
        let lines: String = stories
            .split(tensorloom_models::END_OF_TEXT)
            .map(|text| format!("{}\n", serde_json::json!({ "text": text, "n": i })))
            .collect();
        match i % 3 {
            0 => std::fs::write(many.join(format!("{i:02}.jsonl.gz")), gzipped(&lines)).expect("written"),
            1 => std::fs::write(many.join(format!("{i:02}.jsonl")), lines).expect("written"),
            _ => std::fs::write(many.join(format!("{i:02}.txt")), stories).expect("written"),
        }
    }
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet/zstd.parquet");
    format!("{}=0.8,{}=0.2", many.display(), rows.display())
}

/// A run that is resumed in the middle of an epoch over many files is bitwise equal to an uninterrupted one.
#[test]
fn resuming_in_the_middle_of_many_files_changes_nothing() {
    let folder = temporary("resume");
    let data = corpus(&folder);
    let (whole, parts) = (folder.join("whole"), folder.join("parts"));
    let start = |out: &Path| settings(out, &[("data", &data)]);
    let done = run(&start(&whole), false, &[], &Cpu::new(2), &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
    assert!(done.complete);
    let stopped = run(&start(&parts), false, &[], &Cpu::new(1), &mut Until(0, 7)).unwrap_or_else(|e| panic!("{e}"));
    assert!(!stopped.complete && stopped.step == 7);
    let again = run(&start(&parts), true, &[], &Cpu::new(2), &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
    assert!(again.complete);
    let read = |folder: &Path| std::fs::read(folder.join("model.safetensors")).expect("a model");
    assert!(read(&whole) == read(&parts));
    // With an additional file the data differs.
    std::fs::write(folder.join("many/extra.txt"), "one more").expect("written");
    let more = settings(&parts, &[("data", &data), ("steps", "14")]);
    let error = run(&more, true, &[], &Cpu::new(1), &mut NoProgress).expect_err("other data").to_string();
    assert!(error.contains("data"), "{error}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// Records of every objective can be trained on, and the results can be loaded.
#[test]
fn examples_of_every_objective_are_trained_on() {
    let folder = temporary("examples");
    let write = |name: &str, line: &dyn Fn(usize) -> serde_json::Value| -> String {
        let path = folder.join(name);
        let lines: String = (0..60).map(|i| format!("{}\n", line(i))).collect();
        std::fs::write(&path, lines).expect("written");
        path.display().to_string()
    };
    let say = |role: &str, text: String| serde_json::json!({ "role": role, "content": text });
    let animal = |i: usize| ["cat", "dog", "bird"][i % 3];
    let cases = [
        (
            "next",
            write(
                "chat.jsonl",
                &|i| serde_json::json!({ "messages": [say("user", format!("name {i}")), say("assistant", animal(i).into())] }),
            ),
        ),
        (
            "dpo,beta=0.5",
            write(
                "dpo.jsonl",
                &|i| serde_json::json!({ "prompt": format!("say {i}: "), "chosen": animal(i), "rejected": "nothing" }),
            ),
        ),
        (
            "orpo",
            write("orpo.jsonl", &|i| {
                serde_json::json!({ "chosen": [say("user", "who?".into()), say("assistant", animal(i).into())],
                                "rejected": [say("user", "who?".into()), say("assistant", "no".into())] })
            }),
        ),
        (
            "classify",
            write(
                "classes.jsonl",
                &|i| serde_json::json!({ "text": format!("the {} ran {i}", animal(i)), "label": animal(i) }),
            ),
        ),
        (
            "contrast",
            write(
                "pairs.jsonl",
                &|i| serde_json::json!({ "anchor": format!("the {} {i}", animal(i)), "positive": format!("a {} {i}", animal(i)) }),
            ),
        ),
        (
            "mlm",
            write(
                "texts.jsonl",
                &|i| serde_json::json!({ "text": format!("_ the {} sat on mat number {i} and ran away over the hill", animal(i)) }),
            ),
        ),
    ];
    for (objective, data) in cases {
        let out = folder.join(objective.split(',').next().expect("a name"));
        let wanted = settings(&out, &[("data", &data), ("objective", objective), ("steps", "25"), ("seq", "16")]);
        let done =
            run(&wanted, false, &[], &Cpu::new(2), &mut NoProgress).unwrap_or_else(|e| panic!("{objective}: {e}"));
        let log = std::fs::read_to_string(out.join("log.jsonl")).expect("a log");
        let losses: Vec<f64> = log
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get("loss")?.as_f64())
            .collect();
        assert!(losses.len() > 3 && losses.iter().all(|loss| loss.is_finite()), "{objective}: {losses:?}");
        assert!(losses[losses.len() - 1] < losses[0], "{objective}: {losses:?}");
        assert!(done.valid_loss.is_some(), "{objective}");
        assert!(log.contains("\"layers\""), "{objective}");
        if objective == "classify" {
            let bytes = std::fs::read(out.join("model.safetensors")).expect("a model");
            let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
            assert_eq!(tensors.tensor("score.weight").expect("a head").shape(), [3, 16]);
            let config = std::fs::read_to_string(out.join("config.json")).expect("a configuration");
            assert!(config.contains("LlamaForSequenceClassification") && config.contains("\"bird\""), "{config}");
            told_apart(&out);
            // With an adapter of the model from next-token training.
            let (base, beside) = (folder.join("next"), folder.join("beside"));
            let base = base.to_str().expect("a path");
            let mut wanted = TrainSettings { out: beside.clone(), ..TrainSettings::default() };
            let lora = ("lora", "rank=2,alpha=4,targets=q,v");
            let pairs =
                [("model", base), ("data", &data), ("objective", objective), lora, ("steps", "5"), ("seq", "16")];
            for (name, value) in pairs.into_iter().chain([("batch", "4"), ("eval-batches", "2")]) {
                wanted.set(name, value).unwrap_or_else(|e| panic!("{e}"));
            }
            run(&wanted, false, &[], &Cpu::new(2), &mut NoProgress).unwrap_or_else(|e| panic!("{objective}: {e}"));
            told_apart(&beside);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// A classification run writes a classifier with the class names.
fn told_apart(dir: &Path) {
    let mut classifier = Classifier::load(dir, None, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = Tokenizer::from_dir(dir).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(classifier.classes().len(), 3);
    let ids = classifier.ids(&tokenizer, "the bird ran 7").unwrap_or_else(|e| panic!("{e}"));
    let found = classifier.classify(&ids, &Cpu::new(1)).unwrap_or_else(|e| panic!("{e}"));
    assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9 && found.iter().all(|p| *p > 0.0), "{found:?}");
}

fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The child process of the next test: prepares this many bytes of data and prints its peak memory.
#[test]
#[ignore = "started by `memory_does_not_grow_with_the_data`"]
fn child() {
    let bytes: u64 = std::env::var("TENSORLOOM_DATA_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(1 << 20);
    let folder = temporary(&format!("flat-{bytes}"));
    let block = write_stories(1, 1 << 20);
    let tokenizer = Tokenizer::train([&block[..100_000]].into_iter(), 300).unwrap_or_else(|e| panic!("{e}"));
    let files = 8;
    for i in 0..files {
        let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join(format!("{i}.txt"))).expect("made"));
        let mut written = 0;
        while written < bytes / files {
            let n = block.len().min((bytes / files - written) as usize);
            let n = (0..=n).rev().find(|n| block.is_char_boundary(*n)).unwrap_or(0).max(1);
            file.write_all(&block.as_bytes()[..n]).expect("written");
            written += n as u64;
        }
        file.flush().expect("written");
    }
    let texts = TextDataset::open(&folder).expect("there");
    let tokens =
        TokenDataset::prepare(&texts, &tokenizer, 300, &folder.join("ids"), &mut |_, _| true).expect("encoded");
    let batches = BatchSampler::new(&tokens, 64, tokenizer.eos_id(), 3).expect("cut");
    let mut batch = Batch::default();
    for position in (0..50).map(|i| i * batches.sequences_per_epoch() as u64 / 50) {
        batches.fill(&tokens, position, 8, &mut batch).expect("read");
    }
    assert_eq!(validation_batches(&tokens, 64, tokenizer.eos_id(), 8, 4).expect("read").len(), 4);
    println!("high water {}", high_water());
    let _ = std::fs::remove_dir_all(&folder);
}

/// `TENSORLOOM_DATA_BYTES=5000000000` makes a data set of five gigabytes, which takes long.
#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_data() {
    let measured = |bytes: u64| -> u64 {
        let output = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads", "1"])
            .env("TENSORLOOM_DATA_BYTES", bytes.to_string())
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.split("high water ").nth(1));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let large = std::env::var("TENSORLOOM_DATA_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(12 << 20);
    let (less, more) = (measured(3 << 20), measured(large));
    assert!(more < less + (12 << 20), "{less} bytes of memory, then {more}");
}
