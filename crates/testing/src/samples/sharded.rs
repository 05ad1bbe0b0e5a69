//! Samples of collectives and of `shard_map`.

use super::{SampleTable, parse_type};
use crate::FillKind;
use ir::ops::{Call, Collective, CollectiveKind as Kind, Cond, Remat, Scan, ShardMap};
use ir::{Builder, DType, Graph, GraphBuilder, Mesh, MeshAxis, Spec, Unary, Value};

fn kinds(n: usize) -> Vec<(&'static str, Kind)> {
    vec![
        ("psum", Kind::Sum),
        ("pmax", Kind::Max),
        ("pmin", Kind::Min),
        ("all_gather", Kind::AllGather { dim: 0, same: false, turn: 0 }),
        ("all_gather/same", Kind::AllGather { dim: 1, same: true, turn: 0 }),
        ("psum_scatter", Kind::ReduceScatter { dim: 1 }),
        ("all_to_all", Kind::AllToAll { split: 0, join: 1 }),
        ("ppermute", Kind::Permute { pairs: (0..n).map(|i| (i, (i + 1) % n)).collect() }),
        ("ppermute/some", Kind::Permute { pairs: vec![(n - 1, 0)] }),
    ]
}

fn body(types: &[&str], build: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|t| b.graph.input(parse_type(t))).collect();
    let outs = build(&mut b, &args).expect("a sample body is well-typed");
    b.finish(&outs)
}

