//! Running a loaded program allocates nothing, with any routine.

mod harness;

use harness::{Random, bindings, load};
use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::ops::*;
use ir::{Builder, DType, Graph, GraphBuilder, Op, Type};
use tensorloom_cpu::Cpu;
use testing::counting_allocator::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn one(op: impl Into<Op>, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op.into(), &args).unwrap();
    b.finish(&outs)
}

fn graphs() -> Vec<Graph> {
    let f = |s: &[usize]| Type::new(DType::F32, s);
    let i = |s: &[usize]| Type::new(DType::I32, s);
    let windows = WindowConfig::strided(&[1, 1, 2, 2], &[0; 4]);
    let window: ir::Shape = [1, 1, 2, 2][..].into();
    let images = f(&[4, 3, 16, 16]);
    let mut graphs = vec![
        one(Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1])), &[images.clone(), f(&[8, 3, 3, 3])]),
        one(Conv::new(DType::F32, WindowConfig::unit_stride(2)), &[images.clone(), f(&[8, 3, 14, 14])]),
        one(
            ReduceWindow { kind: ReduceKind::Max, window: window.clone(), windows: windows.clone() },
            std::slice::from_ref(&images),
        ),
        one(
            WindowGather { max: true, window: window.clone(), windows: windows.clone() },
            &[images.clone(), images.clone()],
        ),
        one(WindowScatter { max: true, window, windows }, &[images, f(&[4, 3, 8, 8])]),
        one(Cumulative { kind: ReduceKind::Sum, axis: 1, reverse: false }, &[f(&[300, 200])]),
        one(ArgReduce { max: true, axis: 1, index: DType::I32 }, &[f(&[300, 200])]),
        one(TakeAlong { axis: 1 }, &[f(&[300, 200]), i(&[300, 200])]),
        one(PutAlong { axis: 1, size: 9 }, &[f(&[300, 200]), i(&[300, 200])]),
        one(Sort { axis: 1, num_keys: 1, descending: false }, &[f(&[300, 200]), i(&[300, 200])]),
        one(Sort { axis: 1, num_keys: 2, descending: true }, &[f(&[300, 200]), i(&[300, 200])]),
        one(TopK { k: 5, axis: 1 }, &[f(&[300, 200])]),
        one(
            Scatter { kind: ScatterKind::Add, dims: SliceDims::take(2, 0, 1), mode: ScatterMode::Drop },
            &[f(&[50, 128]), i(&[300, 1]), f(&[300, 128])],
        ),
        one(RaggedDot::rows(DType::F32), &[f(&[200, 30]), f(&[3, 30, 40]), i(&[4])]),
        one(
            RaggedDot { mode: RaggedMode::Contract, ..RaggedDot::rows(DType::F32) },
            &[f(&[200, 30]), f(&[200, 40]), i(&[4])],
        ),
        one(Cholesky, &[f(&[20, 8, 8])]),
        one(Lu, &[f(&[20, 8, 8])]),
        one(Qr { full: false }, &[f(&[20, 8, 6])]),
        one(Eigh, &[f(&[20, 8, 8])]),
        one(Svd { vectors: true }, &[f(&[20, 8, 6])]),
    ];
    for n in [64, 60, 97] {
        graphs.push(one(Fft { kind: FftKind::Real, axes: [1, 0][..].into() }, &[f(&[n, n])]));
    }
    for (dtype, tq) in [(DType::F32, 70), (DType::BF16, 70), (DType::F16, 1)] {
        let (q, k) = (Type::new(dtype, &[2, 4, tq, 16]), Type::new(dtype, &[2, 2, 90, 16]));
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        graphs.push(one(attention(&q, &k, &k, &options).unwrap(), &[q.clone(), k.clone(), k.clone()]));
        let backward = attention_backward(&q, &k, &k, &options).unwrap();
        let types = backward.body.input_types();
        graphs.push(one(backward, &types));
    }
    graphs
}

fn runs_do_not_allocate() {
    let cpu = Cpu::new(2);
    for graph in graphs() {
        let mut random = Random(1);
        let inputs: Vec<_> = graph.input_types().iter().map(|t| random.literal(t)).collect();
        let exe = load(&cpu, &graph, true);
        let mut b = bindings(&cpu, &*exe, &inputs);
        for _ in 0..20 {
            exe.run(&mut b).unwrap();
        }
        let before = allocations();
        for _ in 0..20 {
            exe.run(&mut b).unwrap();
        }
        assert_eq!(allocations(), before, "{graph}");
    }
}

/// No test harness: its threads may allocate at any time, and the count covers the whole process.
fn main() {
    runs_do_not_allocate();
    println!("1 passed, 0 failed");
}
