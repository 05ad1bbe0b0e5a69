//! Collectives: what ranks along named axes of a mesh compute together.
//!
//! A value *varies* over an axis if its ranks may hold different ones (`vary.rs` says which do). `psum` ends that; `pvary`
//! begins it and costs nothing. They are each other's transpose: the cotangent of a value that all ranks share is one that
//! all ranks share, so it is the sum of what each rank's use of it gives. In pairs too: `all_gather` and `psum_scatter`;
//! `all_gather {same}` and `ppart`.
//!
//! An op knows the sizes of its axes. Reductions take ranks in the order of their number along the axes, so every transport
//! and the interpreter give the same bits.

use super::*;
use crate::attr::Attr;
use crate::dtype::DType;
use crate::mesh::MeshAxis;
use crate::scalar::{Compare, Scalar};

/// What a collective does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    /// The sum, the same on all.
    Sum,
    /// The largest, the same on all.
    Max,
    /// The smallest, the same on all.
    Min,
    /// The value itself, from now on each rank's own.
    Vary,
    /// Everyone's values side by side along `dim`. With `same` the result counts as one that all share; without, each rank
    /// has a copy of its own, whose cotangents are summed.
    Gather {
        /// Where they are joined.
        dim: usize,
        /// Whether it is one value for all.
        same: bool,
        /// Distinguishes gathers of one value that are to happen again rather than be kept.
        turn: usize,
    },
    /// The sum's part along `dim` that is the rank's.
    SumScatter {
        /// Where it is cut.
        dim: usize,
    },
    /// The rank's part along `dim` of a value that all share.
    Part {
        /// Where it is cut.
        dim: usize,
    },
    /// Part `i` along `split` goes to rank `i`; what comes is joined along `join`.
    AllToAll {
        /// Where it is cut.
        split: usize,
        /// Where it is joined.
        join: usize,
    },
    /// The value of rank `from` goes to rank `to`, for each pair; who gets none has zeros.
    Permute {
        /// (from, to), by number along the axes.
        pairs: Vec<(usize, usize)>,
    },
    /// The rank's number along the axes, an i32.
    Index,
}

/// A collective over axes of a mesh, inside of a `shard_map`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collective {
    /// What it does.
    pub kind: CollectiveKind,
    /// The axes, the last of which runs fastest.
    pub axes: Vec<MeshAxis>,
}

use CollectiveKind::{AllToAll, Gather as AllGather, Index, Max, Min, Part, Permute, Sum, SumScatter, Vary};

impl Collective {
    /// A collective.
    pub fn new(kind: CollectiveKind, axes: &[MeshAxis]) -> Collective {
        Collective { kind, axes: axes.to_vec() }
    }

