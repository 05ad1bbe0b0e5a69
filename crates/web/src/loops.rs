//! Transforms, loops, branches and optimisers: what takes functions of JavaScript or trees.

use crate::explain;
use crate::function::{Leaves, call, kept};
use crate::objects::{Object, find, hold};
use crate::value::{Value, fault, give, take};
use std::rc::Rc;
use tensorloom::lax::{self, Checkpoint, Scan, ScanPath};
use tensorloom::optim::{self, OptState};
use tensorloom::{DType, Index, RematPolicy, Select, Tensor};

type Done = Result<(), String>;

/// Some of the leaves, by their places.
pub(crate) struct Places(pub(crate) Vec<usize>);

impl Select<Leaves> for Places {
    type Out = Leaves;

    fn positions(&self, _: &Leaves) -> Vec<usize> {
        self.0.clone()
    }

    fn pick(&self, args: &Leaves) -> Leaves {
        Leaves(self.0.iter().map(|&i| args.0[i].clone()).collect())
    }
}

fn leaves(a: &[Value], n: usize) -> Result<Leaves, String> {
    take::<Vec<Tensor>>(a, n).map(Leaves)
}

/// A function of leaves by its number.
fn function(a: &[Value], n: usize) -> Result<impl Fn(Leaves) -> Leaves + Copy, String> {
    let id = take::<usize>(a, n)? as u32;
    Ok(move |x: Leaves| Leaves(call(id, &x.0, 1)))
}

fn give_leaves(x: Leaves, out: &mut Vec<f64>) {
    give(x.0, out);
}

fn give_handle(o: Object, out: &mut Vec<f64>) {
    out.extend([3.0, f64::from(hold(o))]);
}

