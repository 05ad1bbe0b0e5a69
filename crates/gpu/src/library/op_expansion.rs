//! The expansion of a library op, and the writer of its kernels.

use compiler::loops::{
    AccessMode, Atom, Buf, Carried, Extent, Index, Kernel, KernelBuilder, Loop, LoopKind, Reg, Size, Stmt, Var,
};
use compiler::program::{BufferSlice, KernelArg, Matmul, MatmulOperand, Step};
use ir::{Binary, Compare, DType, Scalar, Type};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpValue {
    /// The n-th operand.
    Arg(usize),
    /// The n-th result.
    Out(usize),
    /// The n-th temporary value.
    Temp(usize),
}

#[derive(Clone, Copy)]
enum KernelOperand {
    Mem(OpValue),
    /// Scratch of this many bytes.
    Scratch(usize),
}

enum OpStep {
    Kernel(Kernel, Vec<KernelOperand>),
    /// A matrix product, its operands and its result: values and byte offsets.
    Product(Box<Matmul>, [(OpValue, i64); 3]),
    /// A copy of this many bytes.
    Copy(OpValue, OpValue, usize),
}

/// Kernels and products in order, and their temporary values.
#[derive(Default)]
pub(crate) struct OpExpansion {
    pub(super) temps: Vec<Type>,
    all: Vec<OpStep>,
}

impl OpExpansion {
    /// A new temporary value.
    pub(super) fn temp(&mut self, dtype: DType, elements: usize) -> OpValue {
        self.temps.push(Type::new(dtype, &[elements]));
        OpValue::Temp(self.temps.len() - 1)
    }

    pub(super) fn product(&mut self, shape: Matmul, places: [(OpValue, i64); 3]) {
        self.all.push(OpStep::Product(Box::new(shape), places));
    }

    pub(super) fn copy(&mut self, from: OpValue, to: OpValue, bytes: usize) {
        self.all.push(OpStep::Copy(from, to, bytes));
    }

    /// A kernel that runs `body` for each of `n` independent rows.
    pub(super) fn rows(&mut self, name: &str, n: usize, body: impl FnOnce(&mut KernelWriter, Var)) {
        let mut w = KernelWriter { b: KernelBuilder::new(name), given: Vec::new() };
        let row = w.b.var();
        w.b.begin();
        body(&mut w, row);
        let block = w.b.end();
        w.b.push(Stmt::Loop(Loop {
            var: row,
            extent: Extent::Exact(Size::Const(n as i64)),
            kind: LoopKind::Parallel,
            carried: Vec::new(),
            body: block,
        }));
        self.all.push(OpStep::Kernel(w.b.finish(), w.given));
    }

    /// The steps of a program; `place` returns the buffer slices of values.
    pub(super) fn steps(self, place: &dyn Fn(OpValue) -> BufferSlice, out: &mut Vec<Step>) {
        let at = |(m, bytes): (OpValue, i64)| {
            let mut p = place(m);
            p.offset += bytes;
            p
        };
        for part in self.all {
            out.push(match part {
                OpStep::Kernel(kernel, given) => {
                    let args = given.into_iter().map(|g| match g {
                        KernelOperand::Mem(m) => KernelArg::Place(place(m)),
                        KernelOperand::Scratch(n) => KernelArg::Scratch(n),
                    });
                    let args = args.collect();
                    Step::Kernel { kernel: Arc::new(kernel), args, parallel: None }
                }
                OpStep::Product(shape, [a, b, c]) => Step::Matmul {
                    shape,
                    a: MatmulOperand::Memory(at(a)),
                    b: MatmulOperand::Memory(at(b)),
                    c: Some(at(c)),
                    epilogue: None,
                },
                OpStep::Copy(from, to, bytes) => Step::Copy { from: place(from), to: place(to), bytes },
            });
        }
    }
}

/// A kernel builder that knows the values of its buffers.
pub(crate) struct KernelWriter {
    b: KernelBuilder,
    given: Vec<KernelOperand>,
}

impl Deref for KernelWriter {
    type Target = KernelBuilder;
    fn deref(&self) -> &KernelBuilder {
        &self.b
    }
}

impl DerefMut for KernelWriter {
    fn deref_mut(&mut self) -> &mut KernelBuilder {
        &mut self.b
    }
}

impl KernelWriter {
    fn memory(&mut self, dtype: DType, mode: AccessMode, m: KernelOperand) -> Buf {
        self.given.push(m);
        self.b.buffer(dtype, mode)
    }

    pub(super) fn read(&mut self, m: OpValue, dtype: DType) -> Buf {
        self.memory(dtype, AccessMode::Read, KernelOperand::Mem(m))
    }

    pub(super) fn write(&mut self, m: OpValue, dtype: DType) -> Buf {
        self.memory(dtype, AccessMode::Write, KernelOperand::Mem(m))
    }

