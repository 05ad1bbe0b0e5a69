//! Vector loops in three pieces: unrolled, single, and a masked remainder; reductions by a fixed tree.

use super::super::asm::{Alu, Cc, W};
use super::super::enc;
use super::super::inst::{Class, Inst, Src, V};
use super::loops::Count;
use super::{LoopCx, Lower, MAX_UNROLL, VectorCx};
use compiler::loops::lanes;
use compiler::loops::{Carried, Extent, Loop, Op, Size, Stmt};
use ir::{Binary, DType};

impl Lower<'_> {
    /// Returns the number of lanes and unrolled copies of a vector loop.
    fn shape(&self, l: &Loop) -> (usize, usize) {
        let wide = lanes::has_wide_lanes(self.k, l, &self.varying);
        let mut lanes = self.full().bytes() / if wide { 8 } else { 4 };
        let weight = weight(&l.body, self.k);
        // Use enough independent chains to hide latencies, but few enough to stay in registers. A serial loop inside (of a scan or
        // a column) is one long chain per lane, and long contiguous rows suit the hardware prefetcher.
        let chained = l.body.iter().any(|s| matches!(s, Stmt::Loop(inner) if !inner.carried.is_empty()));
        let mut unroll = match weight {
            0..=10 if chained => 8,
            0..=16 => 4,
            17..=60 if chained => 4,
            17..=100 if self.wide_target() => 4,
            17..=240 => 2,
            _ => 1,
        };
        if let Extent::Exact(Size::Const(n)) = l.extent {
            while lanes > 4 && n <= lanes as i64 / 2 {
                lanes /= 2;
            }
            while unroll > 1 && n < (unroll * lanes) as i64 {
                unroll /= 2;
            }
        }
        (lanes, unroll.min(MAX_UNROLL))
    }

    pub(super) fn vector_loop(&mut self, l: &Loop) {
        let n = self.count(&l.extent);
        let outer_level = self.cur() as u32;
        let (lanes, unroll) = self.shape(l);
        let iv = self.gpr();
        let level = self.loops.len();
        self.var_level[l.var.0 as usize] = level as u32;
        self.lanes = lanes;
        self.l = lanes;
        // Accumulators: every lane starts with the identity.
        for c in &l.carried {
            let identity = lanes::identity(c.combine.unwrap_or(Binary::Add), self.dtype(c.phi));
            for u in 0..unroll {
                let src = self.scalar_const(identity);
                let class = self.classes[src.0 as usize];
                let dst = self.fresh(class);
                self.mov(dst, src);
                self.vals[c.phi.0 as usize][u] = dst;
            }
            self.reg_level[c.phi.0 as usize] = level as u32;
        }
        self.loops.push(LoopCx::new(iv));
        self.vector = Some(VectorCx { var: l.var, level });
        let done = self.label();
        let step = (lanes * unroll) as i64;
        match n {
            Count::Const(n) => {
                let main = n / step * step;
                let single = n / lanes as i64 * lanes as i64;
                self.piece(l, unroll, (main > 0).then_some((Count::Const(main), main > step)));
                if unroll > 1 && single > main {
                    let trips = (single - main) / lanes as i64;
                    self.piece(l, 1, Some((Count::Const(single), trips > 1)));
                }
                if n > single {
                    self.tail_piece(l, Count::Const(n - single));
                }
            }
            Count::Reg(n) => {
                self.runtime_piece(l, unroll, n);
                if unroll > 1 {
                    self.runtime_piece(l, 1, n);
                }
                self.compare_iv(iv, Count::Reg(n), 0);
                self.branch(Cc::Ge, done);
                let rest = self.gpr();
                self.mov(rest, n);
                self.alu(Alu::Sub, rest, Src::R(iv));
                self.tail_piece(l, Count::Reg(rest));
            }
        }
        self.bind(done);
        let Some(cx) = self.loops.pop() else { return };
        self.vector = None;
        self.imm(iv, 0);
        for i in cx.pre.into_iter().chain(cx.body) {
            self.emit(i);
        }
        for c in &l.carried {
            let out = self.reduce(c, lanes, unroll);
            self.vals[c.out.0 as usize][0] = out;
            self.reg_level[c.out.0 as usize] = outer_level;
        }
        self.lanes = 1;
        self.unroll = 1;
        self.l = 1;
    }

    /// Emits a piece of a vector loop up to a constant bound; `again` if it may run more than once.
    fn piece(&mut self, l: &Loop, unroll: usize, to: Option<(Count, bool)>) {
        let Some((to, again)) = to else { return };
        let begin = self.label();
        self.emit(Inst::LoopBegin { label: begin });
        self.iteration(l, unroll);
        self.advance((self.lanes * unroll) as i64);
        if again {
            let iv = self.loops[self.loops.len() - 1].iv;
            self.compare_iv(iv, to, 0);
            self.branch(Cc::L, begin);
        }
        self.emit(Inst::LoopEnd);
    }

    /// Emits a piece that runs while a whole step is left.
    fn runtime_piece(&mut self, l: &Loop, unroll: usize, n: V) {
        let step = (self.lanes * unroll) as i64;
        let iv = self.loops[self.loops.len() - 1].iv;
        let limit = self.gpr();
        self.mov(limit, n);
        self.alu(Alu::Sub, limit, Src::I(step as i32 - 1));
        let (begin, end) = (self.label(), self.label());
        self.compare_iv(iv, Count::Reg(limit), 0);
        self.branch(Cc::Ge, end);
        self.emit(Inst::LoopBegin { label: begin });
        self.iteration(l, unroll);
        self.advance(step);
        self.compare_iv(iv, Count::Reg(limit), 0);
        self.branch(Cc::L, begin);
        self.emit(Inst::LoopEnd);
        self.bind(end);
    }

    /// Emits the last, partial vector of `rest` lanes.
    fn tail_piece(&mut self, l: &Loop, rest: Count) {
        self.l = self.lanes;
        let mask = match (rest, self.wide_target()) {
            (Count::Const(n), true) => {
                let g = self.gpr();
                self.imm(g, (1 << n) - 1);
                let dst = self.fresh(Class::Mask);
                self.to(dst, &enc::KMOVW_FROM, W::X, V::NONE, g);
                dst
            }
            (Count::Reg(n), true) => {
                let g = self.gpr();
                self.emit(Inst::LowBits { dst: g, n });
                let dst = self.fresh(Class::Mask);
                self.to(dst, &enc::KMOVW_FROM, W::X, V::NONE, g);
                dst
            }
            (Count::Const(n), false) => self.low_lanes(n as usize),
            (Count::Reg(n), false) => {
                let v = self.v2(&enc::MOVD_FROM, W::X, n);
                let all = self.v2(&enc::PBROADCASTD, self.w32(), v);
                let iota = self.iota32(1);
                self.v3(&enc::PCMPGTD, self.w32(), all, iota)
            }
        };
        self.tail = Some(mask);
        self.tail_lanes = if let Count::Const(n) = rest { Some(n as usize) } else { None };
        self.iteration(l, 1);
        self.tail = None;
        self.tail_lanes = None;
    }

    fn iteration(&mut self, l: &Loop, unroll: usize) {
        self.unroll = unroll;
        let top = self.loops.len() - 1;
        self.loops[top].local = super::Copies::default();
        self.block(&l.body);
        if let Some(tail) = self.tail {
            // Inactive lanes keep their sums.
            self.l = self.lanes;
            let mut moves = vec![];
            for c in &l.carried {
                let phi = self.vals[c.phi.0 as usize][0];
                let next = self.get(c.next, 0);
                moves.push((phi, self.select(self.dtype(c.phi), tail, next, phi)));
            }
            for (dst, src) in moves {
                self.mov(dst, src);
            }
        } else {
            self.next(&l.carried);
        }
    }

    /// Combines copies pairwise, then lanes by halves, then the initial value.
    fn reduce(&mut self, c: &Carried, lanes: usize, unroll: usize) -> V {
        let op = c.combine.unwrap_or(Binary::Add);
        let dtype = self.dtype(c.phi);
        let mut acc: Vec<V> = self.vals[c.phi.0 as usize][..unroll].to_vec();
        self.l = lanes;
        while acc.len() > 1 {
            acc = acc
                .chunks(2)
                .map(|p| if p.len() == 2 { self.binary(op, dtype, p[0], p[1].into()) } else { p[0] })
                .collect();
        }
        let mut v = acc[0];
        let (mut d, mut o) = (dtype, op);
        if dtype == DType::Bool {
            // Masks are combined as integers.
            v = self.mask_to_lanes(v);
            d = DType::I32;
            o = match op {
                Binary::And | Binary::Mul | Binary::Min => Binary::And,
                Binary::Xor => Binary::Xor,
                _ => Binary::Or,
            };
        }
        let size = if d.size() == 8 { 8 } else { 4 };
        while self.l > 1 {
            let half = self.l / 2;
            let high = match half * size {
                32 => self.v2i(&enc::EXTRACTF32X8, W::Z, v, 1),
                16 if self.wide_target() => self.v2i(&enc::EXTRACTF32X4, W::Y, v, 1),
                16 => self.v2i(&enc::EXTRACTF128, W::Y, v, 1),
                8 => self.v2i(&enc::PSHUFD, W::X, v, 0x4e),
                _ => self.v2i(&enc::PSHUFD, W::X, v, 0xb1),
            };
            self.l = half;
            v = self.binary(o, d, v, high.into());
        }
        if dtype == DType::Bool {
            v = self.lanes_to_mask(v);
        }
        let init = self.get(c.init, 0);
        self.binary(op, dtype, init, v.into())
    }
}

/// Returns the loops inside a loop, if it has any.
fn innermost(l: &Loop) -> Option<Vec<&Loop>> {
    let inside: Vec<&Loop> = l.body.iter().filter_map(|s| if let Stmt::Loop(l) = s { Some(l) } else { None }).collect();
    (!inside.is_empty()).then_some(inside)
}

/// Estimates the number of instructions of a body.
fn weight(body: &[Stmt], k: &compiler::loops::Kernel) -> usize {
    body.iter()
        .map(|s| match s {
            Stmt::Let { op, .. } => match op {
                Op::Const(_) => 0,
                Op::Unary(u, x) => super::super::math::instruction_count(*u, k.regs[x.0 as usize]),
                Op::Binary(Binary::Pow, ..) => 120,
                Op::Binary(Binary::Atan2 | Binary::Zeta | Binary::Rem, ..) => 40,
                _ => 2,
            },
            Stmt::Store { .. } => 1,
            // The cost of a loop around other loops is negligible.
            Stmt::Loop(l) => match innermost(l) {
                Some(n) => n.iter().map(|l| weight(&l.body, k)).max().unwrap_or(0),
                None => weight(&l.body, k),
            },
        })
        .sum()
}
