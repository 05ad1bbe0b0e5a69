//! Gradients of contractions with all axis orders.

mod checks;

use checks::*;
use ir::ops::Dot;
use ir::{GraphBuilder, Op, Shape};

/// `(batch, free, contracted)` of an operand in each order that a permutation describes.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn gradients_of_every_order_of_axes() {
    for left in ORDERS {
        for right in ORDERS {
            let shape = |order: [usize; 3], free: usize| order.map(|k| [2, free, 3][k]);
            let place =
                |order: [usize; 3], k: usize| -> Shape { order.iter().position(|o| *o == k).into_iter().collect() };
            let dot = Dot {
                lhs_batch: place(left, 0),
                rhs_batch: place(right, 0),
                lhs_contract: place(left, 2),
                rhs_contract: place(right, 2),
                ..Dot::matmul(F)
            };
            let x = [random(&shape(left, 4), 1), random(&shape(right, 5), 2)];
            let g = graph(&[&x[0], &x[1]], |b, v| Ok(vec![b.one(dot.into(), v)?]));
            let grads = tensorloom_transform::grad(&loss(&g), &[0, 1]).unwrap();
            // Gradients are permuted only if the batch axes are not first.
            let permuted = grads.without_dead_nodes().nodes().iter().filter(|n| matches!(n.op, Op::Permute(_))).count();
            let inner = [left, right].iter().filter(|order| order[0] != 0).count();
            assert_eq!(permuted, inner, "{left:?} {right:?}\n{grads}");
            check_grads(&g, &x, &[0, 1], 1e-6);
        }
    }
}
