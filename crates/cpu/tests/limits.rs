//! Sizes that are impossible, and memory that cannot be allocated.

use compiler::program::Step;
use compiler::{Backend, Bindings, Error, Options};
use ir::{Builder, DType, GraphBuilder};
use tensorloom_cpu::Cpu;

#[test]
fn memory_that_is_not_there_is_an_error_with_its_size() {
    let cpu = Cpu::new(1);
    let asked = 1usize << 60;
    let Err(Error::OutOfMemory { bytes, .. }) = cpu.alloc(asked) else { panic!("2^60 bytes were given") };
    assert_eq!(bytes, asked);
    let text = cpu.alloc(usize::MAX).err().unwrap().to_string();
    assert!(text.contains(&usize::MAX.to_string()), "{text}");

    // A program whose inputs are small and whose intermediate value is not.
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[1 << 20]);
    let y = b.input(DType::F32, &[1 << 20]);
    let n = 1 << 20;
    let wide = b.broadcast(x, &[n, n, 1 << 10], &[0]).unwrap();
    let tall = b.broadcast(y, &[n, n, 1 << 10], &[1]).unwrap();
    let p = b.mul(wide, tall).unwrap();
    let sorted = b.emit(ir::ops::Sort { axis: 2, num_keys: 1, descending: false }.into(), &[p]).unwrap()[0];
    let s = b.sum(sorted, &[0, 1, 2]).unwrap();
    let program = compiler::compile(&b.finish(&[s]), &cpu, &Options::default()).unwrap();
    let arena = program.arena_bytes;
    assert!(arena >= 1 << 52);
    let exe = match cpu.load(program) {
        Ok(exe) => exe,
        Err(e) => return assert!(matches!(e, Error::OutOfMemory { bytes, .. } if bytes >= arena), "{e}"),
    };
    let mut bindings = Bindings::for_program(exe.program(), &cpu).unwrap();
    let e = exe.run(&mut bindings).unwrap_err();
    assert!(matches!(e, Error::OutOfMemory { bytes, .. } if bytes >= arena), "{e}");
}

/// 73,537 is prime and 73,536 has no divisor near a good block size.
#[test]
fn a_long_axis_without_divisors_runs_in_blocks_and_a_rest() {
    for n in [73_536, 73_537, 470_925, (1 << 20) - 1] {
        let mut b = Builder::new();
        let x = b.input(DType::F32, &[n]);
        let y = b.unary(ir::Unary::Tanh, x).unwrap();
        let program = compiler::compile(&b.finish(&[y]), &Cpu::new(2), &Options::default()).unwrap();
        let parallel = |s: &Step| match s {
            Step::Kernel { parallel, .. } => parallel.unwrap_or(1),
            _ => panic!("only kernels are needed"),
        };
        let loops: Vec<i64> = program.steps.iter().map(parallel).collect();
        assert!(loops.len() <= 2 && loops[0] >= 16, "{n}: {loops:?}");
    }
}

#[test]
fn sizes_beyond_the_address_space_are_an_error() {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[1]);
    let e = b.broadcast(x, &[1 << 40, 1 << 40], &[0]).unwrap_err().to_string();
    assert!(e.contains("1099511627776"), "{e}");
}
