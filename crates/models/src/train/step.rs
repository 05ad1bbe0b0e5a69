//! One step of training as one graph: loss, gradients, clipping, AdamW.
//!
//! The graph maps (trained.., first moments.., second moments.., fixed.., ids, labels, rate, corrections of both moments,
//! and keys of what is random) to (loss, norm of the gradient, trained.., first moments.., second moments.., how often assertions are broken, and the length of each tensor's gradient). Moments and trained tensors are f32;
//! with another compute dtype they are cast on their way into the model, so that the masters keep small updates.

use super::division::Sums;
use crate::beside::key_type;
use ir::ops::Scan;
use ir::{Build, Builder, Compare, DType, Graph, Result, Type, Unary, Value};

/// Constants of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, on matrices alone.
    pub decay: f64,
    /// Gradients longer than this are shortened to it; 0 turns clipping off.
    pub clip: f64,
}

/// What is trained, what is not, and how the loss follows from both.
#[derive(Clone, Debug)]
pub(crate) struct Objective {
    /// (trained.., fixed.., ids, labels) to the mean loss, with `ids` and `labels` of one micro-batch; a key comes last.
    pub(crate) loss: Graph,
    /// The same without anything random, for validation.
    pub(crate) plain: Graph,
    /// Whether `loss` takes a key.
    pub(crate) keyed: bool,
    /// How each of the first inputs is trained.
    pub(crate) trained: Vec<Trained>,
    /// Matrices that are trained beside the model, the last of the trained.
    pub(crate) heads: Vec<(String, Type)>,
    /// How ranks sum gradients, as the model says.
    pub(crate) summing: lang::lower::Summing,
    /// Tensors and messages of what is asserted; `loss` then says behind the loss how often each is broken.
    pub(crate) asserts: Vec<(String, String)>,
}

/// How a tensor is trained: the `lr_scale`, `wd_scale` and `grad_clip` of `@trainable`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trained {
    /// Factor of the learning rate.
    pub(crate) rate: f64,
    /// Factor of the weight decay.
    pub(crate) decay: f64,
    /// Its own gradient is shortened to this length, before the whole is.
    pub(crate) clip: Option<f64>,
}

impl Trained {
    /// Like any other; matrices decay.
    pub(crate) fn new(decays: bool) -> Trained {
        Trained { rate: 1.0, decay: if decays { 1.0 } else { 0.0 }, clip: None }
    }
}

/// Scalars that change with every step, in the order of the graph's inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalars {
    pub(crate) rate: f32,
    pub(crate) correct1: f32,
    pub(crate) correct2: f32,
}

impl AdamW {
    /// The scalars of a step, counted from 0.
    pub(crate) fn scalars(&self, rate: f64, step: usize) -> Scalars {
        let correct = |beta: f64| (1.0 / (1.0 - beta.powi(step as i32 + 1))) as f32;
        Scalars { rate: rate as f32, correct1: correct(self.beta1), correct2: correct(self.beta2) }
    }
}

/// The whole step over `accumulate` micro-batches; `sums` says what ranks sum together, of which each runs the step.
pub(crate) fn graph(objective: &Objective, adam: &AdamW, accumulate: usize, sums: &Sums) -> Result<Graph> {
    let types = objective.loss.input_types();
    let n = objective.trained.len();
    let last = types.len() - usize::from(objective.keyed);
    let (fixed, ids) = (&types[n..last - 2], &types[last - 1]);
    let mut b = Builder::new();
    let trained: Vec<Value> = types[..n].iter().map(|t| b.graph.input(t.clone())).collect();
    let first: Vec<Value> = types[..n].iter().map(|t| b.graph.input(t.clone())).collect();
    let second: Vec<Value> = types[..n].iter().map(|t| b.graph.input(t.clone())).collect();
    let fixed: Vec<Value> = fixed.iter().map(|t| b.graph.input(t.clone())).collect();
    let wide = if accumulate == 1 { ids.clone() } else { ids.batched(accumulate) };
    let (ids, labels) = (b.graph.input(wide.clone()), b.graph.input(wide));
    let scalar = Type::new(DType::F32, &[]);
    let [rate, correct1, correct2] = [0; 3].map(|_| b.graph.input(scalar.clone()));
    let mut batch = vec![ids, labels];
    if objective.keyed {
        let key = key_type();
        batch.push(b.graph.input(if accumulate == 1 { key } else { key.batched(accumulate) }));
    }

    let gradient = transform::value_and_grad(&objective.loss, &(0..n).collect::<Vec<_>>())?;
    let inputs: Vec<Value> = trained.iter().chain(&fixed).copied().collect();
    let outs = match accumulate {
        1 => b.inline(&gradient, &[&inputs[..], &batch].concat())?,
        _ => accumulated(&mut b, &gradient, &inputs, &batch, accumulate)?,
    };
    let shown = usize::from(!objective.asserts.is_empty());
    let (loss, mut gradients) = (outs[0], outs[1 + shown..=n + shown].to_vec());

    let state = State { trained: &trained, first: &first, second: &second, scalars: [rate, correct1, correct2] };
    let (norm, new, each) = update(&mut b, &state, &mut gradients, &objective.trained, adam, sums)?;
    let results = [loss, norm].into_iter().chain(new);
    let results: Vec<Value> = results.chain(outs[1..1 + shown].iter().copied()).chain(each).collect();
    Ok(b.finish(&results))
}

