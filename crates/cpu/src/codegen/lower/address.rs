//! Addresses: invariant parts before loops, multiples of loop variables by incremental addition.

use super::super::asm::Alu;
use super::super::inst::{Base, Inst, Mem, Src, V};
use super::{LoopCx, Lower};
use compiler::loops::{Atom, Buf, Index, Size};

/// The identity of a partial address: buffer (or none for a plain index), its terms, arguments and large offset.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct BaseKey {
    buf: Option<Buf>,
    terms: Vec<(Atom, Size)>,
    args: Vec<u32>,
    offset: i64,
}

/// Offsets up to this many bytes are encoded in the instruction.
const SMALL: i64 = 1 << 28;

impl Lower<'_> {
    fn atom_level(&self, a: Atom) -> usize {
        match a {
            Atom::Var(v) => self.var_level[v.0 as usize] as usize,
            Atom::Reg(r) if self.consts[r.0 as usize].is_some() => 0,
            Atom::Reg(r) => self.reg_level[r.0 as usize] as usize,
        }
    }

    fn is_lane_term(&self, a: Atom) -> bool {
        matches!(a, Atom::Reg(r) if self.varying[r.0 as usize])
    }

    /// Returns the address of lane 0, without the terms that vary by lane.
    pub(super) fn address(&mut self, buf: Option<Buf>, index: &Index) -> Mem {
        let esize = buf.map_or(1, |b| self.k.buffers[b.0 as usize].dtype.size());
        let cur = self.cur();
        let offset = index.offset.wrapping_mul(esize as i64);
        let (disp, big) = if offset.unsigned_abs() < SMALL.unsigned_abs() { (offset as i32, 0) } else { (0, offset) };
        let base = match cur {
            0 => self.root(buf, index, big, esize),
            _ => self.base_at(cur - 1, buf, index, big, esize),
        };
        let mut mem = Mem::base(base, disp);
        let mut sum = V::NONE;
        for &(atom, stride) in &index.terms {
            if self.atom_level(atom) != cur || self.is_lane_term(atom) || stride == Size::Const(0) {
                continue;
            }
            let bytes = match stride {
                Size::Const(s) => Some(s.wrapping_mul(esize as i64)),
                Size::Arg(_) => None,
            };
            if let Atom::Var(_) = atom
                && mem.index.is_none()
            {
                mem.index = Some(match bytes {
                    Some(s @ (1 | 2 | 4 | 8)) => (self.loops[cur].iv, s as u8),
                    _ => (self.induction_multiple(cur, stride, esize), 1),
                });
                continue;
            }
            if sum == V::NONE {
                sum = self.gpr();
                self.mov(sum, base);
            }
            self.add_term(sum, atom, stride, esize);
        }
        if sum != V::NONE {
            mem.base = Base::Reg(sum);
        }
        mem
    }

    /// Computes the buffer pointer plus everything that no loop changes.
    fn root(&mut self, buf: Option<Buf>, index: &Index, big: i64, esize: usize) -> V {
        let plain = index.offset_args.is_empty() && big == 0;
        let key = BaseKey { buf, terms: vec![], args: index.offset_args.clone(), offset: big };
        if let Some(&v) = self.loops[0].bases.get(&key) {
            return v;
        }
        let v = self.gpr();
        let mut code = vec![];
        match buf {
            Some(b) if plain => {
                let mem = Mem::base(self.args[0], 8 * b.0 as i32);
                code.push(Inst::Load { dst: v, mem, size: 8, signed: false });
            }
            Some(_) => {
                let src = self.root(buf, &Index::default(), 0, esize);
                code.push(Inst::Mov { dst: v, src });
            }
            None => code.push(Inst::Imm { dst: v, imm: 0 }),
        }
        if big != 0 {
            let t = self.gpr();
            code.push(Inst::Imm { dst: t, imm: big });
            code.push(Inst::Alu { op: Alu::Add, dst: v, src: Src::R(t) });
        }
        for &a in &index.offset_args {
            let s = self.size_arg(a, esize);
            code.push(Inst::Alu { op: Alu::Add, dst: v, src: Src::R(s) });
        }
        self.loops[0].pre.extend(code);
        self.loops[0].bases.insert(key, v);
        v
    }

    /// Computes the buffer pointer plus all terms of levels up to `level`, before the loop at `level + 1`.
    fn base_at(&mut self, level: usize, buf: Option<Buf>, index: &Index, big: i64, esize: usize) -> V {
        let here = index
            .terms
            .iter()
            .any(|&(a, s)| self.atom_level(a) == level && !self.is_lane_term(a) && s != Size::Const(0));
        if !here {
            return match level {
                0 => self.root(buf, index, big, esize),
                _ => self.base_at(level - 1, buf, index, big, esize),
            };
        }
        let terms: Vec<(Atom, Size)> = index
            .terms
            .iter()
            .copied()
            .filter(|&(a, s)| self.atom_level(a) <= level && !self.is_lane_term(a) && s != Size::Const(0))
            .collect();
        let key = BaseKey { buf, terms, args: index.offset_args.clone(), offset: big };
        if let Some(&v) = self.loops[level + 1].bases.get(&key) {
            return v;
        }
        let below = match level {
            0 => self.root(buf, index, big, esize),
            _ => self.base_at(level - 1, buf, index, big, esize),
        };
        let v = self.before_loop(level + 1, |lo| {
            let v = lo.gpr();
            lo.mov(v, below);
            for &(atom, stride) in &key.terms {
                if lo.atom_level(atom) == level {
                    lo.add_term(v, atom, stride, esize);
                }
            }
            v
        });
        self.loops[level + 1].bases.insert(key, v);
        v
    }

    /// Emits `sum += atom * stride * esize`.
    fn add_term(&mut self, sum: V, atom: Atom, stride: Size, esize: usize) {
        let x = match atom {
            Atom::Var(v) => self.loops[self.var_level[v.0 as usize] as usize].iv,
            Atom::Reg(r) => self.gpr_of(r),
        };
        let bytes = match stride {
            Size::Const(s) => s.wrapping_mul(esize as i64),
            Size::Arg(_) => 0,
        };
        if let 1 | 2 | 4 | 8 = bytes {
            let mem = Mem { base: Base::Reg(sum), index: Some((x, bytes as u8)), disp: 0 };
            self.lea(sum, mem);
            return;
        }
        let t = self.scaled(x, stride, esize);
        self.alu(Alu::Add, sum, Src::R(t));
    }

    /// Returns `x * stride * esize` in a fresh register.
    pub(super) fn scaled(&mut self, x: V, stride: Size, esize: usize) -> V {
        let t = self.gpr();
        self.mov(t, x);
        match stride {
            Size::Const(s) => self.mul_const(t, s.wrapping_mul(esize as i64)),
            Size::Arg(a) => {
                let s = self.size_arg(a, esize);
                self.imul(t, Src::R(s));
            }
        }
        t
    }

    fn mul_const(&mut self, t: V, n: i64) {
        match i32::try_from(n) {
            Ok(n) => self.imul(t, Src::I(n)),
            Err(_) => {
                let c = self.gpr();
                self.imm(c, n);
                self.imul(t, Src::R(c));
            }
        }
    }

    /// Returns a size argument times an element size.
    pub(super) fn size_arg(&mut self, a: u32, esize: usize) -> V {
        if let Some(&v) = self.sizes.get(&(a, esize)) {
            return v;
        }
        let dst = self.gpr();
        let mem = Mem::base(self.args[1], 8 * a as i32);
        let pre = &mut self.loops[0].pre;
        pre.push(Inst::Load { dst, mem, size: 8, signed: false });
        if esize > 1 {
            pre.push(Inst::Shift { op: 4, dst, imm: esize.trailing_zeros() as u8 });
        }
        self.sizes.insert((a, esize), dst);
        dst
    }

    /// Returns a multiple, in bytes, of the variable of the loop at `level`, updated by addition.
    fn induction_multiple(&mut self, level: usize, stride: Size, esize: usize) -> V {
        if let Some(&(_, _, v)) = self.loops[level].derived.iter().find(|d| d.0 == stride && d.1 == esize) {
            return v;
        }
        let v = match self.loops[level].start {
            Some(start) => self.before_loop(level, |lo| lo.scaled(start, stride, esize)),
            None => {
                let v = self.gpr();
                self.loops[level].pre.push(Inst::Imm { dst: v, imm: 0 });
                v
            }
        };
        self.loops[level].derived.push((stride, esize, v));
        v
    }

    /// Advances the innermost loop's variable and its multiples by `step`.
    pub(super) fn advance(&mut self, step: i64) {
        let top = self.loops.len() - 1;
        let LoopCx { iv, derived, .. } = &self.loops[top];
        let (iv, derived) = (*iv, derived.clone());
        for (stride, esize, v) in derived {
            match stride {
                Size::Const(s) => {
                    let n = s.wrapping_mul(esize as i64).wrapping_mul(step);
                    match i32::try_from(n) {
                        Ok(n) => self.alu(Alu::Add, v, Src::I(n)),
                        Err(_) => {
                            let t = self.gpr();
                            self.imm(t, n);
                            self.alu(Alu::Add, v, Src::R(t));
                        }
                    }
                }
                Size::Arg(a) => {
                    let s = self.size_arg(a, esize);
                    let t = if step == 1 {
                        s
                    } else {
                        let t = self.gpr();
                        self.mov(t, s);
                        self.mul_const(t, step);
                        t
                    };
                    self.alu(Alu::Add, v, Src::R(t));
                }
            }
        }
        self.alu(Alu::Add, iv, Src::I(step as i32));
    }
}
