//! Chooses how to compute a product: algorithm, block sizes, split over threads, scratch.
//!
//! Two things may depend on the thread count: the rows and columns of each part, and the scratch layout. The
//! k-blocks and the algorithm may not, so no bit of the result depends on it.

use ir::DType;

use super::block::row_unit;
use super::kernel::{HasKernels, Kernels};
use super::pack::{TEMP, TEMP_BYTES};
use super::problem::{BATCH_AXES, GemmProblem, MatrixLayout, OperandSource, OutputKind, PlanError};
use super::small_matmul;
use super::vector::Isa;
use crate::thresholds::Threshold;

/// The maximum length of a k-block in bytes: long enough that the cost of reading and writing tiles of C between k-blocks is
/// negligible, short enough that a panel of A stays in L1.
const KC_BYTES: usize = 2048;
/// The maximum length of a k-block for AMX, in groups of two bf16 or four i8.
const TILES_K: usize = 256;
/// The number of rows of A packed at a time. Their k-block stays in L2, and B is read once per `MC` rows.
const MC: usize = 120;
/// The number of columns of a block. With `MC` rows the block stays in L2 over the k-blocks and until its epilogue.
const NB: usize = 256;
/// The maximum bytes of a B that is read in place, unless its rows map to too few cache sets.
const DIRECT_B_BYTES: usize = 4 << 20;
/// The maximum bytes of B packed at a time.
const PACKED_B_BYTES: usize = 16 << 20;
/// The maximum bytes of B packed at a time, per row of the product. A is packed again for each such part of B,
/// which must cost little compared with packing that part. A larger limit would only use more memory.
const PACKED_B_ROW_BYTES: usize = 16 << 10;
/// The minimum of that limit, for products with few rows, so that a part is worth waking threads for.
const PACKED_B_LEAST_BYTES: usize = 4 << 20;
/// The bytes of A packed at a time in each part.
const PACKED_A_BYTES: usize = 4 << 20;
/// The maximum bytes of an A that is packed once for all parts. Each part packs a larger A for itself, strip by strip.
const SHARED_A_BYTES: usize = 32 << 20;
/// The minimum number of multiply-adds per part at which a shared packed A is worth the synchronization.
const SHARED_A_WORK: usize = 1 << 22;
/// The number of columns of B that a part may pack for itself, per row of the part.
const OWN_B: usize = 4;
/// The number of multiply-adds below which waking another thread costs more than it saves.
const PARALLEL_WORK: usize = 60_000;

/// The maximum number of parts for which blocks are assigned statically.
const FEW_PARTS: usize = 4;
/// The maximum number of blocks per part where parts take blocks dynamically.
const BLOCKS: usize = 6;
/// The cost in cycles of taking a block.
const BLOCK_CYCLES: usize = 3000;
/// The number of groups that AMX multiplies and adds per cycle.
const TILES_LANES: usize = 128;
/// The maximum number of columns of a product for which reading A in place is cheaper than packing it.
const PACKED_A_COLUMNS: usize = 96;
/// The maximum stride in bytes from one line to the next at which lines spread well over cache sets and pages.
const SPREAD_BYTES: usize = 6144;
/// If the stride from one line to the next is a multiple of this number of bytes,
/// all lines map to one set of an L1 cache with 64 sets.
const ONE_SET_BYTES: usize = 4096;
/// The number of rows of a product above which a B with such lines is packed, because it is read often.
const ONE_SET_ROWS: usize = 192;
/// The bytes of a tile of whole rows.
const WHOLE_ROWS_BYTES: usize = 1 << 19;
/// The maximum bytes of results for which a whole-row epilogue waits for all columns,
/// where otherwise all of B would be packed at once.
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
    /// The product has one part.
    Serial,
    /// Each part computes whole matrices.
    Batch,
    /// The parts share the packed B of one matrix after another, and each computes blocks of rows × columns. There are as many
    /// blocks as parts, or more blocks that the parts take dynamically.
    Grid { rows: usize, cols: usize },
}

/// The algorithm of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GemmAlgorithm {
    /// A vector times a matrix, limited by memory bandwidth.
    Gemv,
    /// A product of a few elements, computed one by one.
    Small,
    /// Packed (or direct) panels and register tiles.
    Blocked,
}

/// Offsets into the scratch, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scratch {
    /// The offset of the packed A that the parts share; the shared packed B precedes it.
    pub(super) shared_a: usize,
    /// The offset of the results that wait until their rows are complete.
    pub(super) late: usize,
    /// The offset of the parts' private scratch.
    pub(super) parts: usize,
    /// The distance from one part's scratch to the next.
    pub(super) part: usize,
    /// Offsets within a part.
    pub(super) b: usize,
    pub(super) a: usize,
    pub(super) tile: usize,
    pub(super) temp: usize,
}