/// What an update changes, and the scalars that it takes.
struct State<'a> {
    trained: &'a [Value],
    first: &'a [Value],
    second: &'a [Value],
    scalars: [Value; 3],
}

/// Clipping and AdamW: the norm of the gradient; then trained tensors, first and second moments; and the length of each tensor's
/// gradient, unless ranks have parts of them.
fn update(
    b: &mut Builder,
    state: &State<'_>,
    gradients: &mut [Value],
    trained_how: &[Trained],
    adam: &AdamW,
    sums: &Sums,
) -> Result<(Value, Vec<Value>, Option<Value>)> {
    let State { trained, first, second, scalars: [rate, correct1, correct2] } = *state;
    let n = trained.len();
    sums.gradients(b, gradients)?;
    // Squares are summed over ranks once for all tensors that are divided alike.
    let (mut total, mut each) = (b.scalar(DType::F32, 0.0)?, Vec::new());
    let mut shares: Vec<(Vec<ir::MeshAxis>, Value)> = sums.all.iter().map(|axes| (axes.clone(), total)).collect();
    for (i, (g, trained)) in gradients.iter_mut().zip(trained_how).enumerate() {
        let mut sum = squares_of(b, *g)?;
        if let Some(clip) = trained.clip {
            sum = sums.squares(b, i, sum)?;
            let norm = b.unary(Unary::Sqrt, sum)?;
            let shrink = shrink(b, norm, clip)?;
            let shape = b.ty(*g).shape;
            let wide = b.splat(shrink, &shape)?;
            *g = b.mul(*g, wide)?;
            sum = squares_of(b, *g)?;
        }
        match sums.groups.get(i).filter(|axes| !axes.is_empty()) {
            None => {
                total = b.add(total, sum)?;
                each.push(b.reshape(sum, &[1])?);
            }
            Some(axes) => match shares.iter_mut().find(|(over, _)| over == axes) {
                Some((_, share)) => *share = b.add(*share, sum)?,
                None => shares.push((axes.clone(), sum)),
            },
        }
    }
    for (axes, share) in shares {
        let sum = b.psum(share, &axes)?;
        total = b.add(total, sum)?;
    }
    let each = match each.len() == n {
        true => {
            let all = b.concat(&each, 0)?;
            Some(b.unary(Unary::Sqrt, all)?)
        }
        false => None,
    };
    let norm = b.unary(Unary::Sqrt, total)?;
    // A step whose gradient is not finite leaves everything as it was.
    let sound = {
        let zero = b.scalar(DType::F32, 0.0)?;
        let nothing = b.mul(norm, zero)?;
        b.compare(Compare::Eq, nothing, zero)?
    };
    let shrink = match adam.clip > 0.0 {
        true => shrink(b, norm, adam.clip)?,
        false => b.scalar(DType::F32, 1.0)?,
    };
    let (mut new, mut moments, mut squares) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let shape = b.ty(trained[i]).shape.to_vec();
        let along = |b: &mut Builder, v: Value| b.splat(v, &shape);
        let (p, m, v) = (trained[i], first[i], second[i]);
        let shrink = along(b, shrink)?;
        let g = b.mul(gradients[i], shrink)?;
        let (kept, added) = (b.scale(m, adam.beta1)?, b.scale(g, 1.0 - adam.beta1)?);
        let m1 = b.add(kept, added)?;
        let square = b.mul(g, g)?;
        let (kept, added) = (b.scale(v, adam.beta2)?, b.scale(square, 1.0 - adam.beta2)?);
        let v1 = b.add(kept, added)?;
        let (c1, c2) = (along(b, correct1)?, along(b, correct2)?);
        let (m_hat, v_hat) = (b.mul(m1, c1)?, b.mul(v1, c2)?);
        let root = b.unary(Unary::Sqrt, v_hat)?;
        let below = b.offset(root, adam.eps)?;
        let mut change = b.div(m_hat, below)?;
        let Trained { rate: own, decay, .. } = trained_how[i];
        if decay * adam.decay != 0.0 {
            let decay = b.scale(p, decay * adam.decay)?;
            change = b.add(change, decay)?;
        }
        let rate = if own == 1.0 { rate } else { b.scale(rate, own)? };
        let rate = along(b, rate)?;
        let change = b.mul(change, rate)?;
        let p1 = b.sub(p, change)?;
        let sound = along(b, sound)?;
        new.push(b.select(sound, p1, p)?);
        moments.push(b.select(sound, m1, m)?);
        squares.push(b.select(sound, v1, v)?);
    }
    Ok((norm, new.into_iter().chain(moments).chain(squares).collect(), each))
}

