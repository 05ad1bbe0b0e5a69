//! `composite`: a named graph of primitives that a backend may implement with its own kernel, and that may have its own derivative.
//!
//! A composite's reverse rule is a graph from (inputs, outputs, cotangents of the public outputs) to cotangents of
//! the float inputs. Residuals that are not visible results (a norm's inverse deviation, attention's
//! log-sum-exp) are private outputs of the body: so forward computes them once, with any implementation. Forward mode always
//! uses the body. [`CustomLinear`] connects the two modes: it is linear in its tangents, evaluated through the body's jvp,
//! and transposed by the composite's reverse rule.

use super::*;
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::composites;

/// How a composite is differentiated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Derivative {
    /// By differentiating its body.
    Body,
    /// Reverse mode by this graph: (inputs, outputs, cotangents of public float outputs) to cotangents of float inputs.
    Vjp(Arc<Graph>),
    /// Both modes by this graph: (inputs, tangents of float inputs) to tangents of public float outputs.
    Jvp(Arc<Graph>),
}

/// A named function that a backend may implement; results after the public ones are for its derivative.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composite {
    /// The name by which backends recognize it.
    pub name: String,
    /// Its parameters, as the backend and the batching rule need them.
    pub params: Vec<(String, Attr)>,
    /// Its definition.
    pub body: Arc<Graph>,
    /// The number of public outputs; private outputs are only for the derivative.
    pub num_public_outputs: usize,
    /// How it is differentiated.
    pub derivative: Derivative,
}

impl Composite {
    /// A parameter by name.
    pub fn param(&self, name: &str) -> Option<&Attr> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    /// A flag parameter; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), Some(Attr::Bool(true)))
    }

    /// A float parameter.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.param(name) {
            Some(Attr::Scalar(s)) => Some(s.to_f64()),
            _ => None,
        }
    }

    /// An integer parameter.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.param(name) {
            Some(Attr::Int(i)) => Some(*i),
            _ => None,
        }
    }

    fn public_floats(&self) -> Vec<usize> {
        floats(&self.body.output_types()[..self.num_public_outputs.min(self.body.outputs().len())])
    }
}

fn floats(types: &[Type]) -> Vec<usize> {
    (0..types.len()).filter(|&i| types[i].dtype.is_float()).collect()
}

fn check_graph(what: &str, graph: &Graph, ins: &[Type], outs: &[Type]) -> std::result::Result<(), InferError> {
    if graph.input_types() != ins || graph.output_types() != outs {
        return Err(InferError::other(format!("its {what} graph does not fit its operands and results")));
    }
    Ok(())
}

fn check_derivative(d: &Derivative, body: &Graph, public: usize) -> std::result::Result<(), InferError> {
    let (ins, outs) = (body.input_types(), body.output_types());
    let pick = |types: &[Type]| -> Vec<Type> { floats(types).into_iter().map(|i| types[i].clone()).collect() };
    let visible = pick(&outs[..public]);
    match d {
        Derivative::Body => Ok(()),
        Derivative::Vjp(g) => check_graph("vjp", g, &[&ins[..], &outs, &visible].concat(), &pick(&ins)),
        Derivative::Jvp(g) => check_graph("jvp", g, &[&ins[..], &pick(&ins)].concat(), &visible),
    }
}

