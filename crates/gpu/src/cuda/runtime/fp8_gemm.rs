//! fp8 matrix products (the compiler's `fp8_dot`) with cuBLASLt, which needs both matrices with the contracted axis last. Other
//! operands are transposed first.

use super::blas::{CublasLtPlan, GemmKey};
use super::gemm::{GemmCall, Matrix};
use crate::cuda::transpose::TRANSPOSE_MULTIPLE;
use compiler::passes::fp8_matmul::FP8_DOT;
use compiler::program::BufferSlice;
use ir::{DType, Op, Type};

/// The product of `[m, k]` and the transpose of `[n, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fp8Gemm {
    m: usize,
    n: usize,
    k: usize,
    a: DType,
    b: DType,
    out: DType,
    /// Whether the contracted axis of A and B is first.
    pub(crate) across: [bool; 2],
}

impl Fp8Gemm {
    /// The fp8 product of an op, if it is one that cuBLASLt may support.
    pub(crate) fn of(op: &Op, args: &[Type]) -> Option<Fp8Gemm> {
        let Op::Composite(c) = op else { return None };
        let (FP8_DOT, [a, b, _, _]) = (c.name.as_str(), args) else { return None };
        let across = [c.flag("a_across"), c.flag("b_across")];
        let (&[a0, a1], &[b0, b1]) = (&a.shape[..], &b.shape[..]) else { return None };
        let (m, k) = if across[0] { (a1, a0) } else { (a0, a1) };
        let n = if across[1] { b1 } else { b0 };
        let out = c.body.output_types().first()?.dtype;
        let types = matches!(
            (a.dtype, b.dtype),
            (DType::F8E4M3, DType::F8E4M3 | DType::F8E5M2) | (DType::F8E5M2, DType::F8E4M3)
        );
        let wide = matches!(out, DType::F32 | DType::BF16 | DType::F16);
        let lines = m > 0 && n > 0 && k > 0 && [m, n, k].iter().all(|x| x % TRANSPOSE_MULTIPLE == 0);
        (types && wide && lines).then_some(Fp8Gemm { m, n, k, a: a.dtype, b: b.dtype, out, across })
    }

    /// The rows and columns of an operand that must be transposed.
    pub(crate) fn sizes(&self, side: usize) -> (usize, usize) {
        (self.k, if side == 0 { self.m } else { self.n })
    }

    /// The bytes of both operands and of the result.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        [self.m * self.k, self.n * self.k, self.m * self.n * self.out.size()]
    }

    /// The cuBLASLt call. Rows of the result are columns of the computed matrix: B is the first matrix.
    pub(crate) fn call(&self) -> GemmKey {
        let (m, n, k) = (self.m as u64, self.n as u64, self.k as u64);
        let lies = |rows: u64, cols: u64, transposed| Matrix { rows, cols, ld: rows as i64, batch: 0, transposed };
        let gemm = GemmCall {
            count: 1,
            first: lies(k, n, true),
            second: lies(k, m, false),
            out: lies(n, m, false),
            swapped: true,
        };
        GemmKey { gemm, dtype: self.b, second: self.a, out: self.out, aligned: [TRANSPOSE_MULTIPLE as u32; 3] }
    }
}

/// An fp8 product that is prepared to run.
pub(crate) struct LoadedFp8Gemm {
    pub(crate) plan: CublasLtPlan,
    pub(crate) a: BufferSlice,
    pub(crate) b: BufferSlice,
    pub(crate) scales: [BufferSlice; 2],
    pub(crate) out: BufferSlice,
    pub(crate) bytes: [usize; 3],
    /// The scratch offsets of copies of A, B and the result, if they are not aligned.
    pub(crate) copies: [Option<usize>; 3],
    /// The scratch offsets of transposed operands, and the launches that compute them.
    pub(crate) transposes: [Option<(usize, TransposeLaunch)>; 2],
}

/// A launch that transposes an operand.
pub(crate) struct TransposeLaunch {
    pub(crate) function: usize,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) sizes: Vec<i64>,
}
