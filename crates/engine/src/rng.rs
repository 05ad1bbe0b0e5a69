//! Random numbers (§11): counter-based, with a nonce for each draw.
//!
//! `samples = Threefry(seed ⊕ op nonce, (draw nonce, index))`. A draw reserves its nonce when it is recorded, so nonces follow
//! program order; the generator's loc counts committed draws. A recomputation reads the nonces from the recorded
//! graph, so it never advances the generator again (§11.7).

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::event::Effect;
use crate::record::{Recorder, Tensors, record};
use crate::state::EngineState;
use crate::state_cell::{LocId, LocRole};
use crate::tensor::Tensor;
use crate::trace::TraceMode;
use ir::composites::dropout;
use ir::ops::{Bitcast, Call, Threefry2x32};
use ir::{Binary, Builder, Compare, DType, GraphBuilder, Loc, Scalar, Type, Unary, Value, Values};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The key for draws in functions that are being recorded, and the number of draws so far.
    static KEY: RefCell<Option<(Tensor, u64)>> = const { RefCell::new(None) };
}

/// Runs `f`, a part of a function that is being recorded, with a random key (`u32[2]`): equal keys give equal random numbers.
/// Without a key, a draw in a recorded function is an error, since every call would give the same numbers.
pub fn with_rng_key<R>(key: &Tensor, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<(Tensor, u64)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEY.replace(self.0.take());
        }
    }
    let _restore = Restore(KEY.replace(Some((key.clone(), 0))));
    f()
}

/// The current key and the number of the next draw, if a function is being recorded and has a key.
fn next_keyed_draw() -> Option<(Tensor, u64)> {
    let trace = context::trace()?;
    if !matches!(trace.mode, TraceMode::Function) {
        return None;
    }
    KEY.with_borrow_mut(|key| {
        let (key, next) = key.as_mut()?;
        *next += 1;
        Some((key.clone(), *next - 1))
    })
}

/// A random draw: the op, the shape of its random bits, and the tensors that the op combines with them.
struct RandomDraw<'a> {
    op: OpNonce,
    shape: &'a [usize],
    args: &'a [&'a Tensor],
    at: &'a Loc,
}

/// A function that computes the samples from random bits and tensors.
trait DrawFn: FnOnce(&mut dyn Recorder, Value, &[Value]) -> ir::Result<Value> {}
impl<F: FnOnce(&mut dyn Recorder, Value, &[Value]) -> ir::Result<Value>> DrawFn for F {}

impl RandomDraw<'_> {
    /// Records a draw with a key; `f` computes the samples from the bits.
    fn draw_with_key(&self, (key, number): (Tensor, u64), f: impl DrawFn) -> Tensor {
        let all: Vec<&Tensor> = [&key].into_iter().chain(self.args.iter().copied()).collect();
        let g = |b: &mut dyn Recorder, v: &[Value]| {
            let bits = keyed_bits(b, v[0], number, self.op, self.shape)?;
            Ok(Values::from_elem(f(b, bits, &v[1..])?, 1))
        };
        record(self.at, 1, None, &all, g).swap_remove(0)
    }
}

/// Uniform random bits from a key; each draw has an independent stream.
fn keyed_bits(b: &mut dyn Recorder, key: Value, draw: u64, op: OpNonce, shape: &[usize]) -> ir::Result<Value> {
    let n: usize = shape.iter().product();
    let word = |b: &mut dyn Recorder, i: usize| -> ir::Result<Value> {
        let word = b.slice_axis(key, 0, i, i + 1)?;
        let word = b.reshape(word, &[])?;
        b.splat(word, &[n])
    };
    let (k0, k1) = (word(b, 0)?, word(b, 1)?);
    let stream = b.full(&Type::new(DType::U32, &[n]), Scalar::from_bits(DType::U32, draw << 3 | op as u64))?;
    let place = b.iota(DType::U32, &[n], 0)?;
    let out = b.one(threefry_first_word(n)?.into(), &[k0, k1, stream, place])?;
    b.reshape(out, shape)
}

/// The generator: its seed, and the number of draws scheduled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RngState {
    seed: u64,
    next: u64,
    loc: Option<LocId>,
}

/// A fixed nonce for each kind of random op.
#[derive(Clone, Copy)]
enum OpNonce {
    Uniform = 1,
    Normal = 2,
    Integer = 3,
    Bernoulli = 4,
    Dropout = 5,
}

