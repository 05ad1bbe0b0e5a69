//! A partitioned graph computes the same values and gradients as the whole, for random graphs and random shardings, and
//! for typical graphs of models.

use ir::ops::ShardMap;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Mesh, Spec, Type, Value};
use tensorloom_testing::random::{SampleOptions, sample};
use tensorloom_testing::{FillKind, Rng, compare::compare_all, rng::run_seed};
use transform::{DimSharding, Sharding, partition, segments};

fn count(few: u64) -> u64 {
    std::env::var("TENSORLOOM_SHARDED").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// A graph of one `shard_map` that is equivalent to `graph`, and its collectives.
fn divided(graph: &Graph, mesh: &Mesh, ins: &[Sharding], outs: &[Option<Spec>]) -> ir::Result<(Graph, Vec<String>)> {
    let found = partition(graph, mesh, ins, outs)?;
    let mut names: Vec<String> = Vec::new();
    for node in found.graph.nodes() {
        if let ir::Op::Collective(c) = &node.op
            && c.communicates()
        {
            names.push(node.op.name().to_string());
        }
    }
    let spec = |p: &Sharding| {
        let names = |c: &DimSharding| c.axes.iter().map(|&a| mesh.axes()[a].name.clone()).collect::<Vec<_>>();
        let mut dims: Vec<Vec<String>> = p.spec.iter().map(names).collect();
        if let Some((dim, axes)) = &p.storage_sharding {
            dims[*dim].extend(axes.iter().map(|a| a.name.clone()));
        }
        Spec(dims)
    };
    let map = ShardMap::new(mesh.clone(), ins.iter().map(spec).collect(), found.outs, found.graph)?;
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let results = b.emit(map.into(), &args)?;
    Ok((b.finish(&results), names))
}

/// Random shardings of inputs over the axes of a mesh.
fn cuts(types: &[Type], mesh: &Mesh, rng: &mut Rng) -> Vec<Sharding> {
    let mut all = Vec::new();
    for ty in types {
        let mut layout = vec![DimSharding::default(); ty.rank()];
        for (a, axis) in mesh.axes().iter().enumerate() {
            let fit: Vec<usize> = (0..ty.rank())
                .filter(|&d| {
                    let parts: usize = layout[d].axes.iter().map(|&a: &usize| mesh.axes()[a].size).product();
                    ty.shape[d].is_multiple_of(axis.size * parts)
                })
                .collect();
            if !fit.is_empty() && rng.bernoulli(0.7) {
                layout[*rng.pick(&fit)].axes.push(a);
            }
        }
        all.push(Sharding { spec: layout, storage_sharding: None });
    }
    all
}

#[test]
fn random_graphs_compute_the_same_in_parts() {
    let meshes: [&[(&str, usize)]; 4] = [&[("x", 2)], &[("x", 3)], &[("x", 2), ("y", 3)], &[("x", 2), ("y", 2)]];
    let (seed, n) = (run_seed(), count(300));
    let (mut cut, mut talked, mut compared) = (0, 0, 0);
    for k in 0..n {
        let smooth = seed.wrapping_add(k).is_multiple_of(2);
        let s = sample(seed.wrapping_add(k), if smooth { &SampleOptions::SMOOTH } else { &SampleOptions::ANY });
        let mut rng = Rng::new(s.seed);
        let mesh = Mesh::new(meshes[rng.below(meshes.len())]).unwrap();
        let ins = cuts(&s.graph.input_types(), &mesh, &mut rng);
        let outs: Vec<Option<Spec>> =
            s.graph.outputs().iter().map(|_| rng.bernoulli(0.5).then(Spec::replicated)).collect();
        cut += ins.iter().filter(|p| p.spec.iter().any(|c| !c.is_replicated())).count();
        let fail = |e: String| -> ! { panic!("TENSORLOOM_SEED={} over {mesh} fails first: {e}\n{ins:?}\n{s}", s.seed) };
        let (parts, names) = divided(&s.graph, &mesh, &ins, &outs).unwrap_or_else(|e| fail(e.to_string()));
        talked += names.len();
        let want = ir::interp::run(&s.graph, &s.inputs).unwrap_or_else(|e| fail(e.to_string()));
        let got = ir::interp::run(&parts, &s.inputs).unwrap_or_else(|e| fail(e.to_string()));
        // Sums of shards have an additional rounding, which is visible in low-precision floats and values computed from them.
        let narrow = |i: u32| {
            let dtype = s.graph.ty(Value(i)).dtype;
            dtype.is_float() && dtype != DType::F64
        };
        if (0..s.graph.num_values() as u32).any(narrow) {
            continue;
        }
        compared += 1;
        compare_all(&got, &want, 16.0).unwrap_or_else(|e| fail(format!("{e:?}")));
        // Gradients with respect to all differentiable inputs.
        let wrt: Vec<usize> = (0..s.inputs.len()).filter(|&i| s.inputs[i].ty().dtype == DType::F64).collect();
        let Ok(back) = transform::vjp(&s.graph, &wrt) else { continue };
        if !smooth {
            continue;
        }
        let own = transform::vjp(&parts, &wrt).unwrap_or_else(|e| fail(e.to_string()));
        let mut inputs = s.inputs.clone();
        for ty in &back.input_types()[inputs.len()..] {
            inputs.push(FillKind::Uniform(-1.0, 1.0).random_tensor(ty, &mut rng));
        }
        let want = ir::interp::run(&back, &inputs).unwrap_or_else(|e| fail(e.to_string()));
        let got = ir::interp::run(&own, &inputs).unwrap_or_else(|e| fail(e.to_string()));
        compare_all(&got, &want, 1e4).unwrap_or_else(|e| fail(format!("gradients: {e:?}")));
    }
    println!("{n} graphs, {compared} of them compared, {cut} cut inputs, {talked} collectives");
    assert!(2 * cut as u64 > n && talked as u64 > n / 4, "{cut} cuts, {talked} collectives");
}

/// Sharding constraints, as in annotations of models.
const MARKS: [&str; 13] = [
    "shard batch",
    "shard sequence",
    "shard column",
    "shard head",
    "shard expert",
    "shard row",
    "shard replicated",
    "comm all_reduce tp",
    "comm all_gather sp wait",
    "comm reduce_scatter tp",
    "comm reduce_scatter dp",
    "comm all_to_all tp",
    "comm broadcast default",
];

/// The graph with constraints on some of its values.
fn with_marks(graph: &Graph, rng: &mut Rng) -> Graph {
    let mut b = Builder::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.num_values()];
    for &v in graph.inputs() {
        map[v.0 as usize] = Some(b.graph.input(graph.ty(v).clone()));
    }
    for node in graph.nodes() {
        let args: Vec<Value> = node.args.iter().map(|a| map[a.0 as usize].unwrap()).collect();
        let outs = b.graph.push(node.op.clone(), &args, node.loc.clone()).unwrap();
        for (v, out) in node.outs.iter().zip(outs) {
            let mut out = out;
            while rng.bernoulli(0.4) {
                out = b.one(ir::ops::Name::new(*rng.pick(&MARKS)).into(), &[out]).unwrap();
            }
            map[v.0 as usize] = Some(out);
        }
    }
    let outs: Vec<Value> = graph.outputs().iter().map(|v| map[v.0 as usize].unwrap()).collect();
    b.finish(&outs)
}

