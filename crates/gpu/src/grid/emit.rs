//! Emits the statements of a grid from a kernel and the chosen grid shape; `lane.rs` emits those of a lane.

mod lane;

use super::rows::{CachedRow, without_unread};
use super::shape::GridShape;
use super::sync::{MemoryEffect, PendingEffects, touches};
use super::unroll::UnrolledIteration;
use super::{
    Access, AddressSpace, Carried, GridKernel, GridLimits, Loop, Memory, Op, Scope, Stmt, ThreadBuiltin, WorkFactor,
};
use compiler::loops::index_analysis::IndexAnalysis;
use compiler::loops::range::IntRange;
use compiler::loops::{self, AccessMode, Buf, Extent, LoopKind, Reg, Size, Var};
use ir::{Binary, Compare, DType, Scalar};
use smallvec::{SmallVec, smallvec};

/// The registers of one value: one if it is the same for all elements of a lane, otherwise one per element.
pub(super) type Copies = SmallVec<[Reg; 1]>;

/// The work that teams divide: a loop's iterations, or pieces of the row.
type Share = (Option<Var>, WorkFactor);

pub(super) struct Emit<'e, 'a> {
    pub(super) facts: &'e IndexAnalysis<'a>,
    limits: &'e GridLimits,
    shape: GridShape<'a>,
    /// Whether threads of a team may use barriers.
    waits: bool,
    memory: Vec<Memory>,
    pub(super) regs: Vec<DType>,
    open: Vec<Vec<Stmt>>,
    values: Vec<Copies>,
    vars: Vec<Copies>,
    /// The number of elements that the current statements process.
    copies: usize,
    /// The vector loop of the current statements.
    along: Option<Var>,
    pub(super) lane: Reg,
    pub(super) thread: Reg,
    team: Option<Reg>,
    /// The index of the team, which selects its memory.
    slot: Option<Reg>,
    /// Whether there is a row for this team.
    live: Option<Reg>,
    /// Whether the lane is lane 0.
    leader: Option<Reg>,
    /// The start of the team's piece of the row's vector loop.
    piece: Option<Reg>,
    pub(super) pending: PendingEffects,
    /// The part of the row that lanes hold in registers.
    pub(super) held: CachedRow,
    /// The shared arrays of reductions, by position and dtype.
    joins: Vec<(usize, DType, Buf)>,
}

impl<'e, 'a> Emit<'e, 'a> {
    pub(super) fn new(
        facts: &'e IndexAnalysis<'a>,
        limits: &'e GridLimits,
        shape: GridShape<'a>,
        waits: bool,
    ) -> Emit<'e, 'a> {
        let k = facts.kernel;
        let none = Reg(0);
        Emit {
            facts,
            limits,
            shape,
            waits,
            memory: Vec::new(),
            regs: Vec::new(),
            open: vec![Vec::new()],
            values: vec![SmallVec::new(); k.regs.len()],
            vars: vec![SmallVec::new(); k.vars as usize],
            copies: 1,
            along: None,
            lane: none,
            thread: none,
            team: None,
            slot: None,
            live: None,
            leader: None,
            piece: None,
            pending: PendingEffects::default(),
            held: CachedRow::default(),
            joins: Vec::new(),
        }
    }

    pub(super) fn lanes(&self) -> u32 {
        self.shape.lanes
    }

    pub(super) fn threads(&self) -> u32 {
        self.shape.lanes * self.shape.teams
    }

    pub(super) fn subgroup(&self) -> Option<u32> {
        self.limits.subgroup_size
    }

