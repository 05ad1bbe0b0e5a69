//! The interpreter of grids: runs every thread of every block, in a random order, and records all memory accesses.
//!
//! It finds races (between threads of a block without a barrier in between, and between blocks), accesses that are out of bounds or
//! misaligned, reads of uninitialized private memory, indices that overflow their width, and barriers that not all threads
//! reach.

mod code;
mod shadow;

use super::{AddressSpace, Buf, GridKernel, Index, Op, Reg, Scope, Size, Stmt, ThreadBuiltin, value};
use code::{Code, flatten};
use ir::{DType, Scalar};
use shadow::{Shadow, ThreadEpoch};

/// The error of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum EvalError {
    #[error("expected {expected} {what}, got {found}")]
    Arguments { what: &'static str, expected: usize, found: usize },
    #[error("argument {0} is not within its region")]
    View(usize),
    #[error("block {block}, thread {thread}: b{}[{index}] is outside of {len} elements", .buf.0)]
    OutOfBounds { buf: Buf, index: i64, len: usize, block: u32, thread: u32 },
    #[error("block {block}, thread {thread}: b{}[{index}] is read but was never written", .buf.0)]
    Uninitialised { buf: Buf, index: i64, block: u32, thread: u32 },
    #[error("b{}[{index}]: {count} elements at once are not aligned", .buf.0)]
    Misaligned { buf: Buf, index: i64, count: usize },
    #[error("b{}[{index}]: block {}, thread {} {} and block {}, thread {} {} with no barrier between", .buf.0,
        .first.0, .first.1, verb(.first.2), .second.0, .second.1, verb(.second.2))]
    Race { buf: Buf, index: i64, first: (u32, u32, bool), second: (u32, u32, bool) },
    #[error(
        "block {block}: threads {first} and {second} wait at different places, or one for the other that has ended"
    )]
    Diverged { block: u32, first: u32, second: u32 },
    #[error("block {block}, thread {thread}: an index of 32 bits does not fit")]
    Overflow { block: u32, thread: u32 },
}

fn verb(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

/// What a pointer argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The index of the region.
    pub region: usize,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
}

impl View {
    /// A whole region.
    pub fn whole_region(region: usize, bytes: usize) -> View {
        View { region, offset: 0, bytes }
    }
}

/// The parameters of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The size arguments.
    pub sizes: &'a [i64],
    /// The seed of the random order of blocks and threads.
    pub seed: u64,
}

/// Runs a grid over regions of memory. `args` has the view of each `Global` argument, in order; memory for `Spill` arguments is
/// allocated here.
pub fn eval(k: &GridKernel, regions: &mut [&mut [u8]], args: &[View], launch: Launch<'_>) -> Result<(), EvalError> {
    let arguments = |what, expected, found| {
        if expected == found { Ok(()) } else { Err(EvalError::Arguments { what, expected, found }) }
    };
    let globals = k.memory.iter().filter(|m| matches!(m.space, AddressSpace::Global(_))).count();
    arguments("buffers", globals, args.len())?;
    arguments("sizes", k.sizes as usize, launch.sizes.len())?;
    let blocks = k.blocks(launch.sizes);
    let mut memory = Memories::new(k, regions, args, blocks)?;
    let code = flatten(&k.body);
    let mut rng = SplitMix64(launch.seed);
    for block in rng.order(blocks as usize) {
        memory.start_block();
        Block::new(k, &code, launch.sizes, block as u32, blocks).run(&mut memory, &mut rng)?;
    }
    Ok(())
}

/// A pseudo-random generator (SplitMix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            all.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        all
    }
}

/// All memory: regions of the caller, and those allocated here.
struct Memories<'a, 'b> {
    k: &'a GridKernel,
    outer: &'a mut [&'b mut [u8]],
    /// Shared arrays and spilled memory.
    own: Vec<Vec<u8>>,
    shadows: Vec<Shadow>,
    /// For each memory of the kernel its region (those of the caller first) and view.
    views: Vec<View>,
}

