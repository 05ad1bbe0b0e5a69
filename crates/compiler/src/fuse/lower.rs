//! A group of fused values → kernels.
//!
//! A group has one domain. *Full* results have its shape; *reductions* remove some of its axes; *row* results have what
//! the reductions leave. A kernel runs over rows in parallel; within a row, reductions run level by level (one loop for
//! all that don't depend on each other), and full results are stored by the last loop. The vector runs along whichever
//! axis memory runs along: a reduced one (softmax over the last axis) or a kept one (sums of columns).

use super::expr::{Ex, ExId};
use super::generate::{Fail, Generator, Source};
use super::index::{AtomKind, Lin, Refine};
use super::space::Space;
use crate::loops::{self, Atom, Buf, Builder, Carried, Extent, Kernel, LoopKind, Mode, Reg, Size, Stmt};
use ir::ops::ReduceKind;
use ir::{Binary, DType, Graph, Scalar, Shape, Value};
use rustc_hash::FxHashMap;

/// What a fused value is to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has the domain's shape.
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
    pub(crate) role: Role,
    /// Whether anything outside the group reads it.
    pub(crate) stored: bool,
}

/// Values computed by one family of kernels.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) full: Shape,
    pub(crate) red: Vec<usize>,
    /// In order of definition.
    pub(crate) roots: Vec<Root>,
}

/// A buffer argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// A value of the graph.
    Value(Value),
    /// Private memory of this many bytes per worker.
    Scratch(usize),
}

/// A kernel with what it is applied to.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Kernel,
    /// Its buffer arguments.
    pub params: Vec<Param>,
    /// Extent of the parallel loop, if there is one.
    pub parallel: Option<i64>,
    /// Rough operation count.
    pub work: u64,
}

/// Pieces of an iteration space beyond which masks take the place of cuts.
const MAX_PIECES: usize = 16;
/// Work below which a kernel stays on one thread.
const PARALLEL_WORK: u64 = 40_000;
/// Columns up to which a row of a product is finished as a whole.
const WHOLE_ROW: usize = 1024;
/// Row bytes up to which a costly intermediate is kept from one loop of a row to the next.
const SCRATCH_ROW: usize = 128 << 10;

/// Writes the kernels of a group.
pub(crate) fn lower(graph: &Graph, group: &Group, sources: &dyn Fn(Value) -> Source) -> Result<Vec<Lowered>, Fail> {
    let mut todo = vec![Space::new(&group.full, &group.red)];
    let mut done = Vec::new();
    let mut refinements = 0;
    while let Some(space) = todo.pop() {
        if space.extents.len() > 60 {
            return Err(Fail::NotScalar);
        }
        // Nothing to compute, unless a reduction over nothing must still give its identity.
        let rows: i64 = (0..space.extents.len())
            .filter(|v| space.reduced >> v & 1 == 0)
            .map(|v| space.extents[v])
            .product();
        if rows == 0 || (space.numel() == 0 && group.roots.iter().all(|r| r.role == Role::Full)) {
            continue;
        }
        let cuttable = done.len() + todo.len() < MAX_PIECES && refinements < 64;
        match piece(graph, group, sources, &space, cuttable) {
            Ok(lowered) => done.push(lowered),
            Err(Fail::Refine(r)) => {
                refinements += 1;
                todo.extend(space.refined(r).into_iter().rev());
            }
            Err(other) => return Err(other),
        }
    }
    Ok(done)
}

struct Reduction {
    kind: ReduceKind,
    operand: ExId,
    result: ExId,
    level: u32,
    acc: DType,
}

fn piece(
    graph: &Graph,
    group: &Group,
    sources: &dyn Fn(Value) -> Source,
    space: &Space,
    cuttable: bool,
) -> Result<Lowered, Fail> {
    let mut generator = Generator::new(graph, sources);
    generator.uncut = if cuttable { space.reduced } else { u64::MAX };
    let (full, row) = space.index(&mut generator.atoms);
    generator.full = full.clone();
    generator.row = row.clone();
    let (reductions, stores) = roots(graph, group, &mut generator)?;
    let shape = choose_loops(&generator, space, &stores, &reductions, cuttable)?;
    Ok(Emitter::new(generator, space, shape, reductions, stores).run(group))
}

type Store = (Value, Role, ExId, Lin);