/// Constraints change the sharding, but no values and gradients.
#[test]
fn marks_change_no_number() {
    let meshes: [&[(&str, usize)]; 4] =
        [&[("tp", 2)], &[("dp", 2), ("tp", 2)], &[("tp", 2), ("sp", 2)], &[("dp", 2), ("ep", 2), ("tp", 2)]];
    let seed = run_seed();
    let mut kinds = std::collections::BTreeSet::new();
    for k in 0..count(120) {
        let s = sample(seed.wrapping_add(k), &SampleOptions::SMOOTH);
        let mut rng = Rng::new(s.seed ^ 7);
        let mesh = Mesh::new(meshes[rng.below(meshes.len())]).unwrap();
        let graph = with_marks(&s.graph, &mut rng);
        let ins = cuts(&graph.input_types(), &mesh, &mut rng);
        let outs = vec![Some(Spec::replicated()); graph.outputs().len()];
        let fail =
            |e: String| -> ! { panic!("TENSORLOOM_SEED={} over {mesh} fails first: {e}\n{ins:?}\n{graph}", s.seed) };
        let (parts, names) = divided(&graph, &mesh, &ins, &outs).unwrap_or_else(|e| fail(e.to_string()));
        kinds.extend(names);
        let narrow = |i: u32| {
            let dtype = s.graph.ty(Value(i)).dtype;
            dtype.is_float() && dtype != DType::F64
        };
        if (0..s.graph.num_values() as u32).any(narrow) {
            continue;
        }
        let want = ir::interp::run(&s.graph, &s.inputs).unwrap_or_else(|e| fail(e.to_string()));
        let got = ir::interp::run(&parts, &s.inputs).unwrap_or_else(|e| fail(e.to_string()));
        compare_all(&got, &want, 16.0).unwrap_or_else(|e| fail(format!("{e:?}")));
        let wrt: Vec<usize> = (0..s.inputs.len()).filter(|&i| s.inputs[i].ty().dtype == DType::F64).collect();
        let Ok(back) = transform::vjp(&s.graph, &wrt) else { continue };
        let own = transform::vjp(&parts, &wrt).unwrap_or_else(|e| fail(e.to_string()));
        let mut inputs = s.inputs.clone();
        for ty in &back.input_types()[inputs.len()..] {
            inputs.push(FillKind::Uniform(-1.0, 1.0).random_tensor(ty, &mut rng));
        }
        let want = ir::interp::run(&back, &inputs).unwrap_or_else(|e| fail(e.to_string()));
        let got = ir::interp::run(&own, &inputs).unwrap_or_else(|e| fail(e.to_string()));
        compare_all(&got, &want, 1e4).unwrap_or_else(|e| fail(format!("gradients: {e:?}")));
    }
    // Reduce-scatters are rare in such graphs; see below.
    for kind in ["psum", "all_gather", "all_to_all"] {
        assert!(kinds.contains(kind), "{kind} never happens: {kinds:?}");
    }
}

