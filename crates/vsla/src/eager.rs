//! Eager ops on tensors (§18). Each op is a program with one node, which is planned once per shape and cached. Its machine code
//! also works for other shapes.

use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::describe::{ProgramBuilder, ValueId};
use crate::error::{Error, Result};
use crate::execution_stream::Stream;
use crate::infer::ValueSignature;
use crate::lower::Numerics;
use crate::op::Op;
use crate::plan::Plan;
use crate::tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The maximum number of one-op programs in the cache.
const MAX_CACHED_PLANS: usize = 256;

struct CachedPlan {
    plan: Plan,
    bindings: Bindings,
}

#[derive(Default)]
struct PlanCache {
    ready: BTreeMap<String, (u64, CachedPlan)>,
    clock: u64,
}

static CACHE: Mutex<PlanCache> = Mutex::new(PlanCache { ready: BTreeMap::new(), clock: 0 });

/// Runs any op on tensors. `seed` is used by random ops.
pub fn run(op: &Op, args: &[&Tensor], numerics: Numerics, seed: u64) -> Result<Vec<Tensor>> {
    let signatures: Vec<ValueSignature> = args.iter().map(|t| t.signature().clone()).collect();
    let key = format!("{op:?} {signatures:?} {numerics:?}");
    let taken = lock().ready.remove(&key);
    let mut ready = match taken {
        Some((_, r)) => r,
        None => prepare(op, &signatures, numerics)?,
    };
    let outs = run_cached(&mut ready, args, seed)?;
    keep(key, ready);
    Ok(outs)
}

/// Runs a cached program. Dense operands and results are used without a copy.
fn run_cached(ready: &mut CachedPlan, args: &[&Tensor], seed: u64) -> Result<Vec<Tensor>> {
    let CachedPlan { plan, bindings } = ready;
    let program = plan.program().clone();
    let mut inputs = Vec::with_capacity(args.len());
    for (v, t) in program.inputs().iter().zip(args) {
        match t.dense() {
            Some(data) => inputs.push((*v, data)),
            None => bindings.write(*v, t)?,
        }
    }
    if program.is_random() {
        bindings.seed(seed)?;
    }
    let made = program.outputs().iter().map(|v| Tensor::of(program.signature(*v).clone()));
    let mut outs: Vec<Tensor> = made.collect::<Result<_>>()?;
    let mut outputs = Vec::with_capacity(outs.len());
    let mut others = Vec::new();
    for (i, (v, t)) in program.outputs().iter().zip(&mut outs).enumerate() {
        match t.dense_mut() {
            Some(data) => outputs.push((*v, data)),
            None => others.push(i),
        }
    }
    plan.execute_on(bindings, &inputs, &mut outputs, &Stream::default())?;
    for i in others {
        outs[i] = bindings.read(program.outputs()[i])?;
    }
    Ok(outs)
}

/// Clears the cache of plans and frees their memory.
pub fn clear_plan_cache() {
    let gone = std::mem::take(&mut lock().ready);
    drop(gone);
}

/// Returns the number of cached plans.
pub fn cached_plans() -> usize {
    lock().ready.len()
}

fn lock() -> std::sync::MutexGuard<'static, PlanCache> {
    CACHE.lock().unwrap_or_else(|e| e.into_inner())
}

fn prepare(op: &Op, signatures: &[ValueSignature], numerics: Numerics) -> Result<CachedPlan> {
    let mut b = ProgramBuilder::new();
    b.numerics(numerics);
    let mut inputs: Vec<ValueId> = Vec::with_capacity(signatures.len());
    for s in signatures {
        b.model(s.model);
        inputs.push(b.input("", s.dtype, &s.shape)?);
    }
    for v in b.op(op.clone(), &inputs)? {
        b.output(v)?;
    }
    let plan = Plan::with_code(&Arc::new(b.build()?), Backend::global(), true)?;
    let bindings = plan.bind()?;
    Ok(CachedPlan { plan, bindings })
}

fn keep(key: String, ready: CachedPlan) {
    let mut cache = lock();
    cache.clock += 1;
    let now = cache.clock;
    cache.ready.insert(key, (now, ready));
    if cache.ready.len() > MAX_CACHED_PLANS {
        let oldest = cache.ready.iter().min_by_key(|(_, (t, _))| *t).map(|(k, _)| k.clone());
        if let Some(k) = oldest {
            cache.ready.remove(&k);
        }
    }
}

