//! Sequence-to-sequence generation with encoder-decoder models.
//!
//! The model's graph is split into the part that depends only on the source, which runs once, and the rest, which runs for each
//! token. The values that the second part needs of the first (keys and values of cross-attention) stay on the device. The second
//! part has a row for every token. If the graph is causal (`growing`), a decode step computes only the new row, with KV caches
//! for the previous rows; otherwise all rows are recomputed.

use crate::error::{Error, Result};
use crate::generate::{GenerateOptions, Generation, TokenSampler};
use crate::growing::growing;
use crate::last_token::select_last_token;
use crate::model::Model;
use crate::run::convert_tensor;
use crate::session::{Buffer, ProgramSession};
use compiler::Backend;
use ir::{Builder, DType, Graph, Type, Value};
use lang::lower::LowerOptions;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use train::NamedTensor;
use train::named_tensor::from_bytes;

/// The input for the decoder's tokens, as in transformers.
const DECODER_INPUT: &str = "decoder_input_ids";

/// Capacities of caches are multiples of this.
const CACHE_ROWS: usize = 64;

/// A decoder of a source, with the tokens generated so far.
pub struct Seq2SeqDecoder<'a> {
    model: &'a Model,
    backend: &'a dyn Backend,
    params: Vec<Buffer>,
    /// The encoder's inputs: their names and types, and their bytes.
    encoder_inputs: Vec<(String, Type, Vec<u8>)>,
    /// The encoder's outputs for the decoder, once it has run.
    encoder_outputs: Option<Vec<Buffer>>,
    max_tokens: usize,
    ids: Vec<i32>,
    step: Option<Seq2SeqStep>,
    /// Whether every call recomputes all rows.
    recomputes_prefix: bool,
    last_run_time: Duration,
}

/// A decoder program for a number of rows. With caches its last inputs are the new token ID, its position and the caches; without
/// them, all token IDs and the requested row.
struct Seq2SeqStep {
    rows: usize,
    session: ProgramSession,
    caches: Option<usize>,
}

impl Model {
    /// Whether the model is an encoder-decoder: the decoder's tokens are the input `decoder_input_ids`.
    pub fn is_encoder_decoder(&self) -> bool {
        let inputs = self.architecture.inputs();
        inputs.len() > 1 && inputs.iter().any(|input| input.name == DECODER_INPUT && !input.optional)
    }

