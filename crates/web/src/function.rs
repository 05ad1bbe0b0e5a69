//! Functions of JavaScript as functions of tensors.

use crate::exports::words;
use crate::objects::{Object, hold, tensor};
use std::cell::Cell;
use std::hash::Hasher;
use tensorloom::{Function, Tensor, Tree};

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    /// Calls a function with the tensors whose handles are the first words. Gives the number of results, whose handles are
    /// then the first words; JavaScript still owns them. -1: it threw.
    safe fn apply(function: u32, tensors: u32) -> i32;
    /// This program needs a function no more.
    safe fn loose(function: u32);
    /// How many of the results of the last function are results, rather than what its backward rule needs.
    safe fn results() -> u32;
}

/// How many tensors that the last function gave are its results.
pub(crate) fn kept() -> usize {
    results() as usize
}

thread_local! {
    static THREW: Cell<bool> = const { Cell::new(false) };
}

/// Whether a function of JavaScript threw since the last time this was asked.
pub(crate) fn threw() -> bool {
    THREW.take()
}

/// The tensors of a tree that JavaScript took apart.
#[derive(Clone, Debug)]
pub(crate) struct Leaves(pub(crate) Vec<Tensor>);

impl Tree for Leaves {
    fn visit(&self, f: &mut dyn FnMut(&Tensor)) {
        self.0.iter().for_each(f);
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Tensor) -> Leaves {
        Leaves(self.0.iter().map(|_| next()).collect())
    }

    fn items(&self) -> Vec<usize> {
        vec![1; self.0.len()]
    }

    fn structure(&self, into: &mut dyn Hasher) {
        into.write_usize(self.0.len());
    }
}

/// Calls a function of JavaScript. Where it throws, the results are `least` invalid tensors.
pub(crate) fn call(function: u32, args: &[Tensor], least: usize) -> Vec<Tensor> {
    let handles: Vec<f64> = args.iter().map(|t| f64::from(hold(Object::Tensor(t.clone())))).collect();
    words(|w| {
        if w.len() < handles.len() {
            w.resize(handles.len(), 0.0);
        }
        w[..handles.len()].copy_from_slice(&handles);
    });
    let n = apply(function, handles.len() as u32);
    let results: Result<Vec<Tensor>, String> = match usize::try_from(n) {
        Ok(n) => words(|w| w[..n].to_vec()).into_iter().map(|h| tensor(h as u32)).collect(),
        Err(_) => Err(String::new()),
    };
    results.unwrap_or_else(|_| {
        THREW.set(true);
        (0..least.max(1)).map(|_| tensorloom::ones(1).reshape(2)).collect()
    })
}

/// A function that a compiled function keeps.
pub(crate) struct JsFunction(pub(crate) u32);

impl Drop for JsFunction {
    fn drop(&mut self) {
        loose(self.0);
    }
}

impl Function<Leaves> for JsFunction {
    type Out = Leaves;

    fn apply(&self, args: Leaves) -> Leaves {
        Leaves(call(self.0, &args.0, 1))
    }
}
