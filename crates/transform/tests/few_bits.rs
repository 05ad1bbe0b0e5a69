//! Low-precision products: which values are rounded in the forward and backward passes, compared with explicit rounding.

use ir::ops::Dot;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, interp};
use tensorloom_transform::{
    DelayedScaling, LowPrecision, MatmulRounding, Rounding, Scaling, round_matmuls, with_state,
};

fn linear() -> Graph {
    let mut b = Builder::new();
    let (x, w, v) = (b.input(DType::F32, &[3, 32]), b.input(DType::F32, &[4, 32]), b.input(DType::F32, &[2, 4]));
    let h = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[x, w]).unwrap();
    let y = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[h, v]).unwrap();
    b.finish(&[y])
}

fn values(ty: &Type, seed: u64) -> Literal {
    let mut state = seed | 1;
    Literal::from_fn(ty.clone(), |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::from_f64(ty.dtype, (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    })
}

fn fp8(x: &[f32], dtype: DType, scale: f32) -> Vec<f32> {
    let most = if dtype == DType::F8E4M3 { 448.0 } else { 57344.0 };
    let code = |v: f32| Scalar::from_f64(dtype, f64::from((v / scale).clamp(-most, most))).to_f64() as f32;
    x.iter().map(|v| code(*v) * scale).collect()
}

fn dot(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
    let one =
        |i: usize, j: usize| (0..k).map(|d| f64::from(a[i * k + d]) * f64::from(b[j * k + d])).sum::<f64>() as f32;
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| one(i, j)).collect()
}

fn transposed(x: &[f32], rows: usize) -> Vec<f32> {
    let columns = x.len() / rows;
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

fn close(a: &[f32], b: &[f32]) {
    let size = b.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(x, y)| assert!((x - y).abs() <= 2e-6 * size, "{x} {y}"));
}

#[test]
fn operands_and_cotangents_are_rounded_and_the_last_product_is_not() {
    let graph = linear();
    let how = MatmulRounding::new(Rounding::new(LowPrecision::E4M3))
        .with_cotangent_rounding(Rounding::new(LowPrecision::E5M2));
    let few = round_matmuls(&graph, &how).unwrap();
    ir::verify::verify(&few).unwrap();
    let x: Vec<Literal> = few.input_types().iter().enumerate().map(|(i, t)| values(t, 7 + i as u64)).collect();
    let [xs, ws, vs] = [0, 1, 2].map(|i| x[i].to_vec::<f32>());
    let most = |x: &[f32]| x.iter().fold(0f32, |m, v| m.max(v.abs()));
    let (xq, wq) =
        (fp8(&xs, DType::F8E4M3, most(&xs) * (1.0 / 448.0)), fp8(&ws, DType::F8E4M3, most(&ws) * (1.0 / 448.0)));
    let h = dot(&xq, &wq, (3, 4, 32));
    let y = interp::run(&few, &x).unwrap()[0].to_vec::<f32>();
    close(&y, &dot(&h, &vs, (3, 2, 4)));
    assert!(y.iter().zip(&dot(&dot(&xs, &ws, (3, 4, 32)), &vs, (3, 2, 4))).any(|(a, b)| (a - b).abs() > 1e-4));
    // Backward: the cotangent of h is rounded, and multiplied by the rounded operands.
    let back = tensorloom_transform::vjp(&few, &[0, 1, 2]).unwrap();
    let ct = values(&Type::new(DType::F32, &[3, 2]), 99);
    let found = interp::run(&back, &[&x[..], &[ct.clone()]].concat()).unwrap();
    let grads: Vec<Vec<f32>> = found[found.len() - 3..].iter().map(|g| g.to_vec::<f32>()).collect();
    let c = ct.to_vec::<f32>();
    let dh = dot(&c, &transposed(&vs, 2), (3, 4, 2));
    let dq = fp8(&dh, DType::F8E5M2, most(&dh) * (1.0 / 57344.0));
    close(&grads[0], &dot(&dq, &transposed(&wq, 4), (3, 32, 4)));
    close(&grads[1], &dot(&transposed(&dq, 3), &transposed(&xq, 3), (4, 32, 3)));
    close(&grads[2], &dot(&transposed(&c, 3), &transposed(&h, 3), (2, 4, 3)));
}

