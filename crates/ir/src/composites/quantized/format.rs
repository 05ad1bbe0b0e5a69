//! Quantized storage: the memory layouts of low-precision numbers, as plain tensors.
//!
//! A weight `[.., K]` is stored as *parts*: codes and the tensors that scale them. GGUF blocks contain
//! their scales between the codes, so their only part is the bytes.

use crate::dtype::DType;
use crate::types::Type;
use std::fmt;
use std::str::FromStr;

/// A format for rows of low-precision numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuantFormat {
    /// i8 codes −127..127 and a scale for each group.
    Int8,
    /// Signed 4-bit codes, two per byte, the first in the low nibble, and a scale for each group.
    Int4,
    /// Unsigned 4-bit codes, likewise, with a scale and a zero point for each group: `(code − zero)·scale`.
    U4,
    /// E4M3 numbers and a scale for each group.
    Fp8E4M3,
    /// E5M2 numbers and a scale for each group.
    Fp8E5M2,
    /// E2M1 numbers (0 ½ 1 1½ 2 3 4 6 and their negatives), two per byte as in `Int4`, and a scale for each group.
    Fp4E2M1,
    /// The 16 quantiles of a normal distribution that QLoRA uses, two per byte, the first in the *high* nibble as
    /// in bitsandbytes, and the largest magnitude of each group.
    Nf4,
    /// OCP's MXFP4: E2M1 in groups of 32 with a power of two as the scale (E8M0, a biased exponent in a u8).
    Mxfp4,
    /// NVFP4: E2M1 in groups of 16 with an E4M3 scale, and one f32 scale per tensor.
    Nvfp4,
    /// GGUF: an f16 scale, then 32 i8 codes.
    Q8_0,
    /// GGUF: an f16 scale, then 32 4-bit codes.
    Q4_0,
    /// GGUF: an f16 scale and an f16 minimum, then 32 4-bit codes.
    Q4_1,
    /// GGUF: like `Q4_0` with a fifth bit stored separately.
    Q5_0,
    /// GGUF: like `Q4_1` with a fifth bit stored separately.
    Q5_1,
    /// GGUF: 256 2-bit codes in 16 sub-blocks with 4-bit scales and minima.
    Q2K,
    /// GGUF: 256 3-bit codes in 16 sub-blocks with 6-bit scales.
    Q3K,
    /// GGUF: 256 4-bit codes in 8 sub-blocks with 6-bit scales and minima.
    Q4K,
    /// GGUF: like `Q4K` with a fifth bit stored separately.
    Q5K,
    /// GGUF: 256 6-bit codes in 16 sub-blocks with 8-bit scales.
    Q6K,
}

use QuantFormat::*;

impl QuantFormat {
    /// Every format.
    pub const ALL: [QuantFormat; 19] = [
        Int8, Int4, U4, Fp8E4M3, Fp8E5M2, Fp4E2M1, Nf4, Mxfp4, Nvfp4, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2K, Q3K, Q4K, Q5K,
        Q6K,
    ];

    /// The name in parameters and files.
    pub const fn name(self) -> &'static str {
        match self {
            Int8 => "int8",
            Int4 => "int4",
            U4 => "u4",
            Fp8E4M3 => "fp8_e4m3",
            Fp8E5M2 => "fp8_e5m2",
            Fp4E2M1 => "fp4_e2m1",
            Nf4 => "nf4",
            Mxfp4 => "mxfp4",
            Nvfp4 => "nvfp4",
            Q8_0 => "q8_0",
            Q4_0 => "q4_0",
            Q4_1 => "q4_1",
            Q5_0 => "q5_0",
            Q5_1 => "q5_1",
            Q2K => "q2_k",
            Q3K => "q3_k",
            Q4K => "q4_k",
            Q5K => "q5_k",
            Q6K => "q6_k",
        }
    }

    /// The number of elements that share a scale, if the format fixes it.
    pub const fn fixed_group(self) -> Option<usize> {
        match self {
            Int8 | Int4 | U4 | Fp8E4M3 | Fp8E5M2 | Fp4E2M1 | Nf4 => None,
            Nvfp4 => Some(16),
            Mxfp4 | Q8_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 => Some(32),
            Q2K | Q3K | Q4K | Q5K | Q6K => Some(256),
        }
    }

    /// The bytes of a block that contains both scales and codes (GGUF).
    pub const fn block_bytes(self) -> Option<usize> {
        match self {
            Q8_0 => Some(34),
            Q4_0 => Some(18),
            Q4_1 => Some(20),
            Q5_0 => Some(22),
            Q5_1 => Some(24),
            Q2K => Some(84),
            Q3K => Some(110),
            Q4K => Some(144),
            Q5K => Some(176),
            Q6K => Some(210),
            _ => None,
        }
    }

    /// The most positive and most negative code values before scaling, for formats whose scales are tensors.
    pub(super) const fn code_range(self) -> Option<(f64, f64)> {
        match self {
            Int8 => Some((127.0, 127.0)),
            Int4 => Some((7.0, 7.0)),
            Fp8E4M3 => Some((448.0, 448.0)),
            Fp8E5M2 => Some((57344.0, 57344.0)),
            Fp4E2M1 | Mxfp4 | Nvfp4 => Some((6.0, 6.0)),
            Nf4 => Some((1.0, 1.0)),
            _ => None,
        }
    }

    /// Whether a byte contains two codes.
    pub(super) const fn is_4bit(self) -> bool {
        matches!(self, Int4 | U4 | Fp4E2M1 | Nf4 | Mxfp4 | Nvfp4)
    }

    /// Whether a graph can quantize to it; the K-quants need a search, which a graph cannot express.
    pub const fn has_quantizer(self) -> bool {
        !matches!(self, Q2K | Q3K | Q4K | Q5K | Q6K)
    }
}

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for QuantFormat {
    type Err = ();
    fn from_str(s: &str) -> Result<QuantFormat, ()> {
        QuantFormat::ALL.into_iter().find(|f| f.name() == s).ok_or(())
    }
}

