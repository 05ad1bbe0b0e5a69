//! One program through every part of the system: the loss of `scan(rmsnorm(tanh(x·w + b)))` with a mean-squared error.

use compiler::program::Step;
use compiler::{Backend, Bindings, Executable, Options};
use ir::composites::norm::rmsnorm;
use ir::ops::Scan;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, interp};
use std::sync::Arc;
use tensorloom_cpu::Cpu;

const F: DType = DType::F32;

fn body(batch: usize, d: usize) -> Graph {
    let mut b = Builder::new();
    let (w, bias, g) = (b.input(F, &[d, d]), b.input(F, &[d]), b.input(F, &[d]));
    let h = b.input(F, &[batch, d]);
    let x = b.input(F, &[batch, d]);
    let hx = b.add(h, x).unwrap();
    let m = b.matmul(hx, w).unwrap();
    let wide = b.broadcast(bias, &[batch, d], &[1]).unwrap();
    let z = b.add(m, wide).unwrap();
    let t = b.unary(Unary::Tanh, z).unwrap();
    let norm = rmsnorm(&Type::new(F, &[batch, d]), &Type::new(F, &[d]), 1e-6).unwrap();
    let y = b.emit(norm.into(), &[t, g]).unwrap()[0];
    b.finish(&[y, y])
}

/// (count, w, bias, gain, h0, xs, target) -> loss
fn loss(batch: usize, d: usize, length: usize) -> Graph {
    let mut b = Builder::new();
    let count = b.input(DType::I32, &[]);
    let (w, bias, g) = (b.input(F, &[d, d]), b.input(F, &[d]), b.input(F, &[d]));
    let h0 = b.input(F, &[batch, d]);
    let xs = b.input(F, &[length, batch, d]);
    let target = b.input(F, &[length, batch, d]);
    let scan = Scan { bounded: true, ..Scan::over(3, 1, length, body(batch, d)) };
    let outs = b.emit(scan.into(), &[count, w, bias, g, h0, xs]).unwrap();
    let diff = b.sub(outs[1], target).unwrap();
    let sq = b.mul(diff, diff).unwrap();
    let s = b.sum_all(sq).unwrap();
    let l = b.scale(s, 1.0 / (length * batch * d) as f64).unwrap();
    b.finish(&[l])
}

fn inputs(graph: &Graph, count: i32) -> Vec<Literal> {
    let mut state = 7u64;
    graph
        .input_types()
        .iter()
        .map(|t| {
            Literal::from_fn(t.clone(), |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let u = (state >> 33) as f64 / (1u64 << 31) as f64;
                if t.dtype == F { Scalar::from_f64(F, u - 0.5) } else { Scalar::from_i64(t.dtype, count as i64) }
            })
        })
        .collect()
}

fn load(cpu: &Cpu, graph: &Graph, claims: bool) -> Arc<dyn Executable> {
    let program = compiler::compile(graph, cpu, &Options { fuse_composites: claims, ..Options::default() }).unwrap();
    cpu.load(program).unwrap()
}

fn run(cpu: &Cpu, exe: &dyn Executable, inputs: &[Literal]) -> Vec<Literal> {
    let mut b = Bindings::for_program(exe.program(), cpu).unwrap();
    for (buffer, x) in b.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).unwrap();
    }
    exe.run(&mut b).unwrap();
    read(exe, &b)
}

fn read(exe: &dyn Executable, b: &Bindings) -> Vec<Literal> {
    let mut outs = Vec::new();
    for (buffer, ty) in b.outputs.iter().zip(&exe.program().outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).unwrap();
        outs.push(Literal::from_bytes(ty.clone(), &bytes).unwrap());
    }
    outs
}

fn close(a: &[Literal], b: &[Literal]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a.ty(), b.ty());
        for (x, y) in a.scalars().zip(b.scalars()) {
            let (x, y) = (x.to_f64(), y.to_f64());
            assert!((x - y).abs() <= 2e-5 * (1.0 + y.abs()), "{x} {y}");
        }
    }
}

