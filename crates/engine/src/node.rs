//! Lazy nodes: pure ops that were recorded and may not have run yet.

use crate::autograd::Leaf;
use crate::context;
use crate::event::{EffectToken, EventKey, Origin};
use crate::intern::{OpSignature, Ty};
use crate::profile::OpLabel;
use crate::region::CompiledGraph;
use crate::state_cell::LocId;
use crate::storage::{StoredValue, Values};
use crate::storage_base::BaseId;
use ir::{Loc, Op};
use smallvec::SmallVec;
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// One result of a node.
#[derive(Clone)]
pub(crate) struct ValueRef {
    pub(crate) node: Arc<Node>,
    pub(crate) out: u32,
}

impl ValueRef {
    #[inline]
    pub(crate) fn ty(&self) -> &Ty {
        &self.node.types()[self.out as usize]
    }

    /// The value, if it has been computed.
    pub(crate) fn value(&self) -> Option<StoredValue> {
        self.node.slot().values.get(self.out as usize).cloned()
    }

    /// The identity of the value: its node and the index of the result.
    pub(crate) fn id(&self) -> (u64, u32, u32) {
        (self.node.instance, self.node.position, self.out)
    }
}

pub(crate) type Args = SmallVec<[ValueRef; 2]>;

/// The kind of a node.
pub(crate) enum NodeKind {
    /// An op on the node's arguments.
    Op(Arc<OpSignature>),
    /// A compiled region.
    Call(Arc<CompiledGraph>),
    /// A value that was given by the caller.
    Data(Ty),
    /// The value read by an ordered load (§3.6). The argument, if any, receives the gradient.
    Load { token: EffectToken, loc: LocId, ty: Ty },
    /// The argument itself: the alias that stands for a leaf, or a value that is cut off from gradients.
    Alias(Ty),
    /// The argument, copied to the node's device.
    Transfer(Ty),
}

/// A base that backward needs unchanged, and its version when the op was recorded (§9.3).
#[derive(Clone, Copy)]
pub(crate) struct SavedVersion {
    pub(crate) base: BaseId,
    pub(crate) version: u64,
}

/// The mutable part of a node.
#[derive(Default)]
pub(crate) struct NodeState {
    /// The operands; dropped when they are not needed any more.
    pub(crate) args: Args,
    /// The results, once computed.
    pub(crate) values: Values,
    /// Data for backward; most nodes have none.
    pub(crate) backward_info: Option<Box<BackwardInfo>>,
    /// Whether backward has used the node and released its saved values.
    pub(crate) freed: bool,
    /// The number of the last plan that visited the node.
    pub(crate) last_plan: u64,
}

/// The data that a node keeps for backward and for in-place updates.
#[derive(Default)]
pub(crate) struct BackwardInfo {
    /// The bases that backward needs unchanged.
    pub(crate) saved: SmallVec<[SavedVersion; 2]>,
    /// Whether backward needs the result unchanged although the op's own rule does not.
    pub(crate) result: bool,
    /// The results whose gradient is retained.
    pub(crate) retained: Vec<(u32, Weak<Leaf>)>,
    /// The loc that the result will be stored into.
    pub(crate) replaces: Option<LocId>,
}

impl NodeState {
    pub(crate) fn kept(&mut self) -> &mut BackwardInfo {
        self.backward_info.get_or_insert_default()
    }

    pub(crate) fn saved(&self) -> &[SavedVersion] {
        self.backward_info.as_ref().map_or(&[], |k| &k.saved)
    }
}

/// A recorded op.
pub(crate) struct Node {
    /// The number of the emission, and the position in it.
    pub(crate) instance: u64,
    pub(crate) position: u32,
    pub(crate) work: NodeKind,
    pub(crate) at: Loc,
    /// The leaf that this alias stands for.
    pub(crate) leaf: Option<Weak<Leaf>>,
    /// Whether gradients flow through the node.
    pub(crate) tracked: bool,
    /// Whether the value was changed without recording: it differs from the argument, but its gradient flows to the argument.
    pub(crate) straight_through: bool,
    /// The device that the node runs on.
    pub(crate) device: u8,
    /// The phase and module, for profiles.
    pub(crate) label: OpLabel,
    pub(crate) slot: Mutex<NodeState>,
}

impl Node {
    #[inline]
    pub(crate) fn new(key: EventKey, work: NodeKind, args: Args, at: Loc) -> Node {
        Node {
            instance: key.instance,
            position: key.position,
            work,
            at,
            leaf: None,
            tracked: false,
            straight_through: false,
            device: 0,
            label: context::label(),
            slot: Mutex::new(NodeState { args, ..NodeState::default() }),
        }
    }

    /// Creates a node with a computed value.
    pub(crate) fn data(key: EventKey, value: StoredValue, at: Loc) -> Node {
        let node = Node::new(key, NodeKind::Data(value.ty.clone()), Args::new(), at);
        node.slot().values.push(value);
        node
    }

