//! Pooling: reductions over windows, and the linear maps of max and min pooling. One thread per result, which
//! iterates over its window in order.

use super::cumulative::{accumulator, carry};
use super::op_expansion::affine;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::Reg;
use ir::ops::{ReduceWindow, WindowConfig, WindowGather, WindowScatter};
use ir::{Binary, Compare, DType, Scalar, Type};

pub(super) fn strides(shape: &[usize]) -> Vec<i64> {
    let mut all = vec![1; shape.len()];
    for a in (1..shape.len()).rev() {
        all[a - 1] = all[a] * shape[a] as i64;
    }
    all
}

/// The position of element `k` of window `o` in a base along one axis, and whether it is inside.
pub(super) fn source(
    w: &mut KernelWriter,
    windows: &WindowConfig,
    a: usize,
    size: usize,
    o: Reg,
    k: Reg,
) -> (Reg, Option<Reg>) {
    let (s, d) = (windows.strides[a] as i64, windows.window_dilation[a] as i64);
    let place = w.sum(&[(o, s), (k, d)], -windows.low[a]);
    if windows.low[a] <= 0 && windows.high[a] <= 0 && windows.base_dilation[a] == 1 {
        // Without padding every element is inside.
        return (place, None);
    }
    let mut there = w.compare_to(Compare::Ge, place, 0);
    let zero = w.int(DType::I64, 0);
    let place = w.binary(Binary::Max, place, zero);
    let (place, rest) = w.split(place, windows.base_dilation[a]);
    if windows.base_dilation[a] > 1 {
        let exact = w.compare_to(Compare::Eq, rest, 0);
        there = w.both(there, exact);
    }
    let below = w.compare_to(Compare::Lt, place, size as i64);
    (place, Some(w.both(there, below)))
}

/// An element of a window: its element of the base, whether it is inside, and its position in the window.
pub(super) struct Element {
    pub(super) at: Reg,
    pub(super) there: Option<Reg>,
    pub(super) within: Reg,
}

/// An iteration over the elements of the window at `o`, in order.
pub(super) struct Walk<'a> {
    pub(super) windows: &'a WindowConfig,
    pub(super) window: &'a [usize],
    pub(super) base: &'a [usize],
    pub(super) o: &'a [Reg],
}

/// Intermediate sums of the index of an element.
#[derive(Default)]
struct Sums {
    at: Vec<(Reg, i64)>,
    within: Vec<(Reg, i64)>,
}

