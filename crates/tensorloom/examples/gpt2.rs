//! A small GPT-2, written with `Tensor` and `nn` alone: it learns a few lines of text by heart and then says them.
//!
//! ```text
//! cargo run --release -p tensorloom --example gpt2 [lazy|compiled] [steps]
//! ```

use tensorloom::nn::{CrossEntropy, Dropout, Embedding, Layer, LayerNorm, Linear, Module, MultiheadAttention};
use tensorloom::optimizer::{AdamW, CosineAnnealingLr, Optimizer, Scheduler, WarmupLr};
use tensorloom::{DType, Result, Tensor, compile, engine, mark_step, nn, no_grad, profile, tensor};

const TEXT: &str = "\
the loom has a warp and a weft; the warp is held, the weft is thrown.\n\
a thread that breaks is tied again, and the cloth does not remember.\n\
the weaver counts to seven, then begins anew; the pattern counts for her.\n";

const CONTEXT: usize = 32;
const BATCH: usize = 8;

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: MultiheadAttention,
    ln_2: LayerNorm,
    c_fc: Linear,
    c_proj: Linear,
    drop: Dropout,
}

impl Block {
    fn new(width: usize, heads: usize) -> Block {
        Block {
            ln_1: LayerNorm::new(width),
            attn: MultiheadAttention::new(width, heads),
            ln_2: LayerNorm::new(width),
            c_fc: Linear::new(width, 4 * width),
            c_proj: Linear::new(4 * width, width),
            drop: Dropout::new(0.05),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.ln_1.forward(x);
        let x = x + self.drop.forward(&profile::module("attn", || self.attn.attend(&y, &y, &y, true)));
        let y = self.ln_2.forward(&x);
        let y = profile::module("mlp", || self.c_proj.forward(&nn::gelu(&self.c_fc.forward(&y), true)));
        x + self.drop.forward(&y)
    }
}

#[derive(Module)]
struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

impl Gpt2 {
    fn new(vocab: usize, width: usize, layers: usize, heads: usize) -> Gpt2 {
        let gpt = Gpt2 {
            wte: Embedding::new(vocab, width),
            wpe: Embedding::new(CONTEXT, width),
            h: (0..layers).map(|_| Block::new(width, heads)).collect(),
            ln_f: LayerNorm::new(width),
        };
        no_grad(|| [&gpt.wte, &gpt.wpe].map(|e| e.weight.mul_scalar_(0.02)));
        gpt
    }

    /// Logits `[B, T, vocab]` for ids `[B, T]`. The head shares the embedding's table.
    fn forward(&self, ids: &Tensor) -> Tensor {
        let places = engine().arange(DType::I64, ids.size(1));
        let mut x = self.wte.forward(ids) + self.wpe.forward(&places);
        for (i, block) in self.h.iter().enumerate() {
            x = profile::module(&format!("h.{i}"), || block.forward(&x));
        }
        self.ln_f.forward(&x).matmul(&self.wte.weight.t())
    }

    /// Goes on after a prompt, always with the most likely letter.
    fn generate(&self, ids: &[i64], n: usize) -> Result<Vec<i64>> {
        let mut ids = ids.to_vec();
        no_grad(|| {
            for _ in 0..n {
                let seen = &ids[ids.len().saturating_sub(CONTEXT)..];
                let logits = self.forward(&tensor(seen, &[1, seen.len()]));
                ids.push(logits.index(1, -1).argmax(-1).to_vec::<i64>()?[0]);
            }
            Ok(ids)
        })
    }
}

/// A letter of the text for each id.
fn alphabet() -> Vec<char> {
    let mut letters: Vec<char> = TEXT.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    letters
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let lazy = args.get(1).is_some_and(|a| a == "lazy");
    let steps: u64 = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(300);
    let letters = alphabet();
    let id = |c: char| letters.iter().position(|&l| l == c).unwrap_or(0) as i64;
    let text: Vec<i64> = TEXT.chars().map(id).collect();

    engine().manual_seed(1);
    let model = Gpt2::new(letters.len(), 64, 2, 4);
    let optimizer = AdamW::new(model.parameters(), 3e-3).weight_decay(0.01);
    let mut scheduler = Scheduler::new(
        &optimizer,
        WarmupLr { steps: 20, then: CosineAnnealingLr { steps: steps.max(21) - 20, min: 1e-4 } },
    );
    let count: usize = model.parameters().iter().map(Tensor::numel).sum();
    println!("{count} parameters, {} letters, {}", letters.len(), if lazy { "op by op" } else { "compiled" });

    let step = |(ids, labels): (Tensor, Tensor)| {
        optimizer.zero_grad();
        let loss = nn::cross_entropy(&model.forward(&ids), &labels, CrossEntropy::default());
        // Errors of ops are carried by tensors and come out when the loss is read.
        let done = loss.backward().and_then(|()| optimizer.step());
        done.map_or_else(Tensor::from_error, |()| loss)
    };
    let region = compile(&step);
    let mut random = 1u64;
    let mut batch = || {
        let (mut ids, mut labels) = (Vec::<i64>::new(), Vec::<i64>::new());
        for _ in 0..BATCH {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let start = (random >> 33) as usize % (text.len() - CONTEXT - 1);
            ids.extend(&text[start..start + CONTEXT]);
            labels.extend(&text[start + 1..start + CONTEXT + 1]);
        }
        (tensor(&ids, &[BATCH, CONTEXT]), tensor(&labels, &[BATCH, CONTEXT]))
    };
    let start = std::time::Instant::now();
    for i in 0..steps {
        let loss = if lazy { step(batch()) } else { region.call(batch())? };
        mark_step()?;
        if i % 50 == 0 || i + 1 == steps {
            println!("step {i:4}  loss {:.4}  {:.1} s", loss.item::<f32>()?, start.elapsed().as_secs_f64());
        }
        scheduler.step(&optimizer);
    }
    if lazy {
        let (done, profile) = engine().profile(|| step(batch()).check().and_then(|()| mark_step()));
        done?;
        println!("\n{profile}");
    }
    model.train(false);
    let prompt: Vec<i64> = "the loom".chars().map(id).collect();
    let said: String = model.generate(&prompt, 90)?.into_iter().map(|i| letters[i as usize]).collect();
    println!("\n{said}");
    Ok(())
}
