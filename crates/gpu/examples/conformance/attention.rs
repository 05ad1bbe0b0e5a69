//! Compares the device's attention kernels and their backward with the interpreter or (where that is slow) the CPU's inlined form.

use crate::Slice;
use crate::device::{Device, run, same_bits};
use crate::report::Report;
use compiler::Options;
use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, interp};
use testing::Rng;

/// The number of cases.
const CASES: u64 = 200;
/// The cases from this one on are as in training: large heads, many queries, no cotangent of the log-sum-exp.
const PLAIN: u64 = 160;

struct Case {
    name: String,
    graph: Graph,
    inputs: Vec<Literal>,
    dtype: DType,
    large: bool,
}

pub(crate) fn attentions(device: Device, slice: Slice, report: &mut Report) {
    for k in (0..CASES).filter(|k| slice.has(*k)) {
        let case = case(k);
        report.at(k, &case.name);
        if let Some(compiled) = device.compiled(&case.graph) {
            if let Err(e) = compiled {
                report.failed(&case.name, &e, String::new());
            }
            continue;
        }
        if let Err(e) = agrees(&device, &case) {
            report.failed(&case.name, &e, device.show(&case.graph, &Options::default()));
        }
    }
}

fn agrees(device: &Device, case: &Case) -> Result<(), String> {
    let inlined = Options { fuse_composites: false, ..Options::default() };
    let want = match case.large {
        true => run(&*device.cpu, &case.graph, &case.inputs, &inlined)?,
        false => interp::run(&case.graph, &case.inputs).map_err(|e| e.to_string())?,
    };
    let got = run(device.backend(), &case.graph, &case.inputs, &Options::default())?;
    same_bits(&got, &run(device.backend(), &case.graph, &case.inputs, &Options::default())?, "two runs")?;
    let tolerance = match case.dtype {
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    };
    for (n, (g, w)) in got.iter().zip(&want).enumerate() {
        let numbers = || w.scalars().map(Scalar::to_f64);
        // The error of a sum with many terms is relative to the largest results.
        let largest = numbers().filter(|x| x.is_finite()).fold(0.5, |a: f64, x| a.max(x.abs()));
        for (i, (a, b)) in g.scalars().map(Scalar::to_f64).zip(numbers()).enumerate() {
            let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (largest + b.abs()) / 2.0;
            if !same {
                return Err(format!("result {n}, element {i} is {a}, expected {b}"));
            }
        }
    }
    Ok(())
}

/// Forward and backward of an attention that is generated from its number.
fn case(k: u64) -> Case {
    let mut rng = Rng::new(77 + k);
    let (large, plain) = (k % 8 == 0, k >= PLAIN);
    let dtype = *rng.pick(&[DType::BF16, DType::BF16, DType::F16, DType::F32]);
    let batch = 1 + rng.below(3);
    let kv = 1 + rng.below(3);
    let heads = kv * (1 + rng.below(3));
    let wide = match plain {
        true => *rng.pick(&[72, 96, 104, 112, 120, 128, 128, 128, 160, 256]),
        false => *rng.pick(&[8, 24, 32, 64, 64, 72, 96, 128, 136, 192, 256, 20]),
    };
    let wide_v = if rng.bernoulli(0.8) { wide } else { *rng.pick(&[16, 64, 128, 200]) };
    let most = if large { 700 } else { 140 };
    let tk = 1 + rng.below(most) + if plain { 127 } else { 0 };
    let tq = match (rng.bernoulli(0.5), plain) {
        (true, _) => tk,
        (false, true) => 128.min(tk) + rng.below(tk - 127),
        (false, false) => 1 + rng.below(most),
    };
    let prefix = |rng: &mut Rng, own: &[usize]| match rng.bernoulli(0.5) {
        true => Type::new(DType::I32, &[&[batch], own].concat()),
        false => Type::new(DType::I32, own),
    };
    let options = match plain {
        true => AttentionOptions { causal: rng.bernoulli(0.6), ..AttentionOptions::default() },
        false => AttentionOptions {
            causal: rng.bernoulli(0.6),
            window: rng.bernoulli(0.25).then(|| 1 + rng.below(most)),
            scale: rng.bernoulli(0.2).then_some(0.3),
            softcap: rng.bernoulli(0.2).then_some(3.0),
            q_offset: rng.bernoulli(0.25).then(|| prefix(&mut rng, &[])),
            kv_lengths: rng.bernoulli(0.25).then(|| prefix(&mut rng, &[])),
            ..AttentionOptions::default()
        },
    };
    let ty = |own: &[usize]| Type::new(dtype, &[&[batch], own].concat());
    let (q, k, v) = (ty(&[heads, tq, wide]), ty(&[kv, tk, wide]), ty(&[kv, tk, wide_v]));
    let mut b = Builder::new();
    let forward = attention(&q, &k, &v, &options).expect("it type-checks");
    let backward = attention_backward(&q, &k, &v, &options).expect("it type-checks");
    let args: Vec<_> = forward.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(forward.into(), &args).expect("it type-checks");
    let (dout, dlse) = (b.ty(outs[0]), b.ty(outs[1]));
    let dout = b.graph.input(dout);
    let dlse = if plain { b.zeros(&dlse).expect("a tensor of zeros") } else { b.graph.input(dlse) };
    let cotangents = [dout, dlse];
    let all = [&args[..], &outs, &cotangents].concat();
    let grads = b.emit(backward.into(), &all).expect("it type-checks");
    let graph = b.finish(&[&outs[..], &grads].concat());
    let inputs = (graph.input_types().iter())
        .map(|t| match t.dtype {
            DType::I32 => Literal::from_fn(t.clone(), |_| Scalar::from_i64(DType::I32, rng.range(-3, tk as i64 + 4))),
            d => Literal::from_fn(t.clone(), |_| Scalar::from_f64(d, rng.uniform(-1.5, 1.5))),
        })
        .collect();
    let name = format!("{q} {k} {v} {options:?}");
    Case { name, graph, inputs, dtype, large }
}
