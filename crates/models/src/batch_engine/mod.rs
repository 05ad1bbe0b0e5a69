//! Continuous batching: one program decodes the next token of every row, and rows are added and removed between two steps.
//!
//! A prompt is prefilled separately, in chunks of a fixed size, in its own cache ([`BatchEngine::start_prefill`],
//! [`BatchEngine::prefill_chunk`]); then it becomes a row ([`BatchEngine::admit`]). Rows are dense: programs of several sizes
//! work on the first entries of the same caches, so the cost of a step depends on the number of rows.
//! When a row is removed, the last row takes its place.
//!
//! # Equal bits
//!
//! The results of a row are bitwise independent of the other rows and of their number. Products split their reduction dimension
//! by its size alone, and every other op in a step works on single rows; but a product with a single row is summed in another
//! order, so the smallest program has two rows. Prompts are always split into the same chunks, so cached prefixes of earlier
//! prompts are bitwise equal to recomputing them.

mod adapters;
mod cache;
mod prefix;
mod program;

use crate::adapter::Adapter;
use crate::budget;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::Buffer;
use adapters::StackedAdapters;
use cache::CacheLayout;
use compiler::Backend;
use prefix::PrefixCache;
use program::{BatchProgram, ProgramBuilder, decode_step_graph};
use std::sync::Arc;

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Maximum number of rows.
    pub max_batch: usize,
    /// Maximum number of tokens of a sequence: prompt and generated ones.
    pub max_seq_len: usize,
    /// Number of prompt tokens per prefill chunk.
    pub prefill_chunk: usize,
    /// Maximum bytes of cached prompt prefixes; never more than the caches of the rows.
    pub prefix_cache_bytes: usize,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions { max_batch: 16, max_seq_len: 2048, prefill_chunk: 64, prefix_cache_bytes: 256 << 20 }
    }
}

/// A row of the batch.
#[derive(Clone, Copy, Debug)]
struct BatchRow {
    /// Its number of tokens.
    length: usize,
    adapter: i32,
}

/// A prompt that is being prefilled.
#[derive(Clone, Debug)]
struct PendingPrompt {
    ids: Vec<i32>,
    done: usize,
    adapter: i32,
    /// Sums of the hidden states so far, if an embedding is requested instead of the next token.
    states: Option<Vec<f64>>,
}

/// A suspended row or prompt with its cache contents: it makes room for another and is resumed later with bitwise equal results.
pub struct SuspendedSequence {
    row: BatchRow,
    prompt: Option<PendingPrompt>,
    /// The bytes of each cache.
    bytes: Vec<Vec<u8>>,
}

/// A batch of sequences with their caches.
pub struct BatchEngine {
    model: Arc<Model>,
    backend: Arc<dyn Backend>,
    stacked_adapters: Option<StackedAdapters>,
    adapters: usize,
    sizes: BatchOptions,
    /// Stacked adapters, then parameters.
    shared_buffers: Vec<Buffer>,
    layouts: Vec<CacheLayout>,
    /// Caches of all rows, and those of the current prompt.
    caches: Vec<Buffer>,
    prompt_caches: Vec<Buffer>,
    rows: Vec<BatchRow>,
    prompt: Option<PendingPrompt>,
    prefixes: PrefixCache,
    /// Programs for a prefill chunk, a single prompt token, and the hidden states of a chunk; decode programs by their number of rows.
    part: BatchProgram,
    decode_one: Option<BatchProgram>,
    hidden_states: Option<Option<BatchProgram>>,
    steps: Vec<(usize, BatchProgram)>,
}