impl Walk<'_> {
    pub(super) fn run(
        &self,
        w: &mut KernelWriter,
        init: &[Reg],
        body: &mut dyn FnMut(&mut KernelWriter, Element, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        self.axis(w, 0, &mut Sums::default(), None, init, body)
    }

    fn axis(
        &self,
        w: &mut KernelWriter,
        a: usize,
        sums: &mut Sums,
        there: Option<Reg>,
        init: &[Reg],
        body: &mut dyn FnMut(&mut KernelWriter, Element, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        if a == self.base.len() {
            let (at, within) = (w.sum(&sums.at, 0), w.sum(&sums.within, 0));
            return body(w, Element { at, there, within }, init);
        }
        let (stride, step) = (strides(self.base)[a], strides(self.window)[a]);
        let mut inside = |w: &mut KernelWriter, k: Reg, init: &[Reg]| {
            let (place, own) = source(w, self.windows, a, self.base[a], self.o[a], k);
            let there = match (there, own) {
                (Some(x), Some(y)) => Some(w.both(x, y)),
                (x, y) => x.or(y),
            };
            sums.at.push((place, stride));
            sums.within.push((k, step));
            let out = self.axis(w, a + 1, sums, there, init, body);
            sums.at.pop();
            sums.within.pop();
            out
        };
        match self.window[a] {
            1 => {
                let k = w.int(DType::I64, 0);
                inside(w, k, init)
            }
            n => carry(w, n, init, |w, v, phis| {
                let k = w.var_value(v);
                inside(w, k, phis)
            }),
        }
    }
}

pub(super) fn load(w: &mut KernelWriter, buf: compiler::loops::Buf, e: &Element, other: Scalar) -> Reg {
    match e.there {
        Some(mask) => w.load_masked(buf, affine(&[(e.at, 1)], 0), mask, other),
        None => w.load(buf, affine(&[(e.at, 1)], 0)),
    }
}

/// None if there is nothing to iterate over; the host then runs the op.
pub(super) fn is_empty_walk(shapes: &[&[usize]]) -> Option<()> {
    (!shapes.iter().any(|s| s.contains(&0) || s.is_empty())).then_some(())
}

pub(super) fn reduce(
    parts: &mut OpExpansion,
    op: &ReduceWindow,
    x: &Type,
    out: &Type,
    means: &DeviceCaps,
) -> Option<()> {
    is_empty_walk(&[&x.shape, &out.shape, &op.window])?;
    let f = op.kind.combine();
    let acc = accumulator(x.dtype, f, means)?;
    parts.rows("reduce windows", out.numel(), |w, flat| {
        let (from, to) = (w.read(OpValue::Arg(0), x.dtype), w.write(OpValue::Out(0), x.dtype));
        let o = w.coordinates(flat, &out.shape);
        let walk = Walk { windows: &op.windows, window: &op.window, base: &x.shape, o: &o };
        let none = w.constant(op.kind.identity(acc));
        let all = walk.run(w, &[none], &mut |w, e, sum| {
            let v = load(w, from, &e, op.kind.identity(x.dtype));
            let v = w.to(acc, v);
            vec![w.binary(f, sum[0], v)]
        });
        let v = w.to(x.dtype, all[0]);
        w.store(to, flat, v);
    });
    Some(())
}

/// The element of each window where the keys have their extremum, or -1.
fn argmax_windows(w: &mut KernelWriter, keys: compiler::loops::Buf, dtype: DType, max: bool, walk: &Walk<'_>) -> Reg {
    let nothing = w.int(DType::I32, -1);
    let zero = w.constant(Scalar::zero(dtype));
    let found = walk.run(w, &[nothing, zero], &mut |w, e, best| {
        let v = load(w, keys, &e, Scalar::zero(dtype));
        let order = if max { Compare::Gt } else { Compare::Lt };
        let mut beats = match dtype {
            // Bools are compared as numbers.
            DType::Bool => {
                let (x, y) = (w.cast(DType::I32, v), w.cast(DType::I32, best[1]));
                w.compare(order, x, y)
            }
            _ => w.compare(order, v, best[1]),
        };
        if let (Some(new), Some(old)) = (w.nan(v), w.nan(best[1])) {
            let old = w.not(old);
            let any = w.either(new, beats);
            beats = w.both(old, any);
        }
        let first = w.compare_to(Compare::Lt, best[0], 0);
        let mut wins = w.either(first, beats);
        if let Some(there) = e.there {
            wins = w.both(wins, there);
        }
        let at = w.cast(DType::I32, e.at);
        vec![w.select(wins, at, best[0]), w.select(wins, v, best[1])]
    });
    found[0]
}

pub(super) fn gather(parts: &mut OpExpansion, op: &WindowGather, args: &[Type], out: &Type) -> Option<()> {
    let (keys, x) = (&args[0], &args[1]);
    is_empty_walk(&[&keys.shape, &out.shape, &op.window])?;
    parts.rows("take from windows", out.numel(), |w, flat| {
        let own = w.read(OpValue::Arg(0), keys.dtype);
        let (from, to) = (w.read(OpValue::Arg(1), x.dtype), w.write(OpValue::Out(0), x.dtype));
        let o = w.coordinates(flat, &out.shape);
        let walk = Walk { windows: &op.windows, window: &op.window, base: &keys.shape, o: &o };
        let at = argmax_windows(w, own, keys.dtype, op.max, &walk);
        let there = w.compare_to(Compare::Ge, at, 0);
        let at = w.clamped(at, x.numel());
        let v = w.load_masked(from, affine(&[(at, 1)], 0), there, Scalar::zero(x.dtype));
        w.store(to, flat, v);
    });
    Some(())
}

pub(super) fn scatter(parts: &mut OpExpansion, op: &WindowScatter, args: &[Type]) -> Option<()> {
    let (keys, y) = (&args[0], &args[1]);
    is_empty_walk(&[&keys.shape, &y.shape, &op.window])?;
    let winners = parts.temp(DType::I32, y.numel());
    parts.rows("winners of windows", y.numel(), |w, flat| {
        let (own, to) = (w.read(OpValue::Arg(0), keys.dtype), w.write(winners, DType::I32));
        let o = w.coordinates(flat, &y.shape);
        let walk = Walk { windows: &op.windows, window: &op.window, base: &keys.shape, o: &o };
        let at = argmax_windows(w, own, keys.dtype, op.max, &walk);
        w.store(to, flat, at);
    });
    // Each element of the base visits the windows that contain it, in order: those where it is the last element of the window come
    // first.
    parts.rows("add to winners", keys.numel(), |w, flat| {
        let (won, from) = (w.read(winners, DType::I32), w.read(OpValue::Arg(1), y.dtype));
        let to = w.write(OpValue::Out(0), y.dtype);
        let p = w.coordinates(flat, &keys.shape);
        let own = w.var_value(flat);
        let own = w.cast(DType::I32, own);
        let zero = w.constant(Scalar::zero(y.dtype));
        let back = Back { op, count: &y.shape, p: &p };
        let all = back.axis(w, 0, &mut Vec::new(), None, &[zero], &mut |w, e, sum| {
            let at = affine(&[(e.at, 1)], 0);
            let Some(there) = e.there else { return sum.to_vec() };
            let winner = w.load_masked(won, at.clone(), there, Scalar::from_i64(DType::I32, -1));
            let mine = w.compare(Compare::Eq, winner, own);
            let v = w.load_masked(from, at, mine, Scalar::zero(y.dtype));
            let more = w.binary(Binary::Add, sum[0], v);
            vec![w.select(mine, more, sum[0])]
        });
        w.store(to, flat, all[0]);
    });
    Some(())
}

/// An iteration over the windows that contain an element of the base.
struct Back<'a> {
    op: &'a WindowScatter,
    count: &'a [usize],
    p: &'a [Reg],
}