/// The expressions of a group's results at the element being computed, and where they are stored.
fn roots(graph: &Graph, group: &Group, g: &mut Generator<'_>) -> Result<(Vec<Reduction>, Vec<Store>), Fail> {
    let (full, row) = (g.full.clone(), g.row.clone());
    let mut reductions: Vec<Reduction> = Vec::new();
    let mut stores: Vec<Store> = Vec::new();
    for root in &group.roots {
        let ty = graph.ty(root.value);
        let index = if root.role == Role::Full { &full } else { &row };
        let e = match root.role {
            Role::Reduce(kind) => {
                let node = graph.node_of(root.value).ok_or(Fail::NotScalar)?;
                let operand = g.value(node.args[0], &full, None)?;
                let level = g.exprs.info(operand).level + 1;
                g.levels.push(level);
                let result = g.value(root.value, &row, None)?;
                let acc = if matches!(kind, ReduceKind::Sum | ReduceKind::Prod) {
                    ty.dtype.accumulator()
                } else {
                    ty.dtype
                };
                reductions.push(Reduction {
                    kind,
                    operand,
                    result,
                    level,
                    acc,
                });
                result
            }
            _ => g.compute(root.value, index)?,
        };
        if root.stored {
            let mut at = Lin::default();
            for (i, s) in index.iter().zip(ty.strides()) {
                at = at.add(&i.scale(s as i64));
            }
            stores.push((root.value, root.role, e, at));
        }
    }
    Ok((reductions, stores))
}

/// The loops of a kernel, outermost first, as variables of its space.
struct LoopShape {
    /// Flattened into the parallel loop.
    parallel: Vec<usize>,
    /// Rows that run one after the other.
    serial: Vec<usize>,
    /// The vector variable.
    vector: Option<usize>,
    /// The vector variable runs in blocks of this size, and the blocks in the parallel loop.
    block: Option<i64>,
    /// Variables of the reduced axes, in loop order.
    cols: Vec<usize>,
    /// A variable that runs inside another one, because every index is affine in both together.
    merged: Vec<Option<usize>>,
    /// Extents after merging.
    extents: Vec<i64>,
    work: u64,
}

