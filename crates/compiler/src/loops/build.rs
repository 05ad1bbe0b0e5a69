//! A builder of kernels: fresh registers, and nested blocks as closures.
//!
//! ```
//! use tensorloom_compiler::loops::{AccessMode, KernelBuilder, LoopKind, Size};
//! use ir::{Binary, DType};
//! let mut b = KernelBuilder::new("double");
//! let (x, y) = (b.buffer(DType::F32, AccessMode::Read), b.buffer(DType::F32, AccessMode::Write));
//! b.for_loop(LoopKind::Vector, Size::Const(100), |b, i| {
//!     let v = b.load(x, i);
//!     let w = b.binary(Binary::Add, v, v);
//!     b.store(y, i, w);
//! });
//! let kernel = b.finish();
//! assert!(tensorloom_compiler::loops::verify(&kernel).is_ok());
//! ```

use super::{AccessMode, Atom, Buf, Buffer, Carried, Extent, Index, Kernel, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::{Binary, Compare, DType, Scalar, Unary};

/// A list of statements under construction.
pub type Block = Vec<Stmt>;

/// Builds one kernel.
pub struct KernelBuilder {
    kernel: Kernel,
    open: Vec<Block>,
}

impl From<Var> for Index {
    fn from(v: Var) -> Index {
        Index { terms: vec![(Atom::Var(v), Size::Const(1))], ..Index::default() }
    }
}

impl From<Reg> for Index {
    fn from(r: Reg) -> Index {
        Index { terms: vec![(Atom::Reg(r), Size::Const(1))], ..Index::default() }
    }
}

impl From<i64> for Index {
    fn from(offset: i64) -> Index {
        Index { offset, ..Index::default() }
    }
}

impl Index {
    /// This index plus `stride` times a loop variable.
    #[must_use]
    pub fn add_var(mut self, v: Var, stride: i64) -> Index {
        self.terms.push((Atom::Var(v), Size::Const(stride)));
        self
    }

    /// This index plus `stride` times an atom.
    #[must_use]
    pub fn add_atom(mut self, atom: Atom, stride: Size) -> Index {
        self.terms.push((atom, stride));
        self
    }
}

impl KernelBuilder {
    /// An empty kernel.
    pub fn new(name: &str) -> KernelBuilder {
        let kernel = Kernel { name: name.to_owned(), buffers: vec![], sizes: 0, regs: vec![], vars: 0, body: vec![] };
        KernelBuilder { kernel, open: vec![vec![]] }
    }

    /// The finished kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.open.pop().unwrap_or_default();
        self.kernel
    }

    /// A new pointer argument.
    pub fn buffer(&mut self, dtype: DType, mode: AccessMode) -> Buf {
        self.kernel.buffers.push(Buffer { dtype, mode });
        Buf(self.kernel.buffers.len() as u32 - 1)
    }

    /// A new size argument.
    pub fn size(&mut self) -> Size {
        self.kernel.sizes += 1;
        Size::Arg(self.kernel.sizes - 1)
    }

    /// A fresh register that no statement assigns yet.
    pub fn reg(&mut self, dtype: DType) -> Reg {
        self.kernel.regs.push(dtype);
        Reg(self.kernel.regs.len() as u32 - 1)
    }

    /// A fresh loop variable.
    pub fn var(&mut self) -> Var {
        self.kernel.vars += 1;
        Var(self.kernel.vars - 1)
    }

    /// The dtype of a register.
    pub fn dtype(&self, r: Reg) -> DType {
        self.kernel.regs[r.0 as usize]
    }

    /// Appends a statement to the innermost open block.
    pub fn push(&mut self, s: Stmt) {
        match self.open.last_mut() {
            Some(block) => block.push(s),
            None => self.kernel.body.push(s),
        }
    }

    /// Appends `dst = op` and returns `dst`, a fresh register of the given dtype.
    pub fn let_(&mut self, dtype: DType, op: Op) -> Reg {
        let dst = self.reg(dtype);
        self.push(Stmt::Let { dst, op });
        dst
    }

    /// A constant.
    pub fn constant(&mut self, s: Scalar) -> Reg {
        self.let_(s.dtype(), Op::Const(s))
    }

    /// A constant of a dtype, rounded from `x`.
    pub fn constant_from_f64(&mut self, dtype: DType, x: f64) -> Reg {
        self.constant(Scalar::from_f64(dtype, x))
    }

    /// The value of an index as a register.
    pub fn index(&mut self, i: impl Into<Index>) -> Reg {
        self.let_(DType::I64, Op::Index(i.into()))
    }

    /// `buf[index]`.
    pub fn load(&mut self, buf: Buf, index: impl Into<Index>) -> Reg {
        let dtype = self.kernel.buffers[buf.0 as usize].dtype;
        self.let_(dtype, Op::Load { buf, index: index.into(), mask: None })
    }

    /// `mask ? buf[index] : other`.
    pub fn load_masked(&mut self, buf: Buf, index: impl Into<Index>, mask: Reg, other: Scalar) -> Reg {
        let dtype = self.kernel.buffers[buf.0 as usize].dtype;
        self.let_(dtype, Op::Load { buf, index: index.into(), mask: Some((mask, other)) })
    }

    /// `buf[index] = value`.
    pub fn store(&mut self, buf: Buf, index: impl Into<Index>, value: Reg) {
        self.push(Stmt::Store { buf, index: index.into(), value, mask: None });
    }

    /// `if mask { buf[index] = value }`.
    pub fn store_masked(&mut self, buf: Buf, index: impl Into<Index>, value: Reg, mask: Reg) {
        self.push(Stmt::Store { buf, index: index.into(), value, mask: Some(mask) });
    }

    /// A unary function.
    pub fn unary(&mut self, op: Unary, x: Reg) -> Reg {
        let dtype = op.result(self.dtype(x));
        self.let_(dtype, Op::Unary(op, x))
    }

    /// A binary function.
    pub fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Reg {
        let dtype = self.dtype(a);
        self.let_(dtype, Op::Binary(op, a, b))
    }

    /// A comparison.
    pub fn compare(&mut self, op: Compare, a: Reg, b: Reg) -> Reg {
        self.let_(DType::Bool, Op::Compare(op, a, b))
    }

    /// `c ? a : b`.
    pub fn select(&mut self, c: Reg, a: Reg, b: Reg) -> Reg {
        let dtype = self.dtype(a);
        self.let_(dtype, Op::Select(c, a, b))
    }

    /// `a * b + c`, rounded once.
    pub fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        let dtype = self.dtype(a);
        self.let_(dtype, Op::Fma(a, b, c))
    }

    /// A conversion to another dtype.
    pub fn cast(&mut self, to: DType, x: Reg) -> Reg {
        self.let_(to, Op::Cast(to, x))
    }

    /// Opens a block, which receives the following statements until [`KernelBuilder::end`].
    pub fn begin(&mut self) {
        self.open.push(vec![]);
    }

    /// Closes the block that was opened last.
    pub fn end(&mut self) -> Block {
        self.open.pop().unwrap_or_default()
    }

    /// A loop without carried values.
    pub fn for_loop(&mut self, kind: LoopKind, n: Size, body: impl FnOnce(&mut KernelBuilder, Var)) {
        self.loop_(kind, Extent::Exact(n), &[], |b, v, _| {
            body(b, v);
            vec![]
        });
    }

    /// A loop whose carried values start as `init` (each with its `combine`). The body returns the next values; the function
    /// returns the values after the last iteration.
    pub fn loop_(
        &mut self,
        kind: LoopKind,
        extent: Extent,
        init: &[(Reg, Option<Binary>)],
        body: impl FnOnce(&mut KernelBuilder, Var, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        let var = self.var();
        let phis: Vec<Reg> = init.iter().map(|&(r, _)| self.reg(self.dtype(r))).collect();
        self.open.push(vec![]);
        let nexts = body(self, var, &phis);
        let block = self.open.pop().unwrap_or_default();
        let mut outs = vec![];
        let mut carried = vec![];
        for ((&(init, combine), &phi), next) in init.iter().zip(&phis).zip(nexts) {
            let out = self.reg(self.dtype(init));
            outs.push(out);
            carried.push(Carried { init, phi, next, out, combine });
        }
        self.push(Stmt::Loop(Loop { var, extent, kind, carried, body: block }));
        outs
    }
}
