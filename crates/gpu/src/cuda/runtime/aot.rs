//! Ahead-of-time compilation of programs for a GPU that is not present.

use super::backend::{device_caps, shown, sources, target};
use super::load::{claimed, has_custom_kernel};
use super::nvrtc::Compiler;
use super::strided_copy::{KernelSource, product, strided_copy};
use crate::cuda::SkinnyMatmul;
use crate::library;
use compiler::program::{Matmul, Program, Step};
use compiler::{Backend, DeviceBuffer, Error, Executable, Result, Target};
use ir::ops::Composite;
use ir::{Op, Type};
use std::sync::Arc;

/// A GPU target for [`compiler::compile`]: it generates kernels and compiles them if NVRTC is installed, and needs no driver.
pub struct AotTarget {
    target: Target,
    compiler: Compiler,
    capability: (i32, i32),
}

impl AotTarget {
    /// A target with this compute capability, for example `(9, 0)` for Hopper.
    pub fn new(capability: (i32, i32)) -> Result<AotTarget> {
        Ok(AotTarget { target: target(), compiler: Compiler::open(capability)?, capability })
    }

    /// The source of each kernel of a program, with its name, its loops and its grid, for debugging.
    pub fn sources(&self, program: &Program) -> Vec<(String, String)> {
        shown(program)
    }

    /// Compiles all kernels of a program, and returns their number and the size of their machine code.
    pub fn compile(&self, program: &Program) -> Result<(usize, usize)> {
        let program =
            &library::expand(program.clone(), &device_caps(), &|op, args| has_custom_kernel(self.capability, op, args));
        let mut texts: Vec<KernelSource> = Vec::new();
        for s in sources(program) {
            let text = s.lowered?.text;
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        for shape in products(&program.steps) {
            let few =
                SkinnyMatmul::of(shape, [16, 16]).map(|f| f.text()).map(|(entry, text)| KernelSource { entry, text });
            for t in [product(shape.dtype, shape.out), strided_copy(shape.dtype.size())].into_iter().chain(few) {
                if !texts.contains(&t) {
                    texts.push(t);
                }
            }
        }
        for (op, types) in claimable(&program.steps) {
            for c in claimed(self.capability, op, &types).into_iter().flat_map(|r| r.calls) {
                let t = KernelSource { entry: c.entry_point, text: c.source };
                if !texts.contains(&t) {
                    texts.push(t);
                }
            }
        }
        if texts.is_empty() {
            return Ok((0, 0));
        }
        let mut source = super::prelude().to_string();
        texts.iter().for_each(|t| source.push_str(&t.text));
        let cubin = self.compiler.compile(&source)?;
        Ok((texts.len(), cubin.len()))
    }
}

fn products(steps: &[Step]) -> Vec<&Matmul> {
    fn of(s: &Step) -> Vec<&Matmul> {
        match s {
            Step::Matmul { shape, .. } => vec![shape],
            Step::Branch { branches, .. } => branches.iter().flat_map(|b| products(b)).collect(),
            Step::Loop(l) => products(&l.body),
            _ => Vec::new(),
        }
    }
    steps.iter().flat_map(of).collect()
}

fn claimable(steps: &[Step]) -> Vec<(&Op, Vec<Type>)> {
    fn of(s: &Step) -> Vec<(&Op, Vec<Type>)> {
        match s {
            Step::Library { op, args, .. } => vec![(op, args.iter().map(|(_, t)| t.clone()).collect())],
            Step::Branch { branches, .. } => branches.iter().flat_map(|b| claimable(b)).collect(),
            Step::Loop(l) => claimable(&l.body),
            _ => Vec::new(),
        }
    }
    steps.iter().flat_map(of).collect()
}

fn absent<T>() -> Result<T> {
    Err(Error::Backend(
        "this is the description of a GPU, not a device: programs can be compiled for it, but not run".into(),
    ))
}

impl Backend for AotTarget {
    fn name(&self) -> String {
        let (major, minor) = self.compiler.version;
        format!("cuda ({}, NVRTC {major}.{minor}, no device)", self.compiler.arch)
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn supports_composite(&self, composite: &Composite, args: &[Type]) -> bool {
        claimed(self.capability, &composite.clone().into(), args).is_some()
    }

    fn alloc(&self, _: usize) -> Result<Arc<dyn DeviceBuffer>> {
        absent()
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        absent()
    }
}
