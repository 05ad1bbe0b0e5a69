//! What a program means: loops over elements that carry their own derivatives.
//!
//! A tensor is a list of places in a shared memory, so every kind of view is what it says. A transform is a loop: `vmap` over
//! the batch, `grad` over the elements of the arguments with one of them perturbed. Nothing of the engine is used.

use super::program::{Body, Call, Kind, Op, Program, Stmt, View, Write};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A number, or a number with a derivative along the perturbation `tag`. Inner perturbations have larger tags.
#[derive(Clone)]
enum Num {
    F(f64),
    D(Rc<(u32, Num, Num)>),
}

use Num::{D, F};

fn dual(tag: u32, x: Num, dx: Num) -> Num {
    match dx {
        F(0.0) => x,
        _ => D(Rc::new((tag, x, dx))),
    }
}

impl Num {
    fn tag(&self) -> Option<u32> {
        match self {
            F(_) => None,
            D(d) => Some(d.0),
        }
    }

    /// Value and derivative with respect to a tag that is not smaller than its own.
    fn parts(&self, tag: u32) -> (Num, Num) {
        match self {
            D(d) if d.0 == tag => (d.1.clone(), d.2.clone()),
            x => (x.clone(), F(0.0)),
        }
    }

    fn value(&self) -> f64 {
        match self {
            F(x) => *x,
            D(d) => d.1.value(),
        }
    }

    fn still(&self) -> Num {
        F(self.value())
    }

    fn add(&self, y: &Num) -> Num {
        match (self.tag().max(y.tag()), self, y) {
            (None, F(x), F(y)) => F(x + y),
            (tag, ..) => {
                let tag = tag.expect("one of them has a derivative");
                let ((x, dx), (y, dy)) = (self.parts(tag), y.parts(tag));
                dual(tag, x.add(&y), dx.add(&dy))
            }
        }
    }

    fn mul(&self, y: &Num) -> Num {
        match (self.tag().max(y.tag()), self, y) {
            (None, F(x), F(y)) => F(x * y),
            (tag, ..) => {
                let tag = tag.expect("one of them has a derivative");
                let ((x, dx), (y, dy)) = (self.parts(tag), y.parts(tag));
                dual(tag, x.mul(&y), x.mul(&dy).add(&dx.mul(&y)))
            }
        }
    }

    fn sub(&self, y: &Num) -> Num {
        self.add(&y.mul(&F(-1.0)))
    }

    fn sin(&self) -> Num {
        match self {
            F(x) => F(x.sin()),
            D(d) => dual(d.0, d.1.sin(), d.1.cos().mul(&d.2)),
        }
    }

    fn cos(&self) -> Num {
        match self {
            F(x) => F(x.cos()),
            D(d) => dual(d.0, d.1.cos(), d.1.sin().mul(&F(-1.0)).mul(&d.2)),
        }
    }

    fn tanh(&self) -> Num {
        match self {
            F(x) => F(x.tanh()),
            D(d) => {
                let y = d.1.tanh();
                let slope = F(1.0).sub(&y.mul(&y));
                dual(d.0, y, slope.mul(&d.2))
            }
        }
    }
}

/// Places in memory, in the order of the elements.
#[derive(Clone)]
struct Array {
    memory: Rc<RefCell<Vec<Num>>>,
    at: Vec<usize>,
    shape: Vec<usize>,
    detached: bool,
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        s[i - 1] = s[i] * shape[i];
    }
    s
}

/// All indices of a shape, in order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let s = strides(shape);
    (0..shape.iter().product()).map(|i| s.iter().zip(shape).map(|(s, n)| i / s % n).collect()).collect()
}

impl Array {
    fn new(shape: &[usize], data: Vec<Num>) -> Array {
        let at = (0..data.len()).collect();
        Array { memory: Rc::new(RefCell::new(data)), at, shape: shape.to_vec(), detached: false }
    }

    fn get(&self) -> Vec<Num> {
        let m = self.memory.borrow();
        self.at.iter().map(|&i| if self.detached { m[i].still() } else { m[i].clone() }).collect()
    }

    fn copy(&self) -> Array {
        Array::new(&self.shape, self.get())
    }

    /// The same places under other indices: the element at an index of the new shape is the one at `f` of it.
    fn viewed(&self, shape: &[usize], f: impl Fn(&[usize]) -> Vec<usize>) -> Array {
        let s = strides(&self.shape);
        let place = |i: Vec<usize>| self.at[f(&i).iter().zip(&s).map(|(i, s)| i * s).sum::<usize>()];
        let at = indices(shape).into_iter().map(place).collect();
        Array { at, shape: shape.to_vec(), ..self.clone() }
    }

