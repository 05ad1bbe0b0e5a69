//! Compares products of quantized weights, for every instruction set, with rows decoded one by one and summed in f64.

use super::{Packed, claims, prepare};
use crate::gemm::Isa;
use crate::library::CpuContext;
use crate::pool::ThreadPool;
use half::{bf16, f16};
use ir::composites::quantized::{QuantFormat, QuantScheme, packed_dot};
use ir::{DType, Type};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }
    fn unit(&mut self) -> f32 {
        self.next() as f32 / (1u32 << 30) as f32 - 1.0
    }
}

fn floats(dtype: DType, n: usize, r: &mut Random) -> Vec<u8> {
    let x = |r: &mut Random| r.unit();
    match dtype {
        DType::BF16 => (0..n).flat_map(|_| bf16::from_f32(x(r)).to_le_bytes()).collect(),
        DType::F16 => (0..n).flat_map(|_| f16::from_f32(x(r)).to_le_bytes()).collect(),
        _ => (0..n).flat_map(|_| x(r).to_le_bytes()).collect(),
    }
}

fn wide(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let n = bytes.len() / dtype.size();
    let mut out = vec![0f32; n];
    // SAFETY: the sizes are those of the slices.
    unsafe { super::widen(dtype, bytes.as_ptr(), out.as_mut_ptr(), n) };
    out
}

/// Makes parts whose numbers are neither huge nor NaN: the f16 scales of GGUF formats are kept small.
fn parts(packing: &QuantScheme, types: &[Type], r: &mut Random) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = types
        .iter()
        .map(|t| {
            if t.dtype.is_float() {
                floats(t.dtype, t.numel(), r)
            } else {
                (0..t.bytes()).map(|_| r.next() as u8).collect()
            }
        })
        .collect();
    match packing.format {
        QuantFormat::Mxfp4 => all[1].iter_mut().for_each(|e| *e = 120 + *e % 8),
        QuantFormat::Nvfp4 => all[1].iter_mut().for_each(|e| *e %= 0x40),
        QuantFormat::Fp8E4M3 | QuantFormat::Fp8E5M2 => {
            all[0] = (0..types[0].bytes()).map(|_| (r.next() % 0x50) as u8).collect()
        }
        format => {
            if let Some(bytes) = format.block_bytes() {
                let halves: &[usize] = match format {
                    QuantFormat::Q8_0 | QuantFormat::Q4_0 | QuantFormat::Q5_0 => &[0],
                    QuantFormat::Q2K => &[80, 82],
                    QuantFormat::Q3K => &[108],
                    QuantFormat::Q6K => &[208],
                    _ => &[0, 2],
                };
                for block in all[0].chunks_exact_mut(bytes) {
                    for at in halves {
                        block[*at..at + 2].copy_from_slice(&f16::from_f32(r.unit() * 0.1).to_le_bytes());
                    }
                }
            }
        }
    }
    all
}

