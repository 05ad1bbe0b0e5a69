//! Lowers a scan with an elementwise body to one kernel with the loop inside.
//!
//! With few lanes, a vector of lanes runs through all iterations with its carries in registers. With many lanes, blocks of lanes
//! run in parallel; within a block the loop over iterations is outermost and the carries are in scratch memory that fits in the
//! L1 cache.

use super::emit::{Bind, Emitter, Scope};
use super::expr::ExprId;
use super::generate::{Generator, LowerFailure, ValueSource};
use super::index::AffineIndex;
use super::iteration_space::IterationSpace;
use super::lower::{LoopShape, Lowered, Param, divisor_near, forms, merge, var_atoms};
use crate::loops::{self, AccessMode, Buf, Carried, Extent, LoopKind, Reg, Size, Stmt};
use crate::target::{LoopSchedule, Target};
use ir::ops::Scan;
use ir::{Binary, DType, Graph, Scalar, Value};

/// The role of a kernel parameter in the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanParam {
    /// The number of iterations.
    Count,
    /// The n-th operand after the count, if any: a constant or a scanned input.
    Operand(usize),
    /// The initial value of the n-th carry.
    Init(usize),
    /// The n-th result: a final carry or a stacked output.
    Result(usize),
    /// Private memory.
    Scratch(usize),
}

/// The kernel of a scan, or the reason why it cannot be one kernel.
pub(crate) fn lower_scan(scan: &Scan, target: &Target) -> Result<(Lowered, Vec<ScanParam>), LowerFailure> {
    let body = &*scan.body;
    let (nc, nk) = (scan.consts, scan.carries);
    let inputs = body.inputs();
    let outputs = body.outputs();
    let Some(&first) = outputs.first() else { return Err(LowerFailure::NotScalar) };
    let shape = body.ty(first).shape.clone();
    if outputs.iter().any(|&v| body.ty(v).shape != shape) || scan.length == 0 || shape.contains(&0) {
        return Err(LowerFailure::Mismatch);
    }
    let space = IterationSpace::new(&shape, &[]);
    let lanes = space.extents.len();
    if lanes > 40 {
        return Err(LowerFailure::NotScalar);
    }
    // The iteration number is one more variable, after the lanes.
    let time = lanes;
    let sources = |v: Value| match inputs.iter().position(|&i| i == v) {
        None => ValueSource::Inline,
        Some(i) if i < nc => ValueSource::Memory { shift: None },
        Some(i) if i < nc + nk => ValueSource::Carry(i - nc),
        Some(_) => ValueSource::Memory { shift: None },
    };
    let mut g = Generator::new(body, &sources);
    g.uncut = u64::MAX;
    let (full, row) = space.index(&mut g.atoms);
    g.full = full.clone();
    g.row = row;
    let at = step_index(&mut g, scan, time)?;
    let with_time = |v: Value| match inputs.iter().position(|&i| i == v) {
        Some(i) if i >= nc + nk => ValueSource::Memory { shift: Some(at.scale(body.ty(v).numel() as i64)) },
        _ => sources(v),
    };
    g.sources = &with_time;
    let mut results = Vec::with_capacity(outputs.len());
    for &v in outputs {
        results.push(g.value(v, &full, None)?);
    }
    // The stores of one iteration: stacked outputs go to their slice; carries are not stored.
    let mut lane = AffineIndex::default();
    for (i, s) in full.iter().zip(body.ty(first).strides()) {
        lane = lane.add(&i.scale(s as i64));
    }
    let numel: i64 = shape.iter().product::<usize>() as i64;
    let stacked = lane.add(&at.scale(numel));
    let stores =
        outputs[nk..].iter().zip(&results[nk..]).map(|(&v, &e)| (v, super::lower::ValueRole::Full, e, stacked.clone()));
    let stores: Vec<super::lower::Store> = stores.collect();

    let mut extents = space.extents.clone();
    extents.push(scan.length as i64);
    let atoms = var_atoms(&g, lanes + 1);
    let coefficient = |l: &AffineIndex, v: usize| atoms[v].map_or(0, |a| l.coefficient(a));
    let mut all = forms(&g, &stores);
    all.push(&lane);
    let (merged, joint) = merge(&all, &extents, &coefficient, &|v| (v == time) as usize);
    let alive: Vec<usize> = (0..lanes).filter(|&v| merged[v].is_none()).collect();
    if alive.len() > 1 {
        return Err(LowerFailure::Mismatch);
    }
    let vector = alive.first().copied();
    // On a grid each thread keeps the carries of its lane in registers.
    let (most, wide, whole) = match target.schedule {
        LoopSchedule::Workers(w) => (w.max_register_scan_lanes, w.scan_block_lanes, w.max_single_block_scan_lanes),
        LoopSchedule::Grid => (i64::MAX, i64::MAX, i64::MAX),
    };
    let blocked = vector.is_some_and(|v| joint[v] > most);
    let block = match vector.filter(|_| blocked) {
        Some(v) => {
            let n = joint[v];
            let even = divisor_near(n, wide).or_else(|| divisor_near(n, n / 2));
            // Blocks need not be a multiple of the vector width. Unless there are very many lanes, one block of all lanes is
            // faster than one program step per iteration.
            let any = || (most / 8..=wide.min(n / 2)).rev().find(|d| n % d == 0);
            Some(even.or_else(any).or((n <= whole).then_some(n)).ok_or(LowerFailure::Mismatch)?)
        }
        None => None,
    };
    let cost: u64 = results.iter().map(|&e| g.exprs.info(e).cost as u64 + 1).sum();
    let work = scan.length as u64 * numel as u64 * cost;
    let shape = LoopShape {
        parallel: vec![],
        serial: vec![],
        vector,
        block,
        interleaved_rows: None,
        cols: vec![],
        merged,
        extents: joint,
        work,
    };
    let run = shape.run();
    // The emitter's variables are the lanes and the iteration number.
    let mut emit = Emitter::with_vars(g, lanes + 1, shape, stores, target);
    let mut writer = ScanEmitter { scan, body, emit: &mut emit, time, lane, results, params: Vec::new() };
    let parallel = if blocked {
        Some(writer.emit_lane_blocks())
    } else {
        writer.emit_in_registers();
        None
    };
    let params = writer.params;
    if params.len() > target.kernel.buffers {
        return Err(LowerFailure::Mismatch);
    }
    let mut kernel = emit.b.finish();
    kernel.name = format!("scan{:?}x{}", body.ty(first).shape.as_slice(), scan.length);
    let lowered = Lowered { kernel, params: vec![Param::Scratch(0); params.len()], parallel, work, run };
    Ok((lowered, params))
}

