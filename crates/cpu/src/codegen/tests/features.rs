//! Hand-written kernels, one per feature.

use super::*;
use crate::codegen::KernelCache;
use compiler::loops::{AccessMode, Atom, Extent, Index, KernelBuilder, Op, Reg, Size};
use ir::{Binary, Compare, Unary};

const F: DType = DType::F32;

#[test]
fn elementwise_add_with_every_tail() {
    for n in 0..70 {
        for runtime in [false, true] {
            let mut b = KernelBuilder::new("add");
            let x = b.buffer(F, AccessMode::Read);
            let y = b.buffer(F, AccessMode::Write);
            let size = if runtime { b.size() } else { Size::Const(n) };
            b.for_loop(LoopKind::Vector, size, |b, i| {
                let v = b.load(x, i);
                let c = b.constant_from_f64(F, 1.5);
                let w = b.binary(Binary::Add, v, c);
                b.store(y, i, w);
            });
            let mut rng = Rng(n as u64);
            let data = [samples(&mut rng, F, n as usize), vec![0; 4 * n as usize]];
            let sizes: &[i64] = if runtime { &[n] } else { &[] };
            check(&b.finish(), &data, sizes, Match::Exact);
        }
    }
}

/// `y[i] = op(x[i])` for one op over a dtype, in a vector loop and in a scalar loop.
fn map(from: DType, to: DType, n: usize, make: impl Fn(&mut KernelBuilder, Reg) -> Reg) -> [Kernel; 2] {
    [LoopKind::Vector, LoopKind::Serial].map(|kind| {
        let mut b = KernelBuilder::new("map");
        let x = b.buffer(from, AccessMode::Read);
        let y = b.buffer(to, AccessMode::Write);
        b.for_loop(kind, Size::Const(n as i64), |b, i| {
            let v = b.load(x, i);
            let w = make(b, v);
            b.store(y, i, w);
        });
        b.finish()
    })
}

/// A narrow float may round to the neighbour where the f32 result is off by one ulp.
fn rounding(d: DType) -> Match {
    match d {
        DType::F16 => Match::Near(1e-3),
        DType::BF16 => Match::Near(8e-3),
        DType::F8E4M3 | DType::F8E5M2 => Match::Near(0.25),
        DType::F32 => Match::Near(6e-7),
        _ => Match::Near(1e-14),
    }
}

#[test]
fn every_unary_of_every_dtype() {
    let mut rng = Rng(1);
    for d in DType::ALL {
        for &op in Unary::ALL {
            if !op.domain().contains(d) {
                continue;
            }
            let n = 61;
            let data = [samples(&mut rng, d, n), vec![0; n * op.result(d).size()]];
            let how = if random::inexact(op) { rounding(d) } else { Match::Exact };
            for k in map(d, op.result(d), n, |b, v| b.unary(op, v)) {
                check(&k, &data, &[], how);
            }
        }
    }
}

#[test]
fn every_binary_and_comparison_of_every_dtype() {
    let mut rng = Rng(2);
    for d in DType::ALL {
        let n = 157;
        let c = sample(&mut rng, d);
        let data = [samples(&mut rng, d, n), samples(&mut rng, d, n), vec![0; n * 8]];
        for kind in [LoopKind::Vector, LoopKind::Serial] {
            for swap in 0..3 {
                let kernel = |out: DType, f: &dyn Fn(&mut KernelBuilder, Reg, Reg) -> Reg| {
                    let mut b = KernelBuilder::new("map2");
                    let (x, y) = (b.buffer(d, AccessMode::Read), b.buffer(d, AccessMode::Read));
                    let z = b.buffer(out, AccessMode::Write);
                    b.for_loop(kind, Size::Const(n as i64), |b, i| {
                        let (v, w) = (b.load(x, i), b.load(y, i));
                        let k = b.constant(c);
                        let (v, w) = [(v, w), (v, k), (k, w)][swap];
                        let r = f(b, v, w);
                        b.store(z, i, r);
                    });
                    b.finish()
                };
                for &op in Binary::ALL {
                    if op.domain().contains(d) {
                        let inexact = matches!(op, Binary::Pow | Binary::Atan2) && d.is_float();
                        let how = if inexact { rounding(d) } else { Match::Exact };
                        check(&kernel(d, &|b, v, w| b.binary(op, v, w)), &data, &[], how);
                    }
                }
                for &op in Compare::ALL {
                    check(&kernel(DType::Bool, &|b, v, w| b.compare(op, v, w)), &data, &[], Match::Exact);
                }
            }
        }
    }
}

