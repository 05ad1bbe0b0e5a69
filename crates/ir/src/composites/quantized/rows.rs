//! Decodes and encodes rows of quantized weights in Rust code, equivalent to `dequantize` and `quantize_blocks`, for callers
//! that have bytes instead of graphs. Tests check that both give the same bits.

use super::format::{FP4, NF4, QuantFormat, QuantScheme};
use crate::dtype::DType;
use crate::scalar::Scalar;
use half::{bf16, f16};
use std::sync::LazyLock;

/// Quantized rows: the bytes of a weight's parts.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedRows<'a> {
    /// The quantization scheme.
    pub packing: QuantScheme,
    /// The number of elements of a row.
    pub k: usize,
    /// The dtype of scales, if the format does not fix it.
    pub scale: DType,
    /// Codes or blocks.
    pub data: &'a [u8],
    /// Scales, if they are stored separately.
    pub scales: &'a [u8],
    /// The zero points of `U4`, or the per-tensor scale of `Nvfp4`.
    pub extra_scales: &'a [u8],
}

/// The values of 8-bit floats by code.
static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|i| float(DType::F8E4M3, &[i as u8], 0)));
static E5M2: LazyLock<[f32; 256]> = LazyLock::new(|| std::array::from_fn(|i| float(DType::F8E5M2, &[i as u8], 0)));

/// The largest block that is decoded at once.
const MAX_BLOCK: usize = 256;

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// A float of any dtype.
#[inline]
fn float(dtype: DType, bytes: &[u8], i: usize) -> f32 {
    let two = |i: usize| [bytes[2 * i], bytes[2 * i + 1]];
    match dtype {
        DType::F32 => f32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]),
        DType::F16 => f16::from_le_bytes(two(i)).to_f32(),
        DType::BF16 => bf16::from_le_bytes(two(i)).to_f32(),
        other => {
            let size = other.size();
            let word = bytes[size * i..size * (i + 1)].iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
            Scalar::from_bits(other, word).to_f64() as f32
        }
    }
}

fn e8m0(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        e => f32::from_bits(u32::from(e) << 23),
    }
}

impl QuantizedRows<'_> {
    /// The alignment of the start of a range of elements.
    pub fn block_elements(&self) -> usize {
        match self.packing.format.block_bytes() {
            Some(_) => self.packing.group,
            None if self.packing.format.is_4bit() => 2,
            None => 1,
        }
    }

    /// Decodes elements of a row from `from` on, as many as `out` has.
    ///
    /// # Panics
    /// If the range exceeds the row, or there are too few bytes.
    pub fn decode(&self, row: usize, from: usize, out: &mut [f32]) {
        assert!(from + out.len() <= self.k, "beyond the row");
        let unit = self.block_elements();
        if unit > 2 {
            let bytes = self.packing.format.block_bytes().unwrap_or(1);
            let (mut at, mut done) = (from, 0);
            let mut whole = [0f32; MAX_BLOCK];
            while done < out.len() {
                let (block, skip) = (row * (self.k / unit) + at / unit, at % unit);
                let n = (unit - skip).min(out.len() - done);
                decode_block(self.packing.format, &self.data[block * bytes..(block + 1) * bytes], &mut whole[..unit]);
                out[done..done + n].copy_from_slice(&whole[skip..skip + n]);
                (at, done) = (at + n, done + n);
            }
            return;
        }
        let group = self.packing.group;
        let groups = self.k / group;
        let all = if self.packing.format == QuantFormat::Nvfp4 { float(DType::F32, self.extra_scales, 0) } else { 1.0 };
        let mut done = 0;
        while done < out.len() {
            let at = from + done;
            let g = row * groups + at / group;
            let n = (group - at % group).min(out.len() - done);
            let scale = match self.packing.format {
                QuantFormat::Mxfp4 => e8m0(self.scales[g]),
                QuantFormat::Nvfp4 => float(DType::F8E4M3, self.scales, g) * all,
                _ => float(self.scale, self.scales, g),
            };
            let out = &mut out[done..done + n];
            let first = row * self.k + at;
            let low_first = |i: usize| (self.data[i / 2] >> (4 * (i % 2))) & 15;
            match self.packing.format {
                QuantFormat::Int8 => out.iter_mut().enumerate().for_each(|(i, y)| {
                    *y = f32::from(self.data[first + i] as i8) * scale;
                }),
                QuantFormat::Fp8E4M3 | QuantFormat::Fp8E5M2 => {
                    let table = if self.packing.format == QuantFormat::Fp8E4M3 { &*E4M3 } else { &*E5M2 };
                    let codes = &self.data[first..first + n];
                    out.iter_mut().zip(codes).for_each(|(y, code)| *y = table[usize::from(*code)] * scale);
                }
                QuantFormat::Int4 => out.iter_mut().enumerate().for_each(|(i, y)| {
                    *y = (f32::from(low_first(first + i) ^ 8) - 8.0) * scale;
                }),
                QuantFormat::U4 => {
                    let zero = float(self.scale, self.extra_scales, g);
                    out.iter_mut().enumerate().for_each(|(i, y)| {
                        *y = (f32::from(low_first(first + i)) - zero) * scale;
                    });
                }
                QuantFormat::Nf4 => out.iter_mut().enumerate().for_each(|(i, y)| {
                    let i = first + i;
                    *y = NF4[usize::from((self.data[i / 2] >> (4 - 4 * (i % 2))) & 15)] * scale;
                }),
                _ => out.iter_mut().enumerate().for_each(|(i, y)| {
                    *y = FP4[usize::from(low_first(first + i))] * scale;
                }),
            }
            done += n;
        }
    }
}