impl<'a, 'b> Memories<'a, 'b> {
    fn new(
        k: &'a GridKernel,
        outer: &'a mut [&'b mut [u8]],
        args: &[View],
        blocks: u32,
    ) -> Result<Memories<'a, 'b>, EvalError> {
        let mut units = vec![8usize; outer.len()];
        let (mut views, mut own, mut globals) = (Vec::new(), Vec::new(), args.iter().enumerate());
        for m in &k.memory {
            let bytes = match m.space {
                AddressSpace::Global(_) => {
                    let Some((i, v)) = globals.next() else { return Err(EvalError::View(views.len())) };
                    let within = |r: &&mut [u8]| v.offset.checked_add(v.bytes).is_some_and(|end| end <= r.len());
                    if !outer.get(v.region).is_some_and(within) {
                        return Err(EvalError::View(i));
                    }
                    let aligned = v.offset.is_multiple_of(m.dtype.size());
                    units[v.region] = units[v.region].min(if aligned { m.dtype.size() } else { 1 });
                    views.push(*v);
                    continue;
                }
                AddressSpace::Spill(n) => n * m.dtype.size() * blocks as usize * k.teams as usize,
                AddressSpace::Shared(n) => n * m.dtype.size(),
            };
            views.push(View::whole_region(outer.len() + own.len(), bytes));
            // Its initial contents are undefined.
            own.push(vec![0xA5; bytes]);
            units.push(m.dtype.size());
        }
        let sizes = outer.iter().map(|r| r.len()).chain(own.iter().map(Vec::len));
        let shadows = sizes.zip(units).map(|(n, unit)| Shadow::new(n, unit)).collect();
        Ok(Memories { k, outer, own, shadows, views })
    }

    /// Resets the shared arrays for a new block.
    fn start_block(&mut self) {
        for (m, v) in self.k.memory.iter().zip(&self.views) {
            if let AddressSpace::Shared(_) = m.space {
                self.own[v.region - self.outer.len()].fill(0xA5);
                self.shadows[v.region].clear();
            }
        }
    }

    fn bytes(&mut self, region: usize) -> &mut [u8] {
        let n = self.outer.len();
        if region < n { &mut *self.outer[region] } else { &mut self.own[region - n] }
    }

    /// The bytes of some elements, after checking that this thread may access them.
    fn at(
        &mut self,
        buf: Buf,
        index: i64,
        count: usize,
        who: ThreadEpoch,
        write: bool,
    ) -> Result<&mut [u8], EvalError> {
        let m = self.k.memory[buf.0 as usize];
        let (v, size) = (self.views[buf.0 as usize], m.dtype.size());
        let len = v.bytes / size;
        let first = usize::try_from(index).ok().filter(|i| i.checked_add(count).is_some_and(|end| end <= len));
        let Some(first) = first else {
            return Err(EvalError::OutOfBounds { buf, index, len, block: who.block, thread: who.thread });
        };
        let start = v.offset + first * size;
        if count > 1 && !start.is_multiple_of(count * size) {
            return Err(EvalError::Misaligned { buf, index, count });
        }
        let end = start + count * size;
        let private = !matches!(m.space, AddressSpace::Global(_));
        match self.shadows[v.region].touch(start..end, who, write, self.k.subgroup_size) {
            Err(first) => {
                let (first, second) = ((first.0.block, first.0.thread, first.1), (who.block, who.thread, write));
                return Err(EvalError::Race { buf, index, first, second });
            }
            Ok(false) if private && !write => {
                return Err(EvalError::Uninitialised { buf, index, block: who.block, thread: who.thread });
            }
            Ok(_) => {}
        }
        Ok(&mut self.bytes(v.region)[start..end])
    }
}

struct Thread {
    pc: usize,
    regs: Vec<Scalar>,
    /// The number of barriers of its subgroup that it has passed.
    passed: u32,
}

struct Block<'a> {
    k: &'a GridKernel,
    code: &'a [Code<'a>],
    sizes: &'a [i64],
    block: u32,
    blocks: u32,
    /// The number of barriers of the block that were passed.
    epoch: u32,
    threads: Vec<Thread>,
}

impl<'a> Block<'a> {
    fn new(k: &'a GridKernel, code: &'a [Code<'a>], sizes: &'a [i64], block: u32, blocks: u32) -> Block<'a> {
        let regs = vec![Scalar::zero(DType::Bool); k.regs.len()];
        let threads = (0..k.threads).map(|_| Thread { pc: 0, regs: regs.clone(), passed: 0 }).collect();
        Block { k, code, sizes, block, blocks, epoch: 0, threads }
    }

