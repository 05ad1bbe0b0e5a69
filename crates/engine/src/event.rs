//! Semantic effects, the tokens that order them, and their identity (§3).

use crate::node::{Node, ValueRef};
use crate::state_cell::LocId;
use crate::storage_base::BaseId;
use ir::Loc;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Weak;

/// An effect token: the event that produces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectToken(pub u64);

/// A set of tokens, sorted and without repetition, so that `after_all` is associative, commutative and idempotent (§3.1).
pub type EffectTokens = SmallVec<[EffectToken; 2]>;

/// `after_all(a, b, ..)`.
pub fn after_all(tokens: impl IntoIterator<Item = EffectToken>) -> EffectTokens {
    let mut all: EffectTokens = tokens.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Deterministic identity of what a plan runs (§3.4.2): the emission, and the place inside it. Comparing keys breaks all ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    /// `graphInstanceId` or `callInstanceId`: counts emissions.
    pub instance: u64,
    /// The place in the emission's schedule.
    pub position: u32,
    /// What it is.
    pub origin: Origin,
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A recorded op.
    IrNode,
    /// A semantic event that belongs to one.
    Synthetic {
        /// Hash of the compiled graph it belongs to; 0 outside regions.
        graph: u64,
        /// Its kind.
        tag: &'static str,
    },
}

/// Why a value is stored (§3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The program changes the state.
    Semantic,
    /// State is given its first value; may be left out if a semantic store follows before any load.
    Materialize,
}

/// What an event does.
#[derive(Clone)]
pub(crate) enum Effect {
    /// Gives the loc's value to a node, if somebody still wants it.
    LocLoad { loc: LocId, into: Weak<Node> },
    /// Puts a value into a loc.
    LocStore { loc: LocId, value: ValueRef, kind: StoreKind },
    /// Counts one in-place mutation of a base.
    BaseCommit { base: BaseId, mut_id: u64 },
    /// Counts a random draw.
    RngDraw { loc: LocId, nonce: u64 },
    /// Something that nobody can see any more; its token still orders what is around it.
    Dropped,
}

impl Effect {
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Effect::LocLoad { .. } => "loc_load",
            Effect::LocStore { kind: StoreKind::Semantic, .. } => "loc_store_semantic",
            Effect::LocStore { kind: StoreKind::Materialize, .. } => "loc_store_materialize",
            Effect::BaseCommit { .. } => "base_commit",
            Effect::RngDraw { .. } => "rng_draw",
            Effect::Dropped => "forgotten",
        }
    }

    pub(crate) fn loc(&self) -> Option<LocId> {
        match self {
            Effect::LocLoad { loc, .. } | Effect::LocStore { loc, .. } | Effect::RngDraw { loc, .. } => Some(*loc),
            Effect::BaseCommit { .. } | Effect::Dropped => None,
        }
    }
}

/// A recorded effect.
#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) token: EffectToken,
    pub(crate) after: EffectTokens,
    pub(crate) key: EventKey,
    pub(crate) effect: Effect,
    pub(crate) at: Loc,
    pub(crate) done: bool,
}

/// Events that have not run, in the order of recording.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    /// Token of the first event in the queue.
    first: u64,
}

impl Events {
    pub(crate) fn next_token(&self) -> EffectToken {
        EffectToken(self.first + self.queue.len() as u64)
    }

    pub(crate) fn push(&mut self, event: Event) {
        debug_assert_eq!(event.token, self.next_token());
        self.queue.push_back(event);
    }

    /// The event of a token, unless it has run.
    pub(crate) fn pending(&self, token: EffectToken) -> Option<&Event> {
        let i = token.0.checked_sub(self.first)?;
        self.queue.get(i as usize).filter(|e| !e.done)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.queue.iter().filter(|e| !e.done)
    }

    /// Marks an event as run and drops what is done from the front. Gives the event.
    pub(crate) fn finish(&mut self, token: EffectToken) -> Option<Event> {
        let i = token.0.checked_sub(self.first)? as usize;
        let event = self.queue.get_mut(i)?;
        event.done = true;
        let copy = event.clone();
        while self.queue.front().is_some_and(|e| e.done) {
            self.queue.pop_front();
            self.first += 1;
        }
        Some(copy)
    }

    /// Leaves nothing of an event but its token. Gives what it would have done.
    pub(crate) fn drop_effect(&mut self, token: EffectToken) -> Option<Effect> {
        let i = token.0.checked_sub(self.first)? as usize;
        Some(std::mem::replace(&mut self.queue.get_mut(i)?.effect, Effect::Dropped))
    }

    /// Drops everything: after a failure.
    pub(crate) fn clear(&mut self) -> Vec<Event> {
        self.first += self.queue.len() as u64;
        self.queue.drain(..).collect()
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.instance, self.position)?;
        if let Origin::Synthetic { tag, .. } = self.origin {
            write!(f, ":{tag}")?;
        }
        Ok(())
    }
}
