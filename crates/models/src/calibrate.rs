//! Calibration: how large the inputs of each matrix are on some text, so that rounding errors count as much as they do there.
//!
//! Of a matrix `w` in few bits, a result is wrong by `Σ (ŵ − w)·x`. With inputs that are large in some places and small in others, a
//! block is better off with scales that fit the numbers which meet large inputs. Its largest numbers are cut off a little, more and
//! more, and what has the smallest error, weighted by the mean square of each input, is kept.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::packed::PackedWeight;
use crate::session::Session;
use compiler::Backend;
use ir::composites::quantized::Packing;
use ir::ops::ReduceKind;
use ir::{Build, Builder, DType, Graph, Op, Value, Values};
use lang::lower::Options;
use std::collections::BTreeMap;
use train::named_tensor::from_bytes;

/// The mean square of each input of the matrices that products read, by parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    of: BTreeMap<usize, Vec<f32>>,
}

/// What the largest number of a block is cut to.
const CUTS: [f32; 9] = [1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.78, 0.74];

impl Calibration {
    pub(crate) fn of(&self, param: usize) -> Option<&[f32]> {
        self.of.get(&param).map(|all| &all[..])
    }

    /// How many matrices it knows.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

impl Model {
    /// Runs sequences of one length and looks at what the matrices are multiplied by.
    pub fn calibrate(&self, rows: &[Vec<i32>], backend: &dyn Backend) -> Result<Calibration> {
        if self.is_quantized() {
            return Err(Error::Input(
                "a model that is quantised already is calibrated too late: give the wide one".into(),
            ));
        }
        let steps = self.check_ids(rows)?;
        let options = Options { dtype: self.dtype, ..Options::default() };
        let graph = self.architecture.lower_with(1, steps, &options)?.graph;
        let (graph, params) = squares(&graph, self.params.len())?;
        let uploaded = self.upload(backend)?;
        let mut session = Session::new(&graph, backend, &uploaded)?;
        let mut found = Calibration::default();
        let each = 1.0 / (rows.len() * steps).max(1) as f32;
        for row in rows {
            session.write_ints(self.params.len(), row.iter().copied())?;
            session.run()?;
            for (output, param) in params.iter().enumerate() {
                let (ty, bytes) = session.read(output)?;
                let sums = from_bytes(&bytes, ty.dtype);
                let all = found.of.entry(*param).or_insert_with(|| vec![0.0; sums.len()]);
                all.iter_mut().zip(&sums).for_each(|(all, sum)| *all += each * sum);
            }
        }
        if found.of.values().flatten().any(|x| !x.is_finite()) {
            return Err(Error::Input(
                "inputs of a product are not finite on this text: nothing can be calibrated".into(),
            ));
        }
        Ok(found)
    }
}

/// A graph that gives the sums of squares of what the parameters among its first `count` inputs are multiplied by, and which.
fn squares(graph: &Graph, count: usize) -> Result<(Graph, Vec<usize>)> {
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

/// Writes a graph out, through what it calls, and notes left operands of products with parameters `[out, in]`.
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

/// Packs rows of numbers so that errors are small where inputs are large.
pub(crate) fn pack(
    packing: Packing,
    shape: &[usize],
    values: &[f32],
    scale: DType,
    squares: &[f32],
) -> std::result::Result<PackedWeight, String> {
    let (group, k) = (packing.group, squares.len().max(1));
    let mut best: Option<(PackedWeight, Vec<f64>)> = None;
    let mut cut = vec![0f32; values.len()];
    for part in CUTS {
        for (to, from) in cut.chunks_mut(group).zip(values.chunks(group)) {
            let most = part * from.iter().fold(0f32, |m, x| m.max(x.abs()));
            to.iter_mut().zip(from).for_each(|(to, x)| *to = x.clamp(-most, most));
        }
        let tried = PackedWeight::pack(packing, shape, &cut, scale)?;
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
    best.map(|(packed, _)| packed).ok_or_else(|| "nothing to pack".into())
}
