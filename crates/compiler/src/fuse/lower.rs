//! Lowers a group of fused values to kernels.
//!
//! A group has one domain. *Full* results have its shape; *reductions* remove some of its axes; *row* results have the
//! shape of the remaining axes. A kernel runs over rows in parallel. Within a row, reductions run level by level (one loop for
//! all reductions that do not depend on each other), and the last loop stores the full results. The vector loop runs along the
//! axis that is contiguous in memory: a reduced axis (softmax over the last axis) or a kept one (sums of columns).

use super::emit::Emitter;
use super::emit::interleave::{InterleavedRows, plan_interleaving};
use super::expr::{ExprId, KernelExpr};
use super::generate::{Generator, Index, LowerFailure, ValueSource};
use super::horizontal::fuse_adjacent;
use super::index::{AffineIndex, AtomId, AtomKind, SpaceRefinement, reshape};
use super::iteration_space::IterationSpace;
use crate::loops::Kernel;
use crate::target::{LoopSchedule, Target};
use ir::ops::ReduceKind;
use ir::{DType, Graph, Shape, Value};

/// The role of a value in its fusion group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueRole {
    /// Has the domain's elements, usually in the domain's shape.
    Full,
    /// Has the shape of the axes that reductions keep.
    Row,
    /// Reduces an operand of the domain's shape.
    Reduce(ReduceKind),
}

/// One value that a group computes.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) value: Value,
    pub(crate) role: ValueRole,
    /// Whether a value outside the group reads it.
    pub(crate) stored: bool,
}

/// Values that are computed by one set of kernels.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) domain: Shape,
    pub(crate) reduced_axes: Vec<usize>,
    /// In order of definition.
    pub(crate) roots: Vec<Root>,
}

/// A buffer argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// A value of the graph.
    Value(Value),
    /// Private memory of this many bytes for each worker.
    Scratch(usize),
}

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Kernel,
    /// The buffer arguments.
    pub params: Vec<Param>,
    /// Extent of the parallel loop, if there is one.
    pub parallel: Option<i64>,
    /// The approximate number of operations.
    pub work: u64,
    /// The number of elements of its innermost loop.
    pub run: i64,
}

/// Generates the kernels of a group.
pub(crate) fn lower(
    graph: &Graph,
    group: &Group,
    sources: &dyn Fn(Value) -> ValueSource,
    target: &Target,
) -> Result<Vec<Lowered>, LowerFailure> {
    let mut todo = vec![IterationSpace::new(&group.domain, &group.reduced_axes)];
    let mut done = Vec::new();
    let mut refinements = 0;
    while let Some(space) = todo.pop() {
        if space.extents.len() > 60 {
            return Err(LowerFailure::NotScalar);
        }
        // Nothing to compute, except that a reduction over an empty axis still stores its identity.
        let rows: i64 =
            (0..space.extents.len()).filter(|v| space.reduced >> v & 1 == 0).map(|v| space.extents[v]).product();
        if rows == 0 || (space.numel() == 0 && group.roots.iter().all(|r| r.role == ValueRole::Full)) {
            continue;
        }
        // On a grid each part is a kernel launch, so it needs enough elements.
        let pays = match target.schedule {
            LoopSchedule::Workers(_) => true,
            LoopSchedule::Grid => space.numel() >= target.kernel.min_launch_elements as i64,
        };
        let cuttable = pays && done.len() + todo.len() < target.kernel.max_space_splits && refinements < 64;
        match piece(graph, group, sources, &space, cuttable, target) {
            Ok(lowered) => done.push(lowered),
            Err(LowerFailure::Refine(r)) => {
                refinements += 1;
                todo.extend(space.refined(r).into_iter().rev());
            }
            Err(other) => return Err(other),
        }
    }
    Ok(match target.schedule {
        LoopSchedule::Grid => fuse_adjacent(done, target.kernel.buffers),
        LoopSchedule::Workers(_) => done,
    })
}

pub(super) struct Reduction {
    pub(super) kind: ReduceKind,
    pub(super) operand: ExprId,
    pub(super) result: ExprId,
    pub(super) level: u32,
    pub(super) acc: DType,
}

