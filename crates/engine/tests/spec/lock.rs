use super::*;
use compiler::program::Step;
use compiler::{Backend, Bindings, DeviceBuffer, Executable, Program};
use ir::Type;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tensorloom_engine::{EngineOptions, Error};

/// A CPU that calls back or fails when a program runs.
struct Strange {
    cpu: cpu::Cpu,
    hook: Arc<Hook>,
}

#[derive(Default)]
struct Hook {
    fail: AtomicBool,
    /// Programs with an op of this name fail.
    fail_op: Mutex<Option<&'static str>>,
    during: Mutex<Option<Box<dyn Fn() + Send>>>,
}

struct StrangeRun {
    exe: Arc<dyn Executable>,
    hook: Arc<Hook>,
}

impl Backend for Strange {
    fn name(&self) -> String {
        "strange".into()
    }

    fn target(&self) -> &compiler::Target {
        self.cpu.target()
    }

    fn supports_composite(&self, _: &ir::ops::Composite, _: &[Type]) -> bool {
        false
    }

    fn alloc(&self, bytes: usize) -> compiler::Result<Arc<dyn DeviceBuffer>> {
        self.cpu.alloc(bytes)
    }

    fn load(&self, program: Program) -> compiler::Result<Arc<dyn Executable>> {
        Ok(Arc::new(StrangeRun { exe: self.cpu.load(program)?, hook: self.hook.clone() }))
    }
}

impl Executable for StrangeRun {
    fn program(&self) -> &Program {
        self.exe.program()
    }

    fn submit(&self, bindings: &mut Bindings) -> compiler::Result<compiler::Fence> {
        if let Some(f) = &*self.hook.during.lock().unwrap() {
            f();
        }
        let has = |s: &Step, op: &str| matches!(s, Step::Kernel { kernel, .. } if kernel.to_string().contains(op));
        let breaks = |op: &str| self.exe.program().steps.iter().any(|s| has(s, op));
        if self.hook.fail.load(Ordering::Relaxed) || self.hook.fail_op.lock().unwrap().is_some_and(breaks) {
            return Err(compiler::Error::Backend("the device is gone".into()));
        }
        self.exe.submit(bindings)
    }
}

fn strange(strict: bool) -> (Engine, Arc<Hook>) {
    let hook = Arc::new(Hook::default());
    let backend = Strange { cpu: cpu::Cpu::new(1), hook: hook.clone() };
    (Engine::with_backends(vec![Arc::new(backend)], &EngineOptions { strict, ..EngineOptions::default() }), hook)
}

#[test]
fn s6_8_execution_is_not_reentrant() {
    let (e, hook) = strange(false);
    let x = vec1(&e, &[1.0]);
    let y = x.tanh();
    let result = Arc::new(Mutex::new(None));
    let (inner, seen) = (e.clone(), result.clone());
    let x2 = x.clone();
    *hook.during.lock().unwrap() = Some(Box::new(move || {
        let lock = inner.inspect().exec_lock;
        *seen.lock().unwrap() = Some((lock, x2.to_vec::<f32>(), inner.mark_step()));
        x2.dispose();
    }));
    y.item::<f32>().unwrap();
    *hook.during.lock().unwrap() = None;
    let (lock, read, step) = result.lock().unwrap().take().unwrap();
    assert_eq!(lock, Some(("item", 2)), "an owner and a depth");
    assert!(matches!(read, Err(Error::EngineBusy { holder: "item", wanted: "to_vec" })));
    assert!(matches!(step, Err(Error::EngineBusy { .. })));
    assert!(x.check().is_err(), "cleanup works while the lock is held");
    assert_eq!(e.inspect().exec_lock, None);
}