/// Constraints determine the collectives: a sum that is needed in shards is a reduce-scatter, a moved sharding is an all-to-all.
#[test]
fn marks_choose_the_collective() {
    let mesh = Mesh::new(&[("tp", 2)]).unwrap();
    let said = |mark: &str| {
        let mut b = Builder::new();
        let x = b.input(DType::F64, &[2, 4, 8]);
        let w = b.input(DType::F64, &[6, 8]);
        let d = ir::ops::Dot {
            lhs_contract: [2].into_iter().collect(),
            rhs_contract: [1].into_iter().collect(),
            ..ir::ops::Dot::matmul(DType::F64)
        };
        let y = b.one(d.into(), &[x, w]).unwrap();
        let mut y = y;
        for mark in mark.split(';') {
            y = b.one(ir::ops::Name::new(mark).into(), &[y]).unwrap();
        }
        let z = b.unary(ir::Unary::Sin, y).unwrap();
        let cut = |at: usize, rank: usize| {
            let mut layout = vec![DimSharding::default(); rank];
            layout[at] = DimSharding::over_axes(vec![0]);
            Sharding { spec: layout, storage_sharding: None }
        };
        divided(&b.finish(&[z]), &mesh, &[cut(2, 3), cut(1, 2)], &[None]).unwrap().1
    };
    assert_eq!(said("comm all_reduce tp"), ["psum"]);
    assert_eq!(said("comm all_reduce tp wait"), ["psum"]);
    assert_eq!(said("comm reduce_scatter tp"), ["psum_scatter"]);
    assert_eq!(said("shard sequence"), ["psum_scatter"]);
    assert_eq!(said("shard sequence;shard column"), ["psum_scatter", "all_to_all"]);
    assert_eq!(said("shard sequence;comm all_to_all default"), ["psum_scatter", "all_to_all"]);
    assert_eq!(said("shard sequence;comm all_gather tp"), ["psum_scatter", "all_gather"]);
    assert_eq!(said("shard column"), ["psum_scatter"]);
    // A mesh without the group, and a name that is not a constraint.
    assert_eq!(said("comm all_gather dp"), ["psum"]);
    assert_eq!(said("stage 1"), ["psum"]);
}

