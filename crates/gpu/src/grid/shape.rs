//! Chooses how a kernel is distributed over blocks, teams and lanes.

use super::{GridLimits, WorkFactor};
use compiler::loops::index_analysis::{IndexAnalysis, IndexVar, Linear, MemoryAccess};
use compiler::loops::{AccessMode, Atom, Buf, Extent, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::Binary;

/// The chosen distribution.
pub(super) struct GridShape<'a> {
    /// The loops whose iterations are distributed over teams, outermost first.
    pub(super) parallel_loops: Vec<(Var, Size)>,
    /// The statements before those loops.
    pub(super) before: Vec<&'a Stmt>,
    /// The statements of a team for one iteration of these loops.
    pub(super) row: &'a [Stmt],
    /// If set, the row's only vector loop is split into pieces of this many elements, which are distributed too.
    pub(super) chunk: Option<(Var, Size, i64)>,
    /// If set, a block's teams process iterations of the last loop at this distance, and the same piece: accesses that are
    /// contiguous along that loop then use whole cache lines, although each lane is strided.
    pub(super) tiled: Option<i64>,
    /// The threads of a team.
    pub(super) lanes: u32,
    /// The teams of a block.
    pub(super) teams: u32,
    /// The number of elements that a lane processes together in vector loops.
    pub(super) width: usize,
}

impl GridShape<'_> {
    /// The distributed work, outermost first: loops by their variables, and the pieces, which have none.
    pub(super) fn shared(&self) -> Vec<(Option<Var>, WorkFactor)> {
        let mut all: Vec<_> =
            self.parallel_loops.iter().map(|&(v, size)| (Some(v), WorkFactor { size, chunk: 1 })).collect();
        if let Some((_, size, by)) = self.chunk {
            all.insert(all.len() - self.tiled.is_some() as usize, (None, WorkFactor { size, chunk: by }));
        }
        all
    }
}

/// The preferred side of a tile in bytes: two memory sectors.
const SIDE_BYTES: usize = 64;
/// The bytes of a lane's store in a tile, if elements are smaller.
const WORD: usize = 4;
/// The minimum number of adjacent elements for a tile.
const NEIGHBOURS: i64 = 4;

/// The number of elements that a lane holds of a row if there are few rows.
const FEW_ROWS: i64 = 8;