impl Rules for Composite {
    fn name(&self) -> &'static str {
        "composite"
    }

    fn attrs(&self) -> Attrs {
        let params = self.params.iter().map(|(n, a)| Attr::List(vec![Attr::Word(n.clone()), a.clone()])).collect();
        let mut attrs = vec![
            ("name", Attr::Word(self.name.clone())),
            ("params", Attr::List(params)),
            ("public", self.num_public_outputs.into()),
            ("body", (&self.body).into()),
        ];
        match &self.derivative {
            Derivative::Body => {}
            Derivative::Vjp(g) => attrs.push(("vjp", g.into())),
            Derivative::Jvp(g) => attrs.push(("jvp", g.into())),
        }
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        if self.body.input_types() != args {
            let need: Vec<String> = self.body.input_types().iter().map(Type::to_string).collect();
            return Err(InferError::other(format!("{} takes ({})", self.name, need.join(", "))));
        }
        if self.num_public_outputs > self.body.outputs().len() {
            return Err(InferError::other("more public outputs than outputs"));
        }
        check_derivative(&self.derivative, &self.body, self.num_public_outputs)?;
        Ok(self.body.output_types())
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let mut tangents = vec![None; y.len()];
        match &self.derivative {
            Derivative::Body => return control::jvp_body(&self.body, cx, x, dx, |g| Call::new(g).into()),
            Derivative::Jvp(g) => {
                let mut args = x.to_vec();
                for i in floats(&self.body.input_types()) {
                    args.push(match dx[i] {
                        Some(d) => d,
                        None => cx.full_like(x[i], 0.0)?,
                    });
                }
                let outs = cx.inline(g, &args)?;
                for (i, v) in self.public_floats().into_iter().zip(outs) {
                    tangents[i] = Some(v);
                }
            }
            Derivative::Vjp(g) => {
                let active: Vec<bool> = dx.iter().map(Option::is_some).collect();
                let differentiable = floats(&self.body.output_types());
                let (full, out) = cx.jvp_of(&self.body, &active, &vec![true; y.len()])?;
                let mut forward = Graph::new();
                let ins: Vec<Value> = full.input_types().into_iter().map(|t| forward.input(t)).collect();
                let outs = full.inline(&mut forward, &ins)?;
                let tangent = |i: usize| outs[y.len() + out[..i].iter().filter(|o| **o).count()];
                forward.set_outputs(differentiable.iter().map(|&i| tangent(i)).collect::<Vec<_>>());
                let op = CustomLinear {
                    name: self.name.clone(),
                    forward: Arc::new(forward),
                    vjp: g.clone(),
                    outputs: self.body.output_types(),
                    num_public_outputs: self.num_public_outputs,
                    active,
                };
                // Values that neither mode reads are not saved: a constant replaces them, which `partial_eval` does not save.
                let read = op.reads();
                let mut args = Vec::with_capacity(read.len() + dx.len());
                for (&v, read) in x.iter().chain(y).zip(read) {
                    args.push(if read {
                        v
                    } else {
                        let ty = cx.ty(v);
                        cx.zeros(&ty)?
                    });
                }
                args.extend(dx.iter().flatten());
                for (i, v) in differentiable.into_iter().zip(cx.emit(op.into(), &args)?) {
                    tangents[i] = Some(v);
                }
            }
        }
        Ok(tangents)
    }

    split_whole!();
    never_linear!();

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        // If its shared operands are not batched, use the composite's own batch axes, so that backends still recognize it after
        // vmap.
        let narrow: Vec<Type> = self.body.input_types();
        if let Some(wanted) = composites::batch_axes(&self.name, &self.params, &narrow, batched) {
            let mut args = Vec::with_capacity(x.len());
            for (i, &v) in x.iter().enumerate() {
                args.push(if wanted[i] && !batched[i] { cx.broadcast_leading(v, size)? } else { v });
            }
            let types: Vec<Type> = args.iter().map(|&v| cx.ty(v)).collect();
            let wide = composites::build(&self.name, &self.params, &types)?;
            return Ok(cx.emit(wide.into(), &args)?.into_iter().map(|v| (v, true)).collect());
        }
        let all = vec![true; self.body.outputs().len()];
        let (body, outs) = cx.vmap_of(&self.body, batched, &all, size)?;
        let derivative = match &self.derivative {
            Derivative::Body => Derivative::Body,
            Derivative::Vjp(g) => {
                let interface = (&self.body.input_types()[..], &self.body.output_types()[..]);
                Derivative::Vjp(Arc::new(batched_vjp(cx, g, interface, self.num_public_outputs, batched, size)?))
            }
            Derivative::Jvp(g) => {
                let ins = self.body.input_types();
                let mut flags = batched.to_vec();
                flags.extend(floats(&ins).into_iter().map(|i| batched[i]));
                let (g, _) = cx.vmap_of(g, &flags, &vec![true; g.outputs().len()], size)?;
                Derivative::Jvp(Arc::new(g))
            }
        };
        let op = Composite {
            name: "vmapped".into(),
            params: Vec::new(),
            body: Arc::new(body),
            num_public_outputs: self.num_public_outputs,
            derivative,
        };
        Ok(cx.emit(op.into(), x)?.into_iter().zip(outs).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        composites::saves(&self.name, self.body.inputs().len())
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Inline(self.body.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Composite>> {
        (name == "composite").then(|| {
            let params = match attrs.take("params") {
                Some(Attr::List(pairs)) => pairs
                    .into_iter()
                    .map(|p| match p {
                        Attr::List(mut kv) if kv.len() == 2 => match (kv.remove(0), kv.remove(0)) {
                            (Attr::Word(k), v) => Ok((k, v)),
                            _ => Err("a parameter starts with its name".to_string()),
                        },
                        _ => Err("a parameter is a pair [name, value]".to_string()),
                    })
                    .collect::<AttrResult<Vec<_>>>()?,
                _ => return Err("attribute `params` must be a list".into()),
            };
            let derivative = match (attrs.take("vjp"), attrs.take("jvp")) {
                (None, None) => Derivative::Body,
                (Some(Attr::Graph(g)), None) => Derivative::Vjp(g),
                (None, Some(Attr::Graph(g))) => Derivative::Jvp(g),
                _ => return Err("a composite has a `vjp` graph or a `jvp` graph or none".into()),
            };
            Ok(Composite {
                name: attrs.word("name", |w| Some(w.to_string()))?,
                params,
                num_public_outputs: attrs.usize("public")?,
                body: attrs.graph("body")?,
                derivative,
            })
        })
    }
}

/// The reverse graph of a batch: the cotangent of an unbatched operand is summed over the batch.
fn batched_vjp(
    cx: &mut dyn GraphTransforms,
    vjp: &Graph,
    (ins, outs): (&[Type], &[Type]),
    public: usize,
    batched: &[bool],
    size: usize,
) -> Result<Graph> {
    let mut flags = batched.to_vec();
    flags.extend(outs.iter().map(|_| true));
    flags.extend(floats(&outs[..public]).iter().map(|_| true));
    let (wide, _) = cx.vmap_of(vjp, &flags, &vec![true; vjp.outputs().len()], size)?;
    let mut b = Builder::new();
    let args: Vec<Value> = wide.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut results = b.inline(&wide, &args)?;
    for (v, i) in results.iter_mut().zip(floats(ins)) {
        if !batched[i] {
            *v = b.sum(*v, &[0])?;
        }
    }
    Ok(b.finish(&results))
}

/// `custom_linear(x.., y.., dx..)`: the linear part of a composite with its own vjp, between forward mode and that rule; linear in `dx`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomLinear {
    /// The name of the composite.
    pub name: String,
    /// The forward graph: `(x.., dx..) -> dy..` of all float outputs, the public ones first.
    pub forward: Arc<Graph>,
    /// The composite's reverse graph.
    pub vjp: Arc<Graph>,
    /// The types of all outputs of the composite.
    pub outputs: Vec<Type>,
    /// The number of public outputs.
    pub num_public_outputs: usize,
    /// Which operands of the composite have a tangent.
    pub active: Vec<bool>,
}

