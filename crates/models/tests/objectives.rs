//! Compares other objectives than the next token with PyTorch and TRL's formulas; `golden/objectives.py` generates the data.

use cpu::Cpu;
use ir::DType;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, Objective, ObjectiveOptions, StepSizes};
use tensorloom_models::{Adapter, LoraOptions, Model, NamedTensor};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn load(name: &str) -> Model {
    Model::load(&folder(name), DType::F32).unwrap_or_else(|e| panic!("{e}"))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Without clipping and weight decay, the first moment after one step is a tenth of the gradient.
const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 0.0 };

struct Case {
    aim: Objective,
    batch: Batch,
    loss: f64,
    norm: f64,
}

fn cases() -> (StepSizes, Vec<Case>) {
    let text = std::fs::read_to_string(folder("objectives").join("expected.json")).expect("golden data");
    let json: serde_json::Value = serde_json::from_str(&text).expect("golden data");
    let ints = |json: &serde_json::Value| -> Vec<i32> {
        json.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an int") as i32).collect()
    };
    let size = |name: &str| json[name].as_u64().expect("a size") as usize;
    let cases = json["cases"].as_array().expect("cases").iter().map(|case| Case {
        aim: Objective::parse(case["aim"].as_str().expect("a name")).unwrap_or_else(|e| panic!("{e}")),
        batch: Batch { ids: ints(&case["ids"]), labels: ints(&case["labels"]) },
        loss: case["loss"].as_f64().expect("a number"),
        norm: case["norm"].as_f64().expect("a number"),
    });
    (
        StepSizes { micro_batch_size: size("rows"), seq_len: size("seq"), gradient_accumulation_steps: 1 },
        cases.collect(),
    )
}

/// The second model of a case.
fn second(aim: &Objective) -> Option<Model> {
    match aim {
        Objective::Dpo { .. } => Some(load("objectives/reference")),
        Objective::Distill { .. } => Some(load("mistral")),
        _ => None,
    }
}

/// Tensors of the golden file whose names have this prefix.
fn golden(prefix: &str) -> Vec<(String, Vec<f32>)> {
    let bytes = std::fs::read(folder("objectives").join("expected.safetensors")).expect("golden data");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("golden data");
    let named = tensors.names().into_iter().filter_map(|name| Some((name.strip_prefix(prefix)?.to_string(), name)));
    named.map(|(short, name)| (short, floats(tensors.tensor(name).expect("there").data()))).collect()
}

/// The gradients of a step by HuggingFace names: the first moments are exported in place of the parameters.
fn gradients(trainer: &mut LanguageModelTrainer) -> Vec<(String, Vec<f32>)> {
    let state = trainer.state().expect("a state");
    let moved: Vec<NamedTensor> = state
        .iter()
        .map(|tensor| {
            let Some(path) = tensor.name.strip_prefix("param.") else { return tensor.clone() };
            let first = state.iter().find(|other| other.name == format!("first.{path}")).expect("a moment");
            let bytes = floats(&first.bytes).iter().flat_map(|x| (10.0 * x).to_le_bytes()).collect();
            NamedTensor { bytes, ..tensor.clone() }
        })
        .collect();
    trainer.restore(&moved).expect("fits");
    let out = std::env::temp_dir().join(format!("tensorloom-objectives-{}", std::process::id()));
    trainer.model().and_then(|model| model.export(&out)).unwrap_or_else(|e| panic!("{e}"));
    let bytes = std::fs::read(out.join("model.safetensors")).expect("tensors");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let mut all: Vec<(String, Vec<f32>)> = tensors
        .names()
        .into_iter()
        .map(|n| (n.to_string(), floats(tensors.tensor(n).expect("there").data())))
        .collect();
    all.extend(trainer.heads().expect("heads").into_iter().map(|head| (head.name.clone(), floats(&head.bytes))));
    let _ = std::fs::remove_dir_all(&out);
    all
}

fn with_head(trainer: &mut LanguageModelTrainer) {
    let head = golden("head").remove(0).1;
    let state: Vec<NamedTensor> = trainer
        .state()
        .expect("a state")
        .into_iter()
        .map(|tensor| match &tensor.name[..] {
            "param.score.weight" => {
                NamedTensor { bytes: head.iter().flat_map(|x| x.to_le_bytes()).collect(), ..tensor }
            }
            _ => tensor,
        })
        .collect();
    trainer.restore(&state).expect("fits");
}

