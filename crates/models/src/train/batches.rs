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
    /// Where sequences begin.
    starts: Vec<usize>,
    /// The pass that `order` belongs to.
    pass: Option<u64>,
    order: Vec<u32>,
}

impl Batches {
    /// Sequences of `seq` ids with their successors. Where documents end with `end`, sequences begin with documents.
    pub fn new(tokens: &Tokens, seq: usize, end: Option<i32>, seed: u64) -> Result<Batches> {
        let mut starts = Starts::new(seq, end);
        tokens.each_train(|id| starts.push(id))?;
        let mut starts = starts.found;
        // The last sequences may lack ids.
        starts.retain(|start| start + seq < tokens.train_len());
        if starts.is_empty() {
            return Err(Error::Input(format!(
                "the data has {} tokens to train on, but one sequence needs {}: give more text or a smaller `--seq`",
                tokens.train_len(),
                seq + 1
            )));
        }
        Ok(Batches { seq, seed, starts, pass: None, order: Vec::new() })
    }

    /// How many sequences a pass over the data has.
    pub fn per_pass(&self) -> usize {
        self.starts.len()
    }

    /// The sequences from a position on.
    pub fn fill(&mut self, tokens: &Tokens, position: u64, rows: usize, batch: &mut Batch) -> Result<()> {
        batch.ids.clear();
        batch.labels.clear();
        let all = self.starts.len() as u64;
        for at in (position..).take(rows) {
            self.turn_to(at / all);
            let start = self.starts[self.order[(at % all) as usize] as usize];
            let ids = tokens.train(start, self.seq + 1)?;
            batch.ids.extend(&ids[..self.seq]);
            batch.labels.extend(&ids[1..]);
        }
        Ok(())
    }

    fn turn_to(&mut self, pass: u64) {
        if self.pass != Some(pass) {
            self.order = (0..self.starts.len() as u32).collect();
            Random::new(self.seed, 1000 + pass).shuffle(&mut self.order);
            self.pass = Some(pass);
        }
    }
}

/// Where sequences begin in a stream: one behind the other, but a document that would be cut is begun again by the next
/// sequence, unless it is longer than one. So what a document says at its beginning is there when it is referred to.
struct Starts {
    seq: usize,
    end: Option<i32>,
    found: Vec<usize>,
    /// How many ids there were.
    at: usize,
    /// Where the last sequence and the last document begin.
    start: usize,
    document: usize,
}

impl Starts {
    fn new(seq: usize, end: Option<i32>) -> Starts {
        Starts { seq, end, found: vec![0], at: 0, start: 0, document: 0 }
    }

    fn push(&mut self, id: i32) {
        if self.at == self.start + self.seq {
            self.start = if self.document > self.start { self.document } else { self.at };
            self.found.push(self.start);
        }
        self.at += 1;
        if Some(id) == self.end {
            self.document = self.at;
        }
    }
}

/// Batches of the held-out part, spread over it; positions beyond its end don't count.
pub fn held_out(tokens: &Tokens, seq: usize, end: Option<i32>, rows: usize, most: usize) -> Result<Vec<Batch>> {
    let mut starts = Starts::new(seq, end);
    tokens.each_valid(|id| starts.push(id))?;
    let mut starts = starts.found;
    starts.retain(|start| start + 1 < tokens.valid_len());
    let wanted = starts.len().min(rows.saturating_mul(most));
    let mut starts = (0..wanted).map(|i| starts[i * starts.len() / wanted]).peekable();
    let mut batches = Vec::new();
    while starts.peek().is_some() {
        let mut batch = Batch::default();
        for start in starts.by_ref().take(rows) {
            let labels = tokens.valid(start + 1, seq)?;
            let ids = tokens.valid(start, labels.len())?;
            let missing = seq - labels.len();
            batch.ids.extend(ids.into_iter().chain(std::iter::repeat_n(0, missing)));
            batch.labels.extend(labels.into_iter().chain(std::iter::repeat_n(-100, missing)));
        }
        batch.ids.resize(rows * seq, 0);
        batch.labels.resize(rows * seq, -100);
        batches.push(batch);
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_begin_with_documents_where_they_can() {
        let documents = |lengths: &[usize]| -> Vec<i32> {
            lengths.iter().flat_map(|n| std::iter::repeat_n(1, n - 1).chain([0])).collect()
        };
        let starts = |lengths: &[usize], end: Option<i32>| {
            let mut starts = Starts::new(10, end);
            documents(lengths).into_iter().for_each(|id| starts.push(id));
            starts.found
        };
        let check = |lengths: &[usize], expected: &[usize]| {
            assert_eq!(starts(lengths, Some(0)), expected, "{lengths:?}");
        };
        check(&[4, 4, 4, 4, 4], &[0, 8, 16]);
        check(&[10, 10, 5], &[0, 10, 20]);
        check(&[35], &[0, 10, 20, 30]);
        check(&[3, 25, 4], &[0, 3, 13, 23]);
        assert_eq!(starts(&[4, 4, 4, 4, 4], None), [0, 10]);
    }
}
