//! Choosing how to compute a product: path, blocks, split over threads, scratch.
//!
//! What may depend on the thread count: which rows and columns a part computes, and scratch. What
//! may not: k-blocks, the path, and with them every bit of the result.

use ir::DType;

use super::block::row_unit;
use super::kernel::{HasKernels, Kernels};
use super::pack::{TEMP, TEMP_BYTES};
use super::problem::{BATCH_AXES, GemmProblem, MatrixLayout, OperandSource, OutputKind, PlanError};
use super::small_matmul;
use super::vector::Isa;
use crate::thresholds::Threshold;

/// Longest k-block, in bytes: long enough that reading and writing tiles of C between k-blocks does
/// not count, short enough that an A panel stays in L1.
const KC_BYTES: usize = 2048;
/// The same on tiles of the machine, in groups of two bf16 or four i8.
const TILES_K: usize = 256;
/// Rows of A packed at a time: its k-block stays in L2, and B is read once for so many rows.
const MC: usize = 120;
/// Columns of a tile: with `MC` rows it stays in L2 over the k-blocks and until its epilogue.
const NB: usize = 256;
/// Bytes of a B that is read where it is, unless its rows fall on too few cache sets.
const DIRECT_B_BYTES: usize = 4 << 20;
/// Bytes of B packed at a time, at most.
const PACKED_B_BYTES: usize = 16 << 20;
/// The same for each row of the product: A is packed once more for each such part of B, which must cost little beside packing that
/// part; more would only take memory.
const PACKED_B_ROW_BYTES: usize = 16 << 10;
/// The same where rows are few: parts that are worth waking threads for.
const PACKED_B_LEAST_BYTES: usize = 4 << 20;
/// Bytes of A packed at a time, in each part.
const PACKED_A_BYTES: usize = 4 << 20;
/// Bytes of an A that is packed once for all parts, at most; larger ones are packed strip by strip in each part that needs them.
const SHARED_A_BYTES: usize = 32 << 20;
/// Multiply-adds of a part from which on that is worth waiting for each other.
const SHARED_A_WORK: usize = 1 << 22;
/// Columns of B that a part may pack for itself, for each row of its own.
const OWN_B: usize = 4;
/// Multiply-adds below which waking another thread costs more than it saves.
const PARALLEL_WORK: usize = 60_000;

/// Parts up to which blocks are given out evenly beforehand.
const FEW_PARTS: usize = 4;
/// Blocks for each part, at most, where parts take them one after another.
const BLOCKS: usize = 6;
/// What taking a block costs, in cycles.
const BLOCK_CYCLES: usize = 3000;
/// Groups that tiles multiply and add in a cycle.
const TILES_LANES: usize = 128;
/// Columns of a product up to which packing A costs more than reading it where it is.
const PACKED_A_COLUMNS: usize = 96;
/// Bytes from one line to the next up to which lines spread over cache sets and pages.
const SPREAD_BYTES: usize = 6144;
/// Bytes from one line to the next at whose multiples all lines fall on one set of the first cache, wherever it has 64 sets.
const ONE_SET_BYTES: usize = 4096;
/// Rows of a product beyond which a B of such lines is packed: that pays once it is read often.
const ONE_SET_ROWS: usize = 192;
/// Bytes of a tile of whole rows.
const WHOLE_ROWS_BYTES: usize = 1 << 19;
/// Bytes of results up to which whole rows are finished when all of them are there, if otherwise all of B had to be packed at once.
const LATE_BYTES: usize = 2 << 20;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("gemm.parallel", PARALLEL_WORK, "multiply-adds for each thread: with those of two, work is split"),
    Threshold::new("gemm.k_block", KC_BYTES / 4, "depth in f32: beyond, k is cut into blocks"),
    Threshold::new("gemm.tiles_k", 2 * TILES_K, "depth in bf16: beyond, k is cut into blocks on machines with tiles"),
    Threshold::new("gemm.strip", MC, "rows: beyond, A is packed in strips"),
    Threshold::new("gemm.columns", NB, "columns: beyond, a strip is computed in several blocks"),
    Threshold::new("gemm.direct_b", DIRECT_B_BYTES / 4, "elements of B: beyond, it is packed"),
    Threshold::new(
        "gemm.packed_b",
        PACKED_B_LEAST_BYTES / 4,
        "elements of a packed B for few rows: beyond, columns are packed in turns",
    ),
    Threshold::new("gemm.packed_a", PACKED_A_BYTES / 4 / MC, "depth: beyond, strips of A are lower"),
    Threshold::new("gemm.packed_a_columns", PACKED_A_COLUMNS, "columns: beyond, A is packed"),
    Threshold::new("gemm.spread", SPREAD_BYTES / 4, "elements from one row of B to the next: beyond, it is packed"),
    Threshold::new("gemm.one_set_rows", ONE_SET_ROWS, "rows: beyond, a B whose lines fall on one cache set is packed"),
    Threshold::new(
        "gemm.whole_rows",
        WHOLE_ROWS_BYTES / 8 / MC,
        "columns of whole rows in f64: beyond, strips are lower",
    ),
    Threshold::new("gemm.few_parts", FEW_PARTS, "threads: from here parts take blocks one after another"),
    Threshold::new("gemm.batches", 2, "matrices: from here a batch may be shared out whole"),
];

