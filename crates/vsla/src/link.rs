//! Links between programs, and one arena for several of them (§10).

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

/// A value of one program that is an input of another (§10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Output of the source.
    pub source: ValueId,
    /// Input of the destination.
    pub destination: ValueId,
}

impl Link {
    /// Checks that a link fits.
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

    /// Gives the destination's input the memory of the source's output. The caller runs the source first: on one stream, or
    /// on two with an event between them. Runs of both at once would be a race.
    pub fn connect(&self, source: &Bindings, destination: &mut Bindings) -> Result<()> {
        self.check(source.program(), destination.program())?;
        destination.import(self.destination, source.export(self.source)?)
    }
}

/// A link between two of the programs that one arena manager holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLink {
    /// Position of the source in the order of execution.
    pub from: usize,
    /// Position of the destination, later than the source.
    pub to: usize,
    /// The values.
    pub link: Link,
}

/// Memory placed by the manager: a value, or what one program computes inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    /// What it holds.
    pub contents: BlockContents,
    /// First and last program, in the order of execution, between which it lives.
    pub lifetime: (usize, usize),
    /// Where in the arena, a multiple of 64.
    pub offset: usize,
    /// Size.
    pub bytes: usize,
}

/// What a place of a shared arena holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockContents {
    /// A value, as program and edge of each end: a program's inputs count first, then its outputs.
    Value(Vec<(usize, usize)>),
    /// Activations and workspace of a program.
    Run(usize),
}

/// One arena for programs that run in a fixed order (§10.2).
///
/// Parameters live always, inputs until their program has run, outputs from then on, linked values between the two
/// programs, activations and workspace while their program runs; what doesn't live together shares memory. So a round has
/// its inputs written before it begins, its programs run in order and never two at once, and its outputs read before the
/// next: an input or a linked value is gone once its last program has run.
pub struct SharedArena {
    stages: Vec<Plan>,
    placed: Vec<PlacedBlock>,
    bytes: usize,
}

impl SharedArena {
    /// Places all memory of programs in the order they will run.
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

    /// How many programs it holds.
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// Size of the arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that live at one time: no arena can be smaller.
    pub fn live_bytes(&self) -> usize {
        let at = |k: usize| self.placed.iter().filter(move |p| p.lifetime.0 <= k && k <= p.lifetime.1);
        let sum = |k: usize| at(k).map(|p| p.bytes.next_multiple_of(ALIGN)).sum();
        (0..self.stages.len()).map(sum).max().unwrap_or(0)
    }

    /// Where everything lies.
    pub fn placed(&self) -> &[PlacedBlock] {
        &self.placed
    }

    /// Takes the arena from a backend, and binds every program inside it. While bindings of one program are run, read or
    /// written, those of the others are refused.
    pub fn bind(&self, backend: &Backend) -> Result<Vec<Bindings>> {
        self.bind_in(Memory::new(self.bytes, backend)?)
    }

    /// Binds every program in a block of the caller's.
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

/// Places everything, in the order in which it comes to life or the largest first, whichever takes less.
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

/// First fit over lifetimes (§5.3): the lowest offset where nothing that lives at the same time lies.
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