impl EngineState {
    /// Reserves the nonce of the next draw.
    fn reserve(&mut self) -> u64 {
        self.rng.next += 1;
        self.rng.next - 1
    }

    /// Records draw events, in program order.
    pub(crate) fn record_draws(&mut self, nonces: &[u64], at: &Loc) {
        for &nonce in nonces {
            let loc = match self.rng.loc {
                Some(loc) => loc,
                None => self.new_loc(Type::new(DType::U32, &[4]).into(), LocRole::RngState),
            };
            self.rng.loc = Some(loc);
            self.emit(Effect::RngDraw { loc, nonce }, None, at);
        }
    }
}

/// Threefry without its second output word, which is not used here.
fn threefry_first_word(n: usize) -> ir::Result<Call> {
    let mut b = Builder::new();
    let args: Vec<Value> = (0..4).map(|_| b.input(DType::U32, &[n])).collect();
    let out = b.emit(Threefry2x32.into(), &args)?[0];
    Ok(Call { body: Arc::new(b.finish(&[out])) })
}

/// Uniform random bits from the engine's seed and a draw nonce.
fn bits(b: &mut dyn Recorder, seed: u64, nonce: u64, op: OpNonce, shape: &[usize]) -> ir::Result<Value> {
    let n: usize = shape.iter().product();
    let word = |b: &mut dyn Recorder, x: u64| {
        let v = b.scalar_constant(Scalar::from_bits(DType::U32, x & 0xffff_ffff))?;
        b.splat(v, &[n])
    };
    let k0 = word(b, seed ^ op as u64)?;
    let k1 = word(b, (seed >> 32) ^ (nonce >> 32))?;
    let x0 = word(b, nonce)?;
    let x1 = b.iota(DType::U32, &[n], 0)?;
    let out = b.one(threefry_first_word(n)?.into(), &[k0, k1, x0, x1])?;
    b.reshape(out, shape)
}

/// Converts 23 random bits to f32 in `0..1`, as the mantissa.
fn uniform(b: &mut dyn Recorder, bits: Value) -> ir::Result<Value> {
    let shape = b.ty(bits).shape;
    let ty = Type::new(DType::U32, &shape);
    let nine = b.full(&ty, Scalar::from_i64(DType::U32, 9))?;
    let one = b.full(&ty, Scalar::from_i64(DType::U32, 0x3f80_0000))?;
    let mantissa = b.binary(Binary::Shr, bits, nine)?;
    let x = b.binary(Binary::Or, mantissa, one)?;
    let x = b.one(Bitcast(DType::F32).into(), &[x])?;
    b.offset(x, -1.0)
}

impl Engine {
    /// Sets the seed and restarts the random sequence.
    pub fn manual_seed(&self, seed: u64) {
        let mut state = self.shared.state();
        state.rng.seed = seed;
        state.rng.next = 0;
    }

    fn draw(&self, draw: RandomDraw<'_>, f: impl DrawFn) -> Tensor {
        let at = &context::resolve_loc(draw.at);
        let trace = context::trace();
        if let Some(key) = next_keyed_draw() {
            return RandomDraw { at, ..draw }.draw_with_key(key, f);
        }
        let (seed, nonce) = {
            let mut state = self.shared.state();
            let nonce = state.reserve();
            (state.rng.seed, nonce)
        };
        match trace.as_ref().map(|t| &t.mode) {
            Some(TraceMode::Function) => {
                let reason = "a traced function would draw the same numbers at every call; pass a key or the numbers as \
                     arguments";
                return Tensor::with_error(Error::call("a random op", reason, at), Some(self));
            }
            // The region records its draws when its call is emitted.
            Some(TraceMode::Region(_)) => trace.iter().for_each(|t| t.state().draws.push(nonce)),
            Some(TraceMode::Checkpoint(_)) | None => self.shared.state().record_draws(&[nonce], at),
        }
        let g = |b: &mut dyn Recorder, v: &[Value]| {
            let bits = bits(b, seed, nonce, draw.op, draw.shape)?;
            Ok(Values::from_elem(f(b, bits, v)?, 1))
        };
        if draw.args.is_empty() {
            return self.record_new_tensor(at, g);
        }
        let mut out: Tensors = record(at, 1, Some(self), draw.args, g);
        out.swap_remove(0)
    }

