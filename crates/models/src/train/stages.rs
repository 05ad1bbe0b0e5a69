//! Splits a loss graph into stages of consecutive layers for a pipeline.
//!
//! A value belongs to the last layer whose parameters it depends on; a stage has some layers, and the values before the first or
//! after the last layer. Values that depend on no layer (masks, position tables, embeddings) are computed where they are needed.
//! The inputs of a stage are the values of earlier layers that it or later stages need.

use crate::error::{Error, Result};
use ir::ops::Op;
use ir::{Builder, Def, Graph, GraphBuilder, Value};
use std::collections::BTreeMap;

/// A loss graph with the stage of each of its values.
pub(crate) struct PipelineStages<'a> {
    loss: &'a Graph,
    params: usize,
    chunks: usize,
    /// The stage of each value; none if it depends on no layer.
    chunk_of: Vec<Option<usize>>,
    /// The values that are passed into each stage.
    boundary_values: Vec<Vec<Value>>,
}

/// A stage of a loss.
#[derive(Clone)]
pub(crate) struct StageChunk {
    /// From (its parameters.., token IDs, labels, random key.., values from earlier stages..) to values for later stages, or the loss.
    pub(crate) graph: Graph,
    /// The indices of its parameters among the inputs of the loss.
    pub(crate) params: Vec<usize>,
    /// The number of its last inputs that come from the previous stage.
    pub(crate) num_received: usize,
}

fn unsupported_error(text: impl Into<String>) -> Error {
    Error::Input(text.into())
}

/// The layer of a parameter: the first number in brackets in its path.
pub(crate) fn layer_of(path: &str) -> Option<usize> {
    let (_, rest) = path.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

/// Inlines all calls and removes checkpoint markers: the backward pass of a stage recomputes all of it.
pub(crate) fn inline_calls(graph: &Graph) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let mut map: BTreeMap<Value, Value> = BTreeMap::new();
    for &v in graph.inputs() {
        let own = b.graph.input(graph.ty(v).clone());
        map.insert(v, own);
    }
    for node in graph.nodes() {
        let args: Vec<Value> = node.args.iter().map(|a| map[a]).collect();
        let outs = match &node.op {
            Op::Remat(r) => b.inline(&inline_calls(&r.body)?, &args)?,
            Op::Call(c) => b.inline(&inline_calls(&c.body)?, &args)?,
            op => b.graph.push(op.clone(), &args, node.loc.clone())?.to_vec(),
        };
        node.outs.iter().zip(outs).for_each(|(v, own)| {
            map.insert(*v, own);
        });
    }
    let outs: Vec<Value> = graph.outputs().iter().map(|v| map[v]).collect();
    Ok(b.finish(&outs))
}

