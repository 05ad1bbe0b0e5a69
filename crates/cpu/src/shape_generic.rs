//! Makes kernels whose sizes are arguments.
//!
//! A lowered kernel has constant sizes. A kernel that runs for many shapes is more useful without them, so they become size
//! arguments, and kernels that differ in nothing else share one piece of machine code:
//!
//! - trip counts, strides and offsets.
//!   Strides of 0, 1 and −1 stay constant, because the code generator makes different code for them;
//! - integers in index computations, unless a vector loop divides by them: division by a constant is many times faster;
//! - floats of kernels that reduce, since a mean multiplies by one over the size.

use compiler::loops::{AccessMode, Extent, Index, Kernel, LoopKind, Op, Reg, Size, Stmt};
use ir::{Binary, DType, Scalar};
use rustc_hash::FxHashSet;

/// Returns the same kernel with its sizes as arguments, and the sizes.
pub(crate) fn make_shape_generic(k: &Kernel) -> (Kernel, Vec<i64>) {
    if k.sizes > 0 {
        return (k.clone(), Vec::new());
    }
    let mut k = k.clone();
    for b in &mut k.buffers {
        // The caller provides the scratch, so its size does not matter.
        if let AccessMode::Scratch(n) = &mut b.mode {
            *n = 0;
        }
    }
    let (mut divisors, abreast) = (FxHashSet::default(), is_interleaved(&k.body));
    vector_divisors(&k.body, false, &mut divisors);
    let mut g =
        ShapeGeneralizer { sizes: Vec::new(), regs: k.regs, divisors, reduces: abreast || reduces(&k.body), abreast };
    g.block(&mut k.body);
    (Kernel { sizes: g.sizes.len() as u32, regs: g.regs, ..k }, g.sizes)
}

/// Finds the registers by which vector loops divide integers.
fn vector_divisors(body: &[Stmt], in_vector: bool, found: &mut FxHashSet<Reg>) {
    for s in body {
        match s {
            Stmt::Let { op: Op::Binary(Binary::Div | Binary::Rem, _, by), .. } if in_vector => {
                found.insert(*by);
            }
            Stmt::Loop(l) => vector_divisors(&l.body, in_vector || l.kind == LoopKind::Vector, found),
            _ => {}
        }
    }
}

fn reduces(body: &[Stmt]) -> bool {
    body.iter().any(|s| matches!(s, Stmt::Loop(l) if !l.carried.is_empty() || reduces(&l.body)))
}

/// Returns whether rows are interleaved in lanes, in blocks of which the last may have fewer rows.
fn is_interleaved(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Loop(l) => {
            (l.kind == LoopKind::Vector && matches!(l.extent, Extent::Bounded { .. })) || is_interleaved(&l.body)
        }
        _ => false,
    })
}

struct ShapeGeneralizer {
    sizes: Vec<i64>,
    regs: Vec<DType>,
    divisors: FxHashSet<Reg>,
    reduces: bool,
    abreast: bool,
}

impl ShapeGeneralizer {
    fn argument(&mut self, n: i64) -> u32 {
        self.sizes.push(n);
        self.sizes.len() as u32 - 1
    }

    fn size(&mut self, s: &mut Size) {
        if let Size::Const(n) = *s
            && !matches!(n, -1..=1)
        {
            *s = Size::Arg(self.argument(n));
        }
    }

    fn index(&mut self, i: &mut Index) {
        if i.offset != 0 {
            let k = self.argument(i.offset);
            i.offset_args.push(k);
            i.offset = 0;
        }
        i.terms.iter_mut().for_each(|(_, s)| self.size(s));
    }

    /// Returns an op for a number that is passed when the kernel runs.
    fn size_argument(&mut self, n: i64) -> Op {
        Op::Index(Index { offset_args: vec![self.argument(n)], ..Index::default() })
    }

    /// Inserts `dst = op` before the statement that now defines `dst`.
    fn insert_before(&mut self, out: &mut Vec<Stmt>, dtype: DType, op: Op) -> Reg {
        let dst = Reg(self.regs.len() as u32);
        self.regs.push(dtype);
        out.push(Stmt::Let { dst, op });
        dst
    }

    fn constant(&mut self, out: &mut Vec<Stmt>, dst: Reg, c: Scalar) -> Op {
        let x = c.to_f64();
        match c.dtype() {
            DType::I64 if !matches!(c.to_i64(), -1..=1) && !self.divisors.contains(&dst) => {
                self.size_argument(c.to_i64())
            }
            DType::F32 if self.reduces && x.is_finite() && x.fract() != 0.0 => {
                let bits = self.size_argument(i64::from((x as f32).to_bits()));
                let wide = self.insert_before(out, DType::I64, bits);
                let narrow = self.insert_before(out, DType::U32, Op::Cast(DType::U32, wide));
                Op::Bitcast(DType::F32, narrow)
            }
            DType::F64 if self.reduces && x.is_finite() && x.fract() != 0.0 => {
                let bits = self.size_argument(x.to_bits() as i64);
                Op::Bitcast(DType::F64, self.insert_before(out, DType::I64, bits))
            }
            _ => Op::Const(c),
        }
    }

    fn block(&mut self, body: &mut Vec<Stmt>) {
        let mut out = Vec::with_capacity(body.len());
        for mut s in std::mem::take(body) {
            match &mut s {
                Stmt::Let { op: Op::Index(i) | Op::Load { index: i, .. }, .. } | Stmt::Store { index: i, .. } => {
                    self.index(i)
                }
                Stmt::Let { dst, op } => {
                    if let Op::Const(c) = *op {
                        *op = self.constant(&mut out, *dst, c);
                    }
                }
                Stmt::Loop(l) => {
                    match &mut l.extent {
                        // The number of blocks may vary, even if it is one, and so may the number of elements of short rows.
                        Extent::Exact(s)
                            if l.kind == LoopKind::Parallel || (self.abreast && l.kind == LoopKind::Serial) =>
                        {
                            if let Size::Const(n) = *s {
                                *s = Size::Arg(self.argument(n));
                            }
                        }
                        Extent::Exact(s) => self.size(s),
                        Extent::Bounded { bound, index, .. } => {
                            self.size(bound);
                            self.index(index);
                        }
                    }
                    self.block(&mut l.body);
                }
            }
            out.push(s);
        }
        *body = out;
    }
}
