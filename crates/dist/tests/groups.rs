//! NCCL groups over meshes of several ranks, with a substitute library instead of NCCL: results are compared with our own
//! collectives, and the loss of a rank is tested.

use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Literal, Mesh, Rules, Type};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensorloom_dist::groups::NcclGroups;
use tensorloom_dist::nccl::Nccl;
use tensorloom_dist::{Error, thread_transport};

/// The substitute library, built once; none without a C compiler.
fn stand_in() -> Option<&'static Arc<Nccl>> {
    static LIBRARY: OnceLock<Option<Arc<Nccl>>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("tensorloom-groups-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("libranks.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nccl_ranks.c");
        let built = std::process::Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&file)
            .args([source, "-ldl", "-lpthread"])
            .status();
        let nccl = built.is_ok_and(|s| s.success()).then(|| Nccl::load(&file.to_string_lossy()).unwrap());
        let _ = std::fs::remove_dir_all(folder);
        nccl
    });
    if made.is_none() {
        println!("no C compiler: not looked at");
    }
    made.as_ref()
}

fn kinds(n: usize) -> Vec<Kind> {
    vec![
        Kind::Sum,
        Kind::Max,
        Kind::Min,
        Kind::AllGather { dim: 0, same: true, turn: 0 },
        Kind::AllGather { dim: 1, same: false, turn: 0 },
        Kind::ReduceScatter { dim: 0 },
        Kind::ReduceScatter { dim: 1 },
        Kind::AllToAll { split: 0, join: 1 },
        Kind::AllToAll { split: 1, join: 0 },
        Kind::Permute { pairs: (0..n).map(|i| (i, (i + 1) % n)).collect() },
        Kind::Permute { pairs: vec![(n - 1, 0)] },
    ]
}

/// Every collective over every set of axes of a mesh, in either order: NCCL calls give the results of our own collectives.
#[test]
fn groups_of_every_set_of_axes_do_what_our_collectives_do() {
    let Some(nccl) = stand_in() else { return };
    for (sizes, dtype) in [
        (vec![("a", 2)], DType::F32),
        (vec![("a", 3)], DType::I32),
        (vec![("a", 2), ("b", 2)], DType::BF16),
        (vec![("a", 2), ("b", 3)], DType::F16),
        (vec![("a", 2), ("b", 2), ("c", 2)], DType::F64),
    ] {
        let mesh = Mesh::new(&sizes).unwrap();
        let sets: Vec<Vec<usize>> = match sizes.len() {
            1 => vec![vec![0]],
            2 => vec![vec![0], vec![1], vec![0, 1], vec![1, 0]],
            _ => vec![vec![2], vec![0, 2], vec![2, 1, 0]],
        };
        let ran = thread_transport::spawn(&mesh, |comm| {
            let groups = NcclGroups::new(nccl.clone(), comm.clone());
            let before = comm.traffic().bytes();
            let mut theory = 0;
            for set in &sets {
                let axes: Vec<_> = set.iter().map(|&a| mesh.axes()[a].clone()).collect();
                let n: usize = axes.iter().map(|a| a.size).product();
                groups.join(&axes)?;
                for kind in kinds(n) {
                    let ty = Type::new(dtype, &[2 * n, n]);
                    let op = Collective::new(kind, &axes);
                    let mut rng = testing::Rng::new(comm.rank() as u64 * 31 + 7);
                    let own: Literal = testing::FillKind::Uniform(-3.0, 3.0).random_tensor(&ty, &mut rng);
                    let bytes = op.infer(std::slice::from_ref(&ty)).unwrap()[0].bytes();
                    let (mut got, mut want) = (vec![7u8; bytes], vec![0u8; bytes]);
                    let zero = |at: *mut std::ffi::c_void, n: usize| {
                        // SAFETY: the result has so many bytes.
                        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, n) };
                    };
                    let (from, to) = (own.bytes().as_ptr().cast(), got.as_mut_ptr().cast());
                    // SAFETY: both are good for their types, and the stand-in is done when it returns.
                    unsafe { groups.run(&op, &ty, (from, to), std::ptr::null_mut(), &zero)? };
                    comm.run(&op, &ty, own.bytes(), &mut want)?;
                    assert_eq!(got, want, "{mesh} {:?} over {set:?}", op.kind);
                    theory += 2 * op.sent_bytes(ty.bytes());
                }
            }
            Ok((comm.traffic().bytes() - before, theory))
        });
        let ran = ran.unwrap_or_else(|e| panic!("{mesh}: {e}"));
        // Ids of groups are sent too; permutations send as many bytes on average.
        let (sent, theory): (usize, usize) = ran.iter().fold((0, 0), |(s, t), (a, b)| (s + a, t + b));
        let names: usize = sets.len() * 128 * mesh.ranks() * mesh.ranks();
        assert!(sent >= theory && sent <= theory + names, "{mesh}: {sent} bytes counted, theory says {theory}");
    }
}

/// A rank that waits for a lost rank soon gets an error that names it.
#[test]
fn a_rank_that_goes_ends_the_others_groups() {
    let Some(nccl) = stand_in() else { return };
    let mesh = Mesh::new(&[("a", 3)]).unwrap();
    let begun = Instant::now();
    let errors = std::sync::Mutex::new(Vec::new());
    let ran = thread_transport::spawn(&mesh, |comm| {
        let groups = NcclGroups::new(nccl.clone(), comm.clone());
        groups.join(mesh.axes())?;
        if comm.rank() == 1 {
            return Err(Error::InvalidCall("the disk is full".into()));
        }
        let (op, ty) = (Collective::new(Kind::Sum, mesh.axes()), Type::new(DType::F32, &[4]));
        let (from, mut to) = ([0u8; 16], [0u8; 16]);
        // SAFETY: both are good for their types.
        let mut run = || unsafe {
            groups.run(&op, &ty, (from.as_ptr().cast(), to.as_mut_ptr().cast()), std::ptr::null_mut(), &|_, _| {})
        };
        let (first, second) = (run(), run());
        errors.lock().unwrap().push((first.is_err(), second.err().map(|e| e.to_string())));
        Ok(())
    });
    assert!(ran.is_err() && begun.elapsed() < Duration::from_secs(10));
    let errors = errors.into_inner().unwrap();
    assert_eq!(errors.len(), 2);
    for (first, second) in errors {
        assert!(first, "a sum without one of its ranks");
        let second = second.unwrap();
        assert!(second.contains("lost the connection to rank 1") && second.contains("the disk is full"), "{second}");
    }
}

/// A collective whose group does not exist is an error.
#[test]
fn a_group_that_was_not_made_is_an_error() {
    let Some(nccl) = stand_in() else { return };
    let mesh = Mesh::new(&[("a", 1)]).unwrap();
    let said = thread_transport::spawn(&mesh, |comm| {
        let groups = NcclGroups::new(nccl.clone(), comm);
        let (op, ty) = (Collective::new(Kind::Sum, mesh.axes()), Type::new(DType::F32, &[4]));
        let (from, mut to) = ([0u8; 16], [0u8; 16]);
        // SAFETY: both are good for their types.
        let run = unsafe {
            groups.run(&op, &ty, (from.as_ptr().cast(), to.as_mut_ptr().cast()), std::ptr::null_mut(), &|_, _| {})
        };
        Ok(run.unwrap_err().to_string())
    });
    assert!(said.unwrap()[0].contains("there is no group of"));
}