/// Chooses the distribution. `waits` states whether the threads of a team use barriers.
pub(super) fn choose<'a>(facts: &IndexAnalysis<'a>, limits: &GridLimits, waits: bool) -> GridShape<'a> {
    let (chain, before, row) = outer_loop_chain(facts, limits);
    let rows = chain.iter().fold(1i64, |n, &(_, s)| n.saturating_mul(facts.size(s).max(0)));
    let vectors = vectors(row);
    let group = limits.subgroup_size.unwrap_or(1);
    let mut shape =
        GridShape { parallel_loops: chain, before, row, chunk: None, tiled: None, lanes: 1, teams: 1, width: 1 };
    let longest = vectors.iter().map(|l| facts.vars[l.var.0 as usize].max_trip_count).max();
    let Some(longest) = longest else {
        shape.teams = teams_per_block(rows, 1, group, limits);
        return shape;
    };
    shape.width = vectors.iter().map(|l| width(facts, limits, l)).min().unwrap_or(1);
    // Wide accesses are used only with enough work, unless stores of whole words need them.
    let least = vectors.iter().map(|l| lanes_per_store_word(facts, limits, l)).max().unwrap_or(1);
    // The lanes of a row in registers hold this many elements each, accessed together or one by one.
    let stays = waits && limits.subgroup_size.is_some() && held_by_block(&shape, longest, limits);
    while !stays
        && shape.width > least
        && rows.saturating_mul(longest) / (shape.width as i64) < limits.saturating_threads as i64 / 4
    {
        shape.width /= 2;
    }
    let steps = super::pieces(longest, shape.width as i64).max(1);
    let upto = |most: u32| (steps.min(most as i64) as u32).next_power_of_two().min(most);
    if let Some((v, n)) = chunkable(facts, &shape) {
        shape.lanes = upto(limits.default_threads);
        // Several pieces for each lane if there is enough work for all.
        let total = rows.saturating_mul(steps);
        let each = (total / limits.saturating_threads.max(1) as i64).clamp(1, 4);
        if let Some(crossing) = best_strided_loop(facts, &shape, v) {
            return tile(facts, limits, shape, crossing, (v, n, each));
        }
        shape.chunk = Some((v, n, shape.lanes as i64 * shape.width as i64 * each));
        let pieces = rows.saturating_mul(super::pieces(facts.size(n), shape.chunk.map_or(1, |c| c.2)));
        shape.teams = teams_per_block(pieces, shape.lanes, group, limits);
        return shape;
    }
    // Several rows per block need shared memory for the scratch of all.
    let scratch = scratch_bytes(facts, limits.min_store_bytes);
    let many = rows.saturating_mul(group as i64) >= limits.saturating_threads as i64 / 8
        && scratch.saturating_mul((limits.default_threads / group).max(1) as usize) <= limits.max_shared_bytes;
    shape.lanes = if !waits || limits.subgroup_size.is_none() {
        upto(limits.default_threads)
    } else if steps <= group as i64 || (many && steps <= rows_held_in_registers(&shape, group)) {
        upto(group)
    } else if held_by_block(&shape, longest, limits) {
        // As few lanes as can hold the row; more if the device is not saturated, so that each of the few rows finishes sooner.
        let each =
            if rows.saturating_mul(longest) < limits.saturating_threads as i64 { FEW_ROWS } else { super::rows::HELD };
        (super::pieces(longest, each) as u32).next_power_of_two().clamp((2 * group).min(limits.threads), limits.threads)
    } else {
        // With enough rows, several blocks share a multiprocessor: while one waits, another one loads.
        let most = if many { (limits.threads / 2).max(group) } else { limits.threads };
        ((steps / 4).min(most as i64) as u32).next_power_of_two().clamp((2 * group).min(most), most)
    };
    // Teams with barriers must reach each barrier together, which is certain only if all threads know the trip counts.
    if waits && (shape.lanes > group && limits.subgroup_size.is_some() || has_bounded(row)) {
        shape.lanes = shape.lanes.max(group);
        return shape;
    }
    shape.teams = teams_per_block(rows, shape.lanes, group, limits);
    while shape.teams > group.div_ceil(shape.lanes)
        && scratch.saturating_mul(shape.teams as usize) > limits.max_shared_bytes
    {
        shape.teams /= 2;
    }
    shape
}

/// The steps of a row that a subgroup processes alone, if there are many rows: as many as fit in its registers, if that matters.
fn rows_held_in_registers(shape: &GridShape<'_>, group: u32) -> i64 {
    let each = if super::rows::several(shape.row) { super::rows::HELD / shape.width as i64 } else { 32 };
    each * group as i64
}

/// Whether the registers of a block can hold a row that is read several times.
fn held_by_block(shape: &GridShape<'_>, longest: i64, limits: &GridLimits) -> bool {
    super::rows::several(shape.row) && longest <= super::rows::HELD * limits.threads as i64 / 2
}

/// The bytes of scratch of a row.
fn scratch_bytes(facts: &IndexAnalysis<'_>, word: usize) -> usize {
    let bytes = |(i, b): (usize, &compiler::loops::Buffer)| match b.mode {
        AccessMode::Scratch(0) => {
            facts.launch.scratch.get(i).copied().unwrap_or(0).saturating_mul(b.dtype.size().max(word))
        }
        AccessMode::Scratch(n) => n.saturating_mul(b.dtype.size().max(word)),
        _ => 0,
    };
    facts.kernel.buffers.iter().enumerate().map(bytes).fold(0, usize::saturating_add)
}

