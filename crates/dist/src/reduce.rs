//! Reductions over ranks. Floats are summed in f64 in the order of ranks and rounded once, like in the interpreter:
//! all transports and the interpreter give the same bits.

use half::{bf16, f16};
use ir::{Binary, DType, Literal, Scalar, Type};

/// The kind of the reduction.
pub(crate) use ir::ops::CollectiveKind;

macro_rules! sums {
    ($t:ty, $parts:expr, $to:expr, $wide:expr, $narrow:expr) => {{
        const SIZE: usize = size_of::<$t>();
        for (i, out) in $to.chunks_exact_mut(SIZE).enumerate() {
            let mut sum = 0.0f64;
            for part in $parts {
                let mut raw = [0; SIZE];
                raw.copy_from_slice(&part[i * SIZE..(i + 1) * SIZE]);
                sum += $wide(<$t>::from_le_bytes(raw));
            }
            out.copy_from_slice(&$narrow(sum).to_le_bytes());
        }
    }};
}

/// Reduces parts of equal length, one per rank in order, into `to`.
pub(crate) fn reduce(kind: &CollectiveKind, dtype: DType, parts: &[&[u8]], to: &mut [u8]) {
    let sum = !matches!(kind, CollectiveKind::Max | CollectiveKind::Min);
    match dtype {
        DType::F32 if sum => sums!(f32, parts, to, f64::from, |x: f64| x as f32),
        DType::F64 if sum => sums!(f64, parts, to, |x: f64| x, |x: f64| x),
        DType::BF16 if sum => {
            sums!(bf16, parts, to, f64::from, |x: f64| bf16::from_bits(Scalar::from_f64(DType::BF16, x).bits() as u16))
        }
        DType::F16 if sum => {
            sums!(f16, parts, to, f64::from, |x: f64| f16::from_bits(Scalar::from_f64(DType::F16, x).bits() as u16))
        }
        _ => {
            let combine = match kind {
                CollectiveKind::Max => Binary::Max,
                CollectiveKind::Min => Binary::Min,
                _ => Binary::Add,
            };
            let n = to.len() / dtype.size();
            let literal = |bytes: &[u8]| Literal::from_bytes(Type::new(dtype, &[n]), bytes).expect("whole elements");
            let parts: Vec<Literal> = parts.iter().map(|p| literal(p)).collect();
            let result = Literal::from_fn(Type::new(dtype, &[n]), |i| {
                let mut all = parts.iter().map(|p| p.get(i));
                if sum && dtype.is_float() {
                    return Scalar::from_f64(dtype, all.fold(0.0, |s, x| s + x.to_f64()));
                }
                let first = all.next().expect("a rank at least");
                all.fold(first, |a, x| combine.eval(a, x))
            });
            to.copy_from_slice(result.bytes());
        }
    }
}
