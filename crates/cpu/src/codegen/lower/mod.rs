//! Lowers kernels to instructions over virtual registers.
//!
//! A value that varies by lane takes one vector register per unrolled copy. A uniform value is a vector register of which only
//! lane 0 is used; it is computed once and broadcast where lanes need it. Values are stored in wider types: small floats as f32
//! numbers that the dtype can represent, small integers extended to 32 bits, bool as a mask (AVX-512) or as all-ones 32-bit
//! lanes (AVX2).
//! The number of lanes follows from the widest dtype, so every value of a vector loop takes exactly one register.
//!
//! Each open loop has two lists of instructions, `pre` and `body`. Addresses, constants and broadcasts that do not change
//! inside a loop are put into its `pre`.

mod address;
mod arith;
mod convert;
mod divide;
mod fp8;
mod index;
mod instructions;
mod integer;
mod lanewise;
mod loops;
mod mask;
mod memory;
mod partial_vector;
mod transfer;
mod transpose;
mod values;
mod vector;

use super::Target;
use super::asm::W;
use super::inst::{Class, Inst, Mem, Rm, V};
use super::pool::{Const, Pool};
use address::BaseKey;
use compiler::loops::lanes;
use compiler::loops::{Kernel, Op, Reg, Size, Stmt, Var};
use ir::{DType, Scalar};
use rustc_hash::FxHashMap;

/// The maximum number of unrolled copies of a vector loop's body.
pub(crate) const MAX_UNROLL: usize = 8;

/// The instructions of a kernel.
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    pub(crate) classes: Vec<Class>,
    pub(crate) pool: Pool,
    pub(crate) labels: u32,
}

/// Lowers a kernel that satisfies `verify`.
pub(crate) fn lower(k: &Kernel, target: Target) -> Code {
    let mut lo = Lower {
        k,
        target,
        classes: vec![],
        pool: Pool::new(target == Target::Avx512),
        labels: 0,
        loops: vec![LoopCx::new(V::NONE)],
        pre: None,
        vals: vec![[V::NONE; MAX_UNROLL]; k.regs.len()],
        consts: vec![None; k.regs.len()],
        varying: lanes::varying(k),
        reg_level: vec![0; k.regs.len()],
        var_level: vec![0; k.vars as usize],
        lanes: 1,
        unroll: 1,
        l: 1,
        tail: None,
        tail_lanes: None,
        vector: None,
        args: [V::NONE; 4],
        sizes: FxHashMap::default(),
    };
    lo.find_consts(&k.body);
    for i in 0..4 {
        lo.args[i] = lo.fresh(Class::Gpr);
        let dst = lo.args[i];
        lo.loops[0].pre.push(Inst::Load { dst, mem: Mem::frame(8 * i as i32), size: 8, signed: false });
    }
    lo.block(&k.body);
    let entry = std::mem::replace(&mut lo.loops[0], LoopCx::new(V::NONE));
    let mut insts = entry.pre;
    insts.extend(entry.body);
    Code { insts, classes: lo.classes, pool: lo.pool, labels: lo.labels }
}

/// A loop being lowered; the first is the kernel itself.
struct LoopCx {
    iv: V,
    /// The value of the variable at the start; 0 if absent.
    start: Option<V>,
    pre: Vec<Inst>,
    body: Vec<Inst>,
    /// Multiples of the variable in bytes, updated by addition.
    derived: Vec<(Size, usize, V)>,
    bases: FxHashMap<BaseKey, V>,
    consts: FxHashMap<Const, V>,
    /// Broadcasts and general-register copies of values from outside the loop.
    outer: Copies,
    /// Broadcasts and copies of values defined in the loop's body.
    local: Copies,
}

#[derive(Default)]
struct Copies {
    broadcast: FxHashMap<Reg, V>,
    gpr: FxHashMap<Reg, V>,
}

impl LoopCx {
    fn new(iv: V) -> LoopCx {
        LoopCx {
            iv,
            start: None,
            pre: vec![],
            body: vec![],
            derived: vec![],
            bases: FxHashMap::default(),
            consts: FxHashMap::default(),
            outer: Copies::default(),
            local: Copies::default(),
        }
    }
}

/// The vector loop being lowered.
#[derive(Clone, Copy)]
struct VectorCx {
    var: Var,
    level: usize,
}

/// The state of lowering.
pub(crate) struct Lower<'a> {
    k: &'a Kernel,
    pub(crate) target: Target,
    classes: Vec<Class>,
    pool: Pool,
    labels: u32,
    loops: Vec<LoopCx>,
    /// The loop whose `pre` receives instructions, instead of the innermost body.
    pre: Option<usize>,
    vals: Vec<[V; MAX_UNROLL]>,
    consts: Vec<Option<Scalar>>,
    varying: Vec<bool>,
    reg_level: Vec<u32>,
    var_level: Vec<u32>,
    /// The numbers of lanes and copies of the open vector loop, or 1.
    lanes: usize,
    unroll: usize,
    /// The number of lanes of the op being lowered: `lanes`, or 1 for a uniform op.
    pub(crate) l: usize,
    /// The mask of active lanes in the loop's last, partial iteration.
    tail: Option<V>,
    /// The number of those lanes, if it is known.
    tail_lanes: Option<usize>,
    vector: Option<VectorCx>,
    /// `bufs`, `sizes`, `begin`, `end`.
    args: [V; 4],
    sizes: FxHashMap<(u32, usize), V>,
}

