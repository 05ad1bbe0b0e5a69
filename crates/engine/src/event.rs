//! Semantic effects, the tokens that order them, and their identities (§3).

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

/// A sorted set of tokens, so that `after_all` is associative, commutative and idempotent (§3.1).
pub type EffectTokens = SmallVec<[EffectToken; 2]>;

/// The union of tokens: `after_all(a, b, ..)`.
pub fn after_all(tokens: impl IntoIterator<Item = EffectToken>) -> EffectTokens {
    let mut all: EffectTokens = tokens.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The deterministic identity of an item of a plan (§3.4.2): its emission and its position there. Comparing keys breaks all ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    /// `graphInstanceId` or `callInstanceId`: the number of the emission.
    pub instance: u64,
    /// The position in the emission's schedule.
    pub position: u32,
    /// Whether the item is a recorded op or a semantic event.
    pub origin: Origin,
}

/// The origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A recorded op of the graph.
    IrNode,
    /// A semantic event that belongs to a recorded op.
    Synthetic {
        /// The hash of the compiled graph that the event belongs to; 0 outside regions.
        graph: u64,
        /// The kind of the event.
        tag: &'static str,
    },
}

/// The reason for a store (§3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The program changes the state.
    Semantic,
    /// A pending loc receives its first value; omitted if a semantic store follows before any load.
    Materialize,
}

/// The action of an event.
#[derive(Clone)]
pub(crate) enum Effect {
    /// Loads the loc's value into a node, if the node still exists.
    LocLoad { loc: LocId, into: Weak<Node> },
    /// Stores a value into a loc.
    LocStore { loc: LocId, value: ValueRef, kind: StoreKind },
    /// Counts one in-place mutation of a base.
    BaseCommit { base: BaseId, mut_id: u64 },
    /// Counts a random draw.
    RngDraw { loc: LocId, nonce: u64 },
    /// An effect that can't be observed any more; its token still orders the neighbouring effects.
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

/// The queue of events that have not run, in recording order.
#[derive(Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    /// The token of the first event in the queue.
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

    /// The event of a token, or `None` if it has run.
    pub(crate) fn pending(&self, token: EffectToken) -> Option<&Event> {
        let i = token.0.checked_sub(self.first)?;
        self.queue.get(i as usize).filter(|e| !e.done)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.queue.iter().filter(|e| !e.done)
    }

    /// Marks an event as done, removes finished events from the front of the queue, and returns the event.
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

    /// Removes the effect of an event and keeps its token. Returns the removed effect.
    pub(crate) fn drop_effect(&mut self, token: EffectToken) -> Option<Effect> {
        let i = token.0.checked_sub(self.first)? as usize;
        Some(std::mem::replace(&mut self.queue.get_mut(i)?.effect, Effect::Dropped))
    }

    /// Removes all events, after a failure.
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