/// The number of teams of a block: a full block, or fewer if that gives more blocks work; always whole subgroups.
fn teams_per_block(rows: i64, lanes: u32, group: u32, limits: &GridLimits) -> u32 {
    let mut teams = (limits.default_threads / lanes).max(1);
    let least = group.div_ceil(lanes);
    while teams > least && rows / (teams as i64) < limits.saturating_threads as i64 / 1024 {
        teams /= 2;
    }
    teams.max(least)
}

type Chain<'a> = (Vec<(Var, Size)>, Vec<&'a Stmt>, &'a [Stmt]);

/// The perfectly nested loops from the outside in whose iterations are independent.
fn outer_loop_chain<'a>(facts: &IndexAnalysis<'a>, limits: &GridLimits) -> Chain<'a> {
    let (mut loops, mut before, mut row) = (Vec::new(), Vec::new(), &facts.kernel.body[..]);
    let mut rows = 1i64;
    while let Some((Stmt::Loop(l), rest)) = row.split_last() {
        let Extent::Exact(n) = l.extent else { break };
        let free = rest.iter().all(|s| match s {
            Stmt::Let { op: Op::Load { buf, .. }, .. } => !facts.written(*buf),
            Stmt::Let { .. } => true,
            _ => false,
        });
        let shared = match l.kind {
            LoopKind::Parallel => true,
            // With enough parallel work, values that are computed once for all iterations stay outside the loop.
            LoopKind::Serial => {
                rows < limits.saturating_threads as i64 && l.carried.is_empty() && independent(facts, l)
            }
            LoopKind::Vector => false,
        };
        if !free || !shared {
            break;
        }
        rows = rows.saturating_mul(facts.size(n).max(0));
        loops.push((l.var, n));
        before.extend(rest);
        row = &l.body;
    }
    (loops, before, row)
}

/// Whether no iteration of a loop accesses an element that another one writes.
fn independent(facts: &IndexAnalysis<'_>, l: &Loop) -> bool {
    let within = |s: &&MemoryAccess| s.loops.contains(&l.var);
    facts.accesses.iter().filter(within).filter(|s| s.store).all(|store| {
        if facts.is_scratch(store.buf) {
            return is_privatizable(facts, l, store.buf);
        }
        let class = facts.alias_classes[store.buf.0 as usize];
        let others = facts.accesses.iter().filter(within).filter(|s| facts.alias_classes[s.buf.0 as usize] == class);
        // Loads of the stored element belong to the same iteration.
        let alone = others
            .filter(|s| !std::ptr::eq(*s, store))
            .all(|s| !s.store && s.loops == store.loops && s.form == store.form && same_size(facts, s.buf, store.buf));
        alone && store.form.as_ref().is_some_and(|f| injective(facts, l, store, f))
    })
}

pub(super) fn same_size(facts: &IndexAnalysis<'_>, a: Buf, b: Buf) -> bool {
    let size = |b: Buf| facts.kernel.buffers[b.0 as usize].dtype.size();
    size(a) == size(b)
}

/// Whether a store writes a different element in each iteration of a loop and its inner loops.
fn injective(facts: &IndexAnalysis<'_>, l: &Loop, store: &MemoryAccess, form: &Linear) -> bool {
    let from = store.loops.iter().position(|v| *v == l.var).unwrap_or(0);
    let inner = &store.loops[from..];
    let known = |r: &IndexVar| match r {
        IndexVar::Var(v) => inner.contains(v) || !facts.inside(*r, l.var),
        IndexVar::Reg(_) => !facts.inside(*r, l.var),
    };
    if !form.terms.keys().all(known) {
        return false;
    }
    let mut strides = Vec::new();
    for v in inner {
        let most = facts.vars[v.0 as usize].max_trip_count;
        match form.terms.get(&IndexVar::Var(*v)) {
            _ if most <= 1 => {}
            Some(s) => strides.push((s.unsigned_abs() as u128, most as u128)),
            None => return false,
        }
    }
    strides.sort_unstable();
    let mut span = 0u128;
    strides.iter().all(|&(stride, n)| {
        let disjoint = stride > span;
        span = span.saturating_add(stride.saturating_mul(n - 1));
        disjoint
    })
}

