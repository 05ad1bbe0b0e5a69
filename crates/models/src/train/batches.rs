//! Which sequences come when: a new order every pass over the data, from the seed alone.
//!
//! Where sequences begin stands in a file, and the order is computed place by place: memory doesn't grow with the data.

use super::shuffle::Shuffle;
use super::tokens::Tokens;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use train::files::{self, NewFile};

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
    /// Where sequences begin: eight bytes each.
    path: PathBuf,
    starts: File,
    count: u64,
}

impl Batches {
    /// Sequences of `seq` ids with their successors. Where documents end with `end`, sequences begin with documents.
    pub fn new(tokens: &Tokens, seq: usize, end: Option<i32>, seed: u64) -> Result<Batches> {
        let path = tokens.sibling(&format!("starts-{seq}.bin"));
        let mut file = BufWriter::new(NewFile::create(&path)?);
        let (mut count, mut failed) = (0u64, None);
        let mut add = |start: usize| {
            // The last sequences may lack ids.
            if start + seq < tokens.train_len() && failed.is_none() {
                count += 1;
                failed = file.write_all(&(start as u64).to_le_bytes()).err();
            }
        };
        add(0);
        let mut starts = Starts::new(seq, end);
        tokens.each_train(|id| {
            if let Some(start) = starts.push(id) {
                add(start);
            }
        })?;
        if let Some(e) = failed {
            return Err(Error::file(&path, e));
        }
        if count == 0 {
            return Err(Error::Input(format!(
                "the data has {} tokens to train on, but one sequence needs {}: give more text or a smaller `--seq`",
                tokens.train_len(),
                seq + 1
            )));
        }
        super::tokens::unbuffered(file)?.finish()?;
        let starts = files::open(&path)?;
        Ok(Batches { seq, seed, path, starts, count })
    }

    /// Ids of a sequence.
    pub(crate) fn length(&self) -> usize {
        self.seq
    }

    /// How many sequences a pass over the data has.
    pub fn per_pass(&self) -> usize {
        self.count as usize
    }

    /// The sequences from a position on.
    pub fn fill(&self, tokens: &Tokens, position: u64, rows: usize, batch: &mut Batch) -> Result<()> {
        batch.ids.clear();
        batch.labels.clear();
        for at in (position..).take(rows) {
            self.add(tokens, at, batch)?;
        }
        Ok(())
    }

    /// Appends the sequence of a position.
    pub(crate) fn add(&self, tokens: &Tokens, at: u64, batch: &mut Batch) -> Result<()> {
        let chosen = Shuffle::new(self.count, self.seed, 1000 + at / self.count).at(at % self.count);
        let mut start = [0; 8];
        files::read_at(&self.starts, &self.path, 8 * chosen, &mut start)?;
        let ids = tokens.train(u64::from_le_bytes(start) as usize, self.seq + 1)?;
        batch.ids.extend(&ids[..self.seq]);
        batch.labels.extend(&ids[1..]);
        Ok(())
    }
}

/// Where sequences begin in a stream: one behind the other, but a document that would be cut is begun again by the next
/// sequence, unless it is longer than one. So what a document says at its beginning is there when it is referred to.
struct Starts {
    seq: usize,
    end: Option<i32>,
    /// How many ids there were.
    at: usize,
    /// Where the last sequence and the last document begin.
    start: usize,
    document: usize,
}

impl Starts {
    fn new(seq: usize, end: Option<i32>) -> Starts {
        Starts { seq, end, at: 0, start: 0, document: 0 }
    }

    /// The next id; where the next sequence begins, if that is known now. The first begins at 0.
    fn push(&mut self, id: i32) -> Option<usize> {
        let mut found = None;
        if self.at == self.start + self.seq {
            self.start = if self.document > self.start { self.document } else { self.at };
            found = Some(self.start);
        }
        self.at += 1;
        if Some(id) == self.end {
            self.document = self.at;
        }
        found
    }
}

/// Batches of the held-out part, spread over it; positions beyond its end don't count.
pub fn held_out(tokens: &Tokens, seq: usize, end: Option<i32>, rows: usize, most: usize) -> Result<Vec<Batch>> {
    // Counted first, then chosen: where all of them begin would grow with the data.
    let each = |f: &mut dyn FnMut(usize)| {
        let mut cutter = Starts::new(seq, end);
        let fits = |start: &usize| start + 1 < tokens.valid_len();
        Some(0).filter(fits).into_iter().for_each(&mut *f);
        tokens.each_valid(|id| cutter.push(id).filter(fits).into_iter().for_each(&mut *f))
    };
    let (mut count, mut at, mut chosen) = (0, 0, Vec::new());
    each(&mut |_| count += 1)?;
    let wanted = count.min(rows.saturating_mul(most));
    each(&mut |start| {
        if chosen.len() < wanted && at == chosen.len() * count / wanted {
            chosen.push(start);
        }
        at += 1;
    })?;
    let mut starts = chosen.into_iter().peekable();
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
            let (mut cutter, mut starts) = (Starts::new(10, end), vec![0]);
            documents(lengths).into_iter().for_each(|id| starts.extend(cutter.push(id)));
            starts
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