/// How the work is split into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkSplit {
    /// One part.
    Serial,
    /// Each part computes whole matrices.
    Batch,
    /// The parts share the packed B of one matrix after the other and compute its rows × columns: as many blocks as there
    /// are parts, or more, which the parts then take one after another.
    Grid { rows: usize, cols: usize },
}

/// Which algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GemmAlgorithm {
    /// A vector times a matrix, bound by the matrix's bandwidth.
    Gemv,
    /// A few elements, one by one.
    Small,
    /// Packed (or direct) panels and register tiles.
    Blocked,
}

/// Offsets into scratch, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scratch {
    /// Where the packed A begins that the parts share; before it is the packed B that they share.
    pub(super) shared_a: usize,
    /// Where results are that wait for the others of their rows.
    pub(super) late: usize,
    /// Where the parts' own scratch begins.
    pub(super) parts: usize,
    /// From one part to the next.
    pub(super) part: usize,
    /// Inside a part.
    pub(super) b: usize,
    pub(super) a: usize,
    pub(super) tile: usize,
    pub(super) temp: usize,
}

/// How one [`Problem`] is computed: plain data, made once, run many times from any thread.
#[derive(Clone, Debug)]
pub struct GemmPlan {
    pub(super) problem: GemmProblem,
    /// The problem is the transposed one: the caller's A is our B.
    pub(super) swapped: bool,
    pub(super) isa: Isa,
    pub(super) path: GemmAlgorithm,
    pub(super) split: WorkSplit,
    pub(super) parts: usize,
    pub(super) pack_a: bool,
    /// A is packed once for all parts.
    pub(super) share_a: bool,
    pub(super) pack_b: bool,
    /// So many columns of B, at most, each part packs for itself.
    pub(super) own_b: Option<usize>,
    /// Results pass through a tile in scratch.
    pub(super) tiled: bool,
    /// All results stay in scratch until their rows are finished.
    pub(super) late: bool,
    /// k in packed elements: several of the operands' may be one.
    pub(super) depth: usize,
    pub(super) kc: usize,
    pub(super) mc: usize,
    pub(super) nc: usize,
    pub(super) nb: usize,
    pub(super) scratch: Scratch,
}

impl GemmPlan {
    /// Plans a problem for at most `threads` threads with this machine's widest instruction set.
    pub fn new(problem: &GemmProblem, threads: usize) -> Result<GemmPlan, PlanError> {
        GemmPlan::with_isa(problem, threads, Isa::detect())
    }

    /// Plans a problem for an instruction set, which must be one of [`Isa::available`].
    pub fn with_isa(problem: &GemmProblem, threads: usize, isa: Isa) -> Result<GemmPlan, PlanError> {
        assert!(Isa::available().contains(&isa), "{isa:?} is not available on this machine");
        check(problem)?;
        let (problem, swapped) = normalise(*problem);
        match problem.accumulator() {
            DType::F64 => Ok(plan(problem, swapped, threads.max(1), isa, f64::kernels(isa, problem.dtype))),
            DType::I32 => Ok(plan(problem, swapped, threads.max(1), isa, i32::kernels(isa, problem.dtype))),
            _ => Ok(plan(problem, swapped, threads.max(1), isa, f32::kernels(isa, problem.dtype))),
        }
    }