    pub(super) fn run(mut self) -> GridKernel {
        self.memory = self.place_memory();
        let spills = self.memory.iter().any(|m| matches!(m.space, AddressSpace::Spill(_)));
        let max_blocks = if spills { self.limits.max_spill_blocks } else { self.limits.blocks };
        let shared = self.shape.shared();
        let work: Vec<WorkFactor> = shared.iter().map(|(_, count)| *count).collect();
        let teams = self.shape.teams;
        let sizes = &self.facts.launch.sizes;
        let total =
            work.iter().fold(1i64, |n, c| n.saturating_mul(super::pieces(super::value(c.size, sizes), c.chunk)));
        let known = work.iter().all(|c| matches!(c.size, Size::Const(_)));
        let once = known && super::pieces(total, teams as i64) <= max_blocks as i64;
        // The last step of a loop exceeds its end by at most the whole grid.
        let int = int(IntRange::new(0, 2 * total as i128 + 2 * teams as i128));
        self.emit_thread_ids(int, spills);
        self.emit_team_loop(int, total, known && total % teams as i64 == 0, once, &shared);
        let body = self.open.pop().unwrap_or_default();
        let name = self.facts.kernel.name.clone();
        let (sizes, threads) = (self.facts.kernel.sizes, self.threads());
        let subgroup = self.limits.subgroup_size.unwrap_or(1);
        let noalias = self.facts.launch.aliases.is_empty();
        let kernel = GridKernel {
            name,
            memory: self.memory,
            sizes,
            regs: self.regs,
            threads,
            subgroup_size: subgroup,
            teams,
            work,
            max_blocks,
            noalias,
            body,
        };
        without_unread(kernel, self.facts.kernel.buffers.len())
    }

    /// Chooses the address space of each buffer. Scratch is in shared memory as far as there is space, the smallest first.
    fn place_memory(&self) -> Vec<Memory> {
        let k = self.facts.kernel;
        let teams = self.shape.teams as usize;
        let length = |i: usize, n: usize, d: DType| {
            let n = if n == 0 { self.facts.launch.scratch.get(i).copied().unwrap_or(0) } else { n };
            // Each team's part is aligned for wide accesses.
            n.next_multiple_of(16 / d.size())
        };
        let mut scratch: Vec<(usize, usize)> = Vec::new();
        for (i, b) in k.buffers.iter().enumerate() {
            if let AccessMode::Scratch(n) = b.mode {
                scratch.push((length(i, n, b.dtype) * b.dtype.size().max(self.limits.min_store_bytes) * teams, i));
            }
        }
        scratch.sort_unstable();
        // The reduction over the lanes of a team needs an element for each subgroup, or for each thread.
        let each = self.threads() as usize / self.limits.subgroup_size.map_or(1, |s| s as usize);
        let widest = loops_carried(&k.body);
        let mut room = self.limits.max_shared_bytes.saturating_sub(each.max(1) * 8 * widest);
        let mut inside = vec![false; k.buffers.len()];
        for (bytes, i) in scratch {
            inside[i] = bytes <= room;
            room -= if inside[i] { bytes } else { 0 };
        }
        let place = |(i, b): (usize, &loops::Buffer)| {
            let space = match b.mode {
                AccessMode::Read => AddressSpace::Global(Access::Read),
                AccessMode::Write => AddressSpace::Global(Access::Write),
                AccessMode::ReadWrite => AddressSpace::Global(Access::ReadWrite),
                AccessMode::Scratch(n) if inside[i] => AddressSpace::Shared(length(i, n, b.dtype) * teams),
                AccessMode::Scratch(n) => AddressSpace::Spill(length(i, n, b.dtype)),
            };
            Memory { dtype: b.dtype, space }
        };
        k.buffers.iter().enumerate().map(place).collect()
    }

    /// Emits the indices of a thread in its block and team.
    fn emit_thread_ids(&mut self, int: DType, spills: bool) {
        self.thread = self.let_(DType::I32, Op::ThreadBuiltin(ThreadBuiltin::Thread));
        let (lanes, teams) = (self.shape.lanes, self.shape.teams);
        if lanes > 1 {
            let mask = self.int(DType::I32, lanes as i64 - 1);
            self.lane = self.binary(Binary::And, self.thread, mask);
            let zero = self.int(DType::I32, 0);
            self.leader = Some(self.compare(Compare::Eq, self.lane, zero));
        } else {
            self.lane = self.int(DType::I32, 0);
        }
        if teams > 1 {
            let by = self.int(DType::I32, lanes.trailing_zeros() as i64);
            self.team = Some(self.binary(Binary::Shr, self.thread, by));
        }
        if spills {
            let slot = self.first(int);
            self.slot = Some(self.plus_team(slot));
        }
    }

    /// The index of the block's first team.
    fn first(&mut self, int: DType) -> Reg {
        let block = self.let_(DType::I32, Op::ThreadBuiltin(ThreadBuiltin::Block));
        let block = self.cast(int, block);
        let teams = self.int(int, self.shape.teams as i64);
        self.binary(Binary::Mul, block, teams)
    }

    fn plus_team(&mut self, first: Reg) -> Reg {
        match self.team {
            Some(t) => {
                let t = self.cast(self.dtype(first), t);
                self.binary(Binary::Add, first, t)
            }
            None => first,
        }
    }

