//! Bindings in memory of the caller's (§11): one block holds everything that runs touch.

mod support;

use std::any::Any;
use std::sync::Arc;
use support::Rng;
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{ArenaClass, Backend, DType, ErrorCode, Memory, Plan, Profile, Program, ProgramBuilder, Stream};

/// A block with a canary behind it.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

struct Block(std::cell::UnsafeCell<Vec<Line>>);
// SAFETY: a test hands the block to one set of bindings, and looks at it between runs alone.
unsafe impl Sync for Block {}

const CANARY: u8 = 0xa5;

impl Block {
    fn new(bytes: usize) -> Arc<Block> {
        Arc::new(Block(vec![Line([CANARY; 64]); bytes.div_ceil(64) + 1].into()))
    }

    fn at(&self) -> *mut u8 {
        // SAFETY: the vector itself isn't touched again, only what it points at.
        unsafe { (*self.0.get()).as_mut_ptr().cast() }
    }

    fn memory(self: &Arc<Block>, bytes: usize) -> tensorloom_vsla::Result<Memory> {
        let owner: Arc<dyn Any + Send + Sync> = self.clone();
        // SAFETY: the block is as large, and nothing else uses it while there are runs.
        unsafe { Memory::from_raw(self.at(), bytes, owner) }
    }

    /// The bytes, with what lies behind them.
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { (*self.0.get()).as_slice().iter().flat_map(|l| &l.0).copied().collect::<Vec<u8>>().leak() }
    }

    /// Overwrites a part between runs.
    fn spoil(&self, range: std::ops::Range<usize>) {
        // SAFETY: inside of the block, between runs.
        unsafe { self.at().add(range.start).write_bytes(0xff, range.len()) }
    }
}

/// Products, a norm, a convolution through transforms and a dropout.
fn program() -> Arc<Program> {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F32, &[20, 48]).unwrap();
    let w = b.param("w", DType::F32, &[48, 64]).unwrap();
    let g = b.param("g", DType::F32, &[64]).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.rmsnorm(y, g, 1e-5).unwrap();
    let y = b.dropout(y, 0.25).unwrap();
    let z = b.conv1d(y, y).unwrap();
    let z = b.softmax(z).unwrap();
    b.output(z).unwrap();
    Arc::new(b.build().unwrap())
}

fn fill(b: &mut tensorloom_vsla::Bindings) {
    let p = b.program().clone();
    let mut rng = Rng(4);
    for v in p.inputs().iter().chain(p.params()) {
        let s = p.signature(*v);
        b.write(*v, &rng.tensor(s.dtype, &s.shape)).unwrap();
    }
    b.seed(11).unwrap();
}

#[test]
fn s11_a_plan_runs_in_one_block_of_the_caller() {
    let program = program();
    for threads in [1, 3] {
        let plan = Plan::new(&program, &Backend::cpu(threads)).unwrap();
        let mut own = plan.bind().unwrap();
        fill(&mut own);
        plan.execute(&mut own, &Stream::default()).unwrap();
        let want = own.read(program.outputs()[0]).unwrap();

        let needed = plan.memory_bytes(false).unwrap();
        let sizes = plan.arena_sizes();
        assert_eq!(needed, sizes.iter().sum::<usize>(), "one block has room for the arenas and for nothing else");
        let block = Block::new(needed);
        let mut bound = plan.bind_in(block.memory(needed).unwrap(), None).unwrap();
        fill(&mut bound);
        // What a run computes inside doesn't matter before it: activations and workspace lie at the end.
        let inner = sizes[ArenaClass::Activations as usize] + sizes[ArenaClass::Workspace as usize];
        for _ in 0..3 {
            block.spoil(needed - inner..needed);
            plan.execute(&mut bound, &Stream::default()).unwrap();
            assert_eq!(bound.read(program.outputs()[0]).unwrap().to_bytes(), want.to_bytes());
        }
        assert!(block.bytes()[needed..].iter().all(|b| *b == CANARY), "a run wrote behind its block");
        // The result is where it was said to be: in the caller's block.
        let bytes = want.to_bytes();
        assert!(block.bytes().windows(bytes.len()).step_by(64).any(|w| w == bytes));
        // With parameters of other bindings the block has none.
        let without = plan.memory_bytes(true).unwrap();
        assert_eq!(without, needed - sizes[ArenaClass::Params as usize]);
        let other = Block::new(without);
        let shared = plan.bind_in(other.memory(without).unwrap(), Some(&bound)).unwrap();
        let mut profile = Profile::new(plan.clone(), shared).unwrap();
        let x = own.read(program.inputs()[0]).unwrap();
        profile.bindings_mut().seed(11).unwrap();
        profile.run(&[&x], &Stream::default()).unwrap();
        assert_eq!(profile.bindings().read(program.outputs()[0]).unwrap().to_bytes(), bytes);
    }
}

