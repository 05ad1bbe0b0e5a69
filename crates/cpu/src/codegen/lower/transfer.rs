//! Loads and stores of adjacent elements: upcasts, downcasts, and the raw bits of narrow dtypes.

use super::super::asm::W;
use super::super::enc;
use super::super::inst::{Class, Inst, Mem, V};
use super::Lower;
use ir::DType;

/// Returns the instruction that expands adjacent elements to lanes.
fn lanes_of(d: DType) -> &'static enc::Enc {
    match d {
        DType::F32 | DType::I32 | DType::U32 => &enc::MOVUPS,
        DType::F64 | DType::I64 | DType::U64 => &enc::MOVUPD,
        DType::I8 => &enc::PMOVSXBD,
        DType::U8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => &enc::PMOVZXBD,
        DType::I16 => &enc::PMOVSXWD,
        DType::U16 | DType::BF16 => &enc::PMOVZXWD,
        DType::F16 => &enc::CVTPH2PS,
    }
}

impl Lower<'_> {
    /// Loads adjacent elements into lanes; with a mask only where `masks_natively`.
    pub(super) fn unit_load(&mut self, d: DType, mem: Mem, on: Option<V>) -> V {
        let w = self.w(d);
        let enc = lanes_of(d);
        let v = self.vec();
        match on {
            Some(m) if !self.wide_target() => {
                let wide = d.size() == 8;
                let m = if wide { self.widen_mask(m) } else { m };
                let enc = if wide { &enc::MASKMOVPD } else { &enc::MASKMOVPS };
                self.emit(Inst::Vec { enc, w, dst: v, a: m, b: super::Rm::M(mem), imm: None, mask: V::NONE });
            }
            on => {
                let mask = on.unwrap_or(V::NONE);
                self.emit(Inst::Vec { enc, w, dst: v, a: V::NONE, b: super::Rm::M(mem), imm: None, mask });
            }
        }
        self.unpack(d, v)
    }

    /// Converts 8- and 16-bit lanes, adjacent in the low part of a register, to the register representation.
    pub(super) fn widened(&mut self, d: DType, v: V) -> V {
        let v = self.v2(lanes_of(d), self.w32(), v);
        self.unpack(d, v)
    }

    /// Converts raw bits in 32-bit lanes to the register representation.
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

    pub(super) fn scalar_load(&mut self, d: DType, mem: Mem) -> V {
        match d.size() {
            4 => self.v2(&enc::MOVSS, W::X, super::Rm::M(mem)),
            8 => self.v2(&enc::MOVSD, W::X, super::Rm::M(mem)),
            size => {
                let g = self.gpr();
                self.load_gpr(g, mem, size as u8);
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

    /// Converts the register representation to raw bits in 32-bit lanes.
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

    pub(super) fn scalar_store(&mut self, d: DType, v: V, mem: Mem) {
        let enc = match d.size() {
            4 => Some(&enc::MOVSS_ST),
            8 => Some(&enc::MOVSD_ST),
            _ => None,
        };
        if let Some(enc) = enc {
            self.store_vec(enc, W::X, v, mem);
            return;
        }
        let v = match d {
            DType::F16 => self.v2i(&enc::CVTPS2PH, W::X, v, 0),
            _ => self.pack(d, v),
        };
        let g = self.fresh(Class::Gpr);
        self.to(g, &enc::MOVD_TO, W::X, V::NONE, v);
        self.store_gpr(g, mem, d.size() as u8);
    }

    pub(super) fn unit_store(&mut self, d: DType, v: V, mem: Mem, on: Option<V>) {
        let w = self.w(d);
        let mask = on.unwrap_or(V::NONE);
        let store = |lo: &mut Self, enc, w, src, mask, imm| lo.emit(Inst::Store { enc, w, src, mem, mask, imm });
        if d.size() >= 4 {
            let wide = d.size() == 8;
            return match on {
                Some(m) if !self.wide_target() => {
                    let m = if wide { self.widen_mask(m) } else { m };
                    store(self, if wide { &enc::MASKMOVPD_ST } else { &enc::MASKMOVPS_ST }, w, v, m, None);
                }
                _ => store(self, if wide { &enc::MOVUPD_ST } else { &enc::MOVUPS_ST }, w, v, mask, None),
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
        let v = self.narrowed(d, v);
        let enc = match d.size() * self.l {
            4 => &enc::MOVSS_ST,
            8 => &enc::MOVSD_ST,
            _ => &enc::MOVUPS_ST,
        };
        store(self, enc, W::X, v, V::NONE, None);
    }

    /// Converts raw bits in 32-bit lanes to adjacent elements of 8 or 16 bits, where there is no single instruction for it.
    fn narrowed(&mut self, d: DType, v: V) -> V {
        // Gather the low bytes of each 128-bit half, then join the halves.
        let w = self.w(d);
        let order: [u8; 8] =
            if d.size() == 1 { [0, 4, 8, 12, 0x80, 0x80, 0x80, 0x80] } else { [0, 1, 4, 5, 8, 9, 12, 13] };
        let mut b = [0x80u8; 64];
        for half in 0..4 {
            b[16 * half..16 * half + 8].copy_from_slice(&order);
        }
        let shuffle = self.const_reg(super::Const::Whole(b));
        let v = self.v3(&enc::PSHUFB, w, v, shuffle);
        if w == W::X {
            return v;
        }
        if d.size() == 1 {
            let high = self.v2i(&enc::EXTRACTF128, W::Y, v, 1);
            self.v3(&enc::PUNPCKLDQ, W::X, v, high)
        } else {
            self.v2i(&enc::PERMQ_I, W::Y, v, 0x08)
        }
    }

    /// Converts the register representation to adjacent elements of 8 or 16 bits in the low part of a register.
    pub(super) fn packed(&mut self, d: DType, v: V) -> V {
        if d == DType::F16 {
            return self.v2i(&enc::CVTPS2PH, self.w(d), v, 0);
        }
        let v = self.pack(d, v);
        self.narrowed(d, v)
    }
}
