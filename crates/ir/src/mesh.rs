//! A device mesh: ranks in a grid with named axes, and the sharding of tensors over it.

use crate::error::InferError;
use crate::types::{Shape, Type};
use std::fmt;

/// A named axis of a mesh with its size. Collectives contain it, so that types can be inferred from the op alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeshAxis {
    /// The name.
    pub name: String,
    /// The number of ranks along it.
    pub size: usize,
}

impl MeshAxis {
    /// An axis with this name and size.
    pub fn new(name: &str, size: usize) -> MeshAxis {
        MeshAxis { name: name.to_string(), size }
    }
}

impl fmt::Display for MeshAxis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.size)
    }
}

/// Ranks in a grid, numbered in row-major order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mesh {
    axes: Vec<MeshAxis>,
}

/// A set of mesh axes, one bit per axis in the mesh's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AxisSet(pub u32);

impl AxisSet {
    /// Whether it is a superset of `other`.
    pub fn contains_all(self, other: AxisSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// The union of both sets.
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The axes that are not in `other`.
    pub fn difference(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// The axes in both sets.
    pub fn intersection(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Mesh {
    /// A mesh with these axes; names must be distinct words, sizes at least 1.
    pub fn new<S: AsRef<str>>(axes: &[(S, usize)]) -> Result<Mesh, InferError> {
        let mut mesh = Mesh::default();
        for (name, size) in axes {
            let name = name.as_ref();
            let mut letters = name.chars();
            let word = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !word {
                return Err(InferError::other(format!(
                    "`{name}` is not a valid name of a mesh axis; use letters, digits and _"
                )));
            }
            if *size == 0 {
                return Err(InferError::other(format!(
                    "axis `{name}` of a mesh has size 0; it must have at least one rank"
                )));
            }
            if mesh.axes.iter().any(|a| a.name == name) {
                return Err(InferError::other(format!("axis `{name}` is named twice in a mesh")));
            }
            mesh.axes.push(MeshAxis::new(name, *size));
        }
        let ranks = mesh.axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.size));
        match ranks {
            Some(n) if mesh.axes.len() <= 32 && n <= 1 << 24 => Ok(mesh),
            _ => Err(InferError::other("a mesh has at most 32 axes and 16,777,216 ranks")),
        }
    }

    /// Parses `dp=2,tp=4`.
    pub fn parse(text: &str) -> Result<Mesh, InferError> {
        let mut axes = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let size = part.split_once('=').and_then(|(name, size)| Some((name.trim(), size.trim().parse().ok()?)));
            axes.push(size.ok_or_else(|| {
                InferError::other(format!(
                    "`{part}` is not a valid mesh axis; write a name and a size, as in `dp=2,tp=4`"
                ))
            })?);
        }
        Mesh::new(&axes)
    }

    /// The axes in order.
    pub fn axes(&self) -> &[MeshAxis] {
        &self.axes
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// The axis with this name.
    pub fn axis(&self, name: &str) -> Option<&MeshAxis> {
        self.axes.iter().find(|a| a.name == name)
    }

    /// The set of these axes; an error if the mesh lacks one of them or has it with another size.
    pub fn set(&self, axes: &[MeshAxis]) -> Result<AxisSet, InferError> {
        let mut set = AxisSet::default();
        for axis in axes {
            let at = self
                .axes
                .iter()
                .position(|a| a.name == axis.name)
                .ok_or_else(|| InferError::other(format!("axis `{}` is not in the mesh {self}", axis.name)))?;
            if self.axes[at] != *axis {
                return Err(InferError::other(format!(
                    "axis `{}` has {} ranks here, but {} in the mesh {self}",
                    axis.name, axis.size, self.axes[at].size
                )));
            }
            set = set.union(AxisSet(1 << at));
        }
        Ok(set)
    }

    /// The axes of a set, in the mesh's order.
    pub fn axes_in(&self, set: AxisSet) -> Vec<MeshAxis> {
        (0..self.axes.len()).filter(|i| set.0 >> i & 1 == 1).map(|i| self.axes[i].clone()).collect()
    }

    /// The coordinate of a rank along an axis; 0 along an axis of another mesh.
    pub fn coordinate(&self, rank: usize, name: &str) -> usize {
        let mut left = rank;
        for a in self.axes.iter().rev() {
            if a.name == name {
                return left % a.size;
            }
            left /= a.size;
        }
        0
    }

    /// The index of a rank among the ranks along these axes, in row-major order.
    pub fn index(&self, rank: usize, axes: &[MeshAxis]) -> usize {
        axes.iter().fold(0, |at, a| at * a.size + self.coordinate(rank, &a.name))
    }

    /// The ranks that differ from `rank` only along these axes, including itself, in the order of [`Mesh::index`].
    pub fn group(&self, rank: usize, axes: &[MeshAxis]) -> Vec<usize> {
        let named = |name: &str| axes.iter().any(|a| a.name == name);
        let same = |other: usize| {
            self.axes
                .iter()
                .filter(|a| !named(&a.name))
                .all(|a| self.coordinate(other, &a.name) == self.coordinate(rank, &a.name))
        };
        let mut group: Vec<usize> = (0..self.ranks()).filter(|&r| same(r)).collect();
        group.sort_by_key(|&r| self.index(r, axes));
        group
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(MeshAxis::to_string).collect();
        f.write_str(&axes.join(","))
    }
}

/// The sharding of a tensor, like JAX's `PartitionSpec`: for each of its axes, the mesh axes that shard it, in row-major order. The
/// tensor is replicated along all other mesh axes. A spec that is shorter than the tensor's rank leaves the remaining axes
/// unsharded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spec(pub Vec<Vec<String>>);

impl Spec {
    /// Replicated on every rank.
    pub fn replicated() -> Spec {
        Spec::default()
    }

    /// One axis of the tensor sharded over one axis of the mesh.
    pub fn shard_dim(dim: usize, axis: &str) -> Spec {
        let mut dims = vec![Vec::new(); dim];
        dims.push(vec![axis.to_string()]);
        Spec(dims)
    }

    /// The names of the mesh axes that shard an axis of the tensor.
    pub fn names(&self, dim: usize) -> &[String] {
        self.0.get(dim).map_or(&[], |n| n)
    }

    /// The mesh axes that shard an axis of the tensor, with their sizes.
    pub fn mesh_axes(&self, mesh: &Mesh, dim: usize) -> Vec<MeshAxis> {
        self.names(dim).iter().filter_map(|n| mesh.axis(n).cloned()).collect()
    }

    /// The set of all its mesh axes; each may occur once.
    pub fn set(&self, mesh: &Mesh) -> Result<AxisSet, InferError> {
        let mut set = AxisSet::default();
        for name in self.0.iter().flatten() {
            let at = mesh.axes.iter().position(|a| a.name == *name).ok_or_else(|| {
                InferError::other(format!("a sharding names `{name}`, which is not in the mesh {mesh}"))
            })?;
            if set.contains_all(AxisSet(1 << at)) {
                return Err(InferError::other(format!("a sharding uses the mesh axis `{name}` twice")));
            }
            set = set.union(AxisSet(1 << at));
        }
        Ok(set)
    }

    /// The type of one rank's shard.
    pub fn local_type(&self, mesh: &Mesh, ty: &Type) -> Result<Type, InferError> {
        self.set(mesh)?;
        if self.0.len() > ty.rank() && self.0[ty.rank()..].iter().any(|n| !n.is_empty()) {
            return Err(InferError::other(format!("a sharding of {} axes for {ty}", self.0.len())));
        }
        let mut shape: Shape = ty.shape.clone();
        for (dim, size) in shape.iter_mut().enumerate() {
            let parts: usize = self.mesh_axes(mesh, dim).iter().map(|a| a.size).product();
            if *size % parts != 0 {
                return Err(InferError::other(format!(
                    "axis {dim} of {ty} cannot be sharded into {parts} equal parts by {}",
                    self.names(dim).join(", ")
                )));
            }
            *size /= parts;
        }
        Ok(ty.with_shape(&shape))
    }

    /// The type of the whole tensor, given the type of a shard.
    pub fn global_type(&self, mesh: &Mesh, ty: &Type) -> Result<Type, InferError> {
        let mut shape = ty.shape.clone();
        for (dim, size) in shape.iter_mut().enumerate() {
            let parts: usize = self.mesh_axes(mesh, dim).iter().map(|a| a.size).product();
            *size = size.checked_mul(parts).unwrap_or(usize::MAX);
        }
        Type::checked(ty.dtype, &shape)
    }

    /// The range of each axis that a rank has: (start, length).
    pub fn shard_range(&self, mesh: &Mesh, ty: &Type, rank: usize) -> Result<Vec<(usize, usize)>, InferError> {
        let local = self.local_type(mesh, ty)?;
        let place = |(dim, n): (usize, &usize)| (mesh.index(rank, &self.mesh_axes(mesh, dim)) * n, *n);
        Ok(local.shape.iter().enumerate().map(place).collect())
    }

    /// The spec of a tensor with one more leading axis.
    pub fn batched(&self) -> Spec {
        Spec(std::iter::once(Vec::new()).chain(self.0.iter().cloned()).collect())
    }

    /// Removes empty entries at the end, so that equal shardings compare equal.
    pub fn trimmed(mut self) -> Spec {
        while self.0.last().is_some_and(Vec::is_empty) {
            self.0.pop();
        }
        self
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> =
            self.0.iter().map(|n| if n.is_empty() { "-".to_string() } else { n.join("+") }).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}
