//! Runs in memory that the caller provides: the same results for any previous contents, in one call or step by step.

mod harness;

use compiler::{ALIGN, DeviceBuffer};
use harness::{Random, bindings, load, read, same};
use ir::ops::Sort;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Unary};
use std::sync::Arc;
use tensorloom_cpu::{Cpu, HostBuffer};

/// A matmul, a sum over rows, a sort and a convolution: kernels with scratch, packed panels and routines.
fn graph() -> Graph {
    let mut b = Builder::new();
    let x = b.graph.input(Type::new(DType::F32, &[70, 90]));
    let y = b.graph.input(Type::new(DType::F32, &[90, 40]));
    let p = b.matmul(x, y).unwrap();
    let e = b.unary(Unary::Exp, p).unwrap();
    let s = b.sum(e, &[1]).unwrap();
    let sorted = b.emit(Sort { axis: 1, num_keys: 1, descending: false }.into(), &[p]).unwrap()[0];
    let types = [b.graph.ty(p).clone(), b.graph.ty(sorted).clone()];
    let op = ir::composites::convolve::fft_convolve(&types[0], &types[1]).unwrap();
    let c = b.emit(op.into(), &[p, sorted]).unwrap();
    b.finish(&[s, c[0]])
}

fn arena(bytes: usize, fill: u8) -> HostBuffer {
    let a = HostBuffer::new(bytes).unwrap();
    a.write(0, &vec![fill; bytes]).unwrap();
    a
}

#[test]
fn runs_in_memory_of_the_caller() {
    let graph = graph();
    let mut random = Random(5);
    let inputs: Vec<_> = graph.input_types().iter().map(|t| random.literal(t)).collect();
    for threads in [1, 3] {
        let cpu = Cpu::new(threads);
        let exe = load(&cpu, &graph, true);
        let mut b = bindings(&cpu, &*exe, &inputs);
        exe.run(&mut b).unwrap();
        let want = read(&*exe, &b);
        let steps = exe.program().steps.len();
        assert!(steps > 2 && exe.arena_bytes() > exe.program().arena_bytes);
        let bare = cpu.load_without_arena(exe.program().clone(), false).unwrap();
        for fill in [0, 0xff, 0x7f] {
            for step in [1, 2, steps] {
                let mut own = arena(exe.arena_bytes(), fill);
                let mut b = bindings(&cpu, &*bare, &inputs);
                for first in (0..steps).step_by(step) {
                    bare.run_with_arena(&mut b, &mut own, first..(first + step).min(steps)).unwrap();
                }
                same("in an arena", &read(&*bare, &b), &want);
            }
        }
    }
}

#[test]
fn arenas_that_do_not_fit_are_refused() {
    let graph = graph();
    let cpu = Cpu::new(2);
    let exe = load(&cpu, &graph, true);
    let needed = exe.arena_bytes();
    let mut b = bindings(&cpu, &*exe, &[]);
    let text = |r: compiler::Result<()>| r.unwrap_err().to_string();
    let small = text(exe.run_with_arena(&mut b, &mut arena(needed - 1, 0), 0..1));
    assert!(small.contains(&format!("needs {needed} bytes")), "{small}");
    let block = Arc::new(arena(needed + ALIGN, 0));
    // SAFETY: nothing else uses the block.
    let mut skewed = unsafe { HostBuffer::slice(&block, 8, needed).unwrap() };
    assert!(text(exe.run_with_arena(&mut b, &mut skewed, 0..1)).contains("aligned to 64"));
    let steps = exe.program().steps.len();
    for bad in [steps..steps + 1, 1..0, 0..usize::MAX] {
        assert!(text(exe.run_with_arena(&mut b, &mut arena(needed, 0), bad)).contains("steps"));
    }
    b.inputs.pop();
    assert!(exe.run_with_arena(&mut b, &mut arena(needed, 0), 0..1).is_err());
}

#[test]
fn outputs_in_the_arena_are_refused() {
    let graph = graph();
    let cpu = Cpu::new(1);
    let exe = load(&cpu, &graph, true);
    let mut b = bindings(&cpu, &*exe, &[]);
    let (needed, out) = (exe.arena_bytes(), exe.program().outputs[0].bytes());
    let block = Arc::new(arena(needed + out, 0));
    let steps = 0..exe.program().steps.len();
    for at in [0, needed - ALIGN, needed] {
        // SAFETY: a run that is given both is refused if they overlap, and nothing else uses the block.
        let (mut own, part) =
            unsafe { (HostBuffer::slice(&block, 0, needed).unwrap(), HostBuffer::slice(&block, at, out).unwrap()) };
        b.outputs[0] = Arc::new(part);
        let r = exe.run_with_arena(&mut b, &mut own, steps.clone());
        match at == needed {
            true => r.unwrap(),
            false => assert!(r.unwrap_err().to_string().contains("output 0 lies in the arena")),
        }
    }
}
