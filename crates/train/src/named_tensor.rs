//! Tensors with names, as files have them.

use half::{bf16, f16};
use ir::{DType, Scalar};
use safetensors::Dtype;

/// A tensor with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its dtype.
    pub dtype: DType,
    /// Its elements, little-endian.
    pub bytes: Vec<u8>,
}

impl NamedTensor {
    /// The elements of a float tensor.
    pub fn floats(&self) -> Vec<f32> {
        from_bytes(&self.bytes, self.dtype)
    }
}

/// How a dtype is stored.
pub fn stored_as(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

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
