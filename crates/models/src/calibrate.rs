//! Calibration: measures the inputs of each matrix on sample text, so that rounding errors are weighted by them.
//!
//! With a quantized matrix `w`, a result has the error `Σ (ŵ − w)·x`. If some inputs are larger than others, a block has a
//! smaller error with scales that fit the numbers which are multiplied by large inputs. Its largest numbers are clipped by
//! increasing amounts, and the one with the smallest error, weighted by the mean square of each input, is selected.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::quantized_weight::QuantizedWeight;
use crate::session::ProgramSession;
use compiler::Backend;
use ir::composites::quantized::QuantScheme;
use ir::ops::ReduceKind;
use ir::{Builder, DType, Graph, GraphBuilder, Op, Value, Values};
use lang::lower::LowerOptions;
use std::collections::BTreeMap;
use train::named_tensor::from_bytes;

/// The mean square of each input of the matrices in products, by parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    mean_squares: BTreeMap<usize, Vec<f32>>,
}

/// Candidate clipping factors of the largest number of a block.
const CLIP_RATIOS: [f32; 9] = [1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.78, 0.74];

impl Calibration {
    pub(crate) fn for_param(&self, param: usize) -> Option<&[f32]> {
        self.mean_squares.get(&param).map(|all| &all[..])
    }

    /// The number of matrices.
    pub fn len(&self) -> usize {
        self.mean_squares.len()
    }

    /// Whether there are no matrices.
    pub fn is_empty(&self) -> bool {
        self.mean_squares.is_empty()
    }
}

impl Model {
    /// Runs sequences of one length and records the inputs of the matrices.
    pub fn calibrate(&self, rows: &[Vec<i32>], backend: &dyn Backend) -> Result<Calibration> {
        if self.is_quantized() {
            return Err(Error::Input("the model is already quantized: calibrate the unquantized model".into()));
        }
        let steps = self.check_ids(rows)?;
        let options = LowerOptions { dtype: self.dtype, ..LowerOptions::default() };
        let graph = self.architecture.lower_with(1, steps, &options)?.graph;
        let (graph, params) = input_square_graph(&graph, self.params.len())?;
        let uploaded = self.upload(backend)?;
        let mut session = ProgramSession::new(&graph, backend, &uploaded)?;
        let mut found = Calibration::default();
        let each = 1.0 / (rows.len() * steps).max(1) as f32;
        for row in rows {
            session.write_ints(self.params.len(), row.iter().copied())?;
            session.run()?;
            for (output, param) in params.iter().enumerate() {
                let (ty, bytes) = session.read(output)?;
                let sums = from_bytes(&bytes, ty.dtype);
                let all = found.mean_squares.entry(*param).or_insert_with(|| vec![0.0; sums.len()]);
                all.iter_mut().zip(&sums).for_each(|(all, sum)| *all += each * sum);
            }
        }
        if found.mean_squares.values().flatten().any(|x| !x.is_finite()) {
            return Err(Error::Input(
                "the activations are not finite on the calibration text: give another text".into(),
            ));
        }
        Ok(found)
    }
}

/// Returns a graph that computes the sums of squares of the inputs of the parameters among the
/// first `count` inputs, and lists these parameters.
fn input_square_graph(graph: &Graph, count: usize) -> Result<(Graph, Vec<usize>)> {
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut met: Vec<(usize, Value)> = Vec::new();
    walk(&mut b, graph, &args, &args[..count], &mut met)?;
    let mut sums: BTreeMap<usize, Value> = BTreeMap::new();
    for (param, x) in met {
        let wide = b.cast(x, DType::F32)?;
        let square = b.mul(wide, wide)?;
        let axes: Vec<usize> = (0..b.ty(x).rank() - 1).collect();
        let sum = b.reduce(ReduceKind::Sum, square, &axes)?;
        let sum = match sums.get(&param) {
            Some(other) => b.add(*other, sum)?,
            None => sum,
        };
        sums.insert(param, sum);
    }
    let outs: Vec<Value> = sums.values().copied().collect();
    Ok((b.finish(&outs), sums.into_keys().collect()))
}

/// Inlines a graph and its calls, and records the left operands of products with parameters `[out, in]`.
fn walk(
    b: &mut Builder,
    graph: &Graph,
    args: &[Value],
    params: &[Value],
    met: &mut Vec<(usize, Value)>,
) -> ir::Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| {
        let param = |v: &Value| params.iter().position(|p| p == v);
        if let (Op::Dot(dot), Some(i)) = (&node.op, operands.get(1).and_then(param)) {
            let rank = b.ty(operands[0]).rank();
            if dot.lhs_batch.is_empty() && dot.rhs_contract[..] == [1] && dot.lhs_contract[..] == [rank - 1] {
                met.push((i, operands[0]));
            }
        }
        let body = match &node.op {
            Op::Composite(c) => Some(&c.body),
            Op::Call(call) => Some(&call.body),
            Op::Remat(remat) => Some(&remat.body),
            _ => None,
        };
        match body.filter(|_| operands.iter().any(|v| param(v).is_some())) {
            Some(body) => {
                let public = node.outs.len();
                let outs = walk(b, body, operands, params, met)?;
                Ok(outs.into_iter().take(public).collect::<Values>())
            }
            None => b.emit(node.op.clone(), operands),
        }
    })
}

/// Quantizes rows of numbers so that errors are small where inputs are large.
pub(crate) fn quantize_calibrated(
    packing: QuantScheme,
    shape: &[usize],
    values: &[f32],
    scale: DType,
    squares: &[f32],
) -> std::result::Result<QuantizedWeight, String> {
    let (group, k) = (packing.group, squares.len().max(1));
    let mut best: Option<(QuantizedWeight, Vec<f64>)> = None;
    let mut cut = vec![0f32; values.len()];
    for part in CLIP_RATIOS {
        for (to, from) in cut.chunks_mut(group).zip(values.chunks(group)) {
            let most = part * from.iter().fold(0f32, |m, x| m.max(x.abs()));
            to.iter_mut().zip(from).for_each(|(to, x)| *to = x.clamp(-most, most));
        }
        let tried = QuantizedWeight::pack(packing, shape, &cut, scale)?;
        let found = tried.values();
        let error = |g: usize| -> f64 {
            let at = g * group..((g + 1) * group).min(values.len());
            at.map(|i| f64::from(squares[i % k]) * f64::from(found[i] - values[i]).powi(2)).sum()
        };
        let errors: Vec<f64> = (0..values.len().div_ceil(group)).map(error).collect();
        let Some((kept, least)) = &mut best else {
            best = Some((tried, errors));
            continue;
        };
        for (g, error) in errors.into_iter().enumerate() {
            if error < least[g] {
                least[g] = error;
                for (to, from) in kept.parts.iter_mut().zip(&tried.parts) {
                    let size = from.len() / least.len();
                    to[g * size..(g + 1) * size].copy_from_slice(&from[g * size..(g + 1) * size]);
                }
            }
        }
    }
    best.map(|(packed, _)| packed).ok_or_else(|| "no tensor to quantize".into())
}
