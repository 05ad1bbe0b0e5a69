//! Results of a compiled function that take the memory of its arguments. A process of its own: it counts memory.

use tensorloom::{Arg, Tensor, engine, full, jit, ones, tree};

const N: usize = 1 << 18;
const BYTES: usize = 4 * N;

type State = (Tensor, Vec<Tensor>);

fn step((state, x): (State, Tensor)) -> (State, Tensor) {
    let (w, moments) = state;
    let g = &w * 0.5 - &x;
    let moments: Vec<Tensor> = moments.iter().map(|m| m * 0.9 + &g * 0.1).collect();
    let loss = (&g * &g).sum();
    ((w - &moments[0] * 0.1, moments), loss)
}

fn start() -> State {
    (full(&[N], 3.0), vec![full(&[N], 0.0), full(&[N], 1.0)])
}

/// The most memory that steps needed beyond what there was before them, and the state afterwards.
fn run(step: &dyn Fn(State, Tensor) -> (State, Tensor)) -> (usize, Vec<Vec<f32>>) {
    let (mut state, x) = (start(), ones(&[N]));
    state = step(state, x.clone()).0;
    let mut most = 0;
    for _ in 0..5 {
        let (next, loss) = step(state, x.clone());
        assert!(loss.item::<f32>().unwrap().is_finite());
        most = most.max(engine().inspect().pools[0].live_bytes);
        state = next;
    }
    (most, tree::leaves(&state).iter().map(|t| t.to_vec().unwrap()).collect())
}

/// One after the other: both count the memory of one engine.
#[test]
fn donated_and_dropped_memory_is_used_again() {
    state_is_updated_in_place_if_nobody_else_holds_it();
    calls_in_a_loop_use_memory_again();
}

fn state_is_updated_in_place_if_nobody_else_holds_it() {
    let plain = jit(step);
    let (_, expected) = run(&|s, x| plain.call((s, x)));
    let donating = jit(step).donate(Arg::<0>);
    let (bytes, got) = run(&|s, x| donating.call((s, x)));
    assert_eq!(got, expected, "the same bits");
    // Three of state and the operand; results have no memory of their own.
    assert!(bytes < 4 * BYTES + BYTES / 2, "{bytes} bytes live");
    assert_eq!(donating.stats().misses, 1);

    // Somebody holds the old state: it keeps its value.
    let kept = start();
    let held = tree::map(|t| t.clone(), &kept);
    let (new, _) = donating.call((kept, ones(&[N])));
    assert_eq!(held.0.to_vec::<f32>().unwrap(), vec![3.0; N]);
    assert_eq!(held.1[1].to_vec::<f32>().unwrap(), vec![1.0; N]);
    assert_eq!(
        new.0.to_vec::<f32>().unwrap()[..2],
        plain.call((start(), ones(&[N]))).0.0.to_vec::<f32>().unwrap()[..2]
    );

    // One tensor given twice is no memory to write over.
    let twice = jit(|(a, b): (Tensor, Tensor)| (&a * 2.0, &b * 3.0)).donate(Arg::<0>);
    let x = ones(&[N]);
    x.to_vec::<f32>().unwrap();
    let (a, b) = twice.call((x.clone(), x));
    assert_eq!((a.to_vec::<f32>().unwrap()[7], b.to_vec::<f32>().unwrap()[7]), (2.0, 3.0));
}

fn calls_in_a_loop_use_memory_again() {
    let f = jit(|x: Tensor| &x * 0.5 + 1.0);
    let mut x = ones(&[N]);
    let before = engine().inspect().pools[0].live_bytes;
    for _ in 0..200 {
        x = f.call(x);
    }
    let after = engine().inspect().pools[0];
    assert!(after.live_bytes <= before + 3 * BYTES, "{} then {}", before, after.live_bytes);
    assert!((x.mean().item::<f32>().unwrap() - 2.0).abs() < 1e-6);
}