/// How one [`GemmProblem`] is computed. A plan is plain data, made once and run many times from any thread.
#[derive(Clone, Debug)]
pub struct GemmPlan {
    pub(super) problem: GemmProblem,
    /// Whether the problem was transposed: the caller's A is then the right operand.
    pub(super) swapped: bool,
    pub(super) isa: Isa,
    pub(super) path: GemmAlgorithm,
    pub(super) split: WorkSplit,
    pub(super) parts: usize,
    pub(super) pack_a: bool,
    /// Whether A is packed once for all parts.
    pub(super) share_a: bool,
    pub(super) pack_b: bool,
    /// The maximum number of columns of B that each part packs for itself.
    pub(super) own_b: Option<usize>,
    /// Whether results pass through a tile in scratch.
    pub(super) tiled: bool,
    /// Whether all results stay in scratch until their rows are complete.
    pub(super) late: bool,
    /// k in packed elements. A packed element can be a group of several elements.
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

    /// The bytes of scratch that [`GemmPlan::run`] needs, aligned to 64. The scratch need not keep its contents.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.parts + self.parts * self.scratch.part
    }

    /// The instruction set that the plan uses.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The number of threads that the plan can use. A pool of any size can run it.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// The bytes of a B packed for [`OperandSource::Packed`], aligned to 64.
    pub fn packed_b_bytes(&self) -> usize {
        let columns = self.problem.n.next_multiple_of(self.nr());
        self.depth * columns * self.problem.accumulator().size()
    }

    /// The number of columns of a packed B panel.
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

/// Rewrites a problem into an equivalent one that the kernels compute faster.
fn normalise(mut p: GemmProblem) -> (GemmProblem, bool) {
    let (OperandSource::Memory(a), OperandSource::Memory(b), OutputKind::Memory { dtype, layout: c, accumulate }) =
        (p.a, p.b, p.c)
    else {
        return (p, false);
    };
    let (mut a, mut b, mut c) = (a, b, c);
    // If B is the same for all entries of a batch axis, A·B = the stacked entries of A, times B.
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
    // Tiles narrower than a cache line would read each line of B several times.
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

    // Panels for AMX are wider.
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
    // Split the columns into passes of nearly equal size.
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
        // AMX multiplies so fast that fetching data packed by another core takes longer than packing it again.
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

/// The number of columns of B that each part of a grid packs for itself, where AMX reads them and packing is cheap.
fn own_columns(plan: &GemmPlan, threads: usize, nr: usize, (rows, cols): (usize, usize)) -> Option<usize> {
    let GemmProblem { m, n, b: OperandSource::Memory(_), .. } = plan.problem else { return None };
    let width = n.div_ceil(nr).div_ceil(cols) * nr;
    let little = rows == 1 || width <= OWN_B * m / rows;
    let whole = plan.pack_b && plan.path == GemmAlgorithm::Blocked && plan.problem.batches() == 1 && plan.nc >= n;
    (little && whole && rows * cols <= threads).then_some(width)
}

/// The distance between rows of results that wait until their rows are complete.
pub(super) fn late_stride(columns: usize, lanes: usize) -> usize {
    columns.next_multiple_of(lanes)
}

/// Returns whether lines of this stride spread over cache sets and pages well enough to be read in place.
fn stride_is_cache_friendly(stride: isize, size: usize) -> bool {
    stride.unsigned_abs() * size <= SPREAD_BYTES
}

/// Returns whether this is a vector times a matrix in memory with one unit stride.
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
    // The cost of the longest part in cycles, by a coarse model: multiply-adds on 16 lanes, packing A at one
    // element per cycle in every part that needs it, packing B together. Many parts wait for the B that others pack. With AMX,
    // fetching packed data costs as much as packing it.
    let shared = |cols: usize| plan.share_a && cols > 1;
    let unit = |cols: usize| if shared(cols) { mr } else { row_unit(mr) };
    let cost = |rows: usize, cols: usize| {
        let height = m.div_ceil(unit(cols)).div_ceil(rows) * unit(cols);
        let width = n.div_ceil(nr).div_ceil(cols) * nr;
        let products = height.saturating_mul(width).saturating_mul(k);
        // Rows that wait for their columns are packed again in each pass over B.
        let turns = if plan.late { n.div_ceil(plan.nc) } else { 1 };
        let pack = usize::from(plan.pack_a && !shared(cols)) * turns;
        if tiles {
            let own = usize::from(own_columns(plan, threads, nr, (rows, cols)).is_some());
            // A partial tile takes as long as a full one.
            let products = height.next_multiple_of(mr).saturating_mul(width).saturating_mul(k);
            return products / TILES_LANES + (height * (1 + pack) + width * (1 + own)) * k / 2;
        }
        let fetch = if most < FEW_PARTS { 0 } else { (width * height.div_ceil(plan.mc)).saturating_mul(k) / 4 };
        products / 16 + height * k * pack + fetch
    };
    // The cost of the work that is shared before the products: packing A, and waiting for it.
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
    // Threads are never equally fast: cores share units and memory with others or are preempted. Blocks
    // that are taken dynamically balance this; the last block ends at most one block after an even share. Static shares
    // end about a quarter later than the model predicts.
    best.0 = best.0.saturating_add(best.0 / 4);
    let real = |units: usize, blocks: usize| units.div_ceil(units.div_ceil(blocks)) == blocks;
    for cols in 1..=if whole_rows { 1 } else { n.div_ceil(nr).min(2 * BLOCKS) } {
        for rows in 1..=m.div_ceil(unit(cols)).min(2 * BLOCKS) {
            // Sizes that leave some blocks without work are equivalent to fewer blocks.
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
        // `b` contains the upcast vector, `tile` the results.
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