fn piece(
    graph: &Graph,
    group: &Group,
    sources: &dyn Fn(Value) -> ValueSource,
    space: &IterationSpace,
    cuttable: bool,
    target: &Target,
) -> Result<Lowered, LowerFailure> {
    let mut generator = Generator::new(graph, sources);
    generator.uncut = if cuttable { space.reduced } else { u64::MAX };
    let (full, row) = space.index(&mut generator.atoms);
    generator.full = full.clone();
    generator.row = row.clone();
    let (reductions, stores) = roots(graph, group, &mut generator)?;
    let shape = choose_loops(&generator, space, &stores, &reductions, cuttable, target)?;
    Ok(Emitter::new(generator, space, shape, reductions, stores, target).run(group))
}

pub(super) type Store = (Value, ValueRole, ExprId, AffineIndex);

/// Returns the expressions of a group's results at the current element, and their store locations.
fn roots(graph: &Graph, group: &Group, g: &mut Generator<'_>) -> Result<(Vec<Reduction>, Vec<Store>), LowerFailure> {
    let (full, row) = (g.full.clone(), g.row.clone());
    let mut reductions: Vec<Reduction> = Vec::new();
    let mut stores: Vec<Store> = Vec::new();
    for root in &group.roots {
        let ty = graph.ty(root.value);
        let index = match root.role {
            ValueRole::Full if ty.shape != group.domain => {
                let index: Index = reshape(&mut g.atoms, &full, &group.domain, &ty.shape)?.into();
                g.regrouped.push(index.clone());
                index
            }
            ValueRole::Full => full.clone(),
            ValueRole::Row | ValueRole::Reduce(_) => row.clone(),
        };
        let e = match root.role {
            ValueRole::Reduce(kind) => {
                let node = graph.node_of(root.value).ok_or(LowerFailure::NotScalar)?;
                let operand = g.value(node.args[0], &full, None)?;
                let level = g.exprs.info(operand).level + 1;
                g.levels.push(level);
                let result = g.value(root.value, &row, None)?;
                let acc =
                    if matches!(kind, ReduceKind::Sum | ReduceKind::Prod) { ty.dtype.accumulator() } else { ty.dtype };
                reductions.push(Reduction { kind, operand, result, level, acc });
                result
            }
            _ => g.compute(root.value, &index)?,
        };
        if root.stored {
            let mut at = AffineIndex::default();
            for (i, s) in index.iter().zip(ty.strides()) {
                at = at.add(&i.scale(s as i64));
            }
            let at = g.atoms.recombine_div_rem(at);
            stores.push((root.value, root.role, e, at));
        }
    }
    Ok((reductions, stores))
}

/// The loops of a kernel, outermost first, as variables of its iteration space.
pub(super) struct LoopShape {
    /// Flattened into the parallel loop.
    pub(super) parallel: Vec<usize>,
    /// Serial row loops.
    pub(super) serial: Vec<usize>,
    /// The vector variable.
    pub(super) vector: Option<usize>,
    /// The block size if the vector variable is split into blocks that run in the parallel loop.
    pub(super) block: Option<i64>,
    /// Set if short rows are processed side by side, one per SIMD lane.
    pub(super) interleaved_rows: Option<InterleavedRows>,
    /// Variables of the reduced axes, in loop order.
    pub(super) cols: Vec<usize>,
    /// For each variable, the variable into whose loop it is merged because every index is affine in both together.
    pub(super) merged: Vec<Option<usize>>,
    /// Extents after merging.
    pub(super) extents: Vec<i64>,
    pub(super) work: u64,
}

impl LoopShape {
    /// The number of elements of the innermost loop.
    pub(super) fn run(&self) -> i64 {
        self.vector.map_or(1, |v| self.extents[v])
    }
}

/// All index forms that depend on loop variables.
pub(super) fn forms<'a>(g: &'a Generator<'_>, stores: &'a [Store]) -> Vec<&'a AffineIndex> {
    let mut out: Vec<&AffineIndex> = stores.iter().map(|s| &s.3).collect();
    for e in g.exprs.iter() {
        match e {
            KernelExpr::Load { at, .. } => out.push(at),
            KernelExpr::Index(l) => out.push(l),
            _ => {}
        }
    }
    for a in g.atoms.iter() {
        if let AtomKind::Div(l, _) | AtomKind::Mod(l, _) = &a.kind {
            out.push(l);
        }
    }
    out
}

