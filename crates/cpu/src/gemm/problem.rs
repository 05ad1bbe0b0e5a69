//! What a matmul is: shapes, strides, dtypes, where operands come from and where results go.

use std::ffi::c_void;

use ir::DType;

/// Batch axes of a [`Problem`]; unused ones have extent 1. Three are what grouped attention needs
/// (batch, key head, query head of the group).
pub const BATCH_AXES: usize = 3;

/// Strides of an operand, in elements. Any sign and size is allowed; zero broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// From one row to the next.
    pub row: isize,
    /// From one column to the next.
    pub col: isize,
    /// From one matrix to the next, for each batch axis.
    pub batch: [isize; BATCH_AXES],
}

impl Layout {
    /// A contiguous row-major matrix of `cols` columns; every batch entry is the same matrix.
    pub fn row_major(cols: usize) -> Layout {
        Layout { row: cols as isize, col: 1, batch: [0; BATCH_AXES] }
    }

    /// A contiguous column-major matrix of `rows` rows: a row-major one, transposed.
    pub fn col_major(rows: usize) -> Layout {
        Layout { row: 1, col: rows as isize, batch: [0; BATCH_AXES] }
    }

    /// The same matrix layout with batch strides.
    pub fn batched(self, batch: [isize; BATCH_AXES]) -> Layout {
        Layout { batch, ..self }
    }

    /// The layout of the transposed matrix.
    pub fn transposed(self) -> Layout {
        Layout { row: self.col, col: self.row, batch: self.batch }
    }
}

/// Where an operand comes from, known when the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Elements in memory.
    Memory(Layout),
    /// Elements that a function writes block by block into the packing buffer (a prologue).
    Generated {
        /// Whether the matrix differs between batch entries.
        batched: bool,
    },
    /// The bytes that [`super::Plan::prepack_b`] made; one matrix for all batch entries. Only for B.
    Packed,
}

/// Where results go, known when the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `C = alpha·A·B`, or `C += alpha·A·B`.
    Memory {
        /// The operands' dtype, or the accumulator's; i8 are never stored.
        dtype: DType,
        /// Strides of C.
        layout: Layout,
        /// Add to what C holds.
        accumulate: bool,
    },
    /// A function gets each finished tile, in the accumulator's dtype, and stores what it likes.
    Epilogue {
        /// Tiles span all columns, so that a row reduction can follow in the same function.
        whole_rows: bool,
    },
}

/// A batched matrix product `[m, k]·[k, n]`, without its pointers.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "m, n and k are what BLAS calls them")]
pub struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Extents of the batch axes.
    pub batch: [usize; BATCH_AXES],
    /// Of A and B: f32, f64, bf16, f16, i32 or i8.
    pub dtype: DType,
    /// The left operand, `m × k`.
    pub a: Source,
    /// The right operand, `k × n`.
    pub b: Source,
    /// The result, `m × n`.
    pub c: Target,
    /// A factor on the product, rounded to the accumulator's dtype.
    pub alpha: f64,
}

impl Problem {
    /// `C = A·B` of contiguous row-major matrices of one dtype.
    pub fn new(m: usize, k: usize, n: usize, dtype: DType) -> Problem {
        Problem {
            m,
            n,
            k,
            batch: [1; BATCH_AXES],
            dtype,
            a: Source::Memory(Layout::row_major(k)),
            b: Source::Memory(Layout::row_major(n)),
            c: Target::Memory { dtype, layout: Layout::row_major(n), accumulate: false },
            alpha: 1.0,
        }
    }

    /// The dtype in which products are summed: f64 for f64, i32 (modulo 2³²) for integers, else f32.
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

    /// The element offset of batch entry `index` (row-major over the batch axes).
    pub(super) fn batch_offset(&self, layout: &Layout, index: usize) -> isize {
        let [_, y, z] = self.batch;
        let at = [index / (y * z), index / z % y, index % z];
        (0..BATCH_AXES).map(|axis| at[axis] as isize * layout.batch[axis]).sum()
    }
}

/// Writes the block `[row0, row0+rows) × [col0, col0+cols)` of an operand of batch entry `batch`
/// (row-major over the batch axes), in the operand's dtype, row by row, rows `dst_row_stride`
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

/// Takes the finished tile `[row0, row0+rows) × [col0, col0+cols)` of batch entry `batch`, in the
/// accumulator's dtype, rows `acc_row_stride` elements apart. It may overwrite the tile.
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

/// An operand at run time; its variant must be the one its [`Source`] names.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// The address of element (0, 0) of batch entry 0.
    Memory(*const u8),
    /// A function that writes blocks of the operand; called from several threads at once.
    Generated {
        /// The function.
        f: GenerateFn,
        /// Its first argument.
        ctx: *const c_void,
    },
    /// What [`super::Plan::prepack_b`] made for the same `k`, `n`, dtype and instruction set.
    Packed(*const u8),
}

/// The result at run time; its variant must be the one its [`Target`] names.
#[derive(Clone, Copy, Debug)]
pub enum Output {
    /// The address of element (0, 0) of batch entry 0.
    Memory(*mut u8),
    /// A function that takes finished tiles; called from several threads at once, exactly once for
    /// each element.
    Epilogue {
        /// The function.
        f: EpilogueFn,
        /// Its first argument.
        ctx: *const c_void,
    },
}

/// Why a [`Problem`] has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The operands' dtype is not one that is multiplied here.
    #[error("matmul supports f32, f64, bf16, f16, i32 or i8 operands, not {0}")]
    Dtype(DType),
    /// The result's dtype is neither the operands' nor their accumulator's.
    #[error("matmul of {operands} operands cannot store {result}")]
    Result {
        /// The operands' dtype.
        operands: DType,
        /// The dtype asked for.
        result: DType,
    },
    /// A was given as packed bytes.
    #[error("only the right operand of a matmul can be packed ahead")]
    PackedLeft,
}