/// The index of the current slice as a function of the iteration number.
fn step_index(g: &mut Generator<'_>, scan: &Scan, time: usize) -> Result<AffineIndex, LowerFailure> {
    let t = AffineIndex::atom(g.atoms.var(time, scan.length as i64));
    match (scan.reverse, scan.bounded) {
        (false, _) => Ok(t),
        (true, false) => Ok(t.scale(-1).plus(scan.length as i64 - 1)),
        // A reverse scan starts at its last iteration, whose number is known only at run time.
        (true, true) => Err(LowerFailure::NotScalar),
    }
}

struct ScanEmitter<'w, 'a> {
    scan: &'w Scan,
    body: &'w Graph,
    emit: &'w mut Emitter<'a>,
    time: usize,
    lane: AffineIndex,
    results: Vec<ExprId>,
    params: Vec<ScanParam>,
}

impl ScanEmitter<'_, '_> {
    fn carry_dtype(&self, k: usize) -> DType {
        self.body.ty(self.body.outputs()[k]).dtype
    }

    fn buffer(&mut self, dtype: DType, mode: AccessMode, param: ScanParam) -> Buf {
        self.params.push(param);
        self.emit.b.buffer(dtype, mode)
    }

    /// Declares buffers for the body's inputs and stacked outputs.
    fn declare(&mut self) -> (Option<Buf>, Vec<Buf>, Vec<Buf>) {
        let (nc, nk) = (self.scan.consts, self.scan.carries);
        let count = self.scan.bounded.then(|| self.buffer(DType::I32, AccessMode::Read, ScanParam::Count));
        let mut init = Vec::new();
        for (i, &v) in self.body.inputs().iter().enumerate() {
            let dtype = self.body.ty(v).dtype;
            let is_carry = (nc..nc + nk).contains(&i);
            let param = if is_carry { ScanParam::Init(i - nc) } else { ScanParam::Operand(i) };
            let b = self.buffer(dtype, AccessMode::Read, param);
            if is_carry {
                init.push(b);
            } else {
                self.emit.bufs.insert(v, b);
            }
        }
        let mut finals = Vec::new();
        for k in 0..self.body.outputs().len() {
            let b = self.buffer(self.carry_dtype(k), AccessMode::Write, ScanParam::Result(k));
            if k < nk {
                finals.push(b);
            } else {
                self.emit.stack_bufs.push(b);
            }
        }
        (count, init, finals)
    }

