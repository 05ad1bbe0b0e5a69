//! Running a program allocates nothing, counted by the global allocator.

use compiler::{Backend, Bindings, Options};
use ir::composites::attention::{AttentionOptions, attention};
use ir::composites::{norm, softmax};
use ir::ops::Scan;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Unary};
use tensorloom_cpu::Cpu;
use testing::counting_allocator::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const F: DType = DType::F32;

/// A scan of a matmul and a norm, attention, a softmax and a reduction, with gradients.
fn program() -> Graph {
    let mut b = Builder::new();
    let (w, g) = (b.input(F, &[16, 16]), b.input(F, &[16]));
    let (h, x) = (b.input(F, &[8, 16]), b.input(F, &[8, 16]));
    let s = b.add(h, x).unwrap();
    let m = b.matmul(s, w).unwrap();
    let t = b.unary(Unary::Tanh, m).unwrap();
    let n = norm::rmsnorm(&Type::new(F, &[8, 16]), &Type::new(F, &[16]), 1e-6).unwrap();
    let y = b.emit(n.into(), &[t, g]).unwrap()[0];
    let body = b.finish(&[y, y]);
    let mut b = Builder::new();
    let (w, g) = (b.input(F, &[16, 16]), b.input(F, &[16]));
    let (h, xs) = (b.input(F, &[8, 16]), b.input(F, &[6, 8, 16]));
    let outs = b.emit(Scan::over(2, 1, 6, body).into(), &[w, g, h, xs]).unwrap();
    let q = b.reshape(outs[1], &[6, 2, 8, 8]).unwrap();
    let ty = b.ty(q);
    let a = attention(&ty, &ty, &ty, &AttentionOptions { causal: true, ..AttentionOptions::default() }).unwrap();
    let o = b.emit(a.into(), &[q, q, q]).unwrap()[0];
    let soft = softmax::softmax(&b.ty(o)).unwrap();
    let p = b.emit(soft.into(), &[o]).unwrap()[0];
    let sq = b.mul(p, p).unwrap();
    let l = b.sum_all(sq).unwrap();
    transform::value_and_grad(&b.finish(&[l]), &[0, 1, 3]).unwrap()
}

fn run_allocates_nothing() {
    let cpu = Cpu::new(2);
    let exe = cpu.load(compiler::compile(&program(), &cpu, &Options::default()).unwrap()).unwrap();
    let mut bindings = Bindings::for_program(exe.program(), &cpu).unwrap();
    let before = allocations();
    for _ in 0..20 {
        exe.run(&mut bindings).unwrap();
    }
    assert_eq!(allocations() - before, 0, "{}", exe.program());
}

/// No test harness: its threads may allocate at any time, and the count covers the whole process.
fn main() {
    run_allocates_nothing();
    println!("1 passed, 0 failed");
}