/// Consecutive grouped products with sharded groups and ops in between: the same values as the whole for all offsets, with one
/// all-reduce at the end.
#[test]
fn groups_that_ranks_share_are_summed_once() {
    let mesh = Mesh::new(&[("ep", 2)]).unwrap();
    let mut rng = Rng::new(run_seed());
    for offsets in [[0, 1, 2, 4, 6], [0, 0, 6, 6, 6], [1, -1, 3, 2, 9], [4, 3, 2, 1, 0], [-5, 2, 2, 90, 1]] {
        let mut b = Builder::new();
        let x = b.input(DType::F64, &[6, 3]);
        let up = b.input(DType::F64, &[4, 3, 4]);
        let down = b.input(DType::F64, &[4, 4, 3]);
        let at = b.constant(Literal::new(&[5], &offsets)).unwrap();
        let wide = b.one(ir::ops::RaggedDot::rows(DType::F64).into(), &[x, up, at]).unwrap();
        let half = b.slice_axis(wide, 1, 0, 4).unwrap();
        let wide = b.unary(ir::Unary::Tanh, half).unwrap();
        let y = b.one(ir::ops::RaggedDot::rows(DType::F64).into(), &[wide, down, at]).unwrap();
        let graph = b.finish(&[y]);
        let groups = |rank: usize| {
            let mut layout = vec![DimSharding::default(); rank];
            layout[0] = DimSharding::over_axes(vec![0]);
            Sharding { spec: layout, storage_sharding: None }
        };
        let whole = Sharding { spec: vec![DimSharding::default(); 2], storage_sharding: None };
        let ins = [whole, groups(3), groups(3)];
        let inputs: Vec<Literal> =
            graph.input_types().iter().map(|ty| FillKind::Uniform(-1.0, 1.0).random_tensor(ty, &mut rng)).collect();
        for (out, said) in [(None, vec!["psum"]), (Some(Spec::shard_dim(0, "ep")), vec!["psum_scatter"])] {
            let (parts, names) = divided(&graph, &mesh, &ins, &[out]).unwrap();
            assert_eq!(names, said, "{offsets:?}");
            let want = ir::interp::run(&graph, &inputs).unwrap();
            let got = ir::interp::run(&parts, &inputs).unwrap();
            compare_all(&got, &want, 16.0).unwrap_or_else(|e| panic!("{offsets:?}: {e:?}"));
        }
    }
}

/// A mixture of experts, with `batch` independent groups of tokens.
fn experts(batch: usize, tokens: usize, chosen: usize, [count, width, inner]: [usize; 3]) -> Graph {
    let front = |tail: &[usize]| -> Vec<usize> {
        (batch > 0).then_some(batch).into_iter().chain(tail.iter().copied()).collect()
    };
    let (n, rows) = (usize::from(batch > 0), tokens * chosen);
    let mut b = Builder::new();
    let x = b.input(DType::F64, &front(&[tokens, width]));
    let up = b.input(DType::F64, &[count, width, inner]);
    let down = b.input(DType::F64, &[count, inner, width]);
    let weights = b.input(DType::F64, &front(&[tokens, chosen]));
    let token = b.input(DType::I32, &front(&[rows]));
    let inverse = b.input(DType::I32, &front(&[rows]));
    let offsets = b.input(DType::I32, &front(&[count + 1]));
    let take = |b: &mut Builder, x: Value, at: Value| {
        let mut dims = ir::ops::SliceDims::take(2, 0, 1);
        let mut sizes: ir::Shape = [1, b.ty(x).shape[n + 1]].into_iter().collect();
        if n == 1 {
            for axes in [&mut dims.offset, &mut dims.collapsed, &mut dims.index_map] {
                axes.iter_mut().for_each(|d| *d += 1);
            }
            (dims.operand_batch, dims.index_batch) = ([0].into_iter().collect(), [0].into_iter().collect());
            sizes.insert(0, 1);
        }
        let at = b.index_vectors(at)?;
        b.one(ir::ops::Gather { dims, slice_sizes: sizes, mode: ir::ops::GatherMode::Clip }.into(), &[x, at])
    };
    let product = |b: &mut Builder, x: Value, w: Value| {
        let mut w = w;
        if n == 1 {
            let shape: Vec<usize> = [batch].into_iter().chain(b.ty(w).shape.iter().copied()).collect();
            w = b.broadcast(w, &shape, &[1, 2, 3])?;
        }
        b.one(ir::ops::RaggedDot { batch: n, ..ir::ops::RaggedDot::rows(DType::F64) }.into(), &[x, w, offsets])
    };
    let y = (|| -> ir::Result<Value> {
        let permuted = take(&mut b, x, token)?;
        let wide = product(&mut b, permuted, up)?;
        let wide = b.unary(ir::Unary::Tanh, wide)?;
        let y = product(&mut b, wide, down)?;
        let back = take(&mut b, y, inverse)?;
        let back = b.reshape(back, &front(&[tokens, chosen, width]))?;
        let each = b.broadcast(weights, &front(&[tokens, chosen, width]), &(0..n + 2).collect::<Vec<_>>())?;
        let back = b.mul(back, each)?;
        b.sum(back, &[n + 1])
    })();
    let y = y.unwrap();
    b.finish(&[y])
}

