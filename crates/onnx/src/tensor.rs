//! Converts tensors of a file to literals and back.

use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::proto::TensorProto;
use bytes::Bytes;
use ir::{DType, Literal, Scalar, Type};

pub use crate::directory_data::DirectoryData;

/// Reads external data: bytes of a file beside the model.
pub trait ExternalData {
    /// Reads `length` bytes (by default, all remaining ones) of the file from an offset.
    fn read(&self, location: &str, offset: u64, length: Option<u64>) -> std::result::Result<Bytes, String>;
}

/// For models without external data.
pub struct NoExternalData;

impl ExternalData for NoExternalData {
    fn read(&self, location: &str, _: u64, _: Option<u64>) -> std::result::Result<Bytes, String> {
        Err(format!("its data is in `{location}`; import the model by its path, so that files next to it can be read"))
    }
}

/// The element type of a tensor.
pub fn elem(t: &TensorProto) -> Result<Elem> {
    let n = t.data_type.unwrap_or(0);
    Elem::from_number(n.into())
        .ok_or_else(|| Error::node_error(format!("tensor {}: unknown element type {n}", name(t))))
}

fn name(t: &TensorProto) -> &str {
    t.name.as_deref().unwrap_or("without a name")
}

/// Reads a tensor's data. An emulated element type is converted to its dtype.
pub fn literal(t: &TensorProto, external: &dyn ExternalData) -> Result<(Literal, Elem)> {
    let fault = |what: String| Error::node_error(format!("tensor {}: {what}", name(t)));
    let elem = elem(t)?;
    let Some(dtype) = elem.dtype() else {
        return Err(fault(format!("{} tensors are not supported", elem.name())));
    };
    let shape: Vec<usize> = (t.dims.iter())
        .map(|&d| usize::try_from(d).map_err(|_| fault(format!("a size of {d}"))))
        .collect::<Result<_>>()?;
    let ty = Type::checked(dtype, &shape).map_err(|p| fault(p.to_string()))?;
    let n = ty.numel();
    let outside;
    let raw: Option<&[u8]> = match (t.data_location, &t.raw_data) {
        (Some(1), _) => {
            let entry = |key: &str| {
                let found = t.external_data.iter().find(|e| e.key.as_deref() == Some(key));
                found.and_then(|e| e.value.as_deref())
            };
            let number = |key: &str| -> Result<Option<u64>> {
                let parse = |s: &str| s.parse().map_err(|_| fault(format!("external data with {key} `{s}`")));
                entry(key).map(parse).transpose()
            };
            let location = entry("location").ok_or_else(|| fault("external data without a location".into()))?;
            outside = external.read(location, number("offset")?.unwrap_or(0), number("length")?).map_err(fault)?;
            Some(&outside)
        }
        (_, Some(raw)) => Some(raw),
        _ => None,
    };
    let misfit = |got: usize, unit: &str| fault(format!("{ty} needs {n} elements, but there are {got} {unit}"));
    if let Some(raw) = raw {
        let need = n.checked_mul(elem.bits()).map(|b| b.div_ceil(8));
        if need != Some(raw.len()) {
            return Err(misfit(raw.len(), "bytes"));
        }
        let literal = match elem.is_emulated() {
            false if dtype == DType::Bool => Literal::from_fn(ty.clone(), |i| Scalar::bool(raw[i] != 0)),
            false => Literal::from_bytes(ty.clone(), raw).ok_or_else(|| misfit(raw.len(), "bytes"))?,
            true => Literal::from_fn(ty.clone(), |i| {
                Scalar::from_f64(dtype, elem.decode(unpack_element(raw, i, elem.bits())))
            }),
        };
        return Ok((literal, elem));
    }
    // int32_data holds elements of several types; small ones are packed into bytes first.
    let (got, literal): (usize, Option<Literal>) = match elem {
        Elem::Float => (t.float_data.len(), fill(&ty, &t.float_data, |x| Scalar::from_f64(dtype, x.into()))),
        Elem::Double => (t.double_data.len(), fill(&ty, &t.double_data, |x| Scalar::from_f64(dtype, x))),
        Elem::Int64 => (t.int64_data.len(), fill(&ty, &t.int64_data, |x| Scalar::from_i64(dtype, x))),
        Elem::Uint64 | Elem::Uint32 => {
            (t.uint64_data.len(), fill(&ty, &t.uint64_data, |x| Scalar::from_bits(dtype, x)))
        }
        _ if elem.is_emulated() && elem.bits() < 8 => {
            let raw: Vec<u8> = t.int32_data.iter().map(|&x| x as u8).collect();
            let fits = Some(raw.len()) == n.checked_mul(elem.bits()).map(|b| b.div_ceil(8));
            let read = |i| Scalar::from_f64(dtype, elem.decode(unpack_element(&raw, i, elem.bits())));
            (raw.len(), fits.then(|| Literal::from_fn(ty.clone(), read)))
        }
        _ if elem.is_emulated() => {
            let read = |x: i32| Scalar::from_f64(dtype, elem.decode(x as u8));
            (t.int32_data.len(), fill(&ty, &t.int32_data, read))
        }
        // The bits of narrow floats, the values of integers.
        _ => (t.int32_data.len(), fill(&ty, &t.int32_data, |x| Scalar::from_bits(dtype, x as u32 as u64))),
    };
    literal.map(|l| (l, elem)).ok_or_else(|| misfit(got, "elements"))
}

fn fill<T: Copy>(ty: &Type, data: &[T], f: impl Fn(T) -> Scalar) -> Option<Literal> {
    (data.len() == ty.numel()).then(|| Literal::from_fn(ty.clone(), |i| f(data[i])))
}

/// The i-th of several elements in a byte, the first in the lowest bits.
fn unpack_element(raw: &[u8], i: usize, bits: usize) -> u8 {
    let per = 8 / bits;
    let shifted = raw[i / per] >> (i % per * bits);
    if bits == 8 { shifted } else { shifted & ((1 << bits) - 1) }
}

/// Converts a literal to a tensor of a file.
pub fn proto(name: &str, x: &Literal) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        dims: x.ty().shape.iter().map(|&d| d as i64).collect(),
        data_type: Some(Elem::from_dtype(x.ty().dtype).number()),
        raw_data: Some(Bytes::copy_from_slice(x.bytes())),
        ..TensorProto::default()
    }
}
