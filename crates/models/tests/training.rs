//! Training: the optimizer compared with PyTorch's, gradient accumulation, resuming, learning.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{
    AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepProgress, StepSizes, TrainObserver, TrainSettings, run,
};
use tensorloom_models::{Architecture, Model, SplitMix64};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-train-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn sizes(pairs: &[(&str, i64)]) -> BTreeMap<String, ConstValue> {
    pairs.iter().map(|(name, n)| (name.to_string(), ConstValue::int(*n))).collect()
}

fn tiny(dtype: DType) -> Model {
    let given = sizes(&[
        ("vocab_size", 48),
        ("d_model", 32),
        ("n_layers", 2),
        ("heads", 4),
        ("kv_heads", 2),
        ("d_ff", 48),
        ("max_seq", 32),
    ]);
    let architecture = Architecture::from_library("llama", given).unwrap_or_else(|e| panic!("{e}"));
    Model::new_random(architecture, dtype, 5).unwrap_or_else(|e| panic!("{e}"))
}

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

fn batch(rows: usize, seq: usize, seed: u64) -> Batch {
    let mut random = SplitMix64::new(seed, 9);
    let mut draw = || (0..rows * seq).map(|_| random.below(48) as i32).collect::<Vec<i32>>();
    Batch { ids: draw(), labels: draw() }
}