/// Tokens are sent to the ranks of their experts and back, for any choice of experts; values and gradients equal those of the
/// whole, and no rank receives all tokens.
#[test]
fn tokens_travel_to_their_experts() {
    let mut rng = Rng::new(run_seed());
    for (sizes, batch, tokens, chosen) in [
        (vec![("ep", 2)], 0, 6, 2),
        (vec![("ep", 4)], 0, 8, 1),
        (vec![("dp", 2), ("ep", 2)], 2, 4, 2),
        (vec![("ep", 2), ("dp", 2)], 4, 6, 3),
    ] {
        let mesh = Mesh::new(&sizes).unwrap();
        let axis = |name: &str| sizes.iter().position(|(n, _)| *n == name).unwrap();
        let n = usize::from(batch > 0);
        let graph = experts(batch, tokens, chosen, [4, 3, 5]);
        let types = graph.input_types();
        let place = |ty: &Type, cuts: &[(usize, &str)]| {
            let mut layout = vec![DimSharding::default(); ty.rank()];
            cuts.iter().for_each(|(d, name)| layout[*d] = DimSharding::over_axes(vec![axis(name)]));
            Sharding { spec: layout, storage_sharding: None }
        };
        let groups: &[(usize, &str)] = if n == 1 { &[(0, "dp")] } else { &[] };
        let rows = [groups, &[(n, "ep")]].concat();
        let ins: Vec<Sharding> = (types.iter().enumerate())
            .map(|(i, ty)| match i {
                0 | 3 => place(ty, &rows),
                1 | 2 => place(ty, &[(0, "ep")]),
                _ => place(ty, groups),
            })
            .collect();
        for turn in 0..6 {
            let mut inputs: Vec<Literal> =
                types.iter().map(|ty| FillKind::Uniform(-1.0, 1.0).random_tensor(ty, &mut rng)).collect();
            let (mut token, mut inverse, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..batch.max(1) {
                // In the first iteration all tokens choose one expert.
                let all: Vec<usize> = (0..tokens * chosen).map(|_| if turn == 0 { 1 } else { rng.below(4) }).collect();
                let mut order: Vec<usize> = (0..all.len()).collect();
                order.sort_by_key(|&p| all[p]);
                token.extend(order.iter().map(|p| (p / chosen) as i32));
                inverse.extend((0..all.len()).map(|p| order.iter().position(|q| *q == p).unwrap() as i32));
                offsets.extend((0..=4).map(|e| all.iter().filter(|a| **a < e).count() as i32));
            }
            for (i, values) in [(4, &token), (5, &inverse), (6, &offsets)] {
                inputs[i] = Literal::new(&types[i].shape, values);
            }
            let (parts, names) = divided(&graph, &mesh, &ins, &[None]).unwrap();
            assert_eq!(names, ["all_to_all", "all_gather", "all_to_all"], "{sizes:?}: weights alone are gathered");
            let want = ir::interp::run(&graph, &inputs).unwrap();
            let got = ir::interp::run(&parts, &inputs).unwrap();
            compare_all(&got, &want, 16.0).unwrap_or_else(|e| panic!("{sizes:?}: {e:?}"));
            let (back, own) = (transform::vjp(&graph, &[0, 1, 2, 3]), transform::vjp(&parts, &[0, 1, 2, 3]));
            let (back, own) = (back.unwrap(), own.unwrap());
            let given = &back.input_types()[inputs.len()..];
            inputs.extend(given.iter().map(|ty| FillKind::Uniform(-1.0, 1.0).random_tensor(ty, &mut rng)));
            let want = ir::interp::run(&back, &inputs).unwrap();
            let got = ir::interp::run(&own, &inputs).unwrap();
            compare_all(&got, &want, 1e4).unwrap_or_else(|e| panic!("{sizes:?}: gradients: {e:?}"));
        }
    }
}

/// A gated MLP: one fused weight for gate and up, one for down, over rows of a batch.
fn layer(width: usize, inner: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F64, &[4, 3, width]);
    let up = b.input(DType::F64, &[2 * inner, width]);
    let bias = b.input(DType::F64, &[2 * inner]);
    let down = b.input(DType::F64, &[width, inner]);
    let g = (|| -> ir::Result<Value> {
        let dot = |b: &mut Builder, x: Value, w: Value| {
            let d = ir::ops::Dot {
                lhs_contract: [2].into_iter().collect(),
                rhs_contract: [1].into_iter().collect(),
                ..ir::ops::Dot::matmul(DType::F64)
            };
            b.one(d.into(), &[x, w])
        };
        let wide = dot(&mut b, x, up)?;
        let bias = b.broadcast(bias, &[4, 3, 2 * inner], &[2])?;
        let wide = b.add(wide, bias)?;
        let gate = b.slice_axis(wide, 2, 0, inner)?;
        let up = b.slice_axis(wide, 2, inner, 2 * inner)?;
        let gate = b.unary(ir::Unary::Logistic, gate)?;
        let h = b.mul(gate, up)?;
        let y = dot(&mut b, h, down)?;
        let y = b.add(y, x)?;
        b.sum_all(y)
    })();
    let g = g.unwrap();
    b.finish(&[g])
}

