//! How a value lies on a mesh while a graph is divided.

use ir::{AxisSet, Mesh, MeshAxis, Spec, Type, Value};

/// How one axis of a tensor is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DimSharding {
    /// Axes of the mesh, by number; none leaves it whole.
    pub axes: Vec<usize>,
    /// Parts that are cut each by itself, as of a weight that holds several side by side; none is one.
    pub segments: Vec<usize>,
}

impl DimSharding {
    /// A cut by axes of a mesh.
    pub fn over_axes(axes: Vec<usize>) -> DimSharding {
        DimSharding { axes, segments: Vec::new() }
    }

    /// Whether it leaves its axis whole.
    pub fn is_replicated(&self) -> bool {
        self.axes.is_empty()
    }

    /// How many ranks share the axis.
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

    /// Whether an axis of this size can be cut so.
    pub fn divides(&self, mesh: &Mesh, size: usize) -> bool {
        let n = self.num_shards(mesh);
        match self.segments.is_empty() {
            true => size.is_multiple_of(n),
            false => self.segments.iter().sum::<usize>() == size && self.segments.iter().all(|s| s.is_multiple_of(n)),
        }
    }
}

/// How a tensor is cut, axis by axis.
pub type PartitionSpec = Vec<DimSharding>;

/// A layout without cuts.
pub(super) fn replicated(rank: usize) -> PartitionSpec {
    vec![DimSharding::default(); rank]
}

/// The axes that a layout uses.
pub(super) fn used_axes(layout: &[DimSharding]) -> AxisSet {
    layout.iter().fold(AxisSet::default(), |s, c| s.union(c.set()))
}

/// Whether a cut's axes are free in a set of used ones.
pub(super) fn has_free_axes(cut: &DimSharding, used: AxisSet) -> bool {
    cut.set().intersection(used).is_empty()
}

/// The layout that a sharding says.
pub(super) fn of_spec(mesh: &Mesh, spec: &Spec, rank: usize) -> PartitionSpec {
    let axis = |name: &String| mesh.axes().iter().position(|a| a.name == *name);
    (0..rank).map(|d| DimSharding::over_axes(spec.names(d).iter().filter_map(axis).collect())).collect()
}

/// The sharding that a layout says; segments are forgotten.
pub(super) fn to_spec(mesh: &Mesh, layout: &[DimSharding]) -> Spec {
    let names = |c: &DimSharding| c.axes.iter().map(|&a| mesh.axes()[a].name.clone()).collect();
    Spec(layout.iter().map(names).collect()).trimmed()
}

/// The type of a part.
pub(super) fn local_type(mesh: &Mesh, ty: &Type, layout: &[DimSharding]) -> Type {
    let shape: Vec<usize> = ty.shape.iter().zip(layout).map(|(n, c)| n / c.num_shards(mesh)).collect();
    ty.with_shape(&shape)
}

/// A value of the divided graph.
#[derive(Clone, Debug)]
pub(super) struct ShardedValue {
    /// A rank's part.
    pub value: Value,
    /// The type of the whole.
    pub ty: Type,
    /// How it is cut.
    pub spec: PartitionSpec,
}
