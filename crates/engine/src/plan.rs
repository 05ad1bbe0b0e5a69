//! Plans: the nodes and events that must run to compute some roots, in a deterministic order (§3.4).

use crate::event::{Effect, EffectToken, Event, EventKey, StoreKind};
use crate::node::{Node, NodeKind, ValueRef};
use crate::state::EngineState;
use crate::state_cell::LocId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// A node or an event to run.
pub(crate) enum PlanItem {
    Node(Arc<Node>),
    Event(Box<Event>),
}

impl PlanItem {
    pub(crate) fn key(&self) -> EventKey {
        match self {
            PlanItem::Node(n) => n.key(),
            PlanItem::Event(e) => e.key,
        }
    }
}

/// All nodes and events to run, in `PlanLinearOrder`. The plan holds references to everything it uses (§14).
pub(crate) struct ExecutionPlan {
    pub(crate) items: Vec<PlanItem>,
    /// Materialising stores that a later store makes unnecessary (§3.6).
    pub(crate) elided: FxHashSet<EffectToken>,
}

/// The values and tokens that a plan computes.
#[derive(Default)]
pub(crate) struct PlanRoots {
    pub(crate) values: Vec<ValueRef>,
    pub(crate) tokens: Vec<EffectToken>,
}

/// The transitive closure of the roots over data and tokens, in the order of `EventKey`s. Nodes and events refer only to
/// earlier ones, so this order respects all dependencies.
pub(crate) fn plan(state: &mut EngineState, roots: &PlanRoots) -> ExecutionPlan {
    state.plans += 1;
    let mut items = Vec::new();
    let mut events: FxHashSet<EffectToken> = FxHashSet::default();
    let mut node_stack: Vec<Arc<Node>> = roots.values.iter().map(|r| r.node.clone()).collect();
    let mut token_stack: Vec<EffectToken> = roots.tokens.clone();
    loop {
        if let Some(node) = node_stack.pop() {
            let mut slot = node.slot();
            if !slot.values.is_empty() || slot.last_plan == state.plans {
                continue;
            }
            slot.last_plan = state.plans;
            if let NodeKind::Load { token, .. } = &node.work {
                token_stack.push(*token);
                continue;
            }
            for a in &slot.args {
                if !a.node.is_computed() {
                    node_stack.push(a.node.clone());
                }
            }
            drop(slot);
            items.push(PlanItem::Node(node));
        } else if let Some(token) = token_stack.pop() {
            let Some(event) = state.events.pending(token) else {
                continue;
            };
            if !events.insert(token) {
                continue;
            }
            token_stack.extend(&event.after);
            if let Effect::LocStore { value, .. } = &event.effect {
                node_stack.push(value.node.clone());
            }
            items.push(PlanItem::Event(Box::new(event.clone())));
        } else {
            break;
        }
    }
    items.sort_by_key(PlanItem::key);
    let elided = find_elided_stores(&items);
    ExecutionPlan { items, elided }
}

/// Finds the materialising stores that are followed by a semantic store to the same loc before any load. They are omitted;
/// their tokens stay in the order.
fn find_elided_stores(items: &[PlanItem]) -> FxHashSet<EffectToken> {
    let mut last: FxHashMap<LocId, EffectToken> = FxHashMap::default();
    let mut elided = FxHashSet::default();
    for item in items {
        let PlanItem::Event(e) = item else { continue };
        match &e.effect {
            Effect::LocStore { loc, kind: StoreKind::Materialize, .. } => {
                last.insert(*loc, e.token);
            }
            Effect::LocStore { loc, kind: StoreKind::Semantic, .. } => elided.extend(last.remove(loc)),
            Effect::LocLoad { loc, .. } => {
                last.remove(loc);
            }
            _ => {}
        }
    }
    elided
}