impl CustomLinear {
    fn inputs(&self) -> usize {
        self.active.len()
    }

    /// The reverse graph, restricted to the cotangents of operands with a tangent.
    fn active_vjp(&self) -> Graph {
        let mut wanted = (*self.vjp).clone();
        let grads = floats(&self.forward.input_types()[..self.inputs()]);
        wanted.set_outputs(
            (grads.iter().zip(self.vjp.outputs()))
                .filter(|(i, _)| self.active[**i])
                .map(|(_, v)| *v)
                .collect::<Vec<_>>(),
        );
        wanted
    }

    /// The inputs and outputs of the composite that are read, given the operands with a tangent.
    fn reads(&self) -> Vec<bool> {
        let n = self.inputs();
        let (mut reads, forward) = (self.active_vjp().used_inputs(), self.forward.used_inputs());
        reads.truncate(n + self.outputs.len());
        reads.iter_mut().zip(&forward[..n]).for_each(|(r, f)| *r |= f);
        reads
    }

    /// The forward graph over this op's operands.
    fn as_graph(&self) -> Graph {
        let n = self.inputs();
        let types = self.forward.input_types();
        let mut g = Graph::new();
        let mut args: Vec<Value> = types[..n].iter().map(|t| g.input(t.clone())).collect();
        self.outputs.iter().for_each(|t| {
            g.input(t.clone());
        });
        args.extend(types[n..].iter().map(|t| g.input(t.clone())));
        let outs = self.forward.inline(&mut g, &args).expect("the forward graph was checked by infer");
        g.set_outputs(outs);
        g
    }
}

