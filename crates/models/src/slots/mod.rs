//! Sequences that grow together: one program runs the next id of every row, and rows come and go between two runs.
//!
//! A prompt is run by itself, in parts of a fixed size, in a cache of its own ([`Slots::begin`], [`Slots::advance`]); then it
//! becomes a row ([`Slots::join`]). Rows are dense: programs of several sizes work on the first entries of the same caches,
//! so a few rows cost what a few rows cost. Where one leaves, the last takes its place.
//!
//! # Equal bits
//!
//! A row gives the same bits whatever stands in the other rows and however many there are. Products cut their depth by
//! its size alone, and everything else in a step belongs to one row; but a product with a single row is added up in another
//! order, so the smallest program has two. Prompts are run in the same parts from their first id on, so what is taken over from
//! an earlier prompt has the bits that running it would give.

mod adapters;
mod cache;
mod prefix;
mod program;

use crate::adapter::Adapter;
use crate::budget;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::Buffer;
use adapters::Stacked;
use cache::Layout;
use compiler::Backend;
use prefix::Prefixes;
use program::{Program, Source, step_of};
use std::sync::Arc;

/// Sizes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSizes {
    /// Rows at once.
    pub rows: usize,
    /// Ids of a sequence, prompt and new ones.
    pub context: usize,
    /// Ids of a prompt that are run at once.
    pub part: usize,
    /// Bytes of prefixes of prompts that are kept, at most; never more than the caches of the rows have.
    pub prefixes: usize,
}

impl Default for SlotSizes {
    fn default() -> SlotSizes {
        SlotSizes { rows: 16, context: 2048, part: 64, prefixes: 256 << 20 }
    }
}

/// A row of the batch.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// How many ids it has.
    length: usize,
    adapter: i32,
}

/// A prompt that is being run.
#[derive(Clone, Debug)]
struct Prompt {
    ids: Vec<i32>,
    done: usize,
    adapter: i32,
    /// Sums of the states so far, where these are asked for and not the next id.
    states: Option<Vec<f64>>,
}

/// A row, or a prompt that is being run, with what the caches have of it: it makes place for another and goes on later, with the
/// same bits.
pub struct Aside {
    row: Row,
    prompt: Option<Prompt>,
    /// By cache.
    bytes: Vec<Vec<u8>>,
}

/// Sequences that grow together.
pub struct Slots {
    model: Arc<Model>,
    backend: Arc<dyn Backend>,
    stacked: Option<Stacked>,
    adapters: usize,
    sizes: SlotSizes,
    /// Stacks of adapters, then parameters.
    shared: Vec<Buffer>,
    layouts: Vec<Layout>,
    /// Caches of all rows, and those of the prompt at hand.
    caches: Vec<Buffer>,
    own: Vec<Buffer>,
    rows: Vec<Row>,
    prompt: Option<Prompt>,
    prefixes: Prefixes,
    /// A part of a prompt, a single id of one, states of a part; rows by their number.
    part: Program,
    single: Option<Program>,
    hidden: Option<Option<Program>>,
    steps: Vec<(usize, Program)>,
}

