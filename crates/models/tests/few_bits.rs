//! Low-precision training: delayed scaling, stochastic rounding and 8-bit moments, with bitwise-reproducible resume.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use lang::lower::PrecisionRecipe;
use std::path::PathBuf;
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Architecture, Model, NamedTensor};

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

/// Large enough that some moments are stored in 8 bits, and others are not.
fn model(dtype: DType) -> Model {
    let sizes = [
        ("d_model", 64),
        ("n_layers", 2),
        ("heads", 4),
        ("kv_heads", 2),
        ("d_ff", 96),
        ("max_seq", 32),
        ("vocab_size", 96),
    ];
    let given = sizes.into_iter().map(|(name, n)| (name.to_string(), ConstValue::int(n))).collect();
    let architecture = Architecture::from_library("llama", given).expect("in the library");
    Model::new_random(architecture, dtype, 7).expect("drawn")
}

fn batch(step: usize, accumulate: usize) -> Batch {
    let n = 2 * 12 * accumulate;
    let id = |i: usize| ((i * 31 + i * i * 7 + step * 13) % 96) as i32;
    Batch { ids: (0..n).map(id).collect(), labels: (1..=n).map(id).collect() }
}

fn recipe(name: &str, body: &str) -> PrecisionRecipe {
    let path: PathBuf = std::env::temp_dir().join(format!("tensorloom-few-bits-{}-{name}.module", std::process::id()));
    std::fs::write(&path, format!("recipe Mine:\n{body}")).expect("written");
    let found = tensorloom_models::parse_recipe(&path.display().to_string());
    let _ = std::fs::remove_file(&path);
    found.unwrap_or_else(|e| panic!("{e}")).expect("one")
}

const HYBRID: &str = "  forward_activation_dtype: fp8_e4m3\n  backward_gradient_dtype: fp8_e5m2\n";

fn trainer(how: &ObjectiveOptions<'_>, accumulate: usize, dtype: DType) -> LanguageModelTrainer {
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 12, gradient_accumulation_steps: accumulate };
    let trainer =
        LanguageModelTrainer::new(model(dtype), None, sizes, ADAM, how, &Cpu::new(2)).unwrap_or_else(|e| panic!("{e}"));
    trainer.with_seed(5)
}

fn steps(trainer: &mut LanguageModelTrainer, steps: std::ops::Range<usize>, accumulate: usize) -> Vec<f32> {
    steps.map(|step| trainer.step(&batch(step, accumulate), 3e-3, step).expect("runs").loss).collect()
}

/// A run that is resumed after three steps is bitwise equal to an uninterrupted one: histories, codes, scales, random numbers.
#[test]
fn runs_go_on_bit_for_bit() {
    let delayed = recipe("delayed", &format!("{HYBRID}  scaling_strategy: delayed\n  amax_history_len: 4\n"));
    let chance = recipe(
        "chance",
        &format!("{HYBRID}  scaling_strategy: delayed\n  update_interval: 2\n  stochastic_rounding: true\n"),
    );
    let fours = recipe(
        "fours",
        "  forward_activation_dtype: fp4_e2m1\n  backward_gradient_dtype: fp4_e2m1\n  scaling_strategy: per_block\n  block_size: (1, 32)\n  stochastic_rounding: true\n",
    );
    for (name, recipe, eight_bits, accumulate) in [
        ("delayed", Some(&delayed), false, 1),
        ("delayed, accumulated, moments in 8 bits", Some(&delayed), true, 2),
        ("by chance", Some(&chance), false, 1),
        ("mx by chance", Some(&fours), false, 1),
        ("moments in 8 bits", None, true, 1),
    ] {
        let how = ObjectiveOptions { recipe, eight_bit_moments: eight_bits, ..ObjectiveOptions::default() };
        let mut whole = trainer(&how, accumulate, DType::F32);
        let mut first = trainer(&how, accumulate, DType::F32);
        let all = steps(&mut whole, 0..6, accumulate);
        let mut parts = steps(&mut first, 0..3, accumulate);
        let state: Vec<NamedTensor> = first.state().expect("read");
        let mut second = trainer(&how, accumulate, DType::F32);
        second.restore(&state).unwrap_or_else(|e| panic!("{name}: {e}"));
        parts.extend(steps(&mut second, 3..6, accumulate));
        assert_eq!(all, parts, "{name}");
        let (a, b) = (whole.state().expect("read"), second.state().expect("read"));
        assert!(a.iter().zip(&b).all(|(a, b)| a.name == b.name && a.bytes == b.bytes), "{name}");
        assert_eq!(
            state.iter().any(|t| t.name.starts_with("history.")),
            name.contains("delayed") || name == "by chance"
        );
        let packed = state.iter().filter(|t| t.name.starts_with("first.") && t.dtype == DType::U8).count();
        assert_eq!(packed > 0, eight_bits, "{name}");
        // The state of a run without amax histories, or with other moments, can't be restored.
        if eight_bits || recipe.is_some_and(|r| r.operand_rounding.is_some_and(|few| few.lhs.delayed_scaling.is_some()))
        {
            let plain = trainer(&ObjectiveOptions::default(), accumulate, DType::F32).state().expect("read");
            assert!(second.restore(&plain).is_err(), "{name}");
        }
    }
}

