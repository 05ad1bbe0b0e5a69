//! NaN checks, what is printed at each debug level, leaks with creation places, devices.

use std::sync::{Arc, Mutex, MutexGuard};
use tensorloom::*;

/// Levels and checks are those of the process, so one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn t(x: &[f64]) -> Tensor {
    tensor(x, &[x.len()])
}

#[test]
fn nan_checks_name_the_line() {
    let _one = alone();
    let here = |line: u32| format!("diagnostics.rs:{line}:");
    // Nothing is checked unless asked.
    assert!(t(&[-1.0]).log().to_vec::<f64>().unwrap()[0].is_nan());
    set_debug_nans(true);
    let line = line!() + 1;
    let e = t(&[-1.0]).log().to_vec::<f64>().unwrap_err().to_string();
    assert!(e.contains("log") && e.contains(&here(line)), "{e}");
    // The engine works on.
    assert_eq!(t(&[1.0]).log().to_vec::<f64>().unwrap(), [0.0]);
    // Inside a compiled function the op is found by replaying it.
    let line = line!() + 1;
    let f = jit(|x: Tensor| (x.square() - 2.0).sqrt().sum());
    let e = f.call(t(&[3.0, 1.0])).item::<f64>().unwrap_err().to_string();
    assert!(e.contains("sqrt") && e.contains(&here(line)), "{e}");
    assert_eq!(f.call(t(&[1.5])).item::<f64>().unwrap(), 0.5);
    // A gradient names the line of the function.
    let line = line!() + 1;
    let norm = |x: Tensor| x.square().sum().sqrt();
    let e = jit(grad(norm)).call(t(&[0.0])).to_vec::<f64>().unwrap_err().to_string();
    assert!(e.contains(&here(line)), "{e}");
    // What was NaN already is nobody's fault.
    assert!(t(&[f64::NAN]).exp().to_vec::<f64>().unwrap()[0].is_nan());
    set_debug_nans(false);
}

#[test]
fn each_debug_level_prints_more() {
    let _one = alone();
    let said: Arc<Mutex<String>> = Arc::default();
    let into = said.clone();
    debug::set_output(move |text| into.lock().unwrap().push_str(&format!("{text}\n")));
    let mut lengths = Vec::new();
    for level in 0..=5u8 {
        debug::set_level(level);
        said.lock().unwrap().clear();
        // Another size each time, so that it is compiled each time.
        let xs = ones(&[5, 2 + level as usize]);
        let f = jit(|xs: Tensor| {
            lax::scan(|(c, x): (Tensor, Tensor)| (c + x.exp(), ()), zeros(&[]), (xs * 1.0).sum_axes(&[1], false)).0
        });
        f.call(xs).item::<f32>().unwrap();
        let text = said.lock().unwrap().clone();
        let has = |part: &str| text.contains(part);
        assert_eq!(has("path CompiledLoop") && has("diagnostics.rs"), level >= 1, "{text}");
        assert_eq!(has("== program ") && has("graph (") && has("scan("), level >= 1, "{text}");
        assert_eq!(has("-- pass "), level >= 2, "{text}");
        assert_eq!(has("-- steps and what is fused") && has("program: arena"), level >= 3, "{text}");
        assert_eq!(has("-- loops of ") && has("serial v"), level >= 4, "{text}");
        assert_eq!(has(": code, cpu (") && has("-- code of "), level >= 5, "{text}");
        lengths.push(text.len());
    }
    // A single op is a program too.
    debug::set_level(1);
    said.lock().unwrap().clear();
    ones(&[3, 37]).atan().to_vec::<f32>().unwrap();
    assert!(said.lock().unwrap().contains("atan("), "{said:?}");
    debug::set_level(0);
    debug::set_output(|text| eprintln!("{text}"));
    assert!(lengths[0] == 0 && lengths.windows(2).all(|w| w[0] < w[1]), "{lengths:?}");
}

