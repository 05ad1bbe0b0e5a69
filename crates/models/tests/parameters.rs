//! Parameters with a separate dtype, invalid token IDs and labels, master weights of bf16 training.

use cpu::Cpu;
use ir::DType;
use lang::library::LibraryLoader;
use lang::resolve::{MemoryLoader, ModuleProgram};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Architecture, Model, NamedTensor, write_tensors};

/// A model with a table, a matrix and a head; `own` is inserted after the matrix's shape, `inside` within its brackets.
fn text(own: &str, inside: &str) -> String {
    format!(
        "model M(symbols: int = 9, d: int = 8):\n  params:\n    table: [symbols, d]\n    w: [d, d{inside}]{own}\n    \
         head: [symbols, d]\n\n  forward:\n    in: ids: [B, T, int32]\n    out: [B, T, symbols]\n\n    graph:\n      \
         ids -> embedding(table) -> x\n      x -> matmul(w, transpose=NT) -> y\n      (x, y) -> add() -> z\n      \
         z -> matmul(head, transpose=NT) -> out\n"
    )
}

fn architecture(text: &str) -> Architecture {
    let loader = MemoryLoader::new().with("m", "v1.0.0", text);
    let program = ModuleProgram::load("m", &LibraryLoader(loader));
    Architecture::from_program(program, None, BTreeMap::new()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A directory with this model and weights; `change` may modify the matrix.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, text: &str, change: impl Fn(f32) -> f32) -> Folder {
        let dir = std::env::temp_dir().join(format!("tensorloom-parameters-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let own = serde_json::json!({ "file": "m", "model": "M", "given": {}, "files": { "m": text } });
        let config = serde_json::json!({ "architectures": ["M"], "tensorloom": own });
        std::fs::write(dir.join("config.json"), config.to_string()).expect("written");
        let tensor = |name: &str, shape: [usize; 2], values: Vec<f32>| NamedTensor {
            name: name.into(),
            shape: shape.to_vec(),
            dtype: DType::F32,
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        let w = numbers(2, 64).into_iter().map(change).collect();
        let tensors =
            [tensor("table", [9, 8], numbers(1, 72)), tensor("w", [8, 8], w), tensor("head", [9, 8], numbers(3, 72))];
        write_tensors(&dir.join("model.safetensors"), &tensors).expect("written");
        Folder(dir)
    }

    fn load(&self, dtype: DType) -> Model {
        Model::load(&self.0, dtype).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bf16(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

const IDS: [i32; 5] = [1, 8, 0, 3, 3];

fn logits(model: &Model) -> Vec<f32> {
    model.evaluate_on(&[IDS.to_vec()], None, &Cpu::new(1)).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec()
}

/// A matrix that is stored in bf16 behaves like a plain model with rounded numbers: logits, gradients, tokens, training, export.
#[test]
fn a_parameter_with_a_dtype_of_its_own_is_held_in_it() {
    let plain = Folder::new("plain", &text("", ""), bf16);
    let expected = plain.load(DType::F32);
    let cpu = Cpu::new(2);
    for (i, note) in [" @dtype(bf16)", " @precision(storage=bf16)"].into_iter().enumerate() {
        let folder = Folder::new(&format!("own{i}"), &text(note, ""), |x| x);
        let model = folder.load(DType::F32);
        assert_eq!(model.params[1].ty.dtype, DType::BF16);
        assert_eq!(logits(&model), logits(&expected), "{note}");
        assert!(logits(&model).iter().all(|x| x.is_finite()));
        let tokens = |model: &Model| model.generate_greedy(&IDS, 6, &cpu).unwrap_or_else(|e| panic!("{e}")).ids;
        assert_eq!(tokens(&model), tokens(&expected));
        let ids = [IDS.to_vec()];
        let gradients = |model: &Model| model.evaluate_on(&ids, Some(&ids), &cpu).unwrap_or_else(|e| panic!("{e}"));
        let (found, wanted) = (gradients(&model), gradients(&expected));
        assert_eq!(found.gradients.len(), 3);
        for (a, b) in found.gradients.iter().zip(&wanted.gradients) {
            assert_eq!(a.name, b.name);
            let size = b.to_f32_vec().iter().fold(0f32, |m, x| m.max(x.abs()));
            let close = a.to_f32_vec().iter().zip(b.to_f32_vec()).all(|(x, y)| (x - y).abs() <= 0.01 * size);
            assert!(close, "{}: {:?} {:?}", a.name, a.to_f32_vec(), b.to_f32_vec());
        }
        let out = folder.0.join("out");
        model.export(&out).expect("exports");
        assert_eq!(logits(&Model::load(&out, DType::F32).expect("loads")), logits(&model));
    }
}

/// Conversely: a matrix of f32 in a model that computes in bf16.
#[test]
fn a_wide_parameter_of_a_narrow_model_is_held_wide() {
    let folder = Folder::new("wide", &text(" @dtype(fp32)", ""), |x| x);
    let plain = Folder::new("narrow", &text("", ""), |x| x);
    let (model, narrow) = (folder.load(DType::BF16), plain.load(DType::BF16));
    assert_eq!((model.params[0].ty.dtype, model.params[1].ty.dtype), (DType::BF16, DType::F32));
    // The compute dtype is that of the model, so the f32 matrix is rounded where it is read.
    assert_eq!(logits(&model), logits(&narrow));
    assert_eq!(model.generate_greedy(&IDS, 4, &Cpu::new(1)).expect("runs").ids.len(), 4);
}

#[test]
fn a_parameter_of_whole_numbers_is_refused() {
    let folder = Folder::new("whole", &text(" @dtype(int32)", ""), |x| x);
    let found = error(Model::load(&folder.0, DType::F32));
    assert!(found.contains("int32"), "{found}");
}

fn error<T>(result: tensorloom_models::Result<T>) -> String {
    result.err().expect("refused").to_string()
}

/// Token IDs and labels that the model's graph can't look up are rejected, whatever the names of its sizes.
#[test]
fn ids_and_labels_outside_are_refused_whatever_the_parameter_is_called() {
    let model = Model::new_random(architecture(&text("", "")), DType::F32, 1).expect("a model");
    let cpu = Cpu::new(1);
    assert_eq!(model.vocabulary(), Some(9));
    for bad in [9, 100, -1, i32::MAX, i32::MIN] {
        let ids = [vec![1, bad, 3]];
        let good = [vec![1, 2, 3]];
        for found in [
            error(model.evaluate_on(&ids, None, &cpu)),
            error(model.capture(&ids, None, &cpu)),
            error(model.generate_greedy(&ids[0], 2, &cpu)),
            error(model.decode_session(4, &cpu).and_then(|mut d| d.append(&ids[0]))),
        ] {
            assert!(found.contains(&format!("ID {bad} ")) && found.contains("from 0 to 8"), "{found}");
        }
        let found = error(model.evaluate_on(&good, Some(&ids), &cpu));
        assert!(found.contains(&format!("label {bad} ")) && found.contains("from 0 to 8"), "{found}");
    }
    let labels = [vec![-100, 2, -100]];
    assert!(model.evaluate_on(&[vec![1, 2, 8]], Some(&labels), &cpu).is_ok());

    let sizes = StepSizes { micro_batch_size: 1, seq_len: 3, gradient_accumulation_steps: 1 };
    let adam = AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 1.0 };
    let mut trainer =
        LanguageModelTrainer::new(model, None, sizes, adam, &ObjectiveOptions::default(), &cpu).expect("a trainer");
    let batch = |ids: &[i32], labels: &[i32]| Batch { ids: ids.to_vec(), labels: labels.to_vec() };
    assert!(trainer.step(&batch(&[1, 2, 8], &[2, 8, -100]), 0.1, 0).is_ok());
    let found = error(trainer.step(&batch(&[1, 9, 8], &[2, 8, -100]), 0.1, 1));
    assert!(found.contains("ID 9 "), "{found}");
    let found = error(trainer.step(&batch(&[1, 2, 8], &[2, 9, -100]), 0.1, 1));
    assert!(found.contains("label 9 "), "{found}");
    let found = error(trainer.validate(&[batch(&[1, -1, 8], &[2, 8, -100])], &Cpu::new(1)));
    assert!(found.contains("ID -1 "), "{found}");
}

/// Labels are limited by the number of scores, token IDs by the embedding table, positions by the position table.
#[test]
fn tables_and_scores_of_other_sizes_bound_what_they_should() {
    let text = "model M(known: int = 12, scored: int = 5, places: int = 6):\n  params:\n    a: [known, 4]\n    \
                b: [known - 2, 4]\n    p: [places, 4]\n    head: [scored, 4]\n\n  forward:\n    in: ids: [B, T, int32]\n    \
                out: [B, T, scored]\n\n    graph:\n      ids -> embedding(a) -> x\n      ids -> embedding(b) -> y\n      \
                positions([T]) -> n\n      n -> embedding(p) -> z\n      (x, y, z) -> add3() -> s\n      \
                s -> matmul(head, transpose=NT) -> out\n";
    let model = Model::new_random(architecture(text), DType::F32, 1).expect("a model");
    let cpu = Cpu::new(1);
    assert_eq!((model.vocabulary(), model.max_sequence()), (Some(10), Some(6)));
    assert!(error(model.evaluate_on(&[vec![1, 10]], None, &cpu)).contains("ID 10 "));
    let ids = [vec![9, 1]];
    assert!(error(model.evaluate_on(&ids, Some(&[vec![0, 5]]), &cpu)).contains("label 5 "));
    assert!(model.evaluate_on(&ids, Some(&[vec![0, 4]]), &cpu).is_ok());
    assert!(error(model.evaluate_on(&[vec![1; 7]], None, &cpu)).contains("length of 6"));
    assert!(error(model.generate_greedy(&[1, 2], 5, &cpu)).contains("at most 6"));
    assert_eq!(model.generate_greedy(&[1, 2], 4, &cpu).expect("runs").ids.len(), 4);
}

/// Master weights are the checkpoint's numbers, not rounded to bf16; so are those of a new model.
#[test]
fn masters_of_bf16_training_are_not_rounded() {
    let folder = Folder::new("masters", &text("", ""), |x| x);
    let cpu = Cpu::new(1);
    let sizes = StepSizes { micro_batch_size: 1, seq_len: 3, gradient_accumulation_steps: 1 };
    let adam = AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 1.0 };
    let expected = [numbers(1, 72), numbers(2, 64), numbers(3, 72)];
    assert!(expected.iter().flatten().any(|x| bf16(*x) != *x));
    let trainer =
        LanguageModelTrainer::new(folder.load(DType::BF16), None, sizes, adam, &ObjectiveOptions::default(), &cpu)
            .expect("a trainer");
    for (tensor, wanted) in trainer.state().expect("a state").iter().zip(&expected) {
        assert_eq!(&tensor.to_f32_vec(), wanted, "{}", tensor.name);
    }
    // After zero steps, the saved weights equal the original ones.
    let out = folder.0.join("out");
    trainer.model().expect("a model").export(&out).expect("exports");
    let same = |dir: &Path| std::fs::read(dir.join("model.safetensors")).expect("a file");
    assert_eq!(same(&out), same(&folder.0));

    let drawn = |dtype| {
        let model = Model::new_random(architecture(&text("", "")), dtype, 5).expect("a model");
        let trainer =
            LanguageModelTrainer::new(model, None, sizes, adam, &ObjectiveOptions::default(), &cpu).expect("a trainer");
        trainer.state().expect("a state").iter().flat_map(NamedTensor::to_f32_vec).collect::<Vec<f32>>()
    };
    assert_eq!(drawn(DType::BF16), drawn(DType::F32));
}
