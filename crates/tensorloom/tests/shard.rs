//! Functions over a mesh: laws on random bodies against the interpreter, composition with other transforms, errors.

use tensorloom::prelude::*;
use tensorloom::shard::{
    all_gather, all_to_all, axis_index, axis_size, pmax, pmean, pmin, ppermute, psum, psum_scatter,
};
use tensorloom::{Literal, Mesh, Sharding, device_put, pmap, shard_map, trace};
use testing::compare::{Tolerance, compare};
use testing::random::sharded::sharded_sample;
use testing::rng::run_seed;

/// `TENSORLOOM_SHARDED=500` looks longer.
fn count(few: u64) -> u64 {
    std::env::var("TENSORLOOM_SHARDED").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// Gradients of random sharded graphs, compiled by `jit` and op by op, against the interpreter's.
#[test]
fn gradients_of_random_sharded_graphs_are_the_interpreters() {
    let seed = run_seed();
    for k in 0..count(30) {
        let s = sharded_sample(seed.wrapping_add(k));
        let wrt: Vec<usize> = (0..s.inputs.len()).collect();
        // The sum of all outputs, as one graph for the interpreter.
        let mut b = ir::Builder::new();
        use ir::GraphBuilder;
        let args: Vec<_> = s.graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let outs = b.inline(&s.graph, &args).unwrap();
        let mut total = b.scalar(DType::F64, 0.0).unwrap();
        for o in outs {
            let o = b.sum_all(o).unwrap();
            total = b.add(total, o).unwrap();
        }
        let whole = b.finish(&[total]);
        let want = ir::interp::run(&transform::grad(&whole, &wrt).unwrap(), &s.inputs).unwrap();
        let inputs: Vec<Tensor> = s.inputs.iter().map(|x| tensor_of(&x.to_vec::<f64>(), &x.ty().shape[..])).collect();
        let f = |x: Vec<Tensor>| {
            let outs = trace::inline(&s.graph, &x.iter().collect::<Vec<_>>());
            outs.iter().fold(np::zeros(&[], DType::F64), |sum, o| sum + o.sum())
        };
        let found = if k % 2 == 0 { jit(grad(f)).call(inputs) } else { grad(f).call(inputs) };
        for (i, (got, want)) in found.iter().zip(&want).enumerate() {
            let got = Literal::new(&want.ty().shape, &got.to_vec::<f64>().unwrap());
            compare(&got, want, Tolerance::for_dtype(DType::F64).scaled(1e4))
                .unwrap_or_else(|e| panic!("TENSORLOOM_SEED={} input {i}: {e:?}\n{}", s.seed, s.graph));
        }
    }
}

fn mesh(text: &str) -> Mesh {
    Mesh::parse(text).unwrap()
}

fn floats(n: usize, dims: impl tensorloom::Dims) -> Tensor {
    (arange(n).cast(DType::F32) * 0.37 - 1.0).sin().reshape(dims)
}

fn near(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-5 * y.abs().max(1.0), "{a:?}\n{b:?}");
    }
}

