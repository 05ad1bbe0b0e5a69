//! Every op from its definition, element by element in f64, rounded to the dtype: what compiled programs are compared
//! with. Nothing here is shared with the crate but the list of ops.
#![allow(unreachable_pub, reason = "a test file is a crate of its own")]

use tensorloom_vsla::{DType, GeluForm, Op};

/// A tensor as a function of indices: zero outside its shape.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Array {
    pub fn from_fn(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Array {
        let mut data = Vec::new();
        ir::types::for_each_index(shape, |i| data.push(f(i)));
        Array { shape: shape.to_vec(), data }
    }

    pub fn get(&self, index: &[usize]) -> f64 {
        let mut at = 0;
        for (i, d) in index.iter().zip(&self.shape) {
            if i >= d {
                return 0.0;
            }
            at = at * d + i;
        }
        self.data[at]
    }

    fn row(&self, index: &[usize]) -> Vec<f64> {
        let last = self.shape.len() - 1;
        (0..self.shape[last]).map(|j| self.get(&[&index[..last], &[j]].concat())).collect()
    }
}

fn map(x: &Array, f: impl Fn(f64) -> f64) -> Array {
    Array { shape: x.shape.clone(), data: x.data.iter().map(|&x| f(x)).collect() }
}

fn ambient(xs: &[&Array]) -> Vec<usize> {
    (0..xs[0].shape.len()).map(|i| xs.iter().map(|x| x.shape[i]).max().unwrap()).collect()
}

fn both(a: &Array, b: &Array, f: impl Fn(f64, f64) -> f64) -> Array {
    Array::from_fn(&ambient(&[a, b]), |i| f(a.get(i), b.get(i)))
}

fn stack(xs: &[&Array]) -> Array {
    let shape = [&[xs.len()], &ambient(xs)[..]].concat();
    Array::from_fn(&shape, |i| xs[i[0]].get(&i[1..]))
}

/// Rounds as storing in a dtype does.
pub fn rounded(x: f64, dtype: DType) -> f64 {
    ir::Scalar::from_f64(dtype, x).to_f64()
}

/// The results of an op (dropout is left out: it is tested for itself).
pub fn eval(op: &Op, args: &[&Array], dtype: DType) -> Vec<Array> {
    if let Op::Window { size, stride } = op {
        return (0..=args.len() - size).step_by(*stride).map(|i| stack(&args[i..i + size])).collect();
    }
    let y = one(op, args);
    vec![map(&y, |x| rounded(x, dtype))]
}

