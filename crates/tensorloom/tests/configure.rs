//! The process's engine, made anew. In a process of its own: there is one.

use std::sync::Mutex;
use tensorloom::{
    Config, Error, configure, device_put, devices, engine, jit, lax, ones, reset, tensor, with_device, zeros,
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn the_engine_can_be_reset_and_configured() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let old = ones(&[2]);
    let double = jit(|x: tensorloom::Tensor| x * 2.0);
    assert_eq!(double.call(old.clone()).to_vec::<f32>().unwrap(), [2.0, 2.0]);
    let limit = 1 << 20;
    let config = Config {
        threads: Some(1),
        memory_limit: Some(limit),
        devices: vec!["cpu".into(), "cpu:1".into()],
        ..Config::default()
    };
    configure(&config).unwrap();
    assert_eq!(devices().len(), 2);
    assert!(devices()[0].name.contains('1'), "{:?}", devices());
    // Old tensors stay with the old engine, new ones are of the new; what was compiled serves both.
    let new = ones(&[2]);
    assert_eq!(double.call(old.clone()).to_vec::<f32>().unwrap(), [2.0, 2.0]);
    assert_eq!(double.call(new.clone()).to_vec::<f32>().unwrap(), [2.0, 2.0]);
    assert!((&old + &new).check().unwrap_err().to_string().contains("two engines"));
    let err = (ones(&[1 << 20]) + 1.0).sum().item::<f32>().unwrap_err();
    assert!(matches!(err, Error::MemoryLimit { limit: l, .. } if l == limit), "{err}");
    let there = with_device(1, || zeros(&[2]));
    assert_eq!((there.device(), device_put(new.clone(), 1).device()), (1, 1));
    assert_eq!(double.call(there.clone()).device(), 1);
    let err = jit(|(x, y): (tensorloom::Tensor, tensorloom::Tensor)| x + y)
        .call((there, tensor(&[1.0, 2.0], 2)))
        .check()
        .unwrap_err();
    assert!(err.to_string().contains("to(1)"), "{err}");
    // A reset keeps the configuration.
    let before = engine();
    reset().unwrap();
    assert!(before != engine() && devices().len() == 2);
    configure(&Config::default()).unwrap();
    assert_eq!(devices().len(), 1);
}

#[test]
fn a_configuration_that_is_none_is_refused_and_changes_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let before = engine();
    let named = |name: &str| Config { devices: vec![name.into()], ..Config::default() };
    for (config, says) in [
        (named("abacus"), "no device `abacus`"),
        (named("cpu:0"), "`0` is not a number of threads"),
        (named("cpu:many"), "`many` is not a number of threads"),
        (named("cpu:1000000"), "1 to 1024"),
        (Config { threads: Some(0), ..Config::default() }, "`0` is not a number of threads"),
    ] {
        let err = configure(&config).unwrap_err().to_string();
        assert!(err.contains(says), "{err}");
    }
    assert!(before == engine());
    let (sum, ()) = lax::Scan::new().length(3).run(|(c, ()): (tensorloom::Tensor, ())| (c + 1.0, ()), zeros(&[]), ());
    assert_eq!(sum.item::<f32>().unwrap(), 3.0);
}