fn choose_loops(
    g: &Generator<'_>,
    space: &IterationSpace,
    stores: &[Store],
    reductions: &[Reduction],
    cuttable: bool,
    target: &Target,
) -> Result<LoopShape, LowerFailure> {
    let n = space.extents.len();
    let var_atoms = var_atoms(g, n);
    let coefficient = |l: &AffineIndex, v: usize| var_atoms[v].map_or(0, |a| l.coefficient(a));
    let all = forms(g, stores);
    let (merged, extent_of) = merge(&all, &space.extents, &coefficient, &|v| (space.reduced >> v & 1) as usize);
    let alive: Vec<usize> = (0..n).filter(|&v| merged[v].is_none()).collect();

    // Prefer the variable with contiguous memory accesses.
    let weight = |v: usize| -> i64 {
        let mut w = 0;
        for (_, role, _, at) in stores {
            // The results of a whole row are stored once per row, while loads run over all of it.
            let often = *role == ValueRole::Full || reductions.is_empty();
            w += match stride_along(g, at, v).abs() {
                1 if often => 6,
                1 => 1,
                0 => 0,
                _ if often => -3,
                _ => -1,
            };
        }
        for e in g.exprs.iter() {
            if let KernelExpr::Load { at, .. } = e {
                // A value that is constant within a row is loaded once per row.
                let often = reductions.is_empty() || g.atoms.vars(at) & space.reduced != 0;
                w += match stride_along(g, at, v).abs() {
                    1 if often => 4,
                    0 if often => 1,
                    _ if often => -2,
                    1 => 1,
                    0 => 0,
                    _ => -1,
                };
            }
        }
        if extent_of[v] < 8 { w - 8 } else { w }
    };
    let has_full = stores.iter().any(|s| s.1 == ValueRole::Full);
    let vector = alive
        .iter()
        .copied()
        .filter(|&v| reductions.is_empty() || space.reduced >> v & 1 == 1 || !has_full || reductions.len() < 2)
        .max_by_key(|&v| (weight(v), v));
    let total = alive.iter().fold(1i64, |n, &v| n.saturating_mul(extent_of[v]));
    let cost: u64 = stores.iter().map(|s| g.exprs.info(s.2).cost as u64 + 2).sum::<u64>()
        + reductions.iter().map(|r| g.exprs.info(r.operand).cost as u64 + 1).sum::<u64>();
    let work = (total.max(0) as u64).saturating_mul(cost.max(1));
    let is_red = |v: usize| space.reduced >> v & 1 == 1;
    let levels = reductions.iter().map(|r| r.level).max().unwrap_or(0);
    let (reduced, kept): (Vec<usize>, Vec<usize>) = alive.iter().partition(|&&v| is_red(v));
    if let (LoopSchedule::Workers(w), &[v], &[column]) = (target.schedule, &kept[..], &reduced[..])
        && (has_full || levels > 1)
        && let Some(rows) = plan_interleaving(g, &all, (v, column), &extent_of, (levels, stores.len()), w)
    {
        let (vector, abreast, cols) = (Some(v), Some(rows), vec![column]);
        let (parallel, serial, block) = (vec![], vec![], None);
        return Ok(LoopShape {
            parallel,
            serial,
            vector,
            block,
            interleaved_rows: abreast,
            cols,
            merged,
            extents: extent_of,
            work,
        });
    }
    let rows: Vec<usize> = alive.iter().copied().filter(|&v| !is_red(v) && Some(v) != vector).collect();
    let mut cols: Vec<usize> = alive.iter().copied().filter(|&v| is_red(v) && Some(v) != vector).collect();
    if let Some(v) = vector.filter(|&v| is_red(v)) {
        cols.push(v);
    }
    let (mut parallel, mut serial) = (Vec::new(), rows.clone());
    let mut block = None;
    match target.schedule {
        // Every row is independent, and so is every element of a vector without carried values. The grid lowering chooses how many
        // elements form a block.
        LoopSchedule::Grid => std::mem::swap(&mut parallel, &mut serial),
        LoopSchedule::Workers(w) if work < w.parallel_work => {}
        LoopSchedule::Workers(w) => {
            let row_count: i64 = rows.iter().map(|&v| extent_of[v]).product();
            // Too few rows: split the vector axis into blocks that run in parallel.
            if let Some(v) = vector.filter(|&v| row_count < w.min_parallel_rows && !is_red(v)) {
                let n = extent_of[v];
                let (least, most) = w.block;
                // Half as many chunks as for rows, because each block also waits for its first lanes.
                let shared = (2 * n / w.target_chunks).clamp(least, most);
                let target = if cols.is_empty() { shared } else { w.reduction_block };
                block = if n >= 2 * target { divisor_near(n, target) } else { None };
                if block.is_none() && n >= 2 * target && space.extents[v] == n && cuttable {
                    // Choose a block size so that the remaining length has a divisor near the target, and the tail is too short
                    // to split again.
                    let step = if target > most / 2 { 2 * least } else { target.min(least) };
                    return Err(SpaceRefinement::SplitRange { var: v, at: n - n % step }.into());
                }
            }
            parallel_rows(&rows, &extent_of, total, (w.target_chunks, w.chunk_elements), &mut parallel, &mut serial);
        }
    }
    Ok(LoopShape { parallel, serial, vector, block, interleaved_rows: None, cols, merged, extents: extent_of, work })
}