/// The scale and the minimum of a sub-block of Q4_K and Q5_K.
fn scale_min(s: &[u8], j: usize) -> (f32, f32) {
    let (sc, m) = match j {
        0..4 => (s[j] & 63, s[j + 4] & 63),
        _ => ((s[j + 4] & 15) | ((s[j - 4] >> 2) & 48), (s[j + 4] >> 4) | ((s[j] >> 2) & 48)),
    };
    (f32::from(sc), f32::from(m))
}

/// Decodes one GGUF block.
fn decode_block(format: QuantFormat, b: &[u8], y: &mut [f32]) {
    let nibble = |bytes: &[u8], j: usize, width: usize| (bytes[j % width] >> (4 * (j / width))) & 15;
    let fifth = |bytes: &[u8], j: usize| ((bytes[j / 8] >> (j % 8)) & 1) << 4;
    match format {
        QuantFormat::Q8_0 => {
            let d = half(b, 0);
            (0..32).for_each(|j| y[j] = f32::from(b[2 + j] as i8) * d);
        }
        QuantFormat::Q4_0 => {
            let d = half(b, 0);
            (0..32).for_each(|j| y[j] = d * (f32::from(nibble(&b[2..], j, 16)) - 8.0));
        }
        QuantFormat::Q4_1 => {
            let (d, m) = (half(b, 0), half(b, 2));
            (0..32).for_each(|j| y[j] = d * f32::from(nibble(&b[4..], j, 16)) + m);
        }
        QuantFormat::Q5_0 => {
            let d = half(b, 0);
            (0..32).for_each(|j| y[j] = d * (f32::from(nibble(&b[6..], j, 16) | fifth(&b[2..], j)) - 16.0));
        }
        QuantFormat::Q5_1 => {
            let (d, m) = (half(b, 0), half(b, 2));
            (0..32).for_each(|j| y[j] = d * f32::from(nibble(&b[8..], j, 16) | fifth(&b[4..], j)) + m);
        }
        // Sub-blocks in order, so that their shared values are computed once.
        QuantFormat::Q2K => {
            let (d, dmin) = (half(b, 80), half(b, 82));
            for (i, y) in y.chunks_exact_mut(16).enumerate() {
                let (dl, ml) = (d * f32::from(b[i] & 15), dmin * f32::from(b[i] >> 4));
                let (qs, shift) = (&b[16 + i / 8 * 32 + i % 2 * 16..][..16], i / 2 % 4 * 2);
                y.iter_mut().zip(qs).for_each(|(y, q)| *y = dl * f32::from((q >> shift) & 3) - ml);
            }
        }
        QuantFormat::Q3K => {
            let d = half(b, 108);
            for (i, y) in y.chunks_exact_mut(16).enumerate() {
                let low = (b[96 + i % 8] >> (i / 8 * 4)) & 15;
                let high = (b[104 + i % 4] >> (i / 4 * 2)) & 3;
                let dl = d * (f32::from(low | high << 4) - 32.0);
                let (qs, shift) = (&b[32 + i / 8 * 32 + i % 2 * 16..][..16], i / 2 % 4 * 2);
                let (hs, bit) = (&b[i % 2 * 16..][..16], i / 2);
                for ((y, q), h) in y.iter_mut().zip(qs).zip(hs) {
                    *y = dl * (f32::from((q >> shift) & 3 | ((h >> bit) & 1) << 2) - 4.0);
                }
            }
        }
        QuantFormat::Q4K => {
            let (d, dmin) = (half(b, 0), half(b, 2));
            for (i, y) in y.chunks_exact_mut(32).enumerate() {
                let (sc, m) = scale_min(&b[4..16], i);
                let (dl, ml) = (d * sc, dmin * m);
                let (qs, shift) = (&b[16 + i / 2 * 32..][..32], i % 2 * 4);
                y.iter_mut().zip(qs).for_each(|(y, q)| *y = dl * f32::from((q >> shift) & 15) - ml);
            }
        }
        QuantFormat::Q5K => {
            let (d, dmin) = (half(b, 0), half(b, 2));
            for (i, y) in y.chunks_exact_mut(32).enumerate() {
                let (sc, m) = scale_min(&b[4..16], i);
                let (dl, ml) = (d * sc, dmin * m);
                let (qs, shift) = (&b[48 + i / 2 * 32..][..32], i % 2 * 4);
                for ((y, q), h) in y.iter_mut().zip(qs).zip(&b[16..48]) {
                    *y = dl * f32::from((q >> shift) & 15 | ((h >> i) & 1) << 4) - ml;
                }
            }
        }
        _ => {
            let d = half(b, 208);
            for (i, y) in y.chunks_exact_mut(16).enumerate() {
                let dl = d * f32::from(b[192 + i] as i8);
                let at = i * 16;
                let (ls, shift) = (&b[at / 128 * 64 + at % 64..][..16], at / 64 % 2 * 4);
                let (hs, high) = (&b[128 + at / 128 * 32 + at % 32..][..16], at / 32 % 4 * 2);
                for ((y, l), h) in y.iter_mut().zip(ls).zip(hs) {
                    *y = dl * (f32::from((l >> shift) & 15 | ((h >> high) & 3) << 4) - 32.0);
                }
            }
        }
    }
}

