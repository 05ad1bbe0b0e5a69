//! Wrong uses of buffers and programs in safe code are errors. There can be no undefined behaviour here: the test forbids `unsafe`.
#![forbid(unsafe_code)]

use compiler::loops::{AccessMode, KernelBuilder as Loops, LoopKind, Size};
use compiler::program::{Buffer, BufferId, BufferKind, BufferSlice, KernelArg, ProgramParts, Step};
use compiler::{Backend, Bindings, DeviceBuffer, Error, Executable, Options, UncheckedProgram};
use ir::{Builder, DType, Graph, GraphBuilder, Type};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tensorloom_cpu::{Cpu, HostBuffer};

/// `2 x + 1` over `n` numbers, repeated many times so that a run takes a while.
fn graph(n: usize) -> Graph {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[n]);
    let mut y = x;
    for _ in 0..3 {
        y = b.unary(ir::Unary::Tanh, y).unwrap();
    }
    b.finish(&[y])
}

fn loaded(cpu: &Cpu, n: usize, donate: bool) -> Arc<dyn Executable> {
    let options = Options { donate: if donate { vec![(0, 0)] } else { Vec::new() }, ..Options::default() };
    cpu.load(compiler::compile(&graph(n), cpu, &options).unwrap()).unwrap()
}

fn alloc(cpu: &Cpu, n: usize) -> Arc<dyn DeviceBuffer> {
    cpu.alloc(4 * n).unwrap()
}

fn in_use<T: std::fmt::Debug>(r: compiler::Result<T>) -> bool {
    matches!(r, Err(Error::InUse(_)))
}