#[test]
fn every_conversion() {
    let mut rng = Rng(3);
    for from in DType::ALL {
        let n = 77;
        for to in DType::ALL {
            let data = [samples(&mut rng, from, n), vec![0; n * to.size()]];
            for k in map(from, to, n, |b, v| b.cast(to, v)) {
                check(&k, &data, &[], Match::Exact);
            }
            for k in map(from, to, n, |b, v| b.let_(to, Op::Quantize(to, v))) {
                check(&k, &data, &[], Match::Exact);
            }
            if from.size() == to.size() && (from == DType::Bool) == (to == DType::Bool) {
                // No NaNs: their bits are not defined.
                let plain: Vec<Scalar> = (0..n).map(|i| Scalar::from_f64(from, i as f64 / 4.0 - 5.0)).collect();
                let data = [bytes_of(&plain), vec![0; n * to.size()]];
                for k in map(from, to, n, |b, v| b.let_(to, Op::Bitcast(to, v))) {
                    check(&k, &data, &[], Match::Exact);
                }
            }
        }
    }
}

#[test]
fn runtime_strides_of_one_zero_and_more() {
    for d in [F, DType::F64, DType::U8, DType::F16, DType::Bool] {
        for stride in [0i64, 1, 2, -1] {
            for out_stride in [1i64, 3] {
                let n = 45;
                let mut b = KernelBuilder::new("strided");
                let x = b.buffer(d, AccessMode::Read);
                let y = b.buffer(d, AccessMode::Write);
                let (size, sx, sy) = (b.size(), b.size(), b.size());
                let Size::Arg(offset) = b.size() else { unreachable!() };
                b.for_loop(LoopKind::Vector, size, |b, i| {
                    let index = Index { offset_args: vec![offset], ..Index::default().add_atom(Atom::Var(i), sx) };
                    let v = b.load(x, index);
                    b.store(y, Index::default().add_atom(Atom::Var(i), sy), v);
                });
                let mut rng = Rng(9);
                let data = [samples(&mut rng, d, 2 * n), vec![0; 3 * n * d.size()]];
                let offset = if stride < 0 { n as i64 } else { 0 };
                check(&b.finish(), &data, &[n as i64, stride, out_stride, offset], Match::Exact);
            }
        }
    }
}

#[test]
fn sums_come_near_and_repeat_exactly() {
    for n in [1usize, 5, 16, 100, 1000, 4099] {
        let mut b = KernelBuilder::new("sum");
        let x = b.buffer(F, AccessMode::Read);
        let y = b.buffer(F, AccessMode::Write);
        let zero = b.constant_from_f64(F, 0.25);
        let e = Extent::Exact(Size::Const(n as i64));
        let s = b.loop_(LoopKind::Vector, e, &[(zero, Some(Binary::Add))], |b, i, p| {
            let v = b.load(x, i);
            vec![b.binary(Binary::Add, p[0], v)]
        });
        b.store(y, 0, s[0]);
        let values: Vec<Scalar> = (0..n).map(|i| Scalar::from_f64(F, (i * 7919 % 1000) as f64 / 1000.0)).collect();
        check(&b.finish(), &[bytes_of(&values), vec![0; 4]], &[], Match::Near(1e-5));
    }
}

#[test]
fn scans_keep_lanes_in_registers() {
    for n in [1i64, 3, 4, 16, 33, 70] {
        let mut b = KernelBuilder::new("scan");
        let x = b.buffer(F, AccessMode::Read);
        let y = b.buffer(F, AccessMode::Write);
        let last = b.buffer(F, AccessMode::Write);
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
            let (zero, one) = (b.constant_from_f64(F, 0.0), b.constant_from_f64(F, 1.0));
            let steps = Extent::Exact(Size::Const(9));
            let out = b.loop_(LoopKind::Serial, steps, &[(zero, None), (one, None)], |b, t, p| {
                let index = Index::from(i).add_var(t, n);
                let v = b.load(x, index.clone());
                let c = b.binary(Binary::Add, p[0], v);
                b.store(y, index, c);
                // The carried values are swapped.
                vec![p[1], c]
            });
            let s = b.binary(Binary::Sub, out[0], out[1]);
            b.store(last, i, s);
        });
        let mut rng = Rng(n as u64);
        let data = [samples(&mut rng, F, 9 * n as usize), vec![0; 36 * n as usize], vec![0; 4 * n as usize]];
        check(&b.finish(), &data, &[], Match::Exact);
    }
}

