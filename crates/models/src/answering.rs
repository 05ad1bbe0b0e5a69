//! A text that is written in answer to something else: encoders with decoders.
//!
//! The model's graph falls apart into what depends on the things that are read alone, which runs once, and the rest, which runs for each
//! token. What the second needs of the first (keys and values of every layer's look at it) stays where it was computed. The
//! second has a row for every token. Where the graph shows that rows see only what stands before them (`growing`), a new token computes
//! its own, and keys and values of those before it stand in caches; otherwise all rows are computed again.

use crate::error::{Error, Result};
use crate::generate::{Choosing, GenerateOptions, Generation};
use crate::growing::growing;
use crate::last_row::last_row;
use crate::model::Model;
use crate::run::converted;
use crate::session::{Buffer, Session};
use compiler::Backend;
use ir::{Builder, DType, Graph, Type, Value};
use lang::lower::Options;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use train::NamedTensor;
use train::named_tensor::from_bytes;

/// The input that holds what is written, as transformers calls it.
const WRITTEN: &str = "decoder_input_ids";

/// Rows of caches are multiples of this.
const ROWS: usize = 64;

/// Something that was read, and an answer that grows.
pub struct Answering<'a> {
    model: &'a Model,
    backend: &'a dyn Backend,
    params: Vec<Buffer>,
    /// What is read: its types with their names, and its bytes.
    read: Vec<(String, Type, Vec<u8>)>,
    /// What the decoder needs of it, once it was read.
    memory: Option<Vec<Buffer>>,
    most: usize,
    ids: Vec<i32>,
    step: Option<Step>,
    /// Whether every call computes all rows.
    whole: bool,
    ran: Duration,
}

/// A program for so many rows. With caches its last inputs are the new id, its position and the caches; without them, all ids and
/// the row that is asked for.
struct Step {
    rows: usize,
    session: Session,
    caches: Option<usize>,
}

impl Model {
    /// Whether the model reads one thing and writes another: what it has written so far is the input `decoder_input_ids`.
    pub fn answers(&self) -> bool {
        let inputs = self.architecture.inputs();
        inputs.len() > 1 && inputs.iter().any(|input| input.name == WRITTEN && !input.optional)
    }

    /// An empty answer of at most so many ids to tensors by the names of the model's inputs, a batch of one.
    pub fn answering<'a>(
        &'a self,
        given: &[NamedTensor],
        most: usize,
        backend: &'a dyn Backend,
    ) -> Result<Answering<'a>> {
        if !self.answers() {
            return Err(Error::Input(format!(
                "{} has no input `{WRITTEN}`: it goes on with what it reads instead of answering it",
                self.architecture.name
            )));
        }
        if let Some(longest) = self.longest().filter(|longest| most > *longest) {
            return Err(Error::Input(format!("an answer of {most} ids: the model writes at most {longest}")));
        }
        let slots = self.architecture.inputs();
        let known = |name: &str| name != WRITTEN && slots.iter().any(|slot| slot.name == name);
        if let Some(unknown) = given.iter().find(|tensor| !known(&tensor.name)) {
            let names = slots.iter().filter(|slot| slot.name != WRITTEN).map(|slot| format!("`{}`", slot.name));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(Error::Input(format!("the model doesn't read `{}`: there are {names}", unknown.name)));
        }
        let mut read = Vec::new();
        for (slot, ty) in slots.iter().zip(self.architecture.input_types(1, 1, self.dtype)?) {
            if slot.name == WRITTEN {
                continue;
            }
            match given.iter().find(|tensor| tensor.name == slot.name) {
                Some(tensor) if tensor.shape.len() != ty.rank() || tensor.shape.first() != Some(&1) => {
                    return Err(Error::Input(format!(
                        "`{}` has {:?}: one thing at a time is answered, in {} dimensions of which the first is 1",
                        slot.name,
                        tensor.shape,
                        ty.rank()
                    )));
                }
                Some(tensor) => {
                    let bytes = converted(tensor, ty.dtype)?;
                    if ty.dtype == DType::I32 && slot.name.contains("ids") {
                        let ids = bytes.as_chunks::<4>().0.iter().map(|id| i32::from_le_bytes(*id));
                        self.check_known(ids.collect::<Vec<_>>().iter())?;
                    }
                    read.push((slot.name.clone(), Type::new(ty.dtype, &tensor.shape), bytes));
                }
                None if slot.optional => {}
                None => return Err(Error::Input(format!("`{}`, which the model reads, is missing", slot.name))),
            }
        }
        let (params, ids) = (self.upload(backend)?, Vec::new());
        let (memory, step, whole, ran) = (None, None, false, Duration::ZERO);
        Ok(Answering { model: self, backend, params, read, memory, most, ids, step, whole, ran })
    }

    /// An answer to tensors by the names of the model's inputs, behind `start`. Each new id is shown to `heard` at once, which says
    /// whether to go on.
    pub fn answer(
        &self,
        given: &[NamedTensor],
        start: &[i32],
        writing: &GenerateOptions<'_>,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        if writing.draft.is_some() || writing.ranks.is_some() {
            return Err(Error::Input("a model that answers is run without drafts, by one process".into()));
        }
        let (started, max_new) = (Instant::now(), writing.max_new_tokens);
        let zero = Duration::ZERO;
        let mut found = Generation { ids: Vec::new(), first: zero, prompt: zero, rest: zero, guessed: (0, 0) };
        let mut choosing = Choosing::new(writing, start);
        let mut answering = self.answering(given, start.len() + max_new, backend)?;
        let mut input = start.to_vec();
        while found.ids.len() < max_new {
            let id = choosing.next(answering.push(&input)?);
            found.ids.push(id);
            if found.ids.len() == 1 {
                (found.first, found.prompt) = (started.elapsed(), answering.ran());
            } else {
                found.rest += answering.ran();
            }
            if !heard(id) || choosing.is_over() {
                break;
            }
            input = vec![id];
        }
        Ok(found)
    }
}

