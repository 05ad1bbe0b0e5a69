//! `shard_map`: a body that runs on every rank of a mesh, on shards of the operands.
//!
//! Operands and results are whole tensors; `ins` and `outs` are their shardings. The body operates on shards and communicates by
//! collectives. Its semantics is a graph for one process: the bodies of all ranks, with collectives expanded
//! (`unroll.rs`). The interpreter runs that graph, and so does a backend that gets the op; several processes run the body
//! itself, each with a communicator.

mod unroll;

use super::control::{infer_body, known_indices, known_then_unknown};
use super::*;
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder, PartialEvalGraphs};
use crate::mesh::{AxisSet, Mesh, Spec};
use crate::varying_axes::{insert_pvary, insert_pvary_derived};

/// Runs a body on every rank of a mesh; `ins` and `outs` list, for each axis of each operand and result, the mesh axes that
/// shard it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardMap {
    /// The mesh of all ranks.
    pub mesh: Mesh,
    /// The sharding of each operand.
    pub ins: Vec<Spec>,
    /// The sharding of each result.
    pub outs: Vec<Spec>,
    /// The body of one rank, on shards.
    pub body: Arc<Graph>,
}

impl ShardMap {
    /// Maps a body over a mesh; `pvary` is inserted where operands vary over different axes.
    pub fn new(mesh: Mesh, ins: Vec<Spec>, outs: Vec<Spec>, body: Graph) -> Result<ShardMap> {
        ShardMap::with(mesh, ins, outs, body, false)
    }

    fn with(mesh: Mesh, ins: Vec<Spec>, outs: Vec<Spec>, body: Graph, derived: bool) -> Result<ShardMap> {
        let fits = |p: InferError| Error::Invalid(format!("shard_map: {p}"));
        if ins.len() != body.inputs().len() || outs.len() != body.outputs().len() {
            return Err(Error::Invalid(format!(
                "shard_map: a body of {} inputs and {} outputs with shardings for {} and {}",
                body.inputs().len(),
                body.outputs().len(),
                ins.len(),
                outs.len()
            )));
        }
        let sets: Vec<AxisSet> =
            ins.iter().map(|s| s.set(&mesh)).collect::<std::result::Result<_, _>>().map_err(fits)?;
        let (body, _) =
            if derived { insert_pvary_derived(&body, &mesh, &sets)? } else { insert_pvary(&body, &mesh, &sets)? };
        let map = ShardMap {
            mesh,
            ins: ins.into_iter().map(Spec::trimmed).collect(),
            outs: outs.into_iter().map(Spec::trimmed).collect(),
            body: Arc::new(body),
        };
        map.check_outputs().map_err(fits)?;
        Ok(map)
    }

    /// The axes over which each input of the body varies.
    fn input_sets(&self) -> std::result::Result<Vec<AxisSet>, InferError> {
        self.ins.iter().map(|s| s.set(&self.mesh)).collect()
    }