    pub(crate) fn key(&self) -> EventKey {
        EventKey { instance: self.instance, position: self.position, origin: Origin::IrNode }
    }

    /// The types of the results.
    #[inline]
    pub(crate) fn types(&self) -> &[Ty] {
        match &self.work {
            NodeKind::Op(sig) => &sig.types,
            NodeKind::Call(variant) => &variant.types,
            NodeKind::Data(ty) | NodeKind::Load { ty, .. } | NodeKind::Alias(ty) | NodeKind::Transfer(ty) => {
                slice::from_ref(ty)
            }
        }
    }

    pub(crate) fn tracked(mut self, tracked: bool) -> Node {
        self.tracked = tracked;
        self
    }

    pub(crate) fn with_leaf(mut self, leaf: Option<&Arc<Leaf>>) -> Node {
        self.tracked |= leaf.is_some();
        self.leaf = leaf.map(Arc::downgrade);
        self
    }

    #[inline]
    pub(crate) fn slot(&self) -> MutexGuard<'_, NodeState> {
        self.slot.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn is_computed(&self) -> bool {
        !self.slot().values.is_empty()
    }

    /// The op's name for error messages.
    pub(crate) fn name(&self) -> &str {
        match &self.work {
            NodeKind::Op(sig) => compiler::program::library_name(&sig.op),
            NodeKind::Call(_) => "compiled region",
            NodeKind::Data(_) => "data",
            NodeKind::Load { .. } => "load",
            NodeKind::Alias(_) => "alias",
            NodeKind::Transfer(_) => "transfer",
        }
    }

    /// Records that a base holds a result that backward may need unchanged (§9.3). A view of a result counts as that result.
    pub(crate) fn publish(&self, out: u32, saved: SavedVersion) {
        if !self.tracked {
            return;
        }
        let NodeKind::Op(sig) = &self.work else { return };
        let behind = {
            let mut slot = self.slot();
            if slot.backward_info.as_ref().is_some_and(|k| k.result)
                || sig.saved_for_backward.outputs.contains(&(out as usize))
            {
                slot.kept().saved.push(saved);
            }
            let same = matches!(*sig.op, Op::Reshape(_) | Op::Permute(_));
            if same { slot.args.first().cloned() } else { None }
        };
        if let Some(r) = behind {
            r.node.publish(r.out, saved);
        }
    }

    /// Sets the results. Releases and returns the operands, unless backward may need them.
    pub(crate) fn finish(&self, values: Values) -> Args {
        let mut slot = self.slot();
        slot.values = values;
        if self.tracked && !slot.freed { Args::new() } else { mem::take(&mut slot.args) }
    }
}

/// Allocations of dropped nodes, for reuse: a program records and drops thousands of nodes per step, and an allocator would
/// return their pages to the system every time.
#[derive(Default)]
pub(crate) struct NodePool(Vec<Arc<Node>>);

impl NodePool {
    /// The maximum number of allocations kept.
    const LIMIT: usize = 4096;

    /// Moves a node into a reused or new allocation.
    pub(crate) fn fill(&mut self, node: Node) -> Arc<Node> {
        let Some(mut spare) = self.0.pop() else { return Arc::new(node) };
        *Arc::get_mut(&mut spare).expect("a spare node has no other owner") = node;
        spare
    }

    /// Drops a value and keeps the allocations of its node and of the nodes that only it referred to.
    pub(crate) fn drop(&mut self, value: ValueRef) {
        let mut stack = Args::new();
        stack.push(value);
        while let Some(mut r) = stack.pop() {
            let Some(node) = Arc::get_mut(&mut r.node) else { continue };
            let slot = mem::take(node.slot.get_mut().unwrap_or_else(|e| e.into_inner()));
            if stack.is_empty() {
                stack = slot.args;
            } else {
                stack.extend(slot.args);
            }
            node.leaf = None;
            // Other kinds of nodes may own graphs and data.
            if self.0.len() < NodePool::LIMIT && matches!(&node.work, NodeKind::Op(sig) if sig.is_shared()) {
                self.0.push(r.node);
            }
        }
    }

    /// Takes allocations from another pool, up to the limit.
    pub(crate) fn add(&mut self, other: &mut NodePool) {
        let room = NodePool::LIMIT - self.0.len();
        self.0.extend(other.0.drain(..).take(room));
    }
}

/// Drops long chains of nodes in a loop: recursion would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut stack = mem::take(&mut self.slot.get_mut().unwrap_or_else(|e| e.into_inner()).args);
        while let Some(r) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(r.node) {
                stack.extend(mem::take(&mut node.slot.get_mut().unwrap_or_else(|e| e.into_inner()).args));
            }
        }
    }
}
