//! Compares documents in one sequence with the same documents alone: losses and gradients.

use cpu::Cpu;
use ir::DType;
use std::path::Path;
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Adapter, LoraOptions, Model};

const END: i32 = 3;

fn golden(name: &str) -> Model {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}"))
}

/// Documents of several lengths, each with an end token.
fn documents() -> Vec<Vec<i32>> {
    let body = |n: i32, k: i32| (0..n).map(move |i| 4 + (i * k + n) % 59);
    [(4, 7), (1, 3), (9, 11), (2, 5)].into_iter().map(|(n, k)| body(n, k).chain([END]).collect()).collect()
}

/// Token IDs with the label of each, the next token of the same document.
fn batch(documents: &[Vec<i32>], seq: usize) -> Batch {
    let mut ids: Vec<i32> = documents.concat();
    let mut labels: Vec<i32> = ids[1..].to_vec();
    labels.push(-100);
    // Padding has no labels, and as a separate document it is masked.
    ids.resize(seq, 5);
    labels.resize(seq, -100);
    Batch { ids, labels }
}

fn adam() -> AdamW {
    AdamW { beta1: 0.0, beta2: 0.0, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 0.0 }
}

/// The loss, and the gradient from the first moments after a step from zero.
fn gradients(model: Model, adapter: Option<Adapter>, batch: &Batch, seq: usize, end: Option<i32>) -> (f32, Vec<f32>) {
    let cpu = Cpu::new(2);
    let sizes = StepSizes { micro_batch_size: 1, seq_len: seq, gradient_accumulation_steps: 1 };
    let mut trainer = LanguageModelTrainer::new(
        model,
        adapter,
        sizes,
        adam(),
        &ObjectiveOptions { end_id: end, ..ObjectiveOptions::default() },
        &cpu,
    )
    .unwrap_or_else(|e| panic!("{e}"));
    let result = trainer.step(batch, 0.0, 0).unwrap_or_else(|e| panic!("{e}"));
    let state = trainer.state().expect("read");
    let first = state.iter().filter(|tensor| tensor.name.starts_with("first."));
    (result.loss, first.flat_map(|tensor| tensor.to_f32_vec()).collect())
}

fn lora(model: &Model) -> Adapter {
    let options = LoraOptions::parse("rank=2,alpha=4,targets=q,v").expect("valid");
    let mut adapter = Adapter::new_untrained(model, "base", &options, 1).expect("fits");
    let mut random = tensorloom_models::SplitMix64::new(6, 6);
    adapter.fill(|_| (random.uniform() - 0.5) as f32);
    adapter
}

fn check(name: &str, adapted: bool) {
    let documents = documents();
    let seq = 24;
    let adapter = |model: &Model| adapted.then(|| lora(model));
    let packed = {
        let model = golden(name);
        let adapter = adapter(&model);
        gradients(model, adapter, &batch(&documents, seq), seq, Some(END))
    };
    // Each alone, weighted by its number of labels.
    let (mut loss, mut sum, mut count) = (0.0f64, vec![0.0f64; packed.1.len()], 0.0);
    for document in &documents {
        let model = golden(name);
        let adapter = adapter(&model);
        let weight = document.len() as f64 - 1.0;
        if weight == 0.0 {
            continue;
        }
        let (own, gradient) = gradients(model, adapter, &batch(std::slice::from_ref(document), seq), seq, None);
        loss += weight * f64::from(own);
        sum.iter_mut().zip(&gradient).for_each(|(sum, x)| *sum += weight * f64::from(*x));
        count += weight;
    }
    assert!((f64::from(packed.0) - loss / count).abs() < 1e-5, "{name}: {} {}", packed.0, loss / count);
    let largest = sum.iter().fold(0f64, |m, x| m.max((x / count).abs()));
    let worst = sum.iter().zip(&packed.1).fold(0f64, |m, (a, b)| m.max((a / count - f64::from(*b)).abs()));
    assert!(largest > 0.0 && worst < 1e-5 * largest.max(1.0), "{name}: {worst} of {largest}");
    // Without masking, attention reaches into previous documents.
    let model = golden(name);
    let adapter = adapter(&model);
    let open = gradients(model, adapter, &batch(&documents, seq), seq, None);
    assert!((open.0 - packed.0).abs() > 1e-4, "{name}: nothing was kept apart");
}

#[test]
fn packed_documents_have_the_losses_and_gradients_of_single_ones() {
    for name in ["llama", "qwen2", "mistral", "gemma", "gpt_neox", "mixtral"] {
        check(name, false);
    }
    check("llama", true);
}

#[test]
fn what_can_not_be_kept_apart_is_refused() {
    for (name, why) in [("gpt2", "positions"), ("mamba", "state")] {
        let sizes = StepSizes { micro_batch_size: 1, seq_len: 8, gradient_accumulation_steps: 1 };
        let refused = LanguageModelTrainer::new(
            golden(name),
            None,
            sizes,
            adam(),
            &ObjectiveOptions { end_id: Some(END), ..ObjectiveOptions::default() },
            &Cpu::new(1),
        )
        .err();
        let error = refused.expect("refused").to_string();
        assert!(error.contains(why) && error.contains("--document-mask"), "{error}");
    }
}
