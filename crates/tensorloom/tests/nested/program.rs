//! Random programs: statements on tensors, and calls of transforms whose bodies are programs again.
//!
//! Variables are positions in one list: a body sees those of the bodies around it (captured), then its arguments, then what
//! its statements make. The generator knows the shape of each, and which function's memory it is: a function writes to its
//! own alone.

use std::fmt;
use testing::rng::Rng;

pub(crate) type Var = usize;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Sin,
    Tanh,
    Square,
    /// `a·x + b`.
    Line(f64, f64),
    Add,
    Sub,
    Mul,
    Matmul,
    Sum,
    SumAxis(usize),
    Copy,
    Flip(usize),
    Concat(usize),
    Diagonal,
    /// The first operand halved, plus the mean of the second: its shape is that of the first.
    Fit,
    /// The sum of the operands' means, each with a weight of its own.
    Blend,
}

#[derive(Clone, Debug)]
pub(crate) enum View {
    T,
    Permute(Vec<usize>),
    Slice { axis: usize, start: usize, end: usize, step: usize },
    Index { axis: usize, at: usize },
    Reshape(Vec<usize>),
    Unsqueeze(usize),
    Squeeze(usize),
    Expand(Vec<usize>),
    Detach,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Add,
    Mul,
    Copy,
    Line(f64),
    Fill(f64),
    Tanh,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Op(Op, Vec<Var>),
    View(View, Var),
    /// In place, recorded for gradients or not.
    Write {
        write: Write,
        to: Var,
        from: Option<Var>,
        recorded: bool,
    },
    Call(Box<Call>),
    /// Reads a variable now; in the outermost body alone.
    Read(Var),
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Called again after a write, if there is one.
    Jit {
        then: Option<Stmt>,
    },
    Vmap {
        axes: Vec<Option<usize>>,
        out: usize,
    },
    Grad,
    ValueAndGrad,
    Jvp,
    Linearize,
    Vjp,
    Scan {
        reverse: bool,
    },
    Map,
    /// Which branch: whether the sum of a variable is positive.
    Cond(Var),
    /// The body this often; the test reads a variable too.
    While(usize, Var),
    Checkpoint,
    EngineCheckpoint,
    Compile,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) bodies: Vec<Body>,
    pub(crate) args: Vec<Var>,
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) stmts: Vec<Stmt>,
    pub(crate) results: Vec<Var>,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Shapes of the variables that are there at the beginning.
    pub(crate) inputs: Vec<Vec<usize>>,
    pub(crate) body: Body,
}

#[derive(Clone)]
struct Info {
    shape: Vec<usize>,
    /// The function whose memory it is.
    owner: usize,
    /// Several elements are one in memory.
    overlaps: bool,
    dense: bool,
    /// Gradients don't pass, so what is written through it can't be recorded.
    detached: bool,
}

/// What a body may contain.
#[derive(Clone, Copy)]
struct Scope {
    /// The function.
    frame: usize,
    /// Its arguments can't be written to.
    fenced: bool,
    depth: usize,
    /// Reverse mode goes through.
    reversed: bool,
    /// How often it runs in the plain version.
    times: usize,
    outermost: bool,
}

struct Maker<'a> {
    rng: &'a mut Rng,
    vars: Vec<Info>,
    frames: usize,
    size: usize,
}

const SHAPES: [&[usize]; 9] = [&[], &[2], &[3], &[2, 3], &[3, 2], &[3, 3], &[2, 2], &[1, 3], &[2, 3, 2]];
/// Statements that the plain version may run.
const WORK: usize = 4000;

/// A program; larger ones with a larger `size`.
pub(crate) fn program(rng: &mut Rng, size: usize) -> Program {
    let inputs: Vec<Vec<usize>> = (0..2 + rng.below(3)).map(|_| rng.pick(&SHAPES).to_vec()).collect();
    let mut m = Maker { rng, vars: Vec::new(), frames: 1, size };
    inputs.iter().for_each(|s| m.push(s, 0));
    let scope = Scope { frame: 0, fenced: false, depth: 0, reversed: false, times: 1, outermost: true };
    let mut stmts = Vec::new();
    for _ in 0..2 + m.rng.below(2 + size) {
        m.statement(scope, &mut stmts);
    }
    // A program without a transform shows nothing.
    while !m.call(scope, &mut stmts) {}
    Program { inputs, body: Body { stmts, results: Vec::new() } }
}

fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl Maker<'_> {
    fn push(&mut self, shape: &[usize], owner: usize) {
        self.vars.push(Info { shape: shape.to_vec(), owner, overlaps: false, dense: true, detached: false });
    }

    fn shape(&self, v: Var) -> &[usize] {
        &self.vars[v].shape
    }

    /// A variable, one of the newest more often.
    fn any(&mut self) -> Var {
        let n = self.vars.len();
        let k = if self.rng.bernoulli(0.5) { n.min(4) } else { n };
        n - 1 - self.rng.below(k)
    }

    fn find(&mut self, fits: impl Fn(&Info) -> bool) -> Option<Var> {
        let all: Vec<Var> = (0..self.vars.len()).filter(|&v| fits(&self.vars[v])).collect();
        if all.is_empty() { None } else { Some(*self.rng.pick(&all)) }
    }

    fn number(&mut self) -> f64 {
        (self.rng.uniform(-1.5, 1.5) * 8.0).round() / 8.0
    }

    fn statement(&mut self, scope: Scope, stmts: &mut Vec<Stmt>) {
        match self.rng.below(10) {
            0..3 => self.op(scope, stmts),
            3..6 => self.view(stmts),
            6..8 => stmts.extend(self.write(scope)),
            8 if scope.outermost => {
                let v = self.any();
                stmts.push(Stmt::Read(v));
            }
            _ => {
                if scope.depth < 4 && (scope.depth < 2 || self.rng.bernoulli(0.5)) {
                    self.call(scope, stmts);
                } else {
                    self.op(scope, stmts);
                }
            }
        }
    }

    fn emit(&mut self, scope: Scope, stmts: &mut Vec<Stmt>, op: Op, args: &[Var], shape: &[usize]) -> Var {
        stmts.push(Stmt::Op(op, args.to_vec()));
        self.push(shape, scope.frame);
        self.vars.len() - 1
    }

    fn op(&mut self, scope: Scope, stmts: &mut Vec<Stmt>) {
        let x = self.any();
        let shape = self.shape(x).to_vec();
        let rank = shape.len();
        let like = self.find(|i| i.shape == shape).expect("x is such");
        let (op, args, out) = match self.rng.below(14) {
            0 => (Op::Sin, vec![x], shape),
            1 => (Op::Tanh, vec![x], shape),
            2 => (Op::Square, vec![x], shape),
            3 => (Op::Line(self.number(), self.number()), vec![x], shape),
            4 => (Op::Add, vec![x, like], shape),
            5 => (Op::Sub, vec![like, x], shape),
            6 => (Op::Mul, vec![x, like], shape),
            7 if rank == 2 => match self.find(|i| i.shape.len() == 2 && i.shape[0] == shape[1]) {
                Some(y) => {
                    let out = vec![shape[0], self.shape(y)[1]];
                    (Op::Matmul, vec![x, y], out)
                }
                None => (Op::Sin, vec![x], shape),
            },
            8 => (Op::Sum, vec![x], vec![]),
            9 if rank > 0 => {
                let a = self.rng.below(rank);
                let mut out = shape;
                out.remove(a);
                (Op::SumAxis(a), vec![x], out)
            }
            10 => (Op::Copy, vec![x], shape),
            11 if rank > 0 => (Op::Flip(self.rng.below(rank)), vec![x], shape),
            12 if rank > 0 && numel(&shape) < 16 => {
                let a = self.rng.below(rank);
                let mut out = shape;
                out[a] *= 2;
                (Op::Concat(a), vec![x, like], out)
            }
            13 if rank == 2 => (Op::Diagonal, vec![x], vec![shape[0].min(shape[1])]),
            _ => {
                let y = self.any();
                (Op::Fit, vec![x, y], shape)
            }
        };
        self.emit(scope, stmts, op, &args, &out);
    }

    fn view(&mut self, stmts: &mut Vec<Stmt>) {
        let x = self.any();
        let info = self.vars[x].clone();
        let (shape, rank) = (info.shape.clone(), info.shape.len());
        let mut new = Info { dense: false, ..info.clone() };
        let axis = self.rng.below(rank.max(1));
        let view = match self.rng.below(9) {
            0 if rank >= 2 => {
                new.shape.swap(rank - 1, rank - 2);
                View::T
            }
            1 if rank >= 2 => {
                let p = self.rng.permutation(rank);
                new.shape = p.iter().map(|&a| shape[a]).collect();
                View::Permute(p)
            }
            2 if rank >= 1 && shape[axis] > 1 => {
                let n = shape[axis];
                let start = self.rng.below(n);
                let end = start + 1 + self.rng.below(n - start);
                let step = 1 + self.rng.below(2);
                new.shape[axis] = (end - start).div_ceil(step);
                View::Slice { axis, start, end, step }
            }
            3 if rank >= 1 => {
                new.shape.remove(axis);
                View::Index { axis, at: self.rng.below(shape[axis]) }
            }
            4 if info.dense => {
                new.dense = true;
                new.shape = match self.rng.below(3) {
                    0 => vec![numel(&shape)],
                    1 if numel(&shape).is_multiple_of(2) => vec![2, numel(&shape) / 2],
                    _ => vec![numel(&shape), 1],
                };
                View::Reshape(new.shape.clone())
            }
            5 => {
                let a = self.rng.below(rank + 1);
                new.shape.insert(a, 1);
                View::Unsqueeze(a)
            }
            6 if rank >= 1 && shape[axis] == 1 => {
                new.shape.remove(axis);
                View::Squeeze(axis)
            }
            7 if numel(&shape) <= 6 => {
                match (0..rank).find(|&a| shape[a] == 1) {
                    Some(a) => new.shape[a] = 2,
                    None => new.shape.insert(0, 2),
                }
                new.overlaps = true;
                View::Expand(new.shape.clone())
            }
            _ => {
                (new.dense, new.detached) = (info.dense, true);
                View::Detach
            }
        };
        stmts.push(Stmt::View(view, x));
        self.vars.push(new);
    }

    fn write(&mut self, scope: Scope) -> Option<Stmt> {
        let mine: Vec<Var> = (0..self.vars.len())
            .filter(|&v| {
                let i = &self.vars[v];
                i.owner == scope.frame && !i.overlaps
            })
            .collect();
        if mine.is_empty() {
            return None;
        }
        let to = *self.rng.pick(&mine);
        let shape = self.shape(to).to_vec();
        let recorded = self.rng.bernoulli(0.75) && !self.vars[to].detached;
        let like = self.find(|i| i.shape == shape);
        let (write, from) = match self.rng.below(6) {
            0 => (Write::Add, like),
            1 => (Write::Mul, like),
            2 => (Write::Copy, like),
            3 => (Write::Line(self.number()), None),
            4 => (Write::Fill(self.number()), None),
            _ => (Write::Tanh, None),
        };
        Some(Stmt::Write { write, to, from, recorded })
    }

    /// A body of a function of arguments with these shapes, that gives results of the shapes asked for.
    fn body(&mut self, scope: Scope, args: &[Vec<usize>], results: &[Vec<usize>]) -> Body {
        let outside = self.vars.len();
        let owner = if scope.fenced { usize::MAX } else { scope.frame };
        args.iter().for_each(|s| self.push(s, owner));
        let mut stmts = Vec::new();
        for _ in 0..1 + self.rng.below(2 + self.size / 2) {
            self.statement(scope, &mut stmts);
        }
        let results = results.iter().map(|s| self.result(scope, outside, s, &mut stmts)).collect();
        self.vars.truncate(outside);
        Body { stmts, results }
    }

    /// A fresh variable of a shape that depends on several.
    fn result(&mut self, scope: Scope, outside: usize, shape: &[usize], stmts: &mut Vec<Stmt>) -> Var {
        let inside = self.vars.len() - outside;
        let mut parts = vec![self.any()];
        for _ in 0..2 {
            parts.push(outside + self.rng.below(inside));
        }
        let blend = self.emit(scope, stmts, Op::Blend, &parts, &[]);
        if shape.is_empty() {
            return blend;
        }
        match (outside..self.vars.len()).rev().find(|&v| self.vars[v].shape == shape) {
            Some(v) => self.emit(scope, stmts, Op::Fit, &[v, blend], shape),
            None => match self.find(|i| i.shape == shape) {
                Some(v) => self.emit(scope, stmts, Op::Fit, &[v, blend], shape),
                None => {
                    stmts.push(Stmt::View(View::Expand(shape.to_vec()), blend));
                    self.push(shape, scope.frame);
                    let wide = self.vars.len() - 1;
                    self.emit(scope, stmts, Op::Tanh, &[wide], shape)
                }
            },
        }
    }

    /// A call of a transform, unless there is nothing that it could be called on.
    fn call(&mut self, scope: Scope, stmts: &mut Vec<Stmt>) -> bool {
        let kind = self.rng.below(14);
        let mut args: Vec<Var> = (0..1 + self.rng.below(2)).map(|_| self.any()).collect();
        let shapes =
            |m: &Self, args: &[Var]| -> Vec<Vec<usize>> { args.iter().map(|&v| m.shape(v).to_vec()).collect() };
        let elements: usize = args.iter().map(|&v| numel(self.shape(v))).sum();
        self.frames += 1;
        let mut inner = Scope { frame: self.frames, fenced: false, depth: scope.depth + 1, outermost: false, ..scope };
        let out = self.rng.pick(&SHAPES).to_vec();
        let scalar: Vec<Vec<usize>> = vec![vec![]];
        let arg_shapes = shapes(self, &args);
        let mut bodies = Vec::new();
        let mut pushed: Vec<Vec<usize>> = Vec::new();
        let kind = match kind {
            0 | 1 => {
                bodies.push(self.body(inner, &arg_shapes, std::slice::from_ref(&out)));
                pushed.push(out.clone());
                let then = if self.rng.bernoulli(0.5) { self.write(scope) } else { None };
                if then.is_some() {
                    pushed.push(out);
                }
                Kind::Jit { then }
            }
            2 | 3 => {
                let v = args[0];
                if self.shape(v).is_empty() {
                    return false;
                }
                let a = self.rng.below(self.shape(v).len());
                let n = self.shape(v)[a];
                inner.times *= n;
                if inner.times > WORK {
                    return false;
                }
                let mut axes = vec![Some(a)];
                for &v in &args[1..] {
                    let s = self.vars[v].shape.clone();
                    axes.push((0..s.len()).find(|&a| s[a] == n).filter(|_| self.rng.bernoulli(0.7)));
                }
                let each: Vec<Vec<usize>> = arg_shapes
                    .iter()
                    .zip(&axes)
                    .map(|(s, a)| {
                        let mut s = s.clone();
                        a.map(|a| s.remove(a));
                        s
                    })
                    .collect();
                bodies.push(self.body(inner, &each, std::slice::from_ref(&out)));
                let place = self.rng.below(out.len() + 1);
                let mut wide = out;
                wide.insert(place, n);
                pushed.push(wide);
                Kind::Vmap { axes, out: place }
            }
            4..7 => {
                inner.times *= elements + 1;
                inner.reversed = true;
                if inner.times > WORK || elements == 0 {
                    return false;
                }
                match kind {
                    6 => {
                        bodies.push(self.body(inner, &arg_shapes, &[out]));
                        pushed = arg_shapes;
                        Kind::Vjp
                    }
                    5 => {
                        bodies.push(self.body(inner, &arg_shapes, &scalar));
                        pushed.push(vec![]);
                        pushed.extend(arg_shapes);
                        Kind::ValueAndGrad
                    }
                    _ => {
                        bodies.push(self.body(inner, &arg_shapes, &scalar));
                        pushed = arg_shapes;
                        Kind::Grad
                    }
                }
            }
            7 => {
                // A loop of unknown length has no linear part.
                let linear = self.rng.bernoulli(0.3);
                inner.times *= 2;
                inner.reversed |= linear;
                bodies.push(self.body(inner, &arg_shapes, std::slice::from_ref(&out)));
                pushed = vec![out.clone(), out];
                if linear { Kind::Linearize } else { Kind::Jvp }
            }
            8 | 9 => {
                let Some(xs) = self.find(|i| !i.shape.is_empty()) else { return false };
                let carry = args[0];
                args = vec![carry, xs];
                let n = self.shape(xs)[0];
                inner.times *= n;
                if inner.times > WORK {
                    return false;
                }
                let (c, x) = (self.shape(carry).to_vec(), self.shape(xs)[1..].to_vec());
                let mut ys = out.clone();
                ys.insert(0, n);
                if kind == 8 {
                    bodies.push(self.body(inner, &[c.clone(), x], &[c.clone(), out]));
                    pushed = vec![c, ys];
                    Kind::Scan { reverse: self.rng.bernoulli(0.3) }
                } else {
                    args = vec![xs];
                    bodies.push(self.body(inner, &[x], &[out]));
                    pushed = vec![ys];
                    Kind::Map
                }
            }
            10 => {
                let choice = self.any();
                bodies.push(self.body(inner, &arg_shapes, std::slice::from_ref(&out)));
                bodies.push(self.body(inner, &arg_shapes, std::slice::from_ref(&out)));
                pushed.push(out);
                Kind::Cond(choice)
            }
            11 => {
                if scope.reversed {
                    return false;
                }
                args.truncate(1);
                let s = self.shape(args[0]).to_vec();
                let n = self.rng.below(4);
                inner.times *= n.max(1);
                bodies.push(self.body(inner, std::slice::from_ref(&s), std::slice::from_ref(&s)));
                pushed.push(s);
                let read = self.any();
                Kind::While(n, read)
            }
            12 => {
                // A checkpointed body of the engine may not write to its arguments.
                let engines = self.rng.bernoulli(0.5);
                if engines {
                    inner.fenced = true;
                }
                bodies.push(self.body(inner, &arg_shapes, std::slice::from_ref(&out)));
                pushed.push(out);
                if engines { Kind::EngineCheckpoint } else { Kind::Checkpoint }
            }
            _ => {
                // A region is part of the function around it: it writes where that may write, to its arguments too.
                inner = Scope { depth: scope.depth + 1, outermost: false, ..scope };
                let outside = self.vars.len();
                for &v in &args {
                    let info = self.vars[v].clone();
                    self.vars.push(info);
                }
                let mut stmts = Vec::new();
                for _ in 0..1 + self.rng.below(2 + self.size / 2) {
                    self.statement(inner, &mut stmts);
                }
                let result = self.result(inner, outside, &out, &mut stmts);
                self.vars.truncate(outside);
                bodies.push(Body { stmts, results: vec![result] });
                pushed.push(out);
                Kind::Compile
            }
        };
        let placed = if let Kind::Vmap { out, .. } = kind { out } else { 0 };
        stmts.push(Stmt::Call(Box::new(Call { kind, bodies, args })));
        pushed.iter().for_each(|s| self.push(s, scope.frame));
        if placed > 0 {
            self.vars.last_mut().expect("it was pushed").dense = false;
        }
        true
    }
}

