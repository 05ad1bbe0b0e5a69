//! Generation with a cache: the prompt in one run, then one token a run, by programs that serve every length up to the
//! cache's capacity.

use crate::checkpoint::from_bytes;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::Sampling;
use crate::session::{Buffer, Session, upload};
use compiler::Backend;
use std::time::{Duration, Instant};

/// New tokens, and how long they took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new ids.
    pub ids: Vec<i32>,
    /// From the call to the first token, compiling included.
    pub first: Duration,
    /// Running the prompt, without compiling.
    pub prompt: Duration,
    /// Running all tokens after the first, without compiling.
    pub rest: Duration,
}

/// Capacities are multiples of this, so that few programs serve many lengths.
const BLOCK: usize = 64;

impl Model {
    /// The most probable continuation of a prompt.
    pub fn generate(&self, prompt: &[i32], max_new: usize, backend: &dyn Backend) -> Result<Generation> {
        self.generate_with(prompt, max_new, &Sampling::GREEDY, backend, &mut |_| true)
    }

    /// A continuation of a prompt. Each new id is shown to `heard` at once, which says whether to go on.
    pub fn generate_with(
        &self,
        prompt: &[i32],
        max_new: usize,
        sampling: &Sampling,
        backend: &dyn Backend,
        heard: &mut dyn FnMut(i32) -> bool,
    ) -> Result<Generation> {
        let started = Instant::now();
        let length = self.check_ids(&[prompt.to_vec()])?;
        if let Some(most) = self.architecture.longest().filter(|most| length + max_new > *most) {
            return Err(Error::Input(format!(
                "{length} ids and {max_new} new ones: the model takes at most {most} in all"
            )));
        }
        let capacity = (length + max_new).next_multiple_of(BLOCK);
        let params = upload(backend, &self.weights)?;
        let mut ids = Vec::new();
        let (mut first, mut ran, mut rest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut step = self.decoder(length, capacity, backend, &params)?;
        let mut input = prompt.to_vec();
        let mut position = 0;
        let mut random = sampling.random();
        let switch = self.architecture.long_from();
        while ids.len() < max_new {
            // Rotations change for the whole sequence when it grows long: it is run once more.
            if position > 0 && switch == Some(position) {
                input = [prompt, &ids].concat();
                position = 0;
                step = self.decoder(input.len(), capacity, backend, &params)?;
            }
            let from = Instant::now();
            let logits = step.advance(&input, position)?;
            let id = sampling.choose(&logits, &mut random) as i32;
            position += input.len();
            ids.push(id);
            if ids.len() == 1 {
                (first, ran) = (started.elapsed(), from.elapsed());
            } else {
                rest += from.elapsed();
            }
            if !heard(id) {
                break;
            }
            if input.len() > 1 && ids.len() < max_new {
                let mut next = self.decoder(1, capacity, backend, &params)?;
                next.take_caches(&mut step);
                step = next;
            }
            input = vec![id];
        }
        Ok(Generation { ids, first, prompt: ran, rest })
    }

    /// A program that appends `steps` tokens to a cache.
    fn decoder(&self, steps: usize, capacity: usize, backend: &dyn Backend, params: &[Buffer]) -> Result<Decoder> {
        let lowered = self.architecture.lower(1, steps, self.dtype, Some(capacity))?;
        let session = Session::new(&lowered.graph, backend, params)?;
        let decoder = Decoder { session, params: params.len(), caches: lowered.caches.len() };
        for (i, ty) in lowered.caches.iter().enumerate() {
            decoder.session.bindings.inputs[decoder.params + 2 + i].write(0, &vec![0; ty.bytes()])?;
        }
        Ok(decoder)
    }
}

/// Inputs are parameters, ids, position, caches; outputs are logits, caches.
struct Decoder {
    session: Session,
    params: usize,
    caches: usize,
}

impl Decoder {
    /// Runs tokens at a position; gives the logits of the next one.
    fn advance(&mut self, ids: &[i32], position: usize) -> Result<Vec<f32>> {
        let position = i32::try_from(position).map_err(|_| Error::Input("the sequence is too long".into()))?;
        self.session.write_ints(self.params, ids.iter().copied())?;
        self.session.write_ints(self.params + 1, std::iter::once(position))?;
        self.session.run()?;
        let bindings = &mut self.session.bindings;
        for i in 0..self.caches {
            std::mem::swap(&mut bindings.inputs[self.params + 2 + i], &mut bindings.outputs[1 + i]);
        }
        let (ty, bytes) = self.session.read(0)?;
        let mut logits = from_bytes(&bytes, ty.dtype);
        let vocabulary = ty.shape.last().copied().unwrap_or(1);
        Ok(logits.split_off(logits.len() - vocabulary))
    }

    /// Goes on where another program stopped: caches have the same types.
    fn take_caches(&mut self, other: &mut Decoder) {
        for i in 0..self.caches {
            let (mine, theirs) = (self.params + 2 + i, other.params + 2 + i);
            std::mem::swap(&mut self.session.bindings.inputs[mine], &mut other.session.bindings.inputs[theirs]);
        }
    }
}