    /// Emits the loop of a team over its rows.
    fn emit_team_loop(&mut self, int: DType, total: i64, even: bool, once: bool, work: &[Share]) {
        let mut count = self.int(int, 1);
        for (k, (_, c)) in work.iter().enumerate() {
            let n = self.size(c.size, int);
            let n = self.num_pieces(n, c.chunk);
            count = if k == 0 { n } else { self.binary(Binary::Mul, count, n) };
        }
        let first = self.first(int);
        if once && total == 0 {
            return;
        }
        if once {
            let q = self.plus_team(first);
            if even {
                return self.row_of(q, work);
            }
            let live = self.compare(Compare::Lt, q, count);
            if self.waits {
                let q = self.clamp_row(q, count);
                self.live = Some(live);
                return self.row_of(q, work);
            }
            self.open.push(Vec::new());
            self.row_of(q, work);
            let body = self.close();
            return self.push(Stmt::If { cond: live, body });
        }
        let blocks = self.let_(DType::I32, Op::ThreadBuiltin(ThreadBuiltin::Blocks));
        let blocks = self.cast(int, blocks);
        let teams = self.int(int, self.shape.teams as i64);
        let step = self.binary(Binary::Mul, blocks, teams);
        let from = if self.waits { first } else { self.plus_team(first) };
        let var = self.reg(int);
        let start = self.pending.clone();
        let inside = |e: &mut Self| {
            e.open.push(Vec::new());
            let mut q = var;
            if e.waits {
                q = e.plus_team(var);
                if e.shape.teams > 1 && !even {
                    e.live = Some(e.compare(Compare::Lt, q, count));
                    q = e.clamp_row(q, count);
                }
            }
            e.row_of(q, work);
            e.close()
        };
        // Emitted twice: the first time to find the memory effects at the end of a row that the next row has to wait for. Rows
        // only share the private memory of a team.
        let mark = self.regs.len();
        inside(self);
        let mut end = self.pending.clone();
        let private: Vec<usize> = self.private_classes();
        end.retain(|class| private.contains(&class) || class >= self.facts.alias_classes.len());
        self.regs.truncate(mark);
        self.pending = start.with_back_edge(&end, self.facts, None);
        let body = inside(self);
        self.push(Stmt::Loop(Loop { var, from, to: count, step, carried: Vec::new(), body }));
    }

    fn private_classes(&self) -> Vec<usize> {
        (0..self.facts.alias_classes.len())
            .filter(|&i| self.facts.is_scratch(Buf(i as u32)))
            .map(|i| self.facts.alias_classes[i])
            .collect()
    }

    fn clamp_row(&mut self, q: Reg, count: Reg) -> Reg {
        let one = self.int(self.dtype(q), 1);
        let last = self.binary(Binary::Sub, count, one);
        self.binary(Binary::Min, q, last)
    }

    /// The number of pieces of `by` elements in a length.
    fn num_pieces(&mut self, n: Reg, by: i64) -> Reg {
        if by == 1 {
            return n;
        }
        let int = self.dtype(n);
        let (less, by) = (self.int(int, by - 1), self.int(int, by));
        let n = self.binary(Binary::Add, n, less);
        self.binary(Binary::Div, n, by)
    }

    /// Emits one row: splits its number into indices, then emits its statements.
    fn row_of(&mut self, q: Reg, work: &[Share]) {
        let mut rest = q;
        for (k, (var, c)) in work.iter().enumerate().rev() {
            let own = if k == 0 {
                rest
            } else {
                let n = self.size(c.size, self.dtype(q));
                let n = self.num_pieces(n, c.chunk);
                let own = self.binary(Binary::Rem, rest, n);
                rest = self.binary(Binary::Div, rest, n);
                own
            };
            match (*var, self.shape.chunk) {
                (Some(var), _) => {
                    let own = match (self.shape.tiled, c.size) {
                        (Some(step), Size::Const(n)) if step > 1 && k + 1 == work.len() => {
                            self.adjacent_iteration(own, step, n / step)
                        }
                        _ => own,
                    };
                    let int = int(self.facts.var_range(var));
                    self.vars[var.0 as usize] = smallvec![self.cast(int, own)];
                }
                (None, Some((var, _, by))) => {
                    let int = self.loop_int(var);
                    let own = self.cast(int, own);
                    let by = self.int(int, by);
                    self.piece = Some(self.binary(Binary::Mul, own, by));
                }
                (None, None) => {}
            }
        }
        self.held.clear();
        let before = self.shape.before.clone();
        before.into_iter().for_each(|s| self.team_stmt(s));
        self.team_block(self.shape.row);
    }