/// Whether each iteration writes all elements of a scratch buffer before it reads them.
fn is_privatizable(facts: &IndexAnalysis<'_>, l: &Loop, buf: Buf) -> bool {
    let mut sites: Vec<&MemoryAccess> =
        facts.accesses.iter().filter(|s| s.buf == buf && s.loops.contains(&l.var)).collect();
    sites.sort_by(|a, b| a.path.cmp(&b.path));
    let row = |s: &MemoryAccess| {
        let f = s.form.as_ref()?;
        let (IndexVar::Var(v), 1) = f.terms.first_key_value()? else { return None };
        (f.offset == 0 && f.terms.len() == 1).then_some(*v)
    };
    let Some((first, rest)) = sites.split_first() else { return true };
    let Some(v) = row(first).filter(|_| first.store && first.mask.is_none()) else { return false };
    let direct = first.loops.ends_with(&[l.var, v]);
    let Some(n) = facts.vars[v.0 as usize].trip_count.filter(|_| direct) else { return false };
    rest.iter().all(|s| {
        row(s).is_some_and(|u| facts.inside(IndexVar::Var(u), l.var) && facts.vars[u.0 as usize].max_trip_count <= n)
    })
}

/// All vector loops.
pub(super) fn vectors(body: &[Stmt]) -> Vec<&Loop> {
    let mut found = Vec::new();
    for s in body {
        if let Stmt::Loop(l) = s {
            match l.kind {
                LoopKind::Vector => found.push(l),
                _ => found.extend(vectors(&l.body)),
            }
        }
    }
    found
}

/// Whether a loop outside vector loops has a trip count that is loaded from memory.
fn has_bounded(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Loop(l) if l.kind == LoopKind::Vector => false,
        Stmt::Loop(l) => matches!(l.extent, Extent::Bounded { .. }) || has_bounded(&l.body),
        _ => false,
    })
}

/// The loop of a row that may be split anywhere: a single vector loop without carried values.
fn chunkable(facts: &IndexAnalysis<'_>, shape: &GridShape<'_>) -> Option<(Var, Size)> {
    let (Stmt::Loop(l), rest) = shape.row.split_last()? else { return None };
    let Extent::Exact(n) = l.extent else { return None };
    let lets = shape.before.iter().copied().chain(rest).all(|s| match s {
        Stmt::Let { op: Op::Load { buf, .. }, .. } => !facts.written(*buf),
        Stmt::Let { .. } => true,
        _ => false,
    });
    let scratch = facts.accesses.iter().any(|s| facts.is_scratch(s.buf));
    (l.kind == LoopKind::Vector && l.carried.is_empty() && lets && !scratch).then_some((l.var, n))
}

/// Iterations of a distributed loop along which memory is contiguous, while the vector loop is strided.
struct StridedLoop {
    /// The position of the loop in the chain.
    place: usize,
    /// The number of iterations between adjacent elements: more than 1 if the index is a quotient by that number.
    step: i64,
    /// The number of adjacent elements.
    length: i64,
    /// The bytes of an element.
    size: usize,
}