fn trainer(model: Model, rows: usize, accumulate: usize) -> LanguageModelTrainer {
    let sizes = StepSizes { micro_batch_size: rows, seq_len: 16, gradient_accumulation_steps: accumulate };
    LanguageModelTrainer::new(model, None, sizes, ADAM, &ObjectiveOptions::default(), &Cpu::new(2))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Losses, norms and parameters after steps by PyTorch's AdamW on the same model and batches.
fn check_steps(model: &str, golden: &str, seq: usize, close: f32) {
    let text = std::fs::read_to_string(folder(golden).join("expected.json")).expect("golden data");
    let json: serde_json::Value = serde_json::from_str(&text).expect("golden data");
    let ints = |json: &serde_json::Value| -> Vec<i32> {
        json.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an int") as i32).collect()
    };
    let model = Model::load(&folder(model), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let mut trainer = LanguageModelTrainer::new(
        model,
        None,
        StepSizes { micro_batch_size: 2, seq_len: seq, gradient_accumulation_steps: 1 },
        ADAM,
        &ObjectiveOptions::default(),
        &Cpu::new(2),
    )
    .expect("compiles");
    for (step, expected) in json["steps"].as_array().expect("steps").iter().enumerate() {
        let batch = Batch { ids: ints(&expected["ids"]), labels: ints(&expected["labels"]) };
        let rate = expected["rate"].as_f64().expect("a rate");
        let found = trainer.step(&batch, rate, step).unwrap_or_else(|e| panic!("{e}"));
        for (what, found, expected) in
            [("loss", found.loss, &expected["loss"]), ("norm", found.grad_norm, &expected["norm"])]
        {
            let expected = expected.as_f64().expect("a number");
            assert!((f64::from(found) - expected).abs() < 1e-4 * expected, "step {step}: {what} {found} {expected}");
        }
    }
    let out = temporary(golden);
    trainer.model().and_then(|model| model.export(&out)).unwrap_or_else(|e| panic!("{e}"));
    let read = |path: &Path| std::fs::read(path).expect("tensors");
    let (found, expected) = (read(&out.join("model.safetensors")), read(&folder(golden).join("expected.safetensors")));
    let found = safetensors::SafeTensors::deserialize(&found).expect("tensors");
    let expected = safetensors::SafeTensors::deserialize(&expected).expect("tensors");
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    for name in expected.names() {
        let want = floats(expected.tensor(name).expect("there").data());
        let have = floats(found.tensor(name).unwrap_or_else(|_| panic!("{name}")).data());
        let worst = want.iter().zip(&have).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(worst < close, "{name}: {worst}");
    }
    let _ = std::fs::remove_dir_all(&out);
}

/// `golden/train.py` generates the data. Adam divides by the square root of the second moment: where a gradient is nearly zero,
/// rounding determines its sign.
#[test]
fn steps_equal_those_of_pytorch() {
    check_steps("llama", "train", 7, 2e-4);
}

/// `@trainable(lr_scale, wd_scale, grad_clip)` and `@frozen` equal PyTorch's parameter groups; `golden/scaled.py` generates the
/// data.
#[test]
fn rates_decays_and_clips_of_their_own_equal_those_of_pytorch() {
    check_steps("scaled", "scaled", 5, 2e-5);
}

/// Adapters in a module: frozen parameters are unchanged, and dropout differs for every micro-batch, by the seed.
#[test]
fn adapters_of_the_text_are_trained_with_dropout() {
    let text = "from std.modules.linear import Linear\n\nmodel M(vocab_size: int = 48, width: int = 8):\n  params:\n    \
                table: [vocab_size, width] @frozen\n    w: [width, width] @frozen\n    head: [vocab_size, width] @frozen\n\n  \
                forward:\n    in: [B, T, int32]\n    out: [B, T, vocab_size]\n    graph:\n      \
                in -> embedding(table) -> x\n      x -> Linear(w) -> y @adapter(lora, rank=2, alpha=4.0, dropout=0.4)\n      \
                y -> Linear(head) -> out @adapter(ia3)\n";
    let program = || {
        let loader = lang::resolve::MemoryLoader::new().with("m", "v1.0.0", text);
        lang::resolve::ModuleProgram::load("m", &lang::library::LibraryLoader(loader))
    };
    let losses = |seed: u64, accumulate: usize| -> (Vec<f32>, f32) {
        let architecture =
            Architecture::from_program(program(), None, BTreeMap::new()).unwrap_or_else(|e| panic!("{e}"));
        let model = Model::new_random(architecture, DType::F32, 5).unwrap_or_else(|e| panic!("{e}"));
        let before = model.params.iter().filter(|param| param.trainable).count();
        assert_eq!((before, model.params.len()), (3, 6));
        let mut trainer = trainer(model, 4 / accumulate, accumulate).with_seed(seed);
        let data = batch(4, 16, 3);
        let found = (0..6).map(|step| trainer.step(&data, 0.1, step).expect("runs").loss).collect();
        let one = Batch { ids: data.ids[..64 / accumulate].to_vec(), labels: data.labels[..64 / accumulate].to_vec() };
        (found, trainer.validate(&[one], &Cpu::new(2)).expect("runs"))
    };
    for accumulate in [1, 2] {
        let (first, valid) = losses(1, accumulate);
        assert!(first[5] < first[0] && valid.is_finite(), "{first:?} {valid}");
        assert_eq!((&first, valid), (&losses(1, accumulate).0, losses(1, accumulate).1));
        assert_ne!(first, losses(2, accumulate).0);
    }
}

#[test]
fn accumulating_equals_one_large_batch() {
    let whole = batch(4, 16, 3);
    let mut one = trainer(tiny(DType::F32), 4, 1);
    let mut four = trainer(tiny(DType::F32), 1, 4);
    for step in 0..3 {
        let a = one.step(&whole, 1e-2, step).expect("runs");
        let b = four.step(&whole, 1e-2, step).expect("runs");
        assert!((a.loss - b.loss).abs() < 1e-4, "{a:?} {b:?}");
        assert!((a.grad_norm - b.grad_norm).abs() < 1e-3 * a.grad_norm, "{a:?} {b:?}");
    }
}

#[test]
fn masters_keep_what_bf16_would_lose() {
    let data = batch(4, 16, 3);
    let (mut wide, mut narrow) = (trainer(tiny(DType::F32), 4, 1), trainer(tiny(DType::BF16), 4, 1));
    let (mut first, mut last) = (0.0, (0.0, 0.0));
    for step in 0..40 {
        let (a, b) = (wide.step(&data, 3e-3, step).expect("runs"), narrow.step(&data, 3e-3, step).expect("runs"));
        if step == 0 {
            first = a.loss;
        }
        last = (a.loss, b.loss);
    }
    assert!(last.0 < first * 0.8 && (last.0 - last.1).abs() < 0.1, "{first} to {last:?}");
}

#[test]
fn a_state_put_back_goes_on_with_the_same_bits() {
    let mut straight = trainer(tiny(DType::F32), 4, 1);
    let losses: Vec<u32> = (0..6)
        .map(|step| straight.step(&batch(4, 16, step as u64), 1e-2, step).expect("runs").loss.to_bits())
        .collect();
    let mut first = trainer(tiny(DType::F32), 4, 1);
    for step in 0..3 {
        first.step(&batch(4, 16, step as u64), 1e-2, step).expect("runs");
    }
    let mut second = trainer(tiny(DType::F32), 4, 1);
    second.restore(&first.state().expect("read")).unwrap_or_else(|e| panic!("{e}"));
    for step in 3..6 {
        let found = second.step(&batch(4, 16, step as u64), 1e-2, step).expect("runs");
        assert_eq!(found.loss.to_bits(), losses[step]);
    }
    let other = trainer(tiny(DType::F32), 1, 1);
    let mut state = other.state().expect("read");
    state.pop();
    assert!(second.restore(&state).is_err());
}

#[test]
fn a_step_without_a_finite_gradient_changes_nothing() {
    let mut model = trainer(tiny(DType::F32), 4, 1);
    // A NaN weight makes the loss NaN.
    let mut before = model.state().expect("read");
    for bytes in before[0].bytes.chunks_exact_mut(4) {
        bytes.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    model.restore(&before).unwrap_or_else(|e| panic!("{e}"));
    let found = model.step(&batch(4, 16, 3), 1e-2, 0).expect("runs");
    assert!(!found.grad_norm.is_finite());
    assert_eq!(model.state().expect("read"), before);
}

#[test]
fn timings_name_the_kernels_and_change_no_bits() {
    let (mut plain, mut timed) = (trainer(tiny(DType::F32), 2, 2), trainer(tiny(DType::F32), 2, 2));
    let data = batch(4, 16, 3);
    let a = plain.step(&data, 1e-2, 0).expect("runs");
    let (b, timings) = timed.timed_step(&data, 1e-2, 0).expect("runs");
    assert_eq!(a.loss.to_bits(), b.loss.to_bits());
    assert!(timings.iter().any(|t| t.label.starts_with("matmul") && t.calls >= 2), "{timings:?}");
    assert!(timings.windows(2).all(|pair| pair[0].time >= pair[1].time));
    assert!(timings.iter().all(|t| t.steps.iter().map(|(_, time)| *time).sum::<std::time::Duration>() == t.time));
    assert_eq!(plain.state().expect("read"), timed.state().expect("read"));
}

/// Records messages; stops after this many steps.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    steps: usize,
    stop_after: Option<usize>,
}

impl TrainObserver for Notes {
    fn on_message(&mut self, text: &str) {
        self.lines.push(text.to_string());
    }
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, progress: &StepProgress) {
        self.steps = progress.step;
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.stop_after.is_some_and(|after| self.steps >= after)
    }
}

fn settings(out: &Path, pairs: &[(&str, &str)]) -> TrainSettings {
    let mut settings = TrainSettings { out: out.to_path_buf(), ..TrainSettings::default() };
    let defaults = [
        ("set", "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true"),
        ("stories", "60000"),
        ("vocab", "300"),
        ("steps", "40"),
        ("batch", "4"),
        ("seq", "32"),
        ("lr", "0.01"),
        ("warmup", "4"),
        ("checkpoint-every", "10"),
        ("eval-every", "20"),
        ("eval-batches", "2"),
        ("sample-every", "20"),
    ];
    for (name, value) in defaults.iter().chain(pairs) {
        settings.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    settings
}

#[test]
fn a_run_learns_and_what_it_saves_can_be_read() {
    let out = temporary("learns");
    let cpu = Cpu::new(2);
    let mut notes = Notes::default();
    let settings = settings(&out, &[("steps", "250")]);
    let finished = run(&settings, false, &[], &cpu, &mut notes).unwrap_or_else(|e| panic!("{e}"));
    assert!(finished.complete);
    let valid = finished.valid_loss.expect("held-out data");
    assert!(valid < 4.2, "validation loss {valid}, which begins at 5.7");
    let model = Model::load(&out, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = tensorloom_models::Tokenizer::from_dir(&out).unwrap_or_else(|e| panic!("{e}"));
    let ids = tokenizer.encode("Once upon").expect("encodes");
    assert_eq!(model.generate_greedy(&ids, 4, &cpu).unwrap_or_else(|e| panic!("{e}")).ids.len(), 4);
    for file in ["index.html", "log.jsonl", "run.toml", "config.json", "tokenizer.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let again = run(&settings, false, &[], &cpu, &mut notes).expect_err("the folder is taken").to_string();
    assert!(again.contains("--resume"), "{again}");
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn a_model_of_ones_own_file_is_saved_with_it() {
    let out = temporary("own");
    std::fs::create_dir_all(&out).expect("a folder");
    let file = out.join("own.module");
    let text = "from std.modules.linear import Linear\n\nmodel Bigram(vocab_size: int, width: int = 16):\n  params:\n    table: \
                [vocab_size, width]\n    head: [vocab_size, width]\n\n  forward:\n    in: [B, T, int32]\n    out: [B, T, \
                vocab_size]\n\n    graph:\n      in -> embedding(table) -> x\n      x -> Linear(head) -> out\n";
    std::fs::write(&file, text).expect("written");
    let mut settings = settings(&out.join("run"), &[("model", file.to_str().expect("a path"))]);
    settings.set = BTreeMap::from([("width".to_string(), "24".to_string())]);
    let cpu = Cpu::new(1);
    run(&settings, false, &[], &cpu, &mut Notes::default()).unwrap_or_else(|e| panic!("{e}"));
    std::fs::remove_file(&file).expect("removed");
    let model = Model::load(&out.join("run"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(model.parameter_count(), 2 * 300 * 24);
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn stopping_and_resuming_gives_the_same_bits() {
    let cpu = Cpu::new(2);
    let (straight, parts) = (temporary("straight"), temporary("parts"));
    run(&settings(&straight, &[]), false, &[], &cpu, &mut Notes::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut notes = Notes { stop_after: Some(7), ..Notes::default() };
    let stopped = run(&settings(&parts, &[]), false, &[], &cpu, &mut notes).unwrap_or_else(|e| panic!("{e}"));
    assert!(!stopped.complete && stopped.step == 7);
    // The newest checkpoint is truncated: the run reports it and continues from the previous one.
    let mut notes = Notes { stop_after: Some(25), ..Notes::default() };
    run(&settings(&parts, &[]), true, &[], &cpu, &mut notes).unwrap_or_else(|e| panic!("{e}"));
    let newest = parts.join("checkpoints/step-00000025.safetensors");
    let bytes = std::fs::read(&newest).expect("the checkpoint");
    std::fs::write(&newest, &bytes[..bytes.len() / 2]).expect("written");
    let mut notes = Notes::default();
    run(&TrainSettings { out: parts.clone(), ..TrainSettings::default() }, true, &[], &cpu, &mut notes)
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(notes.lines.iter().any(|line| line.contains("last valid checkpoint, step 20")), "{:?}", notes.lines);
    for file in ["model.safetensors", "tokenizer.json"] {
        let read = |dir: &Path| std::fs::read(dir.join(file)).expect("written");
        assert!(read(&straight) == read(&parts), "{file} differs");
    }
    let losses = |dir: &Path| -> Vec<String> {
        let log = std::fs::read_to_string(dir.join("log.jsonl")).expect("a log");
        let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let kept = ["step", "loss", "last", "grad_norm", "eval_loss", "sample"];
        lines.map(|line| kept.map(|k| line.get(k).map_or(String::new(), |v| v.to_string())).join(" ")).collect()
    };
    assert_eq!(losses(&straight), losses(&parts));
    let given = ["batch".to_string()];
    let other = run(&settings(&parts, &[("batch", "2")]), true, &given, &cpu, &mut Notes::default());
    assert!(other.expect_err("another batch").to_string().contains("--micro-batch-size 2"));
    let _ = std::fs::remove_dir_all(&straight);
    let _ = std::fs::remove_dir_all(&parts);
}
