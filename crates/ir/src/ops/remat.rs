//! `remat`: a function whose intermediates are recomputed in backward, except those that its policy saves.

use super::control::{batch_body, infer_body, known_indices, known_then_unknown, value_and_jvp_body};
use super::*;
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder, PartialEvalGraphs};

/// The residuals that a `remat` saves for backward, besides its operands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum RematPolicy {
    /// Nothing: uses the least memory, and recomputes everything.
    #[default]
    Nothing,
    /// Everything that backward needs, as without `remat`.
    Everything,
    /// The results of contractions, which are the most expensive to recompute.
    Dots,
    /// The values with one of these names (see [`Name`]).
    Names(Vec<String>),
}

/// The derivative of a composite also reads its private results: if a result is saved, so are those.
fn private_results(s: &PartialEvalGraphs, node: &crate::graph::Node) -> Vec<Value> {
    let of = match &node.op {
        Op::Name(_) => s.known.node_of(node.args[0]),
        _ => None,
    };
    match of.map(|n| (&n.op, n)) {
        Some((Op::Composite(_), n)) => n.outs.to_vec(),
        _ => Vec::new(),
    }
}

impl RematPolicy {
    /// Whether the policy saves the results of an op.
    fn keeps(&self, op: &Op) -> bool {
        match (self, op) {
            (RematPolicy::Dots, Op::Dot(_) | Op::RaggedDot(_) | Op::Conv(_)) => true,
            (RematPolicy::Names(names), Op::Name(n)) => names.contains(&n.name),
            _ => false,
        }
    }

    /// The values of the known part that may be saved.
    fn kept(&self, s: &PartialEvalGraphs, known_outs: usize) -> Vec<Value> {
        let mut kept: Vec<Value> = match self {
            RematPolicy::Nothing => Vec::new(),
            RematPolicy::Everything => s.known.outputs()[known_outs..].to_vec(),
            RematPolicy::Dots | RematPolicy::Names(_) => {
                let nodes = s.known.nodes().iter().filter(|n| self.keeps(&n.op));
                nodes.flat_map(|n| n.outs.iter().copied().chain(private_results(s, n))).collect()
            }
        };
        // An operand is available anyway.
        kept.retain(|&v| s.known.node_of(v).is_some());
        kept.sort();
        kept.dedup();
        kept
    }
}

/// Calls a graph whose intermediates are not saved for backward, except those that the policy names, but recomputed there.
///
/// The compiler must not merge its nodes with equal ones outside, because the values would then be stored. Names and
/// contractions are found in the body and in the calls in it, but not inside its loops, branches and composites.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remat {
    /// The graph.
    pub body: Arc<Graph>,
    /// The policy.
    pub policy: RematPolicy,
}

impl Remat {
    /// A call that saves nothing.
    pub fn new(body: Graph) -> Remat {
        Remat::with_policy(body, RematPolicy::Nothing)
    }

    /// A call with a policy.
    pub fn with_policy(body: Graph, policy: RematPolicy) -> Remat {
        Remat { body: Arc::new(body), policy }
    }

    fn again(&self, body: Graph) -> Op {
        Remat::with_policy(body, self.policy.clone()).into()
    }

    /// Computes values and tangents with one op.
    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        value_and_jvp_body(&self.body, cx, x, dx, |g| self.again(g))
    }
}

/// Copies a graph and inlines its calls.
fn without_calls(graph: &Graph, into: &mut Graph, args: &[Value]) -> Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| match &node.op {
        Op::Call(call) => Ok(without_calls(&call.body, into, operands)?.into_iter().collect()),
        op => into.push(op.clone(), operands, node.loc.clone()),
    })
}

