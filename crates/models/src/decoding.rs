//! A sequence that grows: ids go in, the logits of the next one come out.
//!
//! Where the model's graph allows it (`lang::lower::Limits`), the past stands in caches and new ids alone are run, by programs
//! that serve every length up to the caches' capacity. Otherwise each call runs the whole sequence. Of several ids only the
//! last is scored, unless all are asked for.

use crate::adapter::Adapter;
use crate::asserts;
use crate::divided::Divided;
use crate::error::{Error, Result};
use crate::inject::adapted;
use crate::last_row::last_row;
use crate::model::Model;
use crate::session::{Buffer, Session};
use compiler::Backend;
use dist::Comm;
use lang::lower::{Lowered, Observation, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};
use train::named_tensor::from_bytes;

/// Capacities are multiples of this, so that few programs serve many lengths.
const BLOCK: usize = 64;

/// Ids of a prompt that are run at once: products are as fast with so many as with more, and activations of long prompts would take
/// more memory than small models.
const PART: usize = 256;

/// Ids up to which weights are used where the file has them. That saves a second for each gigabyte before the first token; copies
/// stand in larger pages, which make each token a tenth faster.
const SHORT: usize = 1024;

/// Programs that are kept where they take turns.
const KEPT: usize = 3;

/// A sequence with what is needed to go on with it.
pub struct Decoding<'a> {
    model: &'a Model,
    /// Updates that stand beside the model's products; their tensors come before the parameters.
    adapter: Option<&'a Adapter>,
    backend: &'a dyn Backend,
    params: Vec<Buffer>,
    capacity: usize,
    ids: Vec<i32>,
    /// The program that ran last comes first, and has the caches.
    steps: Vec<Step>,
    /// The caches, while no program has them.
    held: Option<Vec<Buffer>>,
    /// Whether several ids are scored now and then.
    guesses: bool,
    ran: Duration,
    /// How ranks share the model.
    divided: Option<Divided>,
}

impl Model {
    /// An empty sequence that may grow to `most` ids.
    pub fn decoding<'a>(&'a self, most: usize, backend: &'a dyn Backend) -> Result<Decoding<'a>> {
        self.decoding_among(most, backend, None)
    }