    /// Creates a decoder of at most `most` tokens for the named encoder inputs, with a batch size of one.
    pub fn seq2seq_decoder<'a>(
        &'a self,
        given: &[NamedTensor],
        most: usize,
        backend: &'a dyn Backend,
    ) -> Result<Seq2SeqDecoder<'a>> {
        if !self.is_encoder_decoder() {
            return Err(Error::Input(format!(
                "{} has no input `{DECODER_INPUT}`: it is not an encoder-decoder model",
                self.architecture.name
            )));
        }
        if let Some(longest) = self.max_positions().filter(|longest| most > *longest) {
            return Err(Error::Input(format!(
                "{most} new tokens were requested, but the model generates at most {longest}: request fewer"
            )));
        }
        let slots = self.architecture.inputs();
        let known = |name: &str| name != DECODER_INPUT && slots.iter().any(|slot| slot.name == name);
        if let Some(unknown) = given.iter().find(|tensor| !known(&tensor.name)) {
            let names = slots.iter().filter(|slot| slot.name != DECODER_INPUT).map(|slot| format!("`{}`", slot.name));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Error::Input(format!("the model has no input `{}`: its inputs are {names}", unknown.name)));
        }
        let mut read = Vec::new();
        for (slot, ty) in slots.iter().zip(self.architecture.input_types(1, 1, self.dtype)?) {
            if slot.name == DECODER_INPUT {
                continue;
            }
            match given.iter().find(|tensor| tensor.name == slot.name) {
                Some(tensor) if tensor.shape.len() != ty.rank() || tensor.shape.first() != Some(&1) => {
                    return Err(Error::Input(format!(
                        "`{}` has shape {:?}: the batch size must be 1, in {} dimensions",
                        slot.name,
                        tensor.shape,
                        ty.rank()
                    )));
                }
                Some(tensor) => {
                    let bytes = convert_tensor(tensor, ty.dtype)?;
                    if ty.dtype == DType::I32 && slot.name.contains("ids") {
                        let ids = bytes.as_chunks::<4>().0.iter().map(|id| i32::from_le_bytes(*id));
                        self.check_token_ids(ids.collect::<Vec<_>>().iter())?;
                    }
                    read.push((slot.name.clone(), Type::new(ty.dtype, &tensor.shape), bytes));
                }
                None if slot.optional => {}
                None => return Err(Error::Input(format!("the input `{}` is missing", slot.name))),
            }
        }
        let (params, ids) = (self.upload(backend)?, Vec::new());
        let (memory, step, whole, ran) = (None, None, false, Duration::ZERO);
        Ok(Seq2SeqDecoder {
            model: self,
            backend,
            params,
            encoder_inputs: read,
            encoder_outputs: memory,
            max_tokens: most,
            ids,
            step,
            recomputes_prefix: whole,
            last_run_time: ran,
        })
    }

    /// Generates tokens after `start` for the named encoder inputs. `on_token` receives each
    /// new token at once and returns whether to continue.
    pub fn generate_seq2seq(
        &self,
        given: &[NamedTensor],
        start: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        on_token: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        if writing.draft.is_some() || writing.ranks.is_some() {
            return Err(Error::Input("encoder-decoder models do not support draft models or several ranks".into()));
        }
        let (started, max_new) = (Instant::now(), writing.max_new_tokens);
        let zero = Duration::ZERO;
        let mut found = Generation {
            ids: Vec::new(),
            time_to_first_token: zero,
            prompt_time: zero,
            decode_time: zero,
            draft_accepted: (0, 0),
        };
        let mut choosing = TokenSampler::new(writing, start);
        let mut answering = self.seq2seq_decoder(given, start.len() + max_new, backend)?;
        let mut input = start.to_vec();
        while found.ids.len() < max_new {
            let id = choosing.sample_next(answering.append(&input)?);
            found.ids.push(id);
            if found.ids.len() == 1 {
                (found.time_to_first_token, found.prompt_time) = (started.elapsed(), answering.last_run_time());
            } else {
                found.decode_time += answering.last_run_time();
            }
            if !on_token(id) || choosing.is_finished() {
                break;
            }
            input = vec![id];
        }
        Ok(found)
    }
}

