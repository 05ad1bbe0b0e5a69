//! The sharding of a value over a mesh during partitioning.

use ir::{AxisSet, Mesh, MeshAxis, Spec, Type, Value};

/// The sharding of one axis of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DimSharding {
    /// Mesh axes, by number; replicated if empty.
    pub axes: Vec<usize>,
    /// Sizes of segments that are sharded separately, such as the parts of a fused weight; empty for one segment.
    pub segments: Vec<usize>,
}

impl DimSharding {
    /// A sharding over mesh axes.
    pub fn over_axes(axes: Vec<usize>) -> DimSharding {
        DimSharding { axes, segments: Vec::new() }
    }

    /// Whether the axis is replicated.
    pub fn is_replicated(&self) -> bool {
        self.axes.is_empty()
    }

    /// The number of shards.
    pub fn num_shards(&self, mesh: &Mesh) -> usize {
        self.axes.iter().map(|&a| mesh.axes()[a].size).product()
    }

    /// The axes with their names.
    pub fn mesh_axes(&self, mesh: &Mesh) -> Vec<MeshAxis> {
        self.axes.iter().map(|&a| mesh.axes()[a].clone()).collect()
    }

    fn set(&self) -> AxisSet {
        AxisSet(self.axes.iter().fold(0, |s, a| s | 1 << a))
    }

    /// Whether an axis of this size is divisible into such shards.
    pub fn divides(&self, mesh: &Mesh, size: usize) -> bool {
        let n = self.num_shards(mesh);
        match self.segments.is_empty() {
            true => size.is_multiple_of(n),
            false => self.segments.iter().sum::<usize>() == size && self.segments.iter().all(|s| s.is_multiple_of(n)),
        }
    }
}

/// The sharding of a tensor, axis by axis.
pub type PartitionSpec = Vec<DimSharding>;

/// A fully replicated sharding.
pub(super) fn replicated(rank: usize) -> PartitionSpec {
    vec![DimSharding::default(); rank]
}

/// The mesh axes that a sharding uses.
pub(super) fn used_axes(layout: &[DimSharding]) -> AxisSet {
    layout.iter().fold(AxisSet::default(), |s, c| s.union(c.set()))
}

/// Whether none of a sharding's mesh axes is in a set of used ones.
pub(super) fn has_free_axes(cut: &DimSharding, used: AxisSet) -> bool {
    cut.set().intersection(used).is_empty()
}

/// Converts from a `Spec`.
pub(super) fn of_spec(mesh: &Mesh, spec: &Spec, rank: usize) -> PartitionSpec {
    let axis = |name: &String| mesh.axes().iter().position(|a| a.name == *name);
    (0..rank).map(|d| DimSharding::over_axes(spec.names(d).iter().filter_map(axis).collect())).collect()
}

/// Converts to a `Spec`; segments are dropped.
pub(super) fn to_spec(mesh: &Mesh, layout: &[DimSharding]) -> Spec {
    let names = |c: &DimSharding| c.axes.iter().map(|&a| mesh.axes()[a].name.clone()).collect();
    Spec(layout.iter().map(names).collect()).trimmed()
}

/// The type of a shard.
pub(super) fn local_type(mesh: &Mesh, ty: &Type, layout: &[DimSharding]) -> Type {
    let shape: Vec<usize> = ty.shape.iter().zip(layout).map(|(n, c)| n / c.num_shards(mesh)).collect();
    ty.with_shape(&shape)
}

/// A value of the partitioned graph.
#[derive(Clone, Debug)]
pub(super) struct ShardedValue {
    /// The shard of a rank.
    pub value: Value,
    /// The type of the whole tensor.
    pub ty: Type,
    /// Its sharding.
    pub spec: PartitionSpec,
}