    /// The same as one of several ranks, which share the model as the mesh of `comm` says; the backend must talk through it.
    /// All ranks make the same calls and get the same logits.
    pub fn decoding_among<'a>(
        &'a self,
        most: usize,
        backend: &'a dyn Backend,
        comm: Option<Arc<Comm>>,
    ) -> Result<Decoding<'a>> {
        if let Some(longest) = self.longest().filter(|longest| most > *longest) {
            return Err(Error::Input(format!("a sequence of {most} ids: the model takes at most {longest}")));
        }
        let divided = comm.filter(|comm| comm.mesh().ranks() > 1).map(|comm| Divided::of(self, comm)).transpose()?;
        let params = match &divided {
            Some(divided) => divided.upload(self, backend)?,
            None if most <= SHORT => self.upload_in_place(backend)?,
            None => self.upload(backend)?,
        };
        Ok(Decoding { divided, ..self.decoding_on(params, None, most, backend) })
    }

    /// The same with parameters that are on the device already, those of an adapter in front of them.
    pub(crate) fn decoding_on<'a>(
        &'a self,
        params: Vec<Buffer>,
        adapter: Option<&'a Adapter>,
        most: usize,
        backend: &'a dyn Backend,
    ) -> Decoding<'a> {
        let capacity = most.max(1).next_multiple_of(BLOCK);
        let (ids, steps, held, ran) = (Vec::new(), Vec::new(), None, Duration::ZERO);
        let (guesses, divided) = (false, None);
        Decoding { model: self, adapter, backend, params, capacity, ids, steps, held, guesses, ran, divided }
    }

    /// What a sequence runs: the model's graph, with the adapter beside it.
    fn lower_adapted(&self, adapter: Option<&Adapter>, count: usize, options: &Options) -> Result<Lowered> {
        let Some(adapter) = adapter else { return self.lower_with(1, count, options) };
        let mut lowered = self.architecture.lower_with(1, count, options)?;
        let graph = adapted(&lowered.graph, false, adapter, false)?;
        lowered.graph = self.read_packed(&graph, adapter.values.len())?;
        Ok(lowered)
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
        if self.runs_whole() { Ok(()) } else { self.choose(self.part(count), false) }
    }

    /// How many of so many ids are run at once.
    fn part(&self, count: usize) -> usize {
        if count <= PART || self.runs_whole() || self.model.architecture.rotates_by_length() {
            return count.max(1);
        }
        count.div_ceil(count.div_ceil(PART))
    }

    /// Puts the program for so many ids first.
    fn choose(&mut self, count: usize, all: bool) -> Result<()> {
        let fits = |step: &Step| step.count == count && (step.all == all || count == 1);
        // The program of a prompt is not needed again; those of guesses are.
        self.guesses |= all && count > 1;
        let step = match self.steps.iter().position(fits) {
            Some(0) => return Ok(()),
            Some(at) => self.steps.remove(at),
            None => {
                // One program makes room for the next, which goes on in its caches.
                if !self.guesses {
                    self.held = self.steps.iter().find(|step| step.holds).map(Step::caches).or(self.held.take());
                    self.steps.clear();
                }
                let step = Step::cached(self, count, all)?;
                cpu::give_back_freed();
                step
            }
        };
        self.held = None;
        self.steps.insert(0, step);
        let (first, rest) = self.steps.split_at_mut(1);
        if let Some(last) = rest.iter_mut().find(|step| step.holds) {
            first[0].take_caches(last);
        }
        self.steps.truncate(if self.guesses { KEPT } else { 1 });
        Ok(())
    }

    /// Appends ids; gives the logits of the one that comes next. Many are run part by part, by one program where they divide.
    pub fn push(&mut self, ids: &[i32]) -> Result<Vec<f32>> {
        let (mut rows, mut ran, before) = (Vec::new(), Duration::ZERO, self.ids.len());
        self.model.check_ids(&[ids.to_vec()])?;
        if before + ids.len() > self.capacity {
            return Err(Error::Input(format!("the sequence was to have at most {} ids", self.capacity)));
        }
        for part in ids.chunks(self.part(ids.len())) {
            match self.run(part, false) {
                Ok(found) => rows = found,
                Err(error) => {
                    // What was written behind the end is never read.
                    self.ids.truncate(before);
                    return Err(error);
                }
            }
            ran += self.ran;
        }
        self.ran = ran;
        Ok(rows.pop().unwrap_or_default())
    }

    /// Appends ids; gives the logits behind each of them.
    pub fn push_all(&mut self, ids: &[i32]) -> Result<Vec<Vec<f32>>> {
        self.run(ids, true)
    }

    /// Forgets all but the first ids. Models that keep a state can't.
    pub fn cut(&mut self, length: usize) -> Result<()> {
        if self.steps.iter().any(|step| step.caches.is_some() && !step.by_position) && length < self.ids.len() {
            return Err(Error::Input("a model that keeps a state can't go back".into()));
        }
        // Keys and values behind the end are overwritten before they are read.
        self.ids.truncate(length);
        Ok(())
    }

    fn run(&mut self, ids: &[i32], all: bool) -> Result<Vec<Vec<f32>>> {
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
            self.steps.clear();
            self.held = None;
        }
        let (new, position) = match again || self.runs_whole() {
            true => (self.ids.clone(), 0),
            false => (ids.to_vec(), before),
        };
        if self.runs_whole() {
            self.steps = vec![Step::whole(self, new.len())?];
        } else {
            self.choose(new.len(), all)?;
        }
        let Some(step) = self.steps.first_mut() else { return Err(Error::Input("nothing to run".into())) };
        let started = Instant::now();
        let rows = step.run(&new, position);
        self.ran = started.elapsed();
        self.model.check_whole()?;
        let mut rows = rows?;
        let asked = if all { ids.len() } else { 1 };
        Ok(rows.split_off(rows.len().saturating_sub(asked)))
    }
}

/// A program for some ids. Its inputs are parameters, ids and, with caches, position, caches and, where one row alone is scored,
/// that row; its outputs logits, caches.
struct Step {
    session: Session,
    count: usize,
    /// Whether all rows are scored.
    all: bool,
    params: usize,
    /// None where the whole sequence is run.
    caches: Option<usize>,
    by_position: bool,
    /// Whether its caches are those of the sequence.
    holds: bool,
    /// What is shown beside the results, from this output on.
    observed: (usize, Vec<Observation>),
}

