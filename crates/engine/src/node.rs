//! Lazy nodes: pure ops that were recorded and may not have run yet.

use crate::autograd::Leaf;
use crate::context;
use crate::event::{EventKey, Origin, Token};
use crate::intern::{Signature, Ty};
use crate::profile::Label;
use crate::region::Variant;
use crate::state_cell::LocId;
use crate::storage::{Stored, Values};
use crate::storage_base::BaseId;
use ir::{Loc, Op};
use smallvec::SmallVec;
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// One result of a node.
#[derive(Clone)]
pub(crate) struct Ref {
    pub(crate) node: Arc<Node>,
    pub(crate) out: u32,
}

impl Ref {
    #[inline]
    pub(crate) fn ty(&self) -> &Ty {
        &self.node.types()[self.out as usize]
    }

    /// The value, if it was computed.
    pub(crate) fn value(&self) -> Option<Stored> {
        self.node.slot().values.get(self.out as usize).cloned()
    }

    /// Which result of which node: the identity of a value.
    pub(crate) fn id(&self) -> (u64, u32, u32) {
        (self.node.instance, self.node.position, self.out)
    }
}

pub(crate) type Args = SmallVec<[Ref; 2]>;

/// What a node does.
pub(crate) enum Work {
    /// An op on the node's arguments.
    Op(Arc<Signature>),
    /// A compiled region.
    Call(Arc<Variant>),
    /// A value that was given.
    Data(Ty),
    /// The value that an ordered load found (§3.6). Its argument, if any, is where gradients go.
    Load { token: Token, loc: LocId, ty: Ty },
    /// The argument itself: a leaf's own name for its value, or a value whose gradients are cut off.
    Alias(Ty),
    /// The argument on the node's device.
    Transfer(Ty),
}

/// A base that backward needs unchanged, and its version when the op was recorded (§9.3).
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) base: BaseId,
    pub(crate) version: u64,
}

/// What changes about a node.
#[derive(Default)]
pub(crate) struct Slot {
    /// Operands; given up when they are not needed any more.
    pub(crate) args: Args,
    /// Results, once computed.
    pub(crate) values: Values,
    /// What is wanted of the node beyond its results; few nodes have any.
    pub(crate) kept: Option<Box<Kept>>,
    /// Backward has run through and gave up what it kept.
    pub(crate) freed: bool,
    /// The last plan that found the node.
    pub(crate) plan: u64,
}

/// What is wanted of a node beyond its results.
#[derive(Default)]
pub(crate) struct Kept {
    /// What backward needs unchanged.
    pub(crate) saved: SmallVec<[Saved; 2]>,
    /// Backward needs the result unchanged, though the op by itself would not.
    pub(crate) result: bool,
    /// Results whose gradient somebody wants to see.
    pub(crate) retained: Vec<(u32, Weak<Leaf>)>,
    /// The loc whose next value the result is.
    pub(crate) replaces: Option<LocId>,
}

impl Slot {
    pub(crate) fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_default()
    }

    pub(crate) fn saved(&self) -> &[Saved] {
        self.kept.as_ref().map_or(&[], |k| &k.saved)
    }
}

/// A recorded op.
pub(crate) struct Node {
    /// Its emission, and the place in it.
    pub(crate) instance: u64,
    pub(crate) position: u32,
    pub(crate) work: Work,
    pub(crate) at: Loc,
    /// The leaf that this value stands for.
    pub(crate) leaf: Option<Weak<Leaf>>,
    /// Gradients flow through it.
    pub(crate) tracked: bool,
    /// Its value is not its argument's any more (that was changed without recording), but its gradient is.
    pub(crate) straight_through: bool,
    /// Where it runs.
    pub(crate) device: u8,
    /// What it belongs to, for profiles.
    pub(crate) label: Label,
    pub(crate) slot: Mutex<Slot>,
}