impl Slots {
    /// An empty batch. Parameters are read now, programs of rows when they are first needed, or by [`Slots::warm`].
    pub fn new(model: Arc<Model>, adapters: &[Adapter], sizes: SlotSizes, backend: Arc<dyn Backend>) -> Result<Slots> {
        if let Some(why) = model.runs_whole() {
            return Err(Error::Input(format!(
                "incremental decoding is not supported by this model: {why}"
            )));
        }
        let context = longest(&model).map_or(sizes.context, |most| sizes.context.min(most));
        if context < 2 || sizes.rows == 0 {
            return Err(Error::Input("the maximum batch size must be at least 1, and the maximum sequence length at least 2".into()));
        }
        let capacity = context.next_multiple_of(2);
        let sizes = SlotSizes { context, part: sizes.part.clamp(1, capacity), ..sizes };
        let short = step_of(&model, 1, capacity)?.caches;
        let layouts = Layout::of(&short, &step_of(&model, 1, capacity + 2)?.caches);
        let row: u128 = layouts.iter().map(|layout| layout.bytes as u128).sum();
        let weights: u128 = model.params.iter().map(|param| param.ty.bytes() as u128).sum();
        let all = row * (sizes.rows as u128 + 1) + weights;
        budget::fits("the model with its KV cache", all, "reduce `--max-batch` or `--max-seq-len`")?;
        let stacked = Stacked::new(adapters)?;
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
        let caches = layouts.iter().map(|layout| zeroed(layout.bytes * sizes.rows)).collect::<Result<Vec<_>>>()?;
        let source = Source { model: &model, stacked: stacked.as_ref(), capacity, shared: &shared, backend: &*backend };
        let part = source.part(sizes.part, &own)?;
        // States of other positions can't be cut out, so only keys and values are worth keeping.
        let pages = match layouts.iter().all(|layout| layout.positions.is_some()) {
            true => sizes.prefixes.min(layouts.iter().map(|layout| layout.bytes * sizes.rows).sum()),
            false => 0,
        };
        Ok(Slots {
            prefixes: Prefixes::new(pages, sizes.part, sizes.context, &layouts),
            adapters: adapters.len(),
            stacked,
            shared,
            layouts,
            caches,
            own,
            rows: Vec::new(),
            prompt: None,
            part,
            single: None,
            hidden: None,
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

    /// Its sizes, as far as the model allows.
    pub fn sizes(&self) -> SlotSizes {
        self.sizes
    }

    /// How many rows there are now.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether one more row has a place.
    pub fn has_room(&self) -> bool {
        self.rows.len() < self.sizes.rows
    }

    /// Bytes of beginnings of prompts that are kept.
    pub fn prefix_bytes(&self) -> usize {
        self.prefixes.bytes()
    }

    /// How many caches are changed in place, of how many: all of them, where the device can.
    pub fn in_place(&mut self) -> Result<(usize, usize)> {
        self.prepare(2)?;
        Ok(self.steps[0].1.in_place())
    }

    /// Compiles every program, and allocates all memory that prefixes may take.
    pub fn warm(&mut self) -> Result<()> {
        self.prefixes.allocate();
        if self.cannot_embed().is_none() {
            self.prepare_hidden()?;
        }
        if !self.capacity().is_multiple_of(self.sizes.part) || self.has_states() {
            self.prepare_single()?;
        }
        let mut rows = 2;
        loop {
            self.prepare(rows)?;
            if rows >= self.sizes.rows {
                return Ok(());
            }
            rows *= 2;
        }
    }

    fn capacity(&self) -> usize {
        self.sizes.context.next_multiple_of(2)
    }

    fn source(&self) -> Source<'_> {
        Source {
            model: &self.model,
            stacked: self.stacked.as_ref(),
            capacity: self.capacity(),
            shared: &self.shared,
            backend: &*self.backend,
        }
    }

    /// Rows of the smallest program for so many.
    fn size(&self, rows: usize) -> usize {
        rows.max(2).next_power_of_two().min(self.sizes.rows)
    }

    /// The program for so many rows, or a few more.
    fn prepare(&mut self, rows: usize) -> Result<usize> {
        let size = self.size(rows);
        if let Some(at) = self.steps.iter().position(|(own, _)| *own == size) {
            return Ok(at);
        }
        let program = self.source().rows(size, &self.caches)?;
        self.steps.push((size, program));
        Ok(self.steps.len() - 1)
    }

    /// Why this model gives no embeddings, as far as that is known before they are compiled.
    fn cannot_embed(&self) -> Option<String> {
        let states = self.has_states().then(|| "embeddings of a model with recurrent state are not supported here".to_string());
        self.model.pooling.refused.clone().or(states)
    }

    /// Whether a cache has a state for all positions, and not a place for each.
    fn has_states(&self) -> bool {
        self.layouts.iter().any(|layout| layout.positions.is_none())
    }

    fn prepare_hidden(&mut self) -> Result<()> {
        if self.hidden.is_none() {
            self.hidden = Some(self.source().hidden(self.sizes.part, &self.own)?);
        }
        Ok(())
    }

    fn prepare_single(&mut self) -> Result<()> {
        if self.single.is_none() {
            self.single = Some(self.source().part(1, &self.own)?);
        }
        Ok(())
    }

    /// Begins a prompt, of the model itself (0) or an adapter; gives how many of its ids are known from an earlier one.
    pub fn begin(&mut self, prompt: &[i32], adapter: usize) -> Result<usize> {
        self.check(prompt, adapter)?;
        let adapter = adapter as i32;
        self.forget_states()?;
        let done = self.prefixes.restore(adapter, prompt, self.sizes.part, &self.layouts, &self.own)?;
        self.prompt = Some(Prompt { ids: prompt.to_vec(), done, adapter, states: None });
        Ok(done)
    }

    /// Begins a text whose embedding [`Slots::advance`] gives after its last part.
    pub fn begin_embedding(&mut self, ids: &[i32], adapter: usize) -> Result<()> {
        self.check(ids, adapter)?;
        if let Some(why) = self.cannot_embed() {
            return Err(Error::Input(why));
        }
        self.prepare_hidden()?;
        if matches!(self.hidden, Some(None)) {
            return Err(Error::Input(
                "the model has no language-model head on its hidden states, so it gives no embeddings".into(),
            ));
        }
        self.prompt = Some(Prompt { ids: ids.to_vec(), done: 0, adapter: adapter as i32, states: Some(Vec::new()) });
        Ok(())
    }

    /// How many ids of the prompt at hand are done.
    pub fn done(&self) -> usize {
        self.prompt.as_ref().map_or(0, |prompt| prompt.done)
    }

    /// Puts the prompt at hand aside.
    pub fn set_aside(&mut self) -> Result<Aside> {
        let Some(prompt) = self.prompt.take() else {
            return Err(Error::Input("no prompt is being processed".into()));
        };
        let bytes = cache::read(&self.layouts, &self.own, 0, prompt.done)?;
        Ok(Aside { row: Row { length: prompt.done, adapter: prompt.adapter }, prompt: Some(prompt), bytes })
    }

    /// Takes a row out of the batch; the last row, if it is another, has its number then.
    pub fn suspend(&mut self, row: usize) -> Result<Aside> {
        let Some(&own) = self.rows.get(row) else { return Err(Error::Input(format!("no row {row}"))) };
        let bytes = cache::read(&self.layouts, &self.caches, row, own.length)?;
        self.leave(row)?;
        Ok(Aside { row: own, prompt: None, bytes })
    }

    /// Goes on with what was put aside: a prompt is at hand again, a row is the last one.
    pub fn resume(&mut self, aside: Aside) -> Result<()> {
        let length = aside.row.length;
        if aside.prompt.is_some() {
            cache::write(&self.layouts, &self.own, 0, length, &aside.bytes)?;
            self.prompt = aside.prompt;
            return Ok(());
        }
        if !self.has_room() {
            return Err(Error::Input(format!("all {} rows are in use", self.sizes.rows)));
        }
        cache::write(&self.layouts, &self.caches, self.rows.len(), length, &aside.bytes)?;
        self.rows.push(aside.row);
        Ok(())
    }

    /// What is wrong with a prompt.
    pub fn check(&self, prompt: &[i32], adapter: usize) -> Result<()> {
        self.model.check_ids(&[prompt.to_vec()])?;
        if prompt.len() >= self.sizes.context {
            return Err(Error::Input(format!(
                "{} tokens: the maximum sequence length is {} and at least one token must be generated",
                prompt.len(),
                self.sizes.context
            )));
        }
        if adapter > self.adapters {
            return Err(Error::Input(format!("adapter {adapter} does not exist: there are {}", self.adapters)));
        }
        Ok(())
    }

    /// States begin with zero; keys and values are written before they are read.
    fn forget_states(&mut self) -> Result<()> {
        for (layout, buffer) in self.layouts.iter().zip(&self.own) {
            if layout.positions.is_none() {
                buffer.write(0, &vec![0; layout.bytes])?;
            }
        }
        Ok(())
    }

    /// Runs the next part of the prompt; after the last one it gives the logits of the id that comes next.
    pub fn advance(&mut self) -> Result<Option<Vec<f32>>> {
        let Some(mut prompt) = self.prompt.take() else {
            return Err(Error::Input("no prompt is being processed".into()));
        };
        if let Some(states) = prompt.states.take() {
            return self.advance_embedding(prompt, states);
        }
        let part = self.sizes.part;
        let left = prompt.ids.len() - prompt.done;
        // Positions behind the last are overwritten before anybody looks at them; a state would remember them.
        let pads = !self.has_states();
        let fits = prompt.done + part <= self.capacity();
        let (program, count) = match left >= part || pads && fits {
            true => (&mut self.part, part),
            false => {
                self.prepare_single()?;
                match &mut self.single {
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
            self.prefixes.keep(prompt.adapter, done, part, &self.layouts, &self.own)?;
        }
        let last = prompt.done == prompt.ids.len();
        self.prompt = Some(prompt);
        if !last {
            return Ok(None);
        }
        let program = if count == 1 { self.single.as_ref().unwrap_or(&self.part) } else { &self.part };
        Ok(Some(program.result()?.0))
    }

    /// The prompt that was run becomes a row; gives its number.
    pub fn join(&mut self) -> Result<usize> {
        let Some(prompt) = self.prompt.take().filter(|prompt| prompt.done == prompt.ids.len()) else {
            return Err(Error::Input("no prompt has been processed completely".into()));
        };
        if !self.has_room() {
            return Err(Error::Input(format!("all {} rows are in use", self.sizes.rows)));
        }
        let row = self.rows.len();
        cache::copy(&self.layouts, (&self.own, 0), (&self.caches, row), prompt.done)?;
        self.rows.push(Row { length: prompt.done, adapter: prompt.adapter });
        Ok(row)
    }

    /// Forgets the prompt at hand.
    pub fn cancel(&mut self) {
        self.prompt = None;
    }

    /// How many ids a row has.
    pub fn length(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |row| row.length)
    }

    /// How many rows a step of at least so many runs. The smallest program for them has places for the rows behind them too.
    pub fn stepped(&self, rows: usize) -> usize {
        self.size(rows).min(self.rows.len())
    }

    /// Gives the first rows one more token each: all of them, or as many as [`Slots::stepped`] says. Gives the logits of the next
    /// tokens, row by row, and how many there are of a row. The other rows stay as they are.
    pub fn step(&mut self, next: &[i32]) -> Result<(Vec<f32>, usize)> {
        if next.is_empty() || next.len() != self.stepped(next.len()) {
            return Err(Error::Input(format!("{} token IDs for {} rows", next.len(), self.rows.len())));
        }
        self.model.check_ids(&[next.to_vec()])?;
        if let Some(row) = self.rows[..next.len()].iter().position(|row| row.length >= self.sizes.context) {
            return Err(Error::Input(format!("row {row} has reached the maximum sequence length of {}", self.sizes.context)));
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

    /// Frees a row. The last row, if it is another, has this number now.
    pub fn leave(&mut self, row: usize) -> Result<()> {
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

    /// Rows become copies of these rows, in this order.
    pub fn rearrange(&mut self, from: &[usize]) -> Result<()> {
        if from.len() > self.sizes.rows || from.iter().any(|row| *row >= self.rows.len()) {
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
        let rows: Vec<Row> = from.iter().map(|row| self.rows[*row]).collect();
        for (to, bytes) in kept.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            for ((layout, cache), bytes) in self.layouts.iter().zip(&self.caches).zip(bytes) {
                layout.write(cache, to, 0..rows[to].length, bytes)?;
            }
        }
        self.rows = rows;
        Ok(())
    }

    /// The embedding of ids: the states that the head would score, pooled as the model's directory says; the mean of length 1 where
    /// it says nothing.
    pub fn embed(&mut self, ids: &[i32], adapter: usize) -> Result<Vec<f32>> {
        if self.prompt.is_some() {
            return Err(Error::Input("another prompt is being processed".into()));
        }
        self.begin_embedding(ids, adapter)?;
        loop {
            if let Some(vector) = self.advance()? {
                return Ok(vector);
            }
        }
    }

    /// Runs the next part of a text that is embedded.
    fn advance_embedding(&mut self, mut prompt: Prompt, mut sums: Vec<f64>) -> Result<Option<Vec<f32>>> {
        let part = self.sizes.part;
        let capacity = self.capacity();
        let pooling = self.source().model.pooling.clone();
        let Some(Some(program)) = &mut self.hidden else { return Err(Error::Input("the program is missing".into())) };
        let (ids, done) = (&prompt.ids, prompt.done);
        // The last part may begin earlier, so that it fits: positions are written again with what they have.
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

/// The longest sequence that the model takes step by step.
fn longest(model: &Model) -> Option<usize> {
    // Beyond this the whole sequence would be rotated anew.
    model.longest().into_iter().chain(model.max_sequence()).chain(model.architecture.long_from()).min()
}