/// An update alone, for gradients that were summed over `count` micro-batches elsewhere: from (trained.., moments.., fixed..,
/// rate, corrections, sum of losses, gradients..) to (loss, norm, trained.., moments..). Losses are summed over `ends` too.
pub(crate) fn update_graph(
    params: &[Type],
    trained_how: &[Trained],
    adam: &AdamW,
    count: usize,
    sums: &Sums,
    ends: &[ir::MeshAxis],
) -> Result<Graph> {
    let n = trained_how.len();
    let mut b = Builder::new();
    let mut all = || -> Vec<Value> { params[..n].iter().map(|t| b.graph.input(t.clone())).collect() };
    let (trained, first, second) = (all(), all(), all());
    params[n..].iter().for_each(|t| {
        b.graph.input(t.clone());
    });
    let scalar = Type::new(DType::F32, &[]);
    let scalars = [0; 3].map(|_| b.graph.input(scalar.clone()));
    let loss = b.graph.input(scalar);
    let mut gradients: Vec<Value> = params[..n].iter().map(|t| b.graph.input(t.clone())).collect();
    let loss = b.psum(loss, ends)?;
    let loss = b.scale(loss, 1.0 / count as f64)?;
    for g in &mut gradients {
        *g = b.scale(*g, 1.0 / count as f64)?;
    }
    let state = State { trained: &trained, first: &first, second: &second, scalars };
    let (norm, new, _) = update(&mut b, &state, &mut gradients, trained_how, adam, sums)?;
    let results: Vec<Value> = [loss, norm].into_iter().chain(new).collect();
    Ok(b.finish(&results))
}

/// The sum of a gradient's squares.
fn squares_of(b: &mut Builder, g: Value) -> Result<Value> {
    let square = b.mul(g, g)?;
    b.sum_all(square)
}

/// The factor that shortens something of length `norm` to `limit`, if it is longer.
fn shrink(b: &mut Builder, norm: Value, limit: f64) -> Result<Value> {
    let below = b.offset(norm, 1e-6)?;
    let limit = b.scalar(DType::F32, limit)?;
    let ratio = b.div(limit, below)?;
    let one = b.scalar(DType::F32, 1.0)?;
    let long = b.compare(Compare::Lt, ratio, one)?;
    b.select(long, ratio, one)
}

/// Mean loss and gradients over micro-batches, one after another.
fn accumulated(
    b: &mut Builder,
    gradient: &Graph,
    inputs: &[Value],
    batch: &[Value],
    count: usize,
) -> Result<Vec<Value>> {
    let outs = gradient.output_types();
    let mut body = Builder::new();
    let given: Vec<Value> = inputs.iter().map(|v| body.graph.input(b.ty(*v))).collect();
    let sums: Vec<Value> = outs.iter().map(|t| body.graph.input(t.clone())).collect();
    let one: Vec<Value> = batch.iter().map(|v| body.graph.input(b.ty(*v).unbatched())).collect();
    let found = body.inline(gradient, &[&given[..], &one].concat())?;
    let mut carried = Vec::new();
    for (sum, value) in sums.iter().zip(found) {
        carried.push(body.add(*sum, value)?);
    }
    let body = body.finish(&carried);
    let scan = Scan::over(inputs.len(), outs.len(), count, body);
    let mut operands = inputs.to_vec();
    for ty in &outs {
        operands.push(b.zeros(ty)?);
    }
    operands.extend(batch);
    let sums = b.emit(scan.into(), &operands)?;
    sums.iter().map(|sum| b.scale(*sum, 1.0 / count as f64)).collect()
}
