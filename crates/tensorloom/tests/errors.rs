//! Bad input: one clear error that names the user's line, at the call, whatever is read later.

use tensorloom::*;

fn t(x: &[f64]) -> Tensor {
    tensor(x, &[x.len()])
}

fn s(x: f64) -> Tensor {
    tensor_of(&[x], &[])
}

/// The error has all these parts, and a line of this file.
#[track_caller]
fn says(t: &Tensor, parts: &[&str]) {
    let e = t.check().expect_err("it should be invalid").to_string();
    assert!(parts.iter().all(|p| e.contains(p)) && e.contains("errors.rs:"), "{e}");
    // Whatever is computed from it carries the same error, once.
    assert_eq!((t + 1.0).exp().to_vec::<f64>().unwrap_err().to_string(), e);
}

#[test]
fn gradients() {
    let line = line!() + 1;
    let g = grad(|x: Tensor| x.exp()).call(t(&[1.0, 2.0]));
    says(&g, &["f64[2]", "rank 0", "vjp", &format!("errors.rs:{line}:")]);
    says(&grad(|x: Tensor| x.sum()).call(arange(3)), &["i64[3]", "argnums"]);
    says(&value_and_grad(|x: Tensor| x.gt(&s(0.0))).call(s(1.0)).1, &["bool", "rank 0"]);
    let (_, back) = vjp(|x: Tensor| x.exp(), t(&[1.0, 2.0]));
    says(&back.call(t(&[1.0])), &["cotangent", "f64[2]", "f64[1]"]);
    says(&jvp(|x: Tensor| x.exp(), t(&[1.0]), s(1.0)).1, &["tangent"]);
    let (_, push) = linearize(|x: Tensor| x.exp(), t(&[1.0]));
    says(&push.call(t(&[1.0, 2.0])), &["tangent"]);
    let bad = custom_vjp(|x: Tensor| (x.exp(), ()), |(_, _): ((), Tensor)| s(1.0));
    says(&bad.call(t(&[1.0, 2.0])), &["cotangent", "f64[2]"]);
}

#[test]
fn wrong_axes() {
    let m = ones(&[2, 3]);
    let f = |x: Tensor| x.exp();
    says(&vmap(f).in_axes(2).call(m.clone()), &["vmap", "no axis 2"]);
    says(&vmap(f).out_axes(5).call(m.clone()), &["axis 5"]);
    let add = |(x, y): (Tensor, Tensor)| x + y;
    says(&vmap(add).call((ones(&[2]), ones(&[3]))), &["3 elements", "others have 2"]);
    says(&vmap(add).in_axes([None, None]).call((ones(&[2]), ones(&[2]))), &["axis_size"]);
    says(&vmap(f).out_axes([None]).call(m.clone()), &["can't be None"]);
    says(&vmap(f).out_axes([0, 1]).call(m.clone()), &["2 out_axes"]);
    says(&np::sum(&m, 2), &["sum", "axis 2"]);
    says(&np::concatenate(&[&m, &ones(&[4])], 0), &["concat"]);
    says(&np::transpose(&m, [0, 0]), &["permute"]);
    says(&np::einsum("ij,jk->ik", &[&m, &m]), &["einsum", "'j'"]);
    says(&np::einsum("ij->ijk", &[&m]), &["only in the result"]);
    says(&np::take(&m, &ones(&[1]), Some(0)), &["f32"]);
    says(&np::moveaxis(&m, &[0, 1], &[0]), &["moveaxis"]);
    says(&np::split(&m, 2, 1)[0], &["array_split"]);
    says(&np::reshape(&m, &[4, -1]), &["reshape"]);
    says(&nn::softmax(&m, 4), &["softmax", "4"]);
    says(&fft::rfft(&m, None, 3, fft::Norm::Backward).re, &["3"]);
    says(&lax::sort(&m, 7), &["sort"]);
}

#[test]
fn types_that_dont_fit() {
    let (a, b) = (ones(&[2, 3]), ones(&[2, 3]));
    says(&a.matmul(&b), &["matmul", "f32[2,3]"]);
    says(&np::add(&a, &ones(&[4])), &["add", "[2, 3]"]);
    says(&linalg::cholesky(&a), &["square"]);
    says(&linalg::inv(&ones(&[3])), &["inv", "fewer than 2 axes"]);
    says(&linalg::solve(&ones(&[2, 2]), &ones(&[3])), &["solve"]);
    says(&np::gcd(&a, &b), &["integers"]);
    says(&np::bitwise_and(&a, &b), &["and"]);
    says(&np::arange(0.0, 1.0, 0.0), &["is infinite"]);
    says(&np::frombuffer(&[1, 2, 3], DType::F32), &["3 bytes"]);
    says(&np::pad(&a, &[(1, 1)], np::PadMode::Edge), &["widths"]);
    says(&np::convolve(&a, &b, "full"), &["vectors"]);
    says(&np::convolve(&ones(&[3]), &ones(&[2]), "wrong"), &["full, same or valid"]);
    says(&np::select(&[], &[&a], 0.0), &["conditions"]);
    says(&random::normal(&a, &[2], DType::F32), &["key"]);
    says(&tensor(&[1.0f32], &[2]), &["elements"]);
}