#[test]
fn a_column_and_a_row_cut_need_one_sum() {
    let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).unwrap();
    let graph = layer(6, 4);
    assert_eq!(segments(&graph, 1, 0), [4, 4]);
    assert_eq!(segments(&graph, 2, 0), [4, 4]);
    assert_eq!(segments(&graph, 3, 1), [0; 0]);
    let tp = |segments: Vec<usize>| DimSharding { axes: vec![1], segments };
    let ins = [
        Sharding {
            spec: vec![DimSharding::over_axes(vec![0]), DimSharding::default(), DimSharding::default()],
            storage_sharding: None,
        },
        Sharding { spec: vec![tp(vec![4, 4]), DimSharding::default()], storage_sharding: None },
        Sharding { spec: vec![tp(vec![4, 4])], storage_sharding: None },
        Sharding { spec: vec![DimSharding::default(), tp(vec![])], storage_sharding: None },
    ];
    let found = partition(&graph, &mesh, &ins, &[Some(Spec::replicated())]).unwrap();
    let talks: Vec<&str> = found
        .graph
        .nodes()
        .iter()
        .map(|n| n.op.name())
        .filter(|n| n.starts_with('p') || n.starts_with("all"))
        .collect();
    // The all-reduce of the down projection over `tp`, then of the loss over `dp`.
    assert_eq!(talks, ["psum", "psum"], "{}", found.graph);
}

#[test]
fn parameters_that_are_stored_in_parts_are_gathered_and_their_gradients_scattered() {
    let mesh = Mesh::new(&[("fsdp", 2)]).unwrap();
    let graph = layer(6, 4);
    let axes = mesh.axes().to_vec();
    let stored = |dim: usize, rank: usize| Sharding {
        spec: vec![DimSharding::default(); rank],
        storage_sharding: Some((dim, axes.clone())),
    };
    let ins = [
        Sharding {
            spec: vec![DimSharding::over_axes(vec![0]), DimSharding::default(), DimSharding::default()],
            storage_sharding: None,
        },
        stored(0, 2),
        stored(0, 1),
        stored(0, 2),
    ];
    let (parts, names) = divided(&graph, &mesh, &ins, &[Some(Spec::replicated())]).unwrap();
    assert_eq!(names, ["all_gather", "all_gather", "all_gather", "psum"]);
    let back = transform::grad(&parts, &[0, 1, 2, 3]).unwrap();
    let mut rng = Rng::new(3);
    let inputs: Vec<Literal> =
        graph.input_types().iter().map(|t| FillKind::Uniform(-1.0, 1.0).random_tensor(t, &mut rng)).collect();
    let got = ir::interp::run(&back, &inputs).unwrap();
    let want = ir::interp::run(&transform::grad(&graph, &[0, 1, 2, 3]).unwrap(), &inputs).unwrap();
    compare_all(&got, &want, 1e3).unwrap();
    let text = back.to_string();
    assert_eq!(text.matches(" = psum_scatter(").count(), 3, "{text}");
}

#[test]
fn composites_of_the_library_stay_whole_where_rows_are_cut() {
    let mesh = Mesh::new(&[("dp", 2)]).unwrap();
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[4, 8]);
    let types = [Type::new(DType::F32, &[4, 8])];
    let silu = ir::composites::build("silu", &[], &types).unwrap();
    let y = b.one(silu.into(), &[x]).unwrap();
    let g = b.finish(&[y]);
    let ins = [Sharding::from_spec(&mesh, &Spec::shard_dim(0, "dp"), 2)];
    let found = partition(&g, &mesh, &ins, &[None]).unwrap();
    assert_eq!(found.graph.nodes().len(), 1);
    assert_eq!(found.outs, [Spec::shard_dim(0, "dp")]);
}
