//! Elements as the little-endian bytes that files have: converted to and from floats, many at a time.

use crate::{DType, Scalar};
use half::{bf16, f16};

/// Floats as bytes of a dtype.
pub fn to_bytes(values: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::BF16 => values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => {
            let bits = values.iter().map(|x| Scalar::from_f64(dtype, f64::from(*x)).bits().to_le_bytes());
            bits.flat_map(|bytes| bytes.into_iter().take(dtype.size())).collect()
        }
    }
}

/// Bytes of a dtype as floats.
pub fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let pairs = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match dtype {
        DType::BF16 => pairs().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        DType::F16 => pairs().map(|bits| f16::from_bits(bits).to_f32()).collect(),
        DType::F32 => {
            let words = bytes.chunks_exact(4);
            words.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        _ => {
            let words = bytes.chunks_exact(dtype.size());
            let bits = words.map(|b| b.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte)));
            bits.map(|bits| Scalar::from_bits(dtype, bits).to_f64() as f32).collect()
        }
    }
}

/// Appends elements of one dtype as elements of another.
pub fn convert(bytes: &[u8], from: DType, to: DType, out: &mut Vec<u8>) {
    match (from, to) {
        (DType::BF16, DType::F32) => {
            out.extend(bytes.chunks_exact(2).flat_map(|b| [0, 0, b[0], b[1]]));
        }
        _ => out.extend(to_bytes(&from_bytes(bytes, from), to)),
    }
}

/// Whether no element is infinite or NaN.
pub fn all_finite(bytes: &[u8], dtype: DType) -> bool {
    let halves = |ones: u16| {
        // Without an early end, so that it is done many at a time.
        let bad = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]) & ones == ones;
        !bytes.chunks_exact(2).fold(false, |found, b| found | bad(b))
    };
    match dtype {
        DType::F32 => {
            let bad = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7F80_0000 == 0x7F80_0000;
            !bytes.chunks_exact(4).fold(false, |found, b| found | bad(b))
        }
        DType::BF16 => halves(0x7F80),
        DType::F16 => halves(0x7C00),
        _ if !dtype.is_float() => true,
        _ => from_bytes(bytes, dtype).iter().all(|x| x.is_finite()),
    }
}