impl Seq2SeqDecoder<'_> {
    /// The token IDs so far.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// The run time of the last call, without compilation.
    pub fn last_run_time(&self) -> Duration {
        self.last_run_time
    }

    /// Appends tokens; returns the logits of the next one.
    pub fn append(&mut self, ids: &[i32]) -> Result<Vec<f32>> {
        self.model.check_token_ids(ids.iter())?;
        let length = self.ids.len() + ids.len();
        if ids.is_empty() || length > self.max_tokens {
            let most = self.max_tokens;
            return Err(Error::Input(format!("the decoder input has {length} tokens: it must have from 1 to {most}")));
        }
        self.last_run_time = Duration::ZERO;
        if self.step.as_ref().is_none_or(|step| step.caches.is_none() && step.rows != length) {
            // Caches are allocated at full capacity, so that they never move.
            let most =
                self.max_tokens.next_multiple_of(CACHE_ROWS).min(self.model.max_positions().unwrap_or(usize::MAX));
            self.step = match self.recomputes_prefix {
                true => None,
                false => self.compile(most, true)?,
            };
            if self.step.is_none() {
                self.recomputes_prefix = true;
                self.step = self.compile(length, false)?;
            }
        }
        let Some(step) = &mut self.step else { return Err(Error::Input("the program is missing".into())) };
        let before = self.ids.len();
        self.ids.extend(ids);
        let started = Instant::now();
        let done = match step.caches {
            Some(caches) => (before..length).try_for_each(|at| step.append_one(caches, self.ids[at], at)),
            None => step.recompute_all(&self.ids),
        };
        self.last_run_time += started.elapsed();
        if let Err(error) = done {
            // Entries after the end are never read.
            self.ids.truncate(before);
            return Err(error);
        }
        let (ty, bytes) = step.session.read(0)?;
        Ok(from_bytes(&bytes, ty.dtype))
    }

    /// Whether every call recomputes all rows.
    pub fn recomputes_prefix(&self) -> bool {
        self.recomputes_prefix
    }

    /// The graph of the encoder, and that of the decoder for this many rows.
    fn encoder_decoder_graphs(&self, rows: usize) -> Result<(Graph, Graph)> {
        let Seq2SeqDecoder { model, encoder_inputs: read, params, .. } = self;
        let slots = model.architecture.inputs();
        let written = Type::new(DType::I32, &[1, rows]);
        let (mut types, mut absent, mut place) = (Vec::new(), BTreeSet::new(), 0);
        for slot in &slots {
            if slot.name == DECODER_INPUT {
                place = types.len();
                types.push(written.clone());
            } else if let Some((_, ty, _)) = read.iter().find(|(name, ..)| *name == slot.name) {
                types.push(ty.clone());
            } else {
                absent.insert(slot.name.clone());
            }
        }
        let options = LowerOptions { dtype: model.dtype, absent, custom_backward: false, ..LowerOptions::default() };
        let lowered = model.architecture.lower_for(&types, &options)?;
        let graph = model.read_packed(&lowered.graph, 0)?;
        split_encoder_decoder(&graph, params.len(), params.len() + place)
    }

    /// Compiles the decoder for this many rows, with caches if possible; at the first call, runs the encoder too.
    fn compile(&mut self, rows: usize, cached: bool) -> Result<Option<Seq2SeqStep>> {
        let (reader, writer) = match self.encoder_decoder_graphs(rows) {
            Ok(graphs) => graphs,
            // A decoder that can't be lowered at full capacity may be possible at the current length.
            Err(_) if cached => return Ok(None),
            Err(error) => return Err(error),
        };
        let ids = writer.inputs().len() - 1;
        let growing = match cached.then(|| self.encoder_decoder_graphs(2)) {
            Some(Ok((_, short))) => growing(&writer, &short, ids)?,
            _ => None,
        };
        if cached && growing.is_none() {
            return Ok(None);
        }
        let Seq2SeqDecoder { backend, params, encoder_inputs: read, .. } = self;
        let n = params.len();
        let kept = match self.encoder_outputs.take() {
            Some(memory) => memory,
            None => {
                let mut session = ProgramSession::new(&reader, *backend, params)?;
                for (i, (.., bytes)) in read.iter().enumerate() {
                    session.bindings.inputs[n + i].write(0, bytes)?;
                }
                let started = Instant::now();
                session.run()?;
                self.last_run_time += started.elapsed();
                std::mem::take(&mut session.bindings.outputs)
            }
        };
        let all: Vec<Buffer> = params.iter().chain(&kept).cloned().collect();
        self.encoder_outputs = Some(kept);
        let Some(growing) = growing else {
            let session = ProgramSession::new(&select_last_token(&writer, 1)?, *backend, &all)?;
            return Ok(Some(Seq2SeqStep { rows, session, caches: None }));
        };
        let donate = (0..growing.caches).map(|i| (ids + 2 + i, 1 + i)).collect();
        let session = ProgramSession::donating(&growing.graph, *backend, &all, donate)?;
        for cache in &session.bindings.inputs[ids + 2..] {
            cache.write(0, &vec![0; cache.bytes()])?;
        }
        Ok(Some(Seq2SeqStep { rows, session, caches: Some(growing.caches) }))
    }
}

