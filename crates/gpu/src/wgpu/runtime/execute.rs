//! Enqueues the steps of a program.
//!
//! Steps are async functions because some of them need values from the device: trip counts, branch indices, operands of ops on
//! the host. On native targets they block, so that a run is complete after its first poll.

use super::allocations::Iteration;
use super::binding::Bound;
use super::encode::Encoder;
use super::launch::Launch;
use super::load::{LoadedProgram, LoadedStep, LoadedTripCount, MAX_LEVELS};
use super::pool::Block;
use compiler::program::BufferSlice;
use compiler::{ReadFuture, Result};
use smallvec::SmallVec;

/// The current iterations of the enclosing loops.
#[derive(Clone, Copy, Default)]
pub(super) struct LoopPosition {
    /// The index that strides are multiplied by.
    index: [i64; MAX_LEVELS],
    /// The number of completed iterations, which selects the current double buffer.
    done: [usize; MAX_LEVELS],
}

impl Iteration for LoopPosition {
    fn odd(&self, level: usize) -> bool {
        !self.done[level].is_multiple_of(2)
    }

    fn index(&self, level: usize) -> i64 {
        self.index[level]
    }
}

/// The bytes of a read, on native targets by blocking.
#[cfg(not(target_arch = "wasm32"))]
async fn arrived(reading: ReadFuture) -> Result<Vec<u8>> {
    reading.wait()
}

/// The bytes of a read.
#[cfg(target_arch = "wasm32")]
async fn arrived(reading: ReadFuture) -> Result<Vec<u8>> {
    reading.await
}

/// One run of a program.
pub(super) struct ProgramRun<'a> {
    pub(super) loaded: &'a LoadedProgram,
    /// The buffer of every allocation; none for allocations that the program does not use.
    pub(super) blocks: Vec<Option<Block>>,
    pub(super) encoder: Encoder<'a>,
}

impl ProgramRun<'_> {
    /// Enqueues steps.
    pub(super) async fn steps(&mut self, steps: &[LoadedStep], at: &mut LoopPosition) -> Result<()> {
        for step in steps {
            #[cfg(not(target_arch = "wasm32"))]
            if let Some(timer) = &mut self.encoder.timer {
                timer.step = (&raw const *step).addr();
            }
            match step {
                LoadedStep::Launches(all) => all.iter().try_for_each(|l| self.launch(l, at))?,
                LoadedStep::Host(host) => {
                    let mut operands = Vec::new();
                    for (place, bytes) in &host.args {
                        let reading = self.read(place, *bytes, at)?;
                        operands.push(arrived(reading).await?);
                    }
                    let results = host.run(&operands)?;
                    for ((place, _), data) in host.outs.iter().zip(results) {
                        self.write(place, &data, at)?;
                    }
                }
                LoadedStep::Branch { index, branches } => {
                    let k = self.number(index, at).await?;
                    let k = (k.max(0) as usize).min(branches.len().saturating_sub(1));
                    if let Some(steps) = branches.get(k) {
                        Box::pin(self.steps(steps, at)).await?;
                    }
                }
                LoadedStep::Loop { level, trip, reverse, body, after } => {
                    let most = match trip {
                        LoadedTripCount::Exact(n) => *n,
                        LoadedTripCount::Bounded { bound, count } => {
                            let n = self.number(count, at).await?;
                            (n.max(0) as usize).min(*bound)
                        }
                        LoadedTripCount::While { .. } => usize::MAX,
                    };
                    let mut count = 0;
                    while count < most {
                        at.index[*level] = if *reverse { most - 1 - count } else { count } as i64;
                        at.done[*level] = count;
                        if let LoadedTripCount::While { test, flag } = trip {
                            Box::pin(self.steps(test, at)).await?;
                            let reading = self.read(flag, 1, at)?;
                            if arrived(reading).await?.first().is_none_or(|b| b & 1 == 0) {
                                break;
                            }
                        }
                        Box::pin(self.steps(body, at)).await?;
                        count += 1;
                    }
                    at.done[*level] = count;
                    after.iter().try_for_each(|l| self.launch(l, at))?;
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, l: &Launch, at: &LoopPosition) -> Result<()> {
        let roots = &self.loaded.roots;
        let variant = l.variant(at);
        let mut params: SmallVec<[u32; 32]> = SmallVec::new();
        for (a, home) in l.args.iter().zip(&variant.binding_of_arg) {
            let byte = a.byte(roots, at).wrapping_sub(variant.bound[*home].start);
            params.push((byte / a.size) as u32);
        }
        params.extend(l.params.iter().copied());
        let mut bound: SmallVec<[Bound<'_>; 8]> = SmallVec::new();
        let most = self.loaded.inner.device.binding();
        for w in &variant.bound {
            match &self.blocks[w.root] {
                // A buffer may be larger than its contents.
                Some(block) => {
                    let bytes = w.bytes.or((block.size > most).then_some(most));
                    bound.push(Bound { block, start: w.start, bytes });
                }
                None => return Err(compiler::Error::Internal("memory that a run has none of".into())),
            }
        }
        self.encoder.dispatch(&self.loaded.pipelines[variant.pipeline], &bound, &params, l.grid)
    }

    /// Submits the recorded commands and starts a read.
    fn read(&mut self, place: &BufferSlice, bytes: usize, at: &LoopPosition) -> Result<ReadFuture> {
        self.encoder.submit()?;
        let (root, byte) = self.loaded.roots.find(place, at);
        match &self.blocks[root] {
            Some(block) => self.loaded.inner.device.read_later(block, byte, bytes),
            None => Ok(ReadFuture::ready(vec![0; bytes])),
        }
    }

    async fn number(&mut self, place: &BufferSlice, at: &LoopPosition) -> Result<i32> {
        let reading = self.read(place, 4, at)?;
        let bytes = arrived(reading).await?;
        Ok(i32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// Writes a result of the host; its memory is not shared and padded to whole words.
    fn write(&mut self, place: &BufferSlice, data: &[u8], at: &LoopPosition) -> Result<()> {
        self.encoder.submit()?;
        let (root, byte) = self.loaded.roots.find(place, at);
        let Some(block) = &self.blocks[root] else { return Ok(()) };
        super::memory::write_bytes(&self.loaded.inner.device, block, byte, data, false)
    }
}
