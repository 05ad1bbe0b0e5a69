//! Partial evaluation: separates a graph into a known part, residuals, and an unknown part.

use crate::builder::TransformBuilder;
use ir::ops::{OutputSource, PartialEval, ResidualArg, SplitOp};
use ir::{Def, Error, Graph, GraphBuilder, Loc, Op, PartialEvalGraphs, Result, Type, Value};
use std::collections::BTreeMap;

/// Splits a graph, given which inputs are known.
pub fn partial_eval(graph: &Graph, known: &[bool]) -> Result<PartialEvalGraphs> {
    if known.len() != graph.inputs().len() {
        return Err(Error::Invalid(format!("{} flags for {} inputs", known.len(), graph.inputs().len())));
    }
    let mut s = PartialEvaluator {
        known: TransformBuilder::new(),
        unknown: TransformBuilder::new(),
        residuals: Vec::new(),
        residual_inputs: BTreeMap::new(),
    };
    let mut places: Vec<Option<EvalStage>> = vec![None; graph.num_values()];
    let mut unknown_inputs = Vec::new();
    for (&v, &k) in graph.inputs().iter().zip(known) {
        let ty = graph.ty(v).clone();
        places[v.0 as usize] = Some(if k {
            EvalStage::Known(s.known.input(ty))
        } else {
            let r = s.unknown.input(ty);
            unknown_inputs.push(r);
            EvalStage::Unknown(r)
        });
    }
    let live = graph.live_values();
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        s.known.set_loc(&node.loc);
        s.unknown.set_loc(&node.loc);
        let args: Vec<EvalStage> =
            node.args.iter().map(|a| places[a.0 as usize].expect("operands come first")).collect();
        let outs = s.node(&node.op, &args).map_err(|e| e.at(&node.loc))?;
        for (v, p) in node.outs.iter().zip(outs) {
            places[v.0 as usize] = Some(p);
        }
    }
    let outs: Vec<EvalStage> =
        graph.outputs().iter().map(|v| places[v.0 as usize].expect("outputs are live")).collect();
    s.finish(&outs, &unknown_inputs)
}

#[derive(Clone, Copy)]
enum EvalStage {
    Known(Value),
    Unknown(Value),
}

struct PartialEvaluator {
    known: TransformBuilder,
    unknown: TransformBuilder,
    /// Known values that the unknown part needs, with their inputs there.
    residuals: Vec<(Value, Value)>,
    /// Known values that already have an input in the unknown part.
    residual_inputs: BTreeMap<Value, Value>,
}

impl PartialEvaluator {
    fn node(&mut self, op: &Op, args: &[EvalStage]) -> Result<Vec<EvalStage>> {
        let flags: Vec<bool> = args.iter().map(|p| matches!(p, EvalStage::Known(_))).collect();
        if flags.iter().all(|k| *k) {
            let args: Vec<Value> = args.iter().map(|p| self.known_value(*p)).collect::<Result<_>>()?;
            return Ok(self.known.emit(op.clone(), &args)?.into_iter().map(EvalStage::Known).collect());
        }
        let types: Vec<Type> = args
            .iter()
            .map(|p| match p {
                EvalStage::Known(v) => self.known.ty(*v),
                EvalStage::Unknown(v) => self.unknown.ty(*v),
            })
            .collect();
        match op.split(&mut self.known, &types, &flags)? {
            PartialEval::Atomic => {
                let args: Vec<Value> = args.iter().map(|p| self.unknown_value(*p)).collect::<Result<_>>()?;
                Ok(self.unknown.emit(op.clone(), &args)?.into_iter().map(EvalStage::Unknown).collect())
            }
            PartialEval::Parts(parts) => self.parts(parts, args),
        }
    }

