//! Convolutions and Kronecker products against NumPy, and the two paths against each other.

mod support;

use serde_json::Value;
use support::{Rng, close};
use tensorloom_vsla::{ConvAlgorithm, DType, Model, Tensor};

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/vsla/algebra.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn sizes(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect()
}

#[test]
fn s16_convolution_equals_numpy_for_lengths_0_to_10000() {
    for case in golden()["conv"].as_array().unwrap() {
        let (m, n) = (case["m"].as_u64().unwrap(), case["n"].as_u64().unwrap());
        let a = Tensor::vector(&Rng(m + 1).floats(m as usize));
        let b = Tensor::vector(&Rng(n + 1000003).floats(n as usize));
        for path in [Some(ConvAlgorithm::Direct), Some(ConvAlgorithm::Fft), None] {
            let y = match path {
                None => a.conv1d(&b),
                Some(p) => a.conv1d_by(&b, p),
            };
            let y = y.unwrap_or_else(|e| panic!("{m}*{n} {path:?}: {e}")).to_vec::<f64>();
            assert_eq!(y.len() as u64, case["length"].as_u64().unwrap());
            for (at, expected) in sizes(&case["at"]).into_iter().zip(numbers(&case["values"])) {
                assert!(close(y[at], expected, 1e-12, 1e-9), "{m}*{n} {path:?} [{at}]: {} {expected}", y[at]);
            }
        }
    }
}

#[test]
fn s16_kronecker_equals_numpy_on_any_rank() {
    for case in golden()["kron"].as_array().unwrap() {
        let make = |shape: Vec<usize>, seed: u64| {
            let data = Rng(seed).floats(shape.iter().product());
            Tensor::from_slice(&shape, &data).unwrap().in_model(Model::B)
        };
        let y = make(sizes(&case["a"]), 7).kronecker(&make(sizes(&case["b"]), 9)).unwrap();
        assert_eq!(y.shape(), sizes(&case["shape"]));
        assert_eq!(y.to_vec::<f64>(), numbers(&case["values"]));
    }
}

#[test]
fn s16_paths_agree_on_batches_and_dtypes() {
    let mut rng = Rng::fresh("paths");
    for dtype in tensorloom_vsla::shape::DTYPES {
        for _ in 0..4 {
            let (m, n) = (1 + rng.below(200), 1 + rng.below(200));
            let (a, b) = (rng.tensor(dtype, &[2, 1, m]), rng.tensor(dtype, &[2, 3, n]));
            let (x, y) =
                (a.conv1d_by(&b, ConvAlgorithm::Direct).unwrap(), a.conv1d_by(&b, ConvAlgorithm::Fft).unwrap());
            assert_eq!(x.shape(), [2, 3, m + n - 1]);
            let eps = match dtype {
                DType::F64 => 1e-12,
                DType::F32 => 1e-6,
                _ => 1e-2,
            };
            for (x, y) in x.to_vec::<f64>().into_iter().zip(y.to_vec::<f64>()) {
                // Both sums are in f64; only the last rounding may differ.
                assert!(close(x, y, eps * 0.1, eps), "{dtype} {m} {n}: {x} {y}");
            }
        }
    }
}
