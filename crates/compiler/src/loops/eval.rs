//! The reference interpreter of kernels: slow and simple, one scalar at a time. Vector loops run in order.

use super::{Atom, Buf, Extent, Index, Kernel, Loop, LoopKind, Op, Size, Stmt};
use ir::{DType, Scalar};
use thiserror::Error;

/// Why a kernel could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum EvalError {
    #[error("b{}[{index}] is outside a buffer of {len} elements", .buf.0)]
    OutOfBounds { buf: Buf, index: i64, len: usize },
    #[error("expected {expected} {what}, got {found}")]
    Arguments { what: &'static str, expected: usize, found: usize },
}

/// Runs a kernel over whole buffers, given as bytes in the order of its arguments.
pub fn eval(k: &Kernel, bufs: &mut [&mut [u8]], sizes: &[i64]) -> Result<(), EvalError> {
    eval_range(k, bufs, sizes, 0, i64::MAX)
}

/// Like [`eval`], but runs only the iterations `begin..end` of a top-level parallel loop.
pub fn eval_range(k: &Kernel, bufs: &mut [&mut [u8]], sizes: &[i64], begin: i64, end: i64) -> Result<(), EvalError> {
    let arguments = |what, expected, found| {
        if expected == found { Ok(()) } else { Err(EvalError::Arguments { what, expected, found }) }
    };
    arguments("buffers", k.buffers.len(), bufs.len())?;
    arguments("sizes", k.sizes as usize, sizes.len())?;
    let zero = Scalar::zero(DType::Bool);
    let mut m = Interpreter {
        k,
        bufs,
        sizes,
        regs: vec![zero; k.regs.len()],
        vars: vec![0; k.vars as usize],
        range: (begin, end),
    };
    m.block(&k.body)
}

struct Interpreter<'a, 'b> {
    k: &'a Kernel,
    bufs: &'a mut [&'b mut [u8]],
    sizes: &'a [i64],
    regs: Vec<Scalar>,
    vars: Vec<i64>,
    range: (i64, i64),
}

impl Interpreter<'_, '_> {
    fn block(&mut self, body: &[Stmt]) -> Result<(), EvalError> {
        for s in body {
            match s {
                Stmt::Let { dst, op } => self.regs[dst.0 as usize] = self.op(op)?,
                Stmt::Store { buf, index, value, mask } => {
                    if mask.is_none_or(|m| self.regs[m.0 as usize].to_bool()) {
                        let at = self.place(*buf, index)?;
                        let size = self.k.buffers[buf.0 as usize].dtype.size();
                        let bytes = self.regs[value.0 as usize].bits().to_le_bytes();
                        self.bufs[buf.0 as usize][at..at + size].copy_from_slice(&bytes[..size]);
                    }
                }
                Stmt::Loop(l) => self.loop_(l)?,
            }
        }
        Ok(())
    }

    fn loop_(&mut self, l: &Loop) -> Result<(), EvalError> {
        let n = match &l.extent {
            Extent::Exact(n) => self.size(*n),
            Extent::Bounded { bound, buf, index } => {
                self.read(*buf, index)?.to_i64().clamp(0, self.size(*bound).max(0))
            }
        };
        let (begin, end) = match l.kind {
            LoopKind::Parallel => (self.range.0, n.min(self.range.1)),
            _ => (0, n),
        };
        for c in &l.carried {
            self.regs[c.phi.0 as usize] = self.regs[c.init.0 as usize];
        }
        for i in begin..end {
            self.vars[l.var.0 as usize] = i;
            self.block(&l.body)?;
            // All are read before any is written: a `next` may be the `phi` of another value.
            let next: Vec<Scalar> = l.carried.iter().map(|c| self.regs[c.next.0 as usize]).collect();
            for (c, v) in l.carried.iter().zip(next) {
                self.regs[c.phi.0 as usize] = v;
            }
        }
        for c in &l.carried {
            self.regs[c.out.0 as usize] = self.regs[c.phi.0 as usize];
        }
        Ok(())
    }

    fn op(&self, op: &Op) -> Result<Scalar, EvalError> {
        let r = |reg: &super::Reg| self.regs[reg.0 as usize];
        Ok(match op {
            Op::Const(s) => *s,
            Op::Index(i) => Scalar::from_i64(DType::I64, self.index(i)),
            Op::Load { buf, index, mask } => match mask {
                Some((m, other)) if !r(m).to_bool() => *other,
                _ => self.read(*buf, index)?,
            },
            _ => {
                let args: smallvec::SmallVec<[Scalar; 3]> = op.operands().map(|x| r(&x)).collect();
                op.apply(&args).expect("an arithmetic op")
            }
        })
    }

    fn size(&self, s: Size) -> i64 {
        match s {
            Size::Const(n) => n,
            Size::Arg(n) => self.sizes[n as usize],
        }
    }