    fn parts(&mut self, parts: SplitOp, args: &[EvalStage]) -> Result<Vec<EvalStage>> {
        let known_outs = match parts.known {
            Some((op, places)) => {
                let operands: Vec<Value> = places.iter().map(|&i| self.known_value(args[i])).collect::<Result<_>>()?;
                self.known.emit(op, &operands)?.to_vec()
            }
            None => Vec::new(),
        };
        let rest_outs = match parts.unknown {
            Some((op, places)) => {
                let mut operands = Vec::with_capacity(places.len());
                for p in places {
                    operands.push(match p {
                        ResidualArg::Arg(i) => self.unknown_value(args[i])?,
                        ResidualArg::Residual(k) => self.unknown_value(EvalStage::Known(known_outs[k]))?,
                    });
                }
                self.unknown.emit(op, &operands)?.to_vec()
            }
            None => Vec::new(),
        };
        Ok(parts
            .outs
            .iter()
            .map(|o| match *o {
                OutputSource::Known(k) => EvalStage::Known(known_outs[k]),
                OutputSource::Unknown(k) => EvalStage::Unknown(rest_outs[k]),
            })
            .collect())
    }

    fn known_value(&self, p: EvalStage) -> Result<Value> {
        match p {
            EvalStage::Known(v) => Ok(v),
            EvalStage::Unknown(_) => Err(Error::Invalid("a split used an unknown operand as known".into())),
        }
    }

    /// The value in the unknown part; a known value becomes a residual. Constants and broadcasts are recomputed there instead,
    /// because that is cheaper than storing them.
    fn unknown_value(&mut self, p: EvalStage) -> Result<Value> {
        let v = match p {
            EvalStage::Unknown(v) => return Ok(v),
            EvalStage::Known(v) => v,
        };
        if let Some(r) = self.residual_inputs.get(&v) {
            return Ok(*r);
        }
        let node = self.known.graph().node_of(v).map(|n| (n.op.clone(), n.args.clone()));
        let r = match node {
            Some((op @ (Op::Const(_) | Op::Iota(_) | Op::Broadcast(_)), args)) => {
                let args: Vec<Value> =
                    args.iter().map(|&a| self.unknown_value(EvalStage::Known(a))).collect::<Result<_>>()?;
                self.unknown.one(op, &args)?
            }
            _ => {
                let r = self.unknown.input(self.known.ty(v));
                self.residuals.push((v, r));
                r
            }
        };
        self.residual_inputs.insert(v, r);
        Ok(r)
    }

    fn finish(mut self, outs: &[EvalStage], unknown_inputs: &[Value]) -> Result<PartialEvalGraphs> {
        let known_outs: Vec<bool> = outs.iter().map(|p| matches!(p, EvalStage::Known(_))).collect();
        let rest_outs: Vec<Value> =
            outs.iter().filter_map(|p| if let EvalStage::Unknown(v) = p { Some(*v) } else { None }).collect();
        // Keep only the residuals that the live part of the unknown graph reads.
        let rest = {
            self.unknown.set_loc(&Loc::Unknown);
            self.unknown.finish(&rest_outs)
        };
        let used = rest.used_inputs();
        // The inputs were created in order of discovery; `finish` keeps their order.
        let position: BTreeMap<Value, usize> = {
            let mut all: Vec<Value> =
                self.residuals.iter().map(|r| r.1).chain(unknown_inputs.iter().copied()).collect();
            all.sort();
            all.into_iter().enumerate().map(|(i, v)| (v, i)).collect()
        };
        let kept: Vec<(Value, usize)> =
            self.residuals.iter().map(|(k, r)| (*k, position[r])).filter(|(_, i)| used[*i]).collect();
        let mut ordered = Graph::new();
        let mut args = vec![Value(u32::MAX); rest.inputs().len()];
        let types = rest.input_types();
        for &i in kept.iter().map(|(_, i)| i).chain(unknown_inputs.iter().map(|v| &position[v])) {
            args[i] = ordered.input(types[i].clone());
        }
        let outs_in_order = rest.inline(&mut ordered, &args)?;
        ordered.set_outputs(outs_in_order);
        let forwarded = kept
            .iter()
            .map(|(k, _)| match self.known.graph().def(*k) {
                Def::Input(i) => Some(i as usize),
                Def::Node(..) => None,
            })
            .collect();
        let mut known_outputs: Vec<Value> =
            outs.iter().filter_map(|p| if let EvalStage::Known(v) = p { Some(*v) } else { None }).collect();
        known_outputs.extend(kept.iter().map(|(k, _)| *k));
        Ok(PartialEvalGraphs {
            known: self.known.finish(&known_outputs),
            unknown: ordered,
            known_outs,
            residuals: kept.len(),
            forwarded,
        })
    }
}
