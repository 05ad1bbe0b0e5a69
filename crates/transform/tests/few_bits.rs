//! Products in few bits: what is rounded, in forward and in backward, against rounding by hand.

use ir::ops::Dot;
use ir::{Build, Builder, DType, Graph, Literal, Scalar, Type, interp};
use transform::{FewBits, Rounding, Scaling, few_bits};

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
    let tensor = |dtype| Rounding::Fp8 { dtype, scaling: Scaling::Tensor, margin: 0.0 };
    let how = FewBits { forward: tensor(DType::F8E4M3), backward: Some(tensor(DType::F8E5M2)) };
    let few = few_bits(&graph, &how).unwrap();
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
    // Backward: the cotangent of h is rounded, and meets the rounded operands.
    let back = transform::vjp(&few, &[0, 1, 2]).unwrap();
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

/// Finer scales lose less; what every scaling gives is within half a step of the format.
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
        let few = few_bits(&graph, &FewBits { forward: how, backward: None }).unwrap();
        let found = interp::run(&few, &inputs).unwrap()[0].to_vec::<f32>();
        let square = |x: &[f32]| x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let far: Vec<f32> = found.iter().zip(&want).map(|(a, b)| a - b).collect();
        (square(&far) / square(&want)).sqrt()
    };
    for scaling in [Scaling::Tensor, Scaling::Rows, Scaling::Blocks(32, 32), Scaling::Blocks(8, 16)] {
        let e = error(Rounding::Fp8 { dtype: DType::F8E4M3, scaling, margin: 0.1 });
        assert!(e > 1e-4 && e < 0.06, "{scaling:?}: {e}");
    }
    let e = error(Rounding::Fp4);
    assert!(e > 0.02 && e < 0.3, "{e}");
}
