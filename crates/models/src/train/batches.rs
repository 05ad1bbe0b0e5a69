//! Which sequences come when: a new order every pass over the data, from the seed alone.

use super::tokens::Tokens;
use crate::error::{Error, Result};
use crate::random::Random;

/// Ids and, for each, the id that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// `[rows, seq]`.
    pub ids: Vec<i32>,
    /// As many; -100 does not count.
    pub labels: Vec<i32>,
}

/// The order of sequences. A position, counted in sequences, says all about where it stands.
pub struct Batches {
    seq: usize,
    seed: u64,
    blocks: usize,
    /// The pass that `order` belongs to.
    pass: Option<u64>,
    offset: usize,
    order: Vec<u32>,
}

impl Batches {
    /// Sequences of `seq` ids with their successors.
    pub fn new(tokens: &Tokens, seq: usize, seed: u64) -> Result<Batches> {
        let all = tokens.train_len().saturating_sub(1) / seq;
        if all == 0 {
            return Err(Error::Input(format!(
                "the data has {} tokens to train on, but one sequence needs {}: give more text or a smaller `--seq`",
                tokens.train_len(),
                seq + 1
            )));
        }
        // Each pass starts at another offset, which may cost the last sequence.
        let blocks = if all > 1 { all - 1 } else { all };
        Ok(Batches { seq, seed, blocks, pass: None, offset: 0, order: Vec::new() })
    }

    /// How many sequences a pass over the data has.
    pub fn per_pass(&self) -> usize {
        self.blocks
    }

    /// The sequences from a position on.
    pub fn fill(&mut self, tokens: &Tokens, position: u64, rows: usize, batch: &mut Batch) {
        batch.ids.clear();
        batch.labels.clear();
        for row in 0..rows as u64 {
            let (pass, index) = ((position + row) / self.blocks as u64, (position + row) % self.blocks as u64);
            self.turn_to(pass, tokens);
            let start = self.offset + self.order[index as usize] as usize * self.seq;
            batch.ids.extend(tokens.train(start, self.seq));
            batch.labels.extend(tokens.train(start + 1, self.seq));
        }
    }

    fn turn_to(&mut self, pass: u64, tokens: &Tokens) {
        if self.pass == Some(pass) {
            return;
        }
        let mut random = Random::new(self.seed, 1000 + pass);
        let spare = tokens.train_len() - 1 - self.blocks * self.seq;
        self.offset = random.below(spare.min(self.seq) + 1);
        self.order = (0..self.blocks as u32).collect();
        random.shuffle(&mut self.order);
        self.pass = Some(pass);
    }
}

/// Batches of the held-out part, spread over it; positions beyond its end don't count.
pub fn held_out(tokens: &Tokens, seq: usize, rows: usize, most: usize) -> Vec<Batch> {
    let sequences = tokens.valid_len().saturating_sub(1).div_ceil(seq);
    let wanted = sequences.min(rows * most);
    let mut starts = (0..wanted).map(|i| i * sequences / wanted * seq).peekable();
    let mut batches = Vec::new();
    while starts.peek().is_some() {
        let mut batch = Batch::default();
        for start in starts.by_ref().take(rows) {
            let labels: Vec<i32> = tokens.valid(start + 1, seq).collect();
            let ids: Vec<i32> = tokens.valid(start, labels.len()).collect();
            let missing = seq - labels.len();
            batch.ids.extend(ids.into_iter().chain(std::iter::repeat_n(0, missing)));
            batch.labels.extend(labels.into_iter().chain(std::iter::repeat_n(-100, missing)));
        }
        batch.ids.resize(rows * seq, 0);
        batch.labels.resize(rows * seq, -100);
        batches.push(batch);
    }
    batches
}
