//! Incremental decoding of a sequence: append token IDs, get the logits of the next token.
//!
//! Where the model's graph allows it (`lang::lower::SequenceLimits`), past positions are kept in caches and only new tokens are
//! computed, by programs that serve every length up to the caches' capacity. Otherwise each call recomputes the whole sequence.
//! Of several tokens only the last is scored, unless all are requested.

use crate::adapter::Adapter;
use crate::asserts;
use crate::error::{Error, Result};
use crate::insert_adapter::insert_adapter;
use crate::last_token::select_last_token;
use crate::model::Model;
use crate::session::{Buffer, ProgramSession};
use crate::sharded::Sharded;
use compiler::Backend;
use dist::Comm;
use lang::lower::{LowerOptions, Lowered, Observation};
use std::sync::Arc;
use std::time::{Duration, Instant};
use train::named_tensor::from_bytes;

/// Capacities are multiples of this, so that few programs serve many lengths.
const CAPACITY_BLOCK: usize = 64;

/// The prefill chunk size in tokens: products of this size are as fast as larger ones, and activations of long prompts would take
/// more memory than small models.
const PREFILL_CHUNK: usize = 256;

/// Up to this many tokens, weights are used from the memory-mapped file. That saves a second per gigabyte before the first token;
/// copied weights are in larger memory pages, which makes each token a tenth faster.
const MAX_IN_PLACE_TOKENS: usize = 1024;

/// Maximum number of cached programs that alternate.
const MAX_PROGRAMS: usize = 3;

/// A sequence with the state to continue it.
pub struct DecodeSession<'a> {
    model: &'a Model,
    /// An adapter beside the model's products; its tensors come before the parameters.
    adapter: Option<&'a Adapter>,
    backend: &'a dyn Backend,
    params: Vec<Buffer>,
    capacity: usize,
    ids: Vec<i32>,
    /// Compiled programs. The one that ran last comes first, and owns the caches.
    steps: Vec<DecodeProgram>,
    /// The caches, while no program owns them.
    detached_caches: Option<Vec<Buffer>>,
    /// Whether several tokens are sometimes scored at once, for speculative decoding.
    speculative: bool,
    last_run_time: Duration,
    /// The sharding of the model among ranks.
    sharded: Option<Sharded>,
}

impl Model {
    /// Creates an empty sequence of capacity `most` tokens.
    pub fn decode_session<'a>(&'a self, most: usize, backend: &'a dyn Backend) -> Result<DecodeSession<'a>> {
        self.decode_session_sharded(most, backend, None)
    }

    /// Creates a sequence as one of several ranks that share the model by the mesh of `comm`; the backend must use it for
    /// collectives. All ranks make the same calls and get the same logits.
    pub fn decode_session_sharded<'a>(
        &'a self,
        most: usize,
        backend: &'a dyn Backend,
        comm: Option<Arc<Comm>>,
    ) -> Result<DecodeSession<'a>> {
        if let Some(longest) = self.max_positions().filter(|longest| most > *longest) {
            return Err(Error::Input(format!("{most} tokens exceed the model's maximum sequence length of {longest}")));
        }
        let divided = comm.filter(|comm| comm.mesh().ranks() > 1).map(|comm| Sharded::new(self, comm)).transpose()?;
        let params = match &divided {
            Some(divided) => divided.upload(self, backend)?,
            None if most <= MAX_IN_PLACE_TOKENS => self.upload_in_place(backend)?,
            None => self.upload(backend)?,
        };
        Ok(DecodeSession { sharded: divided, ..self.decode_session_on(params, None, most, backend) })
    }

    /// Creates a sequence with parameters that are on the device already, preceded by those of an adapter.
    pub(crate) fn decode_session_on<'a>(
        &'a self,
        params: Vec<Buffer>,
        adapter: Option<&'a Adapter>,
        most: usize,
        backend: &'a dyn Backend,
    ) -> DecodeSession<'a> {
        let capacity = most.max(1).next_multiple_of(CAPACITY_BLOCK);
        let (ids, steps, held, ran) = (Vec::new(), Vec::new(), None, Duration::ZERO);
        let (guesses, divided) = (false, None);
        DecodeSession {
            model: self,
            adapter,
            backend,
            params,
            capacity,
            ids,
            steps,
            detached_caches: held,
            speculative: guesses,
            last_run_time: ran,
            sharded: divided,
        }
    }

    /// Lowers the model's graph, with the adapter beside it.
    fn lower_adapted(&self, adapter: Option<&Adapter>, count: usize, options: &LowerOptions) -> Result<Lowered> {
        let Some(adapter) = adapter else { return self.lower_with(1, count, options) };
        let mut lowered = self.architecture.lower_with(1, count, options)?;
        let graph = insert_adapter(&lowered.graph, false, adapter, false)?;
        lowered.graph = self.read_packed(&graph, adapter.values.len())?;
        Ok(lowered)
    }
}

