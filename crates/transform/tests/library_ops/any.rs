//! Random attributes and operands: type inference never panics, and ops that it accepts pass every check.

use crate::check::{check, graph, random, run};
use ir::ops::*;
use ir::{DType, Literal, Scalar, Shape, Type};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A size that is often small, and sometimes very large.
    fn wild(&mut self) -> usize {
        self.pick(&[0, 1, 1, 2, 3, 4, 7, 1 << 31, 1 << 62, usize::MAX >> 1, usize::MAX])
    }

    fn wild_shape(&mut self) -> Shape {
        (0..self.below(5)).map(|_| self.wild()).collect()
    }

    fn wild_ints(&mut self) -> Vec<i64> {
        let values = [0, 0, 1, -1, 2, -3, i64::MAX, i64::MIN];
        (0..self.below(5)).map(|_| self.pick(&values)).collect()
    }

    fn axes(&mut self) -> Shape {
        (0..self.below(4)).map(|_| self.below(4)).collect()
    }

    fn wild_type(&mut self) -> Type {
        let dtype = self.pick(&[DType::F32, DType::F64, DType::I32, DType::I64, DType::U64, DType::Bool]);
        // The types in a graph are always valid.
        let shape = self.wild_shape();
        Type::checked(dtype, &shape).unwrap_or(Type::new(dtype, &[2, 2]))
    }

    fn wild_windows(&mut self) -> WindowConfig {
        WindowConfig {
            strides: self.wild_shape(),
            low: self.wild_ints().into(),
            high: self.wild_ints().into(),
            base_dilation: self.wild_shape(),
            window_dilation: self.wild_shape(),
        }
    }

    fn wild_dims(&mut self) -> SliceDims {
        SliceDims {
            offset: self.axes(),
            collapsed: self.axes(),
            operand_batch: self.axes(),
            index_batch: self.axes(),
            index_map: self.axes(),
        }
    }

    fn wild_op(&mut self) -> Op {
        let kind = self.pick(&ReduceKind::ALL);
        let dtype = self.pick(&[DType::F32, DType::I32, DType::I64, DType::Bool]);
        let (max, reverse) = (self.below(2) == 0, self.below(2) == 0);
        match self.below(11) {
            0 => Gather {
                dims: self.wild_dims(),
                slice_sizes: self.wild_shape(),
                mode: self.pick(&[GatherMode::Clip, GatherMode::fill(dtype)]),
            }
            .into(),
            1 => Scatter {
                kind: self.pick(&ScatterKind::ALL),
                dims: self.wild_dims(),
                mode: self.pick(&[ScatterMode::Clip, ScatterMode::Drop]),
            }
            .into(),
            2 => DynamicSlice { sizes: self.wild_shape() }.into(),
            3 => DynamicUpdateSlice.into(),
            4 => {
                Conv { groups: self.wild(), batch_groups: self.wild(), ..Conv::new(dtype, self.wild_windows()) }.into()
            }
            5 => ReduceWindow { kind, window: self.wild_shape(), windows: self.wild_windows() }.into(),
            6 => WindowGather { max, window: self.wild_shape(), windows: self.wild_windows() }.into(),
            7 => WindowScatter { max, window: self.wild_shape(), windows: self.wild_windows() }.into(),
            8 => Cumulative { kind, axis: self.wild(), reverse }.into(),
            9 => ArgReduce { max, axis: self.wild(), index: dtype }.into(),
            _ => RaggedDot {
                mode: self.pick(&[RaggedMode::Rows, RaggedMode::Contract]),
                batch: self.wild(),
                ..RaggedDot::rows(dtype)
            }
            .into(),
        }
    }

    fn sizes(&mut self, rank: usize, below: usize) -> Shape {
        (0..rank).map(|_| self.below(below)).collect()
    }

    fn windows(&mut self, rank: usize) -> WindowConfig {
        let padding = [0, 0, 1, 2, -1];
        WindowConfig {
            strides: (0..rank).map(|_| 1 + self.below(3)).collect(),
            low: (0..rank).map(|_| self.pick(&padding)).collect(),
            high: (0..rank).map(|_| self.pick(&padding)).collect(),
            base_dilation: (0..rank).map(|_| 1 + self.below(2)).collect(),
            window_dilation: (0..rank).map(|_| 1 + self.below(2)).collect(),
        }
    }

    /// A random subset of these axes, in order.
    fn some(&mut self, from: &[usize]) -> Shape {
        from.iter().copied().filter(|_| self.below(3) == 0).collect()
    }
}

#[test]
fn inference_always_answers() {
    let mut rng = Rng(1);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let op = rng.wild_op();
        let args: Vec<Type> = (0..rng.below(5)).map(|_| rng.wild_type()).collect();
        accepted += op.infer(&args).is_ok() as usize;
    }
    assert!(accepted > 100, "{accepted} accepted");
}