#[test]
fn leaks_have_creation_places() {
    let _one = alone();
    let mut kept = Vec::new();
    let line = line!() + 1;
    let report = check_leaks(|| kept.push(t(&[1.0, 2.0]).exp()));
    assert_eq!(report.leaked, 1, "{report}");
    assert!(report.details[0].contains("f64[2]") && report.details[0].contains(&format!("diagnostics.rs:{line}:")));
    assert!(report.to_string().contains("1 left"));

    // Gradients, loops with constants in their bodies, compiled functions: nothing is left when they are dropped.
    let xs = ones(&[6, 2]);
    let body = |(c, x): (Tensor, Tensor)| (&c * 0.5 + x * tensor(&[2.0f32, 3.0], &[2]), c);
    let loss = |xs: Tensor| lax::scan(body, zeros(&[2]), xs).1.sum();
    let checks: [(&str, &dyn Fn()); 5] = [
        ("scan", &|| drop(loss(xs.clone()).item::<f32>())),
        ("grad", &|| drop(grad(loss).call(xs.clone()).to_vec::<f32>())),
        ("jit", &|| drop(jit(grad(loss)).call(xs.clone()).to_vec::<f32>())),
        ("vjp", &|| {
            let (y, back) = vjp(loss, xs.clone());
            drop((y.item::<f32>(), back.call(full(&[], 1.0)).to_vec::<f32>()));
        }),
        ("vmap", &|| drop(vmap(|x: Tensor| x.exp()).call(xs.clone()).to_vec::<f32>())),
    ];
    for (name, f) in checks {
        let report = check_leaks(f);
        assert_eq!(report.leaked, 0, "{name}: {report}");
    }
}

#[test]
fn devices_and_trees() {
    let _one = alone();
    let all = devices();
    assert_eq!((all.len(), all[0].id), (1, 0));
    let (x, y) = device_put((t(&[1.0]), t(&[2.0])), 0);
    assert_eq!((x.to_vec::<f64>().unwrap(), y.to_vec::<f64>().unwrap()), (vec![1.0], vec![2.0]));
    assert!(device_put(t(&[1.0]), 7).check().is_err());
    let ready = block_until_ready((t(&[1.0]).exp(), t(&[0.0]).exp())).unwrap();
    assert_eq!(ready.1.to_vec::<f64>().unwrap(), [1.0]);
    assert!(block_until_ready(t(&[1.0]).matmul(&t(&[1.0, 2.0]))).is_err());

    let a = (t(&[1.0, 2.0]), vec![t(&[3.0])]);
    assert_eq!((tree::size(&a), tree::leaves(&a).len()), (3, 2));
    assert_eq!(tree::vdot(&a, &a).item::<f64>().unwrap(), 14.0);
    let b = tree::add(&tree::scale(&a, 2.0), &tree::ones_like(&a));
    assert_eq!(tree::map(|t| t + 1.0, &b).0.to_vec::<f64>().unwrap(), [4.0, 6.0]);
    assert_eq!(tree::zeros_like(&a).1[0].to_vec::<f64>().unwrap(), [0.0]);
    assert!(tree::add(&vec![t(&[1.0])], &vec![]).remove(0).check().is_err());
}

#[test]
fn checks_for_users() {
    let _one = alone();
    let f = |(x, n): (Tensor, Tensor)| (x.sin() * x.exp()).sum() * n.cast(DType::F64).sum();
    testing::check_grads(f, (t(&[0.3, -1.2]), arange(3)), 2).unwrap();
    testing::check_grads(|x: Tensor| x.tanh(), tensor(&[0.3f32, 0.7], &[2]), 1).unwrap();
    testing::check_vmap(|x: Tensor| x.sin().sum(), t(&[0.3, -1.2, 4.0]).reshape(&[3, 1])).unwrap();
    // A wrong derivative is found, in either mode.
    let wrong = custom_jvp(|x: Tensor| x.sin(), |(x, dx): (Tensor, Tensor)| x.sin() * dx);
    let e = testing::check_grads(wrong, t(&[0.3]), 1).unwrap_err().to_string();
    assert!(e.contains("forward mode") && e.contains("diagnostics.rs:"), "{e}");
    let wrong = custom_vjp(|x: Tensor| (x.sin(), x), |(x, ct): (Tensor, Tensor)| x * ct);
    let call = |x: Tensor| wrong.call(x);
    let e = testing::check_grads(call, t(&[0.3]), 1).unwrap_err().to_string();
    assert!(e.contains("reverse mode"), "{e}");
    let caught = std::panic::catch_unwind(|| testing::assert_close(&t(&[1.0, 2.0]), &t(&[1.0, 2.1]), 1e-3, 0.0));
    assert!(caught.unwrap_err().downcast_ref::<String>().unwrap().contains("element 1 is 2e0, expected 2.1e0"));
    testing::assert_close(&t(&[1.0, f64::NAN]), &t(&[1.0, f64::NAN]), 0.0, 0.0);
}
