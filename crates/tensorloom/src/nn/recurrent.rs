//! LSTM and GRU, as scans over time.

use super::layer::uniform;
use super::{Layer, Module, Visit};
use crate::lax::Scan;
use crate::{Tensor, engine_of, np, record};

/// How a recurrent layer is built.
#[derive(Clone, Copy, Debug, macros::Tree)]
pub struct Recurrence {
    /// Layers one above the other.
    pub layers: usize,
    /// A second set of weights runs from the last step to the first; results stand side by side.
    pub bidirectional: bool,
    /// Inputs are `[N, T, C]` rather than `[T, N, C]`.
    pub batch_first: bool,
    /// With biases.
    pub bias: bool,
}

impl Default for Recurrence {
    fn default() -> Recurrence {
        Recurrence { layers: 1, bidirectional: false, batch_first: false, bias: true }
    }
}

/// The weights of one layer in one direction, for all gates.
#[derive(Clone, Debug, macros::Tree)]
pub struct Gates {
    /// `[gates·hidden, inputs]`.
    pub weight_ih: Tensor,
    /// `[gates·hidden, hidden]`.
    pub weight_hh: Tensor,
    /// Two of `[gates·hidden]`, for inputs and for the state.
    pub bias: Option<(Tensor, Tensor)>,
}

impl Gates {
    fn new(gates: usize, inputs: usize, hidden: usize, bias: bool) -> Gates {
        let bound = 1.0 / (hidden.max(1) as f64).sqrt();
        let all = gates * hidden;
        Gates {
            weight_ih: uniform(&[all, inputs], bound),
            weight_hh: uniform(&[all, hidden], bound),
            bias: bias.then(|| (uniform(&[all], bound), uniform(&[all], bound))),
        }
    }

    /// `x·Wᵀ + b` of the inputs of all steps.
    fn inputs(&self, x: &Tensor) -> Tensor {
        let y = x.matmul(&self.weight_ih.t());
        self.bias.as_ref().map_or_else(|| y.clone(), |(b, _)| &y + b)
    }

    /// `h·Wᵀ + b` of a state.
    fn state(&self, h: &Tensor) -> Tensor {
        let y = h.matmul(&self.weight_hh.t());
        self.bias.as_ref().map_or_else(|| y.clone(), |(_, b)| &y + b)
    }
}

/// All layers and directions.
fn build(gates: usize, inputs: usize, hidden: usize, r: &Recurrence) -> Vec<Gates> {
    let sides = 1 + usize::from(r.bidirectional);
    let of = |layer: usize| if layer == 0 { inputs } else { hidden * sides };
    (0..r.layers * sides).map(|i| Gates::new(gates, of(i / sides), hidden, r.bias)).collect()
}

/// By PyTorch's names: `weight_ih_l0`, `bias_hh_l1_reverse`.
fn visit(all: &[Gates], r: &Recurrence, v: &mut Visit<'_>) {
    let sides = 1 + usize::from(r.bidirectional);
    for (i, g) in all.iter().enumerate() {
        let end = format!("l{}{}", i / sides, if i % sides == 1 { "_reverse" } else { "" });
        v.child(&format!("weight_ih_{end}"), &g.weight_ih);
        v.child(&format!("weight_hh_{end}"), &g.weight_hh);
        if let Some((ih, hh)) = &g.bias {
            v.child(&format!("bias_ih_{end}"), ih);
            v.child(&format!("bias_hh_{end}"), hh);
        }
    }
}

/// The parts of the last axis, one for each gate.
fn parts<const N: usize>(x: &Tensor) -> [Tensor; N] {
    let hidden = x.size(-1) / N;
    std::array::from_fn(|i| x.narrow(-1, i * hidden, hidden))
}

/// Runs all layers: `step` maps the state of a layer and the inputs of a time to its next state, whose first tensor is the
/// output. States are `[layers·directions, N, hidden]`.
fn run<const S: usize>(
    op: &'static str,
    all: &[Gates],
    r: &Recurrence,
    x: &Tensor,
    states: Option<[Tensor; S]>,
    step: impl Fn(&Gates, [Tensor; S], Tensor) -> [Tensor; S],
) -> (Tensor, [Tensor; S]) {
    let fail = |bad: Tensor| (bad.clone(), std::array::from_fn(|_| bad.clone()));
    if let Some(e) = x.error() {
        return fail(Tensor::from_error(e));
    }
    let Some(first) = all.first() else {
        return fail(record::invalid(op, "it has no layers"));
    };
    let (inputs, hidden) = (first.weight_ih.size(-1), first.weight_hh.size(-1));
    let single = x.rank() == 2;
    if !(2..=3).contains(&x.rank()) || x.size(-1) != inputs {
        let text =
            format!("{} is not [T, N, {inputs}] (or [N, T, {inputs}] with batch_first, or [T, {inputs}])", x.ty());
        return fail(record::invalid(op, text));
    }
    // Time in front, then the batch.
    let mut x = match (single, r.batch_first) {
        (true, _) => x.unsqueeze(1),
        (false, true) => x.transpose(0, 1),
        (false, false) => x.clone(),
    };
    let batch = x.size(1);
    let wanted = [all.len(), batch, hidden];
    let states = match states {
        Some(given) => given.map(|s| if single { s.unsqueeze(1) } else { s }),
        None => std::array::from_fn(|_| engine_of(&x).zeros(x.dtype(), &wanted)),
    };
    if let Some(bad) = states.iter().find(|s| s.error().is_some() || s.shape() != wanted) {
        let text = format!("a state is {}, not {wanted:?}", bad.ty());
        return fail(bad.error().map_or_else(|| record::invalid(op, text), Tensor::from_error));
    }
    let sides = 1 + usize::from(r.bidirectional);
    let mut last: [Vec<Tensor>; S] = std::array::from_fn(|_| Vec::new());
    for (layer, weights) in all.chunks(sides).enumerate() {
        let mut outputs = Vec::new();
        for (side, g) in weights.iter().enumerate() {
            let begin: [Tensor; S] = std::array::from_fn(|s| states[s].index(0, (layer * sides + side) as isize));
            let scan = if side == 1 { Scan::new().reverse() } else { Scan::new() };
            let body = |(state, x): ([Tensor; S], Tensor)| {
                let next = step(g, state, x);
                let y = next[0].clone();
                (next, y)
            };
            let (end, y) = scan.run(body, begin, g.inputs(&x));
            outputs.push(y);
            end.into_iter().zip(&mut last).for_each(|(s, all)| all.push(s));
        }
        x = if sides == 1 { outputs.swap_remove(0) } else { np::concatenate(&outputs.iter().collect::<Vec<_>>(), -1) };
    }
    let y = match (single, r.batch_first) {
        (true, _) => x.squeeze(1),
        (false, true) => x.transpose(0, 1),
        (false, false) => x,
    };
    let stacked = last.map(|all| {
        let s = Tensor::stack(&all.iter().collect::<Vec<_>>(), 0);
        if single { s.squeeze(1) } else { s }
    });
    (y, stacked)
}