/// Finer scales have smaller errors; the result of every scaling is within half a step of the format.
#[test]
fn every_scaling_rounds_within_its_step() {
    let mut b = Builder::new();
    let (x, w, v) = (b.input(DType::F32, &[5, 48]), b.input(DType::F32, &[37, 48]), b.input(DType::F32, &[2, 37]));
    let h = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[x, w]).unwrap();
    let y = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[h, v]).unwrap();
    let graph = b.finish(&[y]);
    let inputs: Vec<Literal> = graph.input_types().iter().enumerate().map(|(i, t)| values(t, 3 + i as u64)).collect();
    let want = interp::run(&graph, &inputs).unwrap()[0].to_vec::<f32>();
    let error = |how: Rounding| {
        let few = round_matmuls(&graph, &MatmulRounding::new(how)).unwrap();
        let found = interp::run(&few, &inputs).unwrap()[0].to_vec::<f32>();
        let square = |x: &[f32]| x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let far: Vec<f32> = found.iter().zip(&want).map(|(a, b)| a - b).collect();
        (square(&far) / square(&want)).sqrt()
    };
    for scaling in [Scaling::PerTensor, Scaling::PerRow, Scaling::PerBlock(32, 32), Scaling::PerBlock(8, 16)] {
        let e = error(Rounding { scaling, margin: 0.1, ..Rounding::new(LowPrecision::E4M3) });
        assert!(e > 1e-4 && e < 0.06, "{scaling:?}: {e}");
    }
    let e = error(Rounding::new(LowPrecision::E2M1));
    assert!(e > 0.02 && e < 0.3, "{e}");
}

/// Applies one rounding to some numbers.
fn alone(x: &Literal, how: &Rounding) -> Vec<f32> {
    let mut b = Builder::new();
    let v = b.graph.input(x.ty().clone());
    let axis = x.ty().rank() - 1;
    let y = tensorloom_transform::round_operand(&mut b, v, axis, how).unwrap();
    let graph = b.finish(&[y]);
    ir::verify::verify(&graph).unwrap();
    interp::run(&graph, std::slice::from_ref(x)).unwrap()[0].to_vec::<f32>()
}

/// In one dimension, blocks of 4-bit floats are the storage formats NVFP4 and MXFP4, bit for bit.
#[test]
fn blocks_of_four_bits_are_the_formats() {
    use ir::composites::quantized::{QuantFormat, QuantScheme, fake_quantize};
    let ty = Type::new(DType::F32, &[6, 96]);
    for seed in 0..20 {
        let mut x = values(&ty, 1000 + seed);
        let wide: Vec<f32> =
            x.to_vec::<f32>().iter().enumerate().map(|(i, v)| v * 10f32.powi(i as i32 % 7 - 3)).collect();
        x = Literal::from_fn(ty.clone(), |i| {
            Scalar::from_f64(DType::F32, if i < 40 { 0.0 } else { f64::from(wide[i]) })
        });
        for (format, group) in [(QuantFormat::Nvfp4, 16), (QuantFormat::Mxfp4, 32)] {
            let mut b = Builder::new();
            let v = b.graph.input(ty.clone());
            let mut args = vec![v];
            let mut types = vec![ty.clone()];
            if format == QuantFormat::Nvfp4 {
                let most = x.to_vec::<f32>().iter().fold(0f32, |m, v| m.max(v.abs()));
                args.push(b.scalar(DType::F32, f64::from(most * (1.0 / 2688.0) as f32)).unwrap());
                types.push(Type::scalar(DType::F32));
            }
            let packing = QuantScheme::new(format, None).unwrap();
            let y = b.one(fake_quantize(&packing, &types, DType::F32, false).unwrap().into(), &args).unwrap();
            let want = interp::run(&b.finish(&[y]), std::slice::from_ref(&x)).unwrap()[0].to_vec::<f32>();
            let found = alone(&x, &Rounding::new(LowPrecision::E2M1).with_scaling(Scaling::PerBlock(1, group)));
            found.iter().zip(&want).for_each(|(a, b)| assert_eq!(a, b, "{format}"));
        }
    }
}

