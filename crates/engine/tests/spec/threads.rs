//! Several threads on one engine and on two; what goes wrong on one leaves the others alone.

use crate::{F, engine, is, vec1};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use tensorloom_engine::{Engine, EngineOptions, Error, no_grad};

/// A little of everything; gives what can be checked.
fn work(e: &Engine, seed: usize, rounds: usize) -> f32 {
    let w = e.full(F, &[4, 4], 0.25).requires_grad_();
    let mut total = 0.0;
    for i in 0..rounds {
        let x = e.full(F, &[4, 4], seed as f64 + 1.0);
        let y = x.matmul(&w).tanh();
        let loss = (&y * &y).mean();
        loss.backward().unwrap();
        no_grad(|| {
            w.sub_(&(0.01 * w.grad().unwrap()));
            w.zero_grad();
        });
        if i % 5 == 0 {
            total += loss.item::<f32>().unwrap();
        }
    }
    total
}

#[test]
fn threads_share_an_engine_and_see_their_own_program() {
    let e = engine();
    let alone: Vec<f32> = (0..4).map(|s| work(&engine(), s, 20)).collect();
    let together: Vec<f32> = thread::scope(|s| {
        let all: Vec<_> = (0..4)
            .map(|i| {
                s.spawn({
                    let e = e.clone();
                    move || work(&e, i, 20)
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
    e.mark_step().unwrap();
    let left = e.live_tensors();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn two_engines_run_concurrently() {
    let (a, b) = (engine(), engine());
    let expected = work(&engine(), 1, 20);
    thread::scope(|s| {
        for e in [&a, &b, &a, &b] {
            s.spawn(move || assert_eq!(work(e, 1, 20), expected));
        }
    });
    // A tensor of one is refused by the other.
    let mixed = vec1(&a, &[1.0]) + vec1(&b, &[1.0]);
    assert!(mixed.to_vec::<f32>().unwrap_err().to_string().contains("two engines"));
}

#[test]
fn dropping_on_another_thread_while_forcing_is_safe() {
    let e = engine();
    let stop = Arc::new(AtomicBool::new(false));
    let (send, receive) = std::sync::mpsc::channel();
    let dropper = thread::spawn({
        let stop = stop.clone();
        move || {
            let mut n = 0;
            for t in receive {
                drop(t);
                n += 1;
                if stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
            n
        }
    });
    let x = vec1(&e, &[1.0, 2.0]);
    for i in 0..300 {
        let y = (&x + i as f64).exp();
        let z = y.copy();
        z.mul_scalar_(0.5);
        send.send(y).unwrap();
        send.send(z.clone()).unwrap();
        assert!(z.sum().item::<f32>().unwrap() > 0.0);
    }
    stop.store(true, Ordering::Relaxed);
    drop(send);
    assert_eq!(dropper.join().unwrap(), 600);
    drop(x);
    e.mark_step().unwrap();
    assert!(e.live_tensors().is_empty());
    assert_eq!(e.inspect().pools[0].live_bytes, 0);
}

#[test]
fn a_strict_engine_refuses_a_second_thread_and_stays_usable() {
    let options = EngineOptions { strict: true, ..EngineOptions::default() };
    let e = Engine::with_backends(vec![Arc::new(cpu::Cpu::new(1))], &options);
    let big = e.full(F, &[256, 256], 0.001);
    let barrier = Barrier::new(2);
    let refused = thread::scope(|s| {
        let other = s.spawn(|| {
            barrier.wait();
            let mut refused = 0;
            for _ in 0..2000 {
                match vec1(&e, &[1.0]).to_vec::<f32>() {
                    Err(Error::EngineBusy { .. }) => refused += 1,
                    r => assert_eq!(r.unwrap(), [1.0]),
                }
            }
            refused
        });
        barrier.wait();
        for _ in 0..20 {
            let mut y = big.clone();
            for _ in 0..4 {
                y = y.matmul(&big);
            }
            match y.sum().item::<f32>() {
                Ok(_) | Err(Error::EngineBusy { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
        other.join().unwrap()
    });
    let _: usize = refused;
    is(&vec1(&e, &[3.0]), &[3.0]);
}