    fn index(&self, axis: usize, k: usize) -> Array {
        let mut shape = self.shape.clone();
        shape.remove(axis);
        self.viewed(&shape, |i| {
            let mut i = i.to_vec();
            i.insert(axis, k);
            i
        })
    }

    fn map(&self, f: impl Fn(&Num) -> Num) -> Array {
        Array::new(&self.shape, self.get().iter().map(f).collect())
    }

    fn zip(&self, y: &Array, f: impl Fn(&Num, &Num) -> Num) -> Array {
        Array::new(&self.shape, self.get().iter().zip(&y.get()).map(|(x, y)| f(x, y)).collect())
    }

    fn sum(&self) -> Num {
        self.get().iter().fold(F(0.0), |s, x| s.add(x))
    }

    fn mean(&self) -> Num {
        self.sum().mul(&F(1.0 / self.at.len() as f64))
    }
}

fn stack(parts: &[Array], axis: usize) -> Array {
    let mut shape = parts[0].shape.clone();
    shape.insert(axis, parts.len());
    let data: Vec<Vec<Num>> = parts.iter().map(Array::get).collect();
    let s = strides(&parts[0].shape);
    let pick = |mut i: Vec<usize>| {
        let k = i.remove(axis);
        data[k][i.iter().zip(&s).map(|(i, s)| i * s).sum::<usize>()].clone()
    };
    Array::new(&shape, indices(&shape).into_iter().map(pick).collect())
}

#[derive(Default)]
struct Run {
    tags: Cell<u32>,
    reads: RefCell<Vec<Vec<f64>>>,
}

/// What was read on the way, and all variables of the outermost body at the end.
pub(crate) fn run(p: &Program, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let run = Run::default();
    let arrays = p.inputs.iter().zip(inputs).map(|(s, x)| Array::new(s, x.iter().map(|x| F(*x)).collect()));
    let mut env: Vec<Array> = arrays.collect();
    run.body(&p.body, &mut env);
    let mut all = run.reads.into_inner();
    all.extend(env.iter().map(|a| a.get().iter().map(Num::value).collect::<Vec<f64>>()));
    all
}

impl Run {
    fn body(&self, body: &Body, env: &mut Vec<Array>) -> Vec<Array> {
        for s in &body.stmts {
            self.statement(s, env);
        }
        body.results.iter().map(|&v| env[v].clone()).collect()
    }

    fn statement(&self, s: &Stmt, env: &mut Vec<Array>) {
        match s {
            Stmt::Op(op, args) => {
                let args: Vec<&Array> = args.iter().map(|&v| &env[v]).collect();
                let y = op_of(op, &args);
                env.push(y);
            }
            Stmt::View(v, x) => {
                let y = view_of(v, &env[*x]);
                env.push(y);
            }
            Stmt::Write { write, to, from, recorded } => {
                let to = &env[*to];
                let from = from.map_or(Vec::new(), |v| env[v].get());
                let new: Vec<Num> = (to.get().iter().enumerate())
                    .map(|(i, x)| match write {
                        Write::Add => x.add(&from[i]),
                        Write::Mul => x.mul(&from[i]),
                        Write::Copy => from[i].clone(),
                        Write::Line(k) => x.mul(&F(*k)),
                        Write::Fill(k) => F(*k),
                        Write::Tanh => x.tanh(),
                    })
                    .collect();
                let mut m = to.memory.borrow_mut();
                for (&i, x) in to.at.iter().zip(new) {
                    // A change that is not recorded leaves derivatives as they were.
                    let kept = m[i].sub(&m[i].still());
                    m[i] = if *recorded && !to.detached { x } else { x.still().add(&kept) };
                }
            }
            Stmt::Call(c) => {
                let outs = self.call(c, env);
                env.extend(outs);
            }
            Stmt::Read(v) => {
                let x = env[*v].get().iter().map(Num::value).collect();
                self.reads.borrow_mut().push(x);
            }
        }
    }

    /// The function on copies of its arguments; results are its own too.
    fn pure(&self, body: &Body, env: &[Array], args: &[Array]) -> Vec<Array> {
        let mut env = env.to_vec();
        env.extend(args.iter().map(Array::copy));
        self.body(body, &mut env).iter().map(Array::copy).collect()
    }