    fn run(&mut self, memory: &mut Memories<'_, '_>, rng: &mut SplitMix64) -> Result<(), EvalError> {
        loop {
            for t in rng.order(self.threads.len()) {
                self.run_thread(t, memory)?;
            }
            if self.threads.iter().all(|t| matches!(self.code[t.pc], Code::End)) {
                return Ok(());
            }
            if !self.release_barrier()? {
                let pc = |t: &Thread| t.pc;
                let first = self.threads.first().map(pc);
                let second = self.threads.iter().position(|t| Some(t.pc) != first).unwrap_or(0);
                return Err(EvalError::Diverged { block: self.block, first: 0, second: second as u32 });
            }
        }
    }

    /// Resumes the threads of a barrier that all of them have reached; returns whether there were any.
    fn release_barrier(&mut self) -> Result<bool, EvalError> {
        let group = self.k.subgroup_size as usize;
        let mut moved = false;
        for start in (0..self.threads.len()).step_by(group) {
            let pc = self.threads[start].pc;
            let own = start..start + group;
            let together = self.threads[own.clone()].iter().position(|t| t.pc != pc);
            let waits = |c: &Code<'_>| matches!(c, Code::Exchange { .. } | Code::Barrier(Scope::Subgroup));
            if let Some(other) = together {
                // A subgroup whose threads are at different positions cannot continue if one of these is a subgroup barrier.
                if self.threads[own].iter().any(|t| waits(&self.code[t.pc])) {
                    let (first, second) = (start as u32, (start + other) as u32);
                    return Err(EvalError::Diverged { block: self.block, first, second });
                }
                continue;
            }
            match &self.code[pc] {
                Code::Barrier(Scope::Subgroup) => self.threads[own].iter_mut().for_each(|t| {
                    t.pc += 1;
                    t.passed += 1;
                }),
                Code::Exchange { dst, src, xor } => {
                    let given: Vec<Scalar> = self.threads[own.clone()].iter().map(|t| t.regs[src.0 as usize]).collect();
                    for (i, t) in self.threads[own].iter_mut().enumerate() {
                        t.regs[dst.0 as usize] = given[i ^ *xor as usize];
                        t.pc += 1;
                    }
                }
                _ => continue,
            }
            moved = true;
        }
        let pc = self.threads[0].pc;
        if !moved && matches!(self.code[pc], Code::Barrier(Scope::Block)) && self.threads.iter().all(|t| t.pc == pc) {
            self.epoch += 1;
            self.threads.iter_mut().for_each(|t| t.pc += 1);
            moved = true;
        }
        Ok(moved)
    }