impl Lower<'_> {
    pub(crate) fn fresh(&mut self, class: Class) -> V {
        self.classes.push(class);
        V(self.classes.len() as u32 - 1)
    }

    pub(crate) fn vec(&mut self) -> V {
        self.fresh(Class::Vec)
    }

    pub(crate) fn gpr(&mut self) -> V {
        self.fresh(Class::Gpr)
    }

    pub(crate) fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    pub(crate) fn wide_target(&self) -> bool {
        self.target == Target::Avx512
    }

    /// The level whose body receives new instructions.
    fn cur(&self) -> usize {
        self.pre.map_or(self.loops.len(), |p| p) - 1
    }

    pub(crate) fn emit(&mut self, i: Inst) {
        match self.pre {
            Some(p) => self.loops[p].pre.push(i),
            None => {
                let top = self.loops.len() - 1;
                self.loops[top].body.push(i);
            }
        }
    }

    /// Runs `f`; its instructions are put before the loop at `level`.
    fn before_loop<R>(&mut self, level: usize, f: impl FnOnce(&mut Self) -> R) -> R {
        let old = self.pre.replace(level);
        let r = f(self);
        self.pre = old;
        r
    }

    /// Vector width of 32-bit lanes.
    pub(crate) fn w32(&self) -> W {
        W::of_bytes(4 * self.l)
    }

    /// Vector width of 64-bit lanes.
    pub(crate) fn w64(&self) -> W {
        W::of_bytes(8 * self.l)
    }

    /// Vector width of a dtype's lanes.
    pub(crate) fn w(&self, d: DType) -> W {
        if d.size() == 8 { self.w64() } else { self.w32() }
    }

    pub(crate) fn full(&self) -> W {
        if self.wide_target() { W::Z } else { W::Y }
    }

    pub(crate) fn c32(&mut self, bits: u32) -> Rm {
        Rm::C(self.pool.id(Const::Lane32(bits)))
    }

    pub(crate) fn c64(&mut self, bits: u64) -> Rm {
        Rm::C(self.pool.id(Const::Lane64(bits)))
    }

    fn find_consts(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let { dst, op: Op::Const(c) } => self.consts[dst.0 as usize] = Some(*c),
                Stmt::Loop(l) => self.find_consts(&l.body),
                _ => {}
            }
        }
    }

    fn block(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let { op: Op::Const(_), .. } => {}
                Stmt::Let { dst, op } => {
                    let varying = self.varying[dst.0 as usize];
                    self.l = if varying { self.lanes } else { 1 };
                    let copies = if varying { self.unroll } else { 1 };
                    self.reg_level[dst.0 as usize] = self.cur() as u32;
                    let mut marks =
                        [(self.loops[self.loops.len() - 1].body.len(), self.classes.len() as u32); MAX_UNROLL + 1];
                    for u in 0..copies {
                        let v = self.op(*dst, op, u);
                        self.vals[dst.0 as usize][u] = v;
                        marks[u + 1] = (self.loops[self.loops.len() - 1].body.len(), self.classes.len() as u32);
                    }
                    if copies > 1 {
                        self.interleave(&marks[..=copies]);
                    }
                }
                Stmt::Store { buf, index, value, mask } => self.store(*buf, index, *value, *mask),
                Stmt::Loop(l) if self.lower_transpose(l) => {}
                Stmt::Loop(l) if lanes::is_vector(l) => self.vector_loop(l),
                Stmt::Loop(l) => self.serial_loop(l),
            }
        }
    }

    /// Interleaves the instructions of unrolled copies, so that their dependency chains overlap even in a small out-of-order
    /// window. Segments with branches, calls or stores into the frame stay unchanged, and so do copies that use a value that an
    /// earlier copy defined (an address, a broadcast). The marks are lengths of the body and numbers of registers.
    fn interleave(&mut self, marks: &[(usize, u32)]) {
        let top = self.loops.len() - 1;
        let body = &mut self.loops[top].body;
        let (start, n) = (marks[0].0, marks[1].0 - marks[0].0);
        let even = marks.windows(2).all(|m| m[1].0 - m[0].0 == n);
        let straight = |i: &Inst| {
            !matches!(i, Inst::Label { .. } | Inst::LoopBegin { .. } | Inst::Store { .. } | Inst::StoreG { .. })
        };
        if n < 2 || !even || !body[start..].iter().all(straight) {
            return;
        }
        let mut independent = true;
        for m in marks.windows(2).skip(1) {
            for i in &body[m[0].0..m[1].0] {
                i.visit(|v, _| independent &= !(marks[0].1..m[0].1).contains(&v.0));
            }
        }
        if !independent {
            return;
        }
        let copies = marks.len() - 1;
        let old = body.split_off(start);
        for i in 0..n {
            for c in 0..copies {
                body.push(old[c * n + i]);
            }
        }
    }

    fn dtype(&self, r: Reg) -> DType {
        self.k.regs[r.0 as usize]
    }
}