    /// The function with tangents; gives results and their tangents.
    fn pushed(&self, body: &Body, env: &[Array], args: &[Array], tangents: &[Vec<Num>]) -> (Vec<Array>, Vec<Array>) {
        let tag = self.tags.get() + 1;
        self.tags.set(tag);
        let lift = |(a, d): (&Array, &Vec<Num>)| {
            Array::new(&a.shape, a.get().iter().zip(d).map(|(x, d)| dual(tag, x.clone(), d.clone())).collect())
        };
        let lifted: Vec<Array> = args.iter().zip(tangents).map(lift).collect();
        let outs = self.pure(body, env, &lifted);
        let part = |tangent: bool| {
            let of = |x: &Num| if tangent { x.parts(tag).1 } else { x.parts(tag).0 };
            outs.iter().map(|y| y.map(of)).collect()
        };
        (part(false), part(true))
    }

    /// Values, and for each element of the arguments the tangents of the results.
    fn pulled(
        &self,
        body: &Body,
        env: &[Array],
        args: &[Array],
        ct: impl Fn(&[Array]) -> Vec<Array>,
    ) -> (Vec<Array>, Vec<Array>) {
        let values = self.pure(body, env, args);
        let cts = ct(&values);
        let mut grads = Vec::new();
        for (k, a) in args.iter().enumerate() {
            let one = |j: usize| {
                let unit = |i: usize, n: usize| -> Vec<Num> {
                    (0..n).map(|e| F(if i == k && e == j { 1.0 } else { 0.0 })).collect()
                };
                let tangents: Vec<Vec<Num>> = args.iter().enumerate().map(|(i, a)| unit(i, a.at.len())).collect();
                let (_, d) = self.pushed(body, env, args, &tangents);
                d.iter().zip(&cts).map(|(d, c)| d.zip(c, Num::mul).sum()).fold(F(0.0), |s, x| s.add(&x))
            };
            grads.push(Array::new(&a.shape, (0..a.at.len()).map(one).collect()));
        }
        (values, grads)
    }

    fn call(&self, c: &Call, env: &mut Vec<Array>) -> Vec<Array> {
        let args: Vec<Array> = c.args.iter().map(|&v| env[v].clone()).collect();
        let body = &c.bodies[0];
        match &c.kind {
            Kind::Jit { then } => {
                let mut outs = self.pure(body, env, &args);
                if let Some(s) = then {
                    self.statement(s, env);
                    outs.extend(self.pure(body, env, &args));
                }
                outs
            }
            Kind::Checkpoint | Kind::EngineCheckpoint => self.pure(body, env, &args),
            Kind::Compile => {
                let mut env = env.clone();
                env.extend(args);
                self.body(body, &mut env)
            }
            Kind::Vmap { axes, out } => {
                let n = args[0].shape[axes[0].expect("the first is mapped")];
                let each = |i: usize| {
                    let pick = |(a, axis): (&Array, &Option<usize>)| axis.map_or(a.clone(), |k| a.index(k, i));
                    let args: Vec<Array> = args.iter().zip(axes).map(pick).collect();
                    self.pure(body, env, &args).swap_remove(0)
                };
                vec![stack(&(0..n).map(each).collect::<Vec<_>>(), *out)]
            }
            Kind::Grad => self.pulled(body, env, &args, ones).1,
            Kind::ValueAndGrad => {
                let (mut y, g) = self.pulled(body, env, &args, ones);
                y.extend(g);
                y
            }
            // The results themselves are the cotangents.
            Kind::Vjp => self.pulled(body, env, &args, |y| y.to_vec()).1,
            // The arguments themselves are the tangents.
            Kind::Jvp | Kind::Linearize => {
                let tangents: Vec<Vec<Num>> = args.iter().map(Array::get).collect();
                let (mut y, d) = self.pushed(body, env, &args, &tangents);
                y.extend(d);
                y
            }
            Kind::Scan { reverse } => {
                let n = args[1].shape[0];
                let (mut carry, mut ys) = (args[0].copy(), Vec::new());
                for k in 0..n {
                    let i = if *reverse { n - 1 - k } else { k };
                    let mut outs = self.pure(body, env, &[carry, args[1].index(0, i)]);
                    ys.push(outs.swap_remove(1));
                    carry = outs.swap_remove(0);
                }
                if *reverse {
                    ys.reverse();
                }
                vec![carry, stack(&ys, 0)]
            }
            Kind::Map => {
                let n = args[0].shape[0];
                let ys: Vec<Array> =
                    (0..n).map(|i| self.pure(body, env, &[args[0].index(0, i)]).swap_remove(0)).collect();
                vec![stack(&ys, 0)]
            }
            Kind::Cond(v) => {
                let yes = env[*v].sum().value() > 0.0;
                self.pure(&c.bodies[usize::from(!yes)], env, &args)
            }
            Kind::While(n, _) => {
                let mut carry = args[0].copy();
                for _ in 0..*n {
                    carry = self.pure(body, env, &[carry]).swap_remove(0);
                }
                vec![carry]
            }
        }
    }
}

