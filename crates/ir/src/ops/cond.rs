//! `cond`: one of several branches, selected by an index.
//!
//! Operands are `index, operands..`; every branch maps `operands..` to the same result types. The index is an i32 of
//! rank 0 and is clamped to the valid range. An `if` has two branches: branch 0 for false, 1 for true.

use super::scan::true_indices;
use super::*;
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder, PartialEvalGraphs};
use crate::dtype::DType;
use crate::scalar::Compare;

/// `cond(index, x..)`: runs the branch that the first operand names, clamped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cond {
    /// The branches: at least one, all with the same operands and results.
    pub branches: Vec<Arc<Graph>>,
}

impl Cond {
    /// A `cond` with these branches.
    pub fn new(branches: impl IntoIterator<Item = Graph>) -> Cond {
        Cond { branches: branches.into_iter().map(Arc::new).collect() }
    }

    /// Calls a function for every branch.
    fn each<T>(&self, mut f: impl FnMut(&Graph) -> Result<T>) -> Result<Vec<T>> {
        self.branches.iter().map(|b| f(b)).collect()
    }

    /// Computes values and tangents with one op.
    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        let active: Vec<bool> = dx[1..].iter().map(Option::is_some).collect();
        // A result that has a tangent in one branch has one, possibly zero, in all.
        let n = self.branches[0].outputs().len();
        let none = vec![false; n];
        let found = self.each(|b| Ok(cx.jvp_of(b, &active, &none)?.1))?;
        let out = union(&found);
        let branches = self.each(|b| Ok(cx.jvp_of(b, &active, &out)?.0))?;
        let args: Vec<Value> = x.iter().copied().chain(dx.iter().flatten().copied()).collect();
        let results = cx.emit(Cond::new(branches).into(), &args)?;
        let mut tangents = vec![None; n];
        for (i, &d) in true_indices(&out).zip(&results[n..]) {
            tangents[i] = Some(d);
        }
        Ok((results[..n].to_vec(), tangents))
    }
}

/// The elementwise or of flags.
fn union(rows: &[Vec<bool>]) -> Vec<bool> {
    let n = rows.first().map_or(0, Vec::len);
    (0..n).map(|i| rows.iter().any(|r| r[i])).collect()
}

/// The residuals of all branches in one list: only one branch runs, so residuals of one type share a slot.
#[derive(Default)]
struct ResidualSlots {
    types: Vec<Type>,
}

impl ResidualSlots {
    /// Slots for residuals of these types, each used once.
    fn place(&mut self, types: &[Type]) -> Vec<usize> {
        let mut taken = vec![false; self.types.len()];
        types
            .iter()
            .map(|t| match (0..taken.len()).find(|&i| !taken[i] && self.types[i] == *t) {
                Some(i) => {
                    taken[i] = true;
                    i
                }
                None => {
                    self.types.push(t.clone());
                    taken.push(true);
                    taken.len() - 1
                }
            })
            .collect()
    }
}

/// The partial evaluation of one branch. All branches have the same known outputs.
struct BranchPartialEval {
    split: PartialEvalGraphs,
    /// The slot of each residual that is not an operand.
    places: Vec<usize>,
}

/// The outputs of the known part that must be stored: residuals that are not operands.
fn stored(split: &PartialEvalGraphs) -> Vec<usize> {
    let first = split.known.outputs().len() - split.residuals;
    let residuals = (0..split.residuals).filter(|&r| split.forwarded[r].is_none());
    residuals.map(|r| first + r).collect()
}

impl BranchPartialEval {
    /// The branch of the known part: known outputs, then all slots.
    fn known_branch(&self, slots: &ResidualSlots) -> Result<Graph> {
        let known = &self.split.known;
        let mut b = Builder::new();
        let ins: Vec<Value> = known.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let values = b.inline(known, &ins)?;
        let mut filled = vec![None; slots.types.len()];
        for (from, &place) in stored(&self.split).into_iter().zip(&self.places) {
            filled[place] = Some(values[from]);
        }
        let mut outs = values[..values.len() - self.split.residuals].to_vec();
        for (v, ty) in filled.into_iter().zip(&slots.types) {
            outs.push(match v {
                Some(v) => v,
                None => b.zeros(ty)?,
            });
        }
        Ok(b.finish(&outs))
    }