#[test]
fn scratch_and_in_place_buffers() {
    let n = 37;
    let mut b = KernelBuilder::new("scratch");
    let x = b.buffer(F, AccessMode::ReadWrite);
    let t = b.buffer(F, AccessMode::Scratch(n));
    b.for_loop(LoopKind::Parallel, Size::Const(3), |b, r| {
        b.for_loop(LoopKind::Vector, Size::Const(n as i64), |b, i| {
            let v = b.load(x, Index::from(i).add_var(r, n as i64));
            let v = b.binary(Binary::Mul, v, v);
            b.store(t, i, v);
        });
        b.for_loop(LoopKind::Vector, Size::Const(n as i64), |b, i| {
            let v = b.load(t, Index { offset: n as i64 - 1, ..Index::default() }.add_var(i, -1));
            b.store(x, Index::from(i).add_var(r, n as i64), v);
        });
    });
    let mut rng = Rng(4);
    check(&b.finish(), &[samples(&mut rng, F, 3 * n), vec![0; 4 * n]], &[], Match::Exact);
}

/// Scatters to one element: the last iteration wins, as in sequential order.
#[test]
fn colliding_stores_happen_in_lane_order() {
    let n = 50;
    let mut b = KernelBuilder::new("scatter");
    let at = b.buffer(DType::I64, AccessMode::Read);
    let y = b.buffer(F, AccessMode::Write);
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let place = b.load(at, i);
        let v = b.index(i);
        let v = b.cast(F, v);
        b.store(y, place, v);
    });
    let places: Vec<Scalar> = (0..n).map(|i| Scalar::from_i64(DType::I64, i * i % 7)).collect();
    check(&b.finish(), &[bytes_of(&places), vec![0; 28]], &[], Match::Exact);
}

/// An accessible page, followed by an inaccessible one.
struct Guarded {
    start: *mut u8,
}

/// As large as the largest page of any machine.
const PAGE: usize = 1 << 16;

impl Guarded {
    fn new() -> Guarded {
        // SAFETY: plain system calls on a fresh mapping.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let p = libc::mmap(std::ptr::null_mut(), 2 * PAGE, prot, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(p.cast::<u8>().add(PAGE).cast(), PAGE, libc::PROT_NONE), 0);
            Guarded { start: p.cast() }
        }
    }

    /// The last `n` bytes before the guard.
    fn end(&self, n: usize) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.start.add(PAGE - n) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