#[test]
fn collectives_by_hand() {
    let m = mesh("x=2");
    let x = arange(4);
    let run = |f: fn(Tensor) -> Tensor, out: &str| {
        shard_map(&m, f).in_specs("x").out_specs(out).call(x.clone()).to_vec::<i64>().unwrap()
    };
    assert_eq!(run(|x| psum(&x, "x"), ""), [2, 4]);
    assert_eq!(run(|x| pmax(&x, "x"), ""), [2, 3]);
    assert_eq!(run(|x| pmin(&x, ["x"]), ""), [0, 1]);
    assert_eq!(run(|x| psum_scatter(&x, "x", 0), "x"), [2, 4]);
    assert_eq!(run(|x| all_to_all(&x, "x", 0, 0), "x"), [0, 2, 1, 3]);
    assert_eq!(run(|x| ppermute(&x, "x", &[(0, 1)]), "x"), [0, 0, 0, 1]);
    assert_eq!(run(|x| all_gather(&x, "x", -1), "x"), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(run(|x| x + axis_index("x").cast(DType::I64) * axis_size("x").unwrap() as i64, "x"), [0, 1, 4, 5]);
    let mean = shard_map(&m, |x: Tensor| pmean(&x, "x")).in_specs("x").call(x.cast(DType::F32));
    assert_eq!(mean.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

/// A layer by columns and one by rows with a sum, and a batch in parts: values, gradients, batches, programs.
#[test]
fn it_composes_with_grad_vmap_and_jit() {
    let m = mesh("dp=2,tp=2");
    let layers = |(x, up, down): (Tensor, Tensor, Tensor)| x.matmul(&up).tanh().matmul(&down);
    let loss = move |a: (Tensor, Tensor, Tensor)| (layers(a).pow(2)).sum();
    let divided = shard_map(&m, move |a: (Tensor, Tensor, Tensor)| {
        let y = psum(&layers(a), "tp");
        psum(&y.pow(2).sum(), "dp")
    })
    .in_specs(["dp", "_, tp", "tp"])
    .out_specs("");
    let args = (floats(24, (4, 6)), floats(24, (6, 4)), floats(20, (4, 5)));
    near(&divided.call(args.clone()), &loss(args.clone()));
    let want = grad(loss).call(args.clone());
    let got = grad(|a: (Tensor, Tensor, Tensor)| divided.call(a)).call(args.clone());
    let jitted = jit(grad(|a: (Tensor, Tensor, Tensor)| divided.call(a))).call(args.clone());
    for ((g, j), w) in
        [(&got.0, &jitted.0), (&got.1, &jitted.1), (&got.2, &jitted.2)].into_iter().zip([&want.0, &want.1, &want.2])
    {
        near(g, w);
        near(j, w);
    }
    let stacked = floats(72, (3, 4, 6));
    let each = |x: Tensor| divided.call((x, args.1.clone(), args.2.clone()));
    let plain = |x: Tensor| loss((x, args.1.clone(), args.2.clone()));
    near(&vmap(each).call(stacked.clone()), &vmap(plain).call(stacked.clone()));
    near(&vmap(grad(each)).call(stacked.clone()), &vmap(grad(plain)).call(stacked.clone()));
    // Inside: a gradient in each rank's own part is not yet the whole's.
    let inner = shard_map(&m, |(x, w): (Tensor, Tensor)| {
        let own = grad(|w: Tensor| x.matmul(&w).pow(2).sum()).call(tensorloom::shard::pvary(&w, "dp"));
        psum(&own, "dp")
    });
    let w = floats(18, (6, 3));
    let whole = grad(|w: Tensor| args.0.matmul(&w).pow(2).sum()).call(w.clone());
    near(&inner.in_specs(["dp", ""]).out_specs("").call((args.0.clone(), w)), &whole);
}

#[test]
fn pmap_gives_each_rank_an_element() {
    let x = floats(12, (4, 3));
    let share = |x: Tensor| x.exp() / psum(&x.exp(), "ranks");
    near(&pmap(share).call(x.clone()), &nn::softmax(&x, 0));
    let named = pmap(|(x, y): (Tensor, Tensor)| psum(&(&x * &y).sum(), "i")).axis_name("i");
    near(&named.call((x.clone(), x.clone())).index(0, 2), &(&x * &x).sum());
    let slope = grad(|x: Tensor| pmap(share).call(x).pow(2).sum()).call(x.clone());
    near(&slope, &grad(|x: Tensor| nn::softmax(&x, 0).pow(2).sum()).call(x.clone()));
    let bad = pmap(share).call(zeros(&[])).check().unwrap_err().to_string();
    assert!(bad.contains("first axis"), "{bad}");
}

#[test]
fn what_ranks_would_not_agree_on_is_an_error_when_it_is_traced() {
    let m = mesh("dp=2,tp=2");
    let check = |t: Tensor, said: &str| {
        let e = t.check().unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    };
    let x = floats(8, (4, 2));
    let sum = |x: Tensor| x.sum();
    check(shard_map(&m, sum).in_specs("dp").call(x.clone()), "output 0 varies over `dp`");
    check(
        shard_map(&m, |x: Tensor| psum(&x, "tp")).in_specs("dp").out_specs("dp").call(x.clone()),
        "does not vary over `tp`",
    );
    check(shard_map(&m, |x: Tensor| psum(&x, "pp")).in_specs("dp").call(x.clone()), "has no axis `pp`");
    check(shard_map(&m, sum).in_specs("_, dp+tp").call(x.clone()), "argument 0");
    check(shard_map(&m, sum).in_specs("zz").call(x.clone()), "zz");
    check(shard_map(&m, sum).in_specs(["dp", "tp"]).call(x.clone()), "2 in_specs");
    check(psum(&x, "dp"), "inside a `shard_map`");
    check(
        shard_map(&m, |x: Tensor| shard_map(&mesh("a=1"), |x: Tensor| x).call(x)).call(x.clone()),
        "cannot be nested",
    );
    check(shard_map(&m, |x: Tensor| all_gather(&x, "dp", 2)).in_specs("dp").call(x), "axis");
}

#[test]
fn parts_are_cut_and_put_together_for_any_sharding() {
    let m = mesh("a=2,b=3");
    let x = floats(6 * 6 * 2, (6, 6, 2));
    for text in ["", "a", "b", "a+b", "b+a", "a, b", "b, a", "_, b", "_, a+b, _", "_, _, a"] {
        let sharding = Sharding::new(&m, text).unwrap();
        let (put, one) = (device_put((x.clone(), x.index(2, 0)), &sharding), device_put(x.clone(), &sharding));
        assert_eq!(put.parts().len(), 6);
        near(&one.whole().unwrap(), &x);
        if text != "_, _, a" {
            near(&put.whole().unwrap().1, &x.index(2, 0));
            // A rank's part is what `shard_map` gives it.
            let body = shard_map(&m, |x: Tensor| x * 2.0).in_specs(text).out_specs(text).call(x.clone());
            near(&one.map(|t| t * 2.0).whole().unwrap(), &body);
        }
    }
    assert!(Sharding::new(&m, "c").is_err() && Sharding::new(&m, "a, a").is_err());
    assert!(device_put(floats(10, 5), &Sharding::new(&m, "a").unwrap()).whole().is_err());
}