    /// How many ranks take part.
    pub fn ranks(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Whether ranks talk to each other; the others are local.
    pub fn talks(&self) -> bool {
        !matches!(self.kind, Vary | Index | Part { .. })
    }

    /// Bytes that each rank sends for an operand of so many: what the best ring does too.
    pub fn sent_bytes(&self, operand: usize) -> usize {
        let n = self.ranks();
        match &self.kind {
            Sum | Max | Min => 2 * operand * (n - 1) / n,
            AllGather { .. } => operand * (n - 1),
            SumScatter { .. } | AllToAll { .. } => operand * (n - 1) / n,
            Permute { pairs } => operand * pairs.iter().filter(|(a, b)| a != b).count() / n,
            Vary | Index | Part { .. } => 0,
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

fn scaled(ty: &Type, dim: usize, by: usize) -> std::result::Result<Type, Problem> {
    check_axis(dim, ty.rank())?;
    let mut shape = ty.shape.clone();
    shape[dim] = shape[dim].checked_mul(by).unwrap_or(usize::MAX);
    Type::checked(ty.dtype, &shape)
}

fn cut(ty: &Type, dim: usize, by: usize) -> std::result::Result<Type, Problem> {
    check_axis(dim, ty.rank())?;
    let mut shape = ty.shape.clone();
    if shape[dim] % by != 0 {
        return Err(Problem::other(format!("axis {dim} of {ty} cannot be split into {by} equal parts")));
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
            Vary => "pvary",
            AllGather { .. } => "all_gather",
            SumScatter { .. } => "psum_scatter",
            Part { .. } => "ppart",
            AllToAll { .. } => "all_to_all",
            Permute { .. } => "ppermute",
            Index => "axis_index",
        }
    }

    fn attrs(&self) -> Attrs {
        let names = self.axes.iter().map(|a| Attr::Str(a.name.clone())).collect();
        let sizes: Vec<usize> = self.axes.iter().map(|a| a.size).collect();
        let mut attrs: Attrs = vec![("axes", Attr::List(names)), ("sizes", sizes.as_slice().into())];
        match &self.kind {
            Sum | Max | Min | Vary | Index => {}
            AllGather { dim, same, turn } => {
                attrs.extend([("dim", (*dim).into()), ("same", (*same).into()), ("turn", (*turn).into())])
            }
            SumScatter { dim } | Part { dim } => attrs.push(("dim", (*dim).into())),
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
            return Err(Problem::other("names no axis of a mesh, or one without ranks"));
        }
        for (i, a) in self.axes.iter().enumerate() {
            if self.axes[..i].iter().any(|b| a.name == b.name) {
                return Err(Problem::other(format!("axis `{}` is named twice", a.name)));
            }
        }
        let n = self.axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.size));
        let n = n.filter(|n| *n <= 1 << 24).ok_or_else(|| Problem::other("a mesh has at most 16,777,216 ranks"))?;
        if self.kind == Index {
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
            Max | Min | Vary | Index => x.clone(),
            AllGather { dim, .. } => scaled(x, *dim, n)?,
            SumScatter { dim } => {
                ReduceKind::Sum.check_dtype(x.dtype)?;
                cut(x, *dim, n)?
            }
            Part { dim } => cut(x, *dim, n)?,
            AllToAll { split, join } => scaled(&cut(x, *split, n)?, *join, n)?,
            Permute { pairs } => {
                for (i, (from, to)) in pairs.iter().enumerate() {
                    if *from >= n || *to >= n {
                        return Err(Problem::other(format!("the pair {from} → {to} among {n} ranks")));
                    }
                    if pairs[..i].iter().any(|(a, b)| a == from || b == to) {
                        return Err(Problem::other(format!("{from} → {to}: a rank can send and receive only once")));
                    }
                }
                x.clone()
            }
        }])
    }

    fn jvp(&self, cx: &mut dyn Cx, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(Some(d)) = dx.first().copied() else { return Ok(vec![None]) };
        if !matches!(self.kind, Max | Min) {
            return Ok(vec![Some(cx.one(self.clone().into(), &[d])?)]);
        }
        // Ranks that hold the extremum share its tangent in equal parts.
        let own = cx.one(self.with(Vary), &[y[0]])?;
        let at = cx.compare(Compare::Eq, x[0], own)?;
        let dtype = cx.ty(x[0]).dtype;
        let weight = cx.cast(at, dtype)?;
        let picked = cx.mul(d, weight)?;
        let total = cx.one(self.with(Sum), &[picked])?;
        let count = cx.one(self.with(Sum), &[weight])?;
        Ok(vec![Some(cx.div(total, count)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn Cx, args: &[Arg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None]) };
        let back = match &self.kind {
            Sum => Vary,
            Vary => Sum,
            AllGather { dim, same: false, .. } => SumScatter { dim: *dim },
            AllGather { dim, same: true, .. } => Part { dim: *dim },
            SumScatter { dim } => AllGather { dim: *dim, same: false, turn: 0 },
            Part { dim } => AllGather { dim: *dim, same: true, turn: 0 },
            AllToAll { split, join } => AllToAll { split: *join, join: *split },
            Permute { .. } => Permute { pairs: self.pairs().iter().map(|&(from, to)| (to, from)).collect() },
            Max | Min | Index => return not_linear(self),
        };
        if !args[0].is_linear() {
            return not_linear(self);
        }
        Ok(vec![Some(cx.one(self.with(back), &[c])?)])
    }

    fn batch(&self, cx: &mut dyn Cx, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let kind = match &self.kind {
            AllGather { dim, same, turn } => AllGather { dim: dim + 1, same: *same, turn: *turn },
            SumScatter { dim } => SumScatter { dim: dim + 1 },
            Part { dim } => Part { dim: dim + 1 },
            AllToAll { split, join } => AllToAll { split: split + 1, join: join + 1 },
            Sum | Max | Min | Vary | Permute { .. } | Index => self.kind.clone(),
        };
        Ok(vec![(cx.one(self.with(kind), x)?, true)])
    }

    fn saves(&self) -> Saves {
        match self.kind {
            Max | Min => Saves { outputs: SmallVec::from_slice(&[0]), ..Saves::inputs(&[0]) },
            _ => Saves::nothing(),
        }
    }

    fn precision(&self) -> Precision {
        match self.kind {
            // Partial sums of narrow products are added in f32, as those inside of a product are.
            Sum | SumScatter { .. } | Index => Precision::Wide,
            Max | Min | Vary | AllGather { .. } | Part { .. } | AllToAll { .. } | Permute { .. } => Precision::Follow,
        }
    }

    fn meaning(&self) -> Meaning {
        match self.kind {
            Vary => Meaning::Map(Expr::Arg(0)),
            _ => Meaning::Library,
        }
    }

    /// One rank alone can compute it only where it is alone.
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
            Index => vec![Literal::scalar(Scalar::zero(DType::I32))],
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
                "pvary" => Vary,
                "all_gather" => {
                    AllGather { dim: attrs.usize("dim")?, same: attrs.bool("same")?, turn: attrs.usize("turn")? }
                }
                "psum_scatter" => SumScatter { dim: attrs.usize("dim")? },
                "ppart" => Part { dim: attrs.usize("dim")? },
                "all_to_all" => AllToAll { split: attrs.usize("split")?, join: attrs.usize("join")? },
                "ppermute" => {
                    let flat: Vec<usize> = attrs.usizes("pairs")?;
                    if flat.len() % 2 != 0 {
                        return Err("attribute `pairs` lists two ranks for each pair".to_string());
                    }
                    Permute { pairs: flat.chunks(2).map(|p| (p[0], p[1])).collect() }
                }
                _ => Index,
            };
            Ok(Collective { kind, axes })
        })
    }
}