    /// The branch of the unknown part, from saved operands, all slots and the unknown operands.
    fn unknown_branch(&self, kept: &[(usize, Type)], slots: &ResidualSlots, unknown: &[Type]) -> Result<Graph> {
        let mut b = Builder::new();
        let kept_in: Vec<Value> = kept.iter().map(|(_, t)| b.graph.input(t.clone())).collect();
        let slots_in: Vec<Value> = slots.types.iter().map(|t| b.graph.input(t.clone())).collect();
        let unknown_in: Vec<Value> = unknown.iter().map(|t| b.graph.input(t.clone())).collect();
        let mut places = self.places.iter().map(|&p| slots_in[p]);
        let mut args = Vec::new();
        for f in &self.split.forwarded {
            args.push(match f {
                Some(f) => kept_in[kept.iter().position(|(k, _)| k == f).expect("every one is kept")],
                None => places.next().expect("one for each stored residual"),
            });
        }
        args.extend(unknown_in);
        let outs = b.inline(&self.split.unknown, &args)?;
        Ok(b.finish(&outs))
    }
}

impl Rules for Cond {
    fn name(&self) -> &'static str {
        "cond"
    }

    fn attrs(&self) -> Attrs {
        vec![("branches", Attr::List(self.branches.iter().map(Attr::from).collect()))]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let Some((index, operands)) = args.split_first() else {
            return Err(InferError::Arity { expected: "at least 1".into(), got: 0 });
        };
        if *index != Type::scalar(DType::I32) {
            return Err(InferError::other(format!("the index must be i32[], got {index}")));
        }
        let Some(first) = self.branches.first() else {
            return Err(InferError::other("at least one branch is needed"));
        };
        let outs = first.output_types();
        for (k, branch) in self.branches.iter().enumerate() {
            control::infer_body(branch, operands)?;
            if branch.output_types() != outs {
                return Err(InferError::other(format!(
                    "branch {k} returns other types than branch 0; all branches must return the same types"
                )));
            }
        }
        Ok(outs)
    }

    jvp_of_body!();

    fn partial_eval(&self, cx: &mut dyn GraphTransforms, args: &[Type], known: &[bool]) -> Result<PartialEval> {
        if !known[0] {
            return Ok(PartialEval::Atomic);
        }
        let splits = self.each(|b| cx.partial_eval_of(b, &known[1..]))?;
        let n = splits[0].known_outs.len();
        let early: Vec<bool> = (0..n).map(|i| splits.iter().all(|s| s.known_outs[i])).collect();
        let late: Vec<usize> = (0..n).filter(|&i| !early[i]).collect();
        let mut slots = ResidualSlots::default();
        let mut divided = Vec::new();
        for split in splits {
            let split = split.with_outputs_unknown(&late)?;
            let outs = split.known.output_types();
            let types: Vec<Type> = stored(&split).into_iter().map(|i| outs[i].clone()).collect();
            let places = slots.place(&types);
            divided.push(BranchPartialEval { split, places });
        }
        let known_args: Vec<usize> = true_indices(known).collect();
        let unknown_args: Vec<usize> = (0..known.len()).filter(|&i| !known[i]).collect();
        // Known operands that some branch needs later, by their position among the branch's known operands.
        let kept: Vec<(usize, Type)> = (0..known_args.len() - 1)
            .filter(|k| divided.iter().any(|d| d.split.forwarded.contains(&Some(*k))))
            .map(|k| (k, args[known_args[k + 1]].clone()))
            .collect();
        let unknown_types: Vec<Type> = unknown_args.iter().map(|&i| args[i].clone()).collect();
        let now = divided.iter().map(|d| d.known_branch(&slots)).collect::<Result<Vec<_>>>()?;
        let later =
            divided.iter().map(|d| d.unknown_branch(&kept, &slots, &unknown_types)).collect::<Result<Vec<_>>>()?;
        let n_early = n - late.len();
        let rest_args: Vec<ResidualArg> = std::iter::once(ResidualArg::Arg(0))
            .chain(kept.iter().map(|(k, _)| ResidualArg::Arg(known_args[k + 1])))
            .chain((0..slots.types.len()).map(|s| ResidualArg::Residual(n_early + s)))
            .chain(unknown_args.iter().map(|&i| ResidualArg::Arg(i)))
            .collect();
        let stores = n_early + slots.types.len() > 0;
        Ok(PartialEval::Parts(SplitOp {
            known: stores.then(|| (Cond::new(now).into(), known_args)),
            unknown: (!late.is_empty()).then(|| (Cond::new(later).into(), rest_args)),
            outs: control::known_then_unknown(&early),
        }))
    }

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let mut grads = vec![None; args.len()];
        if ct.iter().all(Option::is_none) {
            return Ok(grads);
        }
        if args[0].is_linear() {
            return not_linear(self);
        }
        let linear: Vec<bool> = args[1..].iter().map(TransposeArg::is_linear).collect();
        let has: Vec<bool> = ct.iter().map(Option::is_some).collect();
        let backs = self.each(|b| cx.transpose_of(b, &linear, &has))?;
        let gives = union(&backs.iter().map(|b| b.1.clone()).collect::<Vec<_>>());
        let targets: Vec<usize> = true_indices(&linear).map(|i| i + 1).collect();
        let mut branches = Vec::new();
        for (back, own) in &backs {
            let mut b = Builder::new();
            let ins: Vec<Value> = back.input_types().into_iter().map(|t| b.graph.input(t)).collect();
            let mut found = b.inline(back, &ins)?.into_iter();
            let mut outs = Vec::new();
            for k in true_indices(&gives) {
                outs.push(match (own[k], &args[targets[k]]) {
                    (false, TransposeArg::Linear(ty)) => b.zeros(ty)?,
                    _ => found.next().expect("one for each cotangent given"),
                });
            }
            branches.push(b.finish(&outs));
        }
        let operands: Vec<Value> =
            args.iter().filter_map(TransposeArg::known).chain(ct.iter().flatten().copied()).collect();
        let results = cx.emit(Cond::new(branches).into(), &operands)?;
        for (k, &v) in true_indices(&gives).zip(&results) {
            grads[targets[k]] = Some(v);
        }
        Ok(grads)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let flags = &batched[1..];
        let outputs = self.branches[0].outputs().len();
        if !batched[0] {
            let none = vec![false; outputs];
            let found = self.each(|b| Ok(cx.vmap_of(b, flags, &none, size)?.1))?;
            let out = union(&found);
            let branches = self.each(|b| Ok(cx.vmap_of(b, flags, &out, size)?.0))?;
            let results = cx.emit(Cond::new(branches).into(), x)?;
            return Ok(results.into_iter().zip(out).collect());
        }
        // The index differs between elements of the batch: all branches run, and each element selects its result.
        let all = vec![true; outputs];
        let mut chosen: Option<Vec<Value>> = None;
        for (k, branch) in self.branches.iter().enumerate() {
            let (wide, _) = cx.vmap_of(branch, flags, &all, size)?;
            let outs = cx.inline(&wide, &x[1..])?;
            chosen = Some(match chosen {
                None => outs,
                // The index is clamped: indices from k on select this branch unless a later one is selected.
                Some(before) => {
                    let at = cx.full_like(x[0], k as f64)?;
                    let here = cx.compare(Compare::Ge, x[0], at)?;
                    let mut picked = Vec::with_capacity(outs.len());
                    for (old, new) in before.into_iter().zip(outs) {
                        let shape = cx.ty(new).shape;
                        let mask = cx.broadcast(here, &shape, &[0])?;
                        picked.push(cx.select(mask, new, old)?);
                    }
                    picked
                }
            });
        }
        Ok(chosen.unwrap_or_default().into_iter().map(|v| (v, true)).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let last = self.branches.len() as i64 - 1;
        let index = args[0].get(0).to_i64().clamp(0, last) as usize;
        crate::interp::run(&self.branches[index], &args[1..])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Cond>> {
        (name == "cond").then(|| Ok(Cond { branches: attrs.graphs("branches")? }))
    }
}
