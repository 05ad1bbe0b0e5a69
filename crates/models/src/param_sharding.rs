//! Sharding of parameters over the ranks of a mesh: `@shard` gives the sharded axis of a parameter, the mesh the number of shards.

use ir::{Graph, Mesh, Type};
use lang::lower::{Parameter, Shard};
use train::shard_ranges::for_each_contiguous_run;
use transform::{DimSharding, Sharding};

/// Properties of a graph input that is a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamInfo {
    pub(crate) shard: Option<Shard>,
    pub(crate) stacked: bool,
}

impl ParamInfo {
    /// Returns the properties of a parameter.
    pub(crate) fn of(param: &Parameter) -> ParamInfo {
        ParamInfo { shard: param.shard, stacked: param.stacked }
    }
}

/// Returns the sharding of input `i` of a graph: columns, rows and heads along `tp`, experts along `ep`, or along `tp` if the
/// mesh has no `ep`. A parameter that can't be split into equal shards is replicated.
pub(crate) fn param_sharding(mesh: &Mesh, graph: &Graph, i: usize, about: ParamInfo) -> Sharding {
    let ty = graph.ty(graph.inputs()[i]);
    let axis = |name: &str| mesh.axes().iter().position(|a| a.name == name && a.size > 1);
    let mut placement = Sharding { spec: vec![DimSharding::default(); ty.rank()], storage_sharding: None };
    let first = usize::from(about.stacked);
    let (dim, by) = match about.shard {
        Some(Shard::Column | Shard::Head) => (Some(first), axis("tp")),
        Some(Shard::Row) => (ty.rank().checked_sub(1).filter(|d| *d > first), axis("tp")),
        Some(Shard::Expert) => (Some(first), axis("ep").or(axis("tp"))),
        Some(Shard::Replicated) | None => (None, None),
    };
    if let (Some(dim), Some(by)) = (dim.filter(|d| *d < ty.rank()), by) {
        let cut = DimSharding { axes: vec![by], segments: transform::segments(graph, i, dim) };
        if cut.divides(mesh, ty.shape[dim]) {
            placement.spec[dim] = cut;
        }
    }
    placement
}

/// A rank's shard of a full tensor.
pub(crate) fn local_part(placement: &Sharding, ty: &Type, mesh: &Mesh, rank: usize, whole: &[u8]) -> Vec<u8> {
    let mut part = vec![0; placement.local_type(mesh, ty).bytes()];
    let size = ty.dtype.size();
    for_each_contiguous_run(&axis_indices(placement, ty, mesh, rank), ty, |at, own, n| {
        part[own * size..(own + n) * size].copy_from_slice(&whole[at * size..(at + n) * size]);
    });
    part
}

/// For each axis of a tensor, the indices that a rank has, in order.
pub(crate) fn axis_indices(placement: &Sharding, ty: &Type, mesh: &Mesh, rank: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (d, cut) in placement.spec.iter().enumerate() {
        let (parts, at) = (cut.num_shards(mesh), mesh.index(rank, &cut.mesh_axes(mesh)));
        let whole = [ty.shape[d]];
        let segments = if cut.segments.is_empty() { &whole[..] } else { &cut.segments };
        let (mut own, mut start) = (Vec::new(), 0);
        for s in segments {
            let each = s / parts;
            own.extend(start + at * each..start + (at + 1) * each);
            start += s;
        }
        if let Some((dim, axes)) = &placement.storage_sharding
            && *dim == d
        {
            let parts: usize = axes.iter().map(|a| a.size).product();
            let (each, at) = (own.len() / parts, mesh.index(rank, axes));
            own = own[at * each..(at + 1) * each].to_vec();
        }
        all.push(own);
    }
    all
}