/// Square blocks share one scale: the result of each block does not depend on its neighbours.
#[test]
fn square_blocks_are_alike_alone() {
    for (few, rows, columns) in [
        (LowPrecision::E2M1, 32, 32),
        (LowPrecision::E4M3, 16, 8),
        (LowPrecision::Int8, 4, 4),
        (LowPrecision::Int4, 3, 5),
        (LowPrecision::E5M2, 32, 1),
    ] {
        let how = Rounding::new(few).with_scaling(Scaling::PerBlock(rows, columns));
        let ty = Type::new(DType::F32, &[2 * rows, 3 * columns]);
        let x = values(&ty, 5);
        let found = alone(&x, &how);
        let (all, width) = (x.to_vec::<f32>(), 3 * columns);
        for (down, across) in [(0, 0), (1, 2), (0, 1)] {
            let at = |i: usize| (down * rows + i / columns) * width + across * columns + i % columns;
            let block = Literal::from_fn(Type::new(DType::F32, &[rows, columns]), |i| {
                Scalar::from_f64(DType::F32, f64::from(all[at(i)]))
            });
            let alone = alone(&block, &how);
            (0..rows * columns).for_each(|i| assert_eq!(alone[i], found[at(i)], "{few:?} {down} {across}"));
        }
    }
}

