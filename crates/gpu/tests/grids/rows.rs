//! Random kernels whose rows pass data through scratch and through memory that they read and write: every order of loads and
//! stores, inside and outside loops, by one lane and by all. The grid interpreter finds missing barriers; the results show
//! other errors.

use super::{Arg, Case};
use compiler::loops::{AccessMode, Buf, Extent, Index, KernelBuilder, LoopKind, Reg, Size, Var};
use ir::{Binary, DType};
use tensorloom_gpu::grid::{LaunchInfo, View};
use testing::Rng;

struct Writer<'r> {
    b: KernelBuilder,
    rng: &'r mut Rng,
    input: Buf,
    /// Memory that a row passes data through, and whether it is a row of a larger buffer.
    rows: Vec<(Buf, bool)>,
    parallel: Option<Var>,
    length: i64,
    /// Whether all vector loops run in the same direction, so that accesses may be wide.
    straight: bool,
    /// Registers of the team, innermost scope last.
    values: Vec<Reg>,
}

impl Writer<'_> {
    fn at(&self, (_, outer): (Buf, bool), i: Index) -> Index {
        match self.parallel.filter(|_| outer) {
            Some(p) => i.add_var(p, self.length),
            None => i,
        }
    }

    /// An element of a row: at the vector's variable, mirrored, or at a fixed index.
    fn element(&mut self, v: Option<Var>) -> Index {
        match (self.rng.below(4), v) {
            (0 | 1, Some(v)) => v.into(),
            (2, Some(v)) if !self.straight => Index { offset: self.length - 1, ..Index::default() }.add_var(v, -1),
            (_, _) => Index::from(self.rng.below(self.length as usize) as i64),
        }
    }

    fn value(&mut self) -> Reg {
        if self.values.is_empty() || self.rng.bernoulli(0.2) {
            let x = self.rng.below(5) as f64 * 0.5 - 1.0;
            return self.b.constant_from_f64(DType::F32, x);
        }
        *self.rng.pick(&self.values.clone())
    }

    fn mix(&mut self, a: Reg, b: Reg) -> Reg {
        let op = *self.rng.pick(&[Binary::Add, Binary::Sub, Binary::Max, Binary::Mul]);
        self.b.binary(op, a, b)
    }

    /// A loop over the row: it stores to one memory, loads from others, and from that one only the element that it stores.
    fn vector(&mut self, whole: Option<(Buf, bool)>) {
        let n = if whole.is_some() || self.rng.bernoulli(0.7) {
            self.length
        } else {
            1 + self.rng.below(self.length as usize) as i64
        };
        let v = self.b.var();
        let reduces = whole.is_none() && self.rng.bernoulli(0.4);
        let target =
            whole.or_else(|| (!reduces || self.rng.bernoulli(0.5)).then(|| *self.rng.pick(&self.rows.clone())));
        let across = whole.is_none() && !self.straight && self.rng.bernoulli(0.3);
        let op = *self.rng.pick(&[Binary::Add, Binary::Max, Binary::Min]);
        let init = self.value();
        let phi = self.b.reg(DType::F32);
        self.b.begin();
        let mut own = match whole {
            Some(row) => {
                let i = self.at((row.0, true), v.into());
                self.b.load(self.input, i)
            }
            None => self.value(),
        };
        for _ in 0..self.rng.below(3) {
            let from = *self.rng.pick(&self.rows.clone());
            let stored = |i: Index| if across { Index { offset: n - 1, ..Index::default() }.add_var(v, -1) } else { i };
            // Initially no memory is initialized.
            if whole.is_some() {
                continue;
            }
            // From the memory that it stores to, it may only load the element that it stores.
            let i = if Some(from) == target { stored(v.into()) } else { self.element(Some(v)) };
            let i = self.at(from, i);
            let x = self.b.load(from.0, i);
            own = self.mix(own, x);
        }
        if let Some(to) = target {
            let i = if across { Index { offset: n - 1, ..Index::default() }.add_var(v, -1) } else { v.into() };
            let i = self.at(to, i);
            self.b.store(to.0, i, own);
        }
        let mut carried = Vec::new();
        let next = reduces.then(|| self.b.binary(op, phi, own));
        let body = self.b.end();
        if let Some(next) = next {
            let out = self.b.reg(DType::F32);
            carried.push(compiler::loops::Carried { init, phi, next, out, combine: Some(op) });
            self.values.push(out);
        }
        let extent = Extent::Exact(Size::Const(n));
        let kind = LoopKind::Vector;
        self.b.push(compiler::loops::Stmt::Loop(compiler::loops::Loop { var: v, extent, kind, carried, body }));
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            match self.rng.below(8) {
                0..4 => self.vector(None),
                4 => {
                    let from = *self.rng.pick(&self.rows.clone());
                    let i = self.element(None);
                    let i = self.at(from, i);
                    let r = self.b.load(from.0, i);
                    self.values.push(r);
                }
                5 => {
                    let to = *self.rng.pick(&self.rows.clone());
                    let i = self.element(None);
                    let i = self.at(to, i);
                    let r = self.value();
                    self.b.store(to.0, i, r);
                }
                6 if self.values.len() >= 2 => {
                    let (a, b) = (self.value(), self.value());
                    let r = self.mix(a, b);
                    self.values.push(r);
                }
                _ if depth > 0 => {
                    let t = self.b.var();
                    let n = 1 + self.rng.below(3) as i64;
                    let inner = self.values.len();
                    self.b.begin();
                    self.statements(count / 2 + 1, depth - 1);
                    let body = self.b.end();
                    self.values.truncate(inner);
                    let extent = Extent::Exact(Size::Const(n));
                    self.b.push(compiler::loops::Stmt::Loop(compiler::loops::Loop {
                        var: t,
                        extent,
                        kind: LoopKind::Serial,
                        carried: vec![],
                        body,
                    }));
                }
                _ => {}
            }
        }
    }
}