    fn extent(&self, count: Option<Buf>) -> Extent {
        let bound = Size::Const(self.scan.length as i64);
        match count {
            Some(buf) => Extent::Bounded { bound, buf, index: loops::Index::default() },
            None => Extent::Exact(bound),
        }
    }

    /// Stores the stacked outputs of one iteration.
    fn stacks(&mut self) {
        let stores = self.emit.stores.clone();
        for (k, (_, _, e, at)) in stores.iter().enumerate() {
            let r = self.emit.reg(*e);
            let index = self.emit.index(at);
            let buf = self.emit.stack_bufs[k];
            self.emit.b.store(buf, index, r);
        }
    }

    fn emit_in_registers(&mut self) {
        let (count, init, finals) = self.declare();
        self.emit.hoist_all();
        let vector = self.emit.shape.vector;
        let run = |w: &mut Self| {
            let nk = w.scan.carries;
            let mut start = Vec::with_capacity(nk);
            for &b in &init {
                let index = w.emit.index(&w.lane.clone());
                start.push(w.emit.b.load(b, index));
            }
            w.emit.hoist_all();
            let var = w.emit.b.var();
            let phis: Vec<Reg> = (0..nk).map(|k| w.emit.b.reg(w.carry_dtype(k))).collect();
            w.emit.b.begin();
            w.emit.scopes.push(Scope::default());
            let before = w.emit.bound;
            w.emit.set_bound(w.time, Bind::Var(var));
            w.emit.carries = phis.clone();
            w.stacks();
            let nexts: Vec<Reg> = (0..nk).map(|k| w.emit.reg(w.results[k])).collect();
            let nexts = copy_carries(w.emit, nexts, &phis);
            w.emit.unbind(w.time, before);
            w.emit.scopes.pop();
            let body = w.emit.b.end();
            let mut carried = Vec::new();
            let mut outs = Vec::new();
            for k in 0..nk {
                let out = w.emit.b.reg(w.carry_dtype(k));
                carried.push(Carried { init: start[k], phi: phis[k], next: nexts[k], out, combine: None });
                outs.push(out);
            }
            let extent = w.extent(count);
            w.emit.b.push(Stmt::Loop(loops::Loop { var, extent, kind: LoopKind::Serial, carried, body }));
            for (k, out) in outs.into_iter().enumerate() {
                let index = w.emit.index(&w.lane.clone());
                w.emit.b.store(finals[k], index, out);
            }
        };
        match vector {
            None => run(self),
            Some(v) => {
                let var = self.emit.b.var();
                self.emit.b.begin();
                self.emit.scopes.push(Scope::default());
                self.emit.set_bound(v, Bind::Var(var));
                run(self);
                self.emit.scopes.pop();
                let body = self.emit.b.end();
                let extent = Extent::Exact(Size::Const(self.emit.shape.extents[v]));
                let kind = LoopKind::Vector;
                self.emit.b.push(Stmt::Loop(loops::Loop { var, extent, kind, carried: Vec::new(), body }));
            }
        }
    }