/// The value and gradients, the gradient of the gradient's norm, and a batch of gradients.
fn programs() -> Vec<(&'static str, Graph)> {
    let f = loss(4, 24, 6);
    let wrt = [1, 2, 3, 4, 5];
    let grad = transform::value_and_grad(&f, &wrt).unwrap();
    let g = transform::grad(&f, &[1]).unwrap();
    let mut b = Builder::new();
    let args: Vec<_> = g.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let gw = b.inline(&g, &args).unwrap()[0];
    let sq = b.mul(gw, gw).unwrap();
    let s = b.sum_all(sq).unwrap();
    let second = transform::grad(&b.finish(&[s]), &[1, 5]).unwrap();
    let (mapped, _) = transform::vmap(&grad, &[false, true, false, true, false, true, false], &[true; 6], 3).unwrap();
    vec![("loss", f), ("grad", grad), ("second", second), ("vmap", mapped)]
}

#[test]
fn compiled_equals_interpreted_and_claimed_equals_inlined() {
    let cpu = Cpu::new(2);
    for (name, g) in programs() {
        for count in [6, 4, 0] {
            let x = inputs(&g, count);
            let expected = interp::run(&g, &x).unwrap();
            for claims in [true, false] {
                let exe = load(&cpu, &g, claims);
                println!("{name} {count} {claims}");
                close(&run(&cpu, &*exe, &x), &expected);
            }
        }
    }
}

#[test]
fn the_scan_holds_a_matmul_with_a_generated_epilogue() {
    let cpu = Cpu::new(2);
    let exe = load(&cpu, &loss(4, 24, 6), true);
    let has = |steps: &[Step]| {
        steps.iter().any(|s| match s {
            Step::Loop(l) => l.body.iter().any(|s| matches!(s, Step::Matmul { epilogue: Some(_), .. })),
            _ => false,
        })
    };
    assert!(has(&exe.program().steps), "{}", exe.program());
}

#[test]
fn one_executable_serves_two_lengths_and_two_callers_and_outputs_survive() {
    let cpu = Cpu::new(2);
    let g = transform::value_and_grad(&loss(4, 24, 6), &[1, 5]).unwrap();
    let exe = load(&cpu, &g, true);
    let wanted: Vec<(Vec<Literal>, Vec<Literal>)> = [6, 2]
        .map(|count| {
            let x = inputs(&g, count);
            let y = interp::run(&g, &x).unwrap();
            (x, y)
        })
        .into();
    // Two callers at once, each with different lengths, many times.
    std::thread::scope(|s| {
        for (x, y) in &wanted {
            s.spawn(|| {
                for _ in 0..50 {
                    close(&run(&cpu, &*exe, x), y);
                }
            });
        }
    });
    // Outputs belong to the caller: the next run with other bindings does not change them.
    let bind = |x: &[Literal]| {
        let mut b = Bindings::for_program(exe.program(), &cpu).unwrap();
        for (buffer, x) in b.inputs.iter().zip(x) {
            buffer.write(0, x.bytes()).unwrap();
        }
        exe.run(&mut b).unwrap();
        b
    };
    let first = bind(&wanted[0].0);
    let before = read(&*exe, &first);
    let second = bind(&wanted[1].0);
    assert_eq!(before, read(&*exe, &first));
    assert_ne!(before, read(&*exe, &second));
}

#[test]
fn bits_are_equal_at_one_two_and_three_threads_and_on_repeated_runs() {
    for (name, g) in programs() {
        let x = inputs(&g, 5);
        let runs: Vec<Vec<Literal>> = [1, 2, 3, 2]
            .into_iter()
            .map(|threads| {
                let cpu = Cpu::new(threads);
                run(&cpu, &*load(&cpu, &g, true), &x)
            })
            .collect();
        assert!(runs.windows(2).all(|w| w[0] == w[1]), "{name}");
    }
}