impl Answering<'_> {
    /// The ids so far.
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// How long the last call ran, without compiling.
    pub fn ran(&self) -> Duration {
        self.ran
    }

    /// Appends ids; gives the logits of the one that comes next.
    pub fn push(&mut self, ids: &[i32]) -> Result<Vec<f32>> {
        self.model.check_known(ids.iter())?;
        let length = self.ids.len() + ids.len();
        if ids.is_empty() || length > self.most {
            let most = self.most;
            return Err(Error::Input(format!("{length} ids of an answer: it has at least one and at most {most}")));
        }
        self.ran = Duration::ZERO;
        if self.step.as_ref().is_none_or(|step| step.caches.is_none() && step.rows != length) {
            // Caches have room for all that may come, so that they never move.
            let most = self.most.next_multiple_of(ROWS).min(self.model.longest().unwrap_or(usize::MAX));
            self.step = match self.whole {
                true => None,
                false => self.compile(most, true)?,
            };
            if self.step.is_none() {
                self.whole = true;
                self.step = self.compile(length, false)?;
            }
        }
        let Some(step) = &mut self.step else { return Err(Error::Input("nothing to run".into())) };
        let before = self.ids.len();
        self.ids.extend(ids);
        let started = Instant::now();
        let done = match step.caches {
            Some(caches) => (before..length).try_for_each(|at| step.add(caches, self.ids[at], at)),
            None => step.again(&self.ids),
        };
        self.ran += started.elapsed();
        if let Err(error) = done {
            // What was written behind the end is never read.
            self.ids.truncate(before);
            return Err(error);
        }
        let (ty, bytes) = step.session.read(0)?;
        Ok(from_bytes(&bytes, ty.dtype))
    }

    /// Whether every call computes all rows again.
    pub fn runs_whole(&self) -> bool {
        self.whole
    }

    /// What reads, and what writes so many rows.
    fn graphs(&self, rows: usize) -> Result<(Graph, Graph)> {
        let Answering { model, read, params, .. } = self;
        let slots = model.architecture.inputs();
        let written = Type::new(DType::I32, &[1, rows]);
        let (mut types, mut absent, mut place) = (Vec::new(), BTreeSet::new(), 0);
        for slot in &slots {
            if slot.name == WRITTEN {
                place = types.len();
                types.push(written.clone());
            } else if let Some((_, ty, _)) = read.iter().find(|(name, ..)| *name == slot.name) {
                types.push(ty.clone());
            } else {
                absent.insert(slot.name.clone());
            }
        }
        let options = Options { dtype: model.dtype, absent, written_backward: false, ..Options::default() };
        let lowered = model.architecture.lower_for(&types, &options)?;
        let graph = model.read_packed(&lowered.graph, 0)?;
        split(&graph, params.len(), params.len() + place)
    }

    /// The program that writes, for so many rows, with caches if it can; what is read is read the first time.
    fn compile(&mut self, rows: usize, cached: bool) -> Result<Option<Step>> {
        let (reader, writer) = match self.graphs(rows) {
            Ok(graphs) => graphs,
            // What can't be written so long may be written as it is.
            Err(_) if cached => return Ok(None),
            Err(error) => return Err(error),
        };
        let ids = writer.inputs().len() - 1;
        let growing = match cached.then(|| self.graphs(2)) {
            Some(Ok((_, short))) => growing(&writer, &short, ids)?,
            _ => None,
        };
        if cached && growing.is_none() {
            return Ok(None);
        }
        let Answering { backend, params, read, .. } = self;
        let n = params.len();
        let kept = match self.memory.take() {
            Some(memory) => memory,
            None => {
                let mut session = Session::new(&reader, *backend, params)?;
                for (i, (.., bytes)) in read.iter().enumerate() {
                    session.bindings.inputs[n + i].write(0, bytes)?;
                }
                let started = Instant::now();
                session.run()?;
                self.ran += started.elapsed();
                std::mem::take(&mut session.bindings.outputs)
            }
        };
        let all: Vec<Buffer> = params.iter().chain(&kept).cloned().collect();
        self.memory = Some(kept);
        let Some(growing) = growing else {
            let session = Session::new(&last_row(&writer, 1)?, *backend, &all)?;
            return Ok(Some(Step { rows, session, caches: None }));
        };
        let donate = (0..growing.caches).map(|i| (ids + 2 + i, 1 + i)).collect();
        let session = Session::donating(&growing.graph, *backend, &all, donate)?;
        for cache in &session.bindings.inputs[ids + 2..] {
            cache.write(0, &vec![0; cache.bytes()])?;
        }
        Ok(Some(Step { rows, session, caches: Some(growing.caches) }))
    }
}