    /// Runs a thread until it waits or ends.
    fn run_thread(&mut self, t: usize, memory: &mut Memories<'_, '_>) -> Result<(), EvalError> {
        let who =
            ThreadEpoch { block: self.block, thread: t as u32, epoch: self.epoch, passed: self.threads[t].passed };
        loop {
            let th = &mut self.threads[t];
            let reg = |r: &Reg| r.0 as usize;
            match &self.code[th.pc] {
                Code::End | Code::Barrier(_) | Code::Exchange { .. } => return Ok(()),
                Code::Run(Stmt::Let { dst, op }) => {
                    let v = self.op(t, *dst, op, who)?;
                    self.threads[t].regs[reg(dst)] = v;
                }
                Code::Run(Stmt::Load { dst, buf, index, mask }) => match mask {
                    Some((m, other)) if !th.regs[reg(m)].to_bool() => {
                        dst.iter().for_each(|d| th.regs[reg(d)] = *other);
                    }
                    _ => {
                        let at = self.index(t, index, who)?;
                        let dtype = self.k.memory[buf.0 as usize].dtype;
                        let bytes = memory.at(*buf, at, dst.len(), who, false)?;
                        for (d, raw) in dst.iter().zip(bytes.chunks_exact(dtype.size())) {
                            let mut word = [0; 8];
                            word[..raw.len()].copy_from_slice(raw);
                            self.threads[t].regs[reg(d)] = Scalar::from_bits(dtype, u64::from_le_bytes(word));
                        }
                    }
                },
                Code::Run(Stmt::Store { buf, index, value, mask }) => {
                    if mask.is_none_or(|m| th.regs[reg(&m)].to_bool()) {
                        let at = self.index(t, index, who)?;
                        let size = self.k.memory[buf.0 as usize].dtype.size();
                        let bytes = memory.at(*buf, at, value.len(), who, true)?;
                        for (v, raw) in value.iter().zip(bytes.chunks_exact_mut(size)) {
                            let word = self.threads[t].regs[reg(v)].bits().to_le_bytes();
                            raw.copy_from_slice(&word[..size]);
                        }
                    }
                }
                Code::Run(_) => {}
                Code::Enter(l) => {
                    th.regs[reg(&l.var)] = th.regs[reg(&l.from)];
                    l.carried.iter().for_each(|c| th.regs[reg(&c.phi)] = th.regs[reg(&c.init)]);
                }
                Code::Test { of, exit } => {
                    if th.regs[reg(&of.var)].to_i64() >= th.regs[reg(&of.to)].to_i64() {
                        of.carried.iter().for_each(|c| th.regs[reg(&c.out)] = th.regs[reg(&c.phi)]);
                        th.pc = *exit;
                        continue;
                    }
                }
                Code::Next { of, test } => {
                    // All are read before any is written: a `next` may be the `phi` of another value.
                    let next: Vec<Scalar> = of.carried.iter().map(|c| th.regs[reg(&c.next)]).collect();
                    of.carried.iter().zip(next).for_each(|(c, v)| th.regs[reg(&c.phi)] = v);
                    let (var, step) = (th.regs[reg(&of.var)], th.regs[reg(&of.step)].to_i64());
                    let sum = var.to_i64().checked_add(step);
                    let fits = |x: &i64| var.dtype() == DType::I64 || i32::try_from(*x).is_ok();
                    let overflow = EvalError::Overflow { block: who.block, thread: who.thread };
                    let sum = sum.filter(fits).ok_or(overflow)?;
                    th.regs[reg(&of.var)] = Scalar::from_i64(var.dtype(), sum);
                    th.pc = *test;
                    continue;
                }
                Code::If { cond, exit } => {
                    if !th.regs[reg(cond)].to_bool() {
                        th.pc = *exit;
                        continue;
                    }
                }
            }
            self.threads[t].pc += 1;
        }
    }

    fn op(&self, t: usize, dst: Reg, op: &Op, who: ThreadEpoch) -> Result<Scalar, EvalError> {
        let d = self.k.regs[dst.0 as usize];
        let overflow = || EvalError::Overflow { block: who.block, thread: who.thread };
        Ok(match op {
            Op::Const(s) => *s,
            Op::ThreadBuiltin(own) => Scalar::from_i64(
                DType::I32,
                match own {
                    ThreadBuiltin::Thread => t as i64,
                    ThreadBuiltin::Block => self.block as i64,
                    ThreadBuiltin::Blocks => self.blocks as i64,
                },
            ),
            Op::Size(n) => {
                let x = value(Size::Arg(*n), self.sizes);
                if d == DType::I32 && i32::try_from(x).is_err() {
                    return Err(overflow());
                }
                Scalar::from_i64(d, x)
            }
            Op::Index(i) => Scalar::from_i64(d, self.index(t, i, who)?),
            Op::Arith(op) => {
                let args: smallvec::SmallVec<[Scalar; 3]> =
                    op.operands().map(|r| self.threads[t].regs[r.0 as usize]).collect();
                op.apply(&args).unwrap_or(Scalar::zero(d))
            }
        })
    }

    fn index(&self, t: usize, i: &Index, who: ThreadEpoch) -> Result<i64, EvalError> {
        let overflow = || EvalError::Overflow { block: who.block, thread: who.thread };
        let fits = |x: i64| if i.wide || i32::try_from(x).is_ok() { Ok(x) } else { Err(overflow()) };
        let mut at = fits(i.offset)?;
        for &a in &i.offset_args {
            at = fits(at.wrapping_add(fits(value(Size::Arg(a), self.sizes))?))?;
        }
        for &(r, s) in &i.terms {
            let x = self.threads[t].regs[r.0 as usize].to_i64();
            at = fits(at.wrapping_add(fits(x.wrapping_mul(fits(value(s, self.sizes))?))?))?;
        }
        Ok(at)
    }
}
