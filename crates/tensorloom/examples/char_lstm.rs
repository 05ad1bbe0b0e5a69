//! An LSTM learns a line letter by letter, and says it.
//!
//! ```text
//! cargo run --release -p tensorloom --example char_lstm
//! ```

use tensorloom::Result;
use tensorloom::nn::{CrossEntropy, Embedding, Linear, Lstm, Recurrence};
use tensorloom::optimizer::Adam;
use tensorloom::prelude::*;

/// What it learns.
pub const TEXT: &str = "to be, or not to be: that is the question. whether tis nobler in the mind to suffer ";

/// Letters in, logits of the next letter out.
#[derive(Module, Tree)]
pub struct CharLstm {
    embed: Embedding,
    lstm: Lstm,
    head: Linear,
}

impl CharLstm {
    /// For an alphabet.
    pub fn new(letters: usize) -> CharLstm {
        let two = Recurrence { layers: 2, batch_first: true, ..Default::default() };
        CharLstm { embed: Embedding::new(letters, 8), lstm: Lstm::with(8, 16, two), head: Linear::new(16, letters) }
    }

    /// Logits, and the state to go on with.
    pub fn forward(&self, ids: &Tensor, state: Option<(Tensor, Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        let (y, state) = self.lstm.run(&self.embed.forward(ids), state);
        (self.head.forward(&y), state)
    }
}

/// The letters of a text in order, and the text as their numbers.
pub fn encode(text: &str) -> (Vec<char>, Vec<i64>) {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort();
    letters.dedup();
    let ids = text.chars().filter_map(|c| letters.binary_search(&c).ok()).map(|i| i as i64).collect();
    (letters, ids)
}

/// Trains it on pieces of the text; gives losses, and the norms of the gradients before they were clipped.
pub fn train(model: &CharLstm, ids: &[i64], steps: usize) -> Result<(Vec<f32>, Vec<f32>)> {
    let all = tensor(ids, ids.len());
    let pieces = |from: usize| -> Tensor {
        let rows: Vec<Tensor> = (0..60).step_by(15).map(|i| all.i(i + from..i + from + 20)).collect();
        np::stack(&rows.iter().collect::<Vec<_>>(), 0)
    };
    let (x, y) = (pieces(0), pieces(1));
    let optimizer = Adam::new(model.parameters(), 0.01);
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let (logits, _) = model.forward(&x, None);
        let loss = nn::cross_entropy(&logits, &y, CrossEntropy::default());
        optimizer.zero_grad();
        loss.backward()?;
        norms.push(nn::clip_grad_norm_(&model.parameters(), 0.25).item()?);
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    Ok((losses, norms))
}

/// The likeliest letters after a first one.
pub fn say(model: &CharLstm, first: i64, count: usize) -> Result<Vec<i64>> {
    no_grad(|| {
        let (mut said, mut state, mut last) = (Vec::new(), None, tensor(&[first], (1, 1)));
        for _ in 0..count {
            let (logits, next) = model.forward(&last, state);
            last = logits.i((.., -1)).argmax(-1).unsqueeze(0);
            said.push(last.item()?);
            state = Some(next);
        }
        Ok(said)
    })
}

fn main() -> Result<()> {
    manual_seed(4);
    let (letters, ids) = encode(TEXT);
    let model = CharLstm::new(letters.len());
    let (losses, _) = train(&model, &ids, 600)?;
    let said: String = say(&model, ids[0], 60)?.into_iter().map(|i| letters[i as usize]).collect();
    println!("loss {:.3} to {:.3}\n{}{said}", losses[0], losses[losses.len() - 1], &TEXT[..1]);
    Ok(())
}
