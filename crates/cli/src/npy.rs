//! Reads NumPy's `.npy` files.

use ir::{DType, Literal, Type};

/// Returns the dtype for NumPy's name of it.
fn dtype(name: &str) -> Option<DType> {
    Some(match name.trim_start_matches(['<', '|', '=']) {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ => return None,
    })
}

/// Returns the text after a key of the header's dictionary.
fn field<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let at = header.find(&format!("'{key}':"))?;
    Some(header[at + key.len() + 3..].trim_start())
}

/// Reads an array, or returns what is wrong with the file.
pub(crate) fn read(bytes: &[u8]) -> Result<Literal, String> {
    let wrong = || "not a .npy file".to_string();
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or_else(wrong)?;
    let (&major, rest) = rest.split_first().ok_or_else(wrong)?;
    let rest = rest.get(1..).ok_or_else(wrong)?;
    let width = if major < 2 { 2 } else { 4 };
    let length = rest.get(..width).ok_or_else(wrong)?;
    let length = length.iter().rev().fold(0usize, |n, &b| n << 8 | b as usize);
    let body = rest.get(width..).ok_or_else(wrong)?;
    let header = body.get(..length).and_then(|h| std::str::from_utf8(h).ok()).ok_or_else(wrong)?;
    let data = &body[length..];
    let name = field(header, "descr").and_then(|d| d.split('\'').nth(1)).ok_or_else(wrong)?;
    let dtype = dtype(name)
        .ok_or_else(|| format!("dtype `{name}` is not supported: save the array as little-endian numbers or bools"))?;
    if field(header, "fortran_order").is_some_and(|f| f.starts_with("True")) {
        return Err("arrays in Fortran order are not supported: save np.ascontiguousarray(x)".into());
    }
    let shape =
        field(header, "shape").and_then(|s| s.strip_prefix('(')).and_then(|s| s.split(')').next()).ok_or_else(wrong)?;
    let shape: Option<Vec<usize>> =
        shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect();
    let ty = Type::checked(dtype, &shape.ok_or_else(wrong)?).map_err(|e| e.to_string())?;
    if dtype == DType::Bool && data.iter().any(|&b| b > 1) {
        return Err("the array has bools that are neither 0 nor 1".into());
    }
    Literal::from_bytes(ty.clone(), data)
        .ok_or_else(|| format!("{ty} needs {} bytes, but the file has {}", ty.bytes(), data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn arrays_are_read_and_faults_are_named() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
        let data: Vec<u8> = [1f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = read(&file(header, &data)).expect("reads");
        assert_eq!((x.ty().shape.to_vec(), x.to_vec::<f32>()), (vec![2, 1], vec![1.0, 2.0]));
        let scalar = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        assert_eq!(read(&file(scalar, &[1])).expect("reads").to_vec::<bool>(), [true]);
        for (header, said) in [
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", "Fortran"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 1), }", "<c8"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1), }", "needs 12 bytes"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "overflows"),
            ("{}", "not a .npy"),
        ] {
            let e = read(&file(header, &data)).unwrap_err();
            assert!(e.contains(said), "{e}");
        }
        for n in 0..10 {
            assert!(read(&file(header, &data)[..n]).is_err());
        }
    }
}