    /// Emits parallel blocks of lanes and returns their number.
    fn emit_lane_blocks(&mut self) -> i64 {
        let (count, init, finals) = self.declare();
        let nk = self.scan.carries;
        let v = self.emit.shape.vector.expect("only vectors are cut into blocks");
        let block = self.emit.shape.block.expect("chosen with the blocks");
        let blocks = self.emit.shape.extents[v] / block;
        let scratch: Vec<Buf> = (0..nk)
            .map(|k| {
                let d = self.carry_dtype(k);
                self.buffer(d, AccessMode::Scratch(block as usize), ScanParam::Scratch(block as usize * d.size()))
            })
            .collect();
        self.emit.hoist_all();
        let p = self.emit.b.var();
        self.emit.b.begin();
        self.emit.scopes.push(Scope::default());
        let k = self.emit.b.index(p);
        let size = self.emit.b.constant(Scalar::from_i64(DType::I64, block));
        let start = self.emit.b.binary(Binary::Mul, k, size);
        self.lanes(v, start, block, |w, lane| {
            for k in 0..nk {
                let index = w.emit.index(&w.lane.clone());
                let r = w.emit.b.load(init[k], index);
                w.emit.b.store(scratch[k], lane, r);
            }
        });
        let t = self.emit.b.var();
        self.emit.b.begin();
        self.emit.scopes.push(Scope::default());
        let before = self.emit.bound;
        self.emit.set_bound(self.time, Bind::Var(t));
        self.emit.hoist_all();
        self.lanes(v, start, block, |w, lane| {
            w.emit.carries = scratch.iter().map(|&b| w.emit.b.load(b, lane)).collect();
            w.stacks();
            let nexts: Vec<Reg> = (0..nk).map(|k| w.emit.reg(w.results[k])).collect();
            for (k, r) in nexts.into_iter().enumerate() {
                w.emit.b.store(scratch[k], lane, r);
            }
        });
        self.emit.unbind(self.time, before);
        self.emit.scopes.pop();
        let body = self.emit.b.end();
        let extent = self.extent(count);
        self.emit.b.push(Stmt::Loop(loops::Loop { var: t, extent, kind: LoopKind::Serial, carried: Vec::new(), body }));
        self.lanes(v, start, block, |w, lane| {
            for k in 0..nk {
                let r = w.emit.b.load(scratch[k], lane);
                let index = w.emit.index(&w.lane.clone());
                w.emit.b.store(finals[k], index, r);
            }
        });
        self.emit.scopes.pop();
        let body = self.emit.b.end();
        let extent = Extent::Exact(Size::Const(blocks));
        self.emit.b.push(Stmt::Loop(loops::Loop {
            var: p,
            extent,
            kind: LoopKind::Parallel,
            carried: Vec::new(),
            body,
        }));
        blocks
    }

    /// Emits a vector loop over the lanes of a block.
    fn lanes(&mut self, v: usize, start: Reg, block: i64, f: impl FnOnce(&mut Self, loops::Var)) {
        let var = self.emit.b.var();
        self.emit.b.begin();
        self.emit.scopes.push(Scope::default());
        let before = self.emit.bound;
        self.emit.set_bound(v, Bind::Block(start, var));
        f(self, var);
        self.emit.unbind(v, before);
        self.emit.scopes.pop();
        let body = self.emit.b.end();
        let extent = Extent::Exact(Size::Const(block));
        self.emit.b.push(Stmt::Loop(loops::Loop { var, extent, kind: LoopKind::Vector, carried: Vec::new(), body }));
    }
}

/// Copies carries into registers that are defined in the loop, because an unchanged or swapped carry is a `phi`.
fn copy_carries(emit: &mut Emitter<'_>, nexts: Vec<Reg>, phis: &[Reg]) -> Vec<Reg> {
    let outer = |emit: &Emitter<'_>, r: Reg| phis.contains(&r) || !emit.defined_here(r);
    nexts
        .into_iter()
        .map(|r| {
            if outer(emit, r) {
                let dtype = emit.b.dtype(r);
                emit.b.let_(dtype, loops::Op::Bitcast(dtype, r))
            } else {
                r
            }
        })
        .collect()
}
