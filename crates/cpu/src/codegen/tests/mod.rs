//! Compares machine code with the evaluator, on every target of this machine.

#[cfg(target_arch = "x86_64")]
mod encodings;
mod features;
mod random;

use super::{Target, compile};
use compiler::loops::{Kernel, LoopKind, Stmt, eval, verify};
use ir::{DType, Scalar};

/// A small deterministic random number generator (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// How results may differ.
#[derive(Clone, Copy, PartialEq)]
enum Match {
    /// Equal bits; all NaNs are equal.
    Exact,
    /// Like `Exact`, but zeros of both signs are equal.
    Zeros,
    /// A limit on the relative and absolute difference.
    Near(f64),
}

fn same(d: DType, a: Scalar, b: Scalar, how: Match) -> bool {
    if a == b {
        return true;
    }
    if !d.is_float() {
        return false;
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    match how {
        _ if x.is_nan() && y.is_nan() => true,
        Match::Exact => false,
        Match::Zeros => x == y,
        Match::Near(t) => x == y || (x - y).abs() <= t * x.abs().max(y.abs()).max(1.0),
    }
}

fn element(bytes: &[u8], d: DType, i: usize) -> Scalar {
    let mut b = [0; 8];
    b[..d.size()].copy_from_slice(&bytes[i * d.size()..(i + 1) * d.size()]);
    Scalar::from_bits(d, u64::from_le_bytes(b))
}

/// Runs a kernel with the evaluator and on every target, as one range and as two, and compares all buffers.
fn check(k: &Kernel, bufs: &[Vec<u8>], sizes: &[i64], how: Match) {
    verify(k).unwrap_or_else(|e| panic!("{e}\n{k}"));
    let mut expected = bufs.to_vec();
    let mut slices: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
    eval(k, &mut slices, sizes).unwrap_or_else(|e| panic!("{e}\n{k}"));
    let parallel = matches!(&k.body[..], [Stmt::Loop(l)] if l.kind == LoopKind::Parallel);
    for target in Target::available() {
        let code = compile(k, target).unwrap();
        for split in [false, true] {
            if split && !parallel {
                continue;
            }
            let mut got = bufs.to_vec();
            let pointers: Vec<*mut u8> = got.iter_mut().map(|b| b.as_mut_ptr()).collect();
            // SAFETY: the evaluator found every access inside the buffers.
            unsafe {
                if split {
                    code.run(&pointers, sizes, 1, i64::MAX);
                    code.run(&pointers, sizes, 0, 1);
                } else {
                    code.run(&pointers, sizes, 0, if parallel { i64::MAX } else { 1 });
                }
            }
            for (b, buffer) in k.buffers.iter().enumerate() {
                if matches!(buffer.mode, compiler::loops::AccessMode::Scratch(_)) {
                    continue;
                }
                for i in 0..got[b].len() / buffer.dtype.size() {
                    let (x, y) = (element(&expected[b], buffer.dtype, i), element(&got[b], buffer.dtype, i));
                    assert!(
                        same(buffer.dtype, x, y, how),
                        "{target:?}: b{b}[{i}] is {y}, expected {x}; sizes {sizes:?}\n{k}"
                    );
                }
            }
        }
    }
}

fn bytes_of(values: &[Scalar]) -> Vec<u8> {
    values.iter().flat_map(|s| s.bits().to_le_bytes()[..s.dtype().size()].to_vec()).collect()
}

/// Random values of a dtype, including special ones.
fn sample(rng: &mut Rng, d: DType) -> Scalar {
    match rng.below(8) {
        0 if d.is_float() => {
            let specials =
                [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, 1e-40, 3e9, -3e9, 1e20];
            Scalar::from_f64(d, rng.pick(&specials))
        }
        0 | 1 if d.is_int() => {
            Scalar::from_i64(d, rng.pick(&[0, 1, -1, 2, d.int_min(), d.int_max() as i64, 31, 32, 33, 63, 64]))
        }
        2 => Scalar::from_bits(d, rng.next()),
        _ if d.is_float() => Scalar::from_f64(d, (rng.next() as i64 >> 40) as f64 / 65536.0),
        _ => Scalar::from_i64(d, rng.next() as i64 >> (40 + rng.below(22))),
    }
}

fn samples(rng: &mut Rng, d: DType, n: usize) -> Vec<u8> {
    let v: Vec<Scalar> = (0..n).map(|_| sample(rng, d)).collect();
    bytes_of(&v)
}