pub(crate) fn special(a: &[Value], out: &mut Vec<f64>) -> Done {
    let name = take::<String>(a, 0)?;
    match name.as_str() {
        "valueAndGrad" => {
            let (f, places, args) = (function(a, 1)?, Places(take(a, 2)?), leaves(a, 3)?);
            if let Some(p) = places.0.iter().find(|p| **p >= args.0.len()) {
                return Err(format!("there is no argument {p} to differentiate for"));
            }
            let g = move |x: Leaves| {
                let mut all = f(x).0;
                if all.is_empty() {
                    // An error of its own: a gradient is of a number.
                    all.push(tensorloom::ones(0));
                }
                let value = all.remove(0);
                (value, Leaves(all))
            };
            let ((value, aux), grads) = tensorloom::value_and_grad(g).has_aux().argnums(places).call(args);
            out.extend([4.0, 3.0]);
            give(value, out);
            give_leaves(aux, out);
            give_leaves(grads, out);
        }
        "vjp" => {
            let (y, back) = tensorloom::vjp(function(a, 1)?, leaves(a, 2)?);
            out.extend([4.0, 2.0]);
            give_leaves(y, out);
            give_handle(Object::Vjp(Rc::new(back)), out);
        }
        "linearize" => {
            let (y, map) = tensorloom::linearize(function(a, 1)?, leaves(a, 2)?);
            out.extend([4.0, 2.0]);
            give_leaves(y, out);
            give_handle(Object::Linear(Rc::new(map)), out);
        }
        "mapped" => {
            let Some(Value::Handle(h)) = a.get(1) else { return Err("expected a handle".into()) };
            let x = leaves(a, 2)?;
            give_leaves(
                match find(*h)? {
                    Object::Vjp(f) => f.call(x),
                    Object::Linear(f) => f.call(x),
                    _ => return Err("expected what vjp or linearize gave".into()),
                },
                out,
            );
        }
        "jvp" => {
            let (y, t) = tensorloom::jvp(function(a, 1)?, leaves(a, 2)?, leaves(a, 3)?);
            out.extend([4.0, 2.0]);
            give_leaves(y, out);
            give_leaves(t, out);
        }
        "vmap" => {
            let axes = |n: usize| -> Result<Vec<Option<isize>>, String> {
                Ok(take::<Vec<Option<i64>>>(a, n)?.into_iter().map(|x| x.map(|x| x as isize)).collect())
            };
            let (inner, outer) = (axes(3)?, axes(4)?);
            let f = tensorloom::vmap(function(a, 1)?).in_axes(&inner[..]).out_axes(&outer[..]);
            let f = match take::<Option<usize>>(a, 5)? {
                Some(n) => f.axis_size(n),
                None => f,
            };
            give_leaves(f.call(leaves(a, 2)?), out);
        }
        "jacfwd" | "jacrev" | "hessian" => {
            let (f, x) = (function(a, 1)?, take::<Tensor>(a, 2)?);
            let f = move |x: Tensor| f(Leaves(vec![x]));
            give_leaves(
                match name.as_str() {
                    "jacfwd" => tensorloom::jacfwd(f).call(x),
                    "jacrev" => tensorloom::jacrev(f).call(x),
                    _ => tensorloom::hessian(f).call(x),
                },
                out,
            );
        }
        "checkpoint" => {
            let f = tensorloom::checkpoint(function(a, 1)?).policy(RematPolicy::default());
            give_leaves(f.call(leaves(a, 2)?), out);
        }
        "customVjp" => {
            let (forward, backward) = (take::<usize>(a, 1)? as u32, take::<usize>(a, 2)? as u32);
            // Results first, then what backward needs.
            let forward = move |x: Leaves| {
                let mut all = call(forward, &x.0, 1);
                let rest = all.split_off(kept().min(all.len()));
                (Leaves(all), Leaves(rest))
            };
            let backward = move |(rest, cotangents): (Leaves, Leaves)| {
                let all: Vec<Tensor> = rest.0.into_iter().chain(cotangents.0).collect();
                Leaves(call(backward, &all, 1))
            };
            give_leaves(tensorloom::custom_vjp(forward, backward).call(leaves(a, 3)?), out);
        }
        "customJvp" => {
            let (f, rule) = (function(a, 1)?, take::<usize>(a, 2)? as u32);
            let rule = move |(x, dx): (Leaves, Leaves)| {
                let all: Vec<Tensor> = x.0.into_iter().chain(dx.0).collect();
                Leaves(call(rule, &all, 1))
            };
            give_leaves(tensorloom::custom_jvp(f, rule).call(leaves(a, 3)?), out);
        }
        "scan" => scan(a, out)?,
        "while" => {
            let (test, body) = (function(a, 1)?, function(a, 2)?);
            let test = move |c: Leaves| test(c).0.swap_remove(0);
            give_leaves(lax::while_loop(test, body, leaves(a, 3)?), out);
        }
        "fori" => {
            let id = take::<usize>(a, 3)? as u32;
            let (from, to) = (take::<i64>(a, 1)? as i32, take::<i64>(a, 2)? as i32);
            let body = move |(i, c): (Tensor, Leaves)| {
                let n = c.0.len();
                let mut all = vec![i];
                all.extend(c.0);
                Leaves(call(id, &all, n))
            };
            give_leaves(lax::fori_loop(from, to, body, leaves(a, 4)?), out);
        }
        "cond" => {
            let (yes, no) = (function(a, 2)?, function(a, 3)?);
            give_leaves(lax::cond(&take::<Tensor>(a, 1)?, yes, no, leaves(a, 4)?), out);
        }
        "switch" => switch(a, out)?,
        "map" => give_leaves(lax::map(function(a, 1)?, leaves(a, 2)?), out),
        "associativeScan" => {
            let f = function(a, 1)?;
            let both = move |(x, y): (Leaves, Leaves)| {
                let n = x.0.len();
                let mut all = x.0;
                all.extend(y.0);
                // As many as it got, whatever it gives: the loop relies on it.
                let mut got = f(Leaves(all)).0;
                got.resize_with(n, || tensorloom::ones(1).reshape(2));
                Leaves(got)
            };
            give_leaves(lax::associative_scan(both, leaves(a, 2)?, take(a, 3)?, take::<i64>(a, 4)? as isize), out);
        }
        "optimInit" => {
            let state = with_chain(a, |c| Ok(c.init(&leaves(a, 2)?)))?;
            give(state.parts, out);
        }
        "optimUpdate" => {
            let state = OptState { parts: take::<Vec<Vec<Tensor>>>(a, 3)? };
            let (u, s) = with_chain(a, |c| Ok(c.update(&leaves(a, 2)?, &state, &leaves(a, 4)?)))?;
            out.extend([4.0, 2.0]);
            give_leaves(u, out);
            give(s.parts, out);
        }
        "applyUpdates" => give_leaves(optim::apply_updates(&leaves(a, 1)?, &leaves(a, 2)?), out),
        "globalNorm" => give(optim::global_norm(&leaves(a, 1)?), out),
        "cast" => give(take::<Tensor>(a, 1)?.cast(take::<DType>(a, 2)?), out),
        "index" => {
            let picks: Vec<Index> = take::<Vec<Index>>(a, 2)?;
            give(take::<Tensor>(a, 1)?.i(&picks[..]), out);
        }
        "to" => give(take::<Tensor>(a, 1)?.to(take::<usize>(a, 2)?), out),
        "detach" => give(take::<Tensor>(a, 1)?.detach(), out),
        "force" => {
            let x = leaves(a, 1)?;
            tensorloom::block_until_ready(x).map_err(fault)?;
            out.push(0.0);
        }
        "makeGraph" => {
            let g = tensorloom::make_graph(function(a, 1)?, leaves(a, 2)?).map_err(fault)?;
            give(g.to_string(), out);
        }
        "explain" => give(explain::explain(function(a, 1)?, leaves(a, 2)?, take::<bool>(a, 3)?)?, out),
        "debug" => {
            compiler::debug::set_level_from(&take::<String>(a, 1)?);
            out.push(0.0);
        }
        other => return Err(format!("there is no `{other}`")),
    }
    Ok(())
}