impl BatchEngine {
    /// Creates an empty batch. Parameters are loaded now, decode programs at their first use, or by [`BatchEngine::warmup`].
    pub fn new(
        model: Arc<Model>,
        adapters: &[Adapter],
        sizes: BatchOptions,
        backend: Arc<dyn Backend>,
    ) -> Result<BatchEngine> {
        if let Some(why) = model.full_recompute_reason() {
            return Err(Error::Input(format!("incremental decoding is not supported by this model: {why}")));
        }
        let context = max_positions(&model).map_or(sizes.max_seq_len, |most| sizes.max_seq_len.min(most));
        if context < 2 || sizes.max_batch == 0 {
            return Err(Error::Input(
                "the maximum batch size must be at least 1, and the maximum sequence length at least 2".into(),
            ));
        }
        let capacity = context.next_multiple_of(2);
        let sizes =
            BatchOptions { max_seq_len: context, prefill_chunk: sizes.prefill_chunk.clamp(1, capacity), ..sizes };
        let short = decode_step_graph(&model, 1, capacity)?.caches;
        let layouts = CacheLayout::of(&short, &decode_step_graph(&model, 1, capacity + 2)?.caches);
        let row: u128 = layouts.iter().map(|layout| layout.bytes as u128).sum();
        let weights: u128 = model.params.iter().map(|param| param.ty.bytes() as u128).sum();
        let all = row * (sizes.max_batch as u128 + 1) + weights;
        budget::check_fits("the model with its KV cache", all, "reduce `--max-batch` or `--max-seq-len`")?;
        let stacked = StackedAdapters::new(adapters)?;
        let mut shared = match &stacked {
            Some(stacked) => stacked.upload(&*backend)?,
            None => Vec::new(),
        };
        shared.extend(model.upload(&*backend)?);
        let zeroed = |bytes: usize| -> Result<Buffer> {
            let buffer = backend.alloc(bytes)?;
            buffer.write(0, &vec![0; bytes])?;
            Ok(buffer)
        };
        let own = layouts.iter().map(|layout| zeroed(layout.bytes)).collect::<Result<Vec<_>>>()?;
        let caches = layouts.iter().map(|layout| zeroed(layout.bytes * sizes.max_batch)).collect::<Result<Vec<_>>>()?;
        let source =
            ProgramBuilder { model: &model, stacked: stacked.as_ref(), capacity, shared: &shared, backend: &*backend };
        let part = source.prefill_program(sizes.prefill_chunk, &own)?;
        // A recurrent state can't be truncated to a prefix, so only keys and values are cached.
        let pages = match layouts.iter().all(|layout| layout.positions.is_some()) {
            true => sizes.prefix_cache_bytes.min(layouts.iter().map(|layout| layout.bytes * sizes.max_batch).sum()),
            false => 0,
        };
        Ok(BatchEngine {
            prefixes: PrefixCache::new(pages, sizes.prefill_chunk, sizes.max_seq_len, &layouts),
            adapters: adapters.len(),
            stacked_adapters: stacked,
            shared_buffers: shared,
            layouts,
            caches,
            prompt_caches: own,
            rows: Vec::new(),
            prompt: None,
            part,
            decode_one: None,
            hidden_states: None,
            steps: Vec::new(),
            sizes,
            model,
            backend,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The sizes, limited by the model.
    pub fn sizes(&self) -> BatchOptions {
        self.sizes
    }

    /// The current number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether one more row can be added.
    pub fn has_room(&self) -> bool {
        self.rows.len() < self.sizes.max_batch
    }

    /// Bytes of cached prompt prefixes.
    pub fn prefix_bytes(&self) -> usize {
        self.prefixes.bytes()
    }

    /// The number of caches that are updated in place, and of all caches.
    pub fn in_place(&mut self) -> Result<(usize, usize)> {
        self.prepare(2)?;
        Ok(self.steps[0].1.in_place())
    }

    /// Compiles every program, and allocates all memory of the prefix cache.
    pub fn warmup(&mut self) -> Result<()> {
        self.prefixes.allocate();
        if self.cannot_embed().is_none() {
            self.prepare_hidden()?;
        }
        if !self.capacity().is_multiple_of(self.sizes.prefill_chunk) || self.has_states() {
            self.prepare_single()?;
        }
        let mut rows = 2;
        loop {
            self.prepare(rows)?;
            if rows >= self.sizes.max_batch {
                return Ok(());
            }
            rows *= 2;
        }
    }

    fn capacity(&self) -> usize {
        self.sizes.max_seq_len.next_multiple_of(2)
    }

    fn source(&self) -> ProgramBuilder<'_> {
        ProgramBuilder {
            model: &self.model,
            stacked: self.stacked_adapters.as_ref(),
            capacity: self.capacity(),
            shared: &self.shared_buffers,
            backend: &*self.backend,
        }
    }

    /// The row capacity of the smallest program for this many rows.
    fn size(&self, rows: usize) -> usize {
        rows.max(2).next_power_of_two().min(self.sizes.max_batch)
    }

    /// Compiles the smallest program for this many rows.
    fn prepare(&mut self, rows: usize) -> Result<usize> {
        let size = self.size(rows);
        if let Some(at) = self.steps.iter().position(|(own, _)| *own == size) {
            return Ok(at);
        }
        let program = self.source().decode_program(size, &self.caches)?;
        self.steps.push((size, program));
        Ok(self.steps.len() - 1)
    }

    /// Why this model supports no embeddings, as far as it is known before compilation.
    fn cannot_embed(&self) -> Option<String> {
        let states =
            self.has_states().then(|| "embeddings of a model with recurrent state are not supported here".to_string());
        self.model.pooling.unsupported.clone().or(states)
    }

    /// Whether a cache is a recurrent state, not indexed by position.
    fn has_states(&self) -> bool {
        self.layouts.iter().any(|layout| layout.positions.is_none())
    }

    fn prepare_hidden(&mut self) -> Result<()> {
        if self.hidden_states.is_none() {
            self.hidden_states =
                Some(self.source().hidden_state_program(self.sizes.prefill_chunk, &self.prompt_caches)?);
        }
        Ok(())
    }

    fn prepare_single(&mut self) -> Result<()> {
        if self.decode_one.is_none() {
            self.decode_one = Some(self.source().prefill_program(1, &self.prompt_caches)?);
        }
        Ok(())
    }

    /// Starts a prompt for the base model (0) or an adapter; returns how many of its tokens are in the prefix cache.
    pub fn start_prefill(&mut self, prompt: &[i32], adapter: usize) -> Result<usize> {
        self.check_prompt(prompt, adapter)?;
        let adapter = adapter as i32;
        self.forget_states()?;
        let done =
            self.prefixes.restore(adapter, prompt, self.sizes.prefill_chunk, &self.layouts, &self.prompt_caches)?;
        self.prompt = Some(PendingPrompt { ids: prompt.to_vec(), done, adapter, states: None });
        Ok(done)
    }

    /// Starts a text whose embedding [`BatchEngine::prefill_chunk`] returns after its last chunk.
    pub fn start_embedding(&mut self, ids: &[i32], adapter: usize) -> Result<()> {
        self.check_prompt(ids, adapter)?;
        if let Some(why) = self.cannot_embed() {
            return Err(Error::Input(why));
        }
        self.prepare_hidden()?;
        if matches!(self.hidden_states, Some(None)) {
            return Err(Error::Input(
                "the model has no language-model head on its hidden states, so it gives no embeddings".into(),
            ));
        }
        self.prompt =
            Some(PendingPrompt { ids: ids.to_vec(), done: 0, adapter: adapter as i32, states: Some(Vec::new()) });
        Ok(())
    }

    /// The number of tokens of the current prompt that are prefilled.
    pub fn prompt_tokens_done(&self) -> usize {
        self.prompt.as_ref().map_or(0, |prompt| prompt.done)
    }

    /// Suspends the current prompt.
    pub fn suspend_prompt(&mut self) -> Result<SuspendedSequence> {
        let Some(prompt) = self.prompt.take() else {
            return Err(Error::Input("no prompt is being processed".into()));
        };
        let bytes = cache::read(&self.layouts, &self.prompt_caches, 0, prompt.done)?;
        Ok(SuspendedSequence {
            row: BatchRow { length: prompt.done, adapter: prompt.adapter },
            prompt: Some(prompt),
            bytes,
        })
    }

    /// Suspends a row. If it is not the last row, the last row takes its index.
    pub fn suspend_row(&mut self, row: usize) -> Result<SuspendedSequence> {
        let Some(&own) = self.rows.get(row) else { return Err(Error::Input(format!("no row {row}"))) };
        let bytes = cache::read(&self.layouts, &self.caches, row, own.length)?;
        self.evict(row)?;
        Ok(SuspendedSequence { row: own, prompt: None, bytes })
    }

    /// Resumes a suspended prompt as the current one, or a suspended row as the last one.
    pub fn resume(&mut self, aside: SuspendedSequence) -> Result<()> {
        let length = aside.row.length;
        if aside.prompt.is_some() {
            cache::write(&self.layouts, &self.prompt_caches, 0, length, &aside.bytes)?;
            self.prompt = aside.prompt;
            return Ok(());
        }
        if !self.has_room() {
            return Err(Error::Input(format!("all {} rows are in use", self.sizes.max_batch)));
        }
        cache::write(&self.layouts, &self.caches, self.rows.len(), length, &aside.bytes)?;
        self.rows.push(aside.row);
        Ok(())
    }

    /// Checks a prompt.
    pub fn check_prompt(&self, prompt: &[i32], adapter: usize) -> Result<()> {
        self.model.check_ids(&[prompt.to_vec()])?;
        if prompt.len() >= self.sizes.max_seq_len {
            return Err(Error::Input(format!(
                "{} tokens: the maximum sequence length is {} and at least one token must be generated",
                prompt.len(),
                self.sizes.max_seq_len
            )));
        }
        if adapter > self.adapters {
            return Err(Error::Input(format!("adapter {adapter} does not exist: there are {}", self.adapters)));
        }
        Ok(())
    }

    /// Sets recurrent states to zero; keys and values are written before they are read.
    fn forget_states(&mut self) -> Result<()> {
        for (layout, buffer) in self.layouts.iter().zip(&self.prompt_caches) {
            if layout.positions.is_none() {
                buffer.write(0, &vec![0; layout.bytes])?;
            }
        }
        Ok(())
    }

    /// Prefills the next chunk of the prompt; after the last one it returns the logits of the next token.
    pub fn prefill_chunk(&mut self) -> Result<Option<Vec<f32>>> {
        let Some(mut prompt) = self.prompt.take() else {
            return Err(Error::Input("no prompt is being processed".into()));
        };
        if let Some(states) = prompt.states.take() {
            return self.advance_embedding(prompt, states);
        }
        let part = self.sizes.prefill_chunk;
        let left = prompt.ids.len() - prompt.done;
        // Padding positions are overwritten before they are read; a recurrent state would be changed by them.
        let pads = !self.has_states();
        let fits = prompt.done + part <= self.capacity();
        let (program, count) = match left >= part || pads && fits {
            true => (&mut self.part, part),
            false => {
                self.prepare_single()?;
                match &mut self.decode_one {
                    Some(single) => (single, 1),
                    None => return Err(Error::Input("the program is missing".into())),
                }
            }
        };
        let real = left.min(count);
        let mut ids = prompt.ids[prompt.done..prompt.done + real].to_vec();
        ids.resize(count, ids[real - 1]);
        let row = real as i32 - 1;
        program.run(&ids, &[prompt.done as i32], &[prompt.adapter], Some(row), &*self.backend)?;
        prompt.done += real;
        if real == part {
            let done = &prompt.ids[..prompt.done];
            self.prefixes.insert(prompt.adapter, done, part, &self.layouts, &self.prompt_caches)?;
        }
        let last = prompt.done == prompt.ids.len();
        self.prompt = Some(prompt);
        if !last {
            return Ok(None);
        }
        let program = if count == 1 { self.decode_one.as_ref().unwrap_or(&self.part) } else { &self.part };
        Ok(Some(program.result()?.0))
    }

    /// Adds the prefilled prompt as a row; returns its index.
    pub fn admit(&mut self) -> Result<usize> {
        let Some(prompt) = self.prompt.take().filter(|prompt| prompt.done == prompt.ids.len()) else {
            return Err(Error::Input("no prompt has been processed completely".into()));
        };
        if !self.has_room() {
            return Err(Error::Input(format!("all {} rows are in use", self.sizes.max_batch)));
        }
        let row = self.rows.len();
        cache::copy(&self.layouts, (&self.prompt_caches, 0), (&self.caches, row), prompt.done)?;
        self.rows.push(BatchRow { length: prompt.done, adapter: prompt.adapter });
        Ok(row)
    }

    /// Cancels the current prompt.
    pub fn cancel_prompt(&mut self) {
        self.prompt = None;
    }

    /// The number of tokens of a row.
    pub fn row_length(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |row| row.length)
    }

    /// The number of rows of a step for at least this many: the smallest program also has places for some of the following rows.
    pub fn step_width(&self, rows: usize) -> usize {
        self.size(rows).min(self.rows.len())
    }

    /// Decodes one more token for the first rows: all of them, or as many as [`BatchEngine::step_width`] returns. Returns the
    /// logits of the next tokens, row by row, and their number per row. The other rows are unchanged.
    pub fn step(&mut self, next: &[i32]) -> Result<(Vec<f32>, usize)> {
        if next.is_empty() || next.len() != self.step_width(next.len()) {
            return Err(Error::Input(format!("{} token IDs for {} rows", next.len(), self.rows.len())));
        }
        self.model.check_ids(&[next.to_vec()])?;
        if let Some(row) = self.rows[..next.len()].iter().position(|row| row.length >= self.sizes.max_seq_len) {
            return Err(Error::Input(format!(
                "row {row} has reached the maximum sequence length of {}",
                self.sizes.max_seq_len
            )));
        }
        let at = self.prepare(next.len())?;
        let (size, program) = &mut self.steps[at];
        let filled = |values: &mut dyn Iterator<Item = i32>| {
            let mut values: Vec<i32> = values.collect();
            values.resize(*size, 0);
            values
        };
        let ids = filled(&mut next.iter().copied());
        let rows = &self.rows[..next.len()];
        let positions = filled(&mut rows.iter().map(|row| row.length as i32));
        let adapters = filled(&mut rows.iter().map(|row| row.adapter));
        program.run(&ids, &positions, &adapters, None, &*self.backend)?;
        self.rows[..next.len()].iter_mut().for_each(|row| row.length += 1);
        let (mut logits, width) = program.result()?;
        logits.truncate(width * next.len());
        Ok((logits, width))
    }

    /// Removes a row. If it is not the last row, the last row takes its index.
    pub fn evict(&mut self, row: usize) -> Result<()> {
        if row >= self.rows.len() {
            return Err(Error::Input(format!("no row {row}")));
        }
        let last = self.rows.len() - 1;
        if row != last {
            cache::copy(&self.layouts, (&self.caches, last), (&self.caches, row), self.rows[last].length)?;
        }
        self.rows.swap_remove(row);
        Ok(())
    }

    /// Replaces the rows by copies of these rows, in this order.
    pub fn reorder_cache(&mut self, from: &[usize]) -> Result<()> {
        if from.len() > self.sizes.max_batch || from.iter().any(|row| *row >= self.rows.len()) {
            return Err(Error::Input("no such rows".into()));
        }
        let mut kept = Vec::new();
        for (to, &row) in from.iter().enumerate() {
            let length = self.rows[row].length;
            let bytes = match to == row {
                true => None,
                false => Some(
                    self.layouts.iter().zip(&self.caches).map(|(layout, cache)| layout.read(cache, row, 0..length)),
                ),
            };
            kept.push(bytes.map(|bytes| bytes.collect::<Result<Vec<_>>>()).transpose()?);
        }
        let rows: Vec<BatchRow> = from.iter().map(|row| self.rows[*row]).collect();
        for (to, bytes) in kept.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            for ((layout, cache), bytes) in self.layouts.iter().zip(&self.caches).zip(bytes) {
                layout.write(cache, to, 0..rows[to].length, bytes)?;
            }
        }
        self.rows = rows;
        Ok(())
    }

