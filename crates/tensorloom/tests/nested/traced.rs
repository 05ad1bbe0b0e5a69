//! The same program by the transforms themselves.

use super::program::{Body, Call, Kind, Op, Program, Stmt, View, Write};
use tensorloom::lax::{self, Scan};
use tensorloom::{
    Axes, Result, Tensor, checkpoint, compile, engine, grad, jit, jvp, linearize, no_grad, np, tensor, tensor_of,
    value_and_grad, vjp, vmap,
};

/// What was read on the way, and all variables of the outermost body at the end.
pub(crate) fn run(p: &Program, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    let mut env: Vec<Tensor> = p.inputs.iter().zip(inputs).map(|(s, x)| tensor(x, s)).collect();
    let mut reads = Vec::new();
    for s in &p.body.stmts {
        match s {
            Stmt::Read(v) => reads.push(env[*v].to_vec::<f64>()?),
            s => statement(s, &mut env)?,
        }
    }
    for t in &env {
        reads.push(t.to_vec()?);
    }
    Ok(reads)
}

fn body(b: &Body, env: &[Tensor], args: Vec<Tensor>) -> Vec<Tensor> {
    let mut env = env.to_vec();
    env.extend(args);
    for s in &b.stmts {
        if let Err(e) = statement(s, &mut env) {
            let bad = Tensor::from_error(e);
            return b.results.iter().map(|_| bad.clone()).collect();
        }
    }
    b.results.iter().map(|&v| env[v].clone()).collect()
}

fn statement(s: &Stmt, env: &mut Vec<Tensor>) -> Result<()> {
    match s {
        Stmt::Op(op, args) => {
            let args: Vec<&Tensor> = args.iter().map(|&v| &env[v]).collect();
            let y = op_of(op, &args);
            env.push(y);
        }
        Stmt::View(v, x) => {
            let y = view_of(v, &env[*x]);
            env.push(y);
        }
        Stmt::Write { write, to, from, recorded } => {
            let (to, from) = (&env[*to], from.map_or(&env[*to], |v| &env[v]));
            let write = || match write {
                Write::Add => to.add_(from),
                Write::Mul => to.mul_(from),
                Write::Copy => to.copy_(from),
                Write::Line(k) => to.mul_scalar_(*k),
                Write::Fill(k) => to.fill_(*k),
                Write::Tanh => to.tanh_(),
            };
            if *recorded {
                write()
            } else {
                no_grad(write)
            };
        }
        Stmt::Call(c) => {
            let outs = call(c, env)?;
            env.extend(outs);
        }
        Stmt::Read(_) => {}
    }
    Ok(())
}

fn call(c: &Call, env: &mut Vec<Tensor>) -> Result<Vec<Tensor>> {
    let args: Vec<Tensor> = c.args.iter().map(|&v| env[v].clone()).collect();
    let (b, seen) = (&c.bodies[0], env.clone());
    let f = |args: Vec<Tensor>| body(b, &seen, args);
    let first = |args: Vec<Tensor>| body(b, &seen, args).swap_remove(0);
    Ok(match &c.kind {
        Kind::Jit { then } => {
            let f = jit(f);
            let mut outs = f.call(args.clone());
            if let Some(s) = then {
                statement(s, env)?;
                outs.extend(f.call(args));
            }
            outs
        }
        Kind::Vmap { axes, out } => {
            let axes: Vec<Option<isize>> = axes.iter().map(|a| a.map(|a| a as isize)).collect();
            // A vector is one item, so that axes are given leaf by leaf.
            vmap(f).in_axes(Axes::from(&axes[..])).out_axes(*out as isize).call(args)
        }
        Kind::Grad => grad(first).call(args),
        Kind::ValueAndGrad => {
            let (y, g) = value_and_grad(first).call(args);
            [vec![y], g].concat()
        }
        Kind::Jvp => {
            let (y, d) = jvp(f, args.clone(), args);
            [y, d].concat()
        }
        Kind::Linearize => {
            let (y, push) = linearize(f, args.clone());
            [y, push.call(args)].concat()
        }
        Kind::Vjp => {
            let (y, back) = vjp(f, args);
            back.call(y)
        }
        Kind::Scan { reverse } => {
            let step = |(c, x): (Tensor, Tensor)| {
                let mut outs = f(vec![c, x]);
                let y = outs.swap_remove(1);
                (outs.swap_remove(0), y)
            };
            let scan = if *reverse { Scan::new().reverse() } else { Scan::new() };
            let (c, y) = scan.run(step, args[0].clone(), args[1].clone());
            vec![c, y]
        }
        Kind::Map => vec![lax::map(|x: Tensor| first(vec![x]), args[0].clone())],
        Kind::Cond(v) => {
            let yes = env[*v].sum().gt(&tensor_of(&[0.0f64], &[]));
            let other = |args: Vec<Tensor>| body(&c.bodies[1], &seen, args);
            lax::cond(&yes, f, other, args)
        }
        Kind::While(n, v) => {
            let read = &env[*v];
            let test = |(i, _): (Tensor, Tensor)| (i + read.sum() * 0.0).lt(&tensor_of(&[*n as f64], &[]));
            let step = |(i, x): (Tensor, Tensor)| (i + 1.0, first(vec![x]));
            vec![lax::while_loop(test, step, (tensor_of(&[0.0f64], &[]), args[0].clone())).1]
        }
        Kind::Checkpoint => checkpoint(f).call(args),
        Kind::EngineCheckpoint => engine().checkpoint(&args, f)?,
        Kind::Compile => compile(f).call(args)?,
    })
}

fn op_of(op: &Op, args: &[&Tensor]) -> Tensor {
    let x = args[0];
    match op {
        Op::Sin => x.sin(),
        Op::Tanh => x.tanh(),
        Op::Square => x.square(),
        Op::Line(a, b) => x * *a + *b,
        Op::Add => x + args[1],
        Op::Sub => x - args[1],
        Op::Mul => x * args[1],
        Op::Matmul => x.matmul(args[1]),
        Op::Sum => x.sum(),
        Op::SumAxis(a) => x.sum_axes(&[*a as isize], false),
        Op::Copy => x.copy(),
        Op::Flip(a) => x.flip(&[*a as isize]),
        Op::Concat(a) => Tensor::concat(&[x, args[1]], *a as isize),
        Op::Diagonal => np::diagonal(x, 0, 0, 1),
        Op::Fit => x * 0.5 + args[1].mean(),
        Op::Blend => {
            let terms = args.iter().enumerate().map(|(i, x)| x.mean() * (1.0 + i as f64 * 0.5));
            terms.reduce(|s, x| s + x).expect("there is one at least")
        }
    }
}

fn view_of(view: &View, x: &Tensor) -> Tensor {
    let signed = |s: &[usize]| s.iter().map(|&n| n as isize).collect::<Vec<_>>();
    match view {
        View::T => x.t(),
        View::Permute(p) => x.permute(&signed(p)),
        View::Slice { axis, start, end, step } => x.slice(*axis as isize, *start as isize, *end as isize, *step),
        View::Index { axis, at } => x.index(*axis as isize, *at as isize),
        View::Reshape(s) => x.view(&signed(s)),
        View::Unsqueeze(a) => x.unsqueeze(*a as isize),
        View::Squeeze(a) => x.squeeze(*a as isize),
        View::Expand(s) => x.expand(&signed(s)),
        View::Detach => x.detach(),
    }
}
