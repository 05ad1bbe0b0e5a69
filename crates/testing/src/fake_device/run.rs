//! Runs programs on the simulated device: kernels by the reference interpreter, products by their definition, library ops by the
//! interpreter.

use super::InjectedFault;
use super::queue::{Memory, lock, memory};
use crate::Rng;
use compiler::loops::{AccessMode, Kernel, eval_range};
use compiler::program::{
    BufferKind, BufferRef, BufferSlice, KernelArg, Matmul, MatmulOperand, Program, Step, TripCount,
};
use compiler::{Error, Result, Target};
use ir::{Builder, DType, GraphBuilder, Literal, Op, Scalar, Type, interp};

/// Returns an error for a program whose kernels exceed the limits of a target.
pub(super) fn limits(program: &Program, target: &Target, scratch: usize) -> Result<()> {
    for b in &program.buffers {
        if b.ty.bytes() > target.kernel.max_binding_bytes {
            return Err(Error::Backend(format!(
                "{} has {} bytes, a buffer of {} has {} at most",
                b.ty,
                b.ty.bytes(),
                target.name,
                target.kernel.max_binding_bytes
            )));
        }
    }
    each_kernel(&program.steps, &mut |kernel, args| {
        let bound = args.iter().filter(|a| matches!(a, KernelArg::Place(_))).count();
        let own: usize = args.iter().map(|a| if let KernelArg::Scratch(n) = a { *n } else { 0 }).sum();
        if bound > target.kernel.buffers || own > scratch {
            return Err(Error::Internal(format!(
                "kernel {} takes {bound} buffers and {own} bytes of scratch; {} has {} and {scratch}",
                kernel.name, target.name, target.kernel.buffers
            )));
        }
        Ok(())
    })
}

fn each_kernel(steps: &[Step], f: &mut dyn FnMut(&Kernel, &[KernelArg]) -> Result<()>) -> Result<()> {
    for step in steps {
        match step {
            Step::Kernel { kernel, args, .. } => f(kernel, args)?,
            Step::Branch { branches, .. } => branches.iter().try_for_each(|b| each_kernel(b, f))?,
            Step::Loop(l) => {
                if let TripCount::While { test, .. } = &l.trip_count {
                    each_kernel(test, f)?;
                }
                each_kernel(&l.body, f)?;
            }
            Step::Matmul { .. } | Step::Library { .. } | Step::Copy { .. } | Step::Zero { .. } => {}
        }
    }
    Ok(())
}

/// Runs a program to completion.
pub(super) fn run(
    program: &Program,
    inputs: &[Memory],
    outputs: &[Memory],
    fault: InjectedFault,
    rng: &mut Rng,
) -> Result<()> {
    let arena = memory(vec![0xA5; program.arena_bytes]);
    let bases = program.buffers.iter().map(|b| match &b.kind {
        BufferKind::Input(n) => (inputs[*n].clone(), 0),
        BufferKind::Output(n) => (outputs[*n].clone(), 0),
        BufferKind::Constant(l) => (memory(l.bytes().to_vec()), 0),
        BufferKind::Activation => (arena.clone(), b.offset),
    });
    let bases = bases.collect();
    let levels = program.max_loop_depth;
    let mut m = Machine { program, bases, rng, fault, index: vec![0; levels], done: vec![0; levels] };
    m.steps(&program.steps)
}

struct Machine<'a> {
    program: &'a Program,
    /// The memory and the offset of every buffer.
    bases: Vec<(Memory, usize)>,
    rng: &'a mut Rng,
    fault: InjectedFault,
    /// The index and the number of the iteration of each loop.
    index: Vec<i64>,
    done: Vec<usize>,
}

