//! Turns panics of the `tokenizers` crate on untrusted files into errors.

use crate::error::{Error, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread will be caught and converted to an error; used by panic hooks.
pub fn panic_is_caught() -> bool {
    GUARDED.with(Cell::get)
}

/// Calls a function of the tokenizer; a panic becomes an error like those that it returns.
pub(crate) fn catch_panic<T>(what: &str, f: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let before = GUARDED.replace(true);
    let found = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(before);
    match found {
        Ok(found) => found.map_err(|e| Error::Input(format!("{what}: {e}"))),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            Err(Error::Input(format!("{what}: its tokenizer.json has a rule that failed ({text})")))
        }
    }
}