#[test]
fn writes_that_meet_reads_and_runs_are_refused() {
    const N: usize = 1 << 16;
    let cpu = Cpu::new(1);
    let exe = loaded(&cpu, N, false);
    let (x, y) = (alloc(&cpu, N), alloc(&cpu, N));
    let (stop, refused, torn) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let note = |r: compiler::Result<()>| match r {
        Ok(()) => true,
        Err(Error::InUse(_)) => {
            refused.fetch_add(1, Ordering::Relaxed);
            false
        }
        Err(e) => panic!("{e}"),
    };
    std::thread::scope(|s| {
        for k in 0..2u8 {
            let (x, stop, note) = (&x, &stop, &note);
            s.spawn(move || {
                let all = vec![k; 4 * N];
                while !stop.load(Ordering::Relaxed) {
                    note(x.write(0, &all));
                }
            });
        }
        for out in [&y, &x] {
            let (exe, x, stop, note) = (&exe, &x, &stop, &note);
            let mut b = Bindings { inputs: vec![x.clone()], outputs: vec![out.clone()] };
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    note(exe.run(&mut b));
                }
            });
        }
        let mut all = vec![0; 4 * N];
        let mut complete = 0;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while (complete < 200 || refused.load(Ordering::Relaxed) < 200) && std::time::Instant::now() < end {
            if note(x.read(0, &mut all)) {
                complete += 1;
                // A read sees a complete write or none of it.
                if all.iter().any(|b| *b != all[0]) {
                    torn.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(refused.load(Ordering::Relaxed) >= 200);
    assert_eq!(torn.load(Ordering::Relaxed), 0);
    // The buffer is free again.
    x.write(0, &[1; 4]).unwrap();
    exe.run(&mut Bindings { inputs: vec![x.clone()], outputs: vec![y.clone()] }).unwrap();
    y.read(0, &mut [0; 4]).unwrap();
}

/// A thread that references the output of a run by a `Weak`, and at times by an `Arc`, sees the results of one run or gets an error.
#[test]
fn a_weak_reference_does_not_hide_a_reader() {
    const N: usize = 1 << 10;
    let cpu = Cpu::new(1);
    let exe = loaded(&cpu, N, false);
    let (x, y) = (alloc(&cpu, N), alloc(&cpu, N));
    let weak = Arc::downgrade(&y);
    let stop = AtomicBool::new(false);
    let mut torn = 0;
    std::thread::scope(|s| {
        let (stop, weak) = (&stop, &weak);
        let reader = s.spawn(move || {
            let (mut weak, mut all, mut torn, mut exchanges) = (weak.clone(), vec![0; 4 * N], 0, 0usize);
            while !stop.load(Ordering::Relaxed) {
                // Only one of the two kinds of references exists at a time, and it changes often.
                let strong = weak.upgrade().expect("the bindings keep it");
                drop(weak);
                exchanges += 1;
                if exchanges.is_multiple_of(16) {
                    match strong.read(0, &mut all) {
                        Ok(()) => torn += usize::from(all.chunks_exact(4).any(|one| one != &all[..4])),
                        Err(e) => assert!(matches!(e, Error::InUse(_)), "{e}"),
                    }
                }
                weak = Arc::downgrade(&strong);
            }
            torn
        });
        let mut b = Bindings { inputs: vec![x], outputs: vec![y] };
        for i in 0..20_000u32 {
            let value = if i % 2 == 0 { 0.25f32 } else { 0.5 };
            b.inputs[0].write(0, &value.to_le_bytes().repeat(N)).unwrap();
            match exe.run(&mut b) {
                Ok(()) | Err(Error::InUse(_)) => (),
                Err(e) => panic!("{e}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        torn = reader.join().unwrap();
    });
    assert_eq!(torn, 0);
}

#[test]
fn one_buffer_is_not_bound_twice_unless_it_is_donated() {
    let cpu = Cpu::new(1);
    let (x, y) = (alloc(&cpu, 16), alloc(&cpu, 16));
    let exe = loaded(&cpu, 16, false);
    assert!(in_use(exe.run(&mut Bindings { inputs: vec![x.clone()], outputs: vec![x.clone()] })));
    exe.run(&mut Bindings { inputs: vec![x.clone()], outputs: vec![y.clone()] }).unwrap();
    let donated = loaded(&cpu, 16, true);
    assert_eq!(donated.program().donated, [(0, 0)]);
    donated.run(&mut Bindings { inputs: vec![x.clone()], outputs: vec![x.clone()] }).unwrap();
    // Two outputs in one buffer are an error; two inputs in one buffer are only read.
    let mut b = Builder::new();
    let (p, q) = (b.input(DType::F32, &[16]), b.input(DType::F32, &[16]));
    let outs = [b.add(p, q).unwrap(), b.mul(p, q).unwrap()];
    let two = cpu.load(compiler::compile(&b.finish(&outs), &cpu, &Options::default()).unwrap()).unwrap();
    let ins = vec![x.clone(), x.clone()];
    assert!(in_use(two.run(&mut Bindings { inputs: ins.clone(), outputs: vec![y.clone(), y.clone()] })));
    two.run(&mut Bindings { inputs: ins, outputs: vec![y, alloc(&cpu, 16)] }).unwrap();
    x.write(0, &[0; 64]).unwrap();
}

#[test]
fn misfits_are_refused() {
    struct Foreign;
    impl DeviceBuffer for Foreign {
        fn bytes(&self) -> usize {
            1 << 20
        }
        fn write(&self, _: usize, _: &[u8]) -> compiler::Result<()> {
            Ok(())
        }
        fn read(&self, _: usize, _: &mut [u8]) -> compiler::Result<()> {
            Ok(())
        }
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }
    let cpu = Cpu::new(1);
    let exe = loaded(&cpu, 16, false);
    let (x, short) = (alloc(&cpu, 16), alloc(&cpu, 15));
    let foreign: Arc<dyn DeviceBuffer> = Arc::new(Foreign);
    for (inputs, outputs) in [
        (vec![], vec![x.clone()]),
        (vec![short.clone()], vec![x.clone()]),
        (vec![x.clone()], vec![short.clone()]),
        (vec![foreign.clone()], vec![x.clone()]),
        (vec![x.clone()], vec![foreign]),
        (vec![x.clone()], vec![]),
    ] {
        let r = exe.run(&mut Bindings { inputs, outputs });
        assert!(matches!(r, Err(Error::Bindings(_))), "{r:?}");
    }
    for (at, bytes) in [(64, 1), (1, 64), (usize::MAX, 1), (usize::MAX, 2), (0, 65)] {
        assert!(x.write(at, &vec![0; bytes]).is_err() && x.read(at, &mut vec![0; bytes]).is_err(), "{at} {bytes}");
    }
    // A failed run releases its buffers.
    x.write(0, &[0; 64]).unwrap();
    short.write(0, &[0; 60]).unwrap();
}

#[test]
fn arenas_that_do_not_fit_are_refused() {
    let cpu = Cpu::new(1);
    let exe = loaded(&cpu, 16, false);
    let steps = exe.program().steps.len();
    let mut b = Bindings { inputs: vec![alloc(&cpu, 16)], outputs: vec![alloc(&cpu, 16)] };
    let mut arena = HostBuffer::new(exe.arena_bytes()).unwrap();
    exe.run_with_arena(&mut b, &mut arena, 0..steps).unwrap();
    let mut small = HostBuffer::new(exe.arena_bytes() - 1).unwrap();
    assert!(exe.run_with_arena(&mut b, &mut small, 0..steps).is_err());
    for range in [0..steps + 1, steps..usize::MAX, usize::MAX..usize::MAX] {
        assert!(exe.run_with_arena(&mut b, &mut arena, range).is_err());
    }
}

/// A program with one kernel that stores to the elements `0..n` of an output of 16.
fn program(n: i64) -> ProgramParts {
    let ty = Type::new(DType::F32, &[16]);
    let mut b = Loops::new("fill");
    let y = b.buffer(DType::F32, AccessMode::Write);
    b.for_loop(LoopKind::Vector, Size::Const(n), |b, i| {
        let one = b.constant_from_f64(DType::F32, 1.0);
        b.store(y, i, one);
    });
    let args = vec![KernelArg::Place(BufferSlice::of(BufferId(0)))];
    ProgramParts {
        buffers: vec![Buffer { ty: ty.clone(), kind: BufferKind::Output(0), offset: 0, lifetime: Some((0, 0)) }],
        inputs: Vec::new(),
        outputs: vec![ty],
        steps: vec![Step::Kernel { kernel: Arc::new(b.finish()), args, parallel: None }],
        arena_bytes: 0,
        max_loop_depth: 0,
        donated: Vec::new(),
    }
}

#[test]
fn programs_put_together_by_hand_are_verified() {
    let cpu = Cpu::new(1);
    let program = |n| UncheckedProgram::new(program(n)).verify();
    let exe = cpu.load(program(16).unwrap()).unwrap();
    let mut b = Bindings::for_program(exe.program(), &cpu).unwrap();
    exe.run(&mut b).unwrap();
    let mut got = [0; 64];
    b.outputs[0].read(0, &mut got).unwrap();
    assert_eq!(got, 1f32.to_le_bytes().repeat(16)[..]);
    let text = program(17).unwrap_err().to_string();
    assert_eq!(
        text,
        "a saved program: step 0 (fill): b0 (buffer 0) is written at 0 + 1·v0, which can't be shown to be below 16"
    );
}
