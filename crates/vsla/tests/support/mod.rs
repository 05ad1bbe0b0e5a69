//! What the tests share: a generator, random tensors, closeness as §15 defines it.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own and uses a part")]

use tensorloom_vsla::{DType, Tensor, ValueSignature};

/// A 64-bit linear congruential generator, the one of `golden/vsla/make.py`.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// A number in [-1, 1).
    pub fn float(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 30) as f64 - 1.0
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A seed that differs from run to run, printed so that a failure can be repeated with `VSLA_SEED`.
    pub fn fresh(name: &str) -> Rng {
        let seed = match std::env::var("VSLA_SEED") {
            Ok(s) => s.parse().expect("VSLA_SEED is a number"),
            Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        };
        eprintln!("{name}: VSLA_SEED={seed}");
        let mut rng = Rng(seed);
        rng.next();
        rng
    }

    pub fn floats(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.float()).collect()
    }

    /// Small whole numbers, on which f64 arithmetic is exact.
    pub fn whole(&mut self, shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let data: Vec<f64> = (0..n).map(|_| self.below(9) as f64 - 4.0).collect();
        Tensor::from_slice(shape, &data).unwrap()
    }

    /// A vector of small whole numbers, of up to `most` elements, often with trailing zeros.
    pub fn vector(&mut self, most: usize) -> Tensor {
        let n = self.below(most + 1);
        let mut t = self.whole(&[n]);
        let more = n + self.below(3);
        t.resize(&[more]).unwrap();
        t
    }

    /// A tensor of a dtype with numbers in [-1, 1).
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let data = self.floats(n);
        let wide = Tensor::from_slice(shape, &data).unwrap();
        cast(&wide, dtype)
    }
}

/// A tensor in another dtype.
pub fn cast(t: &Tensor, dtype: DType) -> Tensor {
    let signature = ValueSignature { dtype, ..t.signature().clone() };
    let mut bytes = Vec::new();
    for x in t.to_vec::<f64>() {
        let s = ir::Scalar::from_f64(dtype, x);
        bytes.extend_from_slice(&s.bits().to_le_bytes()[..dtype.size()]);
    }
    Tensor::from_bytes(signature, &bytes).unwrap()
}

/// `|x - y| ≤ atol + rtol·max(|x|, |y|)`.
pub fn close(x: f64, y: f64, atol: f64, rtol: f64) -> bool {
    (x - y).abs() <= atol + rtol * x.abs().max(y.abs())
}

/// Closeness of tensors of one shape at the tolerances of §15 for f64.
#[track_caller]
pub fn assert_close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    for (x, y) in a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>()) {
        assert!(close(x, y, 1e-12, 1e-9), "{x} {y}");
    }
}