    /// The n-th iteration in an order where consecutive ones are `step` iterations apart: first `count` of them, then those
    /// after each.
    fn adjacent_iteration(&mut self, n: Reg, step: i64, count: i64) -> Reg {
        let d = self.dtype(n);
        let (step, count) = (self.int(d, step), self.int(d, count));
        let (which, behind) = (self.binary(Binary::Rem, n, count), self.binary(Binary::Div, n, count));
        let which = self.binary(Binary::Mul, which, step);
        self.binary(Binary::Add, which, behind)
    }

    // Statements of a whole team.

    fn team_block(&mut self, body: &[loops::Stmt]) {
        body.iter().for_each(|s| self.team_stmt(s));
    }

    fn team_stmt(&mut self, s: &loops::Stmt) {
        match s {
            loops::Stmt::Let { dst, op } => {
                self.touch(&touches(self.facts, s, self.shape.width));
                self.let_op(*dst, op);
            }
            loops::Stmt::Store { buf, index, value, mask } => {
                self.touch(&touches(self.facts, s, self.shape.width));
                let leader = self.leader;
                self.store(*buf, index, *value, *mask, leader);
            }
            loops::Stmt::Loop(l) if l.kind == LoopKind::Vector => {
                self.touch(&touches(self.facts, s, self.shape.width));
                self.vector(l);
            }
            loops::Stmt::Loop(l) => {
                if let Extent::Bounded { buf, .. } = &l.extent {
                    let class = self.facts.alias_classes[buf.0 as usize];
                    if self.facts.written(*buf) {
                        self.touch(&[MemoryEffect { class, write: false, who: super::sync::LaneAccess::All }]);
                    }
                }
                let start = self.pending.clone();
                // As for rows: the first time to find the memory effects that the next iteration has to wait for.
                let mark = self.regs.len();
                self.held.clear();
                self.open.push(Vec::new());
                self.serial(l, Self::team_block);
                self.open.pop();
                self.regs.truncate(mark);
                self.held.clear();
                let end = self.pending.clone();
                self.pending = start.with_back_edge(&end, self.facts, Some(l.var));
                let entered = self.pending.clone();
                self.serial(l, Self::team_block);
                self.held.clear();
                // The loop may not have run at all.
                self.pending = self.pending.with_back_edge(&entered, self.facts, Some(l.var));
            }
        }
    }

    /// Emits a barrier if the next accesses need one.
    pub(super) fn touch(&mut self, next: &[MemoryEffect]) {
        if self.shape.lanes > 1 && self.pending.needs_barrier(next) {
            self.barrier();
        }
    }

    pub(super) fn barrier(&mut self) {
        let own = self.limits.subgroup_size.is_some_and(|s| self.shape.lanes <= s);
        self.push(Stmt::Barrier(if own { Scope::Subgroup } else { Scope::Block }));
    }

    /// Emits a serial loop, for a team or for a lane.
    pub(super) fn serial(&mut self, l: &loops::Loop, body: impl Fn(&mut Self, &[loops::Stmt])) {
        let int = self.loop_int(l.var);
        let to = self.extent(&l.extent, int);
        let (from, step) = (self.int(int, 0), self.int(int, 1));
        let var = self.reg(int);
        let mut carried = Vec::new();
        let copies = self.copies;
        for c in &l.carried {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let init: Copies = (0..copies).map(|j| self.value_as(c.init, j, d)).collect();
            let phi: Copies = (0..copies).map(|_| self.reg(d)).collect();
            self.values[c.phi.0 as usize] = phi.clone();
            carried.push((init, phi));
        }
        self.open.push(Vec::new());
        self.vars[l.var.0 as usize] = smallvec![var];
        body(self, &l.body);
        let mut next = Vec::new();
        for c in &l.carried {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            next.push((0..copies).map(|j| self.value_as(c.next, j, d)).collect::<Copies>());
        }
        let block = self.close();
        let mut all = Vec::new();
        for ((c, (init, phi)), next) in l.carried.iter().zip(carried).zip(next) {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let out: Copies = (0..copies).map(|_| self.reg(d)).collect();
            for j in 0..copies {
                all.push(Carried { init: init[j], phi: phi[j], next: next[j], out: out[j] });
            }
            self.values[c.out.0 as usize] = out;
        }
        self.push(Stmt::Loop(Loop { var, from, to, step, carried: all, body: block }));
    }

