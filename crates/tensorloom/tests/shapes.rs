//! Outside of compiled regions, new shapes need no new machine code.

use std::cell::RefCell;
use std::sync::Arc;
use tensorloom::nn::{CrossEntropy, cross_entropy, gelu};
use tensorloom::{Engine, Tensor};

struct Model {
    embed: Tensor,
    scale: Tensor,
    shift: Tensor,
    qkv: Tensor,
    up: Tensor,
    down: Tensor,
}

const WIDTH: usize = 24;
const VOCAB: usize = 37;

impl Model {
    fn new(e: &Engine) -> Model {
        let w = |shape: &[usize]| (e.randn(shape) * 0.1).requires_grad_();
        Model {
            embed: w(&[VOCAB, WIDTH]),
            scale: w(&[WIDTH]),
            shift: w(&[WIDTH]),
            qkv: w(&[WIDTH, 3 * WIDTH]),
            up: w(&[WIDTH, 4 * WIDTH]),
            down: w(&[4 * WIDTH, WIDTH]),
        }
    }

    fn parameters(&self) -> [&Tensor; 6] {
        [&self.embed, &self.scale, &self.shift, &self.qkv, &self.up, &self.down]
    }

    /// Embedding, norm, attention of one head, a residual block, and the loss over the vocabulary.
    fn loss(&self, ids: &Tensor, targets: &Tensor) -> Tensor {
        let x = self.embed.embedding(ids);
        let n = x.layernorm(&self.scale, &self.shift, 1e-5);
        let parts = n.matmul(&self.qkv);
        let part = |i| parts.narrow(-1, i * WIDTH, WIDTH);
        let scores = part(0).matmul(&part(1).transpose(-1, -2)) * (WIDTH as f64).powf(-0.5);
        let x = &x + scores.softmax().matmul(&part(2));
        // A token sees the one before it: padding and slicing along the sequence.
        let seq = x.size(1);
        let before = Tensor::concat(&[&x.narrow(1, 0, 1) * 0.0, x.narrow(1, 0, seq - 1)].each_ref(), 1);
        let x = &x + gelu(&(&before + &x).matmul(&self.up), true).matmul(&self.down);
        cross_entropy(&x.matmul(&self.embed.t()), targets, CrossEntropy::default())
    }
}

#[test]
fn a_training_step_on_new_shapes_compiles_no_kernel() {
    let e = Engine::new(Arc::new(cpu::Cpu::new(2)));
    let model = Model::new(&e);
    let step = |batch: usize, seq: usize| {
        let ids = e.randint(0, VOCAB as i64, &[batch, seq]);
        let targets = e.randint(0, VOCAB as i64, &[batch, seq]);
        let loss = model.loss(&ids, &targets);
        loss.backward().unwrap();
        tensorloom::no_grad(|| {
            for p in model.parameters() {
                p.sub_(&(p.grad().unwrap() * 0.1)).check().unwrap();
                p.zero_grad();
            }
        });
        e.mark_step().unwrap();
        loss.item::<f32>().unwrap()
    };
    // Every form that a kernel has: short rows, which have a lane each, and longer ones; on one thread and on several.
    for (batch, seq) in [(2, 9), (2, 17), (8, 64), (5, 31), (5, 13)] {
        step(batch, seq);
    }
    let before = e.inspect();
    for i in 0..50 {
        assert!(step(2 + i % 7, 10 + i).is_finite());
    }
    let after = e.inspect();
    assert!(after.kernels > before.kernels + 500, "shapes did change");
    assert_eq!(after.machine_kernels, before.machine_kernels);
}

