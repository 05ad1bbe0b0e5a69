//! Runs graphs on the CPU and compares results.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

#[cfg(unix)]
pub mod guarded;

use compiler::{Backend, Bindings, Executable, Options};
use ir::{DType, Graph, Literal, Scalar, Type};
use std::sync::Arc;
use tensorloom_cpu::Cpu;

/// Loads a program on a backend.
pub fn load(cpu: &Cpu, graph: &Graph, claims: bool) -> Arc<dyn Executable> {
    let program = compiler::compile(graph, cpu, &Options { fuse_composites: claims, ..Options::default() }).unwrap();
    cpu.load(program).unwrap()
}

/// Returns bindings of a program, with the inputs written.
pub fn bindings(cpu: &Cpu, exe: &dyn Executable, inputs: &[Literal]) -> Bindings {
    let b = Bindings::for_program(exe.program(), cpu).unwrap();
    for (buffer, x) in b.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).unwrap();
    }
    b
}

/// Returns the outputs of a program that ran.
pub fn read(exe: &dyn Executable, b: &Bindings) -> Vec<Literal> {
    let mut outs = Vec::new();
    for (buffer, ty) in b.outputs.iter().zip(&exe.program().outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).unwrap();
        outs.push(Literal::from_bytes(ty.clone(), &bytes).unwrap());
    }
    outs
}

/// Compiles and runs a graph.
pub fn run(cpu: &Cpu, graph: &Graph, inputs: &[Literal], claims: bool) -> Vec<Literal> {
    let exe = load(cpu, graph, claims);
    let mut b = bindings(cpu, &*exe, inputs);
    exe.run(&mut b).unwrap();
    read(&*exe, &b)
}

/// A pseudo-random number generator.
pub struct Random(pub u64);

impl Random {
    /// Returns the next 32 bits.
    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n.max(1)
    }

    /// Returns a number in -1..1.
    pub fn unit(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 31) as f64 - 1.0
    }

    /// Returns floats in -1..1, or small integers.
    pub fn literal(&mut self, ty: &Type) -> Literal {
        Literal::from_fn(ty.clone(), |_| match ty.dtype {
            DType::Bool => Scalar::bool(self.bits() & 1 == 1),
            d if d.is_float() => Scalar::from_f64(d, self.unit()),
            d => Scalar::from_i64(d, self.below(7) as i64 - if d.to_string().starts_with("i") { 3 } else { 0 }),
        })
    }
}

/// Asserts that results agree up to a tolerance relative to the largest value.
pub fn close(what: &str, got: &[Literal], want: &[Literal], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert_eq!(a.ty(), b.ty(), "{what}: result {i}");
        let size = b.scalars().map(|x| x.to_f64().abs()).filter(|x| x.is_finite()).fold(1e-3, f64::max);
        for (j, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
            let (x, y) = (x.to_f64(), y.to_f64());
            let fits = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * size;
            assert!(fits, "{what}: result {i}, element {j}: {x} instead of {y}");
        }
    }
}

/// Asserts that results are the same bits.
pub fn same(what: &str, got: &[Literal], want: &[Literal]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert_eq!(a.ty(), b.ty(), "{what}: result {i}");
        if a.bytes() != b.bytes() {
            let at = (0..a.ty().numel()).find(|&j| a.get(j).bits() != b.get(j).bits()).unwrap_or(0);
            panic!("{what}: result {i}, element {at}: {:?} instead of {:?}", a.get(at), b.get(at));
        }
    }
}