fn one(op: &Op, args: &[&Array]) -> Array {
    let x = args[0];
    let rank = x.shape.len();
    match op {
        Op::Add => both(x, args[1], |a, b| a + b),
        Op::Sub => both(x, args[1], |a, b| a - b),
        Op::Hadamard | Op::Mask => both(x, args[1], |a, b| a * b),
        Op::Conv1d => {
            let y = args[1];
            let (m, n) = (x.shape[rank - 1], y.shape[rank - 1]);
            let mut shape = ambient(&[x, y]);
            shape[rank - 1] = if m == 0 || n == 0 { 0 } else { m + n - 1 };
            Array::from_fn(&shape, |i| {
                let k = i[rank - 1];
                let at = |j: usize| [&i[..rank - 1], &[j]].concat();
                (0..=k).map(|j| x.get(&at(j)) * y.get(&at(k - j))).sum()
            })
        }
        Op::Kronecker => {
            let y = args[1];
            let shape: Vec<usize> = x.shape.iter().zip(&y.shape).map(|(a, b)| a * b).collect();
            Array::from_fn(&shape, |i| {
                let (a, b): (Vec<usize>, Vec<usize>) = i.iter().zip(&y.shape).map(|(i, n)| (i / n, i % n)).unzip();
                x.get(&a) * y.get(&b)
            })
        }
        Op::Matmul => {
            let y = args[1];
            let ry = y.shape.len();
            let k = x.shape[rank - 1].max(y.shape[ry - 2]);
            let mut shape = if rank == ry { ambient(&[x, y]) } else { x.shape.clone() };
            shape[rank - 2] = x.shape[rank - 2];
            shape[rank - 1] = y.shape[ry - 1];
            Array::from_fn(&shape, |i| {
                let (batch, r, c) = (&i[..rank - 2], i[rank - 2], i[rank - 1]);
                let right = if rank == ry { batch } else { &[] };
                (0..k).map(|j| x.get(&[batch, &[r, j]].concat()) * y.get(&[right, &[j, c]].concat())).sum()
            })
        }
        Op::Softmax => Array::from_fn(&x.shape, |i| {
            let row = x.row(i);
            let top = row.iter().cloned().fold(f64::MIN, f64::max);
            (x.get(i) - top).exp() / row.iter().map(|v| (v - top).exp()).sum::<f64>()
        }),
        Op::LayerNorm { eps } => Array::from_fn(&x.shape, |i| {
            let row = x.row(i);
            let n = row.len() as f64;
            let mean = row.iter().sum::<f64>() / n;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            (x.get(i) - mean) / (var + eps).sqrt() * args[1].get(&i[rank - 1..]) + args[2].get(&i[rank - 1..])
        }),
        Op::RmsNorm { eps } => Array::from_fn(&x.shape, |i| {
            let row = x.row(i);
            let ms = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            x.get(i) / (ms + eps).sqrt() * args[1].get(&i[rank - 1..])
        }),
        Op::Relu => map(x, |v| v.max(0.0)),
        Op::Gelu(GeluForm::Tanh) => {
            map(x, |v| 0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v)).tanh()))
        }
        Op::Gelu(GeluForm::Erf) => map(x, |v| 0.5 * v * (1.0 + libm::erf(v / 2f64.sqrt()))),
        Op::Sigmoid => map(x, |v| 1.0 / (1.0 + (-v).exp())),
        Op::Tanh => map(x, f64::tanh),
        Op::Exp => map(x, f64::exp),
        Op::Log => map(x, f64::ln),
        Op::MulScalar { value } => {
            let s = value.unwrap_or_else(|| args[1].data[0]);
            map(x, |v| v * s)
        }
        Op::Sum { axis } | Op::Mean { axis } => {
            let axis = axis.rem_euclid(rank as i64) as usize;
            let mut shape = x.shape.clone();
            let n = shape.remove(axis);
            let scale = if matches!(op, Op::Mean { .. }) && n > 0 { 1.0 / n as f64 } else { 1.0 };
            let sum = |i: &[usize]| -> f64 {
                (0..n).map(|j| x.get(&[&i[..axis], &[j], &i[axis..]].concat())).sum::<f64>() * scale
            };
            if shape.is_empty() { Array { shape: vec![1], data: vec![sum(&[])] } } else { Array::from_fn(&shape, sum) }
        }
        Op::Stack => stack(args),
        Op::Repeat { count } => Array::from_fn(&[&[*count], &x.shape[..]].concat(), |i| x.get(&i[1..])),
        Op::Reshape { shape } => Array { shape: shape.clone(), data: x.data.clone() },
        Op::Transpose { permutation } => {
            let shape: Vec<usize> = permutation.iter().map(|&p| x.shape[p]).collect();
            Array::from_fn(&shape, |i| {
                let mut at = vec![0; rank];
                permutation.iter().zip(i).for_each(|(&p, &i)| at[p] = i);
                x.get(&at)
            })
        }
        Op::Slice { start, limit } => {
            let shape: Vec<usize> = start.iter().zip(limit).map(|(s, l)| l - s).collect();
            Array::from_fn(&shape, |i| x.get(&i.iter().zip(start).map(|(i, s)| i + s).collect::<Vec<_>>()))
        }
        Op::Gather { indices } => {
            let shape = [&[indices.len()], &x.shape[1..]].concat();
            Array::from_fn(&shape, |i| x.get(&[&[indices[i[0]]], &i[1..]].concat()))
        }
        Op::Scatter { indices, size } => Array::from_fn(&[&[*size], &x.shape[1..]].concat(), |i| {
            let from = (0..indices.len()).filter(|&k| indices[k] == i[0]);
            from.map(|k| x.get(&[&[k], &i[1..]].concat())).sum()
        }),
        Op::Attention { heads, lengths } => {
            let (k, v, depth) = (args[1], args[2], x.shape[1] / heads);
            let starts = lengths.iter().scan(0, |at, n| {
                *at += n;
                Some(*at - n..*at)
            });
            let sequences: Vec<std::ops::Range<usize>> = starts.collect();
            Array::from_fn(&x.shape, |i| {
                let own = sequences.iter().find(|s| s.contains(&i[0])).unwrap().clone();
                let first = i[1] / depth * depth;
                let score = |t: usize| -> f64 {
                    let dot = (first..first + depth).map(|c| x.get(&[i[0], c]) * k.get(&[t, c])).sum::<f64>();
                    (dot / (depth as f64).sqrt()).exp()
                };
                let all: f64 = own.clone().map(score).sum();
                own.map(|t| score(t) / all * v.get(&[t, i[1]])).sum()
            })
        }
        Op::Dropout { .. } | Op::Window { .. } => unreachable!("not here"),
    }
}