/// The loop with the most such accesses, if there is one.
fn best_strided_loop(facts: &IndexAnalysis<'_>, shape: &GridShape<'_>, along: Var) -> Option<StridedLoop> {
    let stride =
        |s: &MemoryAccess, r: IndexVar| s.form.as_ref().and_then(|f| f.terms.get(&r)).map_or(0, |n| n.unsigned_abs());
    let size = |s: &MemoryAccess| facts.kernel.buffers[s.buf.0 as usize].dtype.size();
    let jumps = |s: &&MemoryAccess| s.loops.contains(&along) && stride(s, IndexVar::Var(along)) > 1;
    let mut found: Option<(usize, StridedLoop)> = None;
    for (place, &(v, n)) in shape.parallel_loops.iter().enumerate() {
        let mut roots = vec![(IndexVar::Var(v), 1, facts.size(n))];
        if let Size::Const(most) = n {
            roots.extend(shape.before.iter().copied().chain(shape.row).filter_map(|s| quotient(shape, s, v, most)));
        }
        for (root, step, length) in roots {
            let across = facts.accesses.iter().filter(jumps).filter(|s| stride(s, root) == 1);
            let (count, size) = across.fold((0, usize::MAX), |(n, least), s| (n + 1, least.min(size(s))));
            if count > found.as_ref().map_or(0, |f| f.0) && length >= NEIGHBOURS {
                found = Some((count, StridedLoop { place, step, length, size }));
            }
        }
    }
    found.map(|f| f.1)
}

/// Matches a register that is the remainder or the quotient of a loop's variable by a number: returns the distance of adjacent
/// values in iterations, and their number.
fn quotient(shape: &GridShape<'_>, s: &Stmt, v: Var, most: i64) -> Option<(IndexVar, i64, i64)> {
    let lets = || shape.before.iter().copied().chain(shape.row);
    let defined = |r: Reg| {
        lets().find_map(|s| match s {
            Stmt::Let { dst, op } if *dst == r => Some(op),
            _ => None,
        })
    };
    let Stmt::Let { dst, op: Op::Binary(op @ (Binary::Rem | Binary::Div), a, b) } = s else { return None };
    let Op::Index(i) = defined(*a)? else { return None };
    let own = i.offset == 0 && i.offset_args.is_empty() && i.terms[..] == [(Atom::Var(v), Size::Const(1))];
    let Op::Const(by) = defined(*b)? else { return None };
    let by = by.to_i64();
    let whole = own && by > 1 && most % by == 0;
    whole.then_some(match op {
        Binary::Rem => (IndexVar::Reg(*dst), 1, by),
        _ => (IndexVar::Reg(*dst), by, most / by),
    })
}

/// A block as a tile: lanes along the vector loop, teams along the loop where its memory is contiguous.
fn tile<'a>(
    facts: &IndexAnalysis<'a>,
    limits: &GridLimits,
    mut shape: GridShape<'a>,
    crossing: StridedLoop,
    (v, n, each): (Var, Size, i64),
) -> GridShape<'a> {
    let vector = vectors(shape.row)[0];
    // Stores of whole words, if the elements allow it; strided loads are single.
    let fits = |w: &usize| facts.size(n) >= 8 * *w as i64 && can_vectorize(facts, vector, *w, true);
    shape.width = [4, 2].into_iter().filter(|w| w * crossing.size <= WORD).find(fits).unwrap_or(1);
    let side = |bytes: usize, most: i64| {
        let wanted = ((SIDE_BYTES / bytes) as u32).clamp(limits.tile, 2 * limits.tile);
        wanted.min(most.clamp(1, 1 << 16).unsigned_abs().next_power_of_two() as u32)
    };
    let mut lanes = side(crossing.size * shape.width, super::pieces(facts.size(n), shape.width as i64));
    let mut teams = side(crossing.size, crossing.length);
    while lanes * teams > limits.threads {
        *(if teams > lanes { &mut teams } else { &mut lanes }) /= 2;
    }
    while lanes * teams < limits.subgroup_size.unwrap_or(1).max(limits.default_threads / 2) {
        teams *= 2;
    }
    let own = shape.parallel_loops.remove(crossing.place);
    shape.parallel_loops.push(own);
    shape.tiled = Some(crossing.step);
    (shape.lanes, shape.teams) = (lanes, teams);
    shape.chunk = Some((v, n, lanes as i64 * shape.width as i64 * each));
    shape
}

