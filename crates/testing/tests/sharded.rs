//! `shard_map` and collectives: laws on random bodies, and errors at graph construction.

use ir::ops::{Collective, CollectiveKind as Kind, ShardMap};
use ir::{Builder, DType, Graph, GraphBuilder, Mesh, MeshAxis, Spec, Value};
use std::collections::BTreeMap;
use tensorloom_testing::check::{self, GradOutcome};
use tensorloom_testing::random::sharded::sharded_sample;
use tensorloom_testing::{Rng, rng::run_seed};

/// `TENSORLOOM_SHARDED=500` runs more samples.
fn count(few: u64) -> u64 {
    std::env::var("TENSORLOOM_SHARDED").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

#[test]
fn random_bodies_keep_the_laws() {
    let (seed, n) = (run_seed(), count(80));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut settled = 0;
    for k in 0..n {
        let s = sharded_sample(seed.wrapping_add(k));
        let rng = &mut Rng::new(s.seed);
        for c in &s.collectives {
            *seen.entry(c).or_default() += 1;
        }
        let judged = check::check_verifier(&s.graph)
            .and_then(|()| check::check_text_roundtrip(&s.graph))
            .and_then(|()| check::check_grads(&s.graph, &s.inputs, rng))
            .and_then(|verdict| {
                settled += u64::from(verdict == GradOutcome::Agrees);
                if k % 4 == 0 {
                    check::check_vmap(&s.graph, &s.inputs, rng)?;
                }
                if k % 8 == 0 {
                    check::check_second_order(&s.graph, &s.inputs, rng)?;
                }
                Ok(())
            });
        judged.unwrap_or_else(|e| panic!("TENSORLOOM_SEED={} fails first: {e}\n{}", s.seed, s.graph));
    }
    println!("{settled} of {n} settled; {seen:?}");
    assert!(settled * 10 > n * 8, "finite differences settle for {settled} of {n} graphs only");
    let all = ["psum", "pmax", "pmin", "all_gather", "psum_scatter", "ppart", "all_to_all", "ppermute", "axis_index"];
    let missing: Vec<&&str> = all.iter().filter(|name| !seen.contains_key(**name)).collect();
    assert!(missing.is_empty(), "no {missing:?}");
}

fn mesh() -> (Mesh, Vec<MeshAxis>) {
    let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).unwrap();
    let axes = mesh.axes().to_vec();
    (mesh, axes)
}

fn body(build: impl FnOnce(&mut Builder, Value) -> ir::Result<Value>) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[4, 4]);
    let y = build(&mut b, x)?;
    Ok(b.finish(&[y]))
}

/// The error of a body whose operand is sharded by `dp` and whose result is declared to be sharded like `out`.
fn error(out: Spec, build: impl FnOnce(&mut Builder, Value) -> ir::Result<Value>) -> String {
    let map = body(build).and_then(|g| ShardMap::new(mesh().0, vec![Spec::shard_dim(0, "dp")], vec![out], g));
    map.expect_err("it must be refused").to_string()
}

#[test]
fn a_missing_sum_is_an_error_when_the_graph_is_written() {
    let (_, axes) = mesh();
    let (dp, tp) = (&axes[..1], &axes[1..]);
    let missing = error(Spec::replicated(), |b, x| b.sum(x, &[0]));
    assert!(missing.contains("output 0 varies over `dp`") && missing.contains("psum"), "{missing}");
    let twice = error(Spec::replicated(), |b, x| {
        let s = b.psum(x, dp)?;
        b.psum(s, dp)
    });
    assert!(twice.contains("does not vary over `dp`"), "{twice}");
    let other = error(Spec::shard_dim(0, "dp"), |b, x| b.psum(x, tp));
    assert!(other.contains("does not vary over `tp`"), "{other}");
    let own = error(Spec::shard_dim(0, "dp"), |b, x| b.collective(Kind::ShardSlice { dim: 0 }, x, dp));
    assert!(own.contains("already varies over `dp`"), "{own}");
    let unknown = error(Spec::shard_dim(0, "dp"), |b, x| b.psum(x, &[MeshAxis::new("pp", 2)]));
    assert!(unknown.contains("`pp` is not in the mesh dp=2,tp=2"), "{unknown}");
    let size = error(Spec::shard_dim(0, "dp"), |b, x| b.psum(x, &[MeshAxis::new("dp", 4)]));
    assert!(size.contains("has 4 ranks here, but 2"), "{size}");
    let spec = error(Spec::shard_dim(0, "zz"), |b, x| b.neg(x));
    assert!(spec.contains("names `zz`"), "{spec}");
}

#[test]
fn sizes_that_can_t_be_cut_are_errors() {
    let (mesh, axes) = mesh();
    let g = body(|b, x| b.neg(x)).unwrap();
    let map = ShardMap::new(mesh, vec![Spec::shard_dim(0, "dp")], vec![Spec::shard_dim(0, "dp")], g).unwrap();
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[7, 4]);
    let e = b.emit(map.into(), &[x]).unwrap_err().to_string();
    assert!(e.contains("cannot be sharded into 2 equal parts"), "{e}");
    let cut = Collective::new(Kind::ReduceScatter { dim: 0 }, &axes);
    let e = b.emit(cut.into(), &[x]).unwrap_err().to_string();
    assert!(e.contains("axis 0 of f32[7,4] cannot be split into 4 equal parts"), "{e}");
    for text in ["dp", "dp=0", "dp=2,dp=2", "=2", "d p=2", "dp=x"] {
        assert!(Mesh::parse(text).is_err(), "{text}");
    }
    assert_eq!(Mesh::parse("dp=2, tp=3").unwrap().to_string(), "dp=2,tp=3");
}

#[test]
fn a_collective_without_ranks_says_what_to_do() {
    let g = body(|b, x| b.psum(x, &mesh().1)).unwrap();
    let x = ir::Literal::zeros(ir::Type::new(DType::F32, &[4, 4]));
    let e = ir::interp::run(&g, &[x]).unwrap_err().to_string();
    assert!(e.contains("psum over `dp`, `tp` needs 4 ranks") && e.contains("communicator"), "{e}");
}

#[test]
fn groups_are_numbered_along_their_axes() {
    let mesh = Mesh::new(&[("a", 2), ("b", 3)]).unwrap();
    let (a, b) = (mesh.axes()[0].clone(), mesh.axes()[1].clone());
    assert_eq!(mesh.group(4, &[a.clone()]), [1, 4]);
    assert_eq!(mesh.group(4, &[b.clone()]), [3, 4, 5]);
    assert_eq!(mesh.group(0, &[b, a]), [0, 3, 1, 4, 2, 5]);
}