    /// Emits the trip count of a loop.
    fn extent(&mut self, e: &Extent, int: DType) -> Reg {
        match e {
            Extent::Exact(n) => self.size(*n, int),
            Extent::Bounded { bound, buf, index } => {
                let index = self.index(*buf, index, 0);
                let dst = self.reg(DType::I32);
                let mask = self.live_mask(*buf, None);
                let mask = mask.map(|m| (m, Scalar::zero(DType::I32)));
                self.push(Stmt::Load { dst: vec![dst], buf: *buf, index, mask });
                let n = self.cast(int, dst);
                let zero = self.int(int, 0);
                let n = self.binary(Binary::Max, n, zero);
                let bound = self.size(*bound, int);
                let bound = self.binary(Binary::Max, bound, zero);
                self.binary(Binary::Min, n, bound)
            }
        }
    }

    /// Emits a vector loop, distributed over the lanes of the team, and the reduction of its carried values.
    fn vector(&mut self, l: &loops::Loop) {
        let width = self.shape.width as i64;
        let int = self.loop_int(l.var);
        let lanes = self.shape.lanes as i64;
        let (n, rest) = match l.extent {
            Extent::Exact(Size::Const(n)) => (n, n % width),
            _ => (0, 0),
        };
        let end = self.extent(&l.extent, int);
        // The piece of this team ends before the end of the row, or with it.
        let limit = self.piece.zip(self.shape.chunk).map(|(start, (_, _, by))| {
            let by = self.int(int, by);
            self.binary(Binary::Add, start, by)
        });
        let mut accs: Vec<Copies> = Vec::new();
        for c in &l.carried {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let init = self.value_as(c.init, 0, d);
            let identity = c.combine.map_or(Scalar::zero(d), |op| loops::lanes::identity(op, d));
            let mut all: Copies = smallvec![init];
            if let Some(leader) = self.leader {
                let other = self.let_(d, Op::Const(identity));
                all[0] = self.arith(d, loops::Op::Select(leader, init, other));
            }
            all.extend((1..width).map(|_| Reg(u32::MAX)));
            for r in all.iter_mut().skip(1) {
                *r = self.let_(d, Op::Const(identity));
            }
            accs.push(all);
        }
        let lane = self.cast(int, self.lane);
        let main = if rest == 0 { end } else { self.int(int, n - rest) };
        let turns = self.unroll_count(&self.shape, l);
        accs = match turns {
            Some(turns) => self.unroll_loop(l, (int, width, lanes), (n, turns), accs),
            None => {
                let each = lanes * width;
                match self.piece.zip(self.shape.chunk) {
                    Some((start, (_, _, by))) => {
                        // Strided lanes have high latency: all loads of a whole piece are issued together.
                        let whole = self.shape.tiled.is_some() && rest == 0 && n > 0 && n % by == 0;
                        let times = if whole { by / each } else { 1 };
                        self.lane_loop(l, int, (width, each, times), Some(start), (lane, main, limit), accs)
                    }
                    None => {
                        let times = self.elements_per_iteration(l, n - rest, each);
                        let (mut start, whole) = (None, (n - rest) / (times * each) * times * each);
                        if times > 1 {
                            let whole = self.int(int, whole);
                            accs = self.lane_loop(l, int, (width, each, times), None, (lane, whole, limit), accs);
                            start = Some(whole);
                        }
                        if times > 1 && whole == n - rest {
                            accs
                        } else {
                            self.lane_loop(l, int, (width, each, 1), start, (lane, main, limit), accs)
                        }
                    }
                }
            }
        };
        if rest != 0 {
            // The remainder is shorter than one step of a lane: one element per lane.
            let start = self.int(int, n - rest);
            let start = match self.piece {
                Some(p) => self.binary(Binary::Max, p, start),
                None => start,
            };
            let firsts = accs.iter().map(|a| smallvec![a[0]]).collect();
            let outs = self.lane_loop(l, int, (1, lanes, 1), Some(start), (lane, end, limit), firsts);
            for (all, first) in accs.iter_mut().zip(outs) {
                all[0] = first[0];
            }
        }
        let mut partial = Vec::new();
        for (c, all) in l.carried.iter().zip(accs) {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let op = c.combine.unwrap_or(Binary::Add);
            let mut sum = all[0];
            for &r in &all[1..] {
                sum = self.arith(d, loops::Op::Binary(op, sum, r));
            }
            partial.push((sum, op));
        }
        let joined = self.join(&partial);
        for (c, r) in l.carried.iter().zip(joined) {
            self.values[c.out.0 as usize] = smallvec![r];
        }
    }

