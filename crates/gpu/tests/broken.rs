//! Grids with injected faults: the grid interpreter finds each kind of fault.

use compiler::loops::{AccessMode, Buf, Extent, Index, KernelBuilder, LoopKind, Size};
use ir::{Binary, DType};
use tensorloom_gpu::grid::{
    self, AddressSpace, EvalError, GridKernel, GridLimits, Launch, LaunchInfo, Scope, Stmt, View,
};

const ROWS: i64 = 5;
const LENGTH: i64 = 96;

/// Rows through scratch, reversed, with a sum over each: it uses barriers and exchanges.
fn rows() -> compiler::loops::Kernel {
    let mut b = KernelBuilder::new("rows");
    let x = b.buffer(DType::F32, AccessMode::Read);
    let y = b.buffer(DType::F32, AccessMode::Write);
    let s = b.buffer(DType::F32, AccessMode::Scratch(LENGTH as usize));
    b.for_loop(LoopKind::Parallel, Size::Const(ROWS), |b, p| {
        let zero = b.constant_from_f64(DType::F32, 0.0);
        let n = Extent::Exact(Size::Const(LENGTH));
        let sum = b.loop_(LoopKind::Vector, n, &[(zero, Some(Binary::Add))], |b, i, phi| {
            let v = b.load(x, Index::from(i).add_var(p, LENGTH));
            b.store(s, i, v);
            vec![b.binary(Binary::Add, phi[0], v)]
        });
        b.for_loop(LoopKind::Vector, Size::Const(LENGTH), |b, i| {
            let v = b.load(s, Index { offset: LENGTH - 1, ..Index::default() }.add_var(i, -1));
            let w = b.binary(Binary::Mul, v, sum[0]);
            b.store(y, Index::from(i).add_var(p, LENGTH), w);
        });
    });
    b.finish()
}

fn run(g: &GridKernel, views: &[View], regions: usize) -> Result<(), EvalError> {
    let bytes = (ROWS * LENGTH * 4) as usize;
    let mut memory = vec![vec![0u8; bytes]; regions];
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(|m| &mut m[..]).collect();
    // In any order of threads.
    for seed in 0..4 {
        grid::eval(g, &mut slices, views, Launch { sizes: &[], seed })?;
    }
    Ok(())
}

fn views() -> [View; 2] {
    let bytes = (ROWS * LENGTH * 4) as usize;
    [View::whole_region(0, bytes), View::whole_region(1, bytes)]
}

fn lowered(limits: &GridLimits) -> GridKernel {
    let g = grid::lower(&rows(), limits, &LaunchInfo::default()).unwrap();
    assert_eq!(run(&g, &views(), 2), Ok(()), "{g}");
    g
}

/// Calls `f` with every block of statements until it returns true.
fn edit(body: &mut Vec<Stmt>, f: &mut dyn FnMut(&mut Vec<Stmt>) -> bool) -> bool {
    if f(body) {
        return true;
    }
    body.iter_mut().any(|s| match s {
        Stmt::Loop(l) => edit(&mut l.body, f),
        Stmt::If { body, .. } => edit(body, f),
        _ => false,
    })
}

/// The n-th statement that `which` finds, removed or replaced.
fn without(g: &GridKernel, n: usize, which: impl Fn(&Stmt) -> bool) -> Option<GridKernel> {
    let (mut g, mut seen) = (g.clone(), 0);
    let found = edit(&mut g.body, &mut |block| {
        for i in 0..block.len() {
            if which(&block[i]) {
                seen += 1;
                if seen == n + 1 {
                    block.remove(i);
                    return true;
                }
            }
        }
        false
    });
    found.then_some(g)
}

const TARGETS: [GridLimits; 3] = [
    GridLimits::CUDA,
    GridLimits::WEBGPU,
    GridLimits { subgroup_size: Some(8), default_threads: 16, threads: 64, ..GridLimits::CUDA },
];

