//! The order of training sequences: a new shuffle for each epoch, determined by the seed alone.
//!
//! The starts of sequences are stored in a file, and the shuffle is computed on demand: memory doesn't grow with the data.

use super::shuffle::FeistelPermutation;
use super::tokens::TokenDataset;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use train::files::{self, AtomicFile};

/// Token IDs and, for each, the next token as its label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// `[rows, seq]`.
    pub ids: Vec<i32>,
    /// One label per token; -100 is ignored.
    pub labels: Vec<i32>,
}

/// The order of sequences. A position, counted in sequences, determines the state completely.
pub struct BatchSampler {
    seq: usize,
    seed: u64,
    /// The file of the starts of sequences: eight bytes each.
    path: PathBuf,
    starts: File,
    count: u64,
}

impl BatchSampler {
    /// Creates sequences of `seq` tokens with their labels. If documents end with `end`, sequences start with documents.
    pub fn new(tokens: &TokenDataset, seq: usize, end: Option<i32>, seed: u64) -> Result<BatchSampler> {
        let path = tokens.sibling(&format!("starts-{seq}.bin"));
        let mut file = BufWriter::new(AtomicFile::create(&path)?);
        let (mut count, mut failed) = (0u64, None);
        let mut add = |start: usize| {
            // The last sequence may be incomplete.
            if start + seq < tokens.train_len() && failed.is_none() {
                count += 1;
                failed = file.write_all(&(start as u64).to_le_bytes()).err();
            }
        };
        add(0);
        let mut starts = SequenceStarts::new(seq, end);
        tokens.for_each_train(|id| {
            if let Some(start) = starts.push(id) {
                add(start);
            }
        })?;
        if let Some(e) = failed {
            return Err(Error::file(&path, e));
        }
        if count == 0 {
            return Err(Error::Input(format!(
                "the training set has {} tokens, but one sequence needs {}: give more text or a smaller `--seq-len`",
                tokens.train_len(),
                seq + 1
            )));
        }
        super::tokens::unbuffered(file)?.commit()?;
        let starts = files::open(&path)?;
        Ok(BatchSampler { seq, seed, path, starts, count })
    }

    /// The number of tokens of a sequence.
    pub(crate) fn length(&self) -> usize {
        self.seq
    }

    /// The number of sequences per epoch.
    pub fn sequences_per_epoch(&self) -> usize {
        self.count as usize
    }

    /// Fills a batch with the sequences from a position on.
    pub fn fill(&self, tokens: &TokenDataset, position: u64, rows: usize, batch: &mut Batch) -> Result<()> {
        batch.ids.clear();
        batch.labels.clear();
        for at in (position..).take(rows) {
            self.add(tokens, at, batch)?;
        }
        Ok(())
    }

    /// Appends the sequence of a position.
    pub(crate) fn add(&self, tokens: &TokenDataset, at: u64, batch: &mut Batch) -> Result<()> {
        let chosen = FeistelPermutation::new(self.count, self.seed, 1000 + at / self.count).at(at % self.count);
        let mut start = [0; 8];
        files::read_at(&self.starts, &self.path, 8 * chosen, &mut start)?;
        let ids = tokens.train(u64::from_le_bytes(start) as usize, self.seq + 1)?;
        batch.ids.extend(&ids[..self.seq]);
        batch.labels.extend(&ids[1..]);
        Ok(())
    }
}

/// Computes the starts of sequences in a stream: consecutive, but a document that would be split is started again by the next
/// sequence, unless it is longer than one. So the context at the start of a document is available where the document refers to it.
struct SequenceStarts {
    seq: usize,
    end: Option<i32>,
    /// The number of tokens so far.
    at: usize,
    /// The starts of the last sequence and of the last document.
    start: usize,
    document: usize,
}

impl SequenceStarts {
    fn new(seq: usize, end: Option<i32>) -> SequenceStarts {
        SequenceStarts { seq, end, at: 0, start: 0, document: 0 }
    }

    /// Adds the next token; returns the start of the next sequence, if it is known now. The first start is 0.
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

/// Batches that are spread evenly over the validation set; positions after its end are ignored.
pub fn validation_batches(
    tokens: &TokenDataset,
    seq: usize,
    end: Option<i32>,
    rows: usize,
    most: usize,
) -> Result<Vec<Batch>> {
    // Two passes, to count and to select: storing all starts would grow with the data.
    let each = |f: &mut dyn FnMut(usize)| {
        let mut cutter = SequenceStarts::new(seq, end);
        let fits = |start: &usize| start + 1 < tokens.valid_len();
        Some(0).filter(fits).into_iter().for_each(&mut *f);
        tokens.for_each_valid(|id| cutter.push(id).filter(fits).into_iter().for_each(&mut *f))
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
            let (mut cutter, mut starts) = (SequenceStarts::new(10, end), vec![0]);
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
