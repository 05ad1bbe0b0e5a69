//! Emits statements and loops.
//!
//! A vector loop is emitted up to three times: with several vectors side by side, with one vector of four lanes, and with one
//! lane at a time for the remainder. A register that varies by lane is a list of locals: one v128 for four lanes of up to 32
//! bits, two for four lanes of 64 bits, repeated for each unrolled copy.

use super::body::{Body, L, offset_memarg};
use super::{CompileError, Helper};
use compiler::loops::lanes::{identity, is_vector, varying};
use compiler::loops::{Carried, Extent, Index, Kernel, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::{Binary, DType, Scalar};
use rustc_hash::FxHashMap;
use wasm_encoder::{BlockType, Instruction as I, ValType};

/// The number of lanes of a vector.
pub(crate) const LANES: usize = 4;
/// The maximum number of vectors that are unrolled side by side.
const COPIES: usize = 4;

/// Returns the WebAssembly type of a register of a dtype.
pub(crate) fn register_type(d: DType) -> ValType {
    match d {
        DType::F64 => ValType::F64,
        d if d.is_float() => ValType::F32,
        d if d.size() == 8 => ValType::I64,
        _ => ValType::I32,
    }
}

/// The locals of a vector value.
pub(crate) type Parts = Vec<L>;

/// The vector loop that is being emitted.
#[derive(Clone, Copy)]
pub(crate) struct VectorLoop {
    pub(crate) var: Var,
    pub(crate) copies: usize,
}

pub(crate) struct KernelWriter<'a> {
    pub(crate) k: &'a Kernel,
    pub(crate) b: Body,
    pub(crate) helper: &'a Helper,
    pub(crate) varying: Vec<bool>,
    pub(crate) constants: Vec<Option<Scalar>>,
    scalars: Vec<Option<L>>,
    parts: Vec<Option<Parts>>,
    /// Whether a uniform register is read by lanes.
    splatted: Vec<bool>,
    pub(crate) bufs: Vec<L>,
    pub(crate) sizes: Vec<L>,
    pub(crate) vars: Vec<Option<L>>,
    pub(crate) vectors: Option<VectorLoop>,
    /// The variable of the innermost enclosing loop.
    pub(crate) innermost: Option<Var>,
    range: (L, L),
    /// The address of an access without the innermost loop's variable, computed before that loop.
    pub(crate) bases: FxHashMap<*const Index, L>,
}

pub(crate) fn write(k: &Kernel, helper: &Helper) -> Result<Body, CompileError> {
    let mut b = Body::new(4);
    let bufs = (0..k.buffers.len() as u64).map(|i| b.i32(I::I32Load(offset_memarg(4 * i)), &[0])).collect();
    let sizes = (0..k.sizes as u64).map(|i| b.i64(I::I64Load(offset_memarg(8 * i)), &[1])).collect();
    let range = (b.i32(I::I32WrapI64, &[2]), b.i32(I::I32WrapI64, &[3]));
    let mut w = KernelWriter {
        k,
        b,
        helper,
        varying: varying(k),
        constants: vec![None; k.regs.len()],
        scalars: vec![None; k.regs.len()],
        parts: vec![None; k.regs.len()],
        splatted: vec![false; k.regs.len()],
        bufs,
        sizes,
        vars: vec![None; k.vars as usize],
        vectors: None,
        innermost: None,
        range,
        bases: FxHashMap::default(),
    };
    w.analyze(&k.body)?;
    w.block(&k.body)?;
    match w.b.size() {
        n if n > 40_000 => Err(CompileError::TooLarge(n)),
        _ => Ok(w.b),
    }
}