/// The number of elements that one access of a lane may have in a vector loop.
fn width(facts: &IndexAnalysis<'_>, limits: &GridLimits, l: &Loop) -> usize {
    /// Beyond this the code grows, but accesses do not become wider.
    const MOST: usize = 8;
    let Some(n) = facts.vars[l.var.0 as usize].trip_count else { return 1 };
    let inside = |s: &&MemoryAccess| s.loops.contains(&l.var);
    let along =
        |s: &MemoryAccess| s.form.as_ref().and_then(|f| f.terms.get(&IndexVar::Var(l.var))).copied().unwrap_or(0);
    let size = |s: &MemoryAccess| facts.kernel.buffers[s.buf.0 as usize].dtype.size();
    let widest = facts.accesses.iter().filter(inside).filter(|s| along(s) != 0).map(size).max();
    let Some(widest) = widest else { return 1 };
    let wide = (limits.max_access_bytes / widest).clamp(1, MOST);
    let least = lanes_per_store_word(facts, limits, l);
    if wide > least && n >= 2 * wide as i64 && can_vectorize(facts, l, wide, false) {
        return wide;
    }
    if least > 1 && n >= least as i64 && can_vectorize(facts, l, least, false) { least } else { 1 }
}

/// The number of elements that a lane must store together in a vector loop so that it stores whole words.
fn lanes_per_store_word(facts: &IndexAnalysis<'_>, limits: &GridLimits, l: &Loop) -> usize {
    let along = |s: &&MemoryAccess| s.form.as_ref().is_some_and(|f| f.terms.contains_key(&IndexVar::Var(l.var)));
    let size = |s: &MemoryAccess| facts.kernel.buffers[s.buf.0 as usize].dtype.size();
    // Shared memory of a block has a word for each element.
    let stores = facts.accesses.iter().filter(|s| s.store && s.loops.contains(&l.var) && !facts.is_scratch(s.buf));
    stores.filter(along).map(|s| limits.min_store_bytes / size(s).min(limits.min_store_bytes)).max().unwrap_or(1)
}

/// Whether every access in a vector loop may have this many elements; with `jumping`, loads may be strided.
fn can_vectorize(facts: &IndexAnalysis<'_>, l: &Loop, width: usize, jumping: bool) -> bool {
    let Some(n) = facts.vars[l.var.0 as usize].trip_count else { return false };
    let inside = |s: &&MemoryAccess| s.loops.contains(&l.var);
    let along =
        |s: &MemoryAccess| s.form.as_ref().and_then(|f| f.terms.get(&IndexVar::Var(l.var))).copied().unwrap_or(0);
    let size = |s: &MemoryAccess| facts.kernel.buffers[s.buf.0 as usize].dtype.size();
    let fits = facts.accesses.iter().filter(inside).all(|s| {
        let Some(f) = &s.form else { return false };
        let steady =
            |r: &IndexVar| *r == IndexVar::Var(l.var) || matches!(r, IndexVar::Var(_)) || !facts.inside(*r, l.var);
        if !f.terms.keys().all(steady) {
            return false;
        }
        match along(s) {
            0 => true,
            1 => {
                let multiple = |r: &IndexVar| match r {
                    IndexVar::Var(_) => 1,
                    IndexVar::Reg(r) => facts.regs[r.0 as usize].multiple,
                };
                let divides = |x: i64| x % width as i64 == 0;
                let others = f.terms.iter().filter(|(r, _)| **r != IndexVar::Var(l.var));
                let start =
                    divides(f.offset) && others.into_iter().all(|(r, s)| divides(s.saturating_mul(multiple(r))));
                let address = facts.launch.aligned.get(s.buf.0 as usize).copied().unwrap_or(1);
                let base = facts.is_scratch(s.buf) || address % (width * size(s)) == 0;
                start && base && s.mask.is_none_or(|m| facts.uniform(m, l.var, width as i64))
            }
            _ => jumping && !s.store,
        }
    });
    // The divisibility of a size argument is not known.
    let even = n % width as i64 == 0 || matches!(l.extent, Extent::Exact(Size::Const(_)));
    fits && even
}