/// Runs every check on an op if it accepts these operands and returns finite numbers.
fn check_if_valid(op: Op, inputs: &[Literal]) -> bool {
    let types: Vec<Type> = inputs.iter().map(|x| x.ty().clone()).collect();
    let fits = op.infer(&types).is_ok_and(|t| t[0].numel() <= 200);
    if !fits {
        return false;
    }
    let g = graph(inputs, |b, v| ir::GraphBuilder::one(b, op.clone(), v));
    let finite = run(&g, inputs)[0].scalars().all(|s| s.to_f64().is_finite());
    if finite {
        check(&format!("{op:?} {types:?}"), inputs, |b, v| ir::GraphBuilder::one(b, op, v));
    }
    finite
}

#[test]
fn any_convolution_and_window_keeps_every_law() {
    let mut rng = Rng(2);
    let (mut convs, mut pools) = (0, 0);
    for seed in 0..300 {
        let rank = rng.below(3);
        let (windows, space, window) = (rng.windows(rank), rng.sizes(rank, 5), rng.sizes(rank, 4));
        let (g, b) = rng.pick(&[(1, 1), (1, 1), (2, 1), (1, 2)]);
        let (c, o, n) = (rng.below(3), g * b * rng.below(3), b * rng.below(3));
        let x = [&[n, g * c], &space[..]].concat();
        let kernel = [&[o, c], &window[..]].concat();
        let conv = Conv { groups: g, batch_groups: b, ..Conv::new(DType::F64, windows.clone()) };
        convs += check_if_valid(conv.into(), &[random(&x, seed), random(&kernel, seed + 1)]) as usize;
        let pool = ReduceWindow {
            kind: rng.pick(&[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min]),
            window,
            windows,
        };
        pools += check_if_valid(pool.into(), &[random(&space, seed)]) as usize;
    }
    assert!(convs > 100 && pools > 100, "{convs} convolutions, {pools} windows");
}

#[test]
fn any_gather_and_scatter_keeps_every_law() {
    let mut rng = Rng(3);
    let (mut gathers, mut scatters) = (0, 0);
    for seed in 0..300 {
        // Operand axes are batch axes, collapsed, or sliced.
        let rank = rng.below(4);
        let all: Vec<usize> = (0..rank).collect();
        let operand_batch = rng.some(&all);
        let left: Vec<usize> = all.iter().copied().filter(|a| !operand_batch.contains(a)).collect();
        let (collapsed, index_map) = (rng.some(&left), rng.some(&left));
        let operand: Shape = (0..rank).map(|_| 1 + rng.below(3)).collect();
        let mut batch: Shape = operand_batch.iter().map(|&a| operand[a]).collect();
        let mut index_batch: Shape = (0..batch.len()).collect();
        if rng.below(2) == 0 {
            batch.insert(0, rng.below(3));
            index_batch.iter_mut().for_each(|a| *a += 1);
        }
        let walked = left.len() - collapsed.len();
        let slices_rank = batch.len() + walked;
        let mut offset: Vec<usize> = (0..slices_rank).collect();
        while offset.len() > walked {
            offset.remove(rng.below(offset.len()));
        }
        let slice_sizes: Shape = (0..rank)
            .map(|a| match left.contains(&a) && !collapsed.contains(&a) {
                true => rng.below(operand[a] + 2),
                false => 1,
            })
            .collect();
        let dims = SliceDims { offset: offset.into(), collapsed, operand_batch, index_batch, index_map };
        let shape = [&batch[..], &[dims.index_map.len()]].concat();
        let dtype = rng.pick(&[DType::I8, DType::U16, DType::I32, DType::I64, DType::U64]);
        let indices = Literal::from_fn(Type::new(dtype, &shape), |_| Scalar::from_i64(dtype, rng.below(5) as i64 - 1));
        let x = random(&operand, seed);
        let gather = Gather {
            dims: dims.clone(),
            slice_sizes,
            mode: rng.pick(&[GatherMode::Clip, GatherMode::zero(DType::F64)]),
        };
        let types = [x.ty().clone(), indices.ty().clone()];
        let Ok(slices) = gather.infer(&types) else { continue };
        let updates = random(&slices[0].shape, seed + 1);
        let scatter = Scatter {
            kind: rng.pick(&ScatterKind::ALL),
            dims,
            mode: rng.pick(&[ScatterMode::Clip, ScatterMode::Drop]),
        };
        gathers += check_if_valid(gather.into(), &[x.clone(), indices.clone()]) as usize;
        scatters += check_if_valid(scatter.into(), &[x, indices, updates]) as usize;
    }
    assert!(gathers > 100 && scatters > 100, "{gathers} gathers, {scatters} scatters");
}
