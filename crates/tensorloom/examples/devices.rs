//! The same program on two devices: `cargo run --example devices -- cuda` compares a GPU with the CPU.
//!
//! Without a name it compares the CPU with a second CPU of one thread.

use tensorloom::{Config, Result, Tensor, configure, devices, grad, jit, lax, no_grad, tensor, vmap, with_device};

/// Lazy ops and views, writes in place, backward, transforms, a loop: what each gives, as numbers.
fn program() -> Result<Vec<(&'static str, Vec<f32>)>> {
    let values: Vec<f32> = (0..24).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = tensor(&values, &[4, 6]);
    let lazy = (x.t().matmul(&x) * 0.5 + 1.0).softmax();

    let state = tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    state.t().mul_(&tensor(&[1.0, 10.0], &[2]));

    let w = tensor(&values[..12], &[6, 2]).requires_grad_();
    let mut losses = Vec::new();
    for _ in 0..3 {
        let loss = (x.matmul(&w).tanh() - 0.3).square().mean();
        loss.backward()?;
        losses.push(loss.item::<f32>()?);
        no_grad(|| w.sub_(&(0.5 * w.grad().expect("backward gave one"))));
        w.zero_grad();
    }

    let f = |v: Tensor| (v.sin() * &v).sum();
    let slopes = jit(vmap(grad(f))).call(x.clone());
    let (last, all) = lax::scan(
        |(c, row): (Tensor, Tensor)| {
            let next = (&c * 0.9 + &row).tanh();
            (next.clone(), next)
        },
        x.sum_axes(&[0], false) * 0.0,
        x.clone(),
    );
    Ok(vec![
        ("lazy ops and views", lazy.to_vec()?),
        ("a write through a view", state.to_vec()?),
        ("losses", losses),
        ("weights", w.detach().to_vec()?),
        ("jit(vmap(grad))", slopes.to_vec()?),
        ("scan", [last.to_vec::<f32>()?, all.to_vec::<f32>()?].concat()),
    ])
}

fn main() -> Result<()> {
    let other = std::env::args().nth(1).unwrap_or_else(|| "cpu:1".into());
    configure(&Config { devices: vec!["cpu".into(), other], ..Config::default() })?;
    for d in devices() {
        println!("device {}: {}", d.id, d.name);
    }
    let (here, there) = (with_device(0, program)?, with_device(1, program)?);
    for ((name, a), (_, b)) in here.iter().zip(&there) {
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs() / (1.0 + a.abs())).fold(0.0, f32::max);
        println!("{name}: {} numbers, largest difference {worst:.1e}", a.len());
        assert!(a.len() == b.len() && worst < 1e-5, "{name}: {a:?} and {b:?}");
    }
    Ok(())
}