impl Rules for Remat {
    fn name(&self) -> &'static str {
        "remat"
    }

    fn attrs(&self) -> Attrs {
        let policy = match &self.policy {
            RematPolicy::Nothing => "nothing".into(),
            RematPolicy::Everything => "everything".into(),
            RematPolicy::Dots => "dots".into(),
            RematPolicy::Names(names) => Attr::List(names.iter().cloned().map(Attr::Str).collect()),
        };
        vec![("policy", policy), ("body", (&self.body).into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        infer_body(&self.body, args)
    }

    jvp_of_body!();

    /// The known part returns the known outputs and the saved values. The unknown part is the body on the operands, with the saved
    /// values instead of the ops that computed them.
    fn partial_eval(&self, cx: &mut dyn GraphTransforms, args: &[Type], known: &[bool]) -> Result<PartialEval> {
        let mut body = Graph::new();
        let ins: Vec<Value> = args.iter().map(|t| body.input(t.clone())).collect();
        let outs = without_calls(&self.body, &mut body, &ins)?;
        body.set_outputs(outs);
        let s = cx.partial_eval_of(&body, known)?;
        let n_known = s.known_outs.iter().filter(|k| **k).count();
        let kept = self.policy.kept(&s, n_known);
        let (known_args, unknown_args) = (known_indices(known, true), known_indices(known, false));

        let mut later = Graph::new();
        let given: Vec<Value> = known_args.iter().map(|&i| later.input(args[i].clone())).collect();
        let stored: Vec<Value> = kept.iter().map(|&v| later.input(s.known.ty(v).clone())).collect();
        let unknown: Vec<Value> = unknown_args.iter().map(|&i| later.input(args[i].clone())).collect();
        let values = s.known.inline_with(&given, |node, operands| {
            let computed = later.push(node.op.clone(), operands, node.loc.clone())?;
            let stand_in = |(v, c): (&Value, Value)| kept.iter().position(|k| k == v).map_or(c, |k| stored[k]);
            Ok(node.outs.iter().zip(computed).map(stand_in).collect())
        })?;
        let outs = s.unknown.inline(&mut later, &[&values[n_known..], &unknown].concat())?;
        later.set_outputs(outs);
        let (later, used) = later.without_dead_inputs();

        // Saved values without uses in the unknown part are removed.
        let mut rest_args = Vec::new();
        let mut now = s.known.clone();
        let mut now_outs = s.known.outputs()[..n_known].to_vec();
        for (i, _) in used.iter().enumerate().filter(|(_, u)| **u) {
            rest_args.push(if i < given.len() {
                ResidualArg::Arg(known_args[i])
            } else if let Some(&v) = kept.get(i - given.len()) {
                now_outs.push(v);
                ResidualArg::Residual(now_outs.len() - 1)
            } else {
                ResidualArg::Arg(unknown_args[i - given.len() - kept.len()])
            });
        }
        let gives = !now_outs.is_empty();
        now.set_outputs(now_outs);
        Ok(PartialEval::Parts(SplitOp {
            known: gives.then(|| (self.again(now.without_dead_nodes()), known_args)),
            unknown: (n_known < s.known_outs.len()).then(|| (self.again(later), rest_args)),
            outs: known_then_unknown(&s.known_outs),
        }))
    }

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        // The body contains recomputed and linear ops: separate the two, then transpose the linear part.
        let known: Vec<bool> = args.iter().map(|a| !a.is_linear()).collect();
        let s = cx.partial_eval_of(&self.body, &known)?;
        let linear = known_indices(&known, false);
        let flags: Vec<bool> = (0..s.residuals + linear.len()).map(|i| i >= s.residuals).collect();
        let cts: Vec<Option<Value>> = (0..ct.len()).filter(|&i| !s.known_outs[i]).map(|i| ct[i]).collect();
        let has: Vec<bool> = cts.iter().map(Option::is_some).collect();
        let (back, gives) = cx.transpose_of(&s.unknown, &flags, &has)?;
        let mut b = Builder::new();
        let known_types = s.known.input_types();
        let ins: Vec<Value> = known_types.iter().map(|t| b.graph.input(t.clone())).collect();
        let values = b.inline(&s.known, &ins)?;
        let n_known = s.known_outs.iter().filter(|k| **k).count();
        let mut back_args = values[n_known..].to_vec();
        for c in cts.iter().flatten() {
            back_args.push(b.graph.input(cx.ty(*c)));
        }
        let outs = b.inline(&back, &back_args)?;
        let operands: Vec<Value> =
            args.iter().filter_map(TransposeArg::known).chain(cts.iter().flatten().copied()).collect();
        let mut results = cx.emit(self.again(b.finish(&outs)), &operands)?.into_iter();
        let mut grads = vec![None; args.len()];
        for (i, &g) in linear.into_iter().zip(&gives) {
            if g {
                grads[i] = results.next();
            }
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
        batch_body(&self.body, cx, x, batched, size, |g| self.again(g))
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward { when: SavePolicy::Recompute, ..SavedForBackward::none() }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Inline(self.body.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Remat>> {
        (name == "remat").then(|| {
            let policy = match attrs.take("policy") {
                Some(Attr::Word(w)) if w == "nothing" => RematPolicy::Nothing,
                Some(Attr::Word(w)) if w == "everything" => RematPolicy::Everything,
                Some(Attr::Word(w)) if w == "dots" => RematPolicy::Dots,
                Some(Attr::List(names)) => RematPolicy::Names(
                    names
                        .into_iter()
                        .map(|n| match n {
                            Attr::Str(s) => Ok(s),
                            _ => Err("a name is a quoted string".to_string()),
                        })
                        .collect::<AttrResult<_>>()?,
                ),
                _ => return Err("attribute `policy` is nothing, everything, dots or a list of names".into()),
            };
            Ok(Remat { body: attrs.graph("body")?, policy })
        })
    }
}
