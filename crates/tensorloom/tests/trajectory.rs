//! Twenty training steps of a small transformer: op by op, as one region, checkpointed, and in PyTorch
//! (`golden/programs/trajectory.py`).

use std::sync::Arc;
use tensorloom::nn::{CrossEntropy, Embedding, Layer, LayerNorm, Linear, Module, MultiheadAttention, StateDict};
use tensorloom::optimizer::{AdamW, OneCycleLr, Optimizer, Scheduler};
use tensorloom::{Element, Engine, Literal, Tensor, compile, engine, nn};

const VOCAB: usize = 13;
const WIDTH: usize = 8;
const HEADS: usize = 2;
const HIDDEN: usize = 16;
const SEQ: usize = 6;
const STEPS: usize = 20;

#[derive(Module)]
struct Block {
    norm1: LayerNorm,
    norm2: LayerNorm,
    attn: MultiheadAttention,
    up: Linear,
    down: Linear,
}

impl Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.norm1.forward(x);
        let x = x + self.attn.attend(&y, &y, &y, true);
        let y = nn::gelu(&self.up.forward(&self.norm2.forward(&x)), false);
        x + self.down.forward(&y)
    }
}

#[derive(Module)]
struct Model {
    embed: Embedding,
    position: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Model {
    fn new() -> Model {
        let block = |_| Block {
            norm1: LayerNorm::new(WIDTH),
            norm2: LayerNorm::new(WIDTH),
            attn: MultiheadAttention::new(WIDTH, HEADS),
            up: Linear::new(WIDTH, HIDDEN),
            down: Linear::new(HIDDEN, WIDTH),
        };
        Model {
            embed: Embedding::new(VOCAB, WIDTH),
            position: Embedding::new(SEQ, WIDTH),
            blocks: (0..2).map(block).collect(),
            norm: LayerNorm::new(WIDTH),
            head: Linear::without_bias(WIDTH, VOCAB),
        }
    }

    fn loss(&self, ids: &Tensor, labels: &Tensor, checkpoint: bool) -> Tensor {
        let places = engine().arange(tensorloom::DType::I64, SEQ);
        let mut x = self.embed.forward(ids) + self.position.forward(&places);
        for block in &self.blocks {
            x = match checkpoint {
                true => engine().checkpoint(&x, |x: Tensor| block.forward(&x)).unwrap(),
                false => block.forward(&x),
            };
        }
        let logits = self.head.forward(&self.norm.forward(&x));
        nn::cross_entropy(&logits, labels, CrossEntropy::default())
    }
}

#[derive(Default)]
struct Golden {
    params: StateDict,
    finals: StateDict,
    ids: Option<Literal>,
    labels: Option<Literal>,
    lrs: Vec<f64>,
    losses: Vec<f32>,
}

fn literal<T: Element>(shape: &str, hex: &str) -> Literal {
    let shape: Vec<usize> = shape.trim_matches(['[', ']']).split(',').map(|n| n.parse().unwrap()).collect();
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    Literal::from_bytes(tensorloom::Type::new(T::DTYPE, &shape), &bytes).unwrap()
}

fn golden() -> Golden {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/programs/trajectory.golden");
    let mut g = Golden::default();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["param", name, shape, hex] => drop(g.params.insert(name.into(), literal::<f32>(shape, hex))),
            ["final", name, shape, hex] => drop(g.finals.insert(name.into(), literal::<f32>(shape, hex))),
            ["ids", shape, hex] => g.ids = Some(literal::<i64>(shape, hex)),
            ["labels", shape, hex] => g.labels = Some(literal::<i64>(shape, hex)),
            ["step", lr, loss] => {
                g.lrs.push(lr.parse().unwrap());
                g.losses.push(loss.parse().unwrap());
            }
            _ => panic!("{line}"),
        }
    }
    g
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Lazy,
    ByOp,
    Compiled,
    Checkpointed,
    CheckpointedInRegion,
}

