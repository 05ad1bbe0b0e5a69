//! Links between programs, and one arena for several of them (§10).

use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::describe::ValueId;
use crate::error::{Error, Result};
use crate::plan::{ArenaClass, Plan};
use crate::program::Program;
use compiler::ALIGN;
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
            return Err(Error::arg(format!("value {} is no output of the source; mark it as one", self.source.0)));
        }
        if !destination.inputs().contains(&self.destination) {
            return Err(Error::arg(format!("value {} is no input of the destination", self.destination.0)));
        }
        let (a, b) = (source.signature(self.source), destination.signature(self.destination));
        if a != b {
            let text =
                format!("{a} of model {:?} to {b} of model {:?}; both ends need one signature", a.model, b.model);
            return Err(Error::shape("link", text));
        }
        Ok(())
    }

    /// Gives the destination's input the memory of the source's output. The caller runs the source first.
    pub fn connect(&self, source: &Bindings, destination: &mut Bindings) -> Result<()> {
        self.check(source.program(), destination.program())?;
        destination.import(self.destination, source.buffer(self.source)?)
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

/// A value placed by the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Program and edge: its inputs count first, then its outputs.
    pub edges: Vec<(usize, usize)>,
    /// First and last program, in the order of execution, between which the value lives.
    pub live: (usize, usize),
    /// Where in the arena.
    pub offset: usize,
    /// Size.
    pub bytes: usize,
}

/// One arena for parameters, inputs, outputs and linked values of programs that run in a fixed order (§10.2).
///
/// Inputs live until their program has run, outputs from then on, linked values between the two programs, parameters
/// always; what doesn't live together shares memory. Activations of a run are leased from the executable as ever.
pub struct SharedArena {
    placed: Vec<Placed>,
    bytes: usize,
}

impl SharedArena {
    /// Places the values of programs in the order they will run.
    pub fn plan(stages: &[&Plan], links: &[StageLink]) -> Result<SharedArena> {
        let last = stages.len().saturating_sub(1);
        for l in links {
            if l.from >= l.to || l.to > last {
                return Err(Error::arg(format!("a link from stage {} to {} of {}", l.from, l.to, stages.len())));
            }
            l.link.check(stages[l.from].program(), stages[l.to].program())?;
        }
        let edge_of = |list: &[ValueId], v: ValueId| list.iter().position(|x| *x == v);
        let mut placed = Vec::new();
        for (k, plan) in stages.iter().enumerate() {
            let (program, layout) = (plan.program(), &plan.layout);
            let inputs = layout.executable.program().inputs.len();
            for (e, &i) in layout.edges.iter().enumerate() {
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
                placed.push(Placed { edges, live, offset: 0, bytes: interval.bytes });
            }
        }
        let bytes = colour(&mut placed)?;
        Ok(SharedArena { placed, bytes })
    }

    /// Size of the arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where everything lies.
    pub fn placed(&self) -> &[Placed] {
        &self.placed
    }

    /// Allocates the arena, and binds every program inside it.
    pub fn bind(&self, stages: &[&Plan], backend: &Backend) -> Result<Vec<Bindings>> {
        let arena = backend.arena(self.bytes)?;
        let mut bound = stages.iter().map(|p| p.bind()).collect::<Result<Vec<_>>>()?;
        for p in &self.placed {
            for &(k, e) in &p.edges {
                let part = Arc::new(HostBuffer::part(&arena, p.offset, p.bytes)?);
                let inner = &mut bound[k].inner;
                match e.checked_sub(inner.inputs.len()) {
                    None => inner.inputs[e] = part,
                    Some(o) => inner.outputs[o] = part,
                }
            }
        }
        Ok(bound)
    }
}

/// First fit over lifetimes (§5.3): the lowest offset where nothing that lives at the same time lies.
fn colour(placed: &mut [Placed]) -> Result<usize> {
    let mut order: Vec<usize> = (0..placed.len()).collect();
    order.sort_by_key(|&i| (placed[i].live, i));
    let mut done: Vec<usize> = Vec::with_capacity(order.len());
    let mut top = 0usize;
    for i in order {
        let (live, bytes) = (placed[i].live, placed[i].bytes.max(1));
        let mut others: Vec<(usize, usize)> = done
            .iter()
            .map(|&j| &placed[j])
            .filter(|p| p.live.0 <= live.1 && live.0 <= p.live.1)
            .map(|p| (p.offset, p.offset + p.bytes.max(1)))
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
