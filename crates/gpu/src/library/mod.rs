//! Library ops as kernels and matrix products, for any device.
//!
//! [`expand`] replaces the library steps of a program that it [`supports`] by kernels of `loops` and matrix products over the same
//! buffers, with temporary values after the program's arena. These are ordinary steps: lowered to grids,
//! checked by `grid::eval`, printed, timed, captured. The result is deterministic: two runs give the same bits.

mod along;
mod arg_reduce;
mod conv;
mod cumulative;
mod op_expansion;
mod ragged;
mod scatter;
mod sort;
mod window;

pub(crate) use op_expansion::{KernelWriter, OpExpansion, OpValue};

use crate::grid::GridLimits;
use compiler::UncheckedProgram;
use compiler::program::{Buffer, BufferId, BufferKind, BufferSlice, LoopStep, Program, Step, TripCount};
use ir::{DType, Op, Type};
use smallvec::SmallVec;

/// The alignment of temporary values.
const ALIGN: usize = 256;

/// The capabilities of a device that library ops depend on.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCaps {
    /// The limits of its kernels.
    pub limits: GridLimits,
    /// The dtypes of its matrix products.
    pub matmul_dtypes: &'static [DType],
    /// The maximum bytes of a temporary value.
    pub max_temporary_bytes: usize,
}

/// Whether an op is expanded to kernels and products.
pub fn supports(op: &Op, args: &[Type], means: &DeviceCaps) -> bool {
    expand_op(op, args, means).is_some()
}

/// The expansion of an op; none if it runs on the host.
fn expand_op(op: &Op, args: &[Type], means: &DeviceCaps) -> Option<OpExpansion> {
    let lacks = |d: DType| match d {
        DType::F64 => !means.limits.has_f64,
        DType::I64 | DType::U64 => !means.limits.has_int64,
        _ => false,
    };
    let outs = op.infer(args).ok()?;
    // Indices along a line and of window elements have 32 bits; so have intermediate sums of indices if the device has no int64.
    let most = if means.limits.has_int64 { i32::MAX as usize } else { 1 << 29 };
    let small = |t: &Type| t.numel() < most;
    if args.iter().chain(&outs).any(|t| lacks(t.dtype) || !small(t)) {
        return None;
    }
    let mut parts = OpExpansion::default();
    match op {
        Op::Sort(s) => sort::sort(&mut parts, s, args, means)?,
        Op::TopK(t) => sort::top_k(&mut parts, t, args, means)?,
        Op::ArgReduce(a) => arg_reduce::arg_reduce(&mut parts, a, &args[0], means)?,
        Op::Cumulative(c) => cumulative::cumulative(&mut parts, c, &args[0], means)?,
        Op::ReduceWindow(w) => window::reduce(&mut parts, w, &args[0], &outs[0], means)?,
        Op::WindowGather(w) => window::gather(&mut parts, w, args, &outs[0])?,
        Op::WindowScatter(w) => window::scatter(&mut parts, w, args)?,
        Op::Conv(c) => conv::conv(&mut parts, c, args, &outs[0], means)?,
        // There is nothing to compute, and sizes of zero must not be divisors.
        Op::TakeAlong(_) | Op::RaggedDot(_) if outs[0].numel() == 0 => {}
        Op::TakeAlong(t) => along::take(&mut parts, t, args, means)?,
        Op::PutAlong(p) => along::put(&mut parts, p, args, means)?,
        Op::RaggedDot(r) => ragged::ragged_dot(&mut parts, r, args, means)?,
        Op::Scatter(s) => scatter::scatter(&mut parts, s, args, means)?,
        _ => return None,
    }
    let fits = parts.temps.iter().all(|t| t.bytes() <= means.max_temporary_bytes && small(t) && !lacks(t.dtype));
    fits.then_some(parts)
}