impl Body {
    fn show(&self, indent: usize, first: Var, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pad = "  ".repeat(indent);
        let mut next = first;
        for s in &self.stmts {
            match s {
                Stmt::Call(c) => {
                    let pushed = c.pushed();
                    writeln!(f, "{pad}{next}..{} = {:?} of {:?}", next + pushed, c.kind, c.args)?;
                    for b in &c.bodies {
                        writeln!(f, "{pad}  {{")?;
                        b.show(indent + 2, next + c.arity(), f)?;
                        writeln!(f, "{pad}  }}")?;
                    }
                    next += pushed;
                }
                Stmt::Op(..) | Stmt::View(..) => {
                    writeln!(f, "{pad}{next} = {s:?}")?;
                    next += 1;
                }
                s => writeln!(f, "{pad}{s:?}")?,
            }
        }
        writeln!(f, "{pad}give {:?}", self.results)
    }
}

impl Call {
    /// Arguments that the body sees.
    fn arity(&self) -> usize {
        self.args.len()
    }

    /// Variables that it makes.
    fn pushed(&self) -> usize {
        match &self.kind {
            Kind::Jit { then: Some(_) } | Kind::Jvp | Kind::Linearize | Kind::Scan { .. } => 2,
            Kind::Grad | Kind::Vjp => self.args.len(),
            Kind::ValueAndGrad => 1 + self.args.len(),
            _ => 1,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "variables {:?}", self.inputs)?;
        self.body.show(0, self.inputs.len(), f)
    }
}
