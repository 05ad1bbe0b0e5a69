//! Programs of one backend share the arena memory of runs.

use compiler::{Backend, Bindings, Executable, Options};
use ir::{Builder, DType, GraphBuilder, Unary};
use std::sync::{Arc, Barrier};
use tensorloom_cpu::Cpu;

/// A chain with matmuls, whose intermediate values must be in memory.
fn program(cpu: &Cpu, n: usize) -> Arc<dyn Executable> {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n, n]);
    let y = b.matmul(x, x).unwrap();
    let y = b.unary(Unary::Tanh, y).unwrap();
    let z = b.matmul(y, y).unwrap();
    let z = b.matmul(z, y).unwrap();
    let graph = b.finish(&[z]);
    cpu.load(compiler::compile(&graph, cpu, &Options::default()).unwrap()).unwrap()
}

fn run(cpu: &Cpu, exe: &dyn Executable, x: f32) -> Vec<u8> {
    let mut bindings = Bindings::for_program(exe.program(), cpu).unwrap();
    let n = exe.program().inputs[0].numel();
    let bytes: Vec<u8> = (0..n).flat_map(|i| (x * (i % 7) as f32).to_le_bytes()).collect();
    bindings.inputs[0].write(0, &bytes).unwrap();
    exe.run(&mut bindings).unwrap();
    let mut out = vec![0; exe.program().outputs[0].bytes()];
    bindings.outputs[0].read(0, &mut out).unwrap();
    out
}

#[test]
fn one_arena_serves_programs_that_run_one_after_the_other() {
    let cpu = Cpu::new(2);
    let programs: Vec<_> = [32, 256, 64, 128].map(|n| program(&cpu, n)).into();
    let largest = programs[1].arena_bytes();
    let alone: Vec<_> = programs.iter().map(|p| run(&Cpu::new(2), &**p, 0.01)).collect();
    for _ in 0..3 {
        for (p, expected) in programs.iter().zip(&alone) {
            assert_eq!(&run(&cpu, &**p, 0.01), expected);
            assert_eq!(cpu.arena_bytes(), largest, "the largest arena and no other");
        }
    }
}

#[test]
fn memory_that_no_program_needs_is_given_up() {
    let cpu = Cpu::new(2);
    let small = program(&cpu, 32);
    let large = program(&cpu, 256);
    run(&cpu, &*large, 0.1);
    assert_eq!(cpu.arena_bytes(), large.arena_bytes());
    drop(large);
    assert_eq!(cpu.arena_bytes(), 0);
    run(&cpu, &*small, 0.1);
    assert_eq!(cpu.arena_bytes(), small.arena_bytes());
    drop(small);
    assert_eq!(cpu.arena_bytes(), 0);
}

#[test]
fn as_many_arenas_as_runs_at_once() {
    const THREADS: usize = 3;
    let cpu = Arc::new(Cpu::new(2));
    let programs: Arc<Vec<_>> = Arc::new([64, 192, 96].map(|n| program(&cpu, n)).into());
    let largest = programs[1].arena_bytes();
    let expected: Arc<Vec<_>> = Arc::new(programs.iter().map(|p| run(&cpu, &**p, 0.02)).collect());
    let barrier = Arc::new(Barrier::new(THREADS));
    let workers: Vec<_> = (0..THREADS)
        .map(|t| {
            let (cpu, programs, expected, barrier) = (cpu.clone(), programs.clone(), expected.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                for i in 0..60 {
                    let k = (t + i) % programs.len();
                    assert_eq!(run(&cpu, &*programs[k], 0.02), expected[k]);
                    assert!(cpu.arena_bytes() <= THREADS * largest);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert!(cpu.arena_bytes() <= THREADS * largest);
    drop(programs);
    assert_eq!(cpu.arena_bytes(), 0);
}