    /// Uniform f32 samples in `0..1`.
    #[track_caller]
    pub fn rand(&self, shape: &[usize]) -> Tensor {
        self.draw(RandomDraw { op: OpNonce::Uniform, shape, args: &[], at: &Loc::caller() }, |b, bits, _| {
            uniform(b, bits)
        })
    }

    /// Normal f32 samples with mean 0 and standard deviation 1.
    #[track_caller]
    pub fn randn(&self, shape: &[usize]) -> Tensor {
        self.draw(RandomDraw { op: OpNonce::Normal, shape, args: &[], at: &Loc::caller() }, |b, bits, _| {
            let u = uniform(b, bits)?;
            // A value of −1 would give −∞.
            let low = -1.0f32.next_up() as f64;
            let u = b.scale(u, 2.0)?;
            let u = b.offset(u, low)?;
            let least = b.full_like(u, low)?;
            let u = b.binary(Binary::Max, u, least)?;
            let z = b.unary(Unary::ErfInv, u)?;
            b.scale(z, std::f64::consts::SQRT_2)
        })
    }

    /// Uniform i64 samples in `low..high`.
    #[track_caller]
    pub fn randint(&self, low: i64, high: i64, shape: &[usize]) -> Tensor {
        let at = context::resolve_loc(&Loc::caller());
        let Some(span) = high.checked_sub(low).filter(|s| (1..=u32::MAX as i64).contains(s)) else {
            let reason = format!("{low}..{high} must hold between 1 and 2³² - 1 integers");
            return Tensor::with_error(Error::call("randint", reason, &at), Some(self));
        };
        self.draw(RandomDraw { op: OpNonce::Integer, shape, args: &[], at: &at }, |b, bits, _| {
            let x = b.cast(bits, DType::I64)?;
            let span = b.full(&b.ty(x), Scalar::from_i64(DType::I64, span))?;
            let x = b.binary(Binary::Rem, x, span)?;
            let low = b.full(&b.ty(x), Scalar::from_i64(DType::I64, low))?;
            b.add(x, low)
        })
    }

    /// Bool samples that are true with probability `p`.
    #[track_caller]
    pub fn bernoulli(&self, p: f64, shape: &[usize]) -> Tensor {
        self.draw(RandomDraw { op: OpNonce::Bernoulli, shape, args: &[], at: &Loc::caller() }, |b, bits, _| {
            let u = uniform(b, bits)?;
            let p = b.full_like(u, p)?;
            b.compare(Compare::Lt, u, p)
        })
    }
}

impl Tensor {
    /// Sets elements to zero with probability `rate` and scales the others by `1/(1 - rate)`.
    #[track_caller]
    pub fn dropout(&self, rate: f64) -> Tensor {
        let at = context::resolve_loc(&Loc::caller());
        if self.invalid().is_some() {
            return self.clone();
        }
        let f = |b: &mut dyn Recorder, bits: Value, v: &[Value]| {
            let types = [b.ty(v[0]), b.ty(bits)];
            let make = || dropout::dropout(&types[0], &types[1], rate);
            let op = crate::intern::composite("dropout", &types, &[rate], make)?;
            Ok(b.emit(op.into(), &[v[0], bits])?[0])
        };
        let draw = RandomDraw { op: OpNonce::Dropout, shape: self.shape(), args: &[self], at: &at };
        if let Some(key) = next_keyed_draw() {
            return draw.draw_with_key(key, f);
        }
        match self.any_engine(&at) {
            Ok(engine) => engine.draw(draw, f),
            Err(e) => Tensor::with_error(e, None),
        }
    }

    /// The engine whose generator is used: the tensor's, or the region's.
    fn any_engine(&self, at: &Loc) -> Result<Engine> {
        if let Some(e) = self.engine() {
            return Ok(e.clone());
        }
        match context::trace().as_ref().map(|t| &t.mode) {
            Some(TraceMode::Region(e) | TraceMode::Checkpoint(e)) => Ok(e.clone()),
            _ => {
                let reason = "a traced function would draw the same numbers at every call; pass a key or the numbers as \
                     arguments";
                Err(Error::call("dropout", reason, at))
            }
        }
    }
}