/// Losses, norms and every gradient.
#[test]
fn losses_and_gradients_equal_those_of_pytorch() {
    let (sizes, cases) = cases();
    assert!(cases.len() >= 11);
    for (i, case) in cases.iter().enumerate() {
        let other = second(&case.aim);
        let how = ObjectiveOptions { aim: case.aim, second_model: other.as_ref(), ..ObjectiveOptions::default() };
        let mut trainer = LanguageModelTrainer::new(load("llama"), None, sizes, ADAM, &how, &Cpu::new(2))
            .unwrap_or_else(|e| panic!("{}: {e}", case.aim));
        if matches!(case.aim, Objective::Classify { .. }) {
            with_head(&mut trainer);
        }
        let valid = trainer.validate(std::slice::from_ref(&case.batch), &Cpu::new(2)).expect("runs");
        let found = trainer.step(&case.batch, 0.0, 0).unwrap_or_else(|e| panic!("{}: {e}", case.aim));
        for (what, found, expected) in
            [("loss", found.loss, case.loss), ("validation", valid, case.loss), ("norm", found.grad_norm, case.norm)]
        {
            let off = (f64::from(found) - expected).abs();
            assert!(off < 1e-5 * expected.max(1.0), "{}: {what} {found} {expected}", case.aim);
        }
        let ours = gradients(&mut trainer);
        for (name, expected) in golden(&format!("{i}.")) {
            let (_, found) = ours.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}"));
            let most = expected.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
            let worst = expected.iter().zip(found).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            assert!(worst < 1e-5 * most.max(1.0), "{}: {name}: {worst} of {most}", case.aim);
        }
    }
}

/// Padding rows change nothing, and gradient accumulation gives the mean over all pairs.
#[test]
fn rows_without_labels_do_not_count() {
    let (sizes, cases) = cases();
    for case in cases {
        let more = StepSizes { micro_batch_size: sizes.micro_batch_size + 2, ..sizes };
        let mut batch = case.batch.clone();
        batch.ids.resize(more.micro_batch_size * more.seq_len, 0);
        batch.labels.resize(more.micro_batch_size * more.seq_len, -100);
        let other = second(&case.aim);
        let how = ObjectiveOptions { aim: case.aim, second_model: other.as_ref(), ..ObjectiveOptions::default() };
        let mut trainer =
            LanguageModelTrainer::new(load("llama"), None, more, ADAM, &how, &Cpu::new(2)).expect("compiles");
        if matches!(case.aim, Objective::Classify { .. }) {
            with_head(&mut trainer);
        }
        let found = trainer.step(&batch, 0.0, 0).expect("runs");
        let off = (f64::from(found.loss) - case.loss).abs().max((f64::from(found.grad_norm) - case.norm).abs());
        assert!(off < 2e-5 * case.norm.max(1.0), "{}: {found:?} {} {}", case.aim, case.loss, case.norm);
    }
}

/// An adapter's base model is the reference: initially both are equal, so the loss is log 2; and a trained adapter has the loss
/// of the merged model relative to its base.
#[test]
fn an_adapter_is_preferred_against_its_base() {
    let (sizes, cases) = cases();
    let case = cases.into_iter().next().expect("a case");
    let options = LoraOptions::parse("rank=2,alpha=8,targets=q,v").expect("valid");
    let mut adapter = Adapter::new_untrained(&load("llama"), "llama", &options, 3).expect("fits");
    let how = ObjectiveOptions { aim: case.aim, ..ObjectiveOptions::default() };
    let start = |adapter: Adapter| {
        LanguageModelTrainer::new(load("llama"), Some(adapter), sizes, ADAM, &how, &Cpu::new(2))
            .unwrap_or_else(|e| panic!("{e}"))
    };
    let even = start(adapter.clone()).step(&case.batch, 0.0, 0).expect("runs");
    assert!((even.loss - std::f32::consts::LN_2).abs() < 1e-6, "{even:?}");
    adapter.fill(|i| 0.05 * ((i * 7919 % 17) as f32 - 8.0));
    let mut merged = load("llama");
    merged.merge(&adapter).expect("fits");
    let base = load("llama");
    let beside = start(adapter).step(&case.batch, 0.0, 0).expect("runs").loss;
    let how = ObjectiveOptions { second_model: Some(&base), ..how };
    let mut whole = LanguageModelTrainer::new(merged, None, sizes, ADAM, &how, &Cpu::new(2)).expect("compiles");
    let alone = whole.step(&case.batch, 0.0, 0).expect("runs").loss;
    assert!((beside - alone).abs() < 1e-5 && (beside - std::f32::consts::LN_2).abs() > 1e-3, "{beside} {alone}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let (sizes, _) = cases();
    let check = |model: &str, aim: &str, sizes: StepSizes, teacher: Option<&Model>, word: &str| {
        let how = ObjectiveOptions {
            aim: Objective::parse(aim).expect("valid"),
            second_model: teacher,
            ..ObjectiveOptions::default()
        };
        let error =
            LanguageModelTrainer::new(load(model), None, sizes, ADAM, &how, &Cpu::new(1)).err().expect(aim).to_string();
        assert!(error.contains(word), "{error}");
    };
    check("llama", "distill", sizes, None, "--teacher");
    check("llama", "dpo", StepSizes { micro_batch_size: 3, ..sizes }, None, "even");
    check("llama", "orpo", sizes, Some(&load("llama")), "distill");
    check("mamba", "mlm", sizes, None, "state");
}