impl Step {
    /// Computes the row of an id.
    fn add(&mut self, caches: usize, id: i32, at: usize) -> Result<()> {
        let first = self.session.bindings.inputs.len() - caches - 2;
        self.session.write_ints(first, std::iter::once(id))?;
        self.session.write_ints(first + 1, std::iter::once(at as i32))?;
        self.session.run()?;
        self.session.swap();
        Ok(())
    }

    /// Computes all rows, of which the last is shown.
    fn again(&mut self, ids: &[i32]) -> Result<()> {
        let first = self.session.bindings.inputs.len() - 2;
        self.session.write_ints(first, ids.iter().copied())?;
        self.session.write_ints(first + 1, std::iter::once(ids.len() as i32 - 1))?;
        self.session.run()
    }
}

/// Two graphs that together are the first result of one. The first has the parameters and all other inputs but `written`, and gives what
/// depends on these and is needed beside `written`; the second has the parameters, that, and `written`.
fn split(graph: &Graph, params: usize, written: usize) -> Result<(Graph, Graph)> {
    let at = |v: Value| v.0 as usize;
    // What each value depends on: things that are read, and what is written.
    let mut on = vec![(false, false); graph.num_values()];
    for (i, input) in graph.inputs().iter().enumerate().skip(params) {
        on[at(*input)] = (i != written, i == written);
    }
    for node in graph.nodes() {
        let of = |pick: fn(&(bool, bool)) -> bool| node.args.iter().any(|arg| pick(&on[at(*arg)]));
        let found = (of(|o| o.0), of(|o| o.1));
        node.outs.iter().for_each(|out| on[at(*out)] = found);
    }
    let live = graph.live();
    let is_kept = |v: Value| on[at(v)] == (true, false);
    let Some(&result) = graph.outputs().first() else { return Err(Error::Input("a model without results".into())) };
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
            // A node may be wanted only as far as its operands are there: what is not was not wanted either.
            let Some(args) = node.args.iter().map(|arg| map[at(*arg)]).collect::<Option<Vec<Value>>>() else {
                continue;
            };
            b.loc = node.loc.clone();
            for (out, new) in node.outs.iter().zip(ir::Build::emit(&mut b, node.op.clone(), &args)?) {
                map[at(*out)].get_or_insert(new);
            }
        }
        let outputs = outputs.iter().map(|out| map[at(*out)]).collect::<Option<Vec<Value>>>();
        let outputs = outputs.ok_or_else(|| Error::Input("the model's graph does not fall apart".into()))?;
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
