//! Trip counts, serial loops and carried values.

use super::super::asm::{Alu, Cc};
use super::super::inst::{Inst, Src, V};
use super::{LoopCx, Lower};
use compiler::loops::{Carried, Extent, Loop, LoopKind, Reg, Size};

/// A trip count.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Const(i64),
    Reg(V),
}

impl Lower<'_> {
    pub(super) fn count(&mut self, e: &Extent) -> Count {
        match e {
            Extent::Exact(Size::Const(n)) => Count::Const(*n),
            Extent::Exact(Size::Arg(a)) => Count::Reg(self.size_arg(*a, 1)),
            Extent::Bounded { bound, buf, index } => {
                self.l = 1;
                let mem = self.address(Some(*buf), index);
                let (n, limit) = (self.gpr(), self.gpr());
                self.emit(Inst::Load { dst: n, mem, size: 4, signed: true });
                match bound {
                    Size::Const(b) => self.imm(limit, *b),
                    Size::Arg(a) => {
                        let src = self.size_arg(*a, 1);
                        self.mov(limit, src);
                    }
                }
                self.alu(Alu::Cmp, n, Src::R(limit));
                self.emit(Inst::Cmov { cc: Cc::G, dst: n, src: limit });
                // A negative count means no iterations, as the loops' entry tests find.
                Count::Reg(n)
            }
        }
    }

    pub(super) fn compare_iv(&mut self, iv: V, n: Count, back: i64) {
        let src = match n {
            Count::Const(n) => match i32::try_from(n - back) {
                Ok(i) => Src::I(i),
                Err(_) => {
                    let t = self.gpr();
                    self.imm(t, n - back);
                    Src::R(t)
                }
            },
            Count::Reg(r) => Src::R(r),
        };
        self.alu(Alu::Cmp, iv, src);
    }

    pub(super) fn serial_loop(&mut self, l: &Loop) {
        let mut n = self.count(&l.extent);
        let start = (l.kind == LoopKind::Parallel).then_some(self.args[2]);
        if start.is_some() {
            let end = self.gpr();
            self.mov(end, self.args[3]);
            let limit = match n {
                Count::Const(c) => {
                    let t = self.gpr();
                    self.imm(t, c);
                    t
                }
                Count::Reg(r) => r,
            };
            self.alu(Alu::Cmp, end, Src::R(limit));
            self.emit(Inst::Cmov { cc: Cc::G, dst: end, src: limit });
            n = Count::Reg(end);
        }
        let outer_level = self.cur() as u32;
        for c in &l.carried {
            let varying = self.varying[c.phi.0 as usize];
            self.l = if varying { self.lanes } else { 1 };
            for u in 0..if varying { self.unroll } else { 1 } {
                let phi = self.copy(c.init, u);
                self.vals[c.phi.0 as usize][u] = phi;
            }
            self.reg_level[c.phi.0 as usize] = self.loops.len() as u32;
        }
        let iv = self.gpr();
        let mut cx = LoopCx::new(iv);
        cx.start = start;
        self.var_level[l.var.0 as usize] = self.loops.len() as u32;
        self.loops.push(cx);
        let (begin, end) = (self.label(), self.label());
        self.block(&l.body);
        self.next(&l.carried);
        self.advance(1);
        self.compare_iv(iv, n, 0);
        self.branch(Cc::L, begin);
        // Close the loop: pre, entry test, body.
        let Some(cx) = self.loops.pop() else { return };
        let first = match start {
            Some(src) => Inst::Mov { dst: iv, src },
            None => Inst::Imm { dst: iv, imm: 0 },
        };
        self.emit(first);
        for i in cx.pre {
            self.emit(i);
        }
        if !matches!(n, Count::Const(1..)) {
            self.compare_iv(iv, n, 0);
            self.branch(Cc::Ge, end);
        }
        self.emit(Inst::LoopBegin { label: begin });
        for i in cx.body {
            self.emit(i);
        }
        self.emit(Inst::LoopEnd);
        self.bind(end);
        for c in &l.carried {
            self.vals[c.out.0 as usize] = self.vals[c.phi.0 as usize];
            self.reg_level[c.out.0 as usize] = outer_level;
        }
    }

    /// Returns a fresh copy of a value that can be assigned again.
    fn copy(&mut self, r: Reg, u: usize) -> V {
        let src = self.get(r, u);
        let class = self.classes[src.0 as usize];
        let dst = self.fresh(class);
        self.mov(dst, src);
        dst
    }

    /// Emits `phi = next` for all carried values at once.
    pub(super) fn next(&mut self, carried: &[Carried]) {
        let mut moves = vec![];
        for c in carried {
            let varying = self.varying[c.phi.0 as usize];
            self.l = if varying { self.lanes } else { 1 };
            for u in 0..if varying { self.unroll } else { 1 } {
                let phi = self.vals[c.phi.0 as usize][u];
                let next = self.get(c.next, u);
                if phi != next {
                    moves.push((phi, next));
                }
            }
        }
        // A value that is itself a phi (or a no-op conversion of one) is saved before any move.
        let phis: Vec<V> = moves.iter().map(|m| m.0).collect();
        for m in &mut moves {
            if phis.contains(&m.1) {
                let class = self.classes[m.1.0 as usize];
                let saved = self.fresh(class);
                self.mov(saved, m.1);
                m.1 = saved;
            }
        }
        for (dst, src) in moves {
            self.mov(dst, src);
        }
    }
}
