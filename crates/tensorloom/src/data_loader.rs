//! Data in batches.

use crate::{Error, Result, Tensor, Tree, engine_of, random, record};
use std::sync::{Arc, Mutex};

/// Gives the examples with some numbers as one batch.
type Fetch<T> = Arc<dyn Fn(&[usize]) -> Result<T> + Send + Sync>;

/// Batches of examples, in order or shuffled by a seed.
///
/// Examples are the slices along the first axis of the tensors of a tree, or what a function makes of their numbers.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let (x, y) = (randn((10, 3)), arange(10));
/// let loader = DataLoader::new((x, y))?.batch_size(4).shuffle(7);
/// for epoch in 0..2 {
///     let mut seen = Vec::new();
///     for batch in loader.epoch(epoch) {
///         let (x, y) = batch?;
///         assert_eq!(x.shape()[0], y.numel());
///         seen.extend(y.to_vec::<i64>()?);
///     }
///     seen.sort();
///     assert_eq!(seen, (0..10).collect::<Vec<i64>>());
/// }
/// assert_eq!((loader.len(), loader.drop_last().len()), (3, 2));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone)]
pub struct DataLoader<T> {
    fetch: Fetch<T>,
    examples: usize,
    batch_size: usize,
    shuffle: Option<u64>,
    drop_last: bool,
    /// The order of the epoch that [`DataLoader::at`] was last asked about.
    order: Arc<Mutex<Option<(u64, Vec<usize>)>>>,
}

impl<T: Tree + Send + Sync + 'static> DataLoader<T> {
    /// The slices of all tensors along their first axes, which have one size. Batches are of one until said otherwise.
    #[track_caller]
    pub fn new(data: T) -> Result<DataLoader<T>> {
        let _here = record::here();
        let leaves = data.leaves();
        let fail = |reason: String| -> Error { record::error("DataLoader", reason) };
        let mut examples = None;
        for t in &leaves {
            t.check()?;
            let n = t.shape().first().copied();
            let n = n.ok_or_else(|| fail(format!("{} has no axis of examples", t.ty())))?;
            let known = *examples.get_or_insert(n);
            if known != n {
                return Err(fail(format!("{} has {n} examples, but the first tensor has {known}", t.ty())));
            }
        }
        let examples = examples.ok_or_else(|| fail("there are no tensors".into()))?;
        let fetch = move |ids: &[usize]| {
            let whole = ids.windows(2).all(|w| w[1] == w[0] + 1);
            let wide: Vec<i64> = ids.iter().map(|&i| i as i64).collect();
            let part = |t: &Tensor| match ids.first() {
                // Examples in order are a view.
                Some(&first) if whole => t.narrow(0, first, ids.len()),
                _ => t.index_select(0, &engine_of(t).tensor(&wide, &[wide.len()])),
            };
            Ok(data.map(part))
        };
        Ok(DataLoader::from_fn(examples, fetch))
    }
}

impl<T> DataLoader<T> {
    /// What a function makes of the numbers of a batch's examples, which are below `examples`.
    pub fn from_fn(examples: usize, f: impl Fn(&[usize]) -> Result<T> + Send + Sync + 'static) -> DataLoader<T> {
        DataLoader {
            fetch: Arc::new(f),
            examples,
            batch_size: 1,
            shuffle: None,
            drop_last: false,
            order: Arc::default(),
        }
    }

    /// With this many examples in a batch; the last one may have fewer.
    pub fn batch_size(mut self, n: usize) -> DataLoader<T> {
        self.batch_size = n.max(1);
        self
    }

    /// In an order that depends on a seed and the epoch, and on nothing else.
    pub fn shuffle(mut self, seed: u64) -> DataLoader<T> {
        self.shuffle = Some(seed);
        self.order = Arc::default();
        self
    }

    /// Without a last batch that is not full.
    pub fn drop_last(mut self) -> DataLoader<T> {
        self.drop_last = true;
        self
    }

    /// The number of batches of an epoch.
    pub fn len(&self) -> usize {
        if self.drop_last { self.examples / self.batch_size } else { self.examples.div_ceil(self.batch_size) }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The order of the examples of an epoch: that of `random::permutation` by `fold_in(key(seed), epoch)`.
    pub fn order(&self, epoch: u64) -> Result<Vec<usize>> {
        match self.shuffle {
            None => Ok((0..self.examples).collect()),
            Some(seed) => {
                let key = random::fold_in(&random::key(seed), epoch as u32);
                let order = random::permutation(&key, self.examples).to_vec::<i64>()?;
                Ok(order.into_iter().map(|i| i as usize).collect())
            }
        }
    }

    /// The batch with a number, counted through all epochs: a function of the number alone, as [`crate::train`] needs it.
    #[track_caller]
    pub fn at(&self, number: u64) -> Result<T> {
        let _here = record::here();
        let batches = self.len() as u64;
        if batches == 0 {
            let reason = format!("there are no batches of {} in {} examples", self.batch_size, self.examples);
            return Err(record::error("DataLoader", reason));
        }
        let (epoch, start) = (number / batches, (number % batches) as usize * self.batch_size);
        let mut known = self.order.lock().unwrap_or_else(|e| e.into_inner());
        let order = match known.take().filter(|(of, _)| *of == epoch) {
            Some((_, order)) => order,
            None => self.order(epoch)?,
        };
        let (_, order) = known.insert((epoch, order));
        (self.fetch)(&order[start..(start + self.batch_size).min(order.len())])
    }

    /// The batches of an epoch.
    pub fn epoch(&self, epoch: u64) -> Batches<T> {
        Batches {
            order: self.order(epoch),
            fetch: self.fetch.clone(),
            size: self.batch_size,
            batches: self.len(),
            next: 0,
        }
    }
}

/// The batches of an epoch of a [`DataLoader`].
pub struct Batches<T> {
    order: Result<Vec<usize>>,
    fetch: Fetch<T>,
    size: usize,
    batches: usize,
    next: usize,
}

impl<T> Iterator for Batches<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.next >= self.batches {
            return None;
        }
        let order = match &self.order {
            Ok(order) => order,
            Err(e) => {
                let error = e.clone();
                self.next = self.batches;
                return Some(Err(error));
            }
        };
        let start = self.next * self.size;
        self.next += 1;
        Some((self.fetch)(&order[start..(start + self.size).min(order.len())]))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batches - self.next;
        (left, Some(left))
    }
}

impl<T> ExactSizeIterator for Batches<T> {}

impl<T> IntoIterator for &DataLoader<T> {
    type Item = Result<T>;
    type IntoIter = Batches<T>;

    /// The first epoch.
    fn into_iter(self) -> Batches<T> {
        self.epoch(0)
    }
}