    /// Bytes of scratch that [`Plan::run`] needs, aligned to 64; they need not keep their contents.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.parts + self.parts * self.scratch.part
    }

    /// The instruction set that the plan uses.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads that the plan keeps busy; pools of any size can run it.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Bytes of a B packed for [`Source::Packed`], aligned to 64.
    pub fn packed_b_bytes(&self) -> usize {
        let columns = self.problem.n.next_multiple_of(self.nr());
        self.depth * columns * self.problem.accumulator().size()
    }

    /// Columns of a packed B panel.
    pub(super) fn nr(&self) -> usize {
        match self.problem.accumulator() {
            DType::F64 => f64::kernels(self.isa, self.problem.dtype).nr,
            DType::I32 => i32::kernels(self.isa, self.problem.dtype).nr,
            _ => f32::kernels(self.isa, self.problem.dtype).nr,
        }
    }
}

fn check(problem: &GemmProblem) -> Result<(), PlanError> {
    use DType::*;
    if !matches!(problem.dtype, F32 | F64 | BF16 | F16 | I8 | I32) {
        return Err(PlanError::Dtype(problem.dtype));
    }
    if let OutputKind::Memory { dtype, .. } = problem.c
        && (dtype != problem.dtype || dtype == I8)
        && dtype != problem.accumulator()
    {
        return Err(PlanError::Result { operands: problem.dtype, result: dtype });
    }
    if problem.a == OperandSource::Packed {
        return Err(PlanError::PackedLeft);
    }
    Ok(())
}

