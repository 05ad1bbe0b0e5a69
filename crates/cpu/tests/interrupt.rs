//! Runs that are stopped between two steps.

use compiler::{Backend, Bindings, Error, Executable, Options, interrupt};
use ir::ops::{Scan, While};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, interp};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensorloom_cpu::Cpu;

const F: DType = DType::F32;
const N: usize = 8;

/// tanh(x · x), which takes more than one kernel.
fn body() -> Graph {
    let mut b = Builder::new();
    let x = b.input(F, &[N, N]);
    let y = b.matmul(x, x).unwrap();
    let z = b.unary(Unary::Tanh, y).unwrap();
    b.finish(&[z])
}

/// Loops of several kinds around the body, with the given number of iterations.
fn loops(length: usize) -> [(&'static str, Graph); 4] {
    let scan = || {
        let mut b = Builder::new();
        let x = b.input(F, &[N, N]);
        let outs = b.emit(Scan::over(0, 1, length, body()).into(), &[x]).unwrap();
        b.finish(&outs)
    };
    let bounded = || {
        let mut b = Builder::new();
        let x = b.input(F, &[N, N]);
        let count = b.constant(Literal::scalar(Scalar::from_i64(DType::I32, length as i64))).unwrap();
        let scan = Scan { bounded: true, ..Scan::over(0, 1, length, body()) };
        let outs = b.emit(scan.into(), &[count, x]).unwrap();
        b.finish(&outs)
    };
    let nested = || {
        let mut inner = Builder::new();
        let x = inner.input(F, &[N, N]);
        let outs = inner.emit(Scan::over(0, 1, length, body()).into(), &[x]).unwrap();
        let inner = inner.finish(&outs);
        let mut b = Builder::new();
        let x = b.input(F, &[N, N]);
        let outs = b.emit(Scan::over(0, 1, 2, inner).into(), &[x]).unwrap();
        b.finish(&outs)
    };
    [("scan", scan()), ("bounded", bounded()), ("nested", nested()), ("while", endless(length))]
}

/// A loop that ends when a counter reaches the length.
fn endless(length: usize) -> Graph {
    let counter = Type::scalar(DType::I32);
    let mut cond = Builder::new();
    let i = cond.graph.input(counter.clone());
    cond.input(F, &[N, N]);
    let end = cond.constant(Literal::scalar(Scalar::from_i64(DType::I32, length as i64))).unwrap();
    let more = cond.compare(ir::Compare::Lt, i, end).unwrap();
    let cond = cond.finish(&[more]);
    let mut step = Builder::new();
    let i = step.graph.input(counter);
    let x = step.input(F, &[N, N]);
    let one = step.full_like(i, 1.0).unwrap();
    let next = step.add(i, one).unwrap();
    let y = step.inline(&body(), &[x]).unwrap()[0];
    let step = step.finish(&[next, y]);
    let mut b = Builder::new();
    let x = b.input(F, &[N, N]);
    let start = b.constant(Literal::scalar(Scalar::from_i64(DType::I32, 0))).unwrap();
    let outs = b.emit(While::new(0, 0, cond, step).into(), &[start, x]).unwrap();
    b.finish(&outs[1..])
}

fn load(cpu: &Cpu, graph: &Graph) -> (Arc<dyn Executable>, Bindings) {
    let exe = cpu.load(compiler::compile(graph, cpu, &Options::default()).unwrap()).unwrap();
    let bindings = Bindings::for_program(exe.program(), cpu).unwrap();
    (exe, bindings)
}

fn input() -> Literal {
    Literal::from_fn(Type::new(F, &[N, N]), |i| Scalar::from_f64(F, ((i * 7) % 13) as f64 / 6.0 - 1.0))
}

fn output(b: &Bindings) -> Vec<u8> {
    let mut out = vec![0; N * N * 4];
    b.outputs[0].read(0, &mut out).unwrap();
    out
}

thread_local! {
    static QUESTIONS: Cell<usize> = const { Cell::new(0) };
}

/// An interrupt function that returns true at the third call.
fn third() -> bool {
    QUESTIONS.set(QUESTIONS.get() + 1);
    QUESTIONS.get() == 3
}

#[test]
fn loops_stop_when_asked_to_and_run_again() {
    for threads in [1, 2] {
        let cpu = Cpu::new(threads);
        // These would run for hours.
        for (name, graph) in loops(i32::MAX as usize) {
            let (exe, mut b) = load(&cpu, &graph);
            b.inputs[0].write(0, input().bytes()).unwrap();
            QUESTIONS.set(0);
            let began = Instant::now();
            let asking = interrupt::set_interrupt_check(third);
            assert_eq!(exe.run(&mut b), Err(Error::Interrupted), "{name}");
            drop(asking);
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(50), "{name}: asked again after {took:?}");
            assert_eq!(QUESTIONS.get(), 3, "{name}");
            // The backend and its arenas can be used for the next run.
            for (_, graph) in loops(5) {
                let (exe, mut b) = load(&cpu, &graph);
                b.inputs[0].write(0, input().bytes()).unwrap();
                exe.run(&mut b).unwrap();
                let expected = interp::run(&graph, &[input()]).unwrap().swap_remove(0);
                let got = Literal::from_bytes(Type::new(F, &[N, N]), &output(&b)).unwrap();
                for (g, e) in got.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>()) {
                    assert!((g - e).abs() < 1e-5, "after {name}: {g} for {e}");
                }
            }
        }
    }
}

#[test]
fn a_run_that_is_told_to_go_on_gives_the_same_bits() {
    let cpu = Cpu::new(2);
    for (name, graph) in loops(20_000) {
        let (exe, mut b) = load(&cpu, &graph);
        b.inputs[0].write(0, input().bytes()).unwrap();
        exe.run(&mut b).unwrap();
        let alone = output(&b);
        QUESTIONS.set(3);
        {
            let _asking = interrupt::set_interrupt_check(third);
            let began = Instant::now();
            while QUESTIONS.get() == 3 && began.elapsed() < Duration::from_secs(10) {
                exe.run(&mut b).unwrap();
            }
            assert!(exe.run_timed(&mut b).unwrap().iter().any(|t| t.calls >= 20_000), "{name}");
        }
        assert_eq!(output(&b), alone, "{name}");
        assert!(QUESTIONS.get() > 3, "{name}: nobody asked");
        // Within `interrupt::undisturbed`, runs are not stopped.
        {
            let _asking = interrupt::set_interrupt_check(|| true);
            let _undisturbed = interrupt::disable_interrupts();
            exe.run(&mut b).unwrap();
        }
        assert_eq!(output(&b), alone, "{name}");
    }
}

#[test]
fn timed_runs_stop_too() {
    let cpu = Cpu::new(1);
    let (exe, mut b) = load(&cpu, &endless(i32::MAX as usize));
    let _asking = interrupt::set_interrupt_check(|| true);
    assert_eq!(exe.run_timed(&mut b).unwrap_err(), Error::Interrupted);
}
