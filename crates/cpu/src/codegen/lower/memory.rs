//! Loads and stores.
//!
//! Lanes that stand next to each other in memory move as vectors, 32- and 64-bit loads at other places by gathers. What
//! is left (narrow types off the straight path, scatters) goes lane by lane through the frame, in lane order. Memory
//! under a false mask is never touched.

use super::super::asm::{Alu, Cc, W};
use super::super::enc;
use super::super::inst::{Class, Inst, Mem, Src, V};
use super::Lower;
use super::values::lane_const;
use crate::codegen::analyse::index_varies;
use compiler::loops::{Atom, Buf, Index, Reg, Size};
use ir::{Binary, DType, Scalar};

/// How the lanes of an access lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    /// Lane i at i times this many elements.
    Stride(i64),
    /// As `Stride`, known at run time.
    Runtime(u32),
    /// Each lane anywhere.
    Lanes,
}

/// Frame offsets of the lane loop's data and of its byte offsets.
const DATA: i32 = 0;
const OFFSETS: i32 = 256;

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
            self.emit(Inst::Mov { dst: out, src: initial });
            let skip = self.skip_unless(m);
            let v = self.scalar_load(d, mem);
            self.emit(Inst::Mov { dst: out, src: v });
            self.emit(Inst::Label { label: skip });
            return out;
        }
        let user = mask.map(|(m, _)| self.get(m, u));
        let on = self.with_tail(user);
        let other = mask.map_or(Scalar::zero(d), |(_, s)| s);
        let v = self.lane_load(d, buf, index, on, u);
        match user {
            Some(m) if other.bits() != 0 => {
                let other = if d == DType::Bool {
                    self.scalar_const(other)
                } else {
                    self.const_reg(lane_const(other))
                };
                self.select(d, m, v, other)
            }
            _ => v,
        }
    }

    /// The mask of an access in a vector loop.
    fn with_tail(&mut self, user: Option<V>) -> Option<V> {
        match (user, self.tail) {
            (Some(a), Some(b)) => Some(self.mask_logic(Binary::And, a, b)),
            (a, b) => a.or(b),
        }
    }

    fn skip_unless(&mut self, m: V) -> u32 {
        let bits = self.mask_bits(m);
        let skip = self.label();
        self.emit(Inst::Shift {
            op: 4,
            dst: bits,
            imm: 63,
        });
        self.emit(Inst::Test { a: bits, b: bits });
        self.emit(Inst::Jcc { cc: Cc::E, label: skip });
        skip
    }

    /// Zero where the mask is off.
    fn lane_load(&mut self, d: DType, buf: Buf, index: &Index, on: Option<V>, u: usize) -> V {
        let esize = d.size() as i32;
        let mem = self.address(Some(buf), index);
        match self.access(index) {
            Access::Stride(1) => {
                let mem = mem.plus((u * self.lanes) as i32 * esize);
                if self.masks_natively(d) || on.is_none() {
                    self.unit_load(d, mem, on)
                } else {
                    let p = self.pointer(mem);
                    self.load_by_lane(d, p, Step::Const(esize as i64), on)
                }
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
                let out = if d == DType::Bool {
                    self.fresh_mask()
                } else {
                    self.vec()
                };
                let (strided, end) = (self.label(), self.label());
                let native = self.masks_natively(d) || on.is_none();
                if native {
                    self.emit(Inst::Alu {
                        op: Alu::Cmp,
                        dst: s,
                        src: Src::I(1),
                    });
                    self.emit(Inst::Jcc {
                        cc: Cc::Ne,
                        label: strided,
                    });
                    let v = self.unit_load(d, Mem::base(p, (u * self.lanes) as i32 * esize), on);
                    self.emit(Inst::Mov { dst: out, src: v });
                    self.emit(Inst::Jmp { label: end });
                    self.emit(Inst::Label { label: strided });
                }
                if on.is_none() && d != DType::Bool {
                    let other = self.label();
                    self.emit(Inst::Test { a: s, b: s });
                    self.emit(Inst::Jcc {
                        cc: Cc::Ne,
                        label: other,
                    });
                    let lanes = std::mem::replace(&mut self.l, 1);
                    let v = self.scalar_load(d, Mem::base(p, 0));
                    self.l = lanes;
                    let enc = if esize == 8 {
                        &enc::PBROADCASTQ
                    } else {
                        &enc::PBROADCASTD
                    };
                    self.to(out, enc, self.w(d), V::NONE, v);
                    self.emit(Inst::Jmp { label: end });
                    self.emit(Inst::Label { label: other });
                }
                let first = self.gpr();
                self.emit(Inst::Mov { dst: first, src: bytes });
                self.emit(Inst::Imul {
                    dst: first,
                    src: Src::I((u * self.lanes) as i32),
                });
                self.emit(Inst::Alu {
                    op: Alu::Add,
                    dst: first,
                    src: Src::R(p),
                });
                let v = self.load_by_lane(d, first, Step::Reg(bytes), on);
                self.emit(Inst::Mov { dst: out, src: v });
                self.emit(Inst::Label { label: end });
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
                self.emit(Inst::Label { label });
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
        match self.access(index) {
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
                    self.emit(Inst::Alu {
                        op: Alu::Cmp,
                        dst: s,
                        src: Src::I(1),
                    });
                    self.emit(Inst::Jcc {
                        cc: Cc::Ne,
                        label: strided,
                    });
                    self.unit_store(d, v, Mem::base(p, (u * self.lanes) as i32 * esize), on);
                    self.emit(Inst::Jmp { label: end });
                    self.emit(Inst::Label { label: strided });
                }
                let first = self.gpr();
                self.emit(Inst::Mov { dst: first, src: bytes });
                self.emit(Inst::Imul {
                    dst: first,
                    src: Src::I((u * self.lanes) as i32),
                });
                self.emit(Inst::Alu {
                    op: Alu::Add,
                    dst: first,
                    src: Src::R(p),
                });
                self.store_by_lane(d, v, first, Step::Reg(bytes), on);
                self.emit(Inst::Label { label: end });
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
        self.emit(Inst::Lea { dst, mem });
        dst
    }

    fn offset_pointer(&mut self, p: V, by: i64) -> V {
        if by == 0 {
            return p;
        }
        let t = self.gpr();
        self.emit(Inst::Imm { dst: t, imm: by });
        self.emit(Inst::Alu {
            op: Alu::Add,
            dst: t,
            src: Src::R(p),
        });
        t
    }

    fn gather(&mut self, enc: &'static enc::Enc, d: DType, p: V, disp: i64, index: V, on: Option<V>) -> V {
        let p = self.offset_pointer(p, disp);
        let w = self.w(d);
        let dst = self.vec();
        let zero = self.r64(0);
        self.emit(Inst::Mov { dst, src: zero });
        let mask = match on {
            Some(m) if d.size() == 8 && !self.wide_target() => self.widen_mask(m),
            Some(m) => m,
            None if self.wide_target() => self.scalar_const(Scalar::bool(true)),
            None => self.r64(u64::MAX),
        };
        // A gather of 32-bit data by 64-bit indices is as wide as its indices.
        let w = if std::ptr::eq(enc, &enc::GATHERQPS) {
            self.w64()
        } else {
            w
        };
        self.emit(Inst::Gather {
            enc,
            w,
            dst,
            mask,
            base: p,
            disp: 0,
            index,
            scale: d.size() as u8,
        });
        dst
    }

    /// Copies lanes one by one into the frame, then loads them as a vector.
    fn load_by_lane(&mut self, d: DType, p: V, step: Step, on: Option<V>) -> V {
        let bits = on.map(|m| self.mask_bits(m));
        if bits.is_some() {
            let zero = self.r64(0);
            let full = self.full();
            for at in (0..self.l * d.size()).step_by(full.bytes()) {
                let mem = Mem::frame(DATA + at as i32);
                self.emit(Inst::Store {
                    enc: &enc::MOVUPS_ST,
                    w: full,
                    src: zero,
                    mem,
                    mask: V::NONE,
                    imm: None,
                });
            }
        }
        self.by_lane(d, p, step, bits, true);
        self.unit_load(d, Mem::frame(DATA), None)
    }

    fn store_by_lane(&mut self, d: DType, v: V, p: V, step: Step, on: Option<V>) {
        let bits = on.map(|m| self.mask_bits(m));
        self.unit_store(d, v, Mem::frame(DATA), None);
        self.by_lane(d, p, step, bits, false);
    }

    fn by_lane(&mut self, d: DType, p: V, step: Step, bits: Option<V>, load: bool) {
        let esize = d.size() as u8;
        let at = self.gpr();
        self.emit(Inst::Mov { dst: at, src: p });
        if let Step::Lanes(offsets) = step {
            let mem = Mem::frame(OFFSETS);
            self.emit(Inst::Store {
                enc: &enc::MOVUPS_ST,
                w: self.w64(),
                src: offsets,
                mem,
                mask: V::NONE,
                imm: None,
            });
        }
        let lane = self.gpr();
        self.emit(Inst::Imm { dst: lane, imm: 0 });
        let (begin, skip) = (self.label(), self.label());
        self.emit(Inst::LoopBegin { label: begin });
        if let Some(bits) = bits {
            self.emit(Inst::Bt { a: bits, bit: lane });
            self.emit(Inst::Jcc {
                cc: Cc::Ae,
                label: skip,
            });
        }
        let outside = match step {
            Step::Lanes(_) => {
                let off = self.gpr();
                let mem = Mem {
                    index: Some((lane, 8)),
                    ..Mem::frame(OFFSETS)
                };
                self.emit(Inst::Load {
                    dst: off,
                    mem,
                    size: 8,
                    signed: false,
                });
                Mem {
                    index: Some((off, 1)),
                    ..Mem::base(p, 0)
                }
            }
            _ => Mem::base(at, 0),
        };
        let inside = Mem {
            index: Some((lane, esize)),
            ..Mem::frame(DATA)
        };
        let (from, to) = if load { (outside, inside) } else { (inside, outside) };
        let t = self.gpr();
        self.emit(Inst::Load {
            dst: t,
            mem: from,
            size: esize,
            signed: false,
        });
        self.emit(Inst::StoreG {
            src: t,
            mem: to,
            size: esize,
        });
        self.emit(Inst::Label { label: skip });
        match step {
            Step::Const(s) => self.emit(Inst::Lea {
                dst: at,
                mem: Mem::base(at, s as i32),
            }),
            Step::Reg(r) => self.emit(Inst::Alu {
                op: Alu::Add,
                dst: at,
                src: Src::R(r),
            }),
            Step::Lanes(_) => {}
        }
        self.emit(Inst::Alu {
            op: Alu::Add,
            dst: lane,
            src: Src::I(1),
        });
        self.emit(Inst::Alu {
            op: Alu::Cmp,
            dst: lane,
            src: Src::I(self.l as i32),
        });
        self.emit(Inst::Jcc {
            cc: Cc::L,
            label: begin,
        });
        self.emit(Inst::LoopEnd);
    }

    /// Whether vector moves of this dtype can be masked.
    fn masks_natively(&self, d: DType) -> bool {
        self.wide_target() || d.size() >= 4
    }
}

/// How the lane loop walks through memory.
#[derive(Clone, Copy)]
enum Step {
    /// By this many bytes.
    Const(i64),
    /// By this register's bytes.
    Reg(V),
    /// At these byte offsets.
    Lanes(V),
}

impl Lower<'_> {
    /// Adjacent elements into lanes; a mask only where `masks_natively`.
    fn unit_load(&mut self, d: DType, mem: Mem, on: Option<V>) -> V {
        let w = self.w(d);
        let enc = match d {
            DType::F32 | DType::I32 | DType::U32 => &enc::MOVUPS,
            DType::F64 | DType::I64 | DType::U64 => &enc::MOVUPD,
            DType::I8 => &enc::PMOVSXBD,
            DType::U8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => &enc::PMOVZXBD,
            DType::I16 => &enc::PMOVSXWD,
            DType::U16 | DType::BF16 => &enc::PMOVZXWD,
            DType::F16 => &enc::CVTPH2PS,
        };
        let v = self.vec();
        match on {
            Some(m) if !self.wide_target() => {
                let wide = d.size() == 8;
                let m = if wide { self.widen_mask(m) } else { m };
                let enc = if wide { &enc::MASKMOVPD } else { &enc::MASKMOVPS };
                self.emit(Inst::Vec {
                    enc,
                    w,
                    dst: v,
                    a: m,
                    b: super::Rm::M(mem),
                    imm: None,
                    mask: V::NONE,
                });
            }
            on => {
                let mask = on.unwrap_or(V::NONE);
                self.emit(Inst::Vec {
                    enc,
                    w,
                    dst: v,
                    a: V::NONE,
                    b: super::Rm::M(mem),
                    imm: None,
                    mask,
                });
            }
        }
        self.unpack(d, v)
    }

    /// Raw bits in 32-bit lanes to the form in which values are held.
    fn unpack(&mut self, d: DType, v: V) -> V {
        match d {
            DType::BF16 => self.v2i(&enc::PSLLD_I, self.w32(), v, 16),
            DType::F8E4M3 | DType::F8E5M2 => self.fp8_to_f32(d, v),
            DType::Bool if self.wide_target() => self.lanes_to_mask(v),
            DType::Bool => {
                let zero = self.r32(0);
                self.v3(&enc::PCMPGTD, self.w32(), v, zero)
            }
            _ => v,
        }
    }

    fn scalar_load(&mut self, d: DType, mem: Mem) -> V {
        match d.size() {
            4 => self.v2(&enc::MOVSS, W::X, super::Rm::M(mem)),
            8 => self.v2(&enc::MOVSD, W::X, super::Rm::M(mem)),
            size => {
                let g = self.gpr();
                self.emit(Inst::Load {
                    dst: g,
                    mem,
                    size: size as u8,
                    signed: false,
                });
                let v = self.v2(&enc::MOVD_FROM, W::X, g);
                let lanes = std::mem::replace(&mut self.l, 1);
                let v = match d {
                    DType::F16 => self.v2(&enc::CVTPH2PS, W::X, v),
                    DType::I8 | DType::I16 => {
                        let n = 32 - d.bits() as u8;
                        let v = self.v2i(&enc::PSLLD_I, W::X, v, n);
                        self.v2i(&enc::PSRAD_I, W::X, v, n)
                    }
                    _ => self.unpack(d, v),
                };
                self.l = lanes;
                v
            }
        }
    }

    /// The form held in lanes to raw bits in 32-bit lanes.
    fn pack(&mut self, d: DType, v: V) -> V {
        match d {
            DType::BF16 => self.v2i(&enc::PSRLD_I, self.w32(), v, 16),
            DType::F8E4M3 | DType::F8E5M2 => self.f32_to_fp8(d, v),
            DType::Bool => {
                let v = self.mask_to_lanes(v);
                self.v2i(&enc::PSRLD_I, self.w32(), v, 31)
            }
            _ => v,
        }
    }

    fn scalar_store(&mut self, d: DType, v: V, mem: Mem) {
        let enc = match d.size() {
            4 => Some(&enc::MOVSS_ST),
            8 => Some(&enc::MOVSD_ST),
            _ => None,
        };
        if let Some(enc) = enc {
            self.emit(Inst::Store {
                enc,
                w: W::X,
                src: v,
                mem,
                mask: V::NONE,
                imm: None,
            });
            return;
        }
        let v = match d {
            DType::F16 => self.v2i(&enc::CVTPS2PH, W::X, v, 0),
            _ => self.pack(d, v),
        };
        let g = self.fresh(Class::Gpr);
        self.to(g, &enc::MOVD_TO, W::X, V::NONE, v);
        self.emit(Inst::StoreG {
            src: g,
            mem,
            size: d.size() as u8,
        });
    }

    fn unit_store(&mut self, d: DType, v: V, mem: Mem, on: Option<V>) {
        let w = self.w(d);
        let mask = on.unwrap_or(V::NONE);
        let store = |lo: &mut Self, enc, w, src, mask, imm| {
            lo.emit(Inst::Store {
                enc,
                w,
                src,
                mem,
                mask,
                imm,
            })
        };
        if d.size() >= 4 {
            let wide = d.size() == 8;
            return match on {
                Some(m) if !self.wide_target() => {
                    let m = if wide { self.widen_mask(m) } else { m };
                    store(
                        self,
                        if wide { &enc::MASKMOVPD_ST } else { &enc::MASKMOVPS_ST },
                        w,
                        v,
                        m,
                        None,
                    );
                }
                _ => store(
                    self,
                    if wide { &enc::MOVUPD_ST } else { &enc::MOVUPS_ST },
                    w,
                    v,
                    mask,
                    None,
                ),
            };
        }
        if d == DType::F16 {
            return store(self, &enc::CVTPS2PH, w, v, mask, Some(0));
        }
        let v = self.pack(d, v);
        if self.wide_target() {
            let enc = if d.size() == 1 { &enc::PMOVDB } else { &enc::PMOVDW };
            return store(self, enc, w, v, mask, None);
        }
        // Gather the low bytes of each 128-bit half, then join the halves.
        let order: [u8; 8] = if d.size() == 1 {
            [0, 4, 8, 12, 0x80, 0x80, 0x80, 0x80]
        } else {
            [0, 1, 4, 5, 8, 9, 12, 13]
        };
        let mut b = [0x80u8; 64];
        for half in 0..4 {
            b[16 * half..16 * half + 8].copy_from_slice(&order);
        }
        let shuffle = self.const_reg(super::Const::Whole(b));
        let v = self.v3(&enc::PSHUFB, w, v, shuffle);
        if w == W::X {
            let enc = if d.size() == 1 { &enc::MOVSS_ST } else { &enc::MOVSD_ST };
            return store(self, enc, W::X, v, V::NONE, None);
        }
        if d.size() == 1 {
            let high = self.v2i(&enc::EXTRACTF128, W::Y, v, 1);
            let v = self.v3(&enc::PUNPCKLDQ, W::X, v, high);
            store(self, &enc::MOVSD_ST, W::X, v, V::NONE, None);
        } else {
            let v = self.v2i(&enc::PERMQ_I, W::Y, v, 0x08);
            store(self, &enc::MOVUPS_ST, W::X, v, V::NONE, None);
        }
    }
}
