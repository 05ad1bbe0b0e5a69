//! Emits statements and loops.
//!
//! A vector loop is emitted up to three times: with several vectors side by side, with one vector of four lanes, and with one
//! lane at a time for the remainder. A register that varies by lane is a list of vectors: one for four lanes of up to 32 bits,
//! two for four lanes of 64 bits, repeated for each unrolled copy.

use compiler::loops::lanes::{identity, is_vector, varying};
use compiler::loops::{Carried, Extent, Kernel, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, SigRef, StackSlot, Type, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use ir::{Binary, DType, Scalar};

/// The number of lanes of a vector.
pub(super) const LANES: usize = 4;
/// The maximum number of vectors that are unrolled side by side.
const COPIES: usize = 4;

/// The vectors of a register.
pub(super) type Parts = Vec<Value>;

/// The vector loop that is being emitted.
#[derive(Clone, Copy)]
pub(super) struct Vectors {
    pub(super) var: Var,
    pub(super) copies: usize,
}

pub(super) struct Writer<'a> {
    pub(super) k: &'a Kernel,
    pub(super) b: FunctionBuilder<'a>,
    pub(super) pointer: Type,
    pub(super) bufs: Vec<Value>,
    pub(super) sizes: Vec<Value>,
    pub(super) varying: Vec<bool>,
    pub(super) constants: Vec<Option<Scalar>>,
    scalars: Vec<Option<Value>>,
    parts: Vec<Option<Parts>>,
    pub(super) vars: Vec<Option<Value>>,
    /// Whether vector loops use vectors.
    wide: bool,
    pub(super) vectors: Option<Vectors>,
    /// The variable of the innermost enclosing loop.
    pub(super) innermost: Option<Var>,
    range: (Value, Value),
    pub(super) area: StackSlot,
    /// The signatures of the helper, and of functions of one f32 and one f64.
    pub(super) signatures: [SigRef; 3],
}