fn one(op: Op, args: &[&Tensor]) -> Result<Tensor> {
    first(run(&op, args, Numerics::default(), 0)?)
}

fn first(outs: Vec<Tensor>) -> Result<Tensor> {
    outs.into_iter().next().ok_or_else(|| Error::Unknown("an op without a result".into()))
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident(self $(, $arg:ident)* $(; $($attr:ident: $ty:ty),*)?) => $op:expr;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            pub fn $name(&self, $($arg: &Tensor,)* $($($attr: $ty),*)?) -> Result<Tensor> {
                one($op, &[self $(, $arg)*])
            }
        )* }
    };
}

methods! {
    /// [`Op::Add`].
    add(self, other) => Op::Add;
    /// [`Op::Sub`].
    sub(self, other) => Op::Sub;
    /// [`Op::Hadamard`].
    hadamard(self, other) => Op::Hadamard;
    /// [`Op::Conv1d`].
    conv1d(self, other) => Op::Conv1d;
    /// [`Op::Kronecker`].
    kronecker(self, other) => Op::Kronecker;
    /// [`Op::Matmul`].
    matmul(self, other) => Op::Matmul;
    /// [`Op::Mask`].
    mask(self, m) => Op::Mask;
    /// [`Op::Softmax`].
    softmax(self) => Op::Softmax;
    /// [`Op::LayerNorm`].
    layernorm(self, gamma, beta; eps: f64) => Op::LayerNorm { eps };
    /// [`Op::RmsNorm`].
    rmsnorm(self, gamma; eps: f64) => Op::RmsNorm { eps };
    /// [`Op::Relu`].
    relu(self) => Op::Relu;
    /// [`Op::Gelu`] in its exact form, with the error function.
    gelu(self) => Op::Gelu(crate::op::GeluForm::Erf);
    /// [`Op::Sigmoid`].
    sigmoid(self) => Op::Sigmoid;
    /// [`Op::Tanh`].
    tanh(self) => Op::Tanh;
    /// [`Op::Exp`].
    exp(self) => Op::Exp;
    /// [`Op::Log`].
    log(self) => Op::Log;
    /// [`Op::Sum`].
    sum(self; axis: i64) => Op::Sum { axis };
    /// [`Op::Mean`].
    mean(self; axis: i64) => Op::Mean { axis };
    /// [`Op::MulScalar`] by a number.
    mul_scalar(self; value: f64) => Op::MulScalar { value: Some(value) };
    /// [`Op::Repeat`].
    repeat(self; count: usize) => Op::Repeat { count };
    /// [`Op::Reshape`].
    reshape(self; shape: &[usize]) => Op::Reshape { shape: shape.to_vec() };
    /// [`Op::Transpose`].
    transpose(self; permutation: &[usize]) => Op::Transpose { permutation: permutation.to_vec() };
    /// [`Op::Slice`].
    slice(self; start: &[usize], limit: &[usize]) => Op::Slice { start: start.to_vec(), limit: limit.to_vec() };
    /// [`Op::Gather`].
    gather(self; indices: &[usize]) => Op::Gather { indices: indices.to_vec() };
    /// [`Op::Attention`] with this tensor as the queries.
    attention(self, k, v; heads: usize, lengths: &[usize]) => Op::Attention { heads, lengths: lengths.to_vec() };
    /// [`Op::Scatter`].
    scatter(self; indices: &[usize], size: usize) => Op::Scatter { indices: indices.to_vec(), size };
}

impl Tensor {
    /// [`Op::Dropout`] with a mask that is generated from a seed.
    pub fn dropout(&self, rate: f64, seed: u64) -> Result<Tensor> {
        first(run(&Op::Dropout { rate }, &[self], Numerics::default(), seed)?)
    }

    /// [`Op::Stack`].
    pub fn stack(parts: &[&Tensor]) -> Result<Tensor> {
        one(Op::Stack, parts)
    }

    /// [`Op::Conv1d`] by the given algorithm.
    pub fn conv1d_by(&self, other: &Tensor, path: crate::ConvAlgorithm) -> Result<Tensor> {
        let numerics = Numerics { conv: Some(path), ..Numerics::default() };
        first(run(&Op::Conv1d, &[self, other], numerics, 0)?)
    }
}