impl DecodeSession<'_> {
    /// The token IDs so far.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// The run time of the last call, without compilation.
    pub fn last_run_time(&self) -> Duration {
        self.last_run_time
    }

    /// Whether every call recomputes the whole sequence.
    pub fn recomputes_prefix(&self) -> bool {
        self.model.limits.not_incremental.is_some()
    }

    /// Compiles the program for a call with this many tokens, if it is not cached.
    pub fn prepare(&mut self, count: usize) -> Result<()> {
        if self.recomputes_prefix() { Ok(()) } else { self.select_program(self.prefill_count(count), false) }
    }

    /// The prefill chunk size for this many tokens.
    fn prefill_count(&self, count: usize) -> usize {
        if count <= PREFILL_CHUNK || self.recomputes_prefix() || self.model.architecture.rotates_by_length() {
            return count.max(1);
        }
        count.div_ceil(count.div_ceil(PREFILL_CHUNK))
    }

    /// Moves the program for this many tokens to the front.
    fn select_program(&mut self, count: usize, all: bool) -> Result<()> {
        let fits = |step: &DecodeProgram| step.count == count && (step.score_all == all || count == 1);
        // The program of a prompt is not needed again; those of speculative decoding are.
        self.speculative |= all && count > 1;
        let step = match self.steps.iter().position(fits) {
            Some(0) => return Ok(()),
            Some(at) => self.steps.remove(at),
            None => {
                // The next program replaces this one, and takes over its caches.
                if !self.speculative {
                    self.detached_caches = self
                        .steps
                        .iter()
                        .find(|step| step.owns_caches)
                        .map(DecodeProgram::caches)
                        .or(self.detached_caches.take());
                    self.steps.clear();
                }
                let step = DecodeProgram::cached(self, count, all)?;
                cpu::trim_heap();
                step
            }
        };
        self.detached_caches = None;
        self.steps.insert(0, step);
        let (first, rest) = self.steps.split_at_mut(1);
        if let Some(last) = rest.iter_mut().find(|step| step.owns_caches) {
            first[0].take_caches(last);
        }
        self.steps.truncate(if self.speculative { MAX_PROGRAMS } else { 1 });
        Ok(())
    }

    /// Appends tokens; returns the logits of the next one. Many tokens are prefilled in chunks, by one program if they divide evenly.
    pub fn append(&mut self, ids: &[i32]) -> Result<Vec<f32>> {
        let (mut rows, mut ran, before) = (Vec::new(), Duration::ZERO, self.ids.len());
        self.model.check_ids(&[ids.to_vec()])?;
        if before + ids.len() > self.capacity {
            return Err(Error::Input(format!("the sequence exceeds its capacity of {} tokens", self.capacity)));
        }
        for part in ids.chunks(self.prefill_count(ids.len())) {
            match self.run(part, false) {
                Ok(found) => rows = found,
                Err(error) => {
                    // Entries after the end are never read.
                    self.ids.truncate(before);
                    return Err(error);
                }
            }
            ran += self.last_run_time;
        }
        self.last_run_time = ran;
        Ok(rows.pop().unwrap_or_default())
    }

    /// Appends tokens; returns the logits after each of them.
    pub fn append_scored(&mut self, ids: &[i32]) -> Result<Vec<Vec<f32>>> {
        self.run(ids, true)
    }

    /// Truncates the sequence. Models with a recurrent state don't support this.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        if self.steps.iter().any(|step| step.caches.is_some() && !step.by_position) && length < self.ids.len() {
            return Err(Error::Input("recurrent state cannot be rolled back".into()));
        }
        // Keys and values after the end are overwritten before they are read.
        self.ids.truncate(length);
        Ok(())
    }

    fn run(&mut self, ids: &[i32], all: bool) -> Result<Vec<Vec<f32>>> {
        self.model.check_ids(&[ids.to_vec()])?;
        let before = self.ids.len();
        if before + ids.len() > self.capacity {
            return Err(Error::Input(format!("the sequence exceeds its capacity of {} tokens", self.capacity)));
        }
        self.ids.extend(ids);
        // If rotation factors change at this length, the whole sequence is recomputed.
        let again = self
            .model
            .architecture
            .long_rope_threshold()
            .is_some_and(|from| before > 0 && before <= from && self.ids.len() > from);
        if again {
            self.steps.clear();
            self.detached_caches = None;
        }
        let (new, position) = match again || self.recomputes_prefix() {
            true => (self.ids.clone(), 0),
            false => (ids.to_vec(), before),
        };
        if self.recomputes_prefix() {
            self.steps = vec![DecodeProgram::full_sequence(self, new.len())?];
        } else {
            self.select_program(new.len(), all)?;
        }
        let Some(step) = self.steps.first_mut() else { return Err(Error::Input("the program is missing".into())) };
        let started = Instant::now();
        let rows = step.run(&new, position);
        self.last_run_time = started.elapsed();
        self.model.check_in_place_reads()?;
        let mut rows = rows?;
        let asked = if all { ids.len() } else { 1 };
        Ok(rows.split_off(rows.len().saturating_sub(asked)))
    }
}