    /// Checks that no output varies over an axis along which its sharding is replicated.
    fn check_outputs(&self) -> std::result::Result<(), InferError> {
        let problem = |e: Error| match e {
            Error::Type(e) => InferError::other(format!("in its body: {e}")),
            e => InferError::other(format!("in its body: {e}")),
        };
        let (_, found) = insert_pvary(&self.body, &self.mesh, &self.input_sets()?).map_err(problem)?;
        for (i, (spec, set)) in self.outs.iter().zip(&found).enumerate() {
            let left = set.difference(spec.set(&self.mesh)?);
            if !left.is_empty() {
                let names: Vec<String> = self.mesh.axes_in(left).iter().map(|a| format!("`{}`", a.name)).collect();
                return Err(InferError::other(format!(
                    "output {i} varies over {}, but its sharding {spec} is replicated along it; sum or gather it \
                     first (psum, all_gather), or add the axis to the sharding",
                    names.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The same map with another body.
    fn again(&self, ins: Vec<Spec>, outs: Vec<Spec>, body: Graph) -> Result<Op> {
        Ok(ShardMap::with(self.mesh.clone(), ins, outs, body, true)?.into())
    }

    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        let active: Vec<bool> = dx.iter().map(Option::is_some).collect();
        let n = self.outs.len();
        let (body, has) = cx.jvp_of(&self.body, &active, &vec![false; n])?;
        let pick = |specs: &[Spec], flags: &[bool]| -> Vec<Spec> {
            specs.iter().cloned().chain(known_indices(flags, true).into_iter().map(|i| specs[i].clone())).collect()
        };
        let op = self.again(pick(&self.ins, &active), pick(&self.outs, &has), body)?;
        let args: Vec<Value> = x.iter().copied().chain(dx.iter().flatten().copied()).collect();
        let results = cx.emit(op, &args)?;
        let mut found = results[n..].iter().copied();
        let tangents = has.iter().map(|&h| if h { found.next() } else { None }).collect();
        Ok((results[..n].to_vec(), tangents))
    }

    /// The sharding of a residual: along its first axis, over all axes that it varies over.
    fn residual_spec(&self, set: AxisSet) -> Spec {
        Spec(vec![self.mesh.axes_in(set).into_iter().map(|a| a.name).collect()]).trimmed()
    }
}

impl Rules for ShardMap {
    fn name(&self) -> &'static str {
        "shard_map"
    }

    fn attrs(&self) -> Attrs {
        let names = self.mesh.axes().iter().map(|a| Attr::Str(a.name.clone())).collect();
        let sizes: Vec<usize> = self.mesh.axes().iter().map(|a| a.size).collect();
        let specs = |specs: &[Spec]| {
            let dim = |names: &Vec<String>| Attr::List(names.iter().cloned().map(Attr::Str).collect());
            Attr::List(specs.iter().map(|s| Attr::List(s.0.iter().map(dim).collect())).collect())
        };
        vec![
            ("axes", Attr::List(names)),
            ("sizes", sizes.as_slice().into()),
            ("ins", specs(&self.ins)),
            ("outs", specs(&self.outs)),
            ("body", (&self.body).into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        if args.len() != self.ins.len() {
            return Err(InferError::Arity { expected: self.ins.len().to_string(), got: args.len() });
        }
        if self.outs.len() != self.body.outputs().len() {
            return Err(InferError::other(format!(
                "{} shardings for {} results",
                self.outs.len(),
                self.body.outputs().len()
            )));
        }
        let parts = args.iter().zip(&self.ins).enumerate().map(|(i, (ty, spec))| {
            spec.local_type(&self.mesh, ty).map_err(|p| InferError::other(format!("operand {i}: {p}")))
        });
        let parts: Vec<Type> = parts.collect::<std::result::Result<_, _>>()?;
        let outs = infer_body(&self.body, &parts)?;
        self.check_outputs()?;
        let whole = |(ty, spec): (&Type, &Spec)| {
            // Check that the sharding has no more axes than the result.
            let whole = spec.global_type(&self.mesh, ty)?;
            spec.local_type(&self.mesh, &whole).map(|_| whole)
        };
        outs.iter().zip(&self.outs).map(whole).collect()
    }

    jvp_of_body!();

    fn partial_eval(&self, cx: &mut dyn GraphTransforms, _: &[Type], known: &[bool]) -> Result<PartialEval> {
        let s: PartialEvalGraphs = cx.partial_eval_of(&self.body, known)?;
        let known_args = known_indices(known, true);
        let n_known = s.known_outs.iter().filter(|k| **k).count();
        let sets = self.input_sets().map_err(|p| Error::Invalid(p.to_string()))?;
        let known_sets: Vec<AxisSet> = known_args.iter().map(|&i| sets[i]).collect();
        let (mut now, now_sets) = insert_pvary_derived(&s.known, &self.mesh, &known_sets)?;
        // A varying residual needs an axis to shard.
        let mut now_outs = now.outputs().to_vec();
        let mut now_specs: Vec<Spec> =
            known_indices(&s.known_outs, true).iter().map(|&o| self.outs[o].clone()).collect();
        let mut later = Builder::new();
        let (mut rest_args, mut rest_specs, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for r in 0..s.residuals {
            let at = n_known + r;
            let ty = s.unknown.ty(s.unknown.inputs()[r]).clone();
            if let Some(f) = s.forwarded[r] {
                rest_args.push(ResidualArg::Arg(known_args[f]));
                rest_specs.push(self.ins[known_args[f]].clone());
                given.push(later.graph.input(ty));
                now_specs.push(self.residual_spec(now_sets[at]));
            } else {
                rest_args.push(ResidualArg::Residual(at));
                let spec = self.residual_spec(now_sets[at]);
                rest_specs.push(spec.clone());
                now_specs.push(spec);
            }
            let scalar = ty_is_scalar(&now, now_outs[at]) && !now_sets[at].is_empty();
            if scalar {
                now_outs[at] =
                    now.push(Reshape { shape: Shape::from_slice(&[1]) }.into(), &[now_outs[at]], Default::default())?
                        [0];
            }
            if s.forwarded[r].is_none() {
                let ty = s.unknown.ty(s.unknown.inputs()[r]).clone();
                given.push(match scalar {
                    true => {
                        let v = later.graph.input(ty.with_shape(&[1]));
                        later.reshape(v, &[])?
                    }
                    false => later.graph.input(ty),
                });
            }
        }
        now.set_outputs(now_outs);
        for i in known_indices(known, false) {
            rest_args.push(ResidualArg::Arg(i));
            rest_specs.push(self.ins[i].clone());
            given.push(later.graph.input(self.body.ty(self.body.inputs()[i]).clone()));
        }
        let outs = later.inline(&s.unknown, &given)?;
        let later = later.finish(&outs);
        let late_specs: Vec<Spec> = known_indices(&s.known_outs, false).iter().map(|&o| self.outs[o].clone()).collect();
        let known_specs: Vec<Spec> = known_args.iter().map(|&i| self.ins[i].clone()).collect();
        Ok(PartialEval::Parts(SplitOp {
            known: Some((self.again(known_specs, now_specs, now)?, known_args)),
            unknown: match n_known < s.known_outs.len() {
                true => Some((self.again(rest_specs, late_specs, later)?, rest_args)),
                false => None,
            },
            outs: known_then_unknown(&s.known_outs),
        }))
    }

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        if ct.iter().all(Option::is_none) {
            return Ok(vec![None; args.len()]);
        }
        let linear: Vec<bool> = args.iter().map(TransposeArg::is_linear).collect();
        let has: Vec<bool> = ct.iter().map(Option::is_some).collect();
        let (body, gives) = cx.transpose_of(&self.body, &linear, &has)?;
        let mut ins: Vec<Spec> = known_indices(&linear, false).iter().map(|&i| self.ins[i].clone()).collect();
        ins.extend(known_indices(&has, true).iter().map(|&o| self.outs[o].clone()));
        let given: Vec<usize> =
            known_indices(&linear, true).into_iter().zip(&gives).filter(|(_, g)| **g).map(|(i, _)| i).collect();
        let outs: Vec<Spec> = given.iter().map(|&i| self.ins[i].clone()).collect();
        let operands: Vec<Value> =
            args.iter().filter_map(TransposeArg::known).chain(ct.iter().flatten().copied()).collect();
        let results = cx.emit(self.again(ins, outs, body)?, &operands)?;
        let mut found = vec![None; args.len()];
        for (i, v) in given.into_iter().zip(results) {
            found[i] = Some(v);
        }
        Ok(found)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let (body, outs) = cx.vmap_of(&self.body, batched, &vec![false; self.outs.len()], size)?;
        let wide = |specs: &[Spec], flags: &[bool]| -> Vec<Spec> {
            specs.iter().zip(flags).map(|(s, b)| if *b { s.batched() } else { s.clone() }).collect()
        };
        let results = cx.emit(self.again(wide(&self.ins, batched), wide(&self.outs, &outs), body)?, x)?;
        Ok(results.into_iter().zip(outs).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward { when: SavePolicy::Recompute, ..SavedForBackward::none() }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        match unroll::unroll(self) {
            Ok(graph) => Semantics::Inline(Arc::new(graph)),
            // A body that `infer` accepted can be unrolled.
            Err(_) => Semantics::Opaque,
        }
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        crate::interp::run(&unroll::unroll(self)?, args)
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<ShardMap>> {
        (name == "shard_map").then(|| {
            let axes = strings(attrs.take("axes"))?;
            let sizes: Vec<usize> = attrs.usizes("sizes")?;
            if axes.len() != sizes.len() {
                return Err("`axes` and `sizes` must be of one length".to_string());
            }
            let axes: Vec<(String, usize)> = axes.into_iter().zip(sizes).collect();
            let mesh = Mesh::new(&axes).map_err(|p| p.to_string())?;
            let (ins, outs) = (specs(attrs.take("ins"))?, specs(attrs.take("outs"))?);
            Ok(ShardMap { mesh, ins, outs, body: attrs.graph("body")? })
        })
    }
}

fn ty_is_scalar(graph: &Graph, v: Value) -> bool {
    graph.ty(v).rank() == 0
}

fn strings(attr: Option<Attr>) -> AttrResult<Vec<String>> {
    let word = |a: Attr| match a {
        Attr::Str(s) => Ok(s),
        _ => Err("an axis of a mesh is a quoted string".to_string()),
    };
    match attr {
        Some(Attr::List(words)) => words.into_iter().map(word).collect(),
        _ => Err("axes of a mesh are a list of quoted strings".to_string()),
    }
}

fn specs(attr: Option<Attr>) -> AttrResult<Vec<Spec>> {
    let spec = |a: Attr| match a {
        Attr::List(dims) => dims.into_iter().map(|d| strings(Some(d))).collect::<AttrResult<_>>().map(Spec),
        _ => Err("a sharding is a list with a list of axes for each axis of the tensor".to_string()),
    };
    match attr {
        Some(Attr::List(all)) => all.into_iter().map(spec).collect(),
        _ => Err("`ins` and `outs` are lists of shardings".to_string()),
    }
}