    /// The embedding of a token sequence: the hidden states before the head, pooled as configured in the model's directory; by
    /// default the mean, normalized to length 1.
    pub fn embed(&mut self, ids: &[i32], adapter: usize) -> Result<Vec<f32>> {
        if self.prompt.is_some() {
            return Err(Error::Input("another prompt is being processed".into()));
        }
        self.start_embedding(ids, adapter)?;
        loop {
            if let Some(vector) = self.prefill_chunk()? {
                return Ok(vector);
            }
        }
    }

    /// Runs the next chunk of a text that is embedded.
    fn advance_embedding(&mut self, mut prompt: PendingPrompt, mut sums: Vec<f64>) -> Result<Option<Vec<f32>>> {
        let part = self.sizes.prefill_chunk;
        let capacity = self.capacity();
        let pooling = self.source().model.pooling.clone();
        let Some(Some(program)) = &mut self.hidden_states else {
            return Err(Error::Input("the program is missing".into()));
        };
        let (ids, done) = (&prompt.ids, prompt.done);
        // The last chunk may start earlier, so that it fits: positions are rewritten with the same values.
        let start = done.min(capacity - part);
        let real = (ids.len() - start).min(part);
        let mut here = ids[start..start + real].to_vec();
        here.resize(part, ids[ids.len() - 1]);
        program.run(&here, &[start as i32], &[prompt.adapter], None, &*self.backend)?;
        let (states, width) = program.result()?;
        for (n, row) in states.chunks_exact(width.max(1)).take(real).enumerate().skip(done - start) {
            pooling.add(&mut sums, row, start + n, ids.len());
        }
        prompt.done = start + real;
        if prompt.done < prompt.ids.len() {
            prompt.states = Some(sums);
            self.prompt = Some(prompt);
            return Ok(None);
        }
        Ok(Some(pooling.finish(&sums, prompt.ids.len())))
    }
}

/// The maximum sequence length for incremental decoding.
fn max_positions(model: &Model) -> Option<usize> {
    // Beyond this, the rotation factors of all positions change.
    model.max_positions().into_iter().chain(model.max_sequence()).chain(model.architecture.long_rope_threshold()).min()
}
