//! Modules of real kernels, generated here and run by node: all must be valid, and those without helper calls must agree with the
//! evaluator. The complete backend as WebAssembly is `examples/wasm_suite.rs`.

use super::{Helper, module};
use compiler::Options;
use compiler::loops::{self, AccessMode, Kernel, Op};
use compiler::program::{KernelArg, Program, Step};
use ir::{DType, Scalar};
use std::cell::Cell;
use std::io::Write;
use std::process::{Command, Stdio};
use testing::Rng;
use testing::random::{SampleOptions as Shape, sample};

thread_local! {
    static HELPED: Cell<bool> = const { Cell::new(false) };
}

fn helped(op: &Op, _: DType, _: usize) -> Option<u32> {
    HELPED.set(true);
    (!matches!(op, Op::Const(_) | Op::Index(_) | Op::Load { .. } | Op::Select(..))).then_some(0)
}

/// Compiles a kernel; returns the module and whether it calls the helper.
fn made(k: &Kernel) -> (Vec<u8>, bool) {
    HELPED.set(false);
    let bytes = module(k, &Helper { index: 1, scratch_address: 64, code: helped }).expect("a module");
    (bytes, HELPED.get())
}

fn kernels(program: &Program, steps: &[Step], out: &mut Vec<(Kernel, Vec<usize>, i64)>) {
    for step in steps {
        match step {
            Step::Kernel { kernel, args, parallel } => {
                let bytes = |a: &KernelArg| match a {
                    KernelArg::Scratch(n) => *n,
                    KernelArg::Place(p) => {
                        let all = p.buffers().map(|b| program.buffers[b.0 as usize].ty.bytes()).min().unwrap_or(0);
                        all.saturating_sub(p.offset as usize)
                    }
                };
                out.push((Kernel::clone(kernel), args.iter().map(bytes).collect(), parallel.unwrap_or(1)));
            }
            Step::Loop(l) => kernels(program, &l.body, out),
            Step::Branch { branches, .. } => branches.iter().for_each(|b| kernels(program, b, out)),
            _ => {}
        }
    }
}

/// Fills a buffer with small numbers, since integers may be indices.
fn fill(d: DType, bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let one = |rng: &mut Rng| match d {
        d if d.is_float() => Scalar::from_f64(d, rng.range(-40, 41) as f64 / 16.0),
        DType::Bool => Scalar::bool(rng.bernoulli(0.5)),
        d => Scalar::from_i64(d, rng.range(0, 3)),
    };
    (0..bytes / d.size()).flat_map(|_| one(rng).bits().to_le_bytes()[..d.size()].to_vec()).collect()
}

/// The input file for node: counts and bytes, one case after the other.
#[derive(Default)]
struct Cases(Vec<u8>);

impl Cases {
    fn number(&mut self, n: usize) {
        self.0.extend((n as u32).to_le_bytes());
    }

    fn bytes(&mut self, b: &[u8]) {
        self.number(b.len());
        self.0.extend(b);
    }
}

#[test]
fn modules_are_valid_and_give_what_the_evaluator_gives() {
    if Command::new("node").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "there is no node");
        println!("no node here: modules were not run");
        return;
    }
    let cpu = crate::Cpu::new(1);
    let mut all = Vec::new();
    let mut add = |graph: &ir::Graph| {
        // Programs that the device rejects have separate tests.
        if let Ok(p) = compiler::compile(graph, &cpu, &Options::default()) {
            kernels(&p, &p.steps, &mut all);
        }
    };
    testing::samples::all_samples().iter().step_by(4).for_each(|row| add(&row.graph));
    (0..150).for_each(|seed| add(&sample(seed, &Shape::ANY).graph));
    let (mut cases, mut run) = (Cases::default(), 0);
    let mut rng = Rng::new(7);
    for (k, sizes, parallel) in &all {
        let (bytes, calls) = made(k);
        cases.bytes(&bytes);
        let mut buffers: Vec<Vec<u8>> = k.buffers.iter().zip(sizes).map(|(b, n)| fill(b.dtype, *n, &mut rng)).collect();
        let before = buffers.clone();
        let mut views: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        // Indices outside of the loop's data may be anywhere, so such a kernel is only validated.
        let fine = !calls && k.sizes == 0 && loops::eval(k, &mut views, &[]).is_ok();
        cases.number(usize::from(fine));
        if !fine {
            continue;
        }
        run += 1;
        cases.number(*parallel as usize);
        cases.number(buffers.len());
        for ((b, before), after) in k.buffers.iter().zip(&before).zip(&buffers) {
            cases.number(if matches!(b.mode, AccessMode::Scratch(_)) { 99 } else { b.dtype as usize });
            cases.bytes(before);
            cases.bytes(after);
        }
    }
    println!("{} modules, {run} of them run", all.len());
    assert!(all.len() > 600 && run > 300, "{} modules, {run} of them run", all.len());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/node/modules.mjs");
    let mut node = Command::new("node").arg(script).stdin(Stdio::piped()).spawn().expect("node runs");
    node.stdin.take().expect("a pipe").write_all(&cases.0).expect("node reads");
    assert!(node.wait().expect("node ends").success());
}
