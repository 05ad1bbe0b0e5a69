//! How parameters lie on the ranks of a mesh: `@shard` says which axis of a parameter is cut, the mesh by how much.

use ir::{Graph, Mesh, Type};
use lang::lower::{Parameter, Shard};
use train::places::each_run;
use transform::{Cut, Placement};

/// What is known of an input of a graph that is a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) shard: Option<Shard>,
    pub(crate) stacked: bool,
}

impl About {
    /// Of a parameter.
    pub(crate) fn of(param: &Parameter) -> About {
        About { shard: param.shard, stacked: param.stacked }
    }
}

/// How input `i` of a graph is cut: columns, rows and heads by `tp`, experts by `ep`, or by `tp` where the mesh has no `ep`.
/// What can't be cut into equal parts stays whole.
pub(crate) fn by_shard(mesh: &Mesh, graph: &Graph, i: usize, about: About) -> Placement {
    let ty = graph.ty(graph.inputs()[i]);
    let axis = |name: &str| mesh.axes().iter().position(|a| a.name == name && a.size > 1);
    let mut placement = Placement { layout: vec![Cut::default(); ty.rank()], stored: None };
    let first = usize::from(about.stacked);
    let (dim, by) = match about.shard {
        Some(Shard::Column | Shard::Head) => (Some(first), axis("tp")),
        Some(Shard::Row) => (ty.rank().checked_sub(1).filter(|d| *d > first), axis("tp")),
        Some(Shard::Expert) => (Some(first), axis("ep").or(axis("tp"))),
        Some(Shard::Replicated) | None => (None, None),
    };
    if let (Some(dim), Some(by)) = (dim.filter(|d| *d < ty.rank()), by) {
        let cut = Cut { axes: vec![by], segments: transform::segments(graph, i, dim) };
        if cut.fits(mesh, ty.shape[dim]) {
            placement.layout[dim] = cut;
        }
    }
    placement
}

/// A rank's part of a whole tensor.
pub(crate) fn part(placement: &Placement, ty: &Type, mesh: &Mesh, rank: usize, whole: &[u8]) -> Vec<u8> {
    let mut part = vec![0; placement.local(mesh, ty).bytes()];
    let size = ty.dtype.size();
    each_run(&places(placement, ty, mesh, rank), ty, |at, own, n| {
        part[own * size..(own + n) * size].copy_from_slice(&whole[at * size..(at + n) * size]);
    });
    part
}

/// For each axis of a tensor, which of its indices a rank has, in order.
pub(crate) fn places(placement: &Placement, ty: &Type, mesh: &Mesh, rank: usize) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (d, cut) in placement.layout.iter().enumerate() {
        let (parts, at) = (cut.parts(mesh), mesh.index(rank, &cut.mesh_axes(mesh)));
        let whole = [ty.shape[d]];
        let segments = if cut.segments.is_empty() { &whole[..] } else { &cut.segments };
        let (mut own, mut start) = (Vec::new(), 0);
        for s in segments {
            let each = s / parts;
            own.extend(start + at * each..start + (at + 1) * each);
            start += s;
        }
        if let Some((dim, axes)) = &placement.stored
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