/// A recurrent layer with a cell that is kept, forgotten and read by gates: PyTorch's `LSTM`, names and numbers.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let lstm = nn::Lstm::new(4, 8);
/// let (y, (h, c)) = lstm.run(&randn((10, 2, 4)), None);
/// assert_eq!((y.shape(), h.shape(), c.shape()), (&[10, 2, 8][..], &[1, 2, 8][..], &[1, 2, 8][..]));
/// ```
#[derive(Clone, Debug, macros::Tree)]
pub struct Lstm {
    /// For each layer, the weights of each direction.
    pub gates: Vec<Gates>,
    /// How they are put together.
    pub recurrence: Recurrence,
}

impl Lstm {
    /// One layer in one direction, with biases; elements are uniform within `1/√hidden`.
    pub fn new(inputs: usize, hidden: usize) -> Lstm {
        Lstm::with(inputs, hidden, Recurrence::default())
    }

    /// With choices.
    pub fn with(inputs: usize, hidden: usize, recurrence: Recurrence) -> Lstm {
        Lstm { gates: build(4, inputs, hidden, &recurrence), recurrence }
    }

    /// The outputs of the last layer for all times, and the last states `(h, c)`; they begin with zeros unless given.
    #[track_caller]
    pub fn run(&self, x: &Tensor, state: Option<(Tensor, Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        let _here = record::here();
        let state = state.map(|(h, c)| [h, c]);
        let (y, [h, c]) = run("lstm", &self.gates, &self.recurrence, x, state, |g, [h, c], x| {
            let [i, f, n, o] = parts(&(x + g.state(&h)));
            let c = f.sigmoid() * c + i.sigmoid() * n.tanh();
            [o.sigmoid() * c.tanh(), c]
        });
        (y, (h, c))
    }
}

/// A recurrent layer whose state is reset and updated by gates: PyTorch's `GRU`, names and numbers.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let two = nn::Recurrence { layers: 2, bidirectional: true, batch_first: true, ..Default::default() };
/// let (y, h) = nn::Gru::with(4, 8, two).run(&randn((2, 10, 4)), None);
/// assert_eq!((y.shape(), h.shape()), (&[2, 10, 16][..], &[4, 2, 8][..]));
/// ```
#[derive(Clone, Debug, macros::Tree)]
pub struct Gru {
    /// For each layer, the weights of each direction.
    pub gates: Vec<Gates>,
    /// How they are put together.
    pub recurrence: Recurrence,
}

impl Gru {
    /// One layer in one direction, with biases; elements are uniform within `1/√hidden`.
    pub fn new(inputs: usize, hidden: usize) -> Gru {
        Gru::with(inputs, hidden, Recurrence::default())
    }

    /// With choices.
    pub fn with(inputs: usize, hidden: usize, recurrence: Recurrence) -> Gru {
        Gru { gates: build(3, inputs, hidden, &recurrence), recurrence }
    }

    /// The outputs of the last layer for all times, and the last states; they begin with zeros unless given.
    #[track_caller]
    pub fn run(&self, x: &Tensor, state: Option<Tensor>) -> (Tensor, Tensor) {
        let _here = record::here();
        let (y, [h]) = run("gru", &self.gates, &self.recurrence, x, state.map(|h| [h]), |g, [h], x| {
            let [xr, xz, xn] = parts(&x);
            let [hr, hz, hn] = parts(&g.state(&h));
            let (r, z) = ((xr + hr).sigmoid(), (xz + hz).sigmoid());
            let n = (xn + r * hn).tanh();
            [(1.0 - &z) * n + z * h]
        });
        (y, h)
    }
}

macro_rules! layers {
    ($($name:ident),*) => { $(
        impl Module for $name {
            fn walk(&self, v: &mut Visit<'_>) {
                visit(&self.gates, &self.recurrence, v);
            }
        }

        impl Layer for $name {
            /// The outputs for all times.
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let _here = record::here();
                self.run(x, None).0
            }
        }
    )* };
}
layers!(Lstm, Gru);