/// Encoded rows: codes and scales; `None` for formats without an encoder here.
pub struct EncodedRows {
    /// The bytes of each part.
    pub parts: Vec<Vec<u8>>,
}

fn put_float(dtype: DType, x: f32, out: &mut Vec<u8>) -> f32 {
    let start = out.len();
    match dtype {
        DType::F32 => out.extend(x.to_le_bytes()),
        DType::F16 => out.extend(f16::from_f32(x).to_le_bytes()),
        DType::BF16 => out.extend(bf16::from_f32(x).to_le_bytes()),
        other => {
            let word = Scalar::from_f64(other, f64::from(x)).bits().to_le_bytes();
            out.extend(&word[..other.size()]);
        }
    }
    float(dtype, &out[start..], 0)
}

fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Encodes consecutive rows of `k` elements, like `quantize_blocks`. Nvfp4 (whose per-tensor scale is an operand there) and
/// the K-quants have no encoder here.
pub fn encode(packing: &QuantScheme, values: &[f32], scale: DType) -> Option<EncodedRows> {
    let format = packing.format;
    if !format.has_quantizer() || format == QuantFormat::Nvfp4 {
        return None;
    }
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if format.block_bytes().is_some() {
        let mut data = Vec::new();
        values.chunks_exact(packing.group).for_each(|block| encode_block(format, block, &mut data));
        return Some(EncodedRows { parts: vec![data] });
    }
    let count = match format {
        QuantFormat::U4 => 3,
        _ => 2,
    };
    parts.resize_with(count, Vec::new);
    let mut codes: Vec<u8> = Vec::with_capacity(values.len());
    for group in values.chunks_exact(packing.group) {
        let most = group.iter().fold(0f32, |m, x| m.max(x.abs()));
        match format {
            QuantFormat::U4 => {
                let high = group.iter().fold(0f32, |m, x| m.max(*x));
                let low = group.iter().fold(0f32, |m, x| m.min(*x));
                let s = put_float(scale, (high - low) / 15.0, &mut parts[1]);
                let id = inverse(s);
                let zero = ((0.0 - low) * id).round_ties_even().clamp(0.0, 15.0);
                put_float(scale, zero, &mut parts[2]);
                codes.extend(group.iter().map(|x| ((x * id).round_ties_even() + zero).clamp(0.0, 15.0) as u8));
            }
            QuantFormat::Mxfp4 => {
                let e = ((most.to_bits() >> 23) & 255).max(2) as u8 - 2;
                parts[1].push(e);
                codes.extend(group.iter().map(|x| e2m1(x / e8m0(e))));
            }
            _ => {
                let top = format.code_range().map_or(1.0, |(top, _)| top as f32);
                let s = put_float(scale, most / top, &mut parts[1]);
                let id = inverse(s);
                codes.extend(group.iter().map(|x| {
                    let y = x * id;
                    match format {
                        QuantFormat::Int8 => (y.round_ties_even().clamp(-127.0, 127.0) as i8) as u8,
                        QuantFormat::Int4 => (y.round_ties_even().clamp(-7.0, 7.0) as i8) as u8 & 15,
                        QuantFormat::Fp8E4M3 => {
                            Scalar::from_f64(DType::F8E4M3, f64::from(y.clamp(-448.0, 448.0))).bits() as u8
                        }
                        QuantFormat::Fp8E5M2 => {
                            Scalar::from_f64(DType::F8E5M2, f64::from(y.clamp(-57344.0, 57344.0))).bits() as u8
                        }
                        QuantFormat::Nf4 => NF4.windows(2).filter(|w| y > (w[0] + w[1]) / 2.0).count() as u8,
                        _ => e2m1(y),
                    }
                }));
            }
        }
    }
    parts[0] = match format.is_4bit() {
        true if format == QuantFormat::Nf4 => codes.chunks_exact(2).map(|c| c[1] | c[0] << 4).collect(),
        true => codes.chunks_exact(2).map(|c| c[0] | c[1] << 4).collect(),
        false => codes,
    };
    Some(EncodedRows { parts })
}