/// The usual difference of a form between consecutive values of a variable: quotients stay constant, remainders advance.
fn stride_along(g: &Generator<'_>, form: &AffineIndex, v: usize) -> i64 {
    let step = |&(a, k): &(AtomId, i64)| match &g.atoms.get(a).kind {
        AtomKind::Var(x) => k * i64::from(*x == v),
        AtomKind::Mod(part, by) => k * (stride_along(g, part, v) % by),
        AtomKind::Div(part, by) => k * (stride_along(g, part, v) / by),
        AtomKind::Computed(_) => 0,
    };
    form.terms.iter().map(step).sum()
}

/// Merges adjacent variables: outer·extent + inner becomes one loop if every form allows it and both are of one kind. Returns
/// the variable that each variable is merged into, and the extents of the remaining loops.
pub(super) fn merge(
    forms: &[&AffineIndex],
    extents: &[i64],
    coefficient: &dyn Fn(&AffineIndex, usize) -> i64,
    class: &dyn Fn(usize) -> usize,
) -> (Vec<Option<usize>>, Vec<i64>) {
    let mut merged: Vec<Option<usize>> = vec![None; extents.len()];
    let mut joint = extents.to_vec();
    for v in 1..extents.len() {
        if class(v) == class(v - 1) && forms.iter().all(|l| coefficient(l, v - 1) == coefficient(l, v) * extents[v]) {
            merged[v - 1] = Some(v);
            // From the outside in, the merged loop accumulates the extents of its parts.
            joint[v] *= joint[v - 1];
        }
    }
    (merged, joint)
}

/// The atom of each variable of a space.
pub(super) fn var_atoms(g: &Generator<'_>, n: usize) -> Vec<Option<u32>> {
    let mut found = vec![None; n];
    for (id, a) in g.atoms.iter().enumerate() {
        if let AtomKind::Var(v) = a.kind {
            found[v] = Some(id as u32);
        }
    }
    found
}

/// Lowers a group to the kernel that runs over finished tiles of the matrix product `tile`. The axes are batch axes, row axes
/// and column axes (`rank` counts the first two). The first buffer is the tile.
pub(crate) fn lower_epilogue(
    graph: &Graph,
    group: &Group,
    tile: Value,
    (batch, rows): (usize, usize),
    sources: &dyn Fn(Value) -> ValueSource,
    target: &Target,
) -> Result<Lowered, LowerFailure> {
    let Some(products) = target.matmul.epilogues else { return Err(LowerFailure::Mismatch) };
    let shape = &graph.ty(tile).shape;
    let columns: Vec<usize> = (batch + rows..shape.len()).collect();
    let width: usize = columns.iter().map(|&a| shape[a]).product();
    if group.domain != *shape
        || !(group.reduced_axes.is_empty() || group.reduced_axes == columns && width <= products.max_row_columns)
    {
        return Err(LowerFailure::Mismatch);
    }
    // The tile is available only at the current element, like a carried value.
    let with_tile = |v: Value| if v == tile { ValueSource::Carry(0) } else { sources(v) };
    let classes: Vec<usize> = (0..shape.len()).map(|a| (a >= batch) as usize + (a >= batch + rows) as usize).collect();
    let (emitter, vars) = block_emitter(graph, group, &classes, &with_tile, target)?;
    Ok(emitter.tile(group, tile, vars))
}