/// Rewrites a problem on memory into one that the kernels like better.
fn normalise(mut p: GemmProblem) -> (GemmProblem, bool) {
    let (OperandSource::Memory(a), OperandSource::Memory(b), OutputKind::Memory { dtype, layout: c, accumulate }) =
        (p.a, p.b, p.c)
    else {
        return (p, false);
    };
    let (mut a, mut b, mut c) = (a, b, c);
    // A·B with B the same for all entries of a batch axis = the entries of A stacked, times B.
    for axis in (0..BATCH_AXES).rev() {
        let stacked = |x: MatrixLayout| x.batch[axis] == p.m as isize * x.row;
        if b.batch[axis] == 0 && stacked(a) && stacked(c) {
            p.m *= p.batch[axis];
            p.batch[axis] = 1;
            a.batch[axis] = 0;
            c.batch[axis] = 0;
        } else if p.batch[axis] != 1 {
            break;
        }
    }
    // Cᵀ = Bᵀ·Aᵀ: tiles are stored by rows, so a column-major C is computed transposed.
    let swapped = c.row == 1 && c.col != 1 && p.m > 1;
    if swapped {
        (p.m, p.n) = (p.n, p.m);
        (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
    }
    p.a = OperandSource::Memory(a);
    p.b = OperandSource::Memory(b);
    p.c = OutputKind::Memory { dtype, layout: c, accumulate };
    (p, swapped)
}

fn plan<T: HasKernels>(
    problem: GemmProblem,
    swapped: bool,
    threads: usize,
    isa: Isa,
    kernels: &Kernels<T>,
) -> GemmPlan {
    let GemmProblem { m, n, .. } = problem;
    let k = problem.k.div_ceil(kernels.per()).next_multiple_of(kernels.step());
    let (mr, nr) = (kernels.mr, kernels.nr);
    let size = size_of::<T>();
    let direct = |source: OperandSource| match source {
        OperandSource::Memory(layout) if problem.dtype == T::DTYPE => Some(layout),
        _ => None,
    };

    let path = match () {
        _ if small_matmul::fits(&problem) => GemmAlgorithm::Small,
        _ if gemv(&problem) => GemmAlgorithm::Gemv,
        _ => GemmAlgorithm::Blocked,
    };
    // Tiles narrower than a cache line would read lines of B in parts, again and again.
    let narrow = nr * size < 64;
    let pack_a = match direct(problem.a) {
        Some(a) => {
            n > PACKED_A_COLUMNS
                && (narrow || k * size > KC_BYTES)
                && !(a.row == 1 && stride_is_cache_friendly(a.col, size))
        }
        None => true,
    };
    let pack_b = match direct(problem.b) {
        Some(b) => {
            let fits = stride_is_cache_friendly(b.row, size) && k * n * size <= DIRECT_B_BYTES;
            let one_set = m > ONE_SET_ROWS && (b.row.unsigned_abs() * size).is_multiple_of(ONE_SET_BYTES);
            b.col != 1 || (m > 2 * mr && (narrow || !fits || one_set))
        }
        None => problem.b != OperandSource::Packed,
    };
    let (tiled, whole_rows) = match problem.c {
        OutputKind::Memory { dtype, layout, .. } => (dtype != T::DTYPE || layout.col != 1, false),
        OutputKind::Epilogue { whole_rows } => (true, whole_rows),
    };

    // Panels of tiles are wider.
    let longest = if kernels.tiles.is_some() { TILES_K } else { KC_BYTES / size };
    let k_blocks = k.div_ceil(longest).max(1);
    let kc = k.div_ceil(k_blocks).next_multiple_of(kernels.step().max(4));
    let n_padded = n.next_multiple_of(nr);
    // A B that is the same for all matrices is packed once, if it fits.
    let again = problem.batches() > 1
        && match problem.b {
            OperandSource::Memory(layout) => layout.batch.iter().all(|stride| *stride == 0),
            OperandSource::Generated { batched } => !batched,
            OperandSource::Packed => false,
        };
    let rows = if again { usize::MAX } else { m };
    let packed_bytes = rows.saturating_mul(PACKED_B_ROW_BYTES).clamp(PACKED_B_LEAST_BYTES, PACKED_B_BYTES);
    let late = whole_rows
        && pack_b
        && path == GemmAlgorithm::Blocked
        && problem.batches() == 1
        && n_padded.saturating_mul(k).saturating_mul(size) > packed_bytes
        && m.saturating_mul(late_stride(n, kernels.lanes)).saturating_mul(size) <= LATE_BYTES;
    let whole_rows = whole_rows && !late;
    let whole_b = whole_rows || !pack_b || problem.b == OperandSource::Packed;
    let most = (packed_bytes / (k.max(1) * size) / nr * nr).clamp(nr, n_padded.max(nr));
    // Turns of about as many columns each.
    let even = n_padded.div_ceil(n_padded.div_ceil(most).max(1)).next_multiple_of(nr);
    let nc = if whole_b { n_padded } else { even.max(nr) };
    let nb = if whole_rows { n_padded } else { NB.min(n_padded) };
    let rows_in = |bytes: usize, row: usize| (bytes / (row * size).max(1) / mr).max(1) * mr;
    let mc = MC
        .min(rows_in(PACKED_A_BYTES, k))
        .min(if whole_rows { rows_in(WHOLE_ROWS_BYTES, n) } else { MC })
        .next_multiple_of(mr);

    let mut plan = GemmPlan {
        problem,
        swapped,
        isa,
        path,
        split: WorkSplit::Serial,
        parts: 1,
        pack_a,
        // Tiles multiply so quickly that fetching what another core has packed takes longer than packing it once more.
        share_a: pack_a
            && kernels.tiles.is_none()
            && m.next_multiple_of(mr).saturating_mul(k).saturating_mul(size) <= SHARED_A_BYTES
            && m.saturating_mul(n).saturating_mul(k) / threads >= SHARED_A_WORK,
        pack_b,
        own_b: None,
        tiled,
        late,
        depth: k,
        kc,
        mc,
        nc,
        nb,
        scratch: Scratch::default(),
    };
    plan.split = split(&plan, threads, (mr, nr), kernels.tiles.is_some(), whole_rows);
    plan.share_a &= matches!(plan.split, WorkSplit::Grid { cols: 2.., .. }) && path == GemmAlgorithm::Blocked;
    if let (Some(_), WorkSplit::Grid { rows, cols }) = (&kernels.tiles, plan.split) {
        plan.own_b = own_columns(&plan, threads, nr, (rows, cols));
    }
    plan.parts = match plan.split {
        WorkSplit::Serial => 1,
        WorkSplit::Batch => threads.min(problem.batches()),
        WorkSplit::Grid { rows, cols } => (rows * cols).min(threads),
    };
    plan.scratch = scratch::<T>(&plan, mr, kernels.lanes);
    plan
}

/// Columns of B that each part of a grid packs for itself, where tiles read them and that is little work beside the part's products.
fn own_columns(plan: &GemmPlan, threads: usize, nr: usize, (rows, cols): (usize, usize)) -> Option<usize> {
    let GemmProblem { m, n, b: OperandSource::Memory(_), .. } = plan.problem else { return None };
    let width = n.div_ceil(nr).div_ceil(cols) * nr;
    let little = rows == 1 || width <= OWN_B * m / rows;
    let whole = plan.pack_b && plan.path == GemmAlgorithm::Blocked && plan.problem.batches() == 1 && plan.nc >= n;
    (little && whole && rows * cols <= threads).then_some(width)
}

/// From one row to the next of results that wait for the others of their rows.
pub(super) fn late_stride(columns: usize, lanes: usize) -> usize {
    columns.next_multiple_of(lanes)
}

/// Whether lines of this stride spread over cache sets and pages well enough to be read in place.
fn stride_is_cache_friendly(stride: isize, size: usize) -> bool {
    stride.unsigned_abs() * size <= SPREAD_BYTES
}

/// Vector times matrix, the matrix in memory with one unit stride.
fn gemv(problem: &GemmProblem) -> bool {
    let unit = |layout: MatrixLayout| layout.row == 1 || layout.col == 1;
    let (OperandSource::Memory(a), OperandSource::Memory(b)) = (problem.a, problem.b) else {
        return false;
    };
    problem.k > 0 && ((problem.m == 1 && unit(b)) || (problem.n == 1 && unit(a)))
}

fn split(plan: &GemmPlan, threads: usize, (mr, nr): (usize, usize), tiles: bool, whole_rows: bool) -> WorkSplit {
    let (GemmProblem { m, n, .. }, k) = (plan.problem, plan.depth);
    let (batches, work) = (plan.problem.batches(), m.saturating_mul(n).saturating_mul(k));
    if threads == 1 || work.saturating_mul(batches) < 2 * PARALLEL_WORK {
        return WorkSplit::Serial;
    }
    let even = batches.is_multiple_of(threads) || batches >= 4 * threads;
    if batches > 1 && (even || work < 2 * PARALLEL_WORK) {
        return WorkSplit::Batch;
    }
    let most = threads.min(work / PARALLEL_WORK).max(1);
    if plan.path == GemmAlgorithm::Gemv {
        return WorkSplit::Grid { rows: 1, cols: most };
    }
    // The longest part, in cycles by a coarse model: multiply-adds on 16 lanes, packing A at one
    // element a cycle in every part that needs it, packing B together. Many parts wait for B, which others have packed; tiles
    // multiply so quickly that fetching what is packed counts as much.
    let shared = |cols: usize| plan.share_a && cols > 1;
    let unit = |cols: usize| if shared(cols) { mr } else { row_unit(mr) };
    let cost = |rows: usize, cols: usize| {
        let height = m.div_ceil(unit(cols)).div_ceil(rows) * unit(cols);
        let width = n.div_ceil(nr).div_ceil(cols) * nr;
        let products = height.saturating_mul(width).saturating_mul(k);
        // Rows that wait for their columns are packed again with each turn of B.
        let turns = if plan.late { n.div_ceil(plan.nc) } else { 1 };
        let pack = usize::from(plan.pack_a && !shared(cols)) * turns;
        if tiles {
            let own = usize::from(own_columns(plan, threads, nr, (rows, cols)).is_some());
            // Half a tile takes as long as a whole one.
            let products = height.next_multiple_of(mr).saturating_mul(width).saturating_mul(k);
            return products / TILES_LANES + (height * (1 + pack) + width * (1 + own)) * k / 2;
        }
        let fetch = if most < FEW_PARTS { 0 } else { (width * height.div_ceil(plan.mc)).saturating_mul(k) / 4 };
        products / 16 + height * k * pack + fetch
    };
    // What is done together before: packing A, and waiting for it.
    let before = |cols: usize| match shared(cols) {
        true => m.saturating_mul(k) / most / if tiles { 2 } else { 1 } + BLOCK_CYCLES,
        false => 0,
    };
    let mut best = (usize::MAX, WorkSplit::Serial);
    for cols in 1..=most {
        let rows = most / cols;
        let end = cost(rows, cols).saturating_add(before(cols));
        if (cols == 1 || !whole_rows) && end < best.0 {
            best = (end, WorkSplit::Grid { rows, cols });
        }
    }
    let own = |(rows, cols)| own_columns(plan, threads, nr, (rows, cols)).is_some();
    if most < FEW_PARTS || (tiles && matches!(best.1, WorkSplit::Grid { rows, cols } if own((rows, cols)))) {
        return best.1;
    }
    // Many threads are never equally fast: cores share units and memory with others, or are taken away for a while. Blocks
    // that are taken one after another even that out; the end comes a block after an even share, at most. Shares that are
    // given out beforehand end a quarter later than the model says.
    best.0 = best.0.saturating_add(best.0 / 4);
    let real = |units: usize, blocks: usize| units.div_ceil(units.div_ceil(blocks)) == blocks;
    for cols in 1..=if whole_rows { 1 } else { n.div_ceil(nr).min(2 * BLOCKS) } {
        for rows in 1..=m.div_ceil(unit(cols)).min(2 * BLOCKS) {
            // Sizes that leave blocks without work say the same as fewer blocks.
            let real = real(m.div_ceil(unit(cols)), rows) && real(n.div_ceil(nr), cols);
            let blocks = rows * cols;
            if !real || blocks <= most || blocks > BLOCKS * most {
                continue;
            }
            let block = cost(rows, cols) + BLOCK_CYCLES;
            let end = blocks.saturating_mul(block) / most + block / 2 + before(cols);
            if end < best.0 {
                best = (end, WorkSplit::Grid { rows, cols });
            }
        }
    }
    best.1
}

fn scratch<T>(plan: &GemmPlan, mr: usize, lanes: usize) -> Scratch {
    let GemmProblem { m, n, k, .. } = plan.problem;
    let bytes = |elements: usize| (elements * size_of::<T>()).next_multiple_of(64);
    let mut end = 0;
    let mut take = |elements: usize| {
        end += bytes(elements);
        end - bytes(elements)
    };
    if plan.path == GemmAlgorithm::Gemv {
        // `b` holds the widened vector, `tile` the results.
        let (b, tile) = (take(k), take(m.max(n)));
        return Scratch { part: end, b, tile, ..Scratch::default() };
    }
    let k = plan.depth;
    let packed_b = if plan.pack_b { plan.own_b.unwrap_or(plan.nc) * k } else { 0 };
    let shared = matches!(plan.split, WorkSplit::Grid { .. });
    let rows = plan.mc.min(m.next_multiple_of(mr));
    let tile_rows = if k <= plan.kc { mr } else { rows };
    let widened = plan.problem.dtype != plan.problem.accumulator();
    let generated = [plan.problem.a, plan.problem.b].iter().any(|x| matches!(x, OperandSource::Generated { .. }));
    debug_assert!(plan.kc * mr <= TEMP);

    let apart = !shared || plan.own_b.is_some();
    let b = take(if apart { packed_b } else { 0 });
    let a = take(if plan.pack_a && !plan.share_a { rows * k } else { 0 });
    let tile = take(if plan.tiled && !plan.late { tile_rows * plan.nb } else { 0 });
    let temp = take(if widened || generated { TEMP_BYTES / size_of::<T>() } else { 0 });
    let shared_a = if apart { 0 } else { bytes(packed_b) };
    let late = shared_a + if plan.share_a { bytes(m.next_multiple_of(mr) * k) } else { 0 };
    let parts = late + if plan.late { bytes(m * late_stride(n, lanes)) } else { 0 };
    Scratch { shared_a, late, parts, part: end, b, a, tile, temp }
}
