//! What JavaScript holds handles of.

use crate::function::{JsFunction, Leaves};
use std::cell::RefCell;
use std::rc::Rc;
use tensorloom::optim::{GradientTransformation, Schedule};
use tensorloom::{Jit, LinearMap, Tensor, Vjp};

/// An object of this program.
#[derive(Clone)]
pub(crate) enum Object {
    Tensor(Tensor),
    Chain(Rc<RefCell<Option<GradientTransformation>>>),
    Schedule(Schedule),
    Jit(Rc<Jit<Leaves, JsFunction>>),
    Vjp(Rc<Vjp<Leaves, Leaves>>),
    Linear(Rc<LinearMap<Leaves, Leaves>>),
}

#[derive(Default)]
struct Objects {
    all: Vec<Option<Object>>,
    free: Vec<u32>,
}

thread_local! {
    static OBJECTS: RefCell<Objects> = RefCell::default();
}

/// A new handle.
pub(crate) fn hold(object: Object) -> u32 {
    OBJECTS.with_borrow_mut(|o| match o.free.pop() {
        Some(i) => {
            o.all[i as usize] = Some(object);
            i
        }
        None => {
            o.all.push(Some(object));
            o.all.len() as u32 - 1
        }
    })
}

/// What a handle means.
pub(crate) fn find(handle: u32) -> Result<Object, String> {
    let found = OBJECTS.with_borrow(|o| o.all.get(handle as usize).cloned().flatten());
    found.ok_or_else(|| "this was disposed of; use it before `dispose`, or make it anew".to_string())
}

/// The tensor of a handle.
pub(crate) fn tensor(handle: u32) -> Result<Tensor, String> {
    match find(handle)? {
        Object::Tensor(t) => Ok(t),
        _ => Err("expected a tensor, got another object".into()),
    }
}

/// Gives a handle back.
pub(crate) fn drop_handle(handle: u32) {
    // Dropped outside of the borrow: what it holds may hold handles.
    let gone = OBJECTS.with_borrow_mut(|o| {
        let slot = o.all.get_mut(handle as usize)?;
        let gone = slot.take()?;
        o.free.push(handle);
        Some(gone)
    });
    drop(gone);
}

/// How many tensors are held.
pub(crate) fn tensors() -> usize {
    OBJECTS.with_borrow(|o| o.all.iter().filter(|x| matches!(x, Some(Object::Tensor(_)))).count())
}