impl Back<'_> {
    fn axis(
        &self,
        w: &mut KernelWriter,
        a: usize,
        at: &mut Vec<(Reg, i64)>,
        there: Option<Reg>,
        init: &[Reg],
        body: &mut dyn FnMut(&mut KernelWriter, Element, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        if a == self.count.len() {
            let at = w.sum(at, 0);
            return body(w, Element { at, there, within: at }, init);
        }
        let (windows, n) = (&self.op.windows, self.op.window[a]);
        let stride = strides(self.count)[a];
        carry(w, n, init, |w, v, phis| {
            // In reverse, so that windows are in order.
            let k = w.index(compiler::loops::Index { offset: n as i64 - 1, ..Default::default() }.add_var(v, -1));
            let (d, b) = (windows.window_dilation[a] as i64, windows.base_dilation[a] as i64);
            let place = w.sum(&[(self.p[a], b), (k, -d)], windows.low[a]);
            let mut own = w.compare_to(Compare::Ge, place, 0);
            let zero = w.int(DType::I64, 0);
            let place = w.binary(Binary::Max, place, zero);
            let (o, rest) = w.split(place, windows.strides[a]);
            if windows.strides[a] > 1 {
                let exact = w.compare_to(Compare::Eq, rest, 0);
                own = w.both(own, exact);
            }
            let below = w.compare_to(Compare::Lt, o, self.count[a] as i64);
            own = w.both(own, below);
            let own = match there {
                Some(t) => w.both(t, own),
                None => own,
            };
            at.push((o, stride));
            let out = self.axis(w, a + 1, at, Some(own), phis, body);
            at.pop();
            out
        })
    }
}