fn with_chain<R>(
    a: &[Value],
    f: impl FnOnce(&optim::GradientTransformation) -> Result<R, String>,
) -> Result<R, String> {
    let Some(Value::Handle(h)) = a.get(1) else { return Err("expected an optimiser".into()) };
    match find(*h)? {
        Object::Chain(c) => match &*c.borrow() {
            Some(c) => f(c),
            None => Err("this optimiser is part of another one; use that".into()),
        },
        _ => Err("expected an optimiser".into()),
    }
}

/// Function, carry, xs, length, reverse, checkpoint, accepted paths.
fn scan(a: &[Value], out: &mut Vec<f64>) -> Done {
    let id = take::<usize>(a, 1)? as u32;
    let (init, xs) = (leaves(a, 2)?, leaves(a, 3)?);
    let mut scan = Scan::new();
    if let Some(n) = take::<Option<usize>>(a, 4)? {
        scan = scan.length(n);
    }
    if take::<bool>(a, 5)? {
        scan = scan.reverse();
    }
    scan = scan.checkpoint(match a.get(6) {
        None | Some(Value::None) => Checkpoint::Auto,
        Some(Value::Bool(true)) => Checkpoint::Sqrt,
        Some(Value::Bool(false)) => Checkpoint::All,
        Some(_) => Checkpoint::Every(take(a, 6)?),
    });
    if let Some(paths) = take::<Option<Vec<String>>>(a, 7)? {
        let paths: Vec<ScanPath> = paths.iter().map(|p| path(p)).collect::<Result<_, _>>()?;
        scan = scan.accept_path(&paths);
    }
    let n = init.0.len();
    let body = move |(c, x): (Leaves, Leaves)| {
        let mut all = c.0;
        all.extend(x.0);
        let mut all = call(id, &all, n);
        let ys = all.split_off(n.min(all.len()));
        (Leaves(all), Leaves(ys))
    };
    let (carry, ys) = scan.run(body, init, xs);
    out.extend([4.0, 2.0]);
    give_leaves(carry, out);
    give_leaves(ys, out);
    Ok(())
}

fn path(name: &str) -> Result<ScanPath, String> {
    match name {
        "compiled-loop" => Ok(ScanPath::CompiledLoop),
        "preencoded-routine" => Ok(ScanPath::Preencoded),
        "fallback" => Ok(ScanPath::Fallback),
        other => Err(format!("there is no path \"{other}\"; there are compiled-loop, preencoded-routine, fallback")),
    }
}

fn switch(a: &[Value], out: &mut Vec<f64>) -> Done {
    let (index, operands) = (take::<Tensor>(a, 1)?, leaves(a, 3)?);
    let ids = take::<Vec<usize>>(a, 2)?;
    let branches: Vec<Box<dyn Fn(Leaves) -> Leaves>> = ids
        .into_iter()
        .map(|id| Box::new(move |x: Leaves| Leaves(call(id as u32, &x.0, 1))) as Box<dyn Fn(Leaves) -> Leaves>)
        .collect();
    macro_rules! of {
        ($($n:literal)*) => {
            match branches.len() {
                $($n => {
                    let all: [&dyn Fn(Leaves) -> Leaves; $n] = std::array::from_fn(|i| &*branches[i]);
                    lax::switch(&index, all, operands)
                })*
                n => return Err(format!("{n} branches; from 1 to 8 are fine")),
            }
        };
    }
    give_leaves(of!(1 2 3 4 5 6 7 8), out);
    Ok(())
}