impl Node {
    #[inline]
    pub(crate) fn new(key: EventKey, work: Work, args: Args, at: Loc) -> Node {
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
            slot: Mutex::new(Slot { args, ..Slot::default() }),
        }
    }

    /// A node whose value is there.
    pub(crate) fn data(key: EventKey, value: Stored, at: Loc) -> Node {
        let node = Node::new(key, Work::Data(value.ty.clone()), Args::new(), at);
        node.slot().values.push(value);
        node
    }

    pub(crate) fn key(&self) -> EventKey {
        EventKey { instance: self.instance, position: self.position, origin: Origin::IrNode }
    }

    /// Types of the results.
    #[inline]
    pub(crate) fn types(&self) -> &[Ty] {
        match &self.work {
            Work::Op(sig) => &sig.types,
            Work::Call(variant) => &variant.types,
            Work::Data(ty) | Work::Load { ty, .. } | Work::Alias(ty) | Work::Transfer(ty) => slice::from_ref(ty),
        }
    }

    pub(crate) fn tracked(mut self, tracked: bool) -> Node {
        self.tracked = tracked;
        self
    }

    pub(crate) fn of_leaf(mut self, leaf: Option<&Arc<Leaf>>) -> Node {
        self.tracked |= leaf.is_some();
        self.leaf = leaf.map(Arc::downgrade);
        self
    }

    #[inline]
    pub(crate) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.slot().values.is_empty()
    }

    /// A name for messages.
    pub(crate) fn name(&self) -> &str {
        match &self.work {
            Work::Op(sig) => compiler::program::library_name(&sig.op),
            Work::Call(_) => "compiled region",
            Work::Data(_) => "data",
            Work::Load { .. } => "load",
            Work::Alias(_) => "alias",
            Work::Transfer(_) => "transfer",
        }
    }

    /// Notes that a base holds a result, which backward may need unchanged (§9.3). A view of a result is that result.
    pub(crate) fn publish(&self, out: u32, saved: Saved) {
        if !self.tracked {
            return;
        }
        let Work::Op(sig) = &self.work else { return };
        let behind = {
            let mut slot = self.slot();
            if slot.kept.as_ref().is_some_and(|k| k.result) || sig.saves.outputs.contains(&(out as usize)) {
                slot.kept().saved.push(saved);
            }
            let same = matches!(*sig.op, Op::Reshape(_) | Op::Permute(_));
            if same { slot.args.first().cloned() } else { None }
        };
        if let Some(r) = behind {
            r.node.publish(r.out, saved);
        }
    }

    /// Sets the results. Gives the operands up unless backward may need them.
    pub(crate) fn finish(&self, values: Values) -> Args {
        let mut slot = self.slot();
        slot.values = values;
        if self.tracked && !slot.freed { Args::new() } else { mem::take(&mut slot.args) }
    }
}

/// Nodes that nobody refers to any more, to be filled again: a program records and drops them by the thousand, and an
/// allocator would give their pages back to the system every time.
#[derive(Default)]
pub(crate) struct Spare(Vec<Arc<Node>>);

impl Spare {
    /// The most that are kept.
    const LIMIT: usize = 4096;

    /// An allocation for a node.
    pub(crate) fn fill(&mut self, node: Node) -> Arc<Node> {
        let Some(mut spare) = self.0.pop() else { return Arc::new(node) };
        *Arc::get_mut(&mut spare).expect("a spare node has no other owner") = node;
        spare
    }

    /// Drops a value, keeping the memory of its node, and of those that only it referred to.
    pub(crate) fn drop(&mut self, value: Ref) {
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
            // Other work may hold graphs and data.
            if self.0.len() < Spare::LIMIT && matches!(&node.work, Work::Op(sig) if sig.is_shared()) {
                self.0.push(r.node);
            }
        }
    }

    /// Takes over as many as there is room for.
    pub(crate) fn add(&mut self, other: &mut Spare) {
        let room = Spare::LIMIT - self.0.len();
        self.0.extend(other.0.drain(..).take(room));
    }
}

/// Long chains of nodes are dropped in a loop: recursion would overflow the stack.
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
