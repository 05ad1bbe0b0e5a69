//! `loom bench` measures matrix multiplication, training and generation speed on this machine.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::device::DeviceArgs;
use crate::output::outln;
use crate::run::usage_error;
use compiler::{Backend, Bindings, Options};
use ir::{Builder, DType, GraphBuilder};
use models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use models::{Architecture, Model, SplitMix64};
use std::time::{Duration, Instant};

/// Options of `loom bench`.
#[derive(clap::Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    machine: DeviceArgs,
}

pub(crate) fn bench(args: &Bench) -> Result<ExitStatus, UsageError> {
    let cpu = args.machine.open()?;
    let cpu = &*cpu;
    outln!("{}", cpu.name());
    for n in [256, 512, 1024] {
        let rate = matmul(cpu, n).map_err(|e| UsageError(e.to_string()))?;
        outln!("{:<34}{:>8.0} GFLOP/s", format!("matmul {n} × {n}, f32"), rate / 1e9);
    }
    for dtype in [DType::F32, DType::BF16] {
        let rate = training(cpu, dtype).map_err(usage_error)?;
        outln!("{:<34}{rate:>8.0} tokens/s", format!("training the default Llama, {dtype}"));
    }
    let found = model(DType::F32)?.generate_greedy(&[1; 32], 128, cpu).map_err(usage_error)?;
    outln!("{:<34}{:>8.1} ms", "time to first token, 32-token prompt", found.time_to_first_token.as_secs_f64() * 1e3);
    outln!("{:<34}{:>8.0} tokens/s", "generating", 127.0 / found.decode_time.as_secs_f64());
    Ok(ExitStatus::Success)
}

/// Returns the floating-point operations per second of a square matrix product: the best of several runs.
pub(crate) fn matmul(cpu: &dyn Backend, n: usize) -> compiler::Result<f64> {
    let mut b = Builder::new();
    let (x, y) = (b.input(DType::F32, &[n, n]), b.input(DType::F32, &[n, n]));
    let z = b.matmul(x, y)?;
    let executable = cpu.load(compiler::compile(&b.finish(&[z]), cpu, &Options::default())?)?;
    let mut bindings = Bindings::for_program(executable.program(), cpu)?;
    let ones: Vec<u8> = 1f32.to_le_bytes().repeat(n * n);
    bindings.inputs.iter().try_for_each(|buffer| buffer.write(0, &ones))?;
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let started = Instant::now();
        executable.run(&mut bindings)?;
        best = best.min(started.elapsed());
    }
    Ok(2.0 * (n as f64).powi(3) / best.as_secs_f64())
}

/// Returns the small Llama that `loom train` uses by default.
fn model(dtype: DType) -> Result<Model, UsageError> {
    let sizes = [("vocab_size", 1024), ("d_model", 128), ("n_layers", 4), ("heads", 4), ("kv_heads", 4)];
    let sizes = sizes.into_iter().chain([("d_ff", 512), ("max_seq", 256)]);
    let mut given: std::collections::BTreeMap<_, _> =
        sizes.map(|(name, n)| (name.to_string(), lang::consteval::ConstValue::int(n))).collect();
    given.insert("tied".into(), lang::consteval::ConstValue::bool(true));
    let architecture = Architecture::from_library("llama", given).map_err(usage_error)?;
    Model::new_random(architecture, dtype, 1).map_err(usage_error)
}

/// Returns the training tokens per second: the best of several steps.
fn training(cpu: &dyn Backend, dtype: DType) -> models::Result<f64> {
    let model = model(dtype).map_err(|UsageError(text)| models::Error::Input(text))?;
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 256, gradient_accumulation_steps: 1 };
    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };
    let mut trainer = LanguageModelTrainer::new(model, None, sizes, adam, &ObjectiveOptions::default(), cpu)?;
    let mut random = SplitMix64::new(1, 1);
    let mut ids = || (0..4 * 256).map(|_| random.below(1024) as i32).collect::<Vec<i32>>();
    let batch = Batch { ids: ids(), labels: ids() };
    let mut best = Duration::MAX;
    for step in 0..20 {
        let started = Instant::now();
        trainer.step(&batch, 1e-3, step)?;
        best = best.min(started.elapsed());
    }
    Ok(1024.0 / best.as_secs_f64())
}