/// The program with supported library ops expanded to kernels and products. `keep` states which ops the device implements
/// better itself.
pub fn expand(program: Program, means: &DeviceCaps, keep: &dyn Fn(&Op, &[Type]) -> bool) -> Program {
    let mut program = program.into_parts();
    let mut expander =
        Expander { means, keep, base: program.arena_bytes.next_multiple_of(ALIGN), most: 0, buffers: Vec::new() };
    expander.buffers = std::mem::take(&mut program.buffers);
    // The new position of each old step.
    let mut starts = Vec::with_capacity(program.steps.len() + 1);
    let mut steps = Vec::with_capacity(program.steps.len());
    for s in std::mem::take(&mut program.steps) {
        starts.push(steps.len());
        expander.step(s, &mut steps);
    }
    starts.push(steps.len());
    program.buffers = expander.buffers;
    if expander.most > 0 {
        program.arena_bytes = expander.base + expander.most;
    }
    for live in program.buffers.iter_mut().filter_map(|b| b.lifetime.as_mut()) {
        let end = starts.get(live.1 + 1).copied().unwrap_or(steps.len());
        *live = (starts.get(live.0).copied().unwrap_or(0), end.saturating_sub(1));
    }
    program.steps = steps;
    // SAFETY: the steps put in stay inside the op's operands and results, whose types are those of the step that they replace, and inside
    // temporary values of their own.
    unsafe { UncheckedProgram::new(program).assume_verified() }
}

struct Expander<'a> {
    means: &'a DeviceCaps,
    keep: &'a dyn Fn(&Op, &[Type]) -> bool,
    /// The start of temporary values in the arena; ops reuse the same memory, since steps run in order.
    base: usize,
    most: usize,
    buffers: Vec<Buffer>,
}

impl Expander<'_> {
    fn steps(&mut self, steps: Vec<Step>) -> Vec<Step> {
        let mut out = Vec::with_capacity(steps.len());
        steps.into_iter().for_each(|s| self.step(s, &mut out));
        out
    }

    fn step(&mut self, step: Step, out: &mut Vec<Step>) {
        match step {
            Step::Library { op, args, outs } => {
                let types: Vec<Type> = args.iter().map(|(_, t)| t.clone()).collect();
                let parts = if (self.keep)(&op, &types) { None } else { expand_op(&op, &types, self.means) };
                match parts {
                    Some(parts) => self.place(parts, &args, &outs, out),
                    None => out.push(Step::Library { op, args, outs }),
                }
            }
            Step::Loop(l) => {
                let LoopStep { depth: level, trip_count: trip, reverse, body, copies_after: after } = *l;
                let trip = match trip {
                    TripCount::While { test, flag } => TripCount::While { test: self.steps(test), flag },
                    other => other,
                };
                out.push(Step::Loop(Box::new(LoopStep {
                    depth: level,
                    trip_count: trip,
                    reverse,
                    body: self.steps(body),
                    copies_after: after,
                })));
            }
            Step::Branch { index, branches } => {
                let branches = branches.into_iter().map(|b| self.steps(b)).collect();
                out.push(Step::Branch { index, branches });
            }
            other => out.push(other),
        }
    }

    /// Assigns memory to the steps of an op.
    fn place(
        &mut self,
        parts: OpExpansion,
        args: &[(BufferSlice, Type)],
        outs: &[(BufferSlice, Type)],
        out: &mut Vec<Step>,
    ) {
        let mut at = self.base;
        let mut temps = Vec::with_capacity(parts.temps.len());
        for ty in &parts.temps {
            let offset = at;
            at = (at + ty.bytes()).next_multiple_of(ALIGN);
            temps.push(BufferId(self.buffers.len() as u32));
            self.buffers.push(Buffer { ty: ty.clone(), kind: BufferKind::Activation, offset, lifetime: None });
        }
        self.most = self.most.max(at - self.base);
        let place = |m: OpValue| match m {
            OpValue::Arg(i) => args[i].0.clone(),
            OpValue::Out(i) => outs[i].0.clone(),
            OpValue::Temp(i) => BufferSlice {
                buffer: compiler::program::BufferRef::Fixed(temps[i]),
                offset: 0,
                strides: SmallVec::new(),
            },
        };
        parts.steps(&place, out);
    }
}