    /// Emits a lane's iterations: from its own offset after `start`, `width` elements at a time.
    fn lane_loop(
        &mut self,
        l: &loops::Loop,
        int: DType,
        (width, step, times): (i64, i64, i64),
        start: Option<Reg>,
        (lane, end, limit): (Reg, Reg, Option<Reg>),
        init: Vec<Copies>,
    ) -> Vec<Copies> {
        let mut from = lane;
        if width > 1 {
            let by = self.int(int, width);
            from = self.binary(Binary::Mul, lane, by);
        }
        if let Some(s) = start {
            from = self.binary(Binary::Add, s, from);
        }
        let to = match limit {
            Some(limit) => self.binary(Binary::Min, end, limit),
            None => end,
        };
        let by = self.int(int, step * times);
        let var = self.reg(int);
        let outer = self.enter(l.var, width as usize);
        let mut phis: Vec<Copies> = Vec::new();
        for (c, init) in l.carried.iter().zip(&init) {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            phis.push(init.iter().map(|_| self.reg(d)).collect());
        }
        self.open.push(Vec::new());
        let mut turns = Vec::new();
        for u in 0..times {
            let own = (0..width).map(|j| self.plus(var, int, u * step + j)).collect();
            turns.push(UnrolledIteration { own, at: None, mask: None });
        }
        let next = self.unrolled_iterations(l, &turns, false, phis.clone());
        let body = self.close();
        self.leave(outer);
        let mut carried = Vec::new();
        let mut outs = Vec::new();
        for (k, c) in l.carried.iter().enumerate() {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let out: Copies = phis[k].iter().map(|_| self.reg(d)).collect();
            for j in 0..out.len() {
                carried.push(Carried { init: init[k][j], phi: phis[k][j], next: next[k][j], out: out[j] });
            }
            outs.push(out);
        }
        self.push(Stmt::Loop(Loop { var, from, to, step: by, carried, body }));
        outs
    }

    /// Starts the statements of a vector loop, several elements at a time.
    pub(super) fn enter(&mut self, var: Var, copies: usize) -> (usize, Option<Var>) {
        (std::mem::replace(&mut self.copies, copies), self.along.replace(var))
    }

    pub(super) fn leave(&mut self, outer: (usize, Option<Var>)) {
        (self.copies, self.along) = outer;
    }

    pub(super) fn lane_as(&mut self, int: DType) -> Reg {
        self.cast(int, self.lane)
    }

    /// Emits one iteration of a vector loop's lanes and updates their carried values, if the lane takes part.
    pub(super) fn emit_iteration(
        &mut self,
        l: &loops::Loop,
        body: &[loops::Stmt],
        accs: Vec<Copies>,
        mask: Option<Reg>,
    ) -> Vec<Copies> {
        for (c, acc) in l.carried.iter().zip(&accs) {
            self.values[c.phi.0 as usize] = acc.clone();
        }
        self.lane_block(body);
        let mut all = Vec::new();
        for (c, acc) in l.carried.iter().zip(&accs) {
            let d = self.facts.kernel.regs[c.phi.0 as usize];
            let mut next: Copies = (0..self.copies).map(|j| self.value_as(c.next, j, d)).collect();
            if let Some(m) = mask {
                for (n, before) in next.iter_mut().zip(acc) {
                    *n = self.arith(d, loops::Op::Select(m, *n, *before));
                }
            }
            all.push(next);
        }
        all
    }

    pub(super) fn begin_turn(&mut self, l: &loops::Loop, t: &UnrolledIteration) {
        self.held.at = t.at;
        self.vars[l.var.0 as usize] = t.own.clone();
    }

    pub(super) fn turn_copies(&self) -> usize {
        self.copies
    }

    pub(super) fn copies_of(&self, r: Reg) -> Copies {
        self.values[r.0 as usize].clone()
    }