fn ones(y: &[Array]) -> Vec<Array> {
    y.iter().map(|y| y.map(|_| F(1.0))).collect()
}

fn op_of(op: &Op, args: &[&Array]) -> Array {
    let x = args[0];
    match op {
        Op::Sin => x.map(Num::sin),
        Op::Tanh => x.map(Num::tanh),
        Op::Square => x.map(|x| x.mul(x)),
        Op::Line(a, b) => x.map(|x| x.mul(&F(*a)).add(&F(*b))),
        Op::Add => x.zip(args[1], Num::add),
        Op::Sub => x.zip(args[1], Num::sub),
        Op::Mul => x.zip(args[1], Num::mul),
        Op::Matmul => {
            let (m, k, n) = (x.shape[0], x.shape[1], args[1].shape[1]);
            let (a, b) = (x.get(), args[1].get());
            let cell = |i: usize| (0..k).fold(F(0.0), |s, j| s.add(&a[i / n * k + j].mul(&b[j * n + i % n])));
            Array::new(&[m, n], (0..m * n).map(cell).collect())
        }
        Op::Sum => Array::new(&[], vec![x.sum()]),
        Op::SumAxis(a) => {
            let rows: Vec<Array> = (0..x.shape[*a]).map(|i| x.index(*a, i)).collect();
            rows[1..].iter().fold(rows[0].copy(), |s, r| s.zip(r, Num::add))
        }
        Op::Copy => x.copy(),
        Op::Flip(a) => x
            .viewed(&x.shape, |i| {
                let mut i = i.to_vec();
                i[*a] = x.shape[*a] - 1 - i[*a];
                i
            })
            .copy(),
        Op::Concat(a) => {
            let parts: Vec<Array> = args.iter().flat_map(|x| (0..x.shape[*a]).map(|i| x.index(*a, i))).collect();
            stack(&parts, *a)
        }
        Op::Diagonal => x.viewed(&[x.shape[0].min(x.shape[1])], |i| vec![i[0], i[0]]).copy(),
        Op::Fit => {
            let mean = args[1].mean();
            x.map(|x| x.mul(&F(0.5)).add(&mean))
        }
        Op::Blend => {
            let term = |(i, x): (usize, &&Array)| x.mean().mul(&F(1.0 + i as f64 * 0.5));
            Array::new(&[], vec![args.iter().enumerate().map(term).fold(F(0.0), |s, x| s.add(&x))])
        }
    }
}

fn view_of(view: &View, x: &Array) -> Array {
    let rank = x.shape.len();
    match view {
        View::T => {
            let mut p: Vec<usize> = (0..rank).collect();
            p.swap(rank - 1, rank - 2);
            view_of(&View::Permute(p), x)
        }
        View::Permute(p) => {
            let shape: Vec<usize> = p.iter().map(|&a| x.shape[a]).collect();
            x.viewed(&shape, |i| {
                let mut j = vec![0; rank];
                p.iter().zip(i).for_each(|(&a, &i)| j[a] = i);
                j
            })
        }
        View::Slice { axis, start, end, step } => {
            let mut shape = x.shape.clone();
            shape[*axis] = (end - start).div_ceil(*step);
            x.viewed(&shape, |i| {
                let mut i = i.to_vec();
                i[*axis] = start + i[*axis] * step;
                i
            })
        }
        View::Index { axis, at } => x.index(*axis, *at),
        View::Reshape(shape) => Array { shape: shape.clone(), ..x.clone() },
        View::Unsqueeze(a) => {
            let mut shape = x.shape.clone();
            shape.insert(*a, 1);
            Array { shape, ..x.clone() }
        }
        View::Squeeze(a) => {
            let mut shape = x.shape.clone();
            shape.remove(*a);
            Array { shape, ..x.clone() }
        }
        View::Expand(shape) => {
            let new = shape.len() - rank;
            x.viewed(shape, |i| i[new..].iter().zip(&x.shape).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect())
        }
        View::Detach => Array { detached: true, ..x.clone() },
    }
}
