//! The 8-bit floats: rounding in f32, and conversion of their bit patterns.

use super::super::enc;
use super::super::inst::V;
use super::Lower;
use ir::{Compare, DType};

/// The parameters of the two formats.
struct Format {
    mantissa: u32,
    /// The exponent of the smallest normal number.
    least: i32,
    max: f32,
    /// The result of rounding a number above `max`.
    over: f32,
}

fn format(d: DType) -> Format {
    match d {
        DType::F8E4M3 => Format { mantissa: 3, least: -6, max: 448.0, over: f32::NAN },
        _ => Format { mantissa: 2, least: -14, max: 57344.0, over: f32::INFINITY },
    }
}

impl Format {
    /// The factor that converts an f32's exponent field to that of the 8-bit format.
    fn rebias(&self) -> f32 {
        f32::from_bits(((1 - self.least) as u32) << 23)
    }

    /// Its reciprocal, 2 to the power 126 + least.
    fn unbias(&self) -> f32 {
        2f32.powi(126 + self.least)
    }
}

impl Lower<'_> {
    /// Rounds an f32 to the nearest 8-bit float, ties to even.
    pub(super) fn round_fp8(&mut self, d: DType, v: V) -> V {
        let (f, w) = (format(d), self.w32());
        let (magnitude, sign) = (self.c32(0x7fff_ffff), self.c32(0x8000_0000));
        let a = self.v3(&enc::PANDD, w, v, magnitude);
        // Clamp far outside of the range, so that nothing below overflows; NaN stays.
        let limit = self.r32((4.0 * f.max).to_bits());
        let a = self.v3(&enc::MINPS, w, limit, a);
        // 1.5 · 2²³ times the spacing of 8-bit floats around a: adding and subtracting it rounds to that spacing.
        let field = self.c32(0x7f80_0000);
        let e = self.v3(&enc::PANDD, w, a, field);
        let least = self.c32(((127 + f.least) as u32) << 23);
        let e = self.v3(&enc::PMAXSD, w, e, least);
        let up = self.c32((23 - f.mantissa) << 23 | 0x40_0000);
        let magic = self.v3(&enc::PADDD, w, e, up);
        let r = self.v3(&enc::ADDPS, w, a, magic);
        let r = self.v3(&enc::SUBPS, w, r, magic);
        let max = self.c32(f.max.to_bits());
        let beyond = self.compare(Compare::Gt, DType::F32, r, max);
        let over = self.c32(f.over.to_bits());
        let r = self.select(DType::F32, beyond, over, r);
        // The sum with a NaN's exponent field may be infinite, so the input decides.
        let nan = self.cmp_float(false, 3, v, v);
        let r = self.select(DType::F32, nan, v, r);
        let s = self.v3(&enc::PANDD, w, v, sign);
        self.v3(&enc::PORD, w, r, s)
    }

    /// Converts bit patterns in 32-bit lanes to f32.
    pub(super) fn fp8_to_f32(&mut self, d: DType, bits: V) -> V {
        let (f, w) = (format(d), self.w32());
        let low = self.c32(0x7f);
        let a = self.v3(&enc::PANDD, w, bits, low);
        let s = self.v3(&enc::PXORD, w, a, bits);
        let s = self.v2i(&enc::PSLLD_I, w, s, 24);
        let a = self.v2i(&enc::PSLLD_I, w, a, (23 - f.mantissa) as u8);
        // Reinterpret as an f32 with that exponent field; the product makes subnormal numbers normal.
        let scale = self.c32(f.unbias().to_bits());
        let x = self.v3(&enc::MULPS, w, a, scale);
        let max = self.c32(f.max.to_bits());
        let special = self.compare(Compare::Gt, DType::F32, x, max);
        let x = if d == DType::F8E4M3 {
            let nan = self.c32(f32::NAN.to_bits());
            self.select(DType::F32, special, nan, x)
        } else {
            // 2¹⁶ means infinity, larger values NaN: set the f32 exponent field to all ones and keep the mantissa.
            let ones = self.c32(0x7f80_0000);
            let y = self.v3(&enc::PORD, w, x, ones);
            self.select(DType::F32, special, y, x)
        };
        self.v3(&enc::PORD, w, x, s)
    }

    /// Converts an f32 that is an 8-bit float to its bit pattern in 32-bit lanes.
    pub(super) fn f32_to_fp8(&mut self, d: DType, v: V) -> V {
        let (f, w) = (format(d), self.w32());
        let magnitude = self.c32(0x7fff_ffff);
        let a = self.v3(&enc::PANDD, w, v, magnitude);
        let s = self.v3(&enc::PXORD, w, a, v);
        let s = self.v2i(&enc::PSRLD_I, w, s, 24);
        let scale = self.c32(f.rebias().to_bits());
        let x = self.v3(&enc::MULPS, w, a, scale);
        let x = self.v2i(&enc::PSRLD_I, w, x, (23 - f.mantissa) as u8);
        let inf = self.c32(f32::INFINITY.to_bits());
        let infinite = self.compare(Compare::Eq, DType::F32, a, inf);
        let bits = self.c32(if d == DType::F8E4M3 { 0x7f } else { 0x7c });
        let x = self.select(DType::I32, infinite, bits, x);
        let nan = self.cmp_float(false, 3, v, v);
        let bits = self.c32(if d == DType::F8E4M3 { 0x7f } else { 0x7e });
        let x = self.select(DType::I32, nan, bits, x);
        self.v3(&enc::PORD, w, x, s)
    }
}