impl<'a> PipelineStages<'a> {
    /// Assigns values to stages. `layers` are those of the first inputs, the parameters. Layers are distributed as evenly as
    /// possible, unless `@partition` assigns stages.
    pub(crate) fn of(loss: &'a Graph, layers: &[Option<usize>], chunks: usize) -> Result<PipelineStages<'a>> {
        let count = layers.iter().flatten().max().map_or(0, |l| l + 1);
        if count < chunks {
            return Err(unsupported_error(format!(
                "{count} layers cannot be split into {chunks} pipeline stages: reduce `--mesh pp=..` or `--virtual-stages`"
            )));
        }
        let mut of: Vec<Option<usize>> = vec![None; loss.num_values()];
        for (v, layer) in loss.inputs().iter().zip(layers) {
            of[v.0 as usize] = *layer;
        }
        for node in loss.nodes() {
            let deepest = node.args.iter().filter_map(|a| of[a.0 as usize]).max();
            node.outs.iter().for_each(|v| of[v.0 as usize] = deepest);
        }
        match partition_marks(loss, &of, chunks)? {
            Some(stages) => of = stages,
            None => of.iter_mut().flatten().for_each(|layer| *layer = *layer * chunks / count),
        }
        if of[loss.outputs()[0].0 as usize] != Some(chunks - 1) {
            return Err(unsupported_error(
                "the loss does not depend on the last layers, so the model cannot be split into pipeline stages",
            ));
        }
        // The last stage that needs each value.
        let mut needed: Vec<Option<usize>> = vec![None; loss.num_values()];
        for node in loss.nodes() {
            let by = node.outs.iter().filter_map(|v| of[v.0 as usize]).max();
            for a in &node.args {
                let own = &mut needed[a.0 as usize];
                *own = (*own).max(by);
            }
        }
        let mut crossing = vec![Vec::new(); chunks];
        for (v, own) in of.iter().enumerate() {
            let value = Value(v as u32);
            let (Some(own), Some(last), Def::Node(..)) = (own, needed[v], loss.def(value)) else { continue };
            for c in own + 1..=last {
                crossing[c].push(value);
            }
        }
        if let Some(v) = crossing.iter().flatten().find(|v| !loss.ty(**v).dtype.is_float()) {
            return Err(unsupported_error(format!(
                "a layer passes {} to a later one without a gradient, so the model cannot be split into pipeline \
                 stages",
                loss.ty(*v)
            )));
        }
        Ok(PipelineStages { loss, params: layers.len(), chunks, chunk_of: of, boundary_values: crossing })
    }

    /// Extracts the graph of a stage.
    pub(crate) fn chunk(&self, c: usize) -> Result<StageChunk> {
        let loss = self.loss;
        let given = &self.boundary_values[c];
        let wanted: Vec<Value> = match self.boundary_values.get(c + 1) {
            Some(next) => next.clone(),
            None => vec![loss.outputs()[0]],
        };
        let mut needed = vec![false; loss.num_values()];
        let mut stack = wanted.clone();
        while let Some(v) = stack.pop() {
            if std::mem::replace(&mut needed[v.0 as usize], true) || given.contains(&v) {
                continue;
            }
            if let Def::Node(n, _) = loss.def(v) {
                debug_assert!(self.chunk_of[v.0 as usize].is_none_or(|own| own == c), "a value of another stage");
                stack.extend(&loss.nodes()[n as usize].args);
            }
        }
        let mut b = Builder::new();
        let mut map: Vec<Option<Value>> = vec![None; loss.num_values()];
        let mut params = Vec::new();
        for (i, v) in loss.inputs().iter().enumerate() {
            // Data inputs are always kept; of parameters, only those in use.
            if i >= self.params || needed[v.0 as usize] {
                map[v.0 as usize] = Some(b.graph.input(loss.ty(*v).clone()));
                if i < self.params {
                    params.push(i);
                }
            }
        }
        for v in given {
            map[v.0 as usize] = Some(b.graph.input(loss.ty(*v).clone()));
        }
        for node in loss.nodes() {
            let own = |v: &Value| needed[v.0 as usize] && map[v.0 as usize].is_none();
            if !node.outs.iter().any(own) {
                continue;
            }
            let args: Option<Vec<Value>> = node.args.iter().map(|a| map[a.0 as usize]).collect();
            let Some(args) = args else { return Err(unsupported_error("a part of the model belongs to no stage")) };
            let outs = b.graph.push(node.op.clone(), &args, node.loc.clone())?;
            for (v, out) in node.outs.iter().zip(outs) {
                map[v.0 as usize].get_or_insert(out);
            }
        }
        let outs: Option<Vec<Value>> = wanted.iter().map(|v| map[v.0 as usize]).collect();
        let Some(outs) = outs else { return Err(unsupported_error("a part of the model belongs to no stage")) };
        Ok(StageChunk { graph: b.finish(&outs), params, num_received: given.len() })
    }

    /// The number of stages.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }
}

/// The stages that `@partition` assigns to values, if it does: operands of an annotated value are in its stage, unless in an
/// earlier one; all other values are in the last stage.
fn partition_marks(loss: &Graph, of: &[Option<usize>], chunks: usize) -> Result<Option<Vec<Option<usize>>>> {
    let mut marks: Vec<(usize, Value)> = Vec::new();
    for node in loss.nodes() {
        let Op::Name(name) = &node.op else { continue };
        if let Some(stage) = name.name.strip_prefix("stage ").and_then(|n| n.parse().ok()) {
            marks.push((stage, node.outs[0]));
        }
    }
    let Some(most) = marks.iter().map(|(stage, _)| stage + 1).max() else { return Ok(None) };
    if most != chunks {
        return Err(unsupported_error(format!(
            "`@partition` defines {most} stages, but the mesh has {chunks}: give `--mesh pp={most}`, or \
             `--virtual-stages` with that total"
        )));
    }
    marks.sort();
    let mut found: Vec<Option<usize>> = vec![None; of.len()];
    for (stage, v) in marks {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            let at = v.0 as usize;
            if found[at].is_some() || of[at].is_none() {
                continue;
            }
            found[at] = Some(stage);
            if let Def::Node(n, _) = loss.def(v) {
                stack.extend(&loss.nodes()[n as usize].args);
            }
        }
    }
    let last = chunks - 1;
    for (own, layer) in found.iter_mut().zip(of) {
        if layer.is_some() && own.is_none() {
            *own = Some(last);
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::ops::{Dot, Name};
    use ir::{DType, Literal, Unary, interp};

    /// Layers with a skip connection over two of them, a shared scale, and a head; annotations after some layers.
    fn loss(layers: usize, marks: &[(usize, usize)]) -> (Graph, Vec<Option<usize>>) {
        let mut b = Builder::new();
        let ws: Vec<Value> = (0..layers).map(|_| b.input(DType::F64, &[3, 3])).collect();
        let head = b.input(DType::F64, &[3]);
        let x = b.input(DType::F64, &[2, 3]);
        let scale = b.unary(Unary::Exp, x).unwrap();
        let mut all = vec![b.unary(Unary::Sin, x).unwrap()];
        for (l, w) in ws.iter().enumerate() {
            let h = all[l];
            let y = b.one(Dot::last_axes(DType::F64, 2, 2).into(), &[h, *w]).unwrap();
            let y = b.mul(y, scale).unwrap();
            let mut y = b.unary(Unary::Tanh, y).unwrap();
            if l >= 2 {
                y = b.add(y, all[l - 2]).unwrap();
            }
            if let Some((_, stage)) = marks.iter().find(|(at, _)| *at == l) {
                y = b.one(Name::new(format!("stage {stage}")).into(), &[y]).unwrap();
            }
            all.push(y);
        }
        let wide = b.broadcast(head, &[2, 3], &[1]).unwrap();
        let y = b.mul(all[layers], wide).unwrap();
        let y = b.sum_all(y).unwrap();
        let mut of: Vec<Option<usize>> = (0..layers).map(Some).collect();
        of.push(None);
        (b.finish(&[y]), of)
    }

    #[test]
    fn chunks_one_after_another_are_the_whole() {
        let fill = |n: usize, k: usize| (0..n).map(|i| ((i + 7 * k) as f64 * 0.7).sin() * 0.5).collect::<Vec<f64>>();
        let uneven = [(0, 0), (1, 0), (4, 1), (5, 2)];
        for (layers, marks) in [(4, &[][..]), (6, &[]), (7, &[]), (6, &uneven)] {
            let (graph, of) = loss(layers, marks);
            let mut inputs: Vec<Literal> = (0..layers).map(|l| Literal::new(&[3, 3], &fill(9, l))).collect();
            inputs.extend([Literal::new(&[3], &fill(3, 50)), Literal::new(&[2, 3], &fill(6, 60))]);
            let want = interp::run(&graph, &inputs).unwrap()[0].to_vec::<f64>();
            for chunks in 1..=layers {
                if !marks.is_empty() && chunks != 3 {
                    let e = PipelineStages::of(&graph, &of, chunks).err().unwrap().to_string();
                    assert!(e.contains("`@partition` defines 3 stages") && e.contains("pp=3"), "{e}");
                    continue;
                }
                let stages = PipelineStages::of(&graph, &of, chunks).unwrap();
                let mut given: Vec<Literal> = Vec::new();
                let mut seen = 0;
                for c in 0..stages.chunks() {
                    let chunk = stages.chunk(c).unwrap();
                    assert_eq!(chunk.num_received, given.len());
                    assert_eq!(chunk.params.contains(&layers), c + 1 == chunks, "only the last has the head");
                    seen += chunk.params.len();
                    let mut own: Vec<Literal> = chunk.params.iter().map(|&p| inputs[p].clone()).collect();
                    own.push(inputs[layers + 1].clone());
                    own.extend(given);
                    given = interp::run(&chunk.graph, &own).unwrap();
                }
                assert_eq!(seen, layers + 1, "each parameter is in one chunk");
                assert_eq!(given[0].to_vec::<f64>(), want, "{layers} layers in {chunks} chunks");
            }
            assert!(PipelineStages::of(&graph, &of, layers + 1).is_err());
        }
        assert_eq!((layer_of("blocks[12].mlp.up[3]"), layer_of("embedding")), (Some(12), None));
    }
}