pub(super) fn rows(t: &mut SampleTable) {
    // A single rank.
    let alone = [MeshAxis::new("only", 1)];
    for (name, kind) in kinds(1) {
        t.smooth(&format!("{name}/alone"), Collective::new(kind, &alone), &["f64[2,3]"], FillKind::Smooth);
    }
    for (name, kind) in [("pvary", Kind::PVary), ("ppart", Kind::ShardSlice { dim: 0 })] {
        t.smooth(&format!("{name}/alone"), Collective::new(kind, &alone), &["f64[2,3]"], FillKind::Smooth);
    }
    t.plain("axis_index/alone", Collective::new(Kind::AxisIndex, &alone), &[], &[FillKind::Smooth]);

    // Ranks in a grid; collectives over both axes, one, and an axis that shards nothing.
    let mesh = Mesh::new(&[("a", 2), ("b", 3)]).expect("a mesh");
    for over in [vec!["a"], vec!["b"], vec!["a", "b"], vec!["b", "a"]] {
        let axes: Vec<MeshAxis> = over.iter().filter_map(|n| mesh.axis(n).cloned()).collect();
        let n: usize = axes.iter().map(|a| a.size).product();
        let cut = Spec(vec![vec!["a".into(), "b".into()]]);
        for (name, kind) in kinds(n) {
            let left: Vec<String> = match &kind {
                Kind::Sum | Kind::Max | Kind::Min | Kind::AllGather { same: true, .. } => {
                    mesh.axes().iter().map(|a| a.name.clone()).filter(|n| !over.contains(&n.as_str())).collect()
                }
                _ => vec!["a".into(), "b".into()],
            };
            let g = body(&["f64[6,6]"], |b, x| {
                let y = b.unary(Unary::Tanh, x[0])?;
                let y = b.collective(kind.clone(), y, &axes)?;
                Ok(vec![b.unary(Unary::Sin, y)?])
            });
            let map = ShardMap::new(mesh.clone(), vec![cut.clone()], vec![Spec(vec![left])], g).expect("a sample");
            // Extrema of many numbers have near ties; random bodies check their derivative.
            let smooth = !matches!(kind, Kind::Max | Kind::Min);
            let name = format!("shard_map/{name}_{}", over.join("_"));
            t.graph(&name, &["f64[36,6]"], &[FillKind::Smooth], smooth, |b, x| Ok(b.emit(map.into(), x)?.to_vec()));
        }
    }
    let two = Mesh::new(&[("a", 2)]).expect("a mesh");
    let a = [two.axes()[0].clone()];
    // Replicated and varying values are combined: gradients are summed once.
    let g = body(&["f64[3]", "f64[2,3]"], |b, x| {
        let w = b.unary(Unary::Exp, x[0])?;
        let wide = b.broadcast(w, &[2, 3], &[1])?;
        let y = b.mul(wide, x[1])?;
        let s = b.sum(y, &[0])?;
        let s = b.psum(s, &a)?;
        let y2 = b.mul(s, w)?;
        Ok(vec![y2, y])
    });
    let map = ShardMap::new(
        two.clone(),
        vec![Spec::replicated(), Spec::shard_dim(0, "a")],
        vec![Spec::replicated(), Spec::shard_dim(0, "a")],
        g,
    );
    t.smooth("shard_map/shared", map.expect("a sample"), &["f64[3]", "f64[4,3]"], FillKind::Smooth);
    // A shard of a replicated value, and the rank's index.
    let g = body(&["f64[4]"], |b, x| {
        let part = b.collective(Kind::ShardSlice { dim: 0 }, x[0], &a)?;
        let at = b.axis_index(&a)?;
        let at = b.cast(at, DType::F64)?;
        let at = b.splat(at, &[2])?;
        let own = b.mul(part, at)?;
        let all = b.collective(Kind::AllGather { dim: 0, same: true, turn: 0 }, own, &a)?;
        Ok(vec![b.mul(all, x[0])?])
    });
    let map = ShardMap::new(two.clone(), vec![Spec::replicated()], vec![Spec::replicated()], g);
    t.smooth("shard_map/part", map.expect("a sample"), &["f64[4]"], FillKind::Smooth);
    // Communication inside loops, calls and branches; scalars that differ between ranks.
    let step = body(&["f64[]", "f64[2]", "f64[2]"], |b, x| {
        let y = b.mul(x[1], x[2])?;
        let w = b.splat(x[0], &[2])?;
        let y = b.mul(y, w)?;
        let s = b.psum(y, &a)?;
        let h = b.unary(Unary::Tanh, s)?;
        Ok(vec![b.add(h, x[2])?, s])
    });
    let inner = body(&["f64[2]"], |b, x| {
        Ok(vec![{
            let s = b.sum_all(x[0])?;
            let e = b.unary(Unary::Sin, s)?;
            let p = b.psum(e, &a)?;
            b.splat(p, &[2])?
        }])
    });
    let branches = [
        body(&["f64[2]"], |b, x| Ok(vec![b.psum(x[0], &a)?])),
        body(&["f64[2]"], |b, x| Ok(vec![b.collective(Kind::Max, x[0], &a)?])),
    ];
    let g = body(&["f64[]", "f64[2]", "f64[3,2]", "i32[]"], |b, x| {
        let outs = b.emit(Scan::over(1, 1, 3, step).into(), &[x[0], x[1], x[2]])?;
        let r = b.one(Remat::new(inner.clone()).into(), &[outs[0]])?;
        let c = b.one(Call::new(inner).into(), &[x[1]])?;
        let d = b.one(Cond::new(branches).into(), &[x[3], x[1]])?;
        let y = b.add(r, c)?;
        Ok(vec![b.add(y, d)?, outs[0], outs[1]])
    });
    let ins = vec![Spec::replicated(), Spec::shard_dim(0, "a"), Spec::shard_dim(1, "a"), Spec::replicated()];
    let outs = vec![Spec::replicated(), Spec::shard_dim(0, "a"), Spec::replicated()];
    let map = ShardMap::new(two, ins, outs, g).expect("a sample");
    let fills = [FillKind::Smooth, FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(2)];
    t.graph("shard_map/control", &["f64[]", "f64[4]", "f64[3,4]", "i32[]"], &fills, true, |b, x| {
        Ok(b.emit(map.into(), x)?.to_vec())
    });
}