#[test]
fn s11_gradients_lie_in_the_callers_block_too() {
    let program = program();
    let back = autograd::build_backward(&program, &BackwardOptions { inputs: true }).unwrap();
    let plan = autograd::plan_backward(&back, &Backend::cpu(2)).unwrap();
    let needed = plan.memory_bytes(false).unwrap();
    let block = Block::new(needed);
    let run = |bound: &mut autograd::AdBindings| {
        fill(bound.values_mut());
        let out = program.outputs()[0];
        let cotangent = Rng(9).tensor(DType::F32, &program.signature(out).shape);
        bound.write_cotangent(out, &cotangent).unwrap();
        autograd::execute_backward_plan(&plan, bound, &Stream::default()).unwrap();
        back.wrt().iter().map(|v| bound.read_gradient(*v).unwrap().to_bytes()).collect::<Vec<_>>()
    };
    let want = run(&mut plan.bind().unwrap());
    let mut bound = plan.bind_in(block.memory(needed).unwrap(), None).unwrap();
    assert_eq!(run(&mut bound), want);
    assert_eq!(run(&mut bound), want);
    assert!(block.bytes()[needed..].iter().all(|b| *b == CANARY));
    for g in &want {
        assert!(block.bytes().windows(g.len()).step_by(64).any(|w| w == g), "a gradient lies elsewhere");
    }
    // Both halves compute in one arena: the block is smaller than two sets of arenas.
    let [first, second] = plan.arena_sizes();
    assert!(needed < first.iter().sum::<usize>() + second.iter().sum::<usize>());
    let owner: Arc<dyn Any + Send + Sync> = block.clone();
    assert_eq!(Arc::strong_count(&block), 3);
    drop((bound, owner));
    assert_eq!(Arc::strong_count(&block), 1, "bindings that are gone let go of their memory");
}

#[test]
fn s11_memory_that_does_not_fit_is_refused_with_the_bytes_needed() {
    let program = program();
    let plan = Plan::new(&program, &Backend::cpu(2)).unwrap();
    let needed = plan.memory_bytes(false).unwrap();
    let block = Block::new(needed + 64);
    let fails = |m: tensorloom_vsla::Result<Memory>| {
        let e = m.and_then(|m| plan.bind_in(m, None)).err().unwrap();
        assert_eq!(e.code(), ErrorCode::InvalidArg);
        e.to_string()
    };
    assert!(fails(block.memory(needed - 1)).contains(&format!("{needed} are needed")));
    assert!(fails(block.memory(0)).contains(&needed.to_string()));
    let owner = || -> Arc<dyn Any + Send + Sync> { block.clone() };
    // SAFETY: inside of the block, and refused.
    assert!(fails(unsafe { Memory::from_raw(block.at().add(8), needed, owner()) }).contains("aligned to 64"));
    // SAFETY: null is refused.
    assert!(fails(unsafe { Memory::from_raw(std::ptr::null_mut(), needed, owner()) }).contains("aligned to 64"));
    let bound = plan.bind().unwrap();
    let back = autograd::build_backward(&program, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, &Backend::cpu(2)).unwrap();
    let needed = plan.memory_bytes(true).unwrap();
    let e = plan.bind_in(block.memory(64).unwrap(), Some(&bound)).err().unwrap().to_string();
    assert!(e.contains(&format!("{needed} are needed")), "{e}");
}
