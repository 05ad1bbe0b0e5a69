//! Counts the cost of a graph from its ops: FLOPs, memory traffic of products, communication between ranks.

use ir::ops::{Op, RaggedMode};
use ir::{Graph, MeshAxis, Semantics, Type, Value};
use std::collections::BTreeMap;

/// The cost of running a graph once on a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpCounts {
    /// FLOPs of matrix products.
    pub flops: f64,
    /// Bytes that products read and write.
    pub bytes: f64,
    /// Communication by mesh axes: number of calls, and bytes that a rank sends.
    pub communication: BTreeMap<Vec<MeshAxis>, (f64, f64)>,
}

impl OpCounts {
    /// Adds a cost, multiplied by a number of repetitions.
    pub fn add(&mut self, other: &OpCounts, times: f64) {
        self.flops += other.flops * times;
        self.bytes += other.bytes * times;
        for (axes, (calls, bytes)) in &other.communication {
            let own = self.communication.entry(axes.clone()).or_default();
            own.0 += calls * times;
            own.1 += bytes * times;
        }
    }

    /// The total number of bytes that a rank sends.
    pub fn bytes_sent(&self) -> f64 {
        self.communication.values().map(|(_, bytes)| bytes).sum()
    }
}

/// Counts a graph. Of branches the most expensive one is counted; a loop with an unknown trip count is counted once.
pub fn count_ops(graph: &Graph) -> OpCounts {
    let live = graph.live_values();
    let mut all = OpCounts::default();
    for node in graph.nodes() {
        if !node.outs.iter().any(|v| live[v.0 as usize]) {
            continue;
        }
        let ty = |v: &Value| graph.ty(*v);
        let numel = |t: &Type| t.numel() as f64;
        let product = |flops: f64| {
            let touched: usize = node.args.iter().chain(node.outs.iter()).map(|v| ty(v).bytes()).sum();
            OpCounts { flops, bytes: touched as f64, ..OpCounts::default() }
        };
        match &node.op {
            Op::Dot(d) => {
                let a = ty(&node.args[0]);
                let along: f64 = d.lhs_contract.iter().map(|&i| a.shape[i] as f64).product();
                all.add(&product(2.0 * numel(ty(&node.outs[0])) * along), 1.0);
            }
            Op::RaggedDot(d) => {
                let (a, b) = (ty(&node.args[0]), ty(&node.args[1]));
                let wide = b.shape.last().map_or(1.0, |n| *n as f64);
                let flops = match d.mode {
                    RaggedMode::Rows | RaggedMode::Contract => 2.0 * numel(a) * wide,
                };
                all.add(&product(flops), 1.0);
            }
            Op::Conv(_) => {
                let (w, out) = (ty(&node.args[1]), ty(&node.outs[0]));
                let widest = out.shape.get(1).map_or(1.0, |n| *n as f64).max(1.0);
                all.add(&product(2.0 * numel(out) * numel(w) / widest), 1.0);
            }
            Op::Collective(c) if c.communicates() && c.ranks() > 1 => {
                let bytes = node.args.first().map_or(0, |v| c.sent_bytes(ty(v).bytes())) as f64;
                let own = all.communication.entry(c.axes.clone()).or_default();
                own.0 += 1.0;
                own.1 += bytes;
            }
            Op::Scan(s) => all.add(&count_ops(&s.body), s.length as f64),
            Op::While(w) => all.add(&count_ops(&w.body), 1.0),
            Op::Cond(c) => {
                let branches = c.branches.iter().map(|g| count_ops(g));
                if let Some(dearest) = branches.max_by(|a, b| a.flops.total_cmp(&b.flops)) {
                    all.add(&dearest, 1.0);
                }
            }
            op => {
                if let Semantics::Inline(body) = op.semantics() {
                    all.add(&count_ops(&body), 1.0);
                }
            }
        }
    }
    all
}

/// Bytes that a loss saves for its backward pass, besides its inputs and values that are gathered again.
pub fn saved_activation_bytes(loss: &Graph) -> ir::Result<usize> {
    let active: Vec<bool> = loss.input_types().iter().map(|ty| ty.dtype.is_float()).collect();
    let lin = transform::linearize(loss, &active)?;
    let outs = loss.outputs().len();
    let residuals = lin.known.outputs()[outs..].iter();
    let held = residuals.filter(|v| match lin.known.node_of(**v) {
        None => false,
        Some(node) => !matches!(&node.op, Op::Collective(c) if matches!(c.kind, ir::ops::CollectiveKind::AllGather { same: false, .. })),
    });
    Ok(held.map(|v| lin.known.ty(*v).bytes()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::ops::{Dot, Scan};
    use ir::{Builder, DType, GraphBuilder};

    #[test]
    fn products_in_loops_and_what_ranks_send_are_counted() {
        let axis = [MeshAxis::new("tp", 4)];
        let mut body = Builder::new();
        let x = body.input(DType::F32, &[8, 16]);
        let w = body.input(DType::F32, &[16, 16]);
        let y = body.one(Dot::last_axes(DType::F32, 2, 2).into(), &[x, w]).unwrap();
        let y = body.psum(y, &axis).unwrap();
        let body = body.finish(&[y]);
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[8, 16]);
        let ws = b.input(DType::F32, &[5, 16, 16]);
        let y = b.emit(Scan::over(0, 1, 5, body).into(), &[x, ws]).unwrap()[0];
        let found = count_ops(&b.finish(&[y]));
        assert_eq!(found.flops, 5.0 * 2.0 * 8.0 * 16.0 * 16.0);
        assert_eq!(found.bytes, 5.0 * 4.0 * (128.0 + 256.0 + 128.0));
        assert_eq!(found.communication[&axis.to_vec()], (5.0, 5.0 * 2.0 * 512.0 * 3.0 / 4.0));
    }
}
