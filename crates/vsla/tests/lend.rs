//! Data of the caller's, used where it lies (§7.2, §10.1): programs give on it what they give on copies.

use std::sync::Arc;
use tensorloom_vsla::{Backend, DType, Link, Numerics, Plan, ProgramBuilder, Stream, Tensor, ValueId};
use testing::Rng;

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// `x·w + x` and `2x`.
fn program(rows: usize, width: usize) -> (Plan, [ValueId; 4]) {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F32, &[rows, width]).unwrap();
    let w = b.param("w", DType::F32, &[width, width]).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.add(y, x).unwrap();
    let z = b.mul_scalar(x, 2.0).unwrap();
    b.output(y).unwrap();
    b.output(z).unwrap();
    (Plan::new(&Arc::new(b.build().unwrap()), &Backend::cpu(2)).unwrap(), [x, w, y, z])
}

#[test]
fn s7_2_lent_data_gives_what_copies_give() {
    let mut rng = Rng::new(1);
    let now = Stream::default();
    for (rows, width) in [(1, 1), (3, 5), (17, 33), (64, 64), (130, 40)] {
        let (plan, [x, w, y, z]) = program(rows, width);
        let mut bound = plan.bind().unwrap();
        let data: Vec<f32> = (0..rows * width).map(|_| (rng.uniform01() * 4.0 - 2.0) as f32).collect();
        let weights: Vec<f32> = (0..width * width).map(|_| (rng.uniform01() * 4.0 - 2.0) as f32).collect();
        bound.write_bytes(x, &bytes(&data)).unwrap();
        bound.write_bytes(w, &bytes(&weights)).unwrap();
        plan.execute(&mut bound, &now).unwrap();
        let wanted = [y, z].map(|v| bound.read(v).unwrap().to_vec::<f32>());

        // At every offset, so aligned and not.
        for at in 0..8 {
            let mut from = vec![7u8; at];
            from.extend(bytes(&data));
            let mut to = vec![9u8; at + from.len() + 4];
            let n = rows * width * 4;
            let mut second = vec![0u8; n];
            let inputs = [(x, &from[at..])];
            plan.execute_on(&mut bound, &inputs, &mut [(y, &mut to[at..at + n]), (z, &mut second)], &now).unwrap();
            assert_eq!(floats(&to[at..at + n]), wanted[0], "{rows} {width} {at}");
            assert_eq!(floats(&second), wanted[1]);
            assert!(to[..at].iter().chain(&to[at + n..]).all(|b| *b == 9), "nothing beside it is written");
        }
    }
}