impl Rules for CustomLinear {
    fn name(&self) -> &'static str {
        "custom_linear"
    }

    fn attrs(&self) -> Attrs {
        let outputs =
            self.outputs.iter().map(|t| Attr::List(vec![t.dtype.into(), t.shape.as_slice().into()])).collect();
        vec![
            ("name", Attr::Word(self.name.clone())),
            ("outputs", Attr::List(outputs)),
            ("public", self.num_public_outputs.into()),
            ("active", self.active.as_slice().into()),
            ("forward", (&self.forward).into()),
            ("vjp", (&self.vjp).into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let n = self.inputs();
        let forward = self.forward.input_types();
        let active: Vec<usize> = (0..n).filter(|&i| self.active[i]).collect();
        let fits = forward.len() == n + active.len()
            && self.num_public_outputs <= self.outputs.len()
            && args.len() == n + self.outputs.len() + active.len()
            && args[..n] == forward[..n]
            && args[n..n + self.outputs.len()] == self.outputs[..]
            && args[n + self.outputs.len()..] == forward[n..]
            && active.iter().enumerate().all(|(k, &i)| forward[n + k] == forward[i]);
        if !fits {
            return Err(InferError::other("operands must be the composite's inputs, outputs and tangents"));
        }
        let pick = |types: &[Type]| -> Vec<Type> { floats(types).into_iter().map(|i| types[i].clone()).collect() };
        let visible = pick(&self.outputs[..self.num_public_outputs]);
        check_graph("forward", &self.forward, &forward, &pick(&self.outputs))?;
        check_graph("vjp", &self.vjp, &[&args[..n], &self.outputs, &visible].concat(), &pick(&args[..n]))?;
        Ok(self.forward.output_types())
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        control::jvp_body(&self.as_graph(), cx, x, dx, |g| Call::new(g).into())
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let mut result = vec![None; args.len()];
        if ct.iter().all(Option::is_none) {
            return Ok(result);
        }
        let fixed = self.inputs() + self.outputs.len();
        let mut operands = Vec::with_capacity(fixed + ct.len());
        for a in &args[..fixed] {
            operands.push(
                a.known().ok_or_else(|| {
                    Error::no_rule(self.name.clone(), "transpose", "it is linear in its tangents only")
                })?,
            );
        }
        for (i, c) in floats(&self.outputs[..self.num_public_outputs]).into_iter().zip(ct) {
            operands.push(match c {
                Some(c) => *c,
                None => cx.zeros(&self.outputs[i])?,
            });
        }
        let types = self.forward.input_types();
        for (slot, g) in (fixed..).zip(cx.rule(&self.name, self.active_vjp(), &operands)?) {
            result[slot] = args[slot].is_linear().then_some(g);
        }
        // A private output has a cotangent only if the reverse graph itself is differentiated. The composite's
        // rule does not define it, so that part is differentiated through the body.
        let public = floats(&self.outputs[..self.num_public_outputs]).len();
        if ct[public..].iter().any(Option::is_some) {
            let n = self.inputs();
            let linear: Vec<bool> = (0..types.len()).map(|i| i >= n).collect();
            let has: Vec<bool> = (0..ct.len()).map(|i| i >= public && ct[i].is_some()).collect();
            let (back, gives) = cx.transpose_of(&self.forward, &linear, &has)?;
            let known: Vec<Value> = operands[..n].iter().chain(ct[public..].iter().flatten()).copied().collect();
            let mut extra = cx.inline(&back, &known)?.into_iter();
            for (slot, _) in (fixed..args.len()).zip(&gives).filter(|(_, g)| **g) {
                let e = extra.next().filter(|_| args[slot].is_linear());
                result[slot] = cx.add_optional(result[slot], e)?;
            }
        }
        Ok(result)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        // If any operand is batched, tangents and outputs are batched: batch all values of the composite.
        let n = self.inputs();
        let fixed = n + self.outputs.len();
        let active: Vec<usize> = (0..n).filter(|&i| self.active[i]).collect();
        let mut flags = batched.to_vec();
        for (k, &i) in active.iter().enumerate() {
            flags[i] |= flags[fixed + k];
            flags[fixed + k] = flags[i];
        }
        flags[n..fixed].iter_mut().for_each(|f| *f = true);
        let mut args = Vec::with_capacity(x.len());
        for (i, &v) in x.iter().enumerate() {
            args.push(if flags[i] && !batched[i] { cx.broadcast_leading(v, size)? } else { v });
        }
        let forward_flags: Vec<bool> = flags[..n].iter().chain(&flags[fixed..]).copied().collect();
        let want = vec![true; self.forward.outputs().len()];
        let (forward, _) = cx.vmap_of(&self.forward, &forward_flags, &want, size)?;
        let interface = (&self.forward.input_types()[..n], &self.outputs[..]);
        let vjp = batched_vjp(cx, &self.vjp, interface, self.num_public_outputs, &flags[..n], size)?;
        let op = CustomLinear {
            name: self.name.clone(),
            forward: Arc::new(forward),
            vjp: Arc::new(vjp),
            outputs: self.outputs.iter().map(|t| t.batched(size)).collect(),
            num_public_outputs: self.num_public_outputs,
            active: self.active.clone(),
        };
        Ok(cx.emit(op.into(), &args)?.into_iter().map(|v| (v, true)).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Inline(Arc::new(self.as_graph()))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<CustomLinear>> {
        (name == "custom_linear").then(|| {
            let outputs = match attrs.take("outputs") {
                Some(Attr::List(items)) => items.into_iter().map(parse_type).collect::<AttrResult<Vec<_>>>()?,
                _ => return Err("attribute `outputs` must be a list of types".into()),
            };
            Ok(CustomLinear {
                name: attrs.word("name", |w| Some(w.to_string()))?,
                forward: attrs.graph("forward")?,
                vjp: attrs.graph("vjp")?,
                outputs,
                num_public_outputs: attrs.usize("public")?,
                active: attrs.bools("active")?,
            })
        })
    }
}

fn parse_type(attr: Attr) -> AttrResult<Type> {
    let bad = || "an output type is [dtype, [sizes]]".to_string();
    let Attr::List(parts) = attr else { return Err(bad()) };
    match &parts[..] {
        [Attr::Word(d), Attr::List(sizes)] => {
            let dtype = d.parse().map_err(|_| bad())?;
            let shape = sizes
                .iter()
                .map(|s| match s {
                    Attr::Int(i) => usize::try_from(*i).map_err(|_| bad()),
                    _ => Err(bad()),
                })
                .collect::<AttrResult<Shape>>()?;
            Type::checked(dtype, &shape).map_err(|p| p.to_string())
        }
        _ => Err(bad()),
    }
}