#[test]
fn loops() {
    let xs = ones(&[4, 2]);
    let line = line!() + 1;
    let (c, _) = lax::scan(|(c, x): (Tensor, Tensor)| (Tensor::stack(&[&c, &x], 0), x), ones(&[2]), xs.clone());
    says(&c, &["carry 0", "f32[2]", "f32[2,2]", &format!("errors.rs:{line}:")]);
    let (c, _) = lax::scan(|(c, x): (Tensor, Tensor)| (c.cast(DType::F64), x), ones(&[2]), xs.clone());
    says(&c, &["carry 0", "f64[2]"]);
    let more = |(mut c, x): (Vec<Tensor>, Tensor)| {
        c.push(x);
        (c, ())
    };
    says(&lax::scan(more, vec![ones(&[2])], xs.clone()).0[0], &["1 carries go in and 2 come out"]);
    says(&lax::Scan::new().run(|(c, ()): (Tensor, ())| (c, ()), s(1.0), ()).0, &["length"]);
    says(&lax::Scan::new().length(3).run(|(c, x): (Tensor, Tensor)| (c, x), s(1.0), xs.clone()).0, &["3 iterations"]);
    says(&lax::scan(|(c, x): (Tensor, Tensor)| (c, x), s(1.0), s(2.0)).0, &["no axis to loop over"]);
    says(&lax::while_loop(|c: Tensor| c, |c: Tensor| c, s(1.0)), &["condition", "bool"]);
    says(&lax::while_loop(|c: Tensor| c.lt(&s(3.0)), |c: Tensor| c.unsqueeze(0), s(1.0)), &["carry 0"]);
    says(&lax::cond(&s(1.0), |x: Tensor| x, |x: Tensor| x, s(1.0)), &["choice"]);
    let yes = s(1.0).gt(&s(0.0));
    says(&lax::cond(&yes, |x: Tensor| x, |x: Tensor| x.unsqueeze(0), s(1.0)), &["branch 0", "branch 1"]);
    says(&lax::fori_loop(0, 3, |(_, c): (Tensor, Tensor)| c.cast(DType::F32), s(1.0)), &["carry 0"]);
    // An error inside a body is that error.
    says(&lax::scan(|(c, x): (Tensor, Tensor)| (c.matmul(&x), ()), ones(&[3]), xs).0, &["matmul"]);
}

#[test]
fn paths() {
    let run = |paths: &[lax::ScanPath]| {
        let scan = lax::Scan::new().length(3).accept_path(paths);
        scan.run(|(c, ()): (Tensor, ())| (c * 2.0, ()), s(1.0), ()).0
    };
    assert_eq!(run(&[lax::ScanPath::CompiledLoop]).item::<f64>().unwrap(), 8.0);
    assert_eq!(run(&[lax::ScanPath::Preencoded, lax::ScanPath::CompiledLoop]).item::<f64>().unwrap(), 8.0);
    says(&run(&[]), &["CompiledLoop"]);
    says(&run(&[lax::ScanPath::Fallback]), &["CompiledLoop", "Fallback"]);
}

#[test]
fn host_reads_in_a_trace() {
    let line = line!() + 1;
    let f = jit(|x: Tensor| match x.sum().item::<f64>() {
        Ok(_) => x,
        Err(e) => Tensor::from_error(e),
    });
    says(&f.call(t(&[1.0])), &["while a function is being staged", &format!("errors.rs:{line}:")]);
    let read = |x: Tensor| x.to_vec::<f64>().map_or_else(Tensor::from_error, |_| x.clone());
    says(&vmap(read).call(t(&[1.0, 2.0])), &["staged"]);
    says(&lax::scan(|(c, x): (Tensor, Tensor)| (read(c), x), s(0.0), t(&[1.0])).0, &["staged"]);
    // Outside of traces a gradient runs on real tensors and may read them.
    assert_eq!(grad(read).call(s(3.0)).item::<f64>().unwrap(), 1.0);
}

#[test]
fn tensors_that_outlive_their_trace() {
    let kept = std::cell::RefCell::new(None);
    let f = jit(|x: Tensor| {
        *kept.borrow_mut() = Some(x.exp());
        x
    });
    f.call(t(&[1.0])).to_vec::<f64>().unwrap();
    let e = (kept.borrow().as_ref().unwrap() + 1.0).to_vec::<f64>().unwrap_err().to_string();
    assert!(e.contains("trace that has ended") && e.contains("errors.rs:"), "{e}");
    // A captured tensor can't be changed by a pure function.
    let w = t(&[1.0]);
    let f = jit(|x: Tensor| {
        w.add_(&x);
        x
    });
    let e = f.call(t(&[1.0])).to_vec::<f64>();
    assert!(e.is_err() || w.to_vec::<f64>().unwrap() == [1.0]);
}

#[test]
fn optimisers() {
    let o = optim::adam(0.1);
    let (p, g) = (t(&[1.0]), t(&[1.0, 2.0]));
    let state = o.init(&p);
    says(&o.update(&g, &state, &p).0, &["gradient", "f64[2]", "f64[1]"]);
    let other = optim::chain([optim::clip(1.0), optim::adam(0.1)]);
    says(&other.update(&p, &state, &p).0, &["do not belong to one optimizer"]);
}