/// Generates the kernel that computes blocks of a matrix product's operand. `classes` states for each axis whether it is
/// a batch axis (0), a row axis (1) or a column axis (2).
pub(crate) fn lower_prologue(
    graph: &Graph,
    operand: Value,
    classes: &[usize],
    sources: &dyn Fn(Value) -> ValueSource,
    target: &Target,
) -> Result<Lowered, LowerFailure> {
    let roots = vec![Root { value: operand, role: ValueRole::Full, stored: true }];
    let group = Group { domain: graph.ty(operand).shape.clone(), reduced_axes: Vec::new(), roots };
    let own = |v: Value| if v == operand { ValueSource::Result } else { sources(v) };
    let (emitter, vars) = block_emitter(graph, &group, classes, &own, target)?;
    Ok(emitter.emit_prologue(&group, vars))
}

/// Returns an emitter for a group whose axes merge into one variable per axis class, and those variables.
fn block_emitter<'a>(
    graph: &'a Graph,
    group: &Group,
    classes: &[usize],
    sources: &'a dyn Fn(Value) -> ValueSource,
    target: &Target,
) -> Result<(Emitter<'a>, [Option<usize>; 3]), LowerFailure> {
    let space = IterationSpace::new(&group.domain, &group.reduced_axes);
    let mut g = Generator::new(graph, sources);
    g.uncut = u64::MAX;
    let (full, row) = space.index(&mut g.atoms);
    g.full = full.clone();
    g.row = row;
    let (reductions, stores) = roots(graph, group, &mut g)?;
    // Variables of axes longer than 1, each of one class: batch, row or column.
    let classes: Vec<usize> = (0..group.domain.len()).filter(|&a| group.domain[a] != 1).map(|a| classes[a]).collect();
    let n = space.extents.len();
    let atoms = var_atoms(&g, n);
    let coefficient = |l: &AffineIndex, v: usize| atoms[v].map_or(0, |a| l.coefficient(a));
    let all = forms(&g, &stores);
    let (merged, extents) = merge(&all, &space.extents, &coefficient, &|v| classes[v]);
    let alive: Vec<usize> = (0..n).filter(|&v| merged[v].is_none()).collect();
    let of_class = |c: usize| {
        let mut it = alive.iter().copied().filter(|&v| classes[v] == c);
        (it.next(), it.next().is_some())
    };
    let [(b, b2), (r, r2), (c, c2)] = [of_class(0), of_class(1), of_class(2)];
    if b2 || r2 || c2 {
        return Err(LowerFailure::Mismatch);
    }
    let work = space.numel().max(0) as u64;
    let cols = if reductions.is_empty() { vec![] } else { c.into_iter().collect() };
    let loops = LoopShape {
        parallel: vec![],
        serial: vec![],
        vector: c,
        block: None,
        interleaved_rows: None,
        cols,
        merged,
        extents,
        work,
    };
    Ok((Emitter::new(g, &space, loops, reductions, stores, target), [b, r, c]))
}

/// The largest divisor of `n` up to `target` that is a multiple of 16 and not much smaller.
pub(super) fn divisor_near(n: i64, target: i64) -> Option<i64> {
    (target / 8 / 16..=target / 16).rev().map(|k| k * 16).find(|&d| d > 0 && n % d == 0)
}

/// Moves enough outer rows into the parallel loop for all workers, with enough work left in each chunk.
fn parallel_rows(
    rows: &[usize],
    extents: &[i64],
    total: i64,
    (chunks, elements): (i64, i64),
    parallel: &mut Vec<usize>,
    serial: &mut Vec<usize>,
) {
    let mut count = 1;
    let mut taken = 0;
    for &v in rows {
        if count >= chunks || (taken > 0 && total / (count * extents[v]).max(1) < elements) {
            break;
        }
        count *= extents[v];
        taken += 1;
    }
    *parallel = rows[..taken].to_vec();
    *serial = rows[taken..].to_vec();
}

pub(super) fn kernel_name(group: &Group) -> String {
    let has = |f: fn(&ValueRole) -> bool| group.roots.iter().any(|r| f(&r.role));
    let kind = match (has(|r| matches!(r, ValueRole::Reduce(_))), has(|r| *r == ValueRole::Full)) {
        (true, true) => "row",
        (true, false) => "reduce",
        _ => "map",
    };
    format!("{kind}{:?}", group.domain.as_slice())
}
