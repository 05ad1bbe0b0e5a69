//! scratch
#[test]
fn zeros() {
    (|| {
        use tensorloom::zeros;

        assert_eq!(zeros((2, 3)).sum().item::<f32>()?, 0.0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn ones() {
    (|| {
        use tensorloom::ones;

        assert_eq!(ones((2, 3)).sum().item::<f32>()?, 6.0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn full() {
    (|| {
        use tensorloom::full;

        assert_eq!(full(3, 0.5).to_vec::<f32>()?, [0.5, 0.5, 0.5]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn rand() {
    (|| {
        use tensorloom::{manual_seed, rand};

        manual_seed(1);
        let x = rand((4, 4)).to_vec::<f32>()?;
        assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn randn() {
    (|| {
        use tensorloom::{manual_seed, randn};

        manual_seed(1);
        assert!(randn(10_000).mean().item::<f32>()?.abs() < 0.05);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn randint() {
    (|| {
        use tensorloom::{manual_seed, randint};

        manual_seed(1);
        assert!(randint(-2, 3, 100).to_vec::<i64>()?.iter().all(|n| (-2..3).contains(n)));
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn manual_seed() {
    (|| {
        use tensorloom::{manual_seed, randn};

        manual_seed(7);
        let first = randn(3).to_vec::<f32>()?;
        manual_seed(7);
        assert_eq!(randn(3).to_vec::<f32>()?, first);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn arange() {
    (|| {
        assert_eq!(tensorloom::arange(4).to_vec::<i64>()?, [0, 1, 2, 3]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn tensor_of() {
    (|| {
        use tensorloom::{DType, tensor_of};

        let x = tensor_of::<f64>(&[0.1, 0.2], 2);
        assert_eq!((x.dtype(), x.to_vec::<f64>()?), (DType::F64, vec![0.1, 0.2]));
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn mark_step() {
    (|| {
        use tensorloom::{mark_step, ones};

        let x = ones(3) + 1.0; // recorded
        mark_step()?; // computed
        assert_eq!(x.to_vec::<f32>()?, [2.0, 2.0, 2.0]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn compile() {
    (|| {
        use tensorloom::{Tensor, compile, ones};

        let step = compile(|x: Tensor| (&x * 2.0).sum());
        assert_eq!(step.call(ones(4))?.item::<f32>()?, 8.0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn engine() {
    (|| {
        use tensorloom::{DType, engine};

        let x = engine().full(DType::F64, &[2], 0.5);
        assert_eq!(x.to_vec::<f64>()?, [0.5, 0.5]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn configure() {
    (|| {
        use tensorloom::{Config, configure, ones};

        configure(&Config { threads: Some(1), ..Config::default() })?;
        assert_eq!(ones(8).sum().item::<f32>()?, 8.0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn load() {
    (|| {
        use tensorloom::prelude::*;

        let path = std::env::temp_dir().join(format!("load-{}.safetensors", std::process::id()));
        nn::Linear::new(3, 2).save(&path)?;
        let values = tensorloom::load(&path)?;
        assert_eq!(values["weight"].ty().shape[..], [2, 3]);
        std::fs::remove_file(&path).unwrap();
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn along() {
    (|| {
        use tensorloom::{along, ones};

        let x = ones((2, 3));
        assert_eq!(x.mean_axes(along(1).keep(), false).shape(), [2, 1]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn autocast() {
    (|| {
        use tensorloom::{DType, autocast, ones};

        let y = autocast(DType::BF16, || ones((2, 3)).matmul(&ones((3, 2))));
        assert_eq!(y.dtype(), DType::BF16);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn default_device() {
    (|| {
        use tensorloom::{default_device, with_device};

        assert_eq!(default_device(), 0);
        assert_eq!(with_device(1, default_device), 1);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn set_default_device() {
    (|| {
        use tensorloom::{default_device, set_default_device};

        set_default_device(0);
        assert_eq!(default_device(), 0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn with_device() {
    (|| {
        use tensorloom::{ones, with_device};

        let x = with_device(0, || ones(3));
        assert_eq!(x.sum().item::<f32>()?, 3.0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn is_grad_enabled() {
    (|| {
        use tensorloom::{is_grad_enabled, no_grad};

        assert!(is_grad_enabled());
        assert!(!no_grad(is_grad_enabled));
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn no_grad() {
    (|| {
        use tensorloom::{no_grad, ones};

        let w = ones(2).requires_grad_();
        no_grad(|| w.sub_(0.5));
        assert_eq!(w.to_vec::<f32>()?, [0.5, 0.5]);
        assert!(!no_grad(|| &w * 2.0).requires_grad());
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn enable_grad() {
    (|| {
        use tensorloom::{enable_grad, no_grad, ones};

        let w = ones(2).requires_grad_();
        assert!(no_grad(|| enable_grad(|| &w * 2.0)).requires_grad());
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn set_debug() {
    (|| {
        use tensorloom::{ones, set_debug};

        set_debug(1); // says what is compiled, on standard error
        assert_eq!((ones(2) * 3.0).sum().item::<f32>()?, 6.0);
        set_debug(0);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn set_debug_output() {
    (|| {
        use std::sync::{Arc, Mutex};
        use tensorloom::{Tensor, jit, ones, set_debug, set_debug_output};

        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = said.clone();
        set_debug_output(move |text| lines.lock().unwrap().push(text.to_string()));
        set_debug(2);
        jit(|x: Tensor| x.exp().sum()).call(ones(5)).item::<f32>()?;
        set_debug(0);
        assert!(!said.lock().unwrap().is_empty());
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn set_debug_nans() {
    (|| {
        use tensorloom::{set_debug_nans, tensor};

        set_debug_nans(true);
        let y = tensor(&[-1.0], 1).log();
        assert!(y.to_vec::<f32>().is_err()); // names this line
        set_debug_nans(false);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn set_narrow() {
    (|| {
        use tensorloom::{DType, arange, set_narrow};

        set_narrow(true);
        assert_eq!(arange(3).dtype(), DType::I32);
        set_narrow(false);
        assert_eq!(arange(3).dtype(), DType::I64);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
#[test]
fn step() {
    (|| {
        use tensorloom::{arange, step};

        assert_eq!(arange(6).i(step(.., 2)).to_vec::<i64>()?, [0, 2, 4]);
        assert_eq!(arange(3).i(step(.., -1)).to_vec::<i64>()?, [2, 1, 0]);
        Ok::<(), tensorloom::Error>(())
    })()
    .unwrap();
}