#[test]
fn what_was_lent_is_not_there_afterwards() {
    let (plan, [x, w, y, z]) = program(2, 2);
    let now = Stream::default();
    let mut bound = plan.bind().unwrap();
    bound.write(w, &Tensor::from_slice(&[2, 2], &[1f32, 0.0, 0.0, 1.0]).unwrap()).unwrap();
    let (from, mut to) = (bytes(&[1.0, 2.0, 3.0, 4.0]), vec![0; 16]);
    plan.execute_on(&mut bound, &[(x, &from)], &mut [(y, &mut to)], &now).unwrap();
    assert_eq!(floats(&to), [2.0, 4.0, 6.0, 8.0]);
    // The other output is in the bindings as ever.
    assert_eq!(bound.read(z).unwrap().to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
    assert!(bound.read(y).unwrap_err().to_string().contains("passed to the last run"));
    let e = plan.execute(&mut bound, &now).unwrap_err().to_string();
    assert!(e.contains("input 0") && e.contains("passed to an earlier run"), "{e}");
    bound.write(x, &Tensor::from_slice(&[2, 2], &[5f32; 4]).unwrap()).unwrap();
    plan.execute(&mut bound, &now).unwrap();
    assert_eq!(bound.read(y).unwrap().to_vec::<f32>(), [10.0; 4]);
}

#[test]
fn parameters_stay_and_wrong_sizes_are_told() {
    let (plan, [x, w, y, _]) = program(1, 2);
    let now = Stream::default();
    let mut bound = plan.bind().unwrap();
    let weights = bytes(&[1.0, 1.0, 1.0, 1.0]);
    let (from, mut to) = (bytes(&[1.0, 2.0]), vec![0; 8]);
    plan.execute_on(&mut bound, &[(x, &from), (w, &weights)], &mut [(y, &mut to)], &now).unwrap();
    assert_eq!(floats(&to), [4.0, 5.0]);
    plan.execute_on(&mut bound, &[(x, &from)], &mut [(y, &mut to)], &now).unwrap();
    assert_eq!(floats(&to), [4.0, 5.0], "the parameter was copied");
    let mut short = vec![0; 4];
    assert!(plan.execute_on(&mut bound, &[(x, &from[..4])], &mut [], &now).is_err());
    assert!(plan.execute_on(&mut bound, &[(x, &from)], &mut [(y, &mut short)], &now).is_err());
    assert!(plan.execute_on(&mut bound, &[(ValueId(99), &from)], &mut [], &now).is_err());
}

/// An output that another program reads by a link stays where the link finds it.
#[test]
fn s10_1_linked_outputs_are_copied_out() {
    let (first, [x, _, y, z]) = program(1, 4);
    let (second, [x2, _, y2, z2]) = program(1, 4);
    let now = Stream::default();
    let (mut a, mut b) = (first.bind().unwrap(), second.bind().unwrap());
    Link { source: z, destination: x2 }.check(first.program(), second.program()).unwrap();
    b.import(x2, a.export(z).unwrap()).unwrap();
    let (from, mut to, mut other) = (bytes(&[1.0, 2.0, 3.0, 4.0]), vec![0; 16], vec![0; 16]);
    first.execute_on(&mut a, &[(x, &from)], &mut [(y, &mut other), (z, &mut to)], &now).unwrap();
    assert_eq!(floats(&to), [2.0, 4.0, 6.0, 8.0]);
    second.execute(&mut b, &now).unwrap();
    assert_eq!(b.read(z2).unwrap().to_vec::<f32>(), [4.0, 8.0, 12.0, 16.0]);
    assert_eq!(b.read(y2).unwrap().to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
}

/// §15: products accumulate in f64 unless asked otherwise, attention's too.
#[test]
fn s15_products_accumulate_in_f64() {
    // 2²⁴ + 1 + 1 + .. is 2²⁴ in f32.
    let n = 1000;
    let mut row = vec![1f32; n];
    row[0] = 16_777_216.0;
    let run = |narrow: bool| {
        let mut b = ProgramBuilder::new();
        b.numerics(Numerics { reduced_precision_products: narrow, ..Numerics::default() });
        let x = b.input("x", DType::F32, &[1, n]).unwrap();
        let w = b.input("w", DType::F32, &[n, 1]).unwrap();
        let y = b.matmul(x, w).unwrap();
        b.output(y).unwrap();
        let plan = Plan::new(&Arc::new(b.build().unwrap()), &Backend::cpu(1)).unwrap();
        let mut bound = plan.bind().unwrap();
        bound.write(x, &Tensor::from_slice(&[1, n], &row).unwrap()).unwrap();
        bound.write(w, &Tensor::from_slice(&[n, 1], &vec![1f32; n]).unwrap()).unwrap();
        plan.execute(&mut bound, &Stream::default()).unwrap();
        bound.read(y).unwrap().to_vec::<f32>()[0]
    };
    assert_eq!(run(false), (16_777_216.0 + (n - 1) as f64) as f32);
    let one = Tensor::from_slice(&[1, n], &row).unwrap().matmul(&Tensor::from_slice(&[n, 1], &vec![1f32; n]).unwrap());
    assert_eq!(one.unwrap().to_vec::<f32>(), [run(false)], "ops one by one too");
    assert!((run(true) - run(false)).abs() <= n as f32);

    // Values so large that their mean needs more than f32's bits: weights are 1/n each.
    let tokens = 512;
    let v: Vec<f32> = (0..tokens).map(|i| if i % 2 == 0 { 16_777_216.0 } else { -16_777_214.0 }).collect();
    let q = Tensor::from_slice(&[tokens, 1], &vec![0f32; tokens]).unwrap();
    let v = Tensor::from_slice(&[tokens, 1], &v).unwrap();
    let y = q.attention(&q, &v, 1, &[tokens]).unwrap().to_vec::<f32>();
    assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-6), "{:?}", &y[..4]);
}
