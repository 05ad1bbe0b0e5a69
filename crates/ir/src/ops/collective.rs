//! Collectives: computations of all ranks along named axes of a mesh.
//!
//! A value *varies* over an axis if its ranks may hold different values (`varying_axes.rs` infers it). The result of `psum` does
//! not vary; `pvary` marks a value as varying and costs nothing. They are each other's transpose: the cotangent of a replicated
//! value is replicated too, so it is the sum of the contributions of all ranks. Further pairs of transposes: `all_gather` and
//! `psum_scatter`; `all_gather {same}` and `ppart`.
//!
//! An op knows the sizes of its axes. Reductions process ranks in the order of their index along the axes, so every transport
//! and the interpreter give the same bits.

use super::*;
use crate::attr::Attr;
use crate::dtype::DType;
use crate::mesh::MeshAxis;
use crate::scalar::{Compare, Scalar};

/// The kind of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    /// The sum, replicated on all ranks.
    Sum,
    /// The maximum, replicated on all ranks.
    Max,
    /// The minimum, replicated on all ranks.
    Min,
    /// The value itself, marked as varying.
    PVary,
    /// The values of all ranks, concatenated along `dim`. With `same` the result is replicated; without, each rank
    /// has a separate copy, and the cotangents of the copies are summed.
    AllGather {
        /// The axis along which they are concatenated.
        dim: usize,
        /// Whether the result is replicated.
        same: bool,
        /// Distinguishes gathers of one value that must be repeated instead of merged.
        turn: usize,
    },
    /// The rank's shard of the sum along `dim` (reduce-scatter).
    ReduceScatter {
        /// The sharded axis.
        dim: usize,
    },
    /// The rank's shard of a replicated value along `dim`.
    ShardSlice {
        /// The sharded axis.
        dim: usize,
    },
    /// Sends part `i` along `split` to rank `i`, and concatenates the received parts along `join`.
    AllToAll {
        /// The axis that is split.
        split: usize,
        /// The axis of concatenation.
        join: usize,
    },
    /// Sends the value of rank `from` to rank `to`, for each pair; ranks that receive nothing have zeros.
    Permute {
        /// (from, to), as indices along the axes.
        pairs: Vec<(usize, usize)>,
    },
    /// The rank's index along the axes, an i32.
    AxisIndex,
}

/// A collective over axes of a mesh, inside a `shard_map`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// The kind of the collective.
    pub kind: CollectiveKind,
    /// The axes, in row-major order.
    pub axes: Vec<MeshAxis>,
}

use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, PVary, Permute, ReduceScatter, ShardSlice, Sum};

impl Collective {
    /// A collective.
    pub fn new(kind: CollectiveKind, axes: &[MeshAxis]) -> Collective {
        Collective { kind, axes: axes.to_vec() }
    }

    /// The number of ranks that take part.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Whether ranks communicate; other kinds are local.
    pub fn communicates(&self) -> bool {
        !matches!(self.kind, PVary | AxisIndex | ShardSlice { .. })
    }

    /// The bytes that each rank sends for an operand of this size, with the best ring algorithm.
    pub fn sent_bytes(&self, operand: usize) -> usize {
        let n = self.ranks();
        match &self.kind {
            Sum | Max | Min => 2 * operand * (n - 1) / n,
            AllGather { .. } => operand * (n - 1),
            ReduceScatter { .. } | AllToAll { .. } => operand * (n - 1) / n,
            Permute { pairs } => operand * pairs.iter().filter(|(a, b)| a != b).count() / n,
            PVary | AxisIndex | ShardSlice { .. } => 0,
        }
    }

    fn with(&self, kind: CollectiveKind) -> Op {
        Collective { kind, axes: self.axes.clone() }.into()
    }

    fn pairs(&self) -> &[(usize, usize)] {
        match &self.kind {
            Permute { pairs } => pairs,
            _ => &[],
        }
    }
}

fn scaled(ty: &Type, dim: usize, by: usize) -> std::result::Result<Type, InferError> {
    check_axis(dim, ty.rank())?;
    let mut shape = ty.shape.clone();
    shape[dim] = shape[dim].checked_mul(by).unwrap_or(usize::MAX);
    Type::checked(ty.dtype, &shape)
}

