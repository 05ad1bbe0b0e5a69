//! How a kernel is spread over blocks, teams and lanes.

use super::{GridLimits, WorkFactor};
use compiler::loops::index_analysis::{IndexAnalysis, IndexVar, Linear, MemoryAccess};
use compiler::loops::{AccessMode, Atom, Buf, Extent, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::Binary;

/// The choice.
pub(super) struct GridShape<'a> {
    /// Loops whose iterations teams share out, outermost first.
    pub(super) parallel_loops: Vec<(Var, Size)>,
    /// What stands before those loops.
    pub(super) before: Vec<&'a Stmt>,
    /// What a team runs for one iteration of them all.
    pub(super) row: &'a [Stmt],
    /// The row's one vector loop is cut into pieces of so many elements, and those are shared out too.
    pub(super) chunk: Option<(Var, Size, i64)>,
    /// A block's teams have iterations of the last loop that are so far from each other, and the same piece: memory that lies along
    /// those is then read by whole lines, though each lane jumps.
    pub(super) tiled: Option<i64>,
    /// Threads of a team.
    pub(super) lanes: u32,
    /// Teams of a block.
    pub(super) teams: u32,
    /// Elements that a lane takes at a time in vector loops.
    pub(super) width: usize,
}

impl GridShape<'_> {
    /// What is shared out, outermost first: loops by their variables, and the pieces, which have none.
    pub(super) fn shared(&self) -> Vec<(Option<Var>, WorkFactor)> {
        let mut all: Vec<_> =
            self.parallel_loops.iter().map(|&(v, size)| (Some(v), WorkFactor { size, chunk: 1 })).collect();
        if let Some((_, size, by)) = self.chunk {
            all.insert(all.len() - self.tiled.is_some() as usize, (None, WorkFactor { size, chunk: by }));
        }
        all
    }
}

/// Bytes that the side of a tile should have: two sectors of memory.
const SIDE_BYTES: usize = 64;
/// Bytes of a lane's store in a tile, if elements are smaller.
const WORD: usize = 4;
/// Elements beside each other from which a tile is worth it.
const NEIGHBOURS: i64 = 4;

/// Elements that a lane holds of a row where rows are few.
const FEW_ROWS: i64 = 8;

/// Chooses. `waits` says whether the threads of a team wait for each other.
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
    // Wide accesses are for those who have enough to do, unless whole words need them.
    let least = vectors.iter().map(|l| lanes_per_store_word(facts, limits, l)).max().unwrap_or(1);
    // Lanes of a row that is held have so many elements each, at once or one by one.
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
        // Several pieces for each lane where there is enough for all.
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
    // Several rows a block need room for the scratch of them all.
    let scratch = scratch_bytes(facts, limits.min_store_bytes);
    let many = rows.saturating_mul(group as i64) >= limits.saturating_threads as i64 / 8
        && scratch.saturating_mul((limits.default_threads / group).max(1) as usize) <= limits.max_shared_bytes;
    shape.lanes = if !waits || limits.subgroup_size.is_none() {
        upto(limits.default_threads)
    } else if steps <= group as i64 || (many && steps <= rows_held_in_registers(&shape, group)) {
        upto(group)
    } else if held_by_block(&shape, longest, limits) {
        // As few lanes as can hold it; or more where the device has lanes to spare: each of the few rows is done sooner.
        let each =
            if rows.saturating_mul(longest) < limits.saturating_threads as i64 { FEW_ROWS } else { super::rows::HELD };
        (super::pieces(longest, each) as u32).next_power_of_two().clamp((2 * group).min(limits.threads), limits.threads)
    } else {
        // Where there are rows enough, several blocks share a multiprocessor: while one waits, another one loads.
        let most = if many { (limits.threads / 2).max(group) } else { limits.threads };
        ((steps / 4).min(most as i64) as u32).next_power_of_two().clamp((2 * group).min(most), most)
    };
    // Teams that wait must come to each barrier together: that is sure where trip counts are known to all.
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

/// Steps of a row that a subgroup takes alone, where there are many rows: as many as its registers hold, if that matters.
fn rows_held_in_registers(shape: &GridShape<'_>, group: u32) -> i64 {
    let each = if super::rows::several(shape.row) { super::rows::HELD / shape.width as i64 } else { 32 };
    each * group as i64
}