impl<'a> Writer<'a> {
    #[expect(clippy::too_many_arguments, reason = "what a kernel finds at its entry")]
    pub(super) fn new(
        k: &'a Kernel,
        b: FunctionBuilder<'a>,
        pointer: Type,
        bufs: Vec<Value>,
        sizes: Vec<Value>,
        range: (Value, Value),
        area: StackSlot,
        signatures: [SigRef; 3],
        wide: bool,
    ) -> Writer<'a> {
        let regs = k.regs.len();
        let mut constants = vec![None; regs];
        find_constants(&k.body, &mut constants);
        Writer {
            k,
            b,
            pointer,
            bufs,
            sizes,
            varying: varying(k),
            constants,
            scalars: vec![None; regs],
            parts: vec![None; regs],
            vars: vec![None; k.vars as usize],
            wide,
            vectors: None,
            innermost: None,
            range,
            area,
            signatures,
        }
    }

    pub(super) fn dtype(&self, r: Reg) -> DType {
        self.k.regs[r.0 as usize]
    }

    /// Returns the value of a register outside of lanes.
    pub(super) fn scalar(&mut self, r: Reg) -> Value {
        match self.constants[r.0 as usize] {
            Some(c) => self.constant(c),
            None => self.scalars[r.0 as usize].expect("registers are defined before they are used"),
        }
    }

    /// Returns the values of a register in lanes.
    /// A uniform register is broadcast where it is used: Cranelift hoists that out of loops.
    pub(super) fn lanes(&mut self, r: Reg) -> Parts {
        if self.in_lanes(r) {
            return self.parts[r.0 as usize].clone().expect("registers are defined before they are used");
        }
        let d = self.dtype(r);
        match self.constants[r.0 as usize] {
            Some(c) => self.constant_parts(c),
            None => {
                let v = self.scalar(r);
                let v = self.splat_of(d, v);
                vec![v; self.count(d)]
            }
        }
    }

    pub(super) fn in_lanes(&self, r: Reg) -> bool {
        self.vectors.is_some() && self.varying[r.0 as usize]
    }

    pub(super) fn copies(&self) -> usize {
        self.vectors.map_or(1, |v| v.copies)
    }

    /// The number of vectors of a register.
    pub(super) fn count(&self, d: DType) -> usize {
        self.copies() * if d.size() == 8 { 2 } else { 1 }
    }

    fn set(&mut self, r: Reg, value: Parts) {
        if self.in_lanes(r) {
            self.parts[r.0 as usize] = Some(value);
        } else {
            self.scalars[r.0 as usize] = Some(value[0]);
        }
    }

    pub(super) fn block(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let { op: Op::Const(_), .. } => {}
                Stmt::Let { dst, op } => {
                    let d = self.dtype(*dst);
                    let v = if self.in_lanes(*dst) { self.vector_let(op, d) } else { vec![self.scalar_let(op, d)] };
                    self.set(*dst, v);
                }
                Stmt::Store { buf, index, value, mask } => match self.vectors {
                    None => self.scalar_store(*buf, index, *value, *mask),
                    Some(_) => self.vector_store(*buf, index, *value, *mask),
                },
                Stmt::Loop(l) => self.loop_(l),
            }
        }
    }

    pub(super) fn size(&mut self, s: Size) -> Value {
        match s {
            Size::Const(n) => self.b.ins().iconst(types::I64, n),
            Size::Arg(n) => self.sizes[n as usize],
        }
    }

    pub(super) fn variable(&mut self, value: Value) -> Variable {
        let v = self.b.declare_var(self.b.func.dfg.value_type(value));
        self.b.def_var(v, value);
        v
    }

    fn loop_(&mut self, l: &Loop) {
        let n = match &l.extent {
            Extent::Exact(n) => self.size(*n),
            Extent::Bounded { bound, buf, index } => {
                // This is uniform over lanes.
                let count = self.scalar_load(*buf, index);
                let count = self.b.ins().sextend(types::I64, count);
                let bound = self.size(*bound);
                self.b.ins().smin(count, bound)
            }
        };
        let zero = self.b.ins().iconst(types::I64, 0);
        if self.wide && is_vector(l) {
            let n = self.b.ins().smax(n, zero);
            return self.vector_loop(l, n);
        }
        let (begin, end) = match l.kind {
            LoopKind::Parallel => (self.range.0, self.b.ins().smin(n, self.range.1)),
            _ => (zero, n),
        };
        let init = l.carried.iter().map(|c| self.carried(c.phi, c.init)).collect();
        let out = self.iterate(l, begin, end, 1, init);
        for (c, v) in l.carried.iter().zip(out) {
            self.set(c.out, v);
        }
    }

    /// Returns the value that a carried register is assigned.
    fn carried(&mut self, phi: Reg, value: Reg) -> Parts {
        if self.in_lanes(phi) { self.lanes(value) } else { vec![self.scalar(value)] }
    }

    /// Runs the body for `begin, begin + step, ..` below `end`, and returns the carried values at the end.
    fn iterate(&mut self, l: &Loop, begin: Value, end: Value, step: usize, init: Vec<Parts>) -> Vec<Parts> {
        let i = self.variable(begin);
        let carried: Vec<Vec<Variable>> =
            init.into_iter().map(|p| p.into_iter().map(|v| self.variable(v)).collect()).collect();
        let [body, after] = [0; 2].map(|_| self.b.create_block());
        let some = self.b.ins().icmp(IntCC::SignedLessThan, begin, end);
        self.b.ins().brif(some, body, &[], after, &[]);
        self.b.switch_to_block(body);
        let at = self.b.use_var(i);
        let before = self.vars[l.var.0 as usize].replace(at);
        let around = self.innermost.replace(l.var);
        for (c, own) in l.carried.iter().zip(&carried) {
            let v = own.iter().map(|v| self.b.use_var(*v)).collect();
            self.set(c.phi, v);
        }
        self.block(&l.body);
        // Assign all at once, because a `next` may be another value's `phi`.
        let next: Vec<Parts> = l.carried.iter().map(|c| self.carried(c.phi, c.next)).collect();
        for (own, next) in carried.iter().zip(next) {
            own.iter().zip(next).for_each(|(v, next)| self.b.def_var(*v, next));
        }
        let next = self.b.ins().iadd_imm_s(at, step as i64);
        self.b.def_var(i, next);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, next, end);
        self.b.ins().brif(more, body, &[], after, &[]);
        self.b.switch_to_block(after);
        self.vars[l.var.0 as usize] = before;
        self.innermost = around;
        carried.iter().map(|own| own.iter().map(|v| self.b.use_var(*v)).collect()).collect()
    }

    fn vector_loop(&mut self, l: &Loop, n: Value) {
        let known = match l.extent {
            Extent::Exact(Size::Const(n)) => Some(n.max(0) as usize),
            _ => None,
        };
        let mut from = self.b.ins().iconst(types::I64, 0);
        // The values combined so far.
        let mut so_far: Vec<Parts> = l.carried.iter().map(|c| vec![self.scalar(c.init)]).collect();
        let copies = match known {
            Some(n) => copies(l).min((n / LANES).next_power_of_two() / 2).max(1),
            None => copies(l),
        };
        let passes: &[usize] = if copies > 1 { &[copies, 1] } else { &[1] };
        let mut rest = known;
        for &copies in passes {
            let width = LANES * copies;
            if rest.is_some_and(|n| n < width) {
                continue;
            }
            // from + (n - from) / width · width
            let left = self.b.ins().isub(n, from);
            let whole = self.b.ins().band_imm_s(left, !(width as i64 - 1));
            let to = self.b.ins().iadd(from, whole);
            so_far = self.vector_pass(l, from, to, copies, so_far);
            (from, rest) = (to, rest.map(|n| n % width));
        }
        if rest != Some(0) {
            so_far = self.iterate(l, from, n, 1, so_far);
        }
        for (c, v) in l.carried.iter().zip(so_far) {
            self.set(c.out, v);
        }
    }

    /// Runs lanes over `from..to`, a multiple of the lane count; the reduced values are combined with those so far.
    fn vector_pass(&mut self, l: &Loop, from: Value, to: Value, copies: usize, so_far: Vec<Parts>) -> Vec<Parts> {
        self.vectors = Some(Vectors { var: l.var, copies });
        let combine = |c: &Carried| c.combine.expect("lanes are combined");
        let start = l.carried.iter().map(|c| {
            let d = self.k.regs[c.phi.0 as usize];
            self.constant_parts(identity(combine(c), d))
        });
        let start = start.collect();
        let ends = self.iterate(l, from, to, LANES * copies, start);
        let joined = l.carried.iter().zip(ends).zip(so_far).map(|((c, parts), before)| {
            let d = self.k.regs[c.phi.0 as usize];
            vec![self.join(combine(c), d, &parts, before[0])]
        });
        let joined = joined.collect();
        self.vectors = None;
        joined
    }

    /// Reduces all lanes and the previous value by a fixed tree.
    fn join(&mut self, op: Binary, d: DType, parts: &[Value], before: Value) -> Value {
        let each = parts.len() / self.copies();
        let mut copies: Vec<Parts> = parts.chunks(each).map(<[Value]>::to_vec).collect();
        let op = Op::Binary(op, Reg(0), Reg(0));
        let vectors = self.vectors.replace(Vectors { var: Var(0), copies: 1 });
        while copies.len() > 1 {
            let half = copies.len() / 2;
            for i in 0..half {
                copies[i] = self.vector_op(&op, d, d, &[copies[i].clone(), copies[i + half].clone()]);
            }
            copies.truncate(half);
        }
        let mut lanes: Vec<Value> = (0..LANES).map(|i| self.extract(d, &copies[0], i)).collect();
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

/// Finds constants at any depth: statements that were hoisted out of a loop may use constants inside it.
fn find_constants(body: &[Stmt], constants: &mut [Option<Scalar>]) {
    for s in body {
        match s {
            Stmt::Let { dst, op: Op::Const(c) } => constants[dst.0 as usize] = Some(*c),
            Stmt::Loop(l) => find_constants(&l.body, constants),
            _ => {}
        }
    }
}

/// The number of unrolled copies of a loop: sums need it to hide latency, and small bodies to reduce loop overhead.
fn copies(l: &Loop) -> usize {
    let nested = l.body.iter().any(|s| matches!(s, Stmt::Loop(_)));
    match (nested, l.carried.is_empty(), l.body.len()) {
        (false, false, ..=12) => COPIES,
        (false, _, ..=16) => 2,
        _ => 1,
    }
}