#[test]
fn masked_and_partial_vectors_do_not_touch_memory_beyond() {
    for d in DType::ALL {
        for stride in [1i64, 2] {
            for n in 1..40i64 {
                // The loop runs to 64; loads and stores are masked below n.
                let mut b = KernelBuilder::new("guarded");
                let x = b.buffer(d, AccessMode::Read);
                let y = b.buffer(d, AccessMode::Write);
                let size = b.size();
                b.for_loop(LoopKind::Vector, Size::Const(64), |b, i| {
                    let at = b.index(i);
                    let limit = b.index(Index { offset_args: vec![0], ..Index::default() });
                    let on = b.compare(Compare::Lt, at, limit);
                    let index = Index::default().add_var(i, stride);
                    let v = b.load_masked(x, index.clone(), on, Scalar::one(d));
                    b.store_masked(y, index, v, on);
                });
                // And a plain loop of exactly n.
                let mut c = KernelBuilder::new("tail");
                let p = c.buffer(d, AccessMode::Read);
                let q = c.buffer(d, AccessMode::Write);
                let m = c.size();
                c.for_loop(LoopKind::Vector, m, |b, i| {
                    let index = Index::default().add_var(i, stride);
                    let v = b.load(p, index.clone());
                    b.store(q, index, v);
                });
                assert_eq!(size, m);
                let bytes = (stride * (n - 1) + 1) as usize * d.size();
                let (gx, gy) = (Guarded::new(), Guarded::new());
                for k in [b.finish(), c.finish()] {
                    for target in Target::available() {
                        let code = compile(&k, target).unwrap();
                        // SAFETY: the kernel may touch exactly these bytes.
                        unsafe {
                            for i in 0..bytes {
                                gx.end(bytes).add(i).write(i as u8);
                            }
                            code.run(&[gx.end(bytes), gy.end(bytes)], &[n], 0, 1);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_cache_knows_structure_and_forgets_the_oldest() {
    let Some(target) = Target::detect() else { return };
    let cache = KernelCache::new(target, 8);
    let make = |name: &str, n: i64| {
        let mut b = KernelBuilder::new(name);
        let y = b.buffer(F, AccessMode::Write);
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
            let c = b.constant_from_f64(F, 1.0);
            b.store(y, i, c);
        });
        b.finish()
    };
    let a = cache.get(&make("a", 5)).unwrap();
    assert!(std::sync::Arc::ptr_eq(&a, &cache.get(&make("b", 5)).unwrap()));
    for n in 6..30 {
        cache.get(&make("c", n)).unwrap();
        cache.get(&make("a", 5)).unwrap();
    }
    assert!(cache.len() <= 8 && !cache.is_empty());
    assert!(std::sync::Arc::ptr_eq(&a, &cache.get(&make("a", 5)).unwrap()));
}

#[test]
fn powers_of_special_numbers() {
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5, -2.5, 1e30, -1e30, 1e-30, 16777217.0, 1e-42];
    let more = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let values: Vec<f64> = special.into_iter().chain(more).collect();
    let pairs: Vec<(f64, f64)> = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).collect();
    let n = pairs.len();
    let mut b = KernelBuilder::new("pow");
    let (x, y, z) = (b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Read), b.buffer(F, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(n as i64), |b, i| {
        let (v, w) = (b.load(x, i), b.load(y, i));
        let r = b.binary(Binary::Pow, v, w);
        b.store(z, i, r);
    });
    let column = |f: &dyn Fn(&(f64, f64)) -> f64| -> Vec<u8> {
        bytes_of(&pairs.iter().map(|p| Scalar::from_f64(F, f(p))).collect::<Vec<_>>())
    };
    check(&b.finish(), &[column(&|p| p.0), column(&|p| p.1), vec![0; 4 * n]], &[], Match::Exact);
}

#[test]
fn more_buffers_than_registers() {
    let (rows, n, count) = (3i64, 19i64, 30usize);
    let mut b = KernelBuilder::new("wide");
    let inputs: Vec<_> = (0..count).map(|_| b.buffer(DType::I32, AccessMode::Read)).collect();
    let y = b.buffer(DType::I32, AccessMode::Write);
    b.for_loop(LoopKind::Parallel, Size::Const(rows), |b, r| {
        b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
            let mut sum = b.constant_from_f64(DType::I32, 1.0);
            for (k, &x) in inputs.iter().enumerate() {
                // Different row strides, so that no two addresses share a base.
                let v = b.load(x, Index::from(i).add_var(r, n + k as i64));
                sum = b.binary(Binary::Sub, sum, v);
            }
            b.store(y, Index::from(i).add_var(r, n), sum);
        });
    });
    let mut rng = Rng(5);
    let mut data: Vec<Vec<u8>> = (0..count).map(|_| samples(&mut rng, DType::I32, 3 * 60)).collect();
    data.push(vec![0; (rows * n * 4) as usize]);
    check(&b.finish(), &data, &[], Match::Exact);
}

#[test]
fn offsets_and_strides_beyond_32_bits() {
    let mut b = KernelBuilder::new("far");
    let x = b.buffer(F, AccessMode::Read);
    let y = b.buffer(F, AccessMode::Write);
    let Size::Arg(back) = b.size() else { unreachable!() };
    let far = 1i64 << 40;
    b.for_loop(LoopKind::Serial, Size::Const(1), |b, t| {
        b.for_loop(LoopKind::Vector, Size::Const(21), |b, i| {
            let index = Index { offset: far, offset_args: vec![back], terms: vec![] };
            let v = b.load(x, index.add_var(i, 1).add_var(t, far));
            b.store(y, i, v);
        });
    });
    let mut rng = Rng(6);
    check(&b.finish(), &[samples(&mut rng, F, 21), vec![0; 84]], &[-far], Match::Exact);
}

#[test]
fn compiled_kernels_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<crate::codegen::CompiledKernel>();
    crosses::<KernelCache>();
}

/// Every 8-bit float through memory, and every f32 exponent with critical mantissas into each format.
#[test]
fn eight_bit_floats_round_as_the_reference() {
    for d in [DType::F8E4M3, DType::F8E5M2] {
        let all: Vec<u8> = (0..=255).collect();
        for k in map(d, F, 256, |b, v| b.cast(F, v)) {
            check(&k, &[all.clone(), vec![0; 1024]], &[], Match::Exact);
        }
        let mut values = vec![];
        for exponent in 0..512u64 {
            for mantissa in [
                0u64, 1, 0x7_ffff, 0x8_0000, 0x8_0001, 0x10_0000, 0x18_0000, 0x2f_ffff, 0x30_0000, 0x70_0001, 0x7f_ffff,
            ] {
                values.push(Scalar::from_bits(F, exponent << 23 | mantissa));
            }
        }
        let n = values.len();
        for k in map(F, d, n, |b, v| b.cast(d, v)).into_iter().chain(map(F, d, n, |b, v| b.let_(d, Op::Quantize(d, v))))
        {
            check(&k, &[bytes_of(&values), vec![0; n]], &[], Match::Exact);
        }
    }
}
