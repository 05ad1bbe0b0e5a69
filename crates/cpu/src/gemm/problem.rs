//! Describes a matmul: shapes, strides, dtypes, the sources of operands and the destination of results.

use std::ffi::c_void;

use ir::DType;

/// The number of batch axes of a [`GemmProblem`]; unused ones have extent 1. Grouped-query attention needs three
/// (batch, key head, query head of the group).
pub const BATCH_AXES: usize = 3;

/// Strides of an operand, in elements. Any sign and size is allowed; zero broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixLayout {
    /// The stride from one row to the next.
    pub row: isize,
    /// The stride from one column to the next.
    pub col: isize,
    /// The stride from one matrix to the next, for each batch axis.
    pub batch: [isize; BATCH_AXES],
}

impl MatrixLayout {
    /// The layout of a contiguous row-major matrix of `cols` columns; every batch entry is the same matrix.
    pub fn row_major(cols: usize) -> MatrixLayout {
        MatrixLayout { row: cols as isize, col: 1, batch: [0; BATCH_AXES] }
    }

    /// The layout of a contiguous column-major matrix of `rows` rows.
    pub fn col_major(rows: usize) -> MatrixLayout {
        MatrixLayout { row: 1, col: rows as isize, batch: [0; BATCH_AXES] }
    }

    /// Returns the same matrix layout with batch strides.
    pub fn batched(self, batch: [isize; BATCH_AXES]) -> MatrixLayout {
        MatrixLayout { batch, ..self }
    }

    /// Returns the layout of the transposed matrix.
    pub fn transposed(self) -> MatrixLayout {
        MatrixLayout { row: self.col, col: self.row, batch: self.batch }
    }
}

/// The source of an operand, known when the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandSource {
    /// The elements are in memory.
    Memory(MatrixLayout),
    /// A function writes the elements block by block into the packing buffer (a prologue).
    Generated {
        /// Whether the matrix differs between batch entries.
        batched: bool,
    },
    /// The bytes that [`super::GemmPlan::prepack_b`] made; one matrix for all batch entries. Only for B.
    Packed,
}

/// The destination of the results, known when the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// `C = alpha·A·B`, or `C += alpha·A·B`.
    Memory {
        /// The operands' dtype or the accumulator's; i8 results are not supported.
        dtype: DType,
        /// The strides of C.
        layout: MatrixLayout,
        /// Whether to add to the contents of C.
        accumulate: bool,
    },
    /// A function receives each finished tile in the accumulator's dtype and stores the results itself.
    Epilogue {
        /// Whether tiles span all columns, so that the function can reduce over rows.
        whole_rows: bool,
    },
}

/// A batched matrix product `[m, k]·[k, n]`, without its pointers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "m, n and k are what BLAS calls them")]
pub struct GemmProblem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// The extents of the batch axes.
    pub batch: [usize; BATCH_AXES],
    /// The dtype of A and B: f32, f64, bf16, f16, i32 or i8.
    pub dtype: DType,
    /// The left operand, `m × k`.
    pub a: OperandSource,
    /// The right operand, `k × n`.
    pub b: OperandSource,
    /// The result, `m × n`.
    pub c: OutputKind,
    /// A factor of the product, rounded to the accumulator's dtype.
    pub alpha: f64,
}

impl GemmProblem {
    /// Returns the problem `C = A·B` for contiguous row-major matrices of one dtype.
    pub fn new(m: usize, k: usize, n: usize, dtype: DType) -> GemmProblem {
        GemmProblem {
            m,
            n,
            k,
            batch: [1; BATCH_AXES],
            dtype,
            a: OperandSource::Memory(MatrixLayout::row_major(k)),
            b: OperandSource::Memory(MatrixLayout::row_major(n)),
            c: OutputKind::Memory { dtype, layout: MatrixLayout::row_major(n), accumulate: false },
            alpha: 1.0,
        }
    }

    /// The dtype in which products are summed: f64 for f64, i32 (modulo 2³²) for integers, otherwise f32.
    pub fn accumulator(&self) -> DType {
        match self.dtype {
            DType::F64 => DType::F64,
            DType::I8 | DType::I32 => DType::I32,
            _ => DType::F32,
        }
    }

    /// The number of matrices.
    pub fn batches(&self) -> usize {
        self.batch.iter().product()
    }

    /// Returns the element offset of batch entry `index` (row-major over the batch axes).
    pub(super) fn batch_offset(&self, layout: &MatrixLayout, index: usize) -> isize {
        let [_, y, z] = self.batch;
        let at = [index / (y * z), index / z % y, index % z];
        (0..BATCH_AXES).map(|axis| at[axis] as isize * layout.batch[axis]).sum()
    }
}

/// A function that writes the block `[row0, row0+rows) × [col0, col0+cols)` of an operand of batch entry `batch`
/// (row-major over the batch axes) in the operand's dtype, row by row, with rows `dst_row_stride`
/// elements apart.
pub type GenerateFn = unsafe extern "C" fn(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    dst: *mut u8,
    dst_row_stride: usize,
);

/// A function that takes the finished tile `[row0, row0+rows) × [col0, col0+cols)` of batch entry `batch`, in the
/// accumulator's dtype, with rows `acc_row_stride` elements apart. It may overwrite the tile.
pub type EpilogueFn = unsafe extern "C" fn(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    acc: *mut u8,
    acc_row_stride: usize,
);

/// An operand at run time. Its variant must match the operand's [`OperandSource`].
#[derive(Clone, Copy, Debug)]
pub enum GemmOperand {
    /// The address of element (0, 0) of batch entry 0.
    Memory(*const u8),
    /// A function that writes blocks of the operand; called from several threads at once.
    Generated {
        /// The function.
        f: GenerateFn,
        /// The first argument of the function.
        ctx: *const c_void,
    },
    /// The bytes that [`super::GemmPlan::prepack_b`] made for the same `k`, `n`, dtype and instruction set.
    Packed(*const u8),
}

/// The result at run time. Its variant must match the problem's [`OutputKind`].
#[derive(Clone, Copy, Debug)]
pub enum GemmOutput {
    /// The address of element (0, 0) of batch entry 0.
    Memory(*mut u8),
    /// A function that takes finished tiles; called from several threads at once, exactly once for
    /// each element.
    Epilogue {
        /// The function.
        f: EpilogueFn,
        /// The first argument of the function.
        ctx: *const c_void,
    },
}

/// The reason why a [`GemmProblem`] has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The operands' dtype is not supported.
    #[error("matmul supports f32, f64, bf16, f16, i32 or i8 operands, not {0}")]
    Dtype(DType),
    /// The result's dtype is neither the operands' dtype nor the accumulator's.
    #[error("matmul of {operands} operands cannot store {result}")]
    Result {
        /// The operands' dtype.
        operands: DType,
        /// The requested dtype of the result.
        result: DType,
    },
    /// A was given as packed bytes, which only B can be.
    #[error("only the right operand of a matmul can be packed ahead")]
    PackedLeft,
}