impl Seq2SeqStep {
    /// Computes the row of a token.
    fn append_one(&mut self, caches: usize, id: i32, at: usize) -> Result<()> {
        let first = self.session.bindings.inputs.len() - caches - 2;
        self.session.write_ints(first, std::iter::once(id))?;
        self.session.write_ints(first + 1, std::iter::once(at as i32))?;
        self.session.run()?;
        self.session.swap();
        Ok(())
    }

    /// Recomputes all rows; the last one is the result.
    fn recompute_all(&mut self, ids: &[i32]) -> Result<()> {
        let first = self.session.bindings.inputs.len() - 2;
        self.session.write_ints(first, ids.iter().copied())?;
        self.session.write_ints(first + 1, std::iter::once(ids.len() as i32 - 1))?;
        self.session.run()
    }
}

/// Splits a graph into two that together compute its first result. The first has the parameters and all other inputs but
/// `written`, and returns the values that the second needs; the second has the parameters, these values, and `written`.
fn split_encoder_decoder(graph: &Graph, params: usize, written: usize) -> Result<(Graph, Graph)> {
    let at = |v: Value| v.0 as usize;
    // The dependencies of each value: on encoder inputs, and on the decoder's tokens.
    let mut on = vec![(false, false); graph.num_values()];
    for (i, input) in graph.inputs().iter().enumerate().skip(params) {
        on[at(*input)] = (i != written, i == written);
    }
    for node in graph.nodes() {
        let of = |pick: fn(&(bool, bool)) -> bool| node.args.iter().any(|arg| pick(&on[at(*arg)]));
        let found = (of(|o| o.0), of(|o| o.1));
        node.outs.iter().for_each(|out| on[at(*out)] = found);
    }
    let live = graph.live_values();
    let is_kept = |v: Value| on[at(v)] == (true, false);
    let Some(&result) = graph.outputs().first() else { return Err(Error::Input("the model has no outputs".into())) };
    let mut kept = Vec::new();
    let users = graph.nodes().iter().filter(|node| node.outs.iter().any(|out| live[at(*out)] && on[at(*out)].1));
    for value in users.flat_map(|node| node.args.iter().copied()).chain([result]) {
        if is_kept(value) && !kept.contains(&value) {
            kept.push(value);
        }
    }
    let copy = |inputs: &[Value], outputs: &[Value], wanted: &dyn Fn(Value) -> bool| -> Result<Graph> {
        let mut b = Builder::new();
        let mut map = vec![None; graph.num_values()];
        for input in inputs {
            map[at(*input)] = Some(b.graph.input(graph.ty(*input).clone()));
        }
        for node in graph.nodes().iter().filter(|node| node.outs.iter().any(|out| live[at(*out)] && wanted(*out))) {
            // A node with missing operands is not needed.
            let Some(args) = node.args.iter().map(|arg| map[at(*arg)]).collect::<Option<Vec<Value>>>() else {
                continue;
            };
            b.loc = node.loc.clone();
            for (out, new) in node.outs.iter().zip(ir::GraphBuilder::emit(&mut b, node.op.clone(), &args)?) {
                map[at(*out)].get_or_insert(new);
            }
        }
        let outputs = outputs.iter().map(|out| map[at(*out)]).collect::<Option<Vec<Value>>>();
        let outputs =
            outputs.ok_or_else(|| Error::Input("the model's graph cannot be split into encoder and decoder".into()))?;
        Ok(b.finish(&outputs).without_dead_nodes())
    };
    let (own, rest) = graph.inputs().split_at(params);
    let ids = graph.inputs()[written];
    let things: Vec<Value> = own.iter().copied().chain(rest.iter().copied().filter(|v| *v != ids)).collect();
    let reader = copy(&things, &kept, &|v| !on[at(v)].1)?;
    let inputs: Vec<Value> = own.iter().chain(&kept).copied().chain([ids]).collect();
    let writer = copy(&inputs, &[result], &|v| !is_kept(v))?;
    Ok((reader, writer))
}