#[test]
fn every_barrier_is_needed() {
    for limits in TARGETS {
        let g = lowered(&limits);
        let barrier = |s: &Stmt| matches!(s, Stmt::Barrier(_));
        let mut found = 0;
        while let Some(broken) = without(&g, found, barrier) {
            // The error is reported by either thread: one that reads too early, or one that writes too early.
            let wrong = run(&broken, &views(), 2);
            let caught = matches!(wrong, Err(EvalError::Race { .. } | EvalError::Uninitialised { .. }));
            assert!(caught, "{found}: {wrong:?} of {g}");
            found += 1;
        }
        assert!(found > 0, "{g}");
    }
}

#[test]
fn a_barrier_of_too_few_is_found() {
    let mut g = lowered(&GridLimits::CUDA);
    assert!(g.threads > g.subgroup_size && g.teams == 1);
    let weak = edit(&mut g.body, &mut |block| {
        let at = block.iter().position(|s| *s == Stmt::Barrier(Scope::Block));
        at.map(|i| block[i] = Stmt::Barrier(Scope::Subgroup)).is_some()
    });
    assert!(weak && matches!(run(&g, &views(), 2), Err(EvalError::Race { .. })), "{g}");
}

#[test]
fn a_wrong_offset_is_found() {
    for limits in TARGETS {
        let mut g = lowered(&limits);
        // Of every load, because an unrolled row has several.
        edit(&mut g.body, &mut |block| {
            for s in block {
                if let Stmt::Load { buf: Buf(0), index, .. } = s {
                    index.offset += (g.threads as i64) * 4;
                }
            }
            false
        });
        assert!(matches!(run(&g, &views(), 2), Err(EvalError::OutOfBounds { buf: Buf(0), .. })), "{g}");
    }
}

#[test]
fn memory_that_is_read_and_written_behind_the_lowering_is_found() {
    let bytes = (ROWS * LENGTH * 4) as usize;
    // Each lane loads the element that it stores, so in-place execution is correct. With a shifted view, of which the lowering
    // does not know, it is not.
    let g = lowered(&GridLimits::CUDA);
    let shifted = [View { region: 0, offset: 0, bytes: bytes - 16 }, View { region: 0, offset: 16, bytes: bytes - 16 }];
    let found = run(&g, &shifted, 1);
    assert!(matches!(found, Err(EvalError::Race { .. })), "{found:?}");
}

#[test]
fn an_alias_that_was_named_gets_its_barrier() {
    // The first element is read by every lane and written by one.
    let mut b = KernelBuilder::new("alias");
    let x = b.buffer(DType::F32, AccessMode::Read);
    let y = b.buffer(DType::F32, AccessMode::Write);
    let first = b.load(x, 0);
    b.for_loop(LoopKind::Vector, Size::Const(LENGTH), |b, i| {
        let v = b.load(x, i);
        let w = b.binary(Binary::Add, v, first);
        b.store(y, i, w);
    });
    let k = b.finish();
    let same = [views()[0], views()[0]];
    for limits in TARGETS {
        let g = grid::lower(&k, &limits, &LaunchInfo::default()).unwrap();
        assert!(matches!(run(&g, &same, 1), Err(EvalError::Race { .. })), "{g}");
        let given = LaunchInfo { aliases: vec![(Buf(0), Buf(1))], ..LaunchInfo::default() };
        let g = grid::lower(&k, &limits, &given).unwrap();
        assert_eq!(run(&g, &same, 1), Ok(()), "{g}");
    }
}

#[test]
fn two_blocks_that_write_one_place_are_found() {
    for limits in TARGETS {
        let mut g = lowered(&limits);
        edit(&mut g.body, &mut |block| {
            block.iter_mut().any(|s| match s {
                Stmt::Store { buf: Buf(1), index, .. } => {
                    index.terms.retain(|(_, s)| *s == Size::Const(1));
                    true
                }
                _ => false,
            })
        });
        assert!(matches!(run(&g, &views(), 2), Err(EvalError::Race { buf: Buf(1), .. })), "{g}");
    }
}