    pub(super) fn set_copies(&mut self, r: Reg, copies: Copies) {
        self.values[r.0 as usize] = copies;
    }

    /// The dtype of a register of the loops kernel.
    pub(super) fn dtype_of(&self, r: Reg) -> DType {
        self.facts.kernel.regs[r.0 as usize]
    }

    pub(super) fn open_block(&mut self) {
        self.open.push(Vec::new());
    }

    pub(super) fn close_block(&mut self) -> Vec<Stmt> {
        self.close()
    }

    // Register helpers.

    fn pick(&self, r: Reg, j: usize) -> Reg {
        let own = &self.values[r.0 as usize];
        own[if own.len() > 1 { j } else { 0 }]
    }

    /// A copy of a value in its own dtype.
    pub(super) fn value_as(&mut self, r: Reg, j: usize, d: DType) -> Reg {
        let r = self.pick(r, j);
        self.cast(d, r)
    }

    /// The integer type of a loop's variable, which may exceed its end by one step.
    pub(super) fn loop_int(&self, v: Var) -> DType {
        let most = self.facts.vars[v.0 as usize].max_trip_count as i128;
        let step = super::unroll::TOGETHER as i128 * self.shape.lanes as i128 * self.shape.width as i128;
        let chunk = self.shape.chunk.map_or(0, |c| c.2 as i128);
        int(IntRange::new(0, most + 2 * (step + chunk)))
    }

    fn dtype(&self, r: Reg) -> DType {
        self.regs[r.0 as usize]
    }

    pub(super) fn push(&mut self, s: Stmt) {
        self.open.last_mut().expect("a block is open").push(s);
    }

    fn close(&mut self) -> Vec<Stmt> {
        self.open.pop().unwrap_or_default()
    }

    pub(super) fn reg(&mut self, d: DType) -> Reg {
        self.regs.push(d);
        Reg(self.regs.len() as u32 - 1)
    }

    pub(super) fn let_(&mut self, d: DType, op: Op) -> Reg {
        let dst = self.reg(d);
        self.push(Stmt::Let { dst, op });
        dst
    }

    pub(super) fn arith(&mut self, d: DType, op: loops::Op) -> Reg {
        self.let_(d, Op::Arith(op))
    }

    pub(super) fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Reg {
        self.arith(self.dtype(a), loops::Op::Binary(op, a, b))
    }

    pub(super) fn compare(&mut self, op: Compare, a: Reg, b: Reg) -> Reg {
        self.arith(DType::Bool, loops::Op::Compare(op, a, b))
    }

    /// An integer constant.
    pub(super) fn int(&mut self, d: DType, x: i64) -> Reg {
        self.let_(d, Op::Const(Scalar::from_i64(d, x)))
    }

    fn cast(&mut self, to: DType, r: Reg) -> Reg {
        if self.dtype(r) == to { r } else { self.arith(to, loops::Op::Cast(to, r)) }
    }

    fn size(&mut self, s: Size, d: DType) -> Reg {
        match s {
            Size::Const(n) => self.int(d, n),
            Size::Arg(n) => self.let_(d, Op::Size(n)),
        }
    }

    /// The shared array for the reduction of the k-th carried value.
    pub(super) fn join_array(&mut self, k: usize, d: DType, len: usize) -> Buf {
        if let Some((.., b)) = self.joins.iter().find(|(n, own, _)| *n == k && *own == d) {
            return *b;
        }
        self.memory.push(Memory { dtype: d, space: AddressSpace::Shared(len) });
        let buf = Buf(self.memory.len() as u32 - 1);
        self.joins.push((k, d, buf));
        buf
    }

    /// The alias class of an array that the lowering added.
    pub(super) fn class_of(&self, buf: Buf) -> usize {
        self.facts.alias_classes.len() + buf.0 as usize
    }
}

/// The integer type for a range.
fn int(r: IntRange) -> DType {
    if r.fits_i32() { DType::I32 } else { DType::I64 }
}

/// The maximum number of values that a vector loop of a kernel carries.
fn loops_carried(body: &[loops::Stmt]) -> usize {
    let of = |s: &loops::Stmt| match s {
        loops::Stmt::Loop(l) if l.kind == LoopKind::Vector => l.carried.len(),
        loops::Stmt::Loop(l) => loops_carried(&l.body),
        _ => 0,
    };
    body.iter().map(of).max().unwrap_or(0)
}