/// A format and the number of elements that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuantScheme {
    /// The format.
    pub format: QuantFormat,
    /// The number of elements along the last axis that share a scale; for one scale per row, the length of the row.
    pub group: usize,
}

impl QuantScheme {
    /// A quantization scheme, if the format supports this group size; `None` uses the format's fixed size.
    pub fn new(format: QuantFormat, group: Option<usize>) -> Result<QuantScheme, String> {
        match (format.fixed_group(), group) {
            (Some(own), None) => Ok(QuantScheme { format, group: own }),
            (Some(own), Some(group)) if own == group => Ok(QuantScheme { format, group }),
            (Some(own), Some(group)) => Err(format!("{format} has groups of {own}, not {group}")),
            (None, Some(0)) => Err("a group has at least one element".into()),
            (None, Some(group)) => Ok(QuantScheme { format, group }),
            (None, None) => Err(format!("{format} needs the size of its groups, `group`")),
        }
    }

    /// The types of a weight's parts: codes (or blocks) first. `scale` is the dtype of scales if the format does not fix it.
    pub fn part_types(&self, shape: &[usize], scale: DType) -> Result<Vec<Type>, String> {
        let QuantScheme { format, group } = *self;
        let Some((&k, rows)) = shape.split_last() else {
            return Err(format!("{format} packs rows; a scalar has none"));
        };
        if k % group != 0 {
            return Err(format!("rows of {k} elements are not divisible into groups of {group} ({format})"));
        }
        if format.is_4bit() && k % 2 != 0 {
            return Err(format!("rows of {k} elements do not fill whole bytes of two codes ({format})"));
        }
        let with = |dtype: DType, last: usize| {
            let mut shape = rows.to_vec();
            shape.push(last);
            Type::checked(dtype, &shape).map_err(|p| p.to_string())
        };
        let groups = k / group;
        Ok(match format {
            Int8 => vec![with(DType::I8, k)?, with(scale, groups)?],
            Fp8E4M3 => vec![with(DType::F8E4M3, k)?, with(scale, groups)?],
            Fp8E5M2 => vec![with(DType::F8E5M2, k)?, with(scale, groups)?],
            Int4 | Fp4E2M1 | Nf4 => vec![with(DType::U8, k / 2)?, with(scale, groups)?],
            U4 => vec![with(DType::U8, k / 2)?, with(scale, groups)?, with(scale, groups)?],
            Mxfp4 => vec![with(DType::U8, k / 2)?, with(DType::U8, groups)?],
            Nvfp4 => vec![with(DType::U8, k / 2)?, with(DType::F8E4M3, groups)?, Type::scalar(DType::F32)],
            Q8_0 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q2K | Q3K | Q4K | Q5K | Q6K => {
                let bytes = format.block_bytes().unwrap_or(0);
                vec![with(DType::U8, groups.checked_mul(bytes).ok_or("too many blocks")?)?]
            }
        })
    }

    /// The shape of the tensor that parts of these types store.
    pub fn unpacked_shape(&self, parts: &[Type]) -> Result<Vec<usize>, String> {
        let data = parts.first().ok_or("a packed weight has at least its codes")?;
        let Some((&last, rows)) = data.shape.split_last() else {
            return Err(format!("{} packs rows; a scalar has none", self.format));
        };
        let k = match self.format.block_bytes() {
            Some(bytes) if last % bytes == 0 => last / bytes * self.group,
            Some(bytes) => {
                return Err(format!(
                    "rows of {last} bytes are not a multiple of blocks of {bytes} bytes ({})",
                    self.format
                ));
            }
            None if self.format.is_4bit() => last.checked_mul(2).ok_or("too long")?,
            None => last,
        };
        let mut shape = rows.to_vec();
        shape.push(k);
        let scale = match self.format {
            Int8 | Int4 | U4 | Fp8E4M3 | Fp8E5M2 | Fp4E2M1 | Nf4 => parts.get(1).map_or(DType::F32, |t| t.dtype),
            _ => DType::F32,
        };
        let mut expected = self.part_types(&shape, scale)?;
        let free = self.format.fixed_group().is_none();
        if free && !scale.is_float() {
            return Err(format!("scales must be floats, not {scale}"));
        }
        if self.format == Nvfp4 {
            // The per-tensor scale is one number, or one for each of the first batch axes.
            let all = parts.get(2);
            if all.is_some_and(|t| t.dtype == DType::F32 && t.rank() < shape.len() && shape.starts_with(&t.shape)) {
                expected[2] = all.cloned().unwrap_or_else(|| Type::scalar(DType::F32));
            }
        }
        if parts != expected {
            let texts = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{} of rows of {k} has parts ({}), not ({})",
                self.format,
                texts(&expected),
                texts(parts)
            ));
        }
        Ok(shape)
    }
}

/// The values of E2M1 by code.
pub const FP4: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The values of NF4 by code, as in bitsandbytes.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
