//! Runs that are stopped between two of their steps.

use super::*;
use compiler::interrupt;
use ir::ops::Scan;
use ir::{Builder, Graph, GraphBuilder, Loc};
use std::cell::Cell;
use tensorloom_engine::CompileOptions;

/// x · x, again and again.
fn squares(length: usize) -> Graph {
    let mut inner = Builder::new();
    let x = inner.input(F, &[2, 2]);
    let y = inner.matmul(x, x).unwrap();
    let inner = inner.finish(&[y]);
    let mut b = Builder::new();
    let x = b.input(F, &[2, 2]);
    let outs = b.emit(Scan::over(0, 1, length, inner).into(), &[x]).unwrap();
    b.finish(&outs)
}

const HOURS: usize = i32::MAX as usize;

thread_local! {
    static STOP: Cell<bool> = const { Cell::new(false) };
}

fn stop() -> bool {
    STOP.get()
}

#[test]
fn a_call_that_is_interrupted_stops_nobody() {
    let e = engine();
    let _asking = interrupt::set_interrupt_check(stop);
    for donate in [&[][..], &[(0, 0)]] {
        let long = e.program(squares(HOURS), donate).unwrap();
        let x = e.tensor(&[1.0f32, 1.0, 0.0, 1.0], &[2, 2]);
        e.force(&x).unwrap();
        STOP.set(true);
        let y = &long.call(&Loc::Unknown, [x.clone()].into_iter().collect())[0];
        let error = y.check().unwrap_err();
        assert!(error.is_interrupted() && error.to_string().contains("interrupted"), "{error}");
        // An argument that somebody holds is whole, and one that was given up is nobody's.
        is(&x.reshape(&[4]), &[1.0, 1.0, 0.0, 1.0]);
        let given = long.call(&Loc::Unknown, [x].into_iter().collect());
        assert!(given[0].check().unwrap_err().is_interrupted());
        STOP.set(false);
        let x = e.tensor(&[1.0f32, 1.0, 0.0, 1.0], &[2, 2]);
        let short = e.program(squares(3), donate).unwrap();
        is(&short.call(&Loc::Unknown, [x].into_iter().collect())[0].reshape(&[4]), &[1.0, 8.0, 0.0, 1.0]);
        assert!(!e.inspect().poisoned);
    }
}

#[test]
fn what_was_pending_still_is() {
    let e = engine();
    let _asking = interrupt::set_interrupt_check(stop);
    let long = e.program(squares(2_000_000), &[]).unwrap();
    let x = e.tensor(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2]) + 0.0;
    let y = long.record(&Loc::Unknown, [x].into_iter().collect()).swap_remove(0);
    let sum = (&y + 1.0).sum();
    for _ in 0..2 {
        STOP.set(true);
        let error = sum.item::<f32>().unwrap_err();
        assert!(error.is_interrupted(), "{error}");
        STOP.set(false);
        assert!(!e.inspect().poisoned);
    }
    assert_eq!(sum.item::<f32>().unwrap(), 6.0);
}

#[test]
fn what_writes_over_state_goes_on_to_its_end() {
    let e = engine();
    let _asking = interrupt::set_interrupt_check(stop);
    for in_place in [true, false] {
        STOP.set(false);
        let state = e.tensor(&[0.0f32; 4096], &[4096]);
        state.add_scalar_(1.0);
        e.mark_step().unwrap();
        let options = CompileOptions { in_place, ..CompileOptions::default() };
        e.compile_with(options, |()| drop(state.mul_scalar_(2.0))).call(()).unwrap();
        // Until a run asks again.
        std::thread::sleep(std::time::Duration::from_millis(60));
        STOP.set(true);
        let ended = e.mark_step();
        assert_eq!(ended.is_ok(), in_place, "{ended:?}");
        assert!(ended.is_ok() || ended.is_err_and(|e| e.is_interrupted()));
        STOP.set(false);
        assert_eq!(state.sum().item::<f32>().unwrap(), 8192.0, "once, whenever");
    }
}
