//! Every public function of the library against JAX and NumPy, for the lines of `golden/functions/*.golden`, forward and
//! in reverse.

mod arguments;
#[rustfmt::skip]
mod calls;
mod catalog;
mod dtypes;
mod line;
mod names;
mod table_lax;
mod table_more;
mod table_np;
mod table_optim;

use ir::Literal;
use line::Line;
use tensorloom::{DType, Tensor, vjp};

/// What a function gives for a line's inputs, where a table says how it is called.
type Table = fn(&Line, &[Tensor]) -> Option<Vec<Tensor>>;

/// What a line's function gives: by the table, or by the names of its arguments.
fn call(line: &Line, x: &[Tensor], table: Table) -> Option<Vec<Tensor>> {
    table(line, x).or_else(|| calls::call(&line.name, &arguments::Arguments::new(line, x)))
}

fn bound(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-10 } else { 2e-5 }
}

/// Says how a result differs from what is expected, if it does.
fn differs(got: &Literal, want: &Literal, loose: f64) -> Option<String> {
    if got.ty() != want.ty() {
        return Some(format!("{} instead of {}", got.ty(), want.ty()));
    }
    let numbers = |l: &Literal| l.scalars().map(|s| s.to_f64()).collect::<Vec<f64>>();
    if !want.ty().dtype.is_float() {
        let (g, w) = (got.scalars().collect::<Vec<_>>(), want.scalars().collect::<Vec<_>>());
        return (g != w).then(|| format!("{:?} instead of {:?}", numbers(got), numbers(want)));
    }
    let (g, w) = (numbers(got), numbers(want));
    let scale = w.iter().filter(|x| x.is_finite()).fold(0.0f64, |a, x| a.max(x.abs()));
    let tolerance = bound(want.ty().dtype) * loose;
    let wrong = g.iter().zip(&w).position(|(&g, &w)| {
        let near = (g - w).abs() <= tolerance * w.abs().max(0.1 * scale);
        !(near || g == w || (g.is_nan() && w.is_nan()))
    });
    wrong.map(|i| format!("element {i} is {:e} instead of {:e}\n  got {g:?}\n want {w:?}", g[i], w[i]))
}

fn check(line: &Line, table: Table) -> Result<(), String> {
    let loose = line.number("loose").unwrap_or(1.0);
    let x: Vec<Tensor> = line.inputs.iter().map(line::Input::tensor).collect();
    let outs = call(line, &x, table).ok_or("its arguments are not plain: say in a table how it is called")?;
    if outs.len() != line.outs.len() {
        return Err(format!("{} results instead of {}", outs.len(), line.outs.len()));
    }
    for (i, (t, want)) in outs.iter().zip(&line.outs).enumerate() {
        let got = t.to_literal().map_err(|e| e.to_string())?;
        if let Some(text) = differs(&got, want, loose) {
            return Err(format!("result {i}: {text}"));
        }
    }
    if line.grads.is_empty() {
        return Ok(());
    }
    let (y, back) = vjp(|x: Vec<Tensor>| call(line, &x, table).expect("it was found above"), x.clone());
    let cts = y.iter().enumerate().map(|(k, t)| line::weights(t, k)).collect();
    let grads = back.call(cts);
    let wrt = grads.iter().zip(&x).filter(|(_, x)| x.dtype().is_float()).map(|(g, _)| g);
    for (i, (g, want)) in wrt.zip(&line.grads).enumerate() {
        let got = g.to_literal().map_err(|e| format!("gradient {i}: {e}"))?;
        // A gradient sums what the result rounds.
        if let Some(text) = differs(&got, want, 4.0 * loose) {
            return Err(format!("gradient {i}: {text}"));
        }
    }
    Ok(())
}

fn run(file: &str, table: Table) {
    let text = line::read(file);
    let mut wrong = Vec::new();
    let mut lines = 0;
    for text in text.lines() {
        let line = line::parse(text);
        lines += 1;
        if let Err(why) = check(&line, table) {
            let head = text.split(" = ").next().unwrap_or_default();
            wrong.push(format!("{head}\n  {why}"));
        }
    }
    println!("{file}: {lines} lines");
    assert!(wrong.is_empty(), "{} of {lines} lines of {file} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn np_equals_jax() {
    run("np", table_np::call);
}

#[test]
fn nn_equals_jax() {
    run("nn", table_more::nn);
}

#[test]
fn special_equals_jax() {
    run("special", |_, _| None);
}

#[test]
fn linalg_equals_jax() {
    run("linalg", table_more::linalg);
}

#[test]
fn fft_equals_jax() {
    run("fft", table_more::fft);
}

#[test]
fn lax_equals_jax() {
    run("lax", table_lax::call);
}

#[test]
fn optim_equals_optax() {
    run("optim", table_optim::call);
}