#[test]
fn s6_8_another_thread_waits_or_is_refused_if_strict() {
    for strict in [false, true] {
        let (e, hook) = strange(strict);
        let x = vec1(&e, &[1.0]).tanh();
        let other = vec1(&e, &[1.0]);
        let handle = Arc::new(Mutex::new(None));
        let slot = handle.clone();
        let inner = e.clone();
        *hook.during.lock().unwrap() = Some(Box::new(move || {
            let (other, inner) = (other.clone(), inner.clone());
            let thread = std::thread::spawn(move || other.to_vec::<f32>().and_then(|v| inner.mark_step().map(|()| v)));
            if strict {
                *slot.lock().unwrap() = Some(Ok(thread.join().unwrap()));
            } else {
                *slot.lock().unwrap() = Some(Err(thread));
            }
        }));
        x.item::<f32>().unwrap();
        *hook.during.lock().unwrap() = None;
        let got = match handle.lock().unwrap().take().unwrap() {
            Ok(got) => got,
            Err(thread) => thread.join().unwrap(),
        };
        assert_eq!(got.is_err(), strict, "{got:?}");
    }
}

#[test]
fn s6_7_a_failed_execution_poisons_the_engine_and_cleanup_still_works() {
    let (e, hook) = strange(false);
    let x = vec1(&e, &[1.0]);
    x.add_scalar_(1);
    let y = x.tanh();
    hook.fail.store(true, Ordering::Relaxed);
    let err = y.item::<f32>().unwrap_err();
    assert!(matches!(&err, Error::KernelExecution { .. }), "{err}");
    assert!(err.to_string().contains("lock.rs"), "{err}");
    hook.fail.store(false, Ordering::Relaxed);
    assert!(matches!(y.item::<f32>(), Err(Error::Poisoned(_))));
    assert!(matches!(e.mark_step(), Err(Error::Poisoned(_))));
    assert!(matches!(e.compile(|t: Tensor| t).call(x.clone()), Err(Error::Poisoned(_))));
    let i = e.inspect();
    assert!(i.poisoned && i.tok_global.is_none() && i.pending.is_empty(), "token roots are dropped");
    drop((x, y));
    assert!(e.mark_step().is_err());
    assert_eq!(e.inspect().bases.len(), 0);
}

#[test]
fn s6_7_a_kernel_that_fails_in_the_middle_of_a_plan_leaves_nothing_half_committed() {
    let (e, hook) = strange(false);
    let (x, y) = (vec1(&e, &[1.0]), vec1(&e, &[4.0]));
    e.mark_step().unwrap();
    let held = e.inspect().pools[0].live_bytes;
    // The first store would be fine; the second one's value can't be computed.
    x.add_scalar_(1);
    y.sqrt_();
    *hook.fail_op.lock().unwrap() = Some("sqrt");
    let err = e.mark_step().unwrap_err();
    assert!(matches!(&err, Error::KernelExecution { op, .. } if op == "sqrt"), "{err}");
    assert!(err.to_string().contains("lock.rs"), "{err}");
    let seen = e.inspect();
    assert!(seen.poisoned && seen.pending.is_empty() && seen.exec_lock.is_none());
    assert!(seen.bases.iter().all(|b| b.commit_version == 0), "commits are of whole plans");
    assert!(seen.locs.iter().all(|l| l.version == 0 && !l.has_value));
    assert!(matches!(x.to_vec::<f32>(), Err(Error::Poisoned(_))));
    assert!(matches!(x.sum().backward(), Err(Error::Poisoned(_) | Error::Autograd { .. })));
    drop((x, y));
    assert!(e.mark_step().is_err(), "cleanup runs all the same");
    let seen = e.inspect();
    assert!(seen.bases.is_empty() && seen.locs.is_empty());
    assert!(held > 0 && seen.pools[0].live_bytes == 0, "nothing is leaked: {:?}", seen.pools[0]);
}

#[test]
fn s6_7_the_failed_op_of_a_region_is_found_by_replay() {
    let (e, hook) = strange(false);
    let x = vec1(&e, &[1.0, 2.0]);
    let line = line!() + 2;
    let f = e.compile(|x: Tensor| {
        let y = (&x * 3.0).sqrt();
        y.exp().sum()
    });
    let y = f.call(x).unwrap();
    *hook.fail_op.lock().unwrap() = Some("sqrt");
    let err = y.item::<f32>().unwrap_err();
    let Error::CompiledExecution { op: Some((op, at)), .. } = &err else { panic!("{err}") };
    assert_eq!(op, "sqrt");
    assert!(at.to_string().contains(&format!("lock.rs:{line}")), "{at}");
    assert!(err.to_string().contains("sqrt"), "{err}");
}
