//! Iteration spaces: the loop variables of a kernel and the mapping from them to the axes of its domain.

use super::generate::Index;
use super::index::{AffineIndex, Atoms, SpaceRefinement};
use smallvec::SmallVec;

/// One axis of a group's domain as an affine form of loop variables: `start + Σ stride · var`.
#[derive(Clone, Debug, PartialEq)]
struct DomainAxis {
    start: i64,
    parts: SmallVec<[(usize, i64); 2]>,
}

/// A rectangular part of the domain with its loop variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IterationSpace {
    /// Extent of each variable.
    pub(crate) extents: Vec<i64>,
    /// The variables that belong to reduced axes, as a bit set.
    pub(crate) reduced: u64,
    axes: Vec<DomainAxis>,
    /// Whether each axis is removed by the reductions.
    red_axes: Vec<bool>,
}

impl IterationSpace {
    /// The whole domain, with one variable for each axis that is longer than 1.
    pub(crate) fn new(shape: &[usize], red: &[usize]) -> IterationSpace {
        let mut s = IterationSpace {
            extents: Vec::new(),
            reduced: 0,
            axes: Vec::new(),
            red_axes: (0..shape.len()).map(|a| red.contains(&a)).collect(),
        };
        for (a, &n) in shape.iter().enumerate() {
            let mut parts = SmallVec::new();
            if n != 1 {
                if s.red_axes[a] {
                    s.reduced |= 1 << s.extents.len();
                }
                parts.push((s.extents.len(), 1));
                s.extents.push(n as i64);
            }
            s.axes.push(DomainAxis { start: 0, parts });
        }
        s
    }

    /// The element's index as forms over this space's variables.
    pub(crate) fn index(&self, atoms: &mut Atoms) -> (Index, Index) {
        let mut full = Index::new();
        for axis in &self.axes {
            let mut lin = AffineIndex::constant(axis.start);
            for &(v, stride) in &axis.parts {
                let a = atoms.var(v, self.extents[v]);
                lin = lin.add(&AffineIndex::atom(a).scale(stride));
            }
            full.push(lin);
        }
        let row = (full.iter().zip(&self.red_axes)).filter(|(_, r)| !**r).map(|(l, _)| l.clone()).collect();
        (full, row)
    }

    /// The spaces that replace this one after a refinement.
    pub(crate) fn refined(&self, r: SpaceRefinement) -> Vec<IterationSpace> {
        match r {
            SpaceRefinement::Split { var, inner } => {
                let mut s = self.clone();
                // The inner part becomes a new variable directly after the outer one, so that loop order follows memory order.
                let outer_extent = s.extents[var] / inner;
                for axis in &mut s.axes {
                    for p in &mut axis.parts {
                        if p.0 > var {
                            p.0 += 1;
                        }
                    }
                    if let Some(k) = axis.parts.iter().position(|p| p.0 == var) {
                        let stride = axis.parts[k].1;
                        axis.parts[k].1 = stride * inner;
                        axis.parts.insert(k + 1, (var + 1, stride));
                    }
                }
                s.extents[var] = outer_extent;
                s.extents.insert(var + 1, inner);
                let below = s.reduced & ((1 << (var + 1)) - 1);
                let above = s.reduced & !((1 << (var + 1)) - 1);
                let same = s.reduced >> var & 1;
                s.reduced = below | (above << 1) | (same << (var + 1));
                vec![s]
            }
            SpaceRefinement::SplitRange { var, at } => {
                let mut low = self.clone();
                let mut high = self.clone();
                low.extents[var] = at;
                high.extents[var] = self.extents[var] - at;
                for axis in &mut high.axes {
                    if let Some(p) = axis.parts.iter().find(|p| p.0 == var) {
                        axis.start += p.1 * at;
                    }
                }
                vec![low, high]
            }
        }
    }

    /// Number of elements.
    pub(crate) fn numel(&self) -> i64 {
        self.extents.iter().product()
    }
}