impl KernelWriter<'_> {
    pub(crate) fn dtype(&self, r: Reg) -> DType {
        self.k.regs[r.0 as usize]
    }

    /// Finds constants, uniform registers that lanes read, and loops that are too long.
    fn analyze(&mut self, body: &[Stmt]) -> Result<(), CompileError> {
        for s in body {
            match s {
                Stmt::Let { dst, op } => {
                    if let Op::Const(c) = op {
                        self.constants[dst.0 as usize] = Some(*c);
                    }
                    if self.varying[dst.0 as usize] {
                        let mask = match op {
                            Op::Load { mask, .. } => mask.map(|(m, _)| m),
                            _ => None,
                        };
                        op.operands().chain(mask).for_each(|r| self.splatted[r.0 as usize] = true);
                    }
                }
                Stmt::Store { value, mask, .. } => {
                    self.splatted[value.0 as usize] = true;
                    mask.iter().for_each(|m| self.splatted[m.0 as usize] = true);
                }
                Stmt::Loop(l) => {
                    let bound = match &l.extent {
                        Extent::Exact(n) | Extent::Bounded { bound: n, .. } => n,
                    };
                    if let Size::Const(n) = bound
                        && *n > i32::MAX as i64
                    {
                        return Err(CompileError::TooLong(*n));
                    }
                    for c in &l.carried {
                        let lanes = self.varying[c.phi.0 as usize];
                        [c.init, c.next].iter().for_each(|r| self.splatted[r.0 as usize] |= lanes);
                    }
                    self.analyze(&l.body)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the local of a register outside of lanes.
    pub(crate) fn scalar(&mut self, r: Reg) -> L {
        match self.constants[r.0 as usize] {
            Some(c) => self.constant(c),
            None => self.scalars[r.0 as usize].expect("registers are defined before they are used"),
        }
    }

    /// Returns the locals of a register in lanes.
    pub(crate) fn lanes(&mut self, r: Reg) -> Parts {
        match self.constants[r.0 as usize] {
            Some(c) => self.constant_parts(c),
            None => self.parts[r.0 as usize].clone().expect("registers are defined before they are used"),
        }
    }

    fn in_lanes(&self, r: Reg) -> bool {
        self.vectors.is_some() && self.varying[r.0 as usize]
    }

    /// The number of locals of a vector value.
    pub(crate) fn count(&self, d: DType) -> usize {
        self.vectors.map_or(1, |v| v.copies) * if d.size() == 8 { 2 } else { 1 }
    }

    fn scalar_local(&mut self, r: Reg) -> L {
        if let Some(l) = self.scalars[r.0 as usize] {
            return l;
        }
        let l = self.b.local(register_type(self.dtype(r)));
        self.scalars[r.0 as usize] = Some(l);
        l
    }

    fn part_locals(&mut self, r: Reg) -> Parts {
        let n = self.count(self.dtype(r));
        if let Some(p) = &self.parts[r.0 as usize]
            && p.len() == n
        {
            return p.clone();
        }
        let p: Parts = (0..n).map(|_| self.b.local(ValType::V128)).collect();
        self.parts[r.0 as usize] = Some(p.clone());
        p
    }

    fn define(&mut self, r: Reg, value: L) {
        let own = self.scalar_local(r);
        self.b.get(value);
        self.b.set(own);
        self.splat(r);
    }

    /// Broadcasts a uniform register to lanes, if they read it.
    fn splat(&mut self, r: Reg) {
        if self.vectors.is_some() && self.splatted[r.0 as usize] && !self.varying[r.0 as usize] {
            let (d, own) = (self.dtype(r), self.scalar(r));
            let v = self.splat_of(d, own);
            let n = self.count(d);
            self.parts[r.0 as usize] = Some(vec![v; n]);
        }
    }

    fn define_lanes(&mut self, r: Reg, value: &[L]) {
        let own = self.part_locals(r);
        for (o, v) in own.iter().zip(value) {
            self.b.get(*v);
            self.b.set(*o);
        }
    }

    fn block(&mut self, body: &[Stmt]) -> Result<(), CompileError> {
        for s in body {
            match s {
                Stmt::Let { op: Op::Const(_), .. } => {}
                Stmt::Let { dst, op } if self.in_lanes(*dst) => {
                    let v = self.vector_let(op, self.dtype(*dst));
                    self.define_lanes(*dst, &v);
                }
                Stmt::Let { dst, op } => {
                    let v = self.scalar_let(op, self.dtype(*dst));
                    self.define(*dst, v);
                }
                Stmt::Store { buf, index, value, mask } => match self.vectors {
                    None => self.scalar_store(*buf, index, *value, *mask),
                    Some(v) => self.vector_store(v, *buf, index, *value, *mask),
                },
                Stmt::Loop(l) => self.loop_(l)?,
            }
        }
        Ok(())
    }

    pub(crate) fn size32(&mut self, s: Size) -> L {
        match s {
            Size::Const(n) => self.b.const_i32(n as i32),
            Size::Arg(n) => {
                let l = self.sizes[n as usize];
                self.b.i32(I::I32WrapI64, &[l])
            }
        }
    }

    fn min(&mut self, a: L, b: L) -> L {
        self.b.get(a);
        self.b.get(b);
        let less = self.b.i32(I::I32LtS, &[a, b]);
        self.b.get(less);
        self.b.push(I::Select);
        self.b.take(ValType::I32)
    }

    fn loop_(&mut self, l: &Loop) -> Result<(), CompileError> {
        let mut n = match &l.extent {
            Extent::Exact(n) => self.size32(*n),
            Extent::Bounded { bound, buf, index } => {
                // These are uniform even inside a vector loop.
                let lanes = self.vectors.take();
                let count = self.scalar_load(*buf, index);
                self.vectors = lanes;
                let bound = self.size32(*bound);
                self.min(count, bound)
            }
        };
        let zero = self.b.const_i32(0);
        if !matches!(l.extent, Extent::Exact(Size::Const(0..))) {
            let some = self.b.i32(I::I32GtS, &[n, zero]);
            [n, zero, some].iter().for_each(|&l| self.b.get(l));
            self.b.push(I::Select);
            n = self.b.take(ValType::I32);
        }
        let begin = match l.kind {
            LoopKind::Parallel => {
                n = self.min(n, self.range.1);
                self.range.0
            }
            _ => zero,
        };
        self.enter(l);
        if is_vector(l) && self.vectors.is_none() { self.vector_loop(l, n) } else { self.serial(l, begin, n) }
    }

    fn init(&mut self, c: &Carried) {
        if self.in_lanes(c.phi) {
            let v = self.lanes(c.init);
            self.define_lanes(c.phi, &v);
        } else {
            let v = self.scalar(c.init);
            self.define(c.phi, v);
        }
    }

    /// Assigns all carried values at once, because a `next` may be another value's `phi`.
    fn carry(&mut self, carried: &[Carried]) {
        let mut targets = Vec::new();
        for c in carried {
            if self.in_lanes(c.phi) {
                self.lanes(c.next).iter().for_each(|&l| self.b.get(l));
                targets.extend(self.part_locals(c.phi));
            } else {
                let next = self.scalar(c.next);
                self.b.get(next);
                targets.push(self.scalar_local(c.phi));
            }
        }
        targets.iter().rev().for_each(|&l| self.b.set(l));
    }

    fn serial(&mut self, l: &Loop, begin: L, end: L) -> Result<(), CompileError> {
        for c in &l.carried {
            self.init(c);
        }
        self.iterate(l, begin, end, 1)?;
        for c in &l.carried {
            if self.in_lanes(c.phi) {
                let v = self.lanes(c.phi);
                self.define_lanes(c.out, &v);
            } else {
                let v = self.scalar(c.phi);
                self.define(c.out, v);
            }
        }
        Ok(())
    }

    /// Runs the body for `begin, begin + step, ..` below `end`; `phi`s must be set before.
    fn iterate(&mut self, l: &Loop, begin: L, end: L, step: usize) -> Result<(), CompileError> {
        let i = self.b.local(ValType::I32);
        self.b.get(begin);
        self.b.set(i);
        let some = self.b.i32(I::I32LtS, &[i, end]);
        self.b.get(some);
        self.b.push(I::If(BlockType::Empty));
        self.b.push(I::Loop(BlockType::Empty));
        let before = self.vars[l.var.0 as usize].replace(i);
        let around = self.innermost.replace(l.var);
        for c in &l.carried {
            self.splat(c.phi);
        }
        self.block(&l.body)?;
        self.carry(&l.carried);
        self.b.get(i);
        self.b.push(I::I32Const(step as i32));
        self.b.push(I::I32Add);
        self.b.push(I::LocalTee(i));
        self.b.get(end);
        self.b.push(I::I32LtS);
        self.b.push(I::BrIf(0));
        self.b.push(I::End);
        self.b.push(I::End);
        self.vars[l.var.0 as usize] = before;
        self.innermost = around;
        Ok(())
    }

    fn vector_loop(&mut self, l: &Loop, n: L) -> Result<(), CompileError> {
        let known = match l.extent {
            Extent::Exact(Size::Const(n)) => Some(n.max(0) as usize),
            _ => None,
        };
        let mut from = self.b.const_i32(0);
        // The values combined so far.
        for c in &l.carried {
            let v = self.scalar(c.init);
            self.define(c.phi, v);
        }
        let copies = match known {
            Some(n) => unroll_factor(l).min((n / LANES).next_power_of_two() / 2).max(1),
            None => unroll_factor(l),
        };
        let passes: &[usize] = if copies > 1 { &[copies, 1] } else { &[1] };
        let mut rest = known;
        for &copies in passes {
            let width = LANES * copies;
            if rest.is_some_and(|n| n < width) {
                continue;
            }
            // from + (n - from) / width · width
            let left = self.b.i32(I::I32Sub, &[n, from]);
            let mask = self.b.const_i32(!(width as i32 - 1));
            let whole = self.b.i32(I::I32And, &[left, mask]);
            let to = self.b.i32(I::I32Add, &[from, whole]);
            self.vector_pass(l, from, to, copies)?;
            (from, rest) = (to, rest.map(|n| n % width));
        }
        if rest != Some(0) {
            self.iterate(l, from, n, 1)?;
        }
        for c in &l.carried {
            let v = self.scalar(c.phi);
            self.define(c.out, v);
        }
        Ok(())
    }

    /// Runs lanes over `from..to`, a multiple of the lane count; the reduced values are combined with those so far.
    fn vector_pass(&mut self, l: &Loop, from: L, to: L, copies: usize) -> Result<(), CompileError> {
        let so_far: Vec<L> = l.carried.iter().map(|c| self.scalar(c.phi)).collect();
        let vectors = VectorLoop { var: l.var, copies };
        self.vectors = Some(vectors);
        for r in 0..self.splatted.len() {
            if self.splatted[r] && self.scalars[r].is_some() && self.constants[r].is_none() {
                self.splat(Reg(r as u32));
            }
        }
        for c in &l.carried {
            let d = self.dtype(c.phi);
            let start = self.constant_parts(identity(c.combine.expect("lanes are combined"), d));
            self.define_lanes(c.phi, &start);
        }
        self.iterate(l, from, to, LANES * copies)?;
        let joined: Vec<L> = l
            .carried
            .iter()
            .zip(&so_far)
            .map(|(c, &before)| {
                let op = c.combine.expect("lanes are combined");
                let (d, parts) = (self.dtype(c.phi), self.lanes(c.phi));
                self.reduce_lanes(op, d, &parts, before)
            })
            .collect();
        self.vectors = None;
        for (c, v) in l.carried.iter().zip(joined) {
            self.define(c.phi, v);
        }
        Ok(())
    }

    /// Reduces all lanes and the previous value by a fixed tree.
    fn reduce_lanes(&mut self, op: Binary, d: DType, parts: &[L], before: L) -> L {
        let each = parts.len() / self.vectors.map_or(1, |v| v.copies);
        let mut copies: Vec<Parts> = parts.chunks(each).map(<[L]>::to_vec).collect();
        let op = Op::Binary(op, Reg(0), Reg(0));
        let vectors = self.vectors.replace(VectorLoop { var: Var(0), copies: 1 });
        while copies.len() > 1 {
            let half = copies.len() / 2;
            for i in 0..half {
                copies[i] = self.vector_op(&op, d, d, &[copies[i].clone(), copies[i + half].clone()]);
            }
            copies.truncate(half);
        }
        let mut lanes: Vec<L> = (0..LANES).map(|i| self.extract(d, &copies[0], i)).collect();
        self.vectors = vectors;
        while lanes.len() > 1 {
            let half = lanes.len() / 2;
            for i in 0..half {
                lanes[i] = self.scalar_op(&op, d, d, &[lanes[i], lanes[i + half]]);
            }
            lanes.truncate(half);
        }
        self.scalar_op(&op, d, d, &[before, lanes[0]])
    }
}

/// The number of unrolled copies of a loop: sums need it to hide latency, and small bodies to reduce loop overhead.
fn unroll_factor(l: &Loop) -> usize {
    let nested = l.body.iter().any(|s| matches!(s, Stmt::Loop(_)));
    match (nested, l.carried.is_empty(), l.body.len()) {
        (false, false, ..=12) => COPIES,
        (false, _, ..=8) => 2,
        _ => 1,
    }
}