/// Ops one by one, on shapes of their own.
#[test]
fn ops_on_new_shapes_compile_no_kernel() {
    let e = Engine::new(Arc::new(cpu::Cpu::new(2)));
    let leaves = RefCell::new(Vec::new());
    let x = |s: &[usize]| {
        leaves.borrow_mut().push(e.randn(s).requires_grad_());
        leaves.borrow()[leaves.borrow().len() - 1].clone()
    };
    type Case<'a> = (&'a str, Box<dyn Fn(usize, usize) -> Tensor + 'a>);
    let cases: Vec<Case<'_>> = vec![
        ("unary", Box::new(|n, m| x(&[n, m]).tanh())),
        ("one axis", Box::new(|n, m| x(&[n * m]).exp())),
        ("broadcast a row", Box::new(|n, m| x(&[n, m]) + x(&[m]))),
        ("broadcast a column", Box::new(|n, m| x(&[n, m]) * x(&[n, 1]))),
        ("sum of rows", Box::new(|n, m| x(&[n, m]).sum_axes(&[1], false))),
        ("sum of columns", Box::new(|n, m| x(&[n, m]).sum_axes(&[0], false))),
        ("sum of all", Box::new(|n, m| x(&[n, m]).sum())),
        ("mean", Box::new(|n, m| x(&[n, m]).mean())),
        ("largest", Box::new(|n, m| x(&[n, m]).max_axes(&[1], false))),
        ("softmax", Box::new(|n, m| x(&[n, m]).softmax())),
        ("rmsnorm", Box::new(|n, m| x(&[n, m]).rmsnorm(&x(&[m]), 1e-6))),
        ("layernorm", Box::new(|n, m| x(&[n, m]).layernorm(&x(&[m]), &x(&[m]), 1e-6))),
        ("matmul", Box::new(|n, m| x(&[n, m]).matmul(&x(&[m, n + 1])))),
        ("matmul of a transpose", Box::new(|n, m| x(&[n, m]).matmul(&x(&[n + 1, m]).t()))),
        ("batched matmul", Box::new(|n, m| x(&[3, n, m]).matmul(&x(&[3, m, n])))),
        ("transpose", Box::new(|n, m| x(&[n, m]).t() + x(&[m, n]))),
        ("slice", Box::new(|n, m| x(&[n, m]).narrow(1, 3, m - 5).exp())),
        ("concat", Box::new(|n, m| Tensor::concat(&[&x(&[n, m]), &x(&[n + 2, m])], 0))),
        ("concat in rows", Box::new(|n, m| Tensor::concat(&[&x(&[n, m]), &x(&[n, m + 2])], 1))),
        (
            "pad",
            Box::new(|n, m| {
                tensorloom::np::pad(&x(&[n, m]), &[(1, 2), (3, 4)], tensorloom::np::PadMode::Constant(0.0.into()))
            }),
        ),
        ("embedding", Box::new(|n, m| x(&[n, m]).embedding(&e.randint(0, n as i64, &[m])))),
        ("gather", Box::new(|n, m| x(&[n, m]).gather(1, &e.randint(0, m as i64, &[n, 4])))),
        ("where", Box::new(|n, m| x(&[n, m]).gt(&x(&[n, m])).select(&x(&[n, m]), &x(&[n, m])))),
        ("heads", Box::new(|n, m| x(&[n, m, 2, 4]).permute(&[0, 2, 1, 3]).exp().reshape(&[n as isize, -1]))),
    ];
    let mut grown = Vec::new();
    for (name, f) in &cases {
        let run = |n: usize, m: usize| {
            let y = f(n, m);
            y.square().sum().backward().unwrap();
            e.mark_step().unwrap();
            let made = leaves.take();
            assert!(made.iter().any(|x| x.grad().is_some()));
        };
        // A kernel has a few forms: on one thread or several, rows in parallel or blocks of a long axis, with or without a
        // rest. Sums down a column go in blocks of 32, with a rest of none, one or several, and so do their columns. Sizes small and large, odd and even,
        // wide and tall ask for all of them. Short rows have a lane each, those that are only summed if they are shorter still.
        let few = [(9, 11), (33, 6), (31, 40), (130, 170), (17, 300), (300, 17), (250, 301), (71, 144), (256, 320)];
        let blocks = [(64, 40), (288, 83), (288, 169), (65, 40), (225, 73), (225, 179), (50, 154), (107, 194)];
        for (n, m) in few.into_iter().chain(blocks) {
            run(n, m);
        }
        let before = e.inspect().machine_kernels;
        let mut at = Vec::new();
        for i in 0..50 {
            let (n, m) = (8 + (i * i * 7) % 301, 8 + (i * 131) % 257);
            let last = e.inspect().machine_kernels;
            run(n, m);
            if e.inspect().machine_kernels > last {
                at.push((n, m));
            }
        }
        let new = e.inspect().machine_kernels - before;
        if new > 0 {
            grown.push(format!("{name}: {new} at {at:?}"));
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}
