//! Lowers loads and stores.
//!
//! Lanes that are adjacent in memory are accessed as vectors, 32- and 64-bit loads with other layouts by gathers.
//! All other accesses (narrow types that are not contiguous, scatters) go lane by lane through the frame, in lane order. Memory
//! under a false mask is never accessed.

use super::super::NEAR;
use super::super::asm::{Alu, Cc, W};
use super::super::enc;
use super::super::inst::{Inst, Mem, Src, V};
use super::super::pool::Const;
use super::Lower;
use super::lanewise::Step;
use super::values::lane_const;
use compiler::loops::lanes::index_varies;
use compiler::loops::{Atom, Buf, Index, Reg, Size};
use ir::{Binary, DType, Scalar};

/// The layout of an access's lanes in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    /// Lane i is at i times this many elements.
    Stride(i64),
    /// Like `Stride`, with a stride known at run time.
    Runtime(u32),
    /// Each lane has its own address.
    Lanes,
}

impl Lower<'_> {
    fn access(&self, index: &Index) -> Access {
        let mut stride = Access::Stride(0);
        for &(atom, s) in &index.terms {
            match atom {
                Atom::Reg(r) if self.varying[r.0 as usize] => return Access::Lanes,
                Atom::Var(v) if self.vector.is_some_and(|x| x.var == v) => {
                    stride = match (stride, s) {
                        (Access::Stride(a), Size::Const(b)) => Access::Stride(a + b),
                        (Access::Stride(0), Size::Arg(n)) => Access::Runtime(n),
                        _ => return Access::Lanes,
                    };
                }
                _ => {}
            }
        }
        stride
    }

    pub(super) fn load(&mut self, buf: Buf, index: &Index, mask: Option<(Reg, Scalar)>, u: usize) -> V {
        let d = self.k.buffers[buf.0 as usize].dtype;
        if self.l == 1 {
            let mem = self.address(Some(buf), index);
            let Some((m, other)) = mask else {
                return self.scalar_load(d, mem);
            };
            let m = self.get(m, u);
            let initial = self.scalar_const(other);
            let class = self.classes[initial.0 as usize];
            let out = self.fresh(class);
            self.mov(out, initial);
            let skip = self.skip_unless(m);
            let v = self.scalar_load(d, mem);
            self.mov(out, v);
            self.bind(skip);
            return out;
        }
        let user = mask.map(|(m, _)| self.get(m, u));
        let on = self.with_tail(user);
        let other = mask.map_or(Scalar::zero(d), |(_, s)| s);
        let v = self.lane_load(d, buf, index, on, u);
        match user {
            Some(m) if other.bits() != 0 => {
                let other = if d == DType::Bool { self.scalar_const(other) } else { self.const_reg(lane_const(other)) };
                self.select(d, m, v, other)
            }
            _ => v,
        }
    }

    /// Returns the mask of an access in a vector loop, combined with the tail's.
    fn with_tail(&mut self, user: Option<V>) -> Option<V> {
        match (user, self.tail) {
            (Some(a), Some(b)) => Some(self.mask_logic(Binary::And, a, b)),
            (a, b) => a.or(b),
        }
    }

    fn skip_unless(&mut self, m: V) -> u32 {
        let bits = self.mask_bits(m);
        let skip = self.label();
        self.emit(Inst::Shift { op: 4, dst: bits, imm: 63 });
        self.test(bits);
        self.branch(Cc::E, skip);
        skip
    }

    /// Loads lane by lane; zero where the mask is off.
    fn lane_load(&mut self, d: DType, buf: Buf, index: &Index, on: Option<V>, u: usize) -> V {
        let esize = d.size() as i32;
        let mem = self.address(Some(buf), index);
        let access = self.access(index);
        if let Some((step, lanes)) = self.known_lanes(d, access, on).filter(|_| esize < 4) {
            let p = self.pointer(mem.plus(0));
            let p = self.offset_pointer(p, (u * self.lanes) as i64 * step);
            return self.insert_lanes(d, p, step as i32, lanes);
        }
        match access {
            Access::Stride(1) => {
                let mem = mem.plus((u * self.lanes) as i32 * esize);
                if self.masks_natively(d) || on.is_none() {
                    self.unit_load(d, mem, on)
                } else if let Some(n) = self.active_lanes(on) {
                    self.load_partial(d, mem, n)
                } else {
                    let p = self.pointer(mem);
                    self.load_by_lane(d, p, Step::Const(esize as i64), on)
                }
            }
            Access::Stride(s) if on.is_none() && self.uses_permute(d, s) => {
                let first = (u * self.lanes) as i64 * s * esize as i64;
                let p = self.pointer(mem);
                let p = self.offset_pointer(p, first);
                self.picked_load(d, p, s)
            }
            Access::Stride(s) if esize >= 4 && s.unsigned_abs() < 1 << 24 => {
                let p = self.pointer(mem.plus(0));
                let index = self.iota32(s as i32);
                let disp = (u * self.lanes) as i64 * s * esize as i64;
                let enc = if esize == 8 { &enc::GATHERDPD } else { &enc::GATHERDPS };
                self.gather(enc, d, p, disp, index, on)
            }
            Access::Stride(s) => {
                let p = self.pointer(mem);
                let first = (u * self.lanes) as i64 * s * esize as i64;
                let p = self.offset_pointer(p, first);
                self.load_by_lane(d, p, Step::Const(s * esize as i64), on)
            }
            Access::Runtime(a) => {
                let p = self.pointer(mem);
                let (s, bytes) = (self.size_arg(a, 1), self.size_arg(a, esize as usize));
                let out = if d == DType::Bool { self.fresh_mask() } else { self.vec() };
                let (strided, end) = (self.label(), self.label());
                let native = self.masks_natively(d) || on.is_none();
                if native {
                    self.alu(Alu::Cmp, s, Src::I(1));
                    self.branch(Cc::Ne, strided);
                    let v = self.unit_load(d, Mem::base(p, (u * self.lanes) as i32 * esize), on);
                    self.mov(out, v);
                    self.jump(end);
                    self.bind(strided);
                }
                if on.is_none() && d != DType::Bool {
                    let other = self.label();
                    self.test(s);
                    self.branch(Cc::Ne, other);
                    let lanes = std::mem::replace(&mut self.l, 1);
                    let v = self.scalar_load(d, Mem::base(p, 0));
                    self.l = lanes;
                    let enc = if esize == 8 { &enc::PBROADCASTQ } else { &enc::PBROADCASTD };
                    self.to(out, enc, self.w(d), V::NONE, v);
                    self.jump(end);
                    self.bind(other);
                }
                let first = self.gpr();
                self.mov(first, bytes);
                self.emit(Inst::Imul { dst: first, src: Src::I((u * self.lanes) as i32) });
                self.alu(Alu::Add, first, Src::R(p));
                let v = self.load_by_lane(d, first, Step::Reg(bytes), on);
                self.mov(out, v);
                self.bind(end);
                out
            }
            Access::Lanes => {
                let p = self.pointer(mem);
                let zero = self.r64(0);
                if esize >= 4 {
                    let index = self.add_lane_offsets(zero, index, u, 1);
                    let enc = if esize == 8 { &enc::GATHERQPD } else { &enc::GATHERQPS };
                    self.gather(enc, d, p, 0, index, on)
                } else {
                    let offsets = self.add_lane_offsets(zero, index, u, esize as i64);
                    self.load_by_lane(d, p, Step::Lanes(offsets), on)
                }
            }
        }
    }

    /// For an access that no vector instruction supports: the stride in bytes and the number of active lanes, if both are known.
    fn known_lanes(&self, d: DType, access: Access, on: Option<V>) -> Option<(i64, usize)> {
        let Access::Stride(s) = access else { return None };
        let lanes = match on {
            _ if s == 1 => return None,
            None => self.l,
            Some(_) if on == self.tail => self.tail_lanes?,
            _ => return None,
        };
        let step = s.checked_mul(d.size() as i64)?;
        (!self.wide_target() && step.unsigned_abs() < 1 << 24).then_some((step, lanes))
    }

    /// Returns whether strided lanes are permuted from full vector loads, which is faster than gathering them.
    fn uses_permute(&self, d: DType, stride: i64) -> bool {
        let fills = match d.size() {
            1 => false,
            2 => self.l >= 8,
            _ => self.l >= 4,
        };
        self.wide_target() && fills && (stride == -1 || (2..=NEAR.min(self.l as i64)).contains(&stride))
    }

    /// Loads lanes a few elements apart by permuting the vectors that contain them; nothing after the last lane is read.
    fn picked_load(&mut self, d: DType, p: V, stride: i64) -> V {
        let (lanes, esize) = (self.l as i64, d.size() as i64);
        let w = W::of_bytes(self.l * d.size());
        let (load, pick) = match esize {
            8 => (&enc::MOVUPD, &enc::PERMT2PD),
            2 => (&enc::MOVUPS, &enc::PERMT2W),
            _ => (&enc::MOVUPS, &enc::PERMT2PS),
        };
        let vectors = if stride < 0 { 2 } else { stride };
        // The last vector ends with the last lane; for negative strides both are the one vector that ends at the first lane.
        let start = |k: i64| match () {
            _ if stride < 0 => 1 - lanes,
            _ if k + 1 == vectors => (lanes - 1) * (stride - 1),
            _ => lanes * k,
        };
        let at = |k: i64| super::Rm::M(Mem::base(p, (start(k) * esize) as i32));
        let dst = self.vec();
        self.emit(Inst::Vec { enc: load, w, dst, a: V::NONE, b: at(0), imm: None, mask: V::NONE });
        for k in 1..vectors {
            let lane = |i: i64| {
                let element = i * stride;
                match k {
                    _ if stride < 0 => lanes - 1 - i,
                    _ if element >= lanes * k && (element < lanes * (k + 1) || k + 1 == vectors) => {
                        lanes + element - start(k)
                    }
                    1 if element < lanes => element,
                    _ => i,
                }
            };
            let mut bytes = [0u8; 64];
            for i in 0..lanes {
                let (at, n) = ((i * esize) as usize, esize as usize);
                bytes[at..at + n].copy_from_slice(&lane(i).to_le_bytes()[..n]);
            }
            let index = self.const_reg(Const::Whole(bytes));
            self.emit(Inst::Permute { enc: pick, w, dst, index, b: at(k) });
        }
        if esize == 2 { self.widened(d, dst) } else { dst }
    }

    pub(super) fn store(&mut self, buf: Buf, index: &Index, value: Reg, mask: Option<Reg>) {
        let varies = self.varying[value.0 as usize]
            || mask.is_some_and(|m| self.varying[m.0 as usize])
            || index_varies(index, self.vector.map(|v| v.var), &self.varying);
        let d = self.k.buffers[buf.0 as usize].dtype;
        if !varies {
            self.l = 1;
            let v = self.get(value, 0);
            let mem = self.address(Some(buf), index);
            let skip = mask.map(|m| {
                let m = self.get(m, 0);
                self.skip_unless(m)
            });
            self.scalar_store(d, v, mem);
            if let Some(label) = skip {
                self.bind(label);
            }
            return;
        }
        self.l = self.lanes;
        for u in 0..self.unroll {
            let v = self.get(value, u);
            let user = mask.map(|m| self.get(m, u));
            let on = self.with_tail(user);
            self.lane_store(d, v, buf, index, on, u);
        }
    }

    fn lane_store(&mut self, d: DType, v: V, buf: Buf, index: &Index, on: Option<V>, u: usize) {
        let esize = d.size() as i32;
        let mem = self.address(Some(buf), index);
        let native = self.masks_natively(d) || on.is_none();
        let access = self.access(index);
        if let (Access::Stride(1), Some(n)) = (access, self.active_lanes(on)) {
            return self.store_partial(d, v, mem.plus((u * self.lanes) as i32 * esize), n);
        }
        if let Some((step, lanes)) = self.known_lanes(d, access, on) {
            let p = self.pointer(mem);
            let p = self.offset_pointer(p, (u * self.lanes) as i64 * step);
            return self.extract_lanes(d, v, p, step as i32, lanes);
        }
        match access {
            Access::Stride(1) if native => self.unit_store(d, v, mem.plus((u * self.lanes) as i32 * esize), on),
            Access::Stride(s) => {
                let p = self.pointer(mem);
                let p = self.offset_pointer(p, (u * self.lanes) as i64 * s * esize as i64);
                self.store_by_lane(d, v, p, Step::Const(s * esize as i64), on);
            }
            Access::Runtime(a) => {
                let p = self.pointer(mem);
                let (s, bytes) = (self.size_arg(a, 1), self.size_arg(a, esize as usize));
                let (strided, end) = (self.label(), self.label());
                if native {
                    self.alu(Alu::Cmp, s, Src::I(1));
                    self.branch(Cc::Ne, strided);
                    self.unit_store(d, v, Mem::base(p, (u * self.lanes) as i32 * esize), on);
                    self.jump(end);
                    self.bind(strided);
                }
                let first = self.gpr();
                self.mov(first, bytes);
                self.emit(Inst::Imul { dst: first, src: Src::I((u * self.lanes) as i32) });
                self.alu(Alu::Add, first, Src::R(p));
                self.store_by_lane(d, v, first, Step::Reg(bytes), on);
                self.bind(end);
            }
            Access::Lanes => {
                let p = self.pointer(mem);
                let zero = self.r64(0);
                let offsets = self.add_lane_offsets(zero, index, u, esize as i64);
                self.store_by_lane(d, v, p, Step::Lanes(offsets), on);
            }
        }
    }

    fn pointer(&mut self, mem: Mem) -> V {
        let dst = self.gpr();
        self.lea(dst, mem);
        dst
    }

    fn offset_pointer(&mut self, p: V, by: i64) -> V {
        if by == 0 {
            return p;
        }
        let t = self.gpr();
        self.imm(t, by);
        self.alu(Alu::Add, t, Src::R(p));
        t
    }

    pub(crate) fn gather(&mut self, enc: &'static enc::Enc, d: DType, p: V, disp: i64, index: V, on: Option<V>) -> V {
        let p = self.offset_pointer(p, disp);
        let w = self.w(d);
        let dst = self.vec();
        let zero = self.r64(0);
        self.mov(dst, zero);
        let mask = match on {
            Some(m) if d.size() == 8 && !self.wide_target() => self.widen_mask(m),
            Some(m) => m,
            None if self.wide_target() => self.scalar_const(Scalar::bool(true)),
            None => self.r64(u64::MAX),
        };
        // A gather of 32-bit data by 64-bit indices is as wide as its indices.
        let w = if std::ptr::eq(enc, &enc::GATHERQPS) { self.w64() } else { w };
        self.emit(Inst::Gather { enc, w, dst, mask, base: p, disp: 0, index, scale: d.size() as u8 });
        dst
    }

    /// Returns whether vector moves of this dtype can be masked.
    fn masks_natively(&self, d: DType) -> bool {
        self.wide_target() || d.size() >= 4
    }
}
