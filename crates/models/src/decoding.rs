//! A sequence that grows: ids go in, the logits of the next one come out.
//!
//! Where the model's graph allows it (`lang::lower::Limits`), the past stands in caches and new ids alone are run, by programs
//! that serve every length up to the caches' capacity. Otherwise each call runs the whole sequence.

use crate::asserts;
use crate::checkpoint::from_bytes;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::{Buffer, Session};
use compiler::Backend;
use lang::lower::{Observation, Options};
use std::time::{Duration, Instant};

/// Capacities are multiples of this, so that few programs serve many lengths.
const BLOCK: usize = 64;

/// A sequence with what is needed to go on with it.
pub struct Decoding<'a> {
    model: &'a Model,
    backend: &'a dyn Backend,
    params: Vec<Buffer>,
    capacity: usize,
    ids: Vec<i32>,
    step: Option<Step>,
    ran: Duration,
}

impl Model {
    /// An empty sequence that may grow to `most` ids.
    pub fn decoding<'a>(&'a self, most: usize, backend: &'a dyn Backend) -> Result<Decoding<'a>> {
        if let Some(longest) = self.longest().filter(|longest| most > *longest) {
            return Err(Error::Input(format!("a sequence of {most} ids: the model takes at most {longest}")));
        }
        let capacity = most.max(1).next_multiple_of(BLOCK);
        let params = self.upload(backend)?;
        let (ids, ran) = (Vec::new(), Duration::ZERO);
        Ok(Decoding { model: self, backend, params, capacity, ids, step: None, ran })
    }
}

impl Decoding<'_> {
    /// The ids so far.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// How long the last call ran, without compiling.
    pub fn ran(&self) -> Duration {
        self.ran
    }

    /// Whether every call runs the whole sequence.
    pub fn runs_whole(&self) -> bool {
        self.model.limits.whole.is_some()
    }

    /// Compiles what a call with this many ids will need, if it is not there.
    pub fn prepare(&mut self, count: usize) -> Result<()> {
        if !self.runs_whole() && self.step.as_ref().is_none_or(|step| step.count != count) {
            let mut next = Step::cached(self.model, count, self.capacity, self.backend, &self.params)?;
            if let Some(last) = &mut self.step {
                next.take_caches(last);
            }
            self.step = Some(next);
        }
        Ok(())
    }

    /// Appends ids; gives the logits of the one that comes next.
    pub fn push(&mut self, ids: &[i32]) -> Result<Vec<f32>> {
        self.model.check_ids(&[ids.to_vec()])?;
        let before = self.ids.len();
        if before + ids.len() > self.capacity {
            return Err(Error::Input(format!("the sequence was to have at most {} ids", self.capacity)));
        }
        self.ids.extend(ids);
        // Rotations change for the whole sequence when it grows long: it is run once more.
        let again = self
            .model
            .architecture
            .long_from()
            .is_some_and(|from| before > 0 && before <= from && self.ids.len() > from);
        if again {
            self.step = None;
        }
        let (new, position) = match again || self.runs_whole() {
            true => (self.ids.clone(), 0),
            false => (ids.to_vec(), before),
        };
        if self.runs_whole() {
            self.step = Some(Step::whole(self.model, new.len(), self.backend, &self.params)?);
        } else {
            self.prepare(new.len())?;
        }
        let Some(step) = &mut self.step else { return Err(Error::Input("nothing to run".into())) };
        let started = Instant::now();
        let logits = step.run(&new, position);
        self.ran = started.elapsed();
        logits
    }
}

/// A program for some ids. Its inputs are parameters, ids and, with caches, position and caches; its outputs logits, caches.
struct Step {
    session: Session,
    count: usize,
    params: usize,
    /// None where the whole sequence is run.
    caches: Option<usize>,
    /// What is shown beside the results, from this output on.
    observed: (usize, Vec<Observation>),
}

impl Step {
    /// Appends `count` ids to caches.
    fn cached(model: &Model, count: usize, capacity: usize, backend: &dyn Backend, params: &[Buffer]) -> Result<Step> {
        let options = Options { dtype: model.dtype, decode: Some(capacity), asserts: true, ..Options::default() };
        let lowered = model.lower_with(1, count, &options)?;
        let session = Session::new(&lowered.graph, backend, params)?;
        let first = lowered.outputs.len() + lowered.caches.len();
        let observed = (first, lowered.observed);
        let step = Step { session, count, params: params.len(), caches: Some(lowered.caches.len()), observed };
        for (i, ty) in lowered.caches.iter().enumerate() {
            step.session.bindings.inputs[step.params + 2 + i].write(0, &vec![0; ty.bytes()])?;
        }
        Ok(step)
    }

    /// Runs a sequence of `count` ids from its beginning.
    fn whole(model: &Model, count: usize, backend: &dyn Backend, params: &[Buffer]) -> Result<Step> {
        let options = Options { dtype: model.dtype, asserts: true, ..Options::default() };
        let lowered = model.lower_with(1, count, &options)?;
        let session = Session::new(&lowered.graph, backend, params)?;
        let observed = (lowered.outputs.len(), lowered.observed);
        Ok(Step { session, count, params: params.len(), caches: None, observed })
    }

    /// Runs ids at a position; gives the logits of the next one.
    fn run(&mut self, ids: &[i32], position: usize) -> Result<Vec<f32>> {
        let position = i32::try_from(position).map_err(|_| Error::Input("the sequence is too long".into()))?;
        self.session.write_ints(self.params, ids.iter().copied())?;
        if self.caches.is_some() {
            self.session.write_ints(self.params + 1, std::iter::once(position))?;
        }
        self.session.run()?;
        asserts::check(&self.session, &self.observed.1, self.observed.0)?;
        let bindings = &mut self.session.bindings;
        for i in 0..self.caches.unwrap_or(0) {
            std::mem::swap(&mut bindings.inputs[self.params + 2 + i], &mut bindings.outputs[1 + i]);
        }
        let (ty, bytes) = self.session.read(0)?;
        let row = ty.shape.last().copied().unwrap_or(1) * ty.dtype.size();
        Ok(from_bytes(&bytes[bytes.len().saturating_sub(row)..], ty.dtype))
    }

    /// Goes on where another program stopped: caches have the same types.
    fn take_caches(&mut self, other: &mut Step) {
        for i in 0..self.caches.unwrap_or(0) {
            let (mine, theirs) = (self.params + 2 + i, other.params + 2 + i);
            std::mem::swap(&mut self.session.bindings.inputs[mine], &mut other.session.bindings.inputs[theirs]);
        }
    }
}