    pub(super) fn change(&mut self, m: OpValue, dtype: DType) -> Buf {
        self.memory(dtype, AccessMode::ReadWrite, KernelOperand::Mem(m))
    }

    pub(super) fn scratch(&mut self, dtype: DType, elements: usize) -> Buf {
        self.memory(dtype, AccessMode::Scratch(elements), KernelOperand::Scratch(elements * dtype.size()))
    }

    pub(super) fn int(&mut self, d: DType, x: i64) -> Reg {
        self.b.constant(Scalar::from_i64(d, x))
    }

    /// A loop variable as an i64.
    pub(super) fn var_value(&mut self, v: Var) -> Reg {
        self.b.index(v)
    }

    /// `Σ stride · register + offset`.
    pub(super) fn sum(&mut self, terms: &[(Reg, i64)], offset: i64) -> Reg {
        self.b.index(affine(terms, offset))
    }

    /// Divides an i64 by a positive number; returns quotient and remainder.
    pub(super) fn split(&mut self, x: Reg, by: usize) -> (Reg, Reg) {
        if by == 1 {
            let zero = self.int(DType::I64, 0);
            return (x, zero);
        }
        let n = self.int(DType::I64, by as i64);
        (self.b.binary(Binary::Div, x, n), self.b.binary(Binary::Rem, x, n))
    }

    /// The coordinates of an element along each axis of a row-major shape.
    pub(super) fn coordinates(&mut self, flat: Var, shape: &[usize]) -> Vec<Reg> {
        let mut left = self.var_value(flat);
        let mut found = Vec::with_capacity(shape.len());
        for (a, &n) in shape.iter().enumerate().rev() {
            // The remaining quotient is the coordinate of the first axis.
            if a == 0 {
                found.push(left);
            } else {
                let (rest, own) = self.split(left, n.max(1));
                found.push(own);
                left = rest;
            }
        }
        found.reverse();
        found
    }

    pub(super) fn both(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.binary(Binary::And, a, b)
    }

    pub(super) fn either(&mut self, a: Reg, b: Reg) -> Reg {
        self.b.binary(Binary::Or, a, b)
    }

    pub(super) fn not(&mut self, a: Reg) -> Reg {
        self.b.unary(ir::Unary::Not, a)
    }

    /// Compares a register with a number.
    pub(super) fn compare_to(&mut self, op: Compare, x: Reg, n: i64) -> Reg {
        let d = self.b.dtype(x);
        let n = self.int(d, n);
        self.b.compare(op, x, n)
    }

    /// Clamps x to the range 0 to n - 1, as an index.
    pub(super) fn clamped(&mut self, x: Reg, n: usize) -> Reg {
        let d = self.b.dtype(x);
        let (zero, last) = (self.int(d, 0), self.int(d, n.max(1) as i64 - 1));
        let x = self.b.binary(Binary::Max, x, zero);
        let x = self.b.binary(Binary::Min, x, last);
        if d == DType::I64 { x } else { self.b.cast(DType::I64, x) }
    }

    /// Whether a value is NaN.
    pub(super) fn nan(&mut self, x: Reg) -> Option<Reg> {
        self.b.dtype(x).is_float().then(|| self.b.compare(Compare::Ne, x, x))
    }

    /// A vector loop without carried values.
    pub(super) fn each_lane(&mut self, n: usize, body: impl FnOnce(&mut KernelWriter, Var)) {
        let var = self.b.var();
        self.b.begin();
        body(self, var);
        let body = self.b.end();
        let extent = Extent::Exact(Size::Const(n as i64));
        self.b.push(Stmt::Loop(Loop { var, extent, kind: LoopKind::Vector, carried: Vec::new(), body }));
    }

    /// A vector loop that reduces a value of each iteration.
    pub(super) fn joined(
        &mut self,
        n: usize,
        init: Reg,
        combine: Binary,
        value: impl FnOnce(&mut KernelWriter, Var) -> Reg,
    ) -> Reg {
        let var = self.b.var();
        let d = self.b.dtype(init);
        let (phi, out) = (self.b.reg(d), self.b.reg(d));
        self.b.begin();
        let v = value(self, var);
        let next = self.b.binary(combine, phi, v);
        let body = self.b.end();
        let carried = vec![Carried { init, phi, next, out, combine: Some(combine) }];
        let extent = Extent::Exact(Size::Const(n as i64));
        self.b.push(Stmt::Loop(Loop { var, extent, kind: LoopKind::Vector, carried, body }));
        out
    }

    /// Casts a value to another dtype, if it has a different one.
    pub(super) fn to(&mut self, d: DType, x: Reg) -> Reg {
        if self.b.dtype(x) == d { x } else { self.b.cast(d, x) }
    }
}

pub(super) fn affine(terms: &[(Reg, i64)], offset: i64) -> Index {
    let terms = terms.iter().map(|&(r, s)| (Atom::Reg(r), Size::Const(s))).collect();
    Index { offset, offset_args: Vec::new(), terms }
}