fn e2m1(x: f32) -> u8 {
    let size = if x.is_nan() { 6.0 } else { x.abs() };
    let bounds = [(0.25, false), (0.75, true), (1.25, false), (1.75, true), (2.5, false), (3.5, true), (5.0, false)];
    let above = bounds.iter().filter(|(bound, or_equal)| size > *bound || *or_equal && size == *bound).count() as u8;
    above | if x.is_sign_negative() { 8 } else { 0 }
}

fn encode_block(format: QuantFormat, x: &[f32], out: &mut Vec<u8>) {
    let put = |x: f32, out: &mut Vec<u8>| out.extend(f16::from_f32(x).to_le_bytes());
    let code = |y: f32, top: f32| y.trunc().clamp(0.0, top) as u8;
    let codes: Vec<u8> = match format {
        QuantFormat::Q8_0 => {
            let d = x.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
            let id = inverse(d);
            put(d, out);
            out.extend(x.iter().map(|x| (x * id).round() as i8 as u8));
            return;
        }
        QuantFormat::Q4_0 | QuantFormat::Q5_0 => {
            let range = if format == QuantFormat::Q4_0 { 8.0 } else { 16.0 };
            let most = x.iter().fold(0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
            let d = most / -range;
            let id = inverse(d);
            put(d, out);
            x.iter().map(|x| code(x * id + (range + 0.5), 2.0 * range - 1.0)).collect()
        }
        _ => {
            let top = if format == QuantFormat::Q4_1 { 15.0 } else { 31.0 };
            let high = x.iter().fold(f32::NEG_INFINITY, |m, x| m.max(*x));
            let low = x.iter().fold(f32::INFINITY, |m, x| m.min(*x));
            let d = (high - low) / top;
            let id = inverse(d);
            put(d, out);
            put(low, out);
            x.iter().map(|x| code((x - low) * id + 0.5, top)).collect()
        }
    };
    if matches!(format, QuantFormat::Q5_0 | QuantFormat::Q5_1) {
        out.extend(codes.chunks_exact(8).map(|c| c.iter().enumerate().fold(0u8, |b, (i, c)| b | (c >> 4) << i)));
    }
    out.extend((0..16).map(|j| codes[j] & 15 | codes[j + 16] << 4));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composites::quantized::{dequantize, quantize_blocks};
    use crate::{Builder, GraphBuilder, Literal, Type, interp};

    /// Pseudo-random bytes.
    fn bytes(n: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn rows_are_what_the_graphs_say() {
        for format in QuantFormat::ALL {
            for (round, scale) in [DType::F32, DType::F16, DType::BF16].into_iter().enumerate() {
                let group = format.fixed_group().unwrap_or([4, 64, 32][round]);
                let packing = QuantScheme::new(format, Some(group)).unwrap();
                let k = 2 * group;
                let types = packing.part_types(&[3, k], scale).unwrap();
                let mut parts: Vec<Vec<u8>> =
                    types.iter().enumerate().map(|(i, t)| bytes(t.bytes(), (round * 7 + i) as u64 + 1)).collect();
                if format == QuantFormat::Nvfp4 {
                    parts[2] = 0.37f32.to_le_bytes().to_vec();
                }
                let mut b = Builder::new();
                let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
                let y = b.one(dequantize(&packing, &types, DType::F32).unwrap().into(), &args).unwrap();
                let graph = b.finish(&[y]);
                let literals: Vec<Literal> =
                    types.iter().zip(&parts).map(|(t, p)| Literal::from_bytes(t.clone(), p).unwrap()).collect();
                let want = interp::run(&graph, &literals).unwrap();
                let empty = Vec::new();
                let rows = QuantizedRows {
                    packing,
                    k,
                    scale,
                    data: &parts[0],
                    scales: parts.get(1).unwrap_or(&empty),
                    extra_scales: parts.get(2).unwrap_or(&empty),
                };
                for row in 0..3 {
                    for (from, n) in
                        [(0, k), (rows.block_elements(), k - rows.block_elements()), (0, rows.block_elements())]
                    {
                        let mut got = vec![0f32; n];
                        rows.decode(row, from, &mut got);
                        for (i, y) in got.iter().enumerate() {
                            let w = want[0].get(row * k + from + i).to_f64() as f32;
                            assert!(
                                y.to_bits() == w.to_bits() || y.is_nan() && w.is_nan(),
                                "{format} {row} {from} {i}: {y} {w}"
                            );
                        }
                    }
                }
                let x: Vec<f32> = bytes(3 * k, 99 + round as u64)
                    .iter()
                    .enumerate()
                    .map(|(i, b)| if i < group { 0.0 } else { (f32::from(*b) - 127.0) * 0.0137 * (1 + i % 5) as f32 })
                    .collect();
                let Some(encoded) = encode(&packing, &x, scale) else { continue };
                let ty = Type::new(DType::F32, &[3, k]);
                let mut b = Builder::new();
                let arg = b.graph.input(ty.clone());
                let c = quantize_blocks(&packing, std::slice::from_ref(&ty), scale).unwrap();
                let outs = b.emit(c.into(), &[arg]).unwrap();
                let graph = b.finish(&outs);
                let raw: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
                let want = interp::run(&graph, &[Literal::from_bytes(ty, &raw).unwrap()]).unwrap();
                for (i, (part, want)) in encoded.parts.iter().zip(&want).enumerate() {
                    assert_eq!(part[..], *want.bytes(), "{format} {scale} part {i}");
                }
            }
        }
    }
}