    fn index(&self, i: &Index) -> i64 {
        let mut at = i.offset;
        for &a in &i.offset_args {
            at = at.wrapping_add(self.sizes[a as usize]);
        }
        for &(atom, stride) in &i.terms {
            let v = match atom {
                Atom::Var(v) => self.vars[v.0 as usize],
                Atom::Reg(r) => self.regs[r.0 as usize].to_i64(),
            };
            at = at.wrapping_add(v.wrapping_mul(self.size(stride)));
        }
        at
    }

    fn place(&self, buf: Buf, index: &Index) -> Result<usize, EvalError> {
        let size = self.k.buffers[buf.0 as usize].dtype.size();
        let len = self.bufs[buf.0 as usize].len() / size;
        let index = self.index(index);
        match usize::try_from(index) {
            Ok(i) if i < len => Ok(i * size),
            _ => Err(EvalError::OutOfBounds { buf, index, len }),
        }
    }

    fn read(&self, buf: Buf, index: &Index) -> Result<Scalar, EvalError> {
        let at = self.place(buf, index)?;
        let dtype = self.k.buffers[buf.0 as usize].dtype;
        let mut bytes = [0; 8];
        bytes[..dtype.size()].copy_from_slice(&self.bufs[buf.0 as usize][at..at + dtype.size()]);
        Ok(Scalar::from_bits(dtype, u64::from_le_bytes(bytes)))
    }
}

/// `a * b + c`: rounded once in f32 or f64, then to the low-precision float type if it is one; integers wrap.
fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    let d = a.dtype();
    match d {
        DType::F64 => Scalar::from_f64(d, a.to_f64().mul_add(b.to_f64(), c.to_f64())),
        d if d.is_float() => {
            let [x, y, z] = [a, b, c].map(|s| s.to_f64() as f32);
            Scalar::from_f64(d, x.mul_add(y, z) as f64)
        }
        d => Scalar::from_bits(d, a.bits().wrapping_mul(b.bits()).wrapping_add(c.bits())),
    }
}

impl Op {
    /// The value of an arithmetic op given its operands in order; `None` for constants, indices and loads.
    pub fn apply(&self, args: &[Scalar]) -> Option<Scalar> {
        Some(match (self, args) {
            (Op::Unary(op, _), &[x]) => op.eval(x),
            (Op::Binary(op, ..), &[a, b]) => op.eval(a, b),
            (Op::Compare(op, ..), &[a, b]) => Scalar::bool(op.eval(a, b)),
            (Op::Select(..), &[c, a, b]) => {
                if c.to_bool() {
                    a
                } else {
                    b
                }
            }
            (Op::Fma(..), &[a, b, c]) => fma(a, b, c),
            (Op::Cast(to, _), &[x]) => x.cast(*to),
            (Op::Quantize(to, _), &[x]) => x.quantize(*to),
            (Op::Bitcast(to, _), &[x]) => Scalar::from_bits(*to, x.bits()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{AccessMode, KernelBuilder};
    use ir::Binary;

    fn bytes(v: &[f32]) -> Vec<u8> {
        v.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn a_scan_with_swapped_carries_is_fibonacci() {
        let mut b = KernelBuilder::new("fib");
        let y = b.buffer(DType::I32, AccessMode::Write);
        let (zero, one) = (b.constant_from_f64(DType::I32, 0.0), b.constant_from_f64(DType::I32, 1.0));
        let n = Extent::Exact(b.size());
        b.loop_(LoopKind::Serial, n, &[(zero, None), (one, None)], |b, t, p| {
            b.store(y, t, p[0]);
            vec![p[1], b.binary(Binary::Add, p[0], p[1])]
        });
        let mut out = vec![0u8; 32];
        eval(&b.finish(), &mut [&mut out], &[8]).unwrap();
        let got: Vec<u8> = out.iter().copied().step_by(4).collect();
        assert_eq!(got, [0, 1, 1, 2, 3, 5, 8, 13]);
    }

    #[test]
    fn bounded_loops_masks_and_bounds() {
        let mut b = KernelBuilder::new("bounded");
        let x = b.buffer(DType::F32, AccessMode::Read);
        let n = b.buffer(DType::I32, AccessMode::Read);
        let y = b.buffer(DType::F32, AccessMode::Write);
        let e = Extent::Bounded { bound: Size::Const(3), buf: n, index: Index::from(0) };
        b.loop_(LoopKind::Vector, e, &[], |b, i, _| {
            let v = b.load(x, i);
            b.store(y, i, v);
            vec![]
        });
        let k = b.finish();
        for (given, expected) in [(-1i32, [0.0, 0.0, 0.0]), (2, [1.0, 2.0, 0.0]), (9, [1.0, 2.0, 3.0])] {
            let mut x = bytes(&[1.0, 2.0, 3.0]);
            let mut y = bytes(&[0.0; 3]);
            eval(&k, &mut [&mut x, &mut given.to_le_bytes(), &mut y], &[]).unwrap();
            assert_eq!(y, bytes(&expected));
        }
        let mut short = bytes(&[1.0]);
        let err = eval(&k, &mut [&mut short, &mut 3i32.to_le_bytes(), &mut [0; 12]], &[]);
        assert_eq!(err, Err(EvalError::OutOfBounds { buf: Buf(0), index: 1, len: 1 }));
    }
}