impl Step {
    /// Appends `count` ids to caches.
    fn cached(of: &Decoding<'_>, count: usize, all: bool) -> Result<Step> {
        let Decoding { model, adapter, backend, ref params, capacity, ref divided, ref held, .. } = *of;
        // Nobody asks for derivatives: composites of their own would only be in the way.
        let options = Options {
            dtype: model.dtype,
            decode: Some(capacity),
            asserts: true,
            written_backward: false,
            ..Options::default()
        };
        let lowered = model.lower_adapted(adapter, count, &options)?;
        let all = all || count == 1;
        let graph = if all { lowered.graph } else { last_row(&lowered.graph, 1)? };
        let (n, caches) = (params.len(), lowered.caches.len());
        let results = lowered.outputs.len();
        let graph = match divided {
            Some(divided) => divided.local(&graph, &lowered.caches, results)?,
            None => graph,
        };
        let own = graph.input_types();
        let donate: Vec<_> = (0..caches).map(|i| (n + 2 + i, results + i)).collect();
        let places = held.iter().flatten().enumerate().map(|(i, buffer)| (n + 2 + i, buffer.clone()));
        let session = Session::holding(&graph, backend, params, donate, &places.collect::<Vec<_>>())?;
        let observed = (results + caches, lowered.observed);
        let by_position = lowered.caches.iter().all(|ty| ty.rank() == 4 && ty.shape[2] == capacity);
        let caches = Some(caches);
        let step = Step { session, count, all, params: n, caches, by_position, holds: true, observed };
        let fresh = if held.is_some() { 0 } else { lowered.caches.len() };
        for i in n + 2..n + 2 + fresh {
            step.session.bindings.inputs[i].write(0, &vec![0; own[i].bytes()])?;
        }
        Ok(step)
    }

    /// Runs a sequence of `count` ids from its beginning.
    fn whole(of: &Decoding<'_>, count: usize) -> Result<Step> {
        let Decoding { model, adapter, backend, ref params, ref divided, .. } = *of;
        let options = Options { dtype: model.dtype, asserts: true, ..Options::default() };
        let lowered = model.lower_adapted(adapter, count, &options)?;
        let graph = match divided {
            Some(divided) => divided.local(&lowered.graph, &[], lowered.outputs.len())?,
            None => lowered.graph,
        };
        let session = Session::new(&graph, backend, params)?;
        let observed = (lowered.outputs.len(), lowered.observed);
        let (params, by_position) = (params.len(), true);
        Ok(Step { session, count, all: true, params, caches: None, by_position, holds: true, observed })
    }

    /// Runs ids at a position; gives the logits behind each, or behind the last.
    fn run(&mut self, ids: &[i32], position: usize) -> Result<Vec<Vec<f32>>> {
        let position = i32::try_from(position).map_err(|_| Error::Input("the sequence is too long".into()))?;
        self.session.write_ints(self.params, ids.iter().copied())?;
        if let Some(caches) = self.caches {
            self.session.write_ints(self.params + 1, std::iter::once(position))?;
            if !self.all {
                self.session.write_ints(self.params + 2 + caches, std::iter::once(ids.len() as i32 - 1))?;
            }
        }
        self.session.run()?;
        asserts::check(&self.session, &self.observed.1, self.observed.0)?;
        let (ty, bytes) = self.session.read(0)?;
        self.session.swap();
        let values = from_bytes(&bytes, ty.dtype);
        let width = ty.shape.last().copied().unwrap_or(1).max(1);
        Ok(values.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }

    /// What the sequence has been so far.
    fn caches(&self) -> Vec<Buffer> {
        let first = self.params + 2;
        self.session.bindings.inputs[first..first + self.caches.unwrap_or(0)].to_vec()
    }

    /// Goes on where another program stopped: caches have the same types.
    fn take_caches(&mut self, other: &mut Step) {
        for i in 0..self.caches.unwrap_or(0) {
            self.session.trade(self.params + 2 + i, &mut other.session, other.params + 2 + i);
        }
        (self.holds, other.holds) = (true, false);
    }
}