/// All forms that depend on loop variables.
fn forms<'a>(g: &'a Generator<'_>, stores: &'a [Store]) -> Vec<&'a Lin> {
    let mut out: Vec<&Lin> = stores.iter().map(|s| &s.3).collect();
    for e in g.exprs.iter() {
        match e {
            Ex::Load { at, .. } => out.push(at),
            Ex::Index(l) => out.push(l),
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
    space: &Space,
    stores: &[Store],
    reductions: &[Reduction],
    cuttable: bool,
) -> Result<LoopShape, Fail> {
    let n = space.extents.len();
    let var_atoms = var_atoms(g, n);
    let coefficient = |l: &Lin, v: usize| var_atoms[v].map_or(0, |a| l.coefficient(a));
    let all = forms(g, stores);
    let (merged, extent_of) = merge(&all, &space.extents, &coefficient, &|v| {
        (space.reduced >> v & 1) as usize
    });
    let alive: Vec<usize> = (0..n).filter(|&v| merged[v].is_none()).collect();

    // The vector runs where memory runs.
    let weight = |v: usize| -> i64 {
        let mut w = 0;
        for (_, _, _, at) in stores {
            w += match coefficient(at, v).abs() {
                1 => 6,
                0 => 0,
                _ => -3,
            };
        }
        for e in g.exprs.iter() {
            if let Ex::Load { at, .. } = e {
                w += match coefficient(at, v).abs() {
                    1 => 4,
                    0 => 1,
                    _ => -2,
                };
            }
        }
        if extent_of[v] < 8 { w - 8 } else { w }
    };
    let has_full = stores.iter().any(|s| s.1 == Role::Full);
    let vector = alive
        .iter()
        .copied()
        .filter(|&v| reductions.is_empty() || space.reduced >> v & 1 == 1 || !has_full || reductions.len() < 2)
        .max_by_key(|&v| (weight(v), v));
    let total: i64 = alive.iter().map(|&v| extent_of[v]).product();
    let cost: u64 = stores.iter().map(|s| g.exprs.info(s.2).cost as u64 + 2).sum::<u64>()
        + reductions
            .iter()
            .map(|r| g.exprs.info(r.operand).cost as u64 + 1)
            .sum::<u64>();
    let work = total.max(0) as u64 * cost.max(1);
    let is_red = |v: usize| space.reduced >> v & 1 == 1;
    let rows: Vec<usize> = alive
        .iter()
        .copied()
        .filter(|&v| !is_red(v) && Some(v) != vector)
        .collect();
    let mut cols: Vec<usize> = alive
        .iter()
        .copied()
        .filter(|&v| is_red(v) && Some(v) != vector)
        .collect();
    if let Some(v) = vector.filter(|&v| is_red(v)) {
        cols.push(v);
    }
    let (mut parallel, mut serial) = (Vec::new(), rows.clone());
    let mut block = None;
    if work >= PARALLEL_WORK {
        let row_count: i64 = rows.iter().map(|&v| extent_of[v]).product();
        // Too few rows: the vector axis runs in blocks, and those in parallel.
        if let Some(v) = vector.filter(|&v| row_count < 8 && !is_red(v)) {
            let n = extent_of[v];
            let target = if cols.is_empty() { (n / 32).clamp(512, 8192) } else { 64 };
            block = if n >= 2 * target { divisor_near(n, target) } else { None };
            if block.is_none() && n >= 2 * target && space.extents[v] == n && cuttable {
                return Err(Refine::Cut {
                    var: v,
                    at: n - n % target.max(64),
                }
                .into());
            }
        }
        parallel_rows(&rows, &extent_of, total, &mut parallel, &mut serial);
    }
    Ok(LoopShape {
        parallel,
        serial,
        vector,
        block,
        cols,
        merged,
        extents: extent_of,
        work,
    })
}

/// Merges neighbours: outer·extent + inner runs as one loop if every form says so and both are of one class. Gives what
/// each variable is merged into, and the extents of the loops that stay.
fn merge(
    forms: &[&Lin],
    extents: &[i64],
    coefficient: &dyn Fn(&Lin, usize) -> i64,
    class: &dyn Fn(usize) -> usize,
) -> (Vec<Option<usize>>, Vec<i64>) {
    let mut merged: Vec<Option<usize>> = vec![None; extents.len()];
    let mut joint = extents.to_vec();
    for v in 1..extents.len() {
        if class(v) == class(v - 1)
            && forms
                .iter()
                .all(|l| coefficient(l, v - 1) == coefficient(l, v) * extents[v])
        {
            merged[v - 1] = Some(v);
            // Going inwards, the merged loop collects the extents of all that run in it.
            joint[v] *= joint[v - 1];
        }
    }
    (merged, joint)
}

/// For each variable of a space, its atom.
fn var_atoms(g: &Generator<'_>, n: usize) -> Vec<Option<u32>> {
    let mut found = vec![None; n];
    for (id, a) in g.atoms.iter().enumerate() {
        if let AtomKind::Var(v) = a.kind {
            found[v] = Some(id as u32);
        }
    }
    found
}

/// Writes a group as the kernel that runs over finished tiles of the product `tile`, whose axes are batch axes, row axes
/// and column axes (`rank` counts the first two). The first buffer is the tile.
pub(crate) fn lower_epilogue(
    graph: &Graph,
    group: &Group,
    tile: Value,
    (batch, rows): (usize, usize),
    sources: &dyn Fn(Value) -> Source,
) -> Result<Lowered, Fail> {
    let shape = &graph.ty(tile).shape;
    let columns: Vec<usize> = (batch + rows..shape.len()).collect();
    let width: usize = columns.iter().map(|&a| shape[a]).product();
    if group.full != *shape || !(group.red.is_empty() || group.red == columns && width <= WHOLE_ROW) {
        return Err(Fail::Mismatch);
    }
    let space = Space::new(&group.full, &group.red);
    // The tile is there at the element being computed and nowhere else, like a carried value.
    let with_tile = |v: Value| if v == tile { Source::Carry(0) } else { sources(v) };
    let mut g = Generator::new(graph, &with_tile);
    g.uncut = u64::MAX;
    let (full, row) = space.index(&mut g.atoms);
    g.full = full.clone();
    g.row = row;
    let (reductions, stores) = roots(graph, group, &mut g)?;
    // Variables of axes longer than 1, each of one class: batch, row or column.
    let classes: Vec<usize> = (0..shape.len())
        .filter(|&a| shape[a] != 1)
        .map(|a| {
            if a < batch {
                0
            } else if a < batch + rows {
                1
            } else {
                2
            }
        })
        .collect();
    let n = space.extents.len();
    let atoms = var_atoms(&g, n);
    let coefficient = |l: &Lin, v: usize| atoms[v].map_or(0, |a| l.coefficient(a));
    let all = forms(&g, &stores);
    let (merged, extents) = merge(&all, &space.extents, &coefficient, &|v| classes[v]);
    let alive: Vec<usize> = (0..n).filter(|&v| merged[v].is_none()).collect();
    let of_class = |c: usize| {
        let mut it = alive.iter().copied().filter(|&v| classes[v] == c);
        (it.next(), it.next().is_some())
    };
    let [(b, b2), (r, r2), (c, c2)] = [of_class(0), of_class(1), of_class(2)];
    if b2 || r2 || c2 {
        return Err(Fail::Mismatch);
    }
    let work = space.numel().max(0) as u64;
    let cols = if reductions.is_empty() {
        vec![]
    } else {
        c.into_iter().collect()
    };
    let loops = LoopShape {
        parallel: vec![],
        serial: vec![],
        vector: c,
        block: None,
        cols,
        merged,
        extents,
        work,
    };
    Ok(Emitter::new(g, &space, loops, reductions, stores).tile(group, tile, [b, r, c]))
}

/// The largest divisor of `n` up to `target` that is a multiple of 16 and not much smaller.
fn divisor_near(n: i64, target: i64) -> Option<i64> {
    (target / 8 / 16..=target / 16)
        .rev()
        .map(|k| k * 16)
        .find(|&d| d > 0 && n % d == 0)
}

/// Puts enough outer rows into the parallel loop to feed many workers, with enough work left in each.
fn parallel_rows(rows: &[usize], extents: &[i64], total: i64, parallel: &mut Vec<usize>, serial: &mut Vec<usize>) {
    let mut count = 1;
    let mut taken = 0;
    for &v in rows {
        if count >= 64 || (taken > 0 && total / (count * extents[v]).max(1) < 256) {
            break;
        }
        count *= extents[v];
        taken += 1;
    }
    *parallel = rows[..taken].to_vec();
    *serial = rows[taken..].to_vec();
}

#[derive(Clone, Copy)]
enum Bind {
    Unbound,
    Var(loops::Var),
    Reg(Reg),
    /// The start of a block, and the variable within it.
    Block(Reg, loops::Var),
}

struct Emitter<'a> {
    g: Generator<'a>,
    shape: LoopShape,
    reductions: Vec<Reduction>,
    stores: Vec<Store>,
    b: Builder,
    bind: Vec<Bind>,
    bound: u64,
    level: u32,
    bufs: FxHashMap<Value, Buf>,
    params: Vec<Param>,
    scopes: Vec<Scope>,
    /// Costly expressions kept in scratch memory between loops of a row, with the index of their element.
    cached: FxHashMap<ExId, Buf>,
    written: Vec<ExId>,
    block_start: Option<Reg>,
    /// A tile in place of a value: its buffer, its loop variables and its row stride.
    tile: Option<(Buf, loops::Var, Option<usize>, Size)>,
}