/// The results of every format are representable, and nearest at their scale.
#[test]
fn numbers_are_the_nearest_of_their_format() {
    let grid = |few: LowPrecision| -> Vec<f32> {
        let of = |dtype: DType| -> Vec<f32> {
            (0..128u64).map(|c| Scalar::from_bits(dtype, c).to_f64() as f32).filter(|x| x.is_finite()).collect()
        };
        match few {
            LowPrecision::E4M3 => of(DType::F8E4M3),
            LowPrecision::E5M2 => of(DType::F8E5M2),
            LowPrecision::E2M1 => vec![0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
            LowPrecision::Int8 => (0..128).map(|i| i as f32).collect(),
            LowPrecision::Int4 => (0..8).map(|i| i as f32).collect(),
        }
    };
    for few in LowPrecision::ALL {
        let all = grid(few);
        let most = *all.last().unwrap();
        // The largest magnitude is the format's maximum, so that scales are one.
        let ty = Type::new(DType::F32, &[1, 4000]);
        let x = Literal::from_fn(ty, |i| {
            let x = if i == 0 { 1.0 } else { (i as f64 * 0.618_034).fract() * 2.0 - 1.0 };
            Scalar::from_f64(DType::F32, f64::from(most) * x * if i % 3 == 0 { 1.0 } else { 0.01 })
        });
        let found = alone(&x, &Rounding { scaling: Scaling::PerTensor, ..Rounding::new(few) });
        for (x, y) in x.to_vec::<f32>().iter().zip(found) {
            let near = all.iter().map(|g| (g - x.abs()).abs()).fold(f32::INFINITY, f32::min);
            let scale = most * ((1.0 / f64::from(most)) as f32);
            assert!((y.abs() - x.abs()).abs() <= near * 1.000_01 + 1e-6 * scale, "{few:?}: {x} {y} {near}");
            assert!(x * y >= 0.0, "{few:?}: {x} {y}");
        }
    }
}

/// Stochastic rounding is reproducible with the same key, and unbiased.
#[test]
fn chance_is_fair_and_follows_its_key() {
    for few in [LowPrecision::E4M3, LowPrecision::E5M2, LowPrecision::E2M1, LowPrecision::Int4] {
        let how = Rounding { stochastic: true, scaling: Scaling::PerTensor, ..Rounding::new(few) };
        let mut b = Builder::new();
        let ty = Type::new(DType::F32, &[1, 20_001]);
        let v = b.graph.input(ty.clone());
        let y = tensorloom_transform::round_operand(&mut b, v, 1, &how).unwrap();
        let made = with_state(&b.finish(&[y]), None).unwrap();
        assert!(made.needs_rng && made.amax_histories.is_empty());
        let far = few.max_finite() * 0.3;
        let x = Literal::from_fn(ty, |i| Scalar::from_f64(DType::F32, if i == 0 { few.max_finite() } else { far }));
        let run = |key: u64| {
            let key = Literal::from_fn(Type::new(DType::U32, &[2]), |i| {
                Scalar::from_f64(DType::U32, (key + i as u64) as f64)
            });
            interp::run(&made.graph, &[x.clone(), key]).unwrap()[0].to_vec::<f32>()
        };
        let (first, again, other) = (run(7), run(7), run(8));
        assert!(first == again && first != other);
        let mean = first[1..].iter().map(|v| f64::from(*v)).sum::<f64>() / 20_000.0;
        let mut kinds = first[1..].to_vec();
        kinds.sort_by(f32::total_cmp);
        kinds.dedup();
        assert!(kinds.len() == 2 && kinds[0] < far as f32 && kinds[1] > far as f32, "{few:?}: {kinds:?}");
        let step = f64::from(kinds[1] - kinds[0]);
        // Five standard errors of an unbiased draw.
        assert!((mean - far).abs() < 5.0 * step * 0.5 / 20_000f64.sqrt(), "{few:?}: {mean} {far}");
    }
}

/// Histories computed explicitly: scales of earlier steps with saturation, through calls, rematerialized bodies and scans.
#[test]
fn delayed_scales_are_those_of_earlier_steps() {
    let delay = |history, interval| Rounding {
        delayed_scaling: Some(DelayedScaling { history, interval }),
        ..Rounding::new(LowPrecision::E4M3)
    };
    let most = |x: &[f32]| x.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (history, interval) in [(1, 1), (3, 1), (2, 2), (16, 5)] {
        let how = delay(history, interval);
        let mut b = Builder::new();
        let ty = Type::new(DType::F32, &[4, 8]);
        let v = b.graph.input(ty.clone());
        let y = tensorloom_transform::round_operand(&mut b, v, 1, &how).unwrap();
        let back = Rounding { format: LowPrecision::E5M2, ..how };
        let y = tensorloom_transform::round_gradient(&mut b, y, &back).unwrap();
        let made = with_state(&b.finish(&[y]), None).unwrap();
        assert_eq!(made.amax_histories, vec![Type::new(DType::F32, &[2 + history]); 2]);
        let step = tensorloom_transform::vjp(&made.graph, &[0, 1, 2]).unwrap();
        let zero = |n: usize| Literal::from_fn(Type::new(DType::F32, &[n]), |_| Scalar::from_f64(DType::F32, 0.0));
        let mut states = [zero(2 + history), zero(2 + history)];
        // The reference: (scale, steps since the last update, the largest magnitude of each step).
        let mut hand: [(f32, usize, Vec<f32>); 2] = Default::default();
        for t in 0..12u64 {
            let size = [1.0f64, 3.0, 0.2, 5.0, 0.1][t as usize % 5];
            let grown = |seed: u64| {
                let x = values(&ty, seed).to_vec::<f32>();
                Literal::from_fn(ty.clone(), |i| Scalar::from_f64(DType::F32, f64::from(x[i]) * size))
            };
            let (x, ct) = (grown(40 + t), grown(90 + t));
            let found = interp::run(&step, &[x.clone(), states[0].clone(), states[1].clone(), ct.clone()]).unwrap();
            let outs: Vec<Vec<f32>> = found.iter().map(|f| f.to_vec::<f32>()).collect();
            let [y, dx, s0, s1] = &outs[..] else { panic!("{} results", outs.len()) };
            for (k, (given, result, dtype, new)) in
                [(&x, y, DType::F8E4M3, s0), (&ct, dx, DType::F8E5M2, s1)].into_iter().enumerate()
            {
                let given = given.to_vec::<f32>();
                let limit = if k == 0 { 448.0f64 } else { 57344.0 };
                let (scale, since, seen) = &mut hand[k];
                let used = if *scale == 0.0 { most(&given) * (1.0 / limit) as f32 } else { *scale };
                close(result, &fp8(&given, dtype, used));
                seen.push(most(&given));
                *since += 1;
                if *since >= interval || *scale == 0.0 {
                    *scale = most(&seen[seen.len().saturating_sub(history)..]) * (1.0 / limit) as f32;
                    *since = 0;
                }
                assert_eq!(new[0], *scale, "step {t}, {history} {interval}");
                assert_eq!(new[1], *since as f32);
                assert_eq!(new.last(), seen.last());
            }
            states = [found[2].clone(), found[3].clone()];
        }
    }
}

#[test]
fn histories_reach_into_bodies() {
    use ir::ops::{Call, Remat, Scan};
    let how = Rounding {
        delayed_scaling: Some(DelayedScaling { history: 2, interval: 1 }),
        ..Rounding::new(LowPrecision::E4M3)
    };
    let body = |ty: &Type| {
        let mut b = Builder::new();
        let v = b.graph.input(ty.clone());
        let y = tensorloom_transform::round_operand(&mut b, v, 0, &how).unwrap();
        let y = b.scale(y, 2.0).unwrap();
        b.finish(&[y])
    };
    let ty = Type::new(DType::F32, &[8]);
    let mut b = Builder::new();
    let x = b.graph.input(ty.clone());
    let y = b.one(Call::new(body(&ty)).into(), &[x]).unwrap();
    let y = b.one(Remat::new(body(&ty)).into(), &[y]).unwrap();
    let y = b.emit(Scan::over(0, 1, 3, body(&ty)).into(), &[y]).unwrap()[0];
    let graph = b.finish(&[y]);
    let made = with_state(&graph, None).unwrap();
    ir::verify::verify(&made.graph).unwrap();
    assert_eq!(
        made.amax_histories,
        [Type::new(DType::F32, &[4]), Type::new(DType::F32, &[4]), Type::new(DType::F32, &[3, 4])]
    );
    let step = tensorloom_transform::vjp(&made.graph, &[0, 1, 2, 3]).unwrap();
    let x = values(&ty, 11);
    let zeros = made.amax_histories.iter().map(|t| Literal::from_fn(t.clone(), |_| Scalar::from_f64(DType::F32, 0.0)));
    let inputs: Vec<Literal> = [x.clone()].into_iter().chain(zeros).chain([values(&ty, 12)]).collect();
    let found = interp::run(&step, &inputs).unwrap();
    // Each layer reads the previous result, which is twice as large.
    let first = x.to_vec::<f32>().iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut seen = vec![found[2].to_vec::<f32>()[3], found[3].to_vec::<f32>()[3]];
    seen.extend(found[4].to_vec::<f32>().chunks_exact(4).map(|s| s[3]));
    for (i, seen) in seen.iter().enumerate() {
        let want = first * 2f32.powi(i as i32);
        assert!((seen - want).abs() < 1e-5 * want, "{i}: {seen} {want}");
    }
}

/// A second rewrite changes nothing, and products that keep their precision are not rounded.
#[test]
fn products_are_rounded_once() {
    let how = MatmulRounding::new(Rounding::new(LowPrecision::E4M3));
    let once = round_matmuls(&linear(), &how).unwrap();
    assert_eq!(round_matmuls(&once, &how).unwrap().to_string(), once.to_string());
    let mut b = Builder::new();
    let (x, w, v) = (b.input(DType::F32, &[3, 32]), b.input(DType::F32, &[4, 32]), b.input(DType::F32, &[2, 4]));
    let h = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[x, w]).unwrap();
    let h = b.one(ir::ops::Name::new(tensorloom_transform::KEEP_PRECISION).into(), &[h]).unwrap();
    let y = b.one(Dot::last_axes(DType::F32, 2, 2).into(), &[h, v]).unwrap();
    let graph = b.finish(&[y]);
    assert_eq!(round_matmuls(&graph, &how).unwrap().to_string(), graph.to_string());
}