fn cut(ty: &Type, dim: usize, by: usize) -> std::result::Result<Type, InferError> {
    check_axis(dim, ty.rank())?;
    let mut shape = ty.shape.clone();
    if shape[dim] % by != 0 {
        return Err(InferError::other(format!("axis {dim} of {ty} cannot be split into {by} equal parts")));
    }
    shape[dim] /= by;
    Ok(ty.with_shape(&shape))
}

impl Rules for Collective {
    fn name(&self) -> &'static str {
        match &self.kind {
            Sum => "psum",
            Max => "pmax",
            Min => "pmin",
            PVary => "pvary",
            AllGather { .. } => "all_gather",
            ReduceScatter { .. } => "psum_scatter",
            ShardSlice { .. } => "ppart",
            AllToAll { .. } => "all_to_all",
            Permute { .. } => "ppermute",
            AxisIndex => "axis_index",
        }
    }

    fn attrs(&self) -> Attrs {
        let names = self.axes.iter().map(|a| Attr::Str(a.name.clone())).collect();
        let sizes: Vec<usize> = self.axes.iter().map(|a| a.size).collect();
        let mut attrs: Attrs = vec![("axes", Attr::List(names)), ("sizes", sizes.as_slice().into())];
        match &self.kind {
            Sum | Max | Min | PVary | AxisIndex => {}
            AllGather { dim, same, turn } => {
                attrs.extend([("dim", (*dim).into()), ("same", (*same).into()), ("turn", (*turn).into())])
            }
            ReduceScatter { dim } | ShardSlice { dim } => attrs.push(("dim", (*dim).into())),
            AllToAll { split, join } => attrs.extend([("split", (*split).into()), ("join", (*join).into())]),
            Permute { pairs } => {
                let flat: Vec<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
                attrs.push(("pairs", flat.as_slice().into()));
            }
        }
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        if self.axes.is_empty() || self.axes.iter().any(|a| a.size == 0) {
            return Err(InferError::other("names no axis of a mesh, or one without ranks"));
        }
        for (i, a) in self.axes.iter().enumerate() {
            if self.axes[..i].iter().any(|b| a.name == b.name) {
                return Err(InferError::other(format!("axis `{}` is named twice", a.name)));
            }
        }
        let n = self.axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.size));
        let n = n.filter(|n| *n <= 1 << 24).ok_or_else(|| InferError::other("a mesh has at most 16,777,216 ranks"))?;
        if self.kind == AxisIndex {
            arity(args, 0)?;
            return Ok(vec![Type::scalar(DType::I32)]);
        }
        arity(args, 1)?;
        let x = &args[0];
        Ok(vec![match &self.kind {
            Sum => {
                ReduceKind::Sum.check_dtype(x.dtype)?;
                x.clone()
            }
            Max | Min | PVary | AxisIndex => x.clone(),
            AllGather { dim, .. } => scaled(x, *dim, n)?,
            ReduceScatter { dim } => {
                ReduceKind::Sum.check_dtype(x.dtype)?;
                cut(x, *dim, n)?
            }
            ShardSlice { dim } => cut(x, *dim, n)?,
            AllToAll { split, join } => scaled(&cut(x, *split, n)?, *join, n)?,
            Permute { pairs } => {
                for (i, (from, to)) in pairs.iter().enumerate() {
                    if *from >= n || *to >= n {
                        return Err(InferError::other(format!("the pair {from} → {to} among {n} ranks")));
                    }
                    if pairs[..i].iter().any(|(a, b)| a == from || b == to) {
                        return Err(InferError::other(format!("{from} → {to}: a rank can send and receive only once")));
                    }
                }
                x.clone()
            }
        }])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(Some(d)) = dx.first().copied() else { return Ok(vec![None]) };
        if !matches!(self.kind, Max | Min) {
            return Ok(vec![Some(cx.one(self.clone().into(), &[d])?)]);
        }
        // Ranks that hold the extremum share its tangent equally.
        let own = cx.one(self.with(PVary), &[y[0]])?;
        let at = cx.compare(Compare::Eq, x[0], own)?;
        let dtype = cx.ty(x[0]).dtype;
        let weight = cx.cast(at, dtype)?;
        let picked = cx.mul(d, weight)?;
        let total = cx.one(self.with(Sum), &[picked])?;
        let count = cx.one(self.with(Sum), &[weight])?;
        Ok(vec![Some(cx.div(total, count)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        let back = match &self.kind {
            Sum => PVary,
            PVary => Sum,
            AllGather { dim, same: false, .. } => ReduceScatter { dim: *dim },
            AllGather { dim, same: true, .. } => ShardSlice { dim: *dim },
            ReduceScatter { dim } => AllGather { dim: *dim, same: false, turn: 0 },
            ShardSlice { dim } => AllGather { dim: *dim, same: true, turn: 0 },
            AllToAll { split, join } => AllToAll { split: *join, join: *split },
            Permute { .. } => Permute { pairs: self.pairs().iter().map(|&(from, to)| (to, from)).collect() },
            Max | Min | AxisIndex => return not_linear(self),
        };
        if !args[0].is_linear() {
            return not_linear(self);
        }
        Ok(vec![Some(cx.one(self.with(back), &[c])?)])
    }

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let kind = match &self.kind {
            AllGather { dim, same, turn } => AllGather { dim: dim + 1, same: *same, turn: *turn },
            ReduceScatter { dim } => ReduceScatter { dim: dim + 1 },
            ShardSlice { dim } => ShardSlice { dim: dim + 1 },
            AllToAll { split, join } => AllToAll { split: split + 1, join: join + 1 },
            Sum | Max | Min | PVary | Permute { .. } | AxisIndex => self.kind.clone(),
        };
        Ok(vec![(cx.one(self.with(kind), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.kind {
            Max | Min => SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0]) },
            _ => SavedForBackward::none(),
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        match self.kind {
            // Partial sums of low-precision products are added in f32, like those inside a product.
            Sum | ReduceScatter { .. } | AxisIndex => AutocastRule::Fp32,
            Max | Min | PVary | AllGather { .. } | ShardSlice { .. } | AllToAll { .. } | Permute { .. } => {
                AutocastRule::Promote
            }
        }
    }

    fn semantics(&self) -> Semantics {
        match self.kind {
            PVary => Semantics::Elementwise(Expr::Arg(0)),
            _ => Semantics::Opaque,
        }
    }

    /// The interpreter computes it only for a group of one rank.
    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        if self.ranks() != 1 {
            let axes: Vec<String> = self.axes.iter().map(|a| format!("`{}`", a.name)).collect();
            return Err(Error::Run(format!(
                "{} over {} needs {} ranks: call it inside a `shard_map`, or run the program with a communicator",
                self.name(),
                axes.join(", "),
                self.ranks()
            )));
        }
        Ok(match &self.kind {
            AxisIndex => vec![Literal::scalar(Scalar::zero(DType::I32))],
            Permute { pairs } if pairs.is_empty() => vec![Literal::zeros(args[0].ty().clone())],
            _ => vec![args[0].clone()],
        })
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Collective>> {
        let names = [
            "psum",
            "pmax",
            "pmin",
            "pvary",
            "all_gather",
            "psum_scatter",
            "ppart",
            "all_to_all",
            "ppermute",
            "axis_index",
        ];
        names.contains(&name).then(|| {
            let list = attrs.take("axes");
            let sizes: Vec<usize> = attrs.usizes("sizes")?;
            let words = match list {
                Some(Attr::List(words)) => words,
                _ => return Err("attribute `axes` must be a list of names".to_string()),
            };
            if words.len() != sizes.len() {
                return Err("`axes` and `sizes` must be of one length".to_string());
            }
            let mut axes = Vec::new();
            for (word, size) in words.into_iter().zip(sizes) {
                match word {
                    Attr::Str(name) => axes.push(MeshAxis { name, size }),
                    _ => return Err("an axis of a mesh is a quoted string".to_string()),
                }
            }
            let kind = match name {
                "psum" => Sum,
                "pmax" => Max,
                "pmin" => Min,
                "pvary" => PVary,
                "all_gather" => {
                    AllGather { dim: attrs.usize("dim")?, same: attrs.bool("same")?, turn: attrs.usize("turn")? }
                }
                "psum_scatter" => ReduceScatter { dim: attrs.usize("dim")? },
                "ppart" => ShardSlice { dim: attrs.usize("dim")? },
                "all_to_all" => AllToAll { split: attrs.usize("split")?, join: attrs.usize("join")? },
                "ppermute" => {
                    let flat: Vec<usize> = attrs.usizes("pairs")?;
                    if flat.len() % 2 != 0 {
                        return Err("attribute `pairs` lists two ranks for each pair".to_string());
                    }
                    Permute { pairs: flat.chunks(2).map(|p| (p[0], p[1])).collect() }
                }
                _ => AxisIndex,
            };
            Ok(Collective { kind, axes })
        })
    }
}
