//! Plans: what must run so that something exists, in a deterministic order (§3.4).

use crate::event::{Effect, Event, EventKey, StoreKind, Token};
use crate::node::{Node, Ref, Work};
use crate::state::State;
use crate::state_cell::LocId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// One thing to run.
pub(crate) enum Item {
    Node(Arc<Node>),
    Event(Box<Event>),
}

impl Item {
    pub(crate) fn key(&self) -> EventKey {
        match self {
            Item::Node(n) => n.key(),
            Item::Event(e) => e.key,
        }
    }
}

/// Everything to run, in `PlanLinearOrder`. It holds all it touches (§14).
pub(crate) struct Plan {
    pub(crate) items: Vec<Item>,
    /// Materialising stores that a later store makes needless (§3.6).
    pub(crate) elided: FxHashSet<Token>,
}

/// What a plan is for.
#[derive(Default)]
pub(crate) struct Roots {
    pub(crate) values: Vec<Ref>,
    pub(crate) tokens: Vec<Token>,
}

/// The transitive closure of the roots over data and tokens, in the order of `EventKey`s. Everything refers to what was
/// recorded before it, so this order respects all edges.
pub(crate) fn plan(state: &mut State, roots: &Roots) -> Plan {
    state.plans += 1;
    let mut items = Vec::new();
    let mut events: FxHashSet<Token> = FxHashSet::default();
    let mut node_stack: Vec<Arc<Node>> = roots.values.iter().map(|r| r.node.clone()).collect();
    let mut token_stack: Vec<Token> = roots.tokens.clone();
    loop {
        if let Some(node) = node_stack.pop() {
            let mut slot = node.slot();
            if !slot.values.is_empty() || slot.plan == state.plans {
                continue;
            }
            slot.plan = state.plans;
            if let Work::Load { token, .. } = &node.work {
                token_stack.push(*token);
                continue;
            }
            for a in &slot.args {
                if !a.node.is_done() {
                    node_stack.push(a.node.clone());
                }
            }
            drop(slot);
            items.push(Item::Node(node));
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
            items.push(Item::Event(Box::new(event.clone())));
        } else {
            break;
        }
    }
    items.sort_by_key(Item::key);
    let elided = elide(&items);
    Plan { items, elided }
}

/// A materialising store that is followed by a semantic store to the same loc before any load is left out; its token
/// stays in the order.
fn elide(items: &[Item]) -> FxHashSet<Token> {
    let mut last: FxHashMap<LocId, Token> = FxHashMap::default();
    let mut elided = FxHashSet::default();
    for item in items {
        let Item::Event(e) = item else { continue };
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
