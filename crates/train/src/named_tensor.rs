//! Named tensors, as files store them.

use ir::DType;
pub use ir::elements::{from_bytes, to_bytes};
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
    /// Returns the elements of a float tensor.
    pub fn to_f32_vec(&self) -> Vec<f32> {
        from_bytes(&self.bytes, self.dtype)
    }
}

/// The safetensors dtype that stores a dtype.
pub fn to_safetensors_dtype(dtype: DType) -> Dtype {
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