fn check(packing: QuantScheme, scale: DType, x: DType, (m, n, k): (usize, usize, usize), transposed: bool, isa: Isa) {
    let mut r = Random((m * 31 + n * 7 + k) as u64);
    let Ok(types) = packing.part_types(&[n, k], scale) else { panic!("{packing:?} {k}") };
    let parts = parts(&packing, &types, &mut r);
    let (depth, width) = if transposed { (n, k) } else { (k, n) };
    let xt = Type::new(x, &[m, depth]);
    let xs = floats(x, m * depth, &mut r);
    let c = packed_dot(&packing, &xt, &types, transposed).expect("a product");
    let args: Vec<Type> = std::iter::once(xt).chain(types.iter().cloned()).collect();
    assert!(claims(&c, &args), "{packing:?}");
    let out = Type::new(DType::F32, &[m, width]);
    let mut found: Option<Vec<f32>> = None;
    for threads in [1, 2, 3] {
        let machine = CpuContext { threads, isa };
        let routine = prepare(&c, &args, std::slice::from_ref(&out), machine).expect("a routine");
        let pool = ThreadPool::new(threads);
        let mut scratch = vec![0u8; routine.scratch_bytes() + 64];
        let aligned = scratch.as_mut_ptr().wrapping_add(scratch.as_ptr().align_offset(64));
        let mut y = vec![f32::NAN; m * width];
        let pointers: Vec<*const u8> = std::iter::once(xs.as_ptr()).chain(parts.iter().map(|p| p.as_ptr())).collect();
        // SAFETY: buffers have the sizes of their types.
        unsafe { routine.run(&pool, &pointers, &[y.as_mut_ptr().cast()], aligned).expect("runs") };
        match &found {
            None => found = Some(y),
            Some(first) => assert!(first.iter().zip(&y).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads"),
        }
    }
    let y = found.expect("ran");
    let layout = Packed::new(packing, k, n, &types);
    let pointers: Vec<*const u8> = parts.iter().map(|p| p.as_ptr()).collect();
    // SAFETY: as above.
    let rows = unsafe { layout.at(&pointers) };
    let mut w = vec![0f32; n * k];
    (0..n).for_each(|row| rows.decode(row, 0, &mut w[row * k..(row + 1) * k]));
    let xs = wide(x, &xs);
    for i in 0..m {
        for j in 0..width {
            let (mut want, mut size) = (0f64, 0f64);
            for d in 0..depth {
                let weight = if transposed { w[d * k + j] } else { w[j * k + d] };
                let p = f64::from(xs[i * depth + d]) * f64::from(weight);
                (want, size) = (want + p, size + p.abs());
            }
            let got = f64::from(y[i * width + j]);
            let bound = size * 2e-6 + 1e-30;
            assert!(
                (got - want).abs() <= bound,
                "{packing:?} {scale} {x} {isa:?} {m}x{n}x{k} {transposed}: {got} {want} at {i},{j}"
            );
        }
    }
}

#[test]
fn products_agree_with_decoded_rows() {
    for &isa in Isa::available() {
        for format in QuantFormat::ALL {
            let groups: &[usize] = match format.fixed_group() {
                Some(_) => &[0],
                None => &[4, 8, 16, 32, 64, 128, 192],
            };
            for (g, &group) in groups.iter().enumerate() {
                let group = format.fixed_group().unwrap_or(group);
                let packing = QuantScheme::new(format, Some(group)).expect("a packing");
                let scale = [DType::F16, DType::F32, DType::BF16][g % 3];
                // Whole chunks, a remainder, and less than a chunk.
                for k in [group * 384usize.div_ceil(group), group * 5, group * 2] {
                    for (x, m, n) in [
                        (DType::F32, 1, 37),
                        (DType::BF16, 1, 37),
                        (DType::BF16, 3, 5),
                        (DType::F16, 2, 17),
                        (DType::F32, 7, 18),
                    ] {
                        check(packing, scale, x, (m, n, k), false, isa);
                    }
                }
                check(packing, scale, DType::BF16, (9, 21, group * 3), false, isa);
                check(packing, scale, DType::F32, (20, 33, group * 2), false, isa);
                check(packing, scale, DType::F32, (5, 33, group * 2), true, isa);
            }
        }
    }
}

/// Many rows, which threads take block by block, and long rows, whose scales are loaded together.
#[test]
fn long_and_many_rows_agree_with_decoded_ones() {
    for &isa in Isa::available() {
        for (format, group) in
            [(QuantFormat::Int8, 32), (QuantFormat::Int4, 32), (QuantFormat::Int4, 64), (QuantFormat::Nf4, 128)]
        {
            let packing = QuantScheme::new(format, Some(group)).expect("a packing");
            for (scale, x, m, n, k) in [
                (DType::F16, DType::BF16, 1, 601, 2048),
                (DType::BF16, DType::BF16, 3, 70, 1152),
                (DType::F32, DType::F32, 1, 601, 2176),
                (DType::F32, DType::BF16, 1, 33, 4096),
            ] {
                check(packing, scale, x, (m, n, k), false, isa);
            }
        }
    }
}