#[test]
fn threads_at_different_barriers_are_found() {
    // A loop with a barrier whose trip count differs between threads.
    let mut g = lowered(&GridLimits::CUDA);
    let thread = tensorloom_gpu::grid::Reg(0);
    let own = g.regs.len() as u32;
    g.regs.extend([DType::I32; 3]);
    let [var, zero, one] = [own, own + 1, own + 2].map(tensorloom_gpu::grid::Reg);
    let number = |n| grid::Op::Const(ir::Scalar::from_i64(DType::I32, n));
    let body = vec![Stmt::Barrier(Scope::Block)];
    g.body.push(Stmt::Let { dst: zero, op: number(0) });
    g.body.push(Stmt::Let { dst: one, op: number(1) });
    g.body.push(Stmt::Loop(grid::Loop { var, from: zero, to: thread, step: one, carried: vec![], body }));
    assert_eq!(grid::verify(&g), Ok(()));
    assert!(matches!(run(&g, &views(), 2), Err(EvalError::Diverged { .. })));
}

#[test]
fn scratch_that_nothing_wrote_is_found() {
    let g = lowered(&GridLimits::CUDA);
    let scratch = |s: &Stmt| matches!(s, Stmt::Store { buf: Buf(2), .. });
    let broken = without(&g, 0, scratch).unwrap();
    assert!(matches!(run(&broken, &views(), 2), Err(EvalError::Uninitialised { buf: Buf(2), .. })));
}

#[test]
fn accesses_across_alignment_are_found() {
    let given = LaunchInfo { aligned: vec![16; 3], ..LaunchInfo::default() };
    let shifted = [View { offset: 4, bytes: views()[0].bytes - 4, ..views()[0] }, views()[1]];
    let mut b = KernelBuilder::new("copy");
    let (x, y) = (b.buffer(DType::F32, AccessMode::Read), b.buffer(DType::F32, AccessMode::Write));
    b.for_loop(LoopKind::Vector, Size::Const(LENGTH), |b, i| {
        let v = b.load(x, i);
        b.store(y, i, v);
    });
    let limits = GridLimits { saturating_threads: 1, ..GridLimits::CUDA };
    let g = grid::lower(&b.finish(), &limits, &given).unwrap();
    assert_eq!(run(&g, &views(), 2), Ok(()));
    assert!(matches!(run(&g, &shifted, 2), Err(EvalError::Misaligned { .. })), "{g}");
}

#[test]
fn indices_that_do_not_fit_are_wide_or_refused() {
    let mut b = KernelBuilder::new("far");
    let (x, y) = (b.buffer(DType::F32, AccessMode::Read), b.buffer(DType::F32, AccessMode::Write));
    b.for_loop(LoopKind::Parallel, Size::Const(3), |b, p| {
        b.for_loop(LoopKind::Vector, Size::Const(1 << 30), |b, i| {
            let v = b.load(x, Index::from(i).add_var(p, 1 << 30));
            b.store(y, Index::from(i).add_var(p, 1 << 30), v);
        });
    });
    let k = b.finish();
    let wide = grid::lower(&k, &GridLimits::CUDA, &LaunchInfo::default()).unwrap();
    assert!(wide.to_string().contains("b0[i64 "), "{wide}");
    let error = grid::lower(&k, &GridLimits::WEBGPU, &LaunchInfo::default()).unwrap_err().to_string();
    assert!(error.contains("i64") && error.contains("2³¹"), "{error}");
}

#[test]
fn memory_of_a_block_stays_within_its_limit() {
    for shared in [0, 100, 400, 4096] {
        let limits = GridLimits { max_shared_bytes: shared, ..GridLimits::CUDA };
        let g = lowered(&limits);
        let scratch = matches!(g.memory[2].space, AddressSpace::Spill(_));
        assert_eq!(scratch, shared < 400, "{g}");
        assert!(g.shared_bytes() <= shared.max(64), "{g}");
    }
}