/// The losses and the parameters at the end.
fn train(how: How, g: &Golden) -> (Vec<f32>, StateDict) {
    let model = Model::new();
    model.load_state_dict(&g.params).unwrap();
    let optimizer = AdamW::new(model.parameters(), 3e-2).weight_decay(0.05);
    let cycle = OneCycleLr { steps: STEPS as u64, up: 0.3, div: 25.0, final_div: 1e4 };
    let mut scheduler = Scheduler::new(&optimizer, cycle);
    let checkpoint = matches!(how, How::Checkpointed | How::CheckpointedInRegion);
    let step = |(ids, labels): (Tensor, Tensor)| {
        optimizer.zero_grad();
        let loss = model.loss(&ids, &labels, checkpoint);
        loss.backward().unwrap();
        if how == How::ByOp {
            optimizer.step_by_op().unwrap()
        } else {
            optimizer.step().unwrap()
        }
        loss
    };
    let region = compile(&step);
    let (ids, labels) = (engine().literal(g.ids.as_ref().unwrap()), engine().literal(g.labels.as_ref().unwrap()));
    let mut losses = Vec::new();
    for i in 0..STEPS {
        assert!((optimizer.lrs()[0] / g.lrs[i] - 1.0).abs() < 1e-12, "the rate of step {i}");
        let batch = (ids.index(0, i as isize), labels.index(0, i as isize));
        let loss = match how {
            How::Lazy | How::ByOp | How::Checkpointed => step(batch),
            _ => region.call(batch).unwrap(),
        };
        losses.push(loss.item::<f32>().unwrap());
        scheduler.step(&optimizer);
        engine().mark_step().unwrap();
    }
    (losses, model.state_dict().unwrap())
}

#[test]
fn four_ways_of_training_are_one() {
    let g = golden();
    let mut all = Vec::new();
    for how in [How::Lazy, How::ByOp, How::Compiled, How::Checkpointed, How::CheckpointedInRegion] {
        let (losses, finals) = train(how, &g);
        for (i, (a, b)) in losses.iter().zip(&g.losses).enumerate() {
            assert!((a / b - 1.0).abs() < 1e-4, "{how:?}, step {i}: {a}, PyTorch {b}");
        }
        // A bias of keys moves all scores of a query alike: its gradient is zero but for rounding, which Adam makes large.
        for (name, expected) in g.finals.iter().filter(|(name, _)| !name.ends_with("in_proj_bias")) {
            let (x, y) = (finals[name].to_vec::<f32>(), expected.to_vec::<f32>());
            let off = x.iter().zip(&y).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-3, "{how:?}, {name} is off by {off}");
        }
        let (again, finals_again) = train(how, &g);
        assert_eq!(losses, again, "{how:?} is not the same twice");
        assert!(finals == finals_again, "{how:?} is not the same twice");
        all.push(losses);
    }
    let worst = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f32::max);
    for other in &all[1..] {
        assert!(worst(&all[0], other) < 1e-4);
    }
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let model = Linear::new(2, 2);
    let before = model.state_dict().unwrap();
    let mut wrong = before.clone();
    wrong.insert("weight".into(), Literal::new(&[3], &[1.0f32; 3]));
    assert!(model.load_state_dict(&wrong).unwrap_err().to_string().contains("weight"));
    let mut more = before.clone();
    more.insert("extra".into(), Literal::new(&[], &[1.0f32]));
    assert!(model.load_state_dict(&more).is_err());
    let mut less = before.clone();
    less.remove("bias");
    assert!(model.load_state_dict(&less).is_err());
    assert!(model.state_dict().unwrap() == before);
}

#[test]
fn a_thousand_steps_need_no_more_memory_than_ten() {
    let e = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let w = (e.randn(&[8, 4]) * 0.1).requires_grad_();
    let c = e.zeros(tensorloom::DType::F32, &[4]).requires_grad_();
    let optimizer = AdamW::new(vec![w.clone(), c.clone()], 1e-2);
    let x = e.randn(&[16, 8]);
    let y = e.randn(&[16, 4]);
    let mut first = None;
    for i in 0..1000 {
        optimizer.zero_grad();
        let out = (x.matmul(&w) + &c).tanh().dropout(0.1);
        let loss = nn::mse_loss(&out, &y);
        loss.backward().unwrap();
        optimizer.step().unwrap();
        if i % 3 == 0 {
            assert!(loss.item::<f32>().unwrap().is_finite());
        }
        drop((out, loss));
        e.mark_step().unwrap();
        if i == 9 {
            first = Some(e.inspect());
        }
    }
    let (first, last) = (first.unwrap(), e.inspect());
    let sizes = |i: &engine::Inspection| (i.bases.len(), i.locs.len(), i.pending.len(), i.kernels);
    assert_eq!(sizes(&first), sizes(&last));
    assert_eq!(first.pools[0].live_bytes, last.pools[0].live_bytes);
    assert_eq!(first.pools[0].peak_bytes, last.pools[0].peak_bytes);
    assert_eq!(first.pools[0].free_bytes, last.pools[0].free_bytes);
    assert_eq!(first.pools[0].allocations, last.pools[0].allocations, "later steps allocate nothing");
    optimizer.zero_grad();
    drop((optimizer, w, c, x, y));
    e.mark_step().unwrap();
    let leaks = e.live_tensors();
    assert!(leaks.is_empty(), "{leaks:?}");
}