/// The first step of delayed scaling has no history and equals dynamic scaling; later ones are close to it.
#[test]
fn delayed_scaling_is_near_dynamic_scaling() {
    let dynamic = recipe("now", HYBRID);
    let delayed = recipe("late", &format!("{HYBRID}  scaling_strategy: delayed\n"));
    for dtype in [DType::F32, DType::BF16] {
        let losses = |recipe: Option<&PrecisionRecipe>| {
            steps(&mut trainer(&ObjectiveOptions { recipe, ..ObjectiveOptions::default() }, 1, dtype), 0..12, 1)
        };
        let (now, late, wide) = (losses(Some(&dynamic)), losses(Some(&delayed)), losses(None));
        assert!((now[0] - late[0]).abs() < 1e-5 * now[0], "{now:?} {late:?}");
        assert_ne!(now[2], late[2]);
        assert_ne!(now[0], wide[0]);
        for (a, b) in late.iter().zip(&wide) {
            assert!((a - b).abs() < 0.03 * b, "{late:?} {wide:?}");
        }
    }
}

/// Training with 8-bit moments is close to training with f32 moments.
#[test]
fn moments_in_eight_bits_train_as_wide_ones() {
    let losses = |eight_bits: bool| {
        let mut trainer =
            trainer(&ObjectiveOptions { eight_bit_moments: eight_bits, ..ObjectiveOptions::default() }, 1, DType::F32);
        (steps(&mut trainer, 0..20, 1), trainer.planned_bytes())
    };
    let ((few, small), (wide, large)) = (losses(true), losses(false));
    assert!((few[0] - wide[0]).abs() < 1e-5 * wide[0], "{few:?} {wide:?}");
    assert_ne!(few[5], wide[5]);
    for (a, b) in few.iter().zip(&wide) {
        assert!((a - b).abs() < 0.02 * b, "{few:?} {wide:?}");
    }
    // About one byte instead of four, twice per trainable element.
    assert!(small < large, "{small} {large}");
}

/// A recipe also applies to evaluation and generation: logits are the same, step by step and at once.
#[test]
fn models_follow_recipes_outside_of_training() {
    let ids: Vec<Vec<i32>> = vec![(0..12).map(|i| (i * 7 % 96) as i32).collect()];
    let cpu = Cpu::new(2);
    let logits = |model: &Model| model.evaluate_on(&ids, None, &cpu).expect("runs").logits.to_f32_vec();
    let plain = logits(&model(DType::F32));
    for policy in ["fp8_hybrid", "fp8_pure", "fp4", "bf16"] {
        let few = model(DType::F32).with_recipe(PrecisionRecipe::model_policy(policy).expect("known"));
        let found = logits(&few);
        let size = plain.iter().fold(0f32, |m, x| m.max(x.abs()));
        let far = found.iter().zip(&plain).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(far > 1e-5 * size && far < 0.5 * size, "{policy}: {far} of {size}");
    }
}

/// A model with low-precision weights: rounding in the graph and quantized storage give the same results.
#[test]
fn weights_of_few_bits_are_packed_where_a_model_only_runs() {
    let text = "model M(vocab_size: int = 64, n: int = 32):\n  params:\n    table: [vocab_size, n]\n    a: [96, n] {a}\n    b: [n, 96] {b}\n    head: [vocab_size, n] {c}\n\n  \
                forward:\n    in: [B, T, int32]\n    out: [B, T, vocab_size]\n    graph:\n      (in, table) -> embedding() -> x\n      \
                x -> matmul(a, transpose=NT) -> silu() -> h\n      h -> matmul(b, transpose=NT) -> y\n      y -> matmul(head, transpose=NT) -> out\n";
    let cpu = Cpu::new(2);
    let ids: Vec<Vec<i32>> = vec![(0..9).map(|i| (i * 7 % 64) as i32).collect()];
    for notes in [
        ["@dtype(fp8_e4m3)", "@dtype(fp8_e5m2) @scaling(per_tensor)", "@dtype(int8)"],
        ["@dtype(int4)", "@dtype(fp4_e2m1)", "@dtype(fp4_e2m1) @scaling(per_block, block_size=(32, 32))"],
        ["@dtype(fp8_e4m3) @scaling(per_block, block_size=(16, 8))", "@precision(storage=int4)", ""],
    ] {
        let text = text.replace("{a}", notes[0]).replace("{b}", notes[1]).replace("{c}", notes[2]);
        let loader = lang::library::LibraryLoader(lang::resolve::MemoryLoader::new().with("m", "v1.0.0", &text));
        let program = lang::resolve::ModuleProgram::load("m", &loader);
        let architecture =
            Architecture::from_program(program, None, Default::default()).unwrap_or_else(|e| panic!("{e}"));
        for dtype in [DType::F32, DType::BF16] {
            let wide = Model::new_random(architecture.clone(), dtype, 3).expect("drawn");
            let packed = Model::new_random(architecture.clone(), dtype, 3)
                .expect("drawn")
                .with_quantized_params()
                .expect("packs");
            assert!(packed.is_quantized() && !wide.is_quantized());
            let logits = |model: &Model| model.evaluate_on(&ids, None, &cpu).expect("runs").logits.to_f32_vec();
            let (found, want) = (logits(&packed), logits(&wide));
            let size = want.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
            let bound = if dtype == DType::F32 { 1e-5 } else { 2e-2 };
            for (a, b) in found.iter().zip(&want) {
                assert!((a - b).abs() <= bound * size, "{notes:?} {dtype}: {a} {b}");
            }
        }
    }
}
