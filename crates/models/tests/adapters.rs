//! Compares adapters with PEFT: beside the weights and merged, written by PEFT and by this crate; trains one.
//!
//! `golden/lora.py` makes the data.

use cpu::Cpu;
use ir::DType;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{
    AdamW, Batch, LanguageModelTrainer, NoProgress, ObjectiveOptions, StepSizes, TrainSettings, run,
};
use tensorloom_models::{Adapter, AdapterOptions, Ia3Options, LoraOptions, Model};

const IDS: [[i32; 8]; 2] = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-adapters-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0f32, |m, (x, y)| {
        assert!(x.is_finite() && y.is_finite());
        m.max((x - y).abs())
    })
}

/// Logits with the adapter beside the weights and merged equal PEFT's.
fn check(adapter: &str, base: &str) {
    let folder = data(adapter);
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("golden tensors");
    let expected = SafeTensors::deserialize(&bytes).expect("golden tensors");
    let want = |name: &str| floats(expected.tensor(name).expect("golden tensor").data());
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    let cpu = Cpu::new(2);
    let mut model = Model::load(&data(base), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let plain = model.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
    let adapter = Adapter::read(&folder, &model).unwrap_or_else(|e| panic!("{e}"));
    let beside = model.evaluate_adapted(&adapter, &ids, &cpu).unwrap_or_else(|e| panic!("{e}")).to_f32_vec();
    model.merge(&adapter).expect("merges");
    let merged = model.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
    assert!(difference(&plain, &beside) > 0.05, "the adapter does something");
    for (what, found, wanted) in
        [("beside", &beside, want("logits")), ("merged", &merged, want("merged")), ("both", &beside, merged.clone())]
    {
        let size = wanted.iter().fold(1f32, |m, x| m.max(x.abs()));
        let worst = difference(found, &wanted) / size;
        assert!(worst < 2e-5, "{what}: {worst} of the largest");
    }
}

#[test]
fn parts_of_a_fused_projection_equal_peft() {
    check("lora/llama", "llama");
}

#[test]
fn transposed_weights_equal_peft() {
    check("lora/gpt2", "gpt2");
}

#[test]
fn a_projection_that_is_fused_there_too_equals_peft() {
    check("lora/phi3", "phi3");
}

/// `ours` was trained and written by this crate; the expected logits are PEFT's.
#[test]
fn peft_reads_what_we_write() {
    check("lora/ours", "llama");
}

#[test]
fn factors_equal_peft() {
    check("ia3/llama", "llama");
}

#[test]
fn factors_of_layers_with_biases_equal_peft() {
    check("ia3/qwen2", "qwen2");
}

#[test]
fn factors_of_transposed_weights_equal_peft() {
    check("ia3/gpt2", "gpt2");
}

/// `ia3/ours` was trained and written by this crate; the expected logits are PEFT's.
#[test]
fn peft_reads_the_factors_that_we_write() {
    check("ia3/ours", "llama");
}

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

/// Losses, norms and tensors after steps of PyTorch's AdamW on PEFT's adapter.
fn check_steps(kind: &str) {
    let folder = data(kind);
    let text = std::fs::read_to_string(folder.join("steps/expected.json")).expect("golden data");
    let json: serde_json::Value = serde_json::from_str(&text).expect("golden data");
    let ints = |json: &serde_json::Value| -> Vec<i32> {
        json.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an int") as i32).collect()
    };
    let model = Model::load(&data("llama"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let adapter = Adapter::read(&folder.join("llama"), &model).unwrap_or_else(|e| panic!("{e}"));
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 7, gradient_accumulation_steps: 1 };
    let mut trainer =
        LanguageModelTrainer::new(model, Some(adapter), sizes, ADAM, &ObjectiveOptions::default(), &Cpu::new(2))
            .expect("compiles");
    for (step, expected) in json["steps"].as_array().expect("steps").iter().enumerate() {
        let batch = Batch { ids: ints(&expected["ids"]), labels: ints(&expected["labels"]) };
        let rate = expected["rate"].as_f64().expect("a rate");
        let found = trainer.step(&batch, rate, step).unwrap_or_else(|e| panic!("{e}"));
        for (what, found, expected) in
            [("loss", found.loss, &expected["loss"]), ("norm", found.grad_norm, &expected["norm"])]
        {
            let expected = expected.as_f64().expect("a number");
            assert!((f64::from(found) - expected).abs() < 2e-4 * expected, "step {step}: {what} {found} {expected}");
        }
    }
    let out = temporary(kind);
    trainer.adapter().expect("values").expect("an adapter").write(&out).unwrap_or_else(|e| panic!("{e}"));
    let read = |path: PathBuf| std::fs::read(path).expect("tensors");
    let found = read(out.join("adapter_model.safetensors"));
    let expected = read(folder.join("steps/adapter_model.safetensors"));
    let (found, expected) = (SafeTensors::deserialize(&found), SafeTensors::deserialize(&expected));
    let (found, expected) = (found.expect("tensors"), expected.expect("tensors"));
    assert_eq!(found.len(), expected.len());
    for name in expected.names() {
        let want = floats(expected.tensor(name).expect("there").data());
        let have = floats(found.tensor(name).unwrap_or_else(|_| panic!("{name}")).data());
        let worst = difference(&have, &want);
        assert!(worst < 5e-4, "{name}: {worst}");
    }
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn steps_on_low_rank_updates_equal_pytorch() {
    check_steps("lora");
}

#[test]
fn steps_on_factors_equal_pytorch() {
    check_steps("ia3");
}

/// Dropout differs in every step; validation and the saved adapter have none.
#[test]
fn dropout_is_random_in_steps_and_absent_otherwise() {
    let batch = Batch { ids: IDS[0][..7].to_vec(), labels: IDS[0][1..].to_vec() };
    let sizes = StepSizes { micro_batch_size: 1, seq_len: 7, gradient_accumulation_steps: 1 };
    // With a learning rate of 0, losses differ only by dropout.
    let losses = |dropout: f64, seed: u64| -> (Vec<f32>, f32) {
        let model = Model::load(&data("llama"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
        let mut adapter = Adapter::read(&data("lora/llama"), &model).unwrap_or_else(|e| panic!("{e}"));
        let AdapterOptions::Lora(options) = &mut adapter.options else { panic!("low-rank") };
        options.dropout = dropout;
        let trainer =
            LanguageModelTrainer::new(model, Some(adapter), sizes, ADAM, &ObjectiveOptions::default(), &Cpu::new(2));
        let mut trainer = trainer.unwrap_or_else(|e| panic!("{e}")).with_seed(seed);
        let found = (0..40).map(|step| trainer.step(&batch, 0.0, step).expect("runs").loss).collect();
        (found, trainer.validate(std::slice::from_ref(&batch), &Cpu::new(2)).expect("runs"))
    };
    let (plain, valid) = losses(0.0, 1);
    assert!(plain.iter().all(|loss| (loss - plain[0]).abs() < 1e-6) && (valid - plain[0]).abs() < 1e-5);
    let (dropped, still) = losses(0.3, 1);
    assert!((still - valid).abs() < 1e-6);
    let mut different: Vec<u32> = dropped.iter().map(|loss| loss.to_bits()).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 40);
    assert_eq!(dropped, losses(0.3, 1).0, "equal seeds draw equally");
    assert_ne!(dropped, losses(0.3, 2).0);
    // The smaller the probability, the nearer the loss is to the one without dropout.
    let far = |losses: &[f32]| losses.iter().map(|loss| (loss - plain[0]).abs()).sum::<f32>();
    assert!(far(&losses(0.001, 1).0) < 0.3 * far(&dropped));
}

/// Trains an adapter of the tiny Llama on a few words; merging gives the trained model.
fn check_training(kind: &str, options: &str, rate: &str, count: usize) {
    let out = temporary(&format!("train-{kind}"));
    std::fs::create_dir_all(&out).expect("a folder");
    let text = "the cat sat on the mat . then the dog ran in the house . it was happy .\n<|endoftext|>\n".repeat(60);
    std::fs::write(out.join("text.txt"), text).expect("written");
    let base = data("llama");
    let mut settings = TrainSettings { out: out.join("run"), ..TrainSettings::default() };
    let pairs = [
        ("model", base.to_str().expect("a path")),
        ("data", out.join("text.txt").to_str().expect("a path")),
        ("tokenizer", data("lora/tokenizer.json").to_str().expect("a path")),
        (kind, options),
        ("steps", "60"),
        ("batch", "2"),
        ("seq", "32"),
        ("lr", rate),
        ("warmup", "5"),
        ("prompt", "the cat"),
    ]
    .map(|(name, value)| (name, value.to_string()));
    for (name, value) in pairs {
        settings.set(name, &value).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let cpu = Cpu::new(2);
    let finished = run(&settings, false, &[], &cpu, &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
    let log = std::fs::read_to_string(out.join("run/log.jsonl")).expect("a log");
    let values =
        log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get("eval_loss")?.as_f64());
    let first = values.into_iter().next().expect("a validation before the first step");
    let last = f64::from(finished.valid_loss.expect("held-out data"));
    assert!(last < 0.6 * first, "{first} to {last}");

    // Training changes only the adapter, and merging it gives the trained model.
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    let mut model = Model::load(&base, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let adapter = Adapter::read(&out.join("run"), &model).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(adapter.parameter_count(), count);
    let beside = model.evaluate_adapted(&adapter, &ids, &cpu).unwrap_or_else(|e| panic!("{e}")).to_f32_vec();
    model.merge(&adapter).expect("merges");
    model.export(&out.join("merged")).unwrap_or_else(|e| panic!("{e}"));
    let again = Model::load(&out.join("merged"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let merged = again.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
    assert!(difference(&beside, &merged) < 1e-3);
    // Regenerates `ours`.
    if let Some(keep) = std::env::var_os("KEEP_ADAPTER") {
        let mut adapter = adapter;
        adapter.base = "llama".into();
        adapter.write(&Path::new(&keep).join(kind)).unwrap_or_else(|e| panic!("{e}"));
    }
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn training_an_update_lowers_the_loss_and_merging_keeps_it() {
    let count = 2 * 4 * ((32 + 32) + (32 + 16) + (32 + 48) + (48 + 32));
    check_training("lora", "rank=4,alpha=8,dropout=0.05,targets=q,v,gate,down", "0.02", count);
}

#[test]
fn training_factors_lowers_the_loss_and_merging_keeps_it() {
    check_training("ia3", "targets=q,k,v,o,gate,down,feedforward=down", "0.1", 2 * (32 + 16 + 16 + 32 + 48 + 48));
}

#[test]
fn adapters_that_we_do_not_know_are_refused() {
    let model = Model::load(&data("llama"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let out = temporary("wrong");
    std::fs::create_dir_all(&out).expect("a folder");
    let read = |config: &str| {
        std::fs::write(out.join("adapter_config.json"), config).expect("written");
        Adapter::read(&out, &model).expect_err(config).to_string()
    };
    let cases = [
        (r#"{"peft_type": "PREFIX_TUNING"}"#, "PREFIX_TUNING"),
        (r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "use_dora": true}"#, "DoRA"),
        (r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "lora_dropout": 1.5}"#, "1.5"),
        (r#"{"peft_type": "IA3", "target_modules": "all-linear"}"#, "target_modules"),
        (r#"{"peft_type": "IA3", "target_modules": ["k_proj"], "feedforward_modules": ["x"]}"#, "`x`"),
        (r#"{"peft_type": "IA3", "target_modules": ["k_proj"], "modules_to_save": ["lm_head"]}"#, "modules_to_save"),
    ];
    for (config, word) in cases {
        let error = read(config);
        assert!(error.contains(word), "{error}");
    }
    // A tensor of the wrong shape, and an unused one.
    for (from, targets, word) in
        [("ia3/llama", r#"["q_proj"]"#, "q_proj.ia3_l"), ("ia3/llama", r#"["k_proj", "v_proj"]"#, "down_proj.ia3_l")]
    {
        let tensors = std::fs::read(data(from).join("adapter_model.safetensors")).expect("tensors");
        std::fs::write(out.join("adapter_model.safetensors"), tensors).expect("written");
        let error = read(&format!(r#"{{"peft_type": "IA3", "target_modules": {targets}}}"#));
        assert!(error.contains(word), "{error}");
    }
    let _ = std::fs::remove_dir_all(&out);
}

#[test]
fn targets_that_are_not_there_are_named() {
    let model = Model::load(&data("llama"), DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let lora = LoraOptions::parse("targets=q,w").expect("valid");
    let ia3 = Ia3Options::parse("targets=q,w").expect("valid");
    for options in [AdapterOptions::from(&lora), AdapterOptions::from(&ia3)] {
        let error = Adapter::new_untrained(&model, "", options, 1).expect_err("no module w").to_string();
        assert!(error.contains("`w`") && error.contains("q_proj"), "{error}");
    }
}
