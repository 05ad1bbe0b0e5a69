use super::*;
use tensorloom_engine::LocRole;

#[test]
fn s11_1_draws_are_keyed_by_seed_and_place_in_the_program() {
    let run = |seed| {
        let e = engine();
        e.manual_seed(seed);
        let (a, b) = (e.rand(&[8]), e.rand(&[8]));
        // Reading in another order changes nothing.
        let b = b.to_vec::<f32>().unwrap();
        (a.to_vec::<f32>().unwrap(), b)
    };
    let (a, b) = run(1);
    assert_ne!(a, b, "equal ops draw different numbers");
    assert_eq!(run(1), (a.clone(), b));
    assert_ne!(run(2).0, a);
    assert!(a.iter().all(|x| (0.0..1.0).contains(x)));
}

#[test]
fn s11_2_draws_are_counted_in_the_generators_loc() {
    let e = engine();
    e.rand(&[2]);
    e.randn(&[2]);
    let loc = |e: &Engine| e.inspect().locs.into_iter().find(|l| l.role == LocRole::RngState).unwrap();
    assert_eq!((loc(&e).version, loc(&e).logical_version), (0, 2));
    e.mark_step().unwrap();
    assert_eq!((loc(&e).version, loc(&e).logical_version), (2, 2));
    let nonces: Vec<_> = e.inspect().last_plan.iter().filter_map(|p| p.nonce).collect();
    assert_eq!(nonces, [0, 1]);
}

#[test]
fn s15_4_draws_in_a_region_are_not_merged_and_new_at_every_call() {
    let e = engine();
    e.manual_seed(5);
    let f = e.compile(|()| (e.rand(&[4]), e.rand(&[4])));
    let (a, b) = f.call(()).unwrap();
    let (c, _) = f.call(()).unwrap();
    let [a, b, c] = [a, b, c].map(|t| t.to_vec::<f32>().unwrap());
    assert!(a != b && a != c && b != c);
    assert_eq!(e.inspect().variants, (1, 1, 1), "one program draws anew");
    e.manual_seed(5);
    assert_eq!(e.rand(&[4]).to_vec::<f32>().unwrap(), a, "compiled and not, the same draw");
}

#[test]
fn distributions_have_their_moments() {
    let e = engine();
    let n = 20_000;
    let x = e.randn(&[n]);
    let (mean, var) = (x.mean().item::<f32>().unwrap(), x.square().mean().item::<f32>().unwrap());
    assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
    let p = e.bernoulli(0.3, &[n]).cast(F).mean().item::<f32>().unwrap();
    assert!((p - 0.3).abs() < 0.02, "{p}");
    let i = e.randint(-2, 3, &[n]);
    let (low, high) = (i.min().item::<i64>().unwrap(), i.max().item::<i64>().unwrap());
    assert_eq!((low, high), (-2, 2));
    assert!(e.randint(3, 3, &[1]).check().is_err());
}