#[derive(Default)]
struct Scope {
    regs: FxHashMap<ExId, Reg>,
    atoms: FxHashMap<u32, Reg>,
}

impl<'a> Emitter<'a> {
    fn new(
        g: Generator<'a>,
        space: &Space,
        shape: LoopShape,
        reductions: Vec<Reduction>,
        stores: Vec<Store>,
    ) -> Emitter<'a> {
        Emitter {
            g,
            bind: vec![Bind::Unbound; space.extents.len()],
            bound: 0,
            level: 0,
            shape,
            reductions,
            stores,
            b: Builder::new(""),
            bufs: FxHashMap::default(),
            params: Vec::new(),
            scopes: vec![Scope::default()],
            cached: FxHashMap::default(),
            written: Vec::new(),
            block_start: None,
            tile: None,
        }
    }

    fn run(mut self, group: &Group) -> Lowered {
        let mut parallel: Option<i64> = (!self.shape.parallel.is_empty())
            .then(|| self.shape.parallel.iter().map(|&v| self.shape.extents[v]).product());
        if let (Some(b), Some(v)) = (self.shape.block, self.shape.vector) {
            parallel = Some(parallel.unwrap_or(1) * (self.shape.extents[v] / b));
        }
        self.hoist_all();
        match parallel {
            Some(n) => {
                let var = self.b.var();
                self.b.begin();
                self.scopes.push(Scope::default());
                self.bind_parallel(var);
                self.hoist_all();
                self.rows(0);
                self.scopes.pop();
                let body = self.b.end();
                self.b.push(Stmt::Loop(loops::Loop {
                    var,
                    extent: Extent::Exact(Size::Const(n)),
                    kind: LoopKind::Parallel,
                    carried: Vec::new(),
                    body,
                }));
            }
            None => self.rows(0),
        }
        let mut kernel = self.b.finish();
        kernel.name = kernel_name(group);
        Lowered {
            kernel,
            params: self.params,
            parallel,
            work: self.shape.work,
        }
    }

    /// The loops over a tile, whose place and size are arguments; with reductions a tile has whole rows.
    fn tile(mut self, group: &Group, tile: Value, [batch, row, col]: [Option<usize>; 3]) -> Lowered {
        let dtype = self.g.graph.ty(tile).dtype.accumulator();
        let buf = self.b.buffer(dtype, Mode::Read);
        self.params.push(Param::Value(tile));
        let args: Vec<Size> = (0..6).map(|_| self.b.size()).collect();
        let start = |b: &mut Builder, k: u32| {
            b.let_(
                DType::I64,
                loops::Op::Index(loops::Index {
                    offset_args: vec![k],
                    ..loops::Index::default()
                }),
            )
        };
        let (b0, r0, c0) = (start(&mut self.b, 0), start(&mut self.b, 1), start(&mut self.b, 2));
        if let Some(v) = batch {
            self.set_bound(v, Bind::Reg(b0));
        }
        self.hoist_all();
        let rv = self.b.var();
        self.tile = Some((buf, rv, col, args[5]));
        self.b.begin();
        self.scopes.push(Scope::default());
        if let Some(v) = row {
            self.set_bound(v, Bind::Block(r0, rv));
        }
        self.hoist_all();
        let plain = |var, extent, kind, body| {
            Stmt::Loop(loops::Loop {
                var,
                extent: Extent::Exact(extent),
                kind,
                carried: Vec::new(),
                body,
            })
        };
        if self.reductions.is_empty() {
            let cv = self.b.var();
            self.b.begin();
            self.scopes.push(Scope::default());
            if let Some(v) = col {
                self.set_bound(v, Bind::Block(c0, cv));
            }
            let stores = self.stores.clone();
            for (value, _, e, at) in &stores {
                self.store(*value, *e, at);
            }
            self.scopes.pop();
            let inner = self.b.end();
            self.b.push(plain(cv, args[4], LoopKind::Vector, inner));
        } else {
            self.row();
        }
        self.scopes.pop();
        let outer = self.b.end();
        self.b.push(plain(rv, args[3], LoopKind::Serial, outer));
        let mut kernel = self.b.finish();
        kernel.name = format!("tile_{}", kernel_name(group));
        Lowered {
            kernel,
            params: self.params,
            parallel: None,
            work: self.shape.work,
        }
    }

    /// Row variables, and the start of the vector's block, from the flat parallel variable.
    fn bind_parallel(&mut self, var: loops::Var) {
        let vars = self.shape.parallel.clone();
        let blocks = match (self.shape.block, self.shape.vector) {
            (Some(b), Some(v)) => Some((b, self.shape.extents[v] / b)),
            _ => None,
        };
        if let ([v], None) = (&vars[..], blocks) {
            self.set_bound(*v, Bind::Var(var));
            return;
        }
        let mut rest = self.b.index(var);
        let mut peel = |b: &mut Builder, extent: i64, last: bool| {
            if last {
                return rest;
            }
            let n = b.constant(Scalar::from_i64(DType::I64, extent));
            let r = b.binary(Binary::Rem, rest, n);
            rest = b.binary(Binary::Div, rest, n);
            r
        };
        if let Some((block, count)) = blocks {
            let k = peel(&mut self.b, count, vars.is_empty());
            let size = self.b.constant(Scalar::from_i64(DType::I64, block));
            self.block_start = Some(self.b.binary(Binary::Mul, k, size));
        }
        for (k, &v) in vars.iter().enumerate().rev() {
            let r = peel(&mut self.b, self.shape.extents[v], k == 0);
            self.set_bound(v, Bind::Reg(r));
        }
    }

    fn set_bound(&mut self, v: usize, bind: Bind) {
        self.bind[v] = bind;
        self.bound |= 1 << v;
        // Variables merged into this one are implied by it.
        for u in (0..v).rev() {
            if self.shape.merged[u].is_some_and(|m| self.bound >> m & 1 == 1) {
                self.bound |= 1 << u;
            }
        }
    }

    fn unbind(&mut self, v: usize, before: u64) {
        self.bind[v] = Bind::Unbound;
        self.bound = before;
    }

    /// Runs `body` in a loop over a variable, carrying values through it.
    fn over(
        &mut self,
        v: usize,
        kind: LoopKind,
        init: &[(Reg, Option<Binary>)],
        body: &mut dyn FnMut(&mut Self, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        let var = self.b.var();
        let phis: Vec<Reg> = init.iter().map(|(r, _)| self.b.reg(self.b.dtype(*r))).collect();
        self.b.begin();
        self.scopes.push(Scope::default());
        let before = self.bound;
        let start = self.block_start.filter(|_| self.shape.vector == Some(v));
        self.set_bound(v, start.map_or(Bind::Var(var), |s| Bind::Block(s, var)));
        let nexts = body(self, &phis);
        self.unbind(v, before);
        self.scopes.pop();
        let block = self.b.end();
        let mut outs = Vec::with_capacity(init.len());
        let mut carried = Vec::with_capacity(init.len());
        for (((init, combine), phi), next) in init.iter().zip(phis).zip(nexts) {
            let out = self.b.reg(self.b.dtype(*init));
            outs.push(out);
            carried.push(Carried {
                init: *init,
                phi,
                next,
                out,
                combine: *combine,
            });
        }
        let count = self
            .shape
            .block
            .filter(|_| start.is_some())
            .unwrap_or(self.shape.extents[v]);
        let extent = Extent::Exact(Size::Const(count));
        self.b.push(Stmt::Loop(loops::Loop {
            var,
            extent,
            kind,
            carried,
            body: block,
        }));
        outs
    }

    fn rows(&mut self, k: usize) {
        if k < self.shape.serial.len() {
            let v = self.shape.serial[k];
            self.over(v, LoopKind::Serial, &[], &mut |e, _| {
                e.hoist_all();
                e.rows(k + 1);
                Vec::new()
            });
            return;
        }
        let vector = self.shape.vector;
        match vector.filter(|v| !self.shape.cols.contains(v)) {
            Some(v) => {
                self.over(v, LoopKind::Vector, &[], &mut |e, _| {
                    e.row();
                    Vec::new()
                });
            }
            None => self.row(),
        }
    }

    /// Everything of one row: reductions level by level, then results.
    fn row(&mut self) {
        let levels = self.reductions.iter().map(|r| r.level).max().unwrap_or(0);
        self.plan_cache(levels);
        self.level = 0;
        for level in 1..=levels {
            self.hoist_all();
            let here: Vec<usize> = (0..self.reductions.len())
                .filter(|&k| self.reductions[k].level == level)
                .collect();
            let mut init = Vec::new();
            for &k in &here {
                let r = &self.reductions[k];
                let identity = r.kind.identity(r.acc);
                init.push((self.b.constant(identity), r.kind.combine()));
            }
            let outs = self.reduce_loops(0, &init, &here);
            for (&k, out) in here.iter().zip(outs) {
                let (result, dtype) = (
                    self.reductions[k].result,
                    self.g.exprs.info(self.reductions[k].result).dtype,
                );
                let out = if self.b.dtype(out) == dtype {
                    out
                } else {
                    self.b.cast(dtype, out)
                };
                self.scopes
                    .last_mut()
                    .expect("a scope is open")
                    .regs
                    .insert(result, out);
            }
            self.level = level;
        }
        self.hoist_all();
        let stores = self.stores.clone();
        for (value, _, e, at) in stores.iter().filter(|s| s.1 != Role::Full) {
            self.store(*value, *e, at);
        }
        if stores.iter().any(|s| s.1 == Role::Full) {
            self.store_loops(0);
        }
        self.level = 0;
    }

    fn col_kind(&self, v: usize) -> LoopKind {
        if self.shape.vector == Some(v) {
            LoopKind::Vector
        } else {
            LoopKind::Serial
        }
    }

    fn reduce_loops(&mut self, k: usize, accs: &[(Reg, Binary)], here: &[usize]) -> Vec<Reg> {
        let Some(&v) = self.shape.cols.get(k) else {
            let mut next = Vec::with_capacity(here.len());
            for (&r, &(acc, op)) in here.iter().zip(accs) {
                let (operand, dtype) = (self.reductions[r].operand, self.reductions[r].acc);
                let x = self.reg(operand);
                let x = if self.b.dtype(x) == dtype {
                    x
                } else {
                    self.b.cast(dtype, x)
                };
                next.push(self.b.binary(op, acc, x));
            }
            self.write_cache(here);
            return next;
        };
        let kind = self.col_kind(v);
        let init: Vec<(Reg, Option<Binary>)> = accs
            .iter()
            .map(|&(r, op)| (r, (kind == LoopKind::Vector).then_some(op)))
            .collect();
        self.over(v, kind, &init, &mut |e, phis| {
            if k + 1 < e.shape.cols.len() {
                e.hoist_all();
            }
            let inner: Vec<(Reg, Binary)> = phis.iter().zip(accs).map(|(&p, &(_, op))| (p, op)).collect();
            e.reduce_loops(k + 1, &inner, here)
        })
    }

    fn store_loops(&mut self, k: usize) {
        let Some(&v) = self.shape.cols.get(k) else {
            let stores = self.stores.clone();
            for (value, _, e, at) in stores.iter().filter(|s| s.1 == Role::Full) {
                self.store(*value, *e, at);
            }
            return;
        };
        let kind = self.col_kind(v);
        self.over(v, kind, &[], &mut |e, _| {
            if k + 1 < e.shape.cols.len() {
                e.hoist_all();
            }
            e.store_loops(k + 1);
            Vec::new()
        });
    }

    fn store(&mut self, value: Value, e: ExId, at: &Lin) {
        let r = self.reg(e);
        let dtype = self.g.graph.ty(value).dtype;
        let buf = self.buffer(value, dtype, Mode::Write);
        let index = self.index(at);
        self.b.store(buf, index, r);
    }

    fn buffer(&mut self, value: Value, dtype: DType, mode: Mode) -> Buf {
        if let Some(b) = self.bufs.get(&value) {
            return *b;
        }
        let b = self.b.buffer(dtype, mode);
        self.params.push(Param::Value(value));
        self.bufs.insert(value, b);
        b
    }

    // Scratch between the loops of a row.

    /// Costly expressions of the columns that more than one loop of a row needs.
    fn plan_cache(&mut self, levels: u32) {
        let row: i64 = self.shape.cols.iter().map(|&v| self.shape.extents[v]).product();
        let in_row = self.shape.vector.is_some_and(|v| self.shape.cols.contains(&v));
        if self.tile.is_some() || levels == 0 || !in_row || self.shape.cols.len() != 1 || row as usize * 8 > SCRATCH_ROW
        {
            return;
        }
        let col_vars = self.shape.cols.iter().fold(0u64, |m, v| m | 1 << v) | self.merged_into_cols();
        let mut phases: Vec<Vec<ExId>> = (1..=levels)
            .map(|l| {
                self.reductions
                    .iter()
                    .filter(|r| r.level == l)
                    .map(|r| r.operand)
                    .collect()
            })
            .collect();
        phases.push(self.stores.iter().filter(|s| s.1 == Role::Full).map(|s| s.2).collect());
        let mut first = FxHashMap::default();
        let mut shared = Vec::new();
        for (p, targets) in phases.iter().enumerate() {
            let mut seen = Vec::new();
            let mut stack = targets.clone();
            while let Some(e) = stack.pop() {
                if seen.contains(&e) || self.g.exprs.info(e).vars & col_vars == 0 {
                    continue;
                }
                seen.push(e);
                match first.get(&e) {
                    // Already computed by an earlier loop: a boundary between the two, not to be looked into.
                    Some(&q) if q < p => {
                        if self.g.exprs.info(e).cost >= 12 && !shared.contains(&e) {
                            shared.push(e);
                        }
                        if self.g.exprs.info(e).cost >= 12 {
                            continue;
                        }
                    }
                    Some(_) => {}
                    None => {
                        first.insert(e, p);
                    }
                }
                stack.extend(self.g.exprs.get(e).children());
            }
        }
        for e in shared.into_iter().take(4) {
            let dtype = self.g.exprs.info(e).dtype;
            let buf = self.b.buffer(dtype, Mode::Scratch(row as usize));
            self.params.push(Param::Scratch(row as usize * dtype.size()));
            self.cached.insert(e, buf);
        }
    }

    fn merged_into_cols(&self) -> u64 {
        let mut mask = 0;
        for u in 0..self.shape.merged.len() {
            let mut v = u;
            while let Some(m) = self.shape.merged[v] {
                v = m;
            }
            if v != u && self.shape.cols.contains(&v) {
                mask |= 1 << u;
            }
        }
        mask
    }

    /// Stores what the loop just computed and later loops need.
    fn write_cache(&mut self, _here: &[usize]) {
        let mut todo: Vec<(ExId, Buf)> = self.cached.iter().map(|(e, b)| (*e, *b)).collect();
        todo.sort();
        for (e, buf) in todo {
            if self.written.contains(&e) {
                continue;
            }
            let Some(r) = self.find(e) else { continue };
            if let Some(&v) = self.shape.cols.last()
                && let Bind::Var(var) = self.bind[v]
            {
                self.b.store(buf, var, r);
                self.written.push(e);
            }
        }
    }

    // Expressions.

    fn find(&self, e: ExId) -> Option<Reg> {
        self.scopes.iter().rev().find_map(|s| s.regs.get(&e).copied())
    }

    /// Computes what the open loops need but don't change, before they open.
    fn hoist_all(&mut self) {
        let mut targets: Vec<ExId> = self.stores.iter().map(|s| s.2).collect();
        targets.extend(self.reductions.iter().map(|r| r.operand));
        let mut seen = rustc_hash::FxHashSet::default();
        for t in targets {
            self.hoist(t, &mut seen);
        }
        let forms: Vec<Lin> = self.stores.iter().map(|s| s.3.clone()).collect();
        for f in forms {
            self.hoist_atoms(&f);
        }
    }

    fn ready(&self, e: ExId) -> bool {
        let info = self.g.exprs.info(e);
        info.vars & !self.bound == 0 && info.level <= self.level && !info.carried
    }

    fn hoist(&mut self, e: ExId, seen: &mut rustc_hash::FxHashSet<ExId>) {
        if !seen.insert(e) {
            return;
        }
        if self.ready(e) {
            if !matches!(self.g.exprs.get(e), Ex::Const(_)) && self.find(e).is_none() && self.can_reach(e) {
                self.reg(e);
            }
            return;
        }
        if let Ex::Load { at, .. } | Ex::Index(at) = self.g.exprs.get(e) {
            let at = at.clone();
            self.hoist_atoms(&at);
        }
        for c in self.g.exprs.get(e).children() {
            self.hoist(c, seen);
        }
    }

    /// Reduced values are only there once their loop has run in this row.
    fn can_reach(&self, e: ExId) -> bool {
        match self.g.exprs.get(e) {
            Ex::Reduced(_) => self.find(e).is_some(),
            ex => ex.children().iter().all(|&c| self.can_reach(c)),
        }
    }

    fn hoist_atoms(&mut self, lin: &Lin) {
        for (a, _) in lin.terms.clone() {
            let atom = self.g.atoms.get(a);
            let plain = matches!(atom.kind, AtomKind::Var(_));
            let computed_ready = match atom.kind {
                AtomKind::Computed(e) => self.ready(e) && self.can_reach(e),
                _ => true,
            };
            if !plain && atom.vars & !self.bound == 0 && computed_ready {
                self.atom_reg(a);
            }
        }
    }

    fn reg(&mut self, e: ExId) -> Reg {
        if let Some(r) = self.find(e) {
            return r;
        }
        if self.written.contains(&e)
            && let Some(&buf) = self.cached.get(&e)
            && let Some(&v) = self.shape.cols.last()
            && let Bind::Var(var) = self.bind[v]
        {
            let r = self.b.load(buf, var);
            self.scopes.last_mut().expect("a scope is open").regs.insert(e, r);
            return r;
        }
        let dtype = self.g.exprs.info(e).dtype;
        let ex = self.g.exprs.get(e).clone();
        let op = match ex {
            Ex::Const(s) => loops::Op::Const(s),
            Ex::Index(l) => loops::Op::Index(self.index(&l)),
            Ex::Carry(_) if self.tile.is_some() => {
                let (buf, r, col, stride) = self.tile.expect("just seen");
                let mut index = loops::Index::default().term(Atom::Var(r), stride);
                if let Some(Bind::Block(_, c) | Bind::Var(c)) = col.map(|v| self.bind[v]) {
                    index = index.plus(c, 1);
                }
                let acc = self.b.load(buf, index);
                let out = if self.b.dtype(acc) == dtype {
                    acc
                } else {
                    self.b.cast(dtype, acc)
                };
                self.scopes.last_mut().expect("a scope is open").regs.insert(e, out);
                return out;
            }
            Ex::Load { from, at, mask } => {
                let mask = mask.map(|(m, s)| (self.reg(m), s));
                let buf = self.buffer(from, dtype, Mode::Read);
                loops::Op::Load {
                    buf,
                    index: self.index(&at),
                    mask,
                }
            }
            Ex::Unary(op, a) => loops::Op::Unary(op, self.reg(a)),
            Ex::Binary(op, a, b) => loops::Op::Binary(op, self.reg(a), self.reg(b)),
            Ex::Compare(op, a, b) => loops::Op::Compare(op, self.reg(a), self.reg(b)),
            Ex::Select(c, a, b) => loops::Op::Select(self.reg(c), self.reg(a), self.reg(b)),
            Ex::Fma(a, b, c) => loops::Op::Fma(self.reg(a), self.reg(b), self.reg(c)),
            Ex::Cast(d, a) => loops::Op::Cast(d, self.reg(a)),
            Ex::Quantize(d, a) => loops::Op::Quantize(d, self.reg(a)),
            Ex::Bitcast(d, a) => loops::Op::Bitcast(d, self.reg(a)),
            Ex::Reduced(_) | Ex::Carry(_) => unreachable!("defined by its loop before it is used"),
        };
        let r = self.b.let_(dtype, op);
        self.scopes.last_mut().expect("a scope is open").regs.insert(e, r);
        r
    }

    fn atom_reg(&mut self, a: u32) -> Reg {
        if let Some(r) = self.scopes.iter().rev().find_map(|s| s.atoms.get(&a).copied()) {
            return r;
        }
        let kind = self.g.atoms.get(a).kind.clone();
        let r = match kind {
            AtomKind::Var(v) => match self.bind[v] {
                Bind::Reg(r) => return r,
                Bind::Var(var) => self.b.index(var),
                Bind::Block(start, var) => {
                    let i = loops::Index::from(start).plus(var, 1);
                    self.b.index(i)
                }
                Bind::Unbound => unreachable!("a loop variable is used inside its loop"),
            },
            AtomKind::Div(l, by) | AtomKind::Mod(l, by) => {
                let index = self.index(&l);
                let x = self.b.let_(DType::I64, loops::Op::Index(index));
                let n = self.b.constant(Scalar::from_i64(DType::I64, by));
                let op = if matches!(self.g.atoms.get(a).kind, AtomKind::Div(..)) {
                    Binary::Div
                } else {
                    Binary::Rem
                };
                self.b.binary(op, x, n)
            }
            AtomKind::Computed(e) => {
                let r = self.reg(e);
                if self.b.dtype(r) == DType::I64 {
                    r
                } else {
                    self.b.cast(DType::I64, r)
                }
            }
        };
        self.scopes.last_mut().expect("a scope is open").atoms.insert(a, r);
        r
    }

    fn index(&mut self, lin: &Lin) -> loops::Index {
        let mut out = loops::Index {
            offset: lin.c,
            ..loops::Index::default()
        };
        for &(a, k) in &lin.terms {
            let atom = match self.g.atoms.get(a).kind {
                AtomKind::Var(v) if self.shape.merged[v].is_some() => continue,
                AtomKind::Var(v) => match self.bind[v] {
                    Bind::Var(var) => Atom::Var(var),
                    Bind::Reg(r) => Atom::Reg(r),
                    Bind::Block(start, var) => {
                        out.terms.push((Atom::Reg(start), Size::Const(k)));
                        Atom::Var(var)
                    }
                    Bind::Unbound => unreachable!("a loop variable is used inside its loop"),
                },
                _ => Atom::Reg(self.atom_reg(a)),
            };
            out.terms.push((atom, Size::Const(k)));
        }
        out
    }
}

fn kernel_name(group: &Group) -> String {
    let has = |f: fn(&Role) -> bool| group.roots.iter().any(|r| f(&r.role));
    let kind = match (has(|r| matches!(r, Role::Reduce(_))), has(|r| *r == Role::Full)) {
        (true, true) => "row",
        (true, false) => "reduce",
        _ => "map",
    };
    format!("{kind}{:?}", group.full.as_slice())
}