impl Machine<'_> {
    /// The memory of a slice: its start, and the number of bytes to the end of its buffer.
    fn at(&self, p: &BufferSlice) -> (&Memory, usize, usize) {
        let buffer = match p.buffer {
            BufferRef::Fixed(b) => b,
            BufferRef::DoubleBuffered(level, even, odd) => [even, odd][self.done[level] % 2],
        };
        let offset = p.strides.iter().fold(p.offset, |o, (level, s)| o + self.index[*level] * s) as usize;
        let (memory, base) = &self.bases[buffer.0 as usize];
        (memory, base + offset, self.program.buffers[buffer.0 as usize].ty.bytes() - offset)
    }

    fn read(&self, p: &BufferSlice, bytes: usize) -> Vec<u8> {
        let (memory, at, _) = self.at(p);
        lock(memory)[at..at + bytes].to_vec()
    }

    fn write(&self, p: &BufferSlice, bytes: &[u8]) {
        let (memory, at, _) = self.at(p);
        lock(memory)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn literal(&self, p: &BufferSlice, ty: &Type) -> Literal {
        Literal::from_bytes(ty.clone(), &self.read(p, ty.bytes())).expect("as many bytes as the type has")
    }

    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|s| self.step(s))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Kernel { kernel, args, parallel } => self.kernel(kernel, args, *parallel),
            Step::Matmul {
                shape,
                a: MatmulOperand::Memory(a),
                b: MatmulOperand::Memory(b),
                c: Some(c),
                epilogue: None,
            } => {
                self.product(shape, a, b, c);
                Ok(())
            }
            Step::Matmul { .. } => Err(Error::Internal("a product with more than products here do".into())),
            Step::Library { op, args, outs } => self.library(op, args, outs),
            Step::Copy { from, to, bytes } => {
                let all = self.read(from, *bytes);
                self.write(to, &all);
                Ok(())
            }
            Step::Zero { to, bytes } => {
                self.write(to, &vec![0; *bytes]);
                Ok(())
            }
            Step::Branch { index, branches } => {
                let k = (self.number(index).max(0) as usize).min(branches.len().saturating_sub(1));
                branches.get(k).map_or(Ok(()), |steps| self.steps(steps))
            }
            Step::Loop(l) => {
                let most = match &l.trip_count {
                    TripCount::Exact(n) => *n,
                    TripCount::Bounded { bound, count } => (self.number(count).max(0) as usize).min(*bound),
                    TripCount::While { .. } => usize::MAX,
                };
                let mut count = 0;
                while count < most {
                    self.index[l.depth] = if l.reverse { most - 1 - count } else { count } as i64;
                    self.done[l.depth] = count;
                    if let TripCount::While { test, flag } = &l.trip_count {
                        self.steps(test)?;
                        if self.read(flag, 1) == [0] {
                            break;
                        }
                    }
                    self.steps(&l.body)?;
                    count += 1;
                }
                self.done[l.depth] = count;
                for (from, to, bytes) in &l.copies_after {
                    let all = self.read(from, *bytes);
                    self.write(to, &all);
                }
                Ok(())
            }
        }
    }

    fn number(&self, p: &BufferSlice) -> i32 {
        let b = self.read(p, 4);
        i32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    fn kernel(&mut self, kernel: &Kernel, args: &[KernelArg], parallel: Option<i64>) -> Result<()> {
        let mut data: Vec<Vec<u8>> = Vec::with_capacity(args.len());
        for (a, b) in args.iter().zip(&kernel.buffers) {
            data.push(match a {
                KernelArg::Place(p) if self.fault == InjectedFault::ShiftedReads && b.mode == AccessMode::Read => {
                    let (memory, at, bytes) = self.at(p);
                    let all = lock(memory);
                    (at + 4..at + 4 + bytes).map(|i| all.get(i).copied().unwrap_or(0xA5)).collect()
                }
                KernelArg::Place(p) => self.read(p, self.at(p).2),
                KernelArg::Scratch(n) => vec![0xA5; *n],
            });
        }
        let mut slices: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
        // Iterations are independent of each other, so their order is not specified.
        let n = parallel.unwrap_or(1);
        let parts = n.clamp(1, 5);
        for k in self.rng.permutation(parts as usize) {
            let (from, to) = (n * k as i64 / parts, n * (k as i64 + 1) / parts);
            eval_range(kernel, &mut slices, &[], from, to).map_err(|e| Error::Internal(e.to_string()))?;
        }
        let mut first_read = None;
        for ((a, b), bytes) in args.iter().zip(&kernel.buffers).zip(&data) {
            let KernelArg::Place(p) = a else { continue };
            match b.mode {
                AccessMode::Read => first_read = first_read.or(Some(p)),
                _ => {
                    self.write(p, bytes);
                    if let Some(r) = first_read.filter(|_| self.fault == InjectedFault::AliasedOutput) {
                        let n = bytes.len().min(self.at(r).2);
                        self.write(r, &bytes[..n]);
                    }
                }
            }
        }
        Ok(())
    }

    fn product(&mut self, s: &Matmul, a: &BufferSlice, b: &BufferSlice, c: &BufferSlice) {
        let (from_a, from_b) = (self.read(a, self.at(a).2), self.read(b, self.at(b).2));
        let mut to = self.read(c, self.at(c).2);
        let number = |bytes: &[u8], i: isize, d: DType| {
            let (at, size) = (i as usize * d.size(), d.size());
            let mut word = [0; 8];
            word[..size].copy_from_slice(&bytes[at..at + size]);
            Scalar::from_bits(d, u64::from_le_bytes(word)).to_f64()
        };
        for i in 0..s.batch as isize {
            for m in 0..s.m as isize {
                for n in 0..s.n as isize {
                    let mut sum = 0.0;
                    for k in 0..s.k as isize {
                        let x = number(&from_a, i * s.a[0] + m * s.a[1] + k * s.a[2], s.dtype);
                        let y = number(&from_b, i * s.b[0] + k * s.b[1] + n * s.b[2], s.dtype);
                        sum += x * y;
                    }
                    let out = Scalar::from_f64(s.acc, sum).cast(s.out).bits().to_le_bytes();
                    let at = (i * s.c[0] + m * s.c[1] + n * s.c[2]) as usize * s.out.size();
                    to[at..at + s.out.size()].copy_from_slice(&out[..s.out.size()]);
                }
            }
        }
        self.write(c, &to);
    }

    fn library(&mut self, op: &Op, args: &[(BufferSlice, Type)], outs: &[(BufferSlice, Type)]) -> Result<()> {
        let mut b = Builder::new();
        let values: Vec<_> = args.iter().map(|(_, t)| b.graph.input(t.clone())).collect();
        let results = b.emit(op.clone(), &values)?.to_vec();
        let inputs: Vec<Literal> = args.iter().map(|(p, t)| self.literal(p, t)).collect();
        for (l, (p, _)) in interp::run(&b.finish(&results), &inputs)?.iter().zip(outs) {
            self.write(p, l.bytes());
        }
        Ok(())
    }
}