/// Whether a block's registers hold a row that is read several times.
fn held_by_block(shape: &GridShape<'_>, longest: i64, limits: &GridLimits) -> bool {
    super::rows::several(shape.row) && longest <= super::rows::HELD * limits.threads as i64 / 2
}

/// Bytes of scratch that a row has.
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

/// How many teams a block has: a full block, or fewer where that gives more blocks work; whole subgroups always.
fn teams_per_block(rows: i64, lanes: u32, group: u32, limits: &GridLimits) -> u32 {
    let mut teams = (limits.default_threads / lanes).max(1);
    let least = group.div_ceil(lanes);
    while teams > least && rows / (teams as i64) < limits.saturating_threads as i64 / 1024 {
        teams /= 2;
    }
    teams.max(least)
}

type Chain<'a> = (Vec<(Var, Size)>, Vec<&'a Stmt>, &'a [Stmt]);

/// The loops from the outside in that hold nothing but each other and whose iterations are independent.
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
            // Enough to do for everyone: what is computed once for all iterations stays so.
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

/// Whether no iteration of a loop touches what another one writes.
fn independent(facts: &IndexAnalysis<'_>, l: &Loop) -> bool {
    let within = |s: &&MemoryAccess| s.loops.contains(&l.var);
    facts.accesses.iter().filter(within).filter(|s| s.store).all(|store| {
        if facts.is_scratch(store.buf) {
            return is_privatizable(facts, l, store.buf);
        }
        let class = facts.alias_classes[store.buf.0 as usize];
        let others = facts.accesses.iter().filter(within).filter(|s| facts.alias_classes[s.buf.0 as usize] == class);
        // Loads of the very element that is stored are the same iteration's.
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

/// Whether a store goes to another element in each iteration of a loop and those inside of it.
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

/// Whether each iteration writes all of a scratch buffer that it reads, before it does.
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

/// Whether a loop outside of vector loops runs as often as memory says.
fn has_bounded(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Loop(l) if l.kind == LoopKind::Vector => false,
        Stmt::Loop(l) => matches!(l.extent, Extent::Bounded { .. }) || has_bounded(&l.body),
        _ => false,
    })
}

/// A row that is one vector loop which carries nothing may be cut anywhere.
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

/// Iterations of a shared loop along which memory lies that the vector loop jumps through.
struct StridedLoop {
    /// The loop's place in the chain.
    place: usize,
    /// Iterations of it from one neighbour to the next: more than 1 where they are its quotients by that number.
    step: i64,
    /// Neighbours.
    length: i64,
    /// Bytes of an element there.
    size: usize,
}

/// The one with the most accesses, if there is any.
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

/// A register that a statement defines as the rest or the quotient of a loop's variable by a number: neighbours of it are so many
/// iterations apart, and there are so many.
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

/// A block as a tile: lanes along the vector loop, teams along what its memory lies along.
fn tile<'a>(
    facts: &IndexAnalysis<'a>,
    limits: &GridLimits,
    mut shape: GridShape<'a>,
    crossing: StridedLoop,
    (v, n, each): (Var, Size, i64),
) -> GridShape<'a> {
    let vector = vectors(shape.row)[0];
    // Stores of whole words, where the elements allow it; loads that jump are one by one.
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

/// Elements that one access of a lane may span in a vector loop.
fn width(facts: &IndexAnalysis<'_>, limits: &GridLimits, l: &Loop) -> usize {
    /// Beyond this the code grows and no access gets wider.
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

/// Elements that a lane must store at a time in a vector loop so that these are whole words.
fn lanes_per_store_word(facts: &IndexAnalysis<'_>, limits: &GridLimits, l: &Loop) -> usize {
    let along = |s: &&MemoryAccess| s.form.as_ref().is_some_and(|f| f.terms.contains_key(&IndexVar::Var(l.var)));
    let size = |s: &MemoryAccess| facts.kernel.buffers[s.buf.0 as usize].dtype.size();
    // Memory that is shared by a block has a word for each element.
    let stores = facts.accesses.iter().filter(|s| s.store && s.loops.contains(&l.var) && !facts.is_scratch(s.buf));
    stores.filter(along).map(|s| limits.min_store_bytes / size(s).min(limits.min_store_bytes)).max().unwrap_or(1)
}

/// Whether every access in a vector loop may span so many elements; loads may jump if that is asked for.
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
    // A size that is an argument has no rest that the text could name.
    let even = n % width as i64 == 0 || matches!(l.extent, Extent::Exact(Size::Const(_)));
    fits && even
}
