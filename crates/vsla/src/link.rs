//! Links between programs, and one arena for several programs (§10).

use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::describe::ValueId;
use crate::error::{Error, Result};
use crate::memory::{ExclusiveUse, Memory};
use crate::plan::{ArenaClass, Plan};
use crate::program::Program;
use compiler::{ALIGN, DeviceBuffer};
use cpu::HostBuffer;
use std::sync::Arc;

/// A link from an output of one program to an input of another (§10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The output of the source program.
    pub source: ValueId,
    /// The input of the destination program.
    pub destination: ValueId,
}

impl Link {
    /// Checks that the source is an output, the destination an input, and their signatures equal.
    pub fn check(&self, source: &Program, destination: &Program) -> Result<()> {
        if !source.outputs().contains(&self.source) {
            return Err(Error::invalid_arg(format!(
                "value {} is not an output of the source; mark it as one",
                self.source.0
            )));
        }
        if !destination.inputs().contains(&self.destination) {
            return Err(Error::invalid_arg(format!("value {} is not an input of the destination", self.destination.0)));
        }
        let (a, b) = (source.signature(self.source), destination.signature(self.destination));
        if a != b {
            let text =
                format!("{a} of model {:?} to {b} of model {:?}; both ends need the same signature", a.model, b.model);
            return Err(Error::shape("link", text));
        }
        Ok(())
    }

    /// Makes the destination's input use the memory of the source's output. The caller must run the source first: on the same
    /// stream, or on two streams with an event between them. Concurrent runs of both would be a data race.
    pub fn connect(&self, source: &Bindings, destination: &mut Bindings) -> Result<()> {
        self.check(source.program(), destination.program())?;
        destination.import(self.destination, source.export(self.source)?)
    }
}

/// A link between two programs of one shared arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLink {
    /// Index of the source in execution order.
    pub from: usize,
    /// Index of the destination in execution order, greater than `from`.
    pub to: usize,
    /// The linked values.
    pub link: Link,
}

/// A block of a shared arena: a value, or the intermediate values of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    /// The contents of the block.
    pub contents: BlockContents,
    /// The first and last program, in execution order, during which the block is live.
    pub lifetime: (usize, usize),
    /// Offset in the arena, a multiple of 64.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// The contents of a block of a shared arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContents {
    /// A value, as (program, edge) at each end of its links. The edges of a program are its inputs, then its outputs.
    Value(Vec<(usize, usize)>),
    /// The activations and workspace of a program.
    Run(usize),
}

/// One arena for several programs that run in a fixed order (§10.2).
///
/// Parameters are live always, inputs until their program has run, outputs from then on, linked values from the first of the two
/// programs to the second, and activations and workspace while their program runs. Blocks that are not live at the same time
/// share memory. Therefore, each round writes all inputs first, runs the programs in order and never concurrently, and reads the
/// outputs before the next round. The value of an input or link is lost once the last program that uses it has run.
pub struct SharedArena {
    stages: Vec<Plan>,
    placed: Vec<PlacedBlock>,
    bytes: usize,
}

impl SharedArena {
    /// Assigns memory to programs, given in execution order.
    pub fn plan(stages: &[&Plan], links: &[StageLink]) -> Result<SharedArena> {
        let last = stages.len().saturating_sub(1);
        for (i, l) in links.iter().enumerate() {
            if l.from >= l.to || l.to > last {
                return Err(Error::invalid_arg(format!(
                    "a link from stage {} to {} of {}",
                    l.from,
                    l.to,
                    stages.len()
                )));
            }
            l.link.check(stages[l.from].program(), stages[l.to].program())?;
            let same = |o: &StageLink| (o.to, o.link.destination) == (l.to, l.link.destination);
            if links[..i].iter().any(same) {
                let v = l.link.destination.0;
                return Err(Error::invalid_arg(format!(
                    "two links lead to value {v} of stage {}; an input has one source",
                    l.to
                )));
            }
        }
        let edge_of = |list: &[ValueId], v: ValueId| list.iter().position(|x| *x == v);
        let mut placed = Vec::new();
        for (k, plan) in stages.iter().enumerate() {
            let (program, layout) = (plan.program(), &plan.layout);
            let inputs = layout.executable.program().inputs.len();
            placed.push(PlacedBlock {
                contents: BlockContents::Run(k),
                lifetime: (k, k),
                offset: 0,
                bytes: layout.run_bytes(),
            });
            for (e, &i) in layout.edge_intervals.iter().enumerate() {
                let linked =
                    links.iter().any(|l| l.to == k && edge_of(program.inputs(), l.link.destination) == Some(e));
                if linked {
                    continue;
                }
                let interval = &layout.intervals[i];
                let mut edges = vec![(k, e)];
                let mut live = match interval.class {
                    ArenaClass::Params => (0, last),
                    _ if e < inputs => (0, k),
                    _ => (k, last),
                };
                let from_here = links.iter().filter(|l| {
                    l.from == k && edge_of(program.outputs(), l.link.source).map(|o| inputs + o) == Some(e)
                });
                for (n, l) in from_here.enumerate() {
                    live.1 = if n == 0 { l.to } else { live.1.max(l.to) };
                    let to = edge_of(stages[l.to].program().inputs(), l.link.destination);
                    edges.extend(to.map(|d| (l.to, d)));
                }
                placed.push(PlacedBlock {
                    contents: BlockContents::Value(edges),
                    lifetime: live,
                    offset: 0,
                    bytes: interval.bytes,
                });
            }
        }
        let bytes = best_placement(&mut placed)?;
        Ok(SharedArena { stages: stages.iter().map(|p| (*p).clone()).collect(), placed, bytes })
    }

