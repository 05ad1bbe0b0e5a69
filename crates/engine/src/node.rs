//! Lazy nodes: pure ops that were recorded and may not have run yet.

use crate::autograd::Leaf;
use crate::base::BaseId;
use crate::context;
use crate::event::{EventKey, Token};
use crate::profile::Label;
use crate::storage::Stored;
use compiler::Executable;
use ir::ops::Call;
use ir::{Loc, Op, Type};
use smallvec::SmallVec;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// One result of a node.
#[derive(Clone)]
pub(crate) struct Ref {
    pub(crate) node: Arc<Node>,
    pub(crate) out: u32,
}

impl Ref {
    pub(crate) fn ty(&self) -> &Type {
        &self.node.types[self.out as usize]
    }

    /// The value, if it was computed.
    pub(crate) fn value(&self) -> Option<Stored> {
        self.node.slot().values.get(self.out as usize).cloned()
    }

    /// Which result of which node: the identity of a value.
    pub(crate) fn id(&self) -> (u64, u32, u32) {
        (self.node.key.instance, self.node.key.position, self.out)
    }
}

pub(crate) type Args = SmallVec<[Ref; 2]>;

/// What a node does.
pub(crate) enum Work {
    /// An op on the node's arguments.
    Op(Arc<Op>),
    /// A compiled region, as a function and as a program.
    Call(Call, Arc<dyn Executable>),
    /// A value that was given.
    Data,
    /// The value that an ordered load found (§3.6). Its argument, if any, is where gradients go.
    Load { token: Token },
    /// The argument itself: a leaf's own name for its value, or a value whose gradients are cut off.
    Alias,
    /// The argument on the node's device.
    Transfer,
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
    pub(crate) values: Vec<Stored>,
    /// What backward needs unchanged.
    pub(crate) saved: Vec<Saved>,
    /// Backward needs the result unchanged, though the op by itself would not.
    pub(crate) keeps_result: bool,
    /// Results whose gradient somebody wants to see.
    pub(crate) retained: Vec<(u32, Weak<Leaf>)>,
    /// Backward has run through and gave up what it kept.
    pub(crate) freed: bool,
}

/// A recorded op.
pub(crate) struct Node {
    pub(crate) key: EventKey,
    pub(crate) work: Work,
    pub(crate) types: SmallVec<[Type; 1]>,
    pub(crate) at: Loc,
    /// The leaf that this value stands for.
    pub(crate) leaf: Option<Weak<Leaf>>,
    /// Gradients flow through it.
    pub(crate) tracked: bool,
    /// Its value is not its argument's any more (that was changed without recording), but its gradient is.
    pub(crate) straight: bool,
    /// Where it runs.
    pub(crate) device: u8,
    /// What it belongs to, for profiles.
    pub(crate) label: Label,
    pub(crate) slot: Mutex<Slot>,
}

impl Node {
    pub(crate) fn new(key: EventKey, work: Work, args: Args, types: SmallVec<[Type; 1]>, at: Loc) -> Node {
        Node {
            key,
            work,
            types,
            at,
            leaf: None,
            tracked: false,
            straight: false,
            device: 0,
            label: context::label(),
            slot: Mutex::new(Slot { args, ..Slot::default() }),
        }
    }

    /// A node whose value is there.
    pub(crate) fn data(key: EventKey, value: Stored, ty: Type, at: Loc) -> Node {
        let node = Node::new(key, Work::Data, Args::new(), SmallVec::from_buf([ty]), at);
        node.slot().values.push(value);
        node
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

    pub(crate) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.slot().values.is_empty()
    }

    /// A name for messages.
    pub(crate) fn name(&self) -> &str {
        match &self.work {
            Work::Op(op) => compiler::program::library_name(op),
            Work::Call(..) => "compiled region",
            Work::Data => "data",
            Work::Load { .. } => "load",
            Work::Alias => "alias",
            Work::Transfer => "transfer",
        }
    }

    /// Notes that a base holds a result, which backward may need unchanged (§9.3). A view of a result is that result.
    pub(crate) fn publish(&self, out: u32, saved: Saved) {
        if !self.tracked {
            return;
        }
        let Work::Op(op) = &self.work else { return };
        let behind = {
            let mut slot = self.slot();
            if slot.keeps_result || op.rules().saves().outputs.contains(&(out as usize)) {
                slot.saved.push(saved);
            }
            let same = matches!(**op, Op::Reshape(_) | Op::Permute(_));
            if same { slot.args.first().cloned() } else { None }
        };
        if let Some(r) = behind {
            r.node.publish(r.out, saved);
        }
    }

    /// Sets the results and lets go of the operands unless backward may need them.
    pub(crate) fn finish(&self, values: Vec<Stored>) {
        let released = {
            let mut slot = self.slot();
            slot.values = values;
            if self.tracked { Args::new() } else { mem::take(&mut slot.args) }
        };
        drop(released);
    }
}

/// Long chains of nodes are dropped in a loop: recursion would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut stack: Vec<Ref> =
            mem::take(&mut self.slot.get_mut().unwrap_or_else(|e| e.into_inner()).args).into_vec();
        while let Some(r) = stack.pop() {
            if let Some(mut node) = Arc::into_inner(r.node) {
                stack.extend(mem::take(&mut node.slot.get_mut().unwrap_or_else(|e| e.into_inner()).args));
            }
        }
    }
}
