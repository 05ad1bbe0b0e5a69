//! Random PyTorch programs, statement by statement: values, gradients and refusals. `golden/programs/make.py` explains the
//! form.

use std::collections::BTreeMap;
use std::sync::Arc;
use tensorloom::nn::Layer;
use tensorloom::{BackwardOptions, Engine, ScatterReduce, Tensor, nn, no_grad, np};

struct Machine {
    engine: Engine,
    tensors: BTreeMap<String, Tensor>,
}

fn shape_of(text: &str) -> Vec<usize> {
    list(text).into_iter().map(|n| n as usize).collect()
}

fn list(text: &str) -> Vec<isize> {
    let inside = text.trim_matches(['[', ']']);
    inside.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    if hex == "-" {
        return Vec::new();
    }
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn floats(hex: &str) -> Vec<f32> {
    bytes(hex).chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// A body that is checkpointed.
fn body(k: usize, x: &Tensor, y: &Tensor) -> Tensor {
    match k {
        0 => (x * y).tanh() + x,
        1 => x.sigmoid() * y.cos(),
        _ => (x * y).softmax() - y,
    }
}

impl Machine {
    fn t(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    fn apply(&self, words: &[&str]) -> Tensor {
        let x = self.t(words[1]);
        let t = |i: usize| self.t(words[i]);
        let int = |i: usize| words[i].parse::<isize>().unwrap();
        let num = |i: usize| words[i].parse::<f64>().unwrap();
        let flag = |i: usize| words[i] == "1";
        match words[0] {
            "tanh" => x.tanh(),
            "sigmoid" => x.sigmoid(),
            "sin" => x.sin(),
            "cos" => x.cos(),
            "relu" => x.relu(),
            "neg" => -x,
            "abs" => x.abs(),
            "square" => x.square(),
            "silu" => x.silu(),
            "gelu" => nn::gelu(x, false),
            "softmax" => x.softmax(),
            "log_softmax" => x.log_softmax(),
            "layernorm" => x.layernorm(t(2), t(3), 1e-5),
            "rmsnorm" => x.rmsnorm(t(2), 1e-6),
            "scale" => x * num(2),
            "offset" => x + num(2),
            "rsub" => num(2) - x,
            "clamp" => x.clamp(num(2), num(3)),
            "add" => x + t(2),
            "sub" => x - t(2),
            "mul" => x * t(2),
            "div" => x / (t(2).sigmoid() + 0.5),
            "maximum" => x.maximum(t(2)),
            "minimum" => x.minimum(t(2)),
            "matmul" => x.matmul(t(2)),
            "where" => x.gt(t(2)).select(x, &(t(2) * 2.0)),
            "transpose" => x.transpose(int(2), int(3)),
            "reshape" => x.reshape(&list(words[2])),
            "view" => x.view(&list(words[2])),
            "slice" => x.slice(int(2), int(3), int(4), int(5) as usize),
            "index" => x.index(int(2), int(3)),
            "unsqueeze" => x.unsqueeze(int(2)),
            "expand" => x.expand(&list(words[2])),
            "flip" => x.flip(&list(words[2])),
            "copy" => x.copy(),
            "detach" => x.detach(),
            "contiguous" => x.contiguous(),
            "sum" => x.sum(),
            "mean" => x.mean(),
            "sum_axes" => x.sum_axes(&list(words[2]), flag(3)),
            "mean_axes" => x.mean_axes(&list(words[2]), flag(3)),
            "max_axes" => x.max_axes(&list(words[2]), flag(3)),
            "min_axes" => x.min_axes(&list(words[2]), flag(3)),
            "var_axes" => x.var_axes(&list(words[2]), int(3) as usize, flag(4)),
            "std_axes" => x.std_axes(&list(words[2]), int(3) as usize, flag(4)),
            "logsumexp" => x.logsumexp(&list(words[2]), flag(3)),
            "cumsum" => x.cumsum(int(2)),
            "cumprod" => x.cumprod(int(2)),
            "sort" => x.sort(int(2), flag(3)).0,
            "topk" => x.topk(int(2) as usize, int(3), flag(4)).0,
            "gather" => x.gather(int(2), t(3)),
            "index_select" => x.index_select(int(2), t(3)),
            "scatter" => x.scatter(int(2), t(3), t(4)),
            "scatter_add" => x.scatter_add(int(2), t(3), t(4)),
            "scatter_reduce" => {
                use ScatterReduce::*;
                x.scatter_reduce(int(2), t(3), t(4), [Sum, Prod, Mean, Max, Min][int(5) as usize], flag(6))
            }
            "index_add" => x.index_add(int(2), t(3), t(4)),
            "index_copy" => x.index_copy(int(2), t(3), t(4)),
            "index_fill" => x.index_fill(int(2), t(3), num(4)),
            "masked_fill" => x.masked_fill(&np::greater(t(2), 0.0), num(3)),
            "tril" => x.tril(int(2) as i64),
            "triu" => x.triu(int(2) as i64),
            "dropout" => x.dropout_mask(&np::greater(t(2), 0.0), num(3)),
            "concat" => Tensor::concat(&[x, t(2)], int(3)),
            "stack" => Tensor::stack(&[x, t(2)], int(3)),
            "checkpoint" => {
                let args = (x.clone(), t(2).clone());
                let k = int(3) as usize;
                self.engine.checkpoint(&args, |(x, y): (Tensor, Tensor)| body(k, &x, &y)).unwrap()
            }
            "conv1d" | "conv2d" => {
                let size = |i: usize| int(i) as usize;
                let s = nn::Sliding { stride: size(4), padding: size(5), dilation: size(6), groups: size(7) };
                let f = if words[0] == "conv1d" { nn::conv1d } else { nn::conv2d };
                f(x, t(2), Some(t(3)), s)
            }
            "max_pool1d" | "max_pool2d" | "avg_pool1d" | "avg_pool2d" => {
                let size = |i: usize| int(i) as usize;
                let p = nn::PoolOptions { window: size(2), stride: size(3), padding: size(4) };
                match words[0] {
                    "max_pool1d" => nn::max_pool1d(x, p),
                    "max_pool2d" => nn::max_pool2d(x, p),
                    "avg_pool1d" => nn::avg_pool1d(x, p),
                    _ => nn::avg_pool2d(x, p),
                }
            }
            "group_norm" => {
                let (weight, bias, groups) = (t(2).clone(), t(3).clone(), int(4) as usize);
                nn::GroupNorm { weight, bias, groups, eps: 1e-5 }.forward(x)
            }
            "embedding" => x.embedding(t(2)),
            "cross_entropy" => {
                let options = nn::CrossEntropy { label_smoothing: num(3), ..nn::CrossEntropy::default() };
                nn::cross_entropy(x, t(2), options)
            }
            "cross_entropy_ignore" => {
                let options = nn::CrossEntropy { ignore_index: Some(int(3) as i64), ..nn::CrossEntropy::default() };
                nn::cross_entropy(x, t(2), options)
            }
            "nll_loss" => nn::nll_loss(x, t(2)),
            "mse_loss" => nn::mse_loss(x, t(2)),
            "l1_loss" => nn::l1_loss(x, t(2)),
            "smooth_l1_loss" => nn::smooth_l1_loss(x, t(2), num(3)),
            "huber_loss" => nn::huber_loss(x, t(2), num(3)),
            "bce_with_logits" => nn::binary_cross_entropy_with_logits(x, &t(2).sigmoid()),
            "bce" => nn::binary_cross_entropy(&x.sigmoid(), &t(2).sigmoid()),
            "kl_div" => nn::kl_div(x, &t(2).softmax()),
            "cosine_similarity" => nn::cosine_similarity(x, t(2), -1, 1e-8),
            "prod" => x.prod(),
            "add_" => x.add_(t(2)),
            "sub_" => x.sub_(t(2)),
            "mul_" => x.mul_(t(2)),
            "div_" => x.div_(t(2)),
            "copy_" => x.copy_(t(2)),
            "zero_" => x.zero_(),
            "fill_" => x.fill_(num(2)),
            "add_scalar_" => x.add_scalar_(num(2)),
            "mul_scalar_" => x.mul_scalar_(num(2)),
            "tanh_" => x.tanh_(),
            "sigmoid_" => x.sigmoid_(),
            "sin_" => x.sin_(),
            "neg_" => x.neg_(),
            "relu_" => x.relu_(),
            "square_" => x.square_(),
            "clamp_" => x.clamp_(num(2), num(3)),
            "addcmul_" => x.addcmul_(t(2), t(3), num(4)),
            "addcdiv_" => x.addcdiv_(t(2), &(x.detach().sigmoid() + 0.5), num(3)),
            "lerp_" => x.lerp_(t(2), num(3)),
            "masked_fill_" => x.masked_fill_(&np::greater(t(2), 0.0), num(3)),
            "scatter_add_" => x.scatter_add_(int(2), t(3), t(4)),
            "scatter_" => x.scatter_(int(2), t(3), t(4)),
            "index_add_" => x.index_add_(int(2), t(3), t(4)),
            "index_copy_" => x.index_copy_(int(2), t(3), t(4)),
            op => panic!("no op {op}"),
        }
    }

    /// Runs a statement: `name = op args`, an in-place op, or backward.
    fn statement(&mut self, words: &[&str]) -> tensorloom::Result<()> {
        match words {
            ["nograd", rest @ ..] => no_grad(|| self.statement(rest)),
            ["backward", name] => self.t(name).backward(),
            ["retain", name] => {
                self.t(name).backward_with(BackwardOptions { retain_graph: true, ..BackwardOptions::default() })
            }
            ["zero", name] => {
                self.t(name).zero_grad();
                Ok(())
            }
            [name, "=", op @ ..] => {
                let y = self.apply(op);
                y.check()?;
                self.tensors.insert(name.to_string(), y);
                Ok(())
            }
            op => self.apply(op).check(),
        }
    }

    fn compare(&self, what: &str, t: &Tensor, shape: &str, hex: &str) -> Result<(), String> {
        let expected = floats(hex);
        let got = t.to_vec::<f32>().map_err(|e| format!("{what}: {e}"))?;
        if t.shape() != shape_of(shape) {
            return Err(format!("{what}: shape {:?}, PyTorch {shape}", t.shape()));
        }
        let top = expected.iter().fold(1f32, |m, x| m.max(x.abs()));
        for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
            if (a - b).abs() > 2e-5 * b.abs() + 4e-6 * top || a.is_nan() {
                return Err(format!("{what}[{i}]: {a}, PyTorch {b}\n  {got:?}\n  {expected:?}"));
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["program", _] => Ok(()),
            [kind @ ("leaf" | "data"), name, shape, hex] => {
                let t = self.engine.tensor(&floats(hex), &shape_of(shape));
                let t = if *kind == "leaf" { t.requires_grad_() } else { t };
                self.tensors.insert(name.to_string(), t);
                Ok(())
            }
            ["index", name, shape, hex] => {
                let data: Vec<i64> = bytes(hex).chunks(8).map(|c| i64::from_le_bytes(c.try_into().unwrap())).collect();
                self.tensors.insert(name.to_string(), self.engine.tensor(&data, &shape_of(shape)));
                Ok(())
            }
            ["read" | "value", name, shape, hex] => {
                self.compare(line.split('[').next().unwrap(), self.t(name), shape, hex)
            }
            ["grad", name, "none"] => match self.t(name).grad() {
                None => Ok(()),
                Some(_) => Err(format!("{name} has a gradient, in PyTorch it has none")),
            },
            ["grad", name, shape, hex] => {
                let g = self.t(name).grad().ok_or_else(|| format!("{name} has no gradient"))?;
                self.compare(&format!("grad {name}"), &g, shape, hex)
            }
            ["fails", rest @ ..] => match self.statement(rest) {
                Ok(()) => Err("PyTorch refuses this".to_string()),
                Err(_) => Ok(()),
            },
            words => self.statement(words).map_err(|e| e.to_string()),
        }
    }
}

/// Runs a program; gives the statement that went wrong.
fn run(text: &str, engine: &Engine) -> Result<(), String> {
    let mut machine = Machine { engine: engine.clone(), tensors: BTreeMap::new() };
    for line in text.lines() {
        machine.line(line).map_err(|e| format!("at `{}`: {e}", line.chars().take(80).collect::<String>()))?;
    }
    Ok(())
}

#[test]
fn programs_do_what_pytorch_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/programs/programs.golden");
    let text = std::fs::read_to_string(path).unwrap();
    let programs: Vec<&str> = text.trim().split("\n\n").collect();
    assert!(programs.len() >= 300);
    let engine = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let only = std::env::var("PROGRAM").ok();
    let mut wrong = Vec::new();
    for p in &programs {
        let name = p.lines().next().unwrap();
        if only.as_ref().is_some_and(|o| name != format!("program {o}")) {
            continue;
        }
        if let Err(e) = run(p, &engine) {
            wrong.push(format!("{name} {e}"));
        }
        // A program leaves nothing behind, whatever became of it.
        let _ = engine.mark_step();
    }
    engine.mark_step().unwrap();
    let left = engine.inspect();
    assert!(wrong.is_empty(), "{} of {} programs:\n{}", wrong.len(), programs.len(), wrong.join("\n"));
    assert_eq!((left.bases.len(), left.locs.len(), left.pending.len()), (0, 0, 0), "programs left something behind");
    assert_eq!(left.pools[0].live_bytes, 0);
}