pub(crate) fn random_kernel(rng: &mut Rng) -> Case {
    let length = *rng.pick(&[3i64, 8, 13, 16, 32, 64, 67]);
    let rows = rng.bernoulli(0.7).then(|| *rng.pick(&[1i64, 2, 5, 8, 33]));
    let total = (length * rows.unwrap_or(1)) as usize;
    let mut b = KernelBuilder::new("rows");
    let input = b.buffer(DType::F32, AccessMode::Read);
    let mut memory = Vec::new();
    let mut args = vec![Arg::Memory(View::whole_region(0, total * 4))];
    let mut regions = vec![total * 4];
    for _ in 0..1 + rng.below(3) {
        if rng.bernoulli(0.6) {
            memory.push((b.buffer(DType::F32, AccessMode::Scratch(length as usize)), false));
            args.push(Arg::Scratch(length as usize * 4));
        } else {
            memory.push((b.buffer(DType::F32, AccessMode::ReadWrite), true));
            args.push(Arg::Memory(View::whole_region(regions.len(), total * 4)));
            regions.push(total * 4);
        }
    }
    let out = b.buffer(DType::F32, AccessMode::Write);
    args.push(Arg::Memory(View::whole_region(regions.len(), total * 4)));
    regions.push(total * 4);
    let parallel = rows.map(|_| b.var());
    let straight = rng.bernoulli(0.5);
    let mut w = Writer { b, rng, input, rows: memory, parallel, length, straight, values: vec![] };
    w.b.begin();
    for row in w.rows.clone() {
        w.vector(Some(row));
    }
    let count = 2 + w.rng.below(5);
    w.statements(count, 2);
    // All memory of a row contributes to the result.
    let v = w.b.var();
    w.b.begin();
    let mut sum = w.b.constant_from_f64(DType::F32, 0.0);
    for row in w.rows.clone() {
        let i = w.at(row, v.into());
        let x = w.b.load(row.0, i);
        sum = w.b.binary(Binary::Add, sum, x);
    }
    for r in w.values.clone() {
        sum = w.b.binary(Binary::Add, sum, r);
    }
    let i = w.at((out, true), v.into());
    w.b.store(out, i, sum);
    let body = w.b.end();
    let last = |var, n, kind, body| {
        let extent = Extent::Exact(Size::Const(n));
        compiler::loops::Stmt::Loop(compiler::loops::Loop { var, extent, kind, carried: vec![], body })
    };
    w.b.push(last(v, length, LoopKind::Vector, body));
    let all = w.b.end();
    match (parallel, rows) {
        (Some(p), Some(n)) => w.b.push(last(p, n, LoopKind::Parallel, all)),
        _ => all.into_iter().for_each(|s| w.b.push(s)),
    }
    let given = LaunchInfo {
        aligned: vec![256; args.len()],
        scratch: vec![length as usize; args.len()],
        ..LaunchInfo::default()
    };
    Case { kernel: w.b.finish(), args, regions, given }
}
