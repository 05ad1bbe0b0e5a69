//! Tensors in parts: a part for each rank of a mesh, on the device that is the rank's.

use super::{Mesh, Spec, Specs};
use crate::function::call_error;
use crate::{Result, Tensor, Tree, record};
use std::collections::BTreeMap;

/// How tensors lie on the ranks of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// The ranks.
    pub mesh: Mesh,
    /// How tensors are cut.
    pub spec: Spec,
}

impl Sharding {
    /// A sharding, as `Sharding::new(&mesh, "dp, tp")`.
    #[track_caller]
    pub fn new(mesh: &Mesh, spec: impl Into<Specs>) -> Result<Sharding> {
        let spec = spec.into().single().map_err(|text| record::error("Sharding::new", text))?;
        spec.set(mesh).map_err(|p| record::error("Sharding::new", p.to_string()))?;
        Ok(Sharding { mesh: mesh.clone(), spec })
    }
}

/// Where [`crate::device_put`] puts a tree: the number of a device, or a [`Sharding`].
pub trait DevicePutTarget<T> {
    /// What comes of it.
    type Out;

    /// Puts it there.
    fn put(self, tree: T) -> Self::Out;
}

impl<T: Tree> DevicePutTarget<T> for usize {
    type Out = T;

    #[track_caller]
    fn put(self, tree: T) -> T {
        tree.map(|t| t.to(self))
    }
}

impl<T: Tree> DevicePutTarget<T> for &Sharding {
    type Out = Sharded<T>;

    /// Parts of all tensors, one for each rank; those of a rank lie on the device of its number, counted around.
    #[track_caller]
    fn put(self, tree: T) -> Sharded<T> {
        let devices = crate::devices().len().max(1);
        let parts = (0..self.mesh.ranks()).map(|rank| tree.map(|t| part(t, self, rank, devices))).collect();
        Sharded { sharding: self.clone(), parts }
    }
}

#[track_caller]
fn part(t: &Tensor, sharding: &Sharding, rank: usize, devices: usize) -> Tensor {
    if let Some(e) = t.error() {
        return Tensor::from_error(e);
    }
    let place = match sharding.spec.shard_range(&sharding.mesh, t.ty(), rank) {
        Ok(place) => place,
        Err(p) => return Tensor::from_error(call_error("device_put", p.to_string(), &record::place())),
    };
    let own = place.iter().enumerate().fold(t.clone(), |t, (axis, &(start, n))| {
        if n == t.shape()[axis] { t } else { t.slice(axis as isize, start as isize, (start + n) as isize, 1) }
    });
    if devices > 1 { own.to(rank % devices) } else { own }
}

/// A tree of tensors in parts.
///
/// ```
/// use tensorloom::{Mesh, Sharding, arange, device_put};
///
/// let mesh = Mesh::parse("dp=2,tp=2")?;
/// let x = device_put(arange(8).reshape((2, 4)), &Sharding::new(&mesh, "dp, tp")?);
/// assert_eq!(x.part(3).to_vec::<i64>()?, [6, 7]);
/// let doubled = x.map(|part| part * 2);
/// assert_eq!(doubled.whole()?.to_vec::<i64>()?, [0, 2, 4, 6, 8, 10, 12, 14]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sharded<T> {
    sharding: Sharding,
    parts: Vec<T>,
}

impl<T: Tree> Sharded<T> {
    /// How it is cut.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// A rank's part.
    pub fn part(&self, rank: usize) -> &T {
        &self.parts[rank]
    }

    /// All parts, by rank.
    pub fn parts(&self) -> &[T] {
        &self.parts
    }

    /// Each tensor of each part by itself; results are cut alike.
    #[track_caller]
    pub fn map(&self, mut f: impl FnMut(&Tensor) -> Tensor) -> Sharded<T> {
        let parts = self.parts.iter().map(|p| p.map(&mut f)).collect();
        Sharded { sharding: self.sharding.clone(), parts }
    }

    /// The whole, on the device of rank 0; parts that should be the same are taken from the first rank that has them.
    #[track_caller]
    pub fn whole(&self) -> Result<T> {
        let _here = record::here();
        let leaves: Vec<Vec<Tensor>> = self.parts.iter().map(Tree::leaves).collect();
        let mut wholes = Vec::new();
        for leaf in 0..leaves[0].len() {
            let own: Vec<Tensor> = leaves.iter().map(|l| l[leaf].clone()).collect();
            wholes.push(self.joined(own)?);
        }
        let mut next = wholes.into_iter();
        Ok(self.parts[0].rebuild(&mut || next.next().expect("one for each leaf")))
    }

    /// Parts side by side, one axis of the tensor after another.
    #[track_caller]
    fn joined(&self, parts: Vec<Tensor>) -> Result<Tensor> {
        let Sharding { mesh, spec } = &self.sharding;
        if let Some(e) = parts.iter().find_map(|t| t.error()) {
            return Err(e);
        }
        let ty = spec.global_type(mesh, parts[0].ty()).map_err(|p| record::error("whole", p.to_string()))?;
        let mut found: BTreeMap<Vec<usize>, Tensor> = BTreeMap::new();
        for (rank, part) in parts.iter().enumerate() {
            let place = spec.shard_range(mesh, &ty, rank).map_err(|p| record::error("whole", p.to_string()))?;
            let start: Vec<usize> = place.iter().map(|p| p.0).collect();
            let here = || if crate::devices().len() > 1 { part.to(0) } else { part.clone() };
            found.entry(start).or_insert_with(here);
        }
        // The last axis first: what shares the start along all others lies side by side.
        for axis in (0..ty.rank()).rev() {
            let mut rows: BTreeMap<Vec<usize>, Vec<Tensor>> = BTreeMap::new();
            for (start, t) in found {
                rows.entry(start[..axis].to_vec()).or_default().push(t);
            }
            let join = |all: Vec<Tensor>| match &all[..] {
                [one] => one.clone(),
                _ => Tensor::concat(&all.iter().collect::<Vec<_>>(), axis as isize),
            };
            found = rows.into_iter().map(|(start, all)| (start, join(all))).collect();
        }
        let whole = found.into_values().next().unwrap_or_else(|| parts[0].clone());
        whole.check()?;
        Ok(whole)
    }
}
