//! Giving the steps of a program to the queue.
//!
//! Steps are futures because some of them need what the device has computed: trip counts, choices, operands of ops on the host. Natively
//! those are waited for, so that a run is done with its first poll.

use super::allocations::Iteration;
use super::binding::Bound;
use super::encode::Encoder;
use super::launch::Launch;
use super::load::{LoadedProgram, LoadedStep, LoadedTripCount, MAX_LEVELS};
use super::pool::Block;
use compiler::program::BufferSlice;
use compiler::{ReadFuture, Result};
use smallvec::SmallVec;

/// Where the loops around a step are.
#[derive(Clone, Copy, Default)]
pub(super) struct LoopPosition {
    /// The index that strides multiply.
    index: [i64; MAX_LEVELS],
    /// How many iterations have run, which alternating slots follow.
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

/// What has arrived: natively by waiting for it.
#[cfg(not(target_arch = "wasm32"))]
async fn arrived(reading: ReadFuture) -> Result<Vec<u8>> {
    reading.wait()
}

/// What has arrived.
#[cfg(target_arch = "wasm32")]
async fn arrived(reading: ReadFuture) -> Result<Vec<u8>> {
    reading.await
}

/// One run of a program.
pub(super) struct ProgramRun<'a> {
    pub(super) loaded: &'a LoadedProgram,
    /// The buffer of every memory; none that a program has no use for.
    pub(super) blocks: Vec<Option<Block>>,
    pub(super) encoder: Encoder<'a>,
}

impl ProgramRun<'_> {
    /// Gives steps to the queue.
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
                // A buffer may be larger than what is in it.
                Some(block) => {
                    let bytes = w.bytes.or((block.size > most).then_some(most));
                    bound.push(Bound { block, start: w.start, bytes });
                }
                None => return Err(compiler::Error::Internal("memory that a run has none of".into())),
            }
        }
        self.encoder.dispatch(&self.loaded.pipelines[variant.pipeline], &bound, &params, l.grid)
    }

    /// Submits what was recorded and begins to read.
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

    /// Writes a result of the host: it has memory of its own, up to whole words.
    fn write(&mut self, place: &BufferSlice, data: &[u8], at: &LoopPosition) -> Result<()> {
        self.encoder.submit()?;
        let (root, byte) = self.loaded.roots.find(place, at);
        let Some(block) = &self.blocks[root] else { return Ok(()) };
        super::memory::write_bytes(&self.loaded.inner.device, block, byte, data, false)
    }
}