/// A program for a number of tokens. Its inputs are parameters, token IDs and, with caches, position, caches and, if only one row
/// is scored, that row; its outputs are logits and caches.
struct DecodeProgram {
    session: ProgramSession,
    count: usize,
    /// Whether all rows are scored.
    score_all: bool,
    params: usize,
    /// The number of caches; none if the whole sequence is recomputed.
    caches: Option<usize>,
    by_position: bool,
    /// Whether it owns the current caches.
    owns_caches: bool,
    /// Observed values, which are outputs from this index on.
    observed: (usize, Vec<Observation>),
}

impl DecodeProgram {
    /// Builds the program that appends `count` tokens to the caches.
    fn cached(of: &DecodeSession<'_>, count: usize, all: bool) -> Result<DecodeProgram> {
        let DecodeSession {
            model,
            adapter,
            backend,
            ref params,
            capacity,
            sharded: ref divided,
            detached_caches: ref held,
            ..
        } = *of;
        // No derivatives are needed, so composites with custom derivatives would only block fusion.
        let options = LowerOptions {
            dtype: model.dtype,
            decode: Some(capacity),
            asserts: true,
            custom_backward: false,
            ..LowerOptions::default()
        };
        let lowered = model.lower_adapted(adapter, count, &options)?;
        let all = all || count == 1;
        let graph = if all { lowered.graph } else { select_last_token(&lowered.graph, 1)? };
        let (n, caches) = (params.len(), lowered.caches.len());
        let results = lowered.outputs.len();
        let graph = match divided {
            Some(divided) => divided.local_graph(&graph, &lowered.caches, results)?,
            None => graph,
        };
        let own = graph.input_types();
        let donate: Vec<_> = (0..caches).map(|i| (n + 2 + i, results + i)).collect();
        let places = held.iter().flatten().enumerate().map(|(i, buffer)| (n + 2 + i, buffer.clone()));
        let session =
            ProgramSession::with_resident_inputs(&graph, backend, params, donate, &places.collect::<Vec<_>>())?;
        let observed = (results + caches, lowered.observations);
        let by_position = lowered.caches.iter().all(|ty| ty.rank() == 4 && ty.shape[2] == capacity);
        let caches = Some(caches);
        let step = DecodeProgram {
            session,
            count,
            score_all: all,
            params: n,
            caches,
            by_position,
            owns_caches: true,
            observed,
        };
        let fresh = if held.is_some() { 0 } else { lowered.caches.len() };
        for i in n + 2..n + 2 + fresh {
            step.session.bindings.inputs[i].write(0, &vec![0; own[i].bytes()])?;
        }
        Ok(step)
    }

    /// Builds the program that runs a sequence of `count` tokens from its beginning.
    fn full_sequence(of: &DecodeSession<'_>, count: usize) -> Result<DecodeProgram> {
        let DecodeSession { model, adapter, backend, ref params, sharded: ref divided, .. } = *of;
        let options = LowerOptions { dtype: model.dtype, asserts: true, ..LowerOptions::default() };
        let lowered = model.lower_adapted(adapter, count, &options)?;
        let graph = match divided {
            Some(divided) => divided.local_graph(&lowered.graph, &[], lowered.outputs.len())?,
            None => lowered.graph,
        };
        let session = ProgramSession::new(&graph, backend, params)?;
        let observed = (lowered.outputs.len(), lowered.observations);
        let (params, by_position) = (params.len(), true);
        Ok(DecodeProgram {
            session,
            count,
            score_all: true,
            params,
            caches: None,
            by_position,
            owns_caches: true,
            observed,
        })
    }

    /// Runs tokens at a position; returns the logits after each, or after the last.
    fn run(&mut self, ids: &[i32], position: usize) -> Result<Vec<Vec<f32>>> {
        let position = i32::try_from(position).map_err(|_| Error::Input("the sequence is too long".into()))?;
        self.session.write_ints(self.params, ids.iter().copied())?;
        if let Some(caches) = self.caches {
            self.session.write_ints(self.params + 1, std::iter::once(position))?;
            if !self.score_all {
                self.session.write_ints(self.params + 2 + caches, std::iter::once(ids.len() as i32 - 1))?;
            }
        }
        self.session.run()?;
        asserts::check_assertions(&self.session, &self.observed.1, self.observed.0)?;
        let (ty, bytes) = self.session.read(0)?;
        self.session.swap();
        let values = from_bytes(&bytes, ty.dtype);
        let width = ty.shape.last().copied().unwrap_or(1).max(1);
        Ok(values.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }

    /// The current caches.
    fn caches(&self) -> Vec<Buffer> {
        let first = self.params + 2;
        self.session.bindings.inputs[first..first + self.caches.unwrap_or(0)].to_vec()
    }

    /// Takes over the caches of another program: they have the same types.
    fn take_caches(&mut self, other: &mut DecodeProgram) {
        for i in 0..self.caches.unwrap_or(0) {
            self.session.exchange_input(self.params + 2 + i, &mut other.session, other.params + 2 + i);
        }
        (self.owns_caches, other.owns_caches) = (true, false);
    }
}