    /// Returns the number of programs.
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// Returns the size of the arena in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the maximum number of bytes live at one time, a lower bound on the size of the arena.
    pub fn live_bytes(&self) -> usize {
        let at = |k: usize| self.placed.iter().filter(move |p| p.lifetime.0 <= k && k <= p.lifetime.1);
        let sum = |k: usize| at(k).map(|p| p.bytes.next_multiple_of(ALIGN)).sum();
        (0..self.stages.len()).map(sum).max().unwrap_or(0)
    }

    /// Returns all blocks with their offsets.
    pub fn placed(&self) -> &[PlacedBlock] {
        &self.placed
    }

    /// Allocates the arena on a backend and binds every program in it. While the bindings of one program are run, read or
    /// written, using those of the others is an error.
    pub fn bind(&self, backend: &Backend) -> Result<Vec<Bindings>> {
        self.bind_in(Memory::new(self.bytes, backend)?)
    }

    /// Binds every program in a block of the caller's memory.
    pub fn bind_in(&self, memory: Memory) -> Result<Vec<Bindings>> {
        let needed = self.bytes;
        if memory.bytes() < needed {
            return Err(Error::invalid_arg(format!(
                "{} bytes of memory were given, but {needed} are needed",
                memory.bytes()
            )));
        }
        let shared = ExclusiveUse::default();
        // SAFETY: what one run uses has places that don't overlap, and `shared` keeps uses by different bindings apart.
        let part = |p: &PlacedBlock| unsafe { HostBuffer::slice(&memory.0, p.offset, p.bytes) };
        let mut bound = Vec::with_capacity(self.stages.len());
        for (k, plan) in self.stages.iter().enumerate() {
            let run = self.placed.iter().find(|p| p.contents == BlockContents::Run(k));
            let run = run.ok_or_else(|| Error::Unknown(format!("no arena for the runs of stage {k}")))?;
            let count = plan.layout.edge_intervals.len();
            let mut edges = vec![None; count];
            for p in &self.placed {
                let BlockContents::Value(ends) = &p.contents else { continue };
                for &(_, e) in ends.iter().filter(|(stage, _)| *stage == k) {
                    edges[e] = Some(Arc::new(part(p)?) as Arc<dyn DeviceBuffer>);
                }
            }
            let edges: Option<Vec<_>> = edges.into_iter().collect();
            let edges = edges.ok_or_else(|| Error::Unknown(format!("a value of stage {k} has no place")))?;
            let mut bindings =
                Bindings::with_edge_buffers(plan.program(), &plan.layout, &plan.backend, edges, part(run)?);
            bindings.shared.push(shared.clone());
            bound.push(bindings);
        }
        Ok(bound)
    }
}

/// Assigns offsets in order of first use or of decreasing size, whichever gives the smaller arena.
fn best_placement(placed: &mut [PlacedBlock]) -> Result<usize> {
    let mut by_time: Vec<usize> = (0..placed.len()).collect();
    by_time.sort_by_key(|&i| (placed[i].lifetime, i));
    let mut by_size: Vec<usize> = (0..placed.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(placed[i].bytes), i));
    let mut other = placed.to_vec();
    let (first, second) = (first_fit(placed, &by_time)?, first_fit(&mut other, &by_size)?);
    if second < first {
        placed.clone_from_slice(&other);
    }
    Ok(first.min(second))
}

/// First fit over lifetimes (§5.3): each block gets the lowest offset that no block live at the same time occupies.
fn first_fit(placed: &mut [PlacedBlock], order: &[usize]) -> Result<usize> {
    let mut done: Vec<usize> = Vec::with_capacity(order.len());
    let mut top = 0usize;
    for &i in order {
        let (live, bytes) = (placed[i].lifetime, placed[i].bytes);
        let mut others: Vec<(usize, usize)> = done
            .iter()
            .map(|&j| &placed[j])
            .filter(|p| p.bytes > 0 && p.lifetime.0 <= live.1 && live.0 <= p.lifetime.1)
            .map(|p| (p.offset, p.offset + p.bytes))
            .collect();
        others.sort_unstable();
        let mut offset = 0usize;
        for (start, end) in others {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end.next_multiple_of(ALIGN));
        }
        let end = offset.checked_add(bytes).ok_or_else(|| Error::PlanningFailed("an arena beyond memory".into()))?;
        placed[i].offset = offset;
        top = top.max(end);
        done.push(i);
    }
    Ok(top.next_multiple_of(ALIGN))
}
