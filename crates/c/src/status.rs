//! What a call came to, and the message of the last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// It did what it says.
    Ok = 0,
    /// A null or misaligned pointer, an index beyond the last, too little memory given.
    Argument,
    /// No file, no program, a damaged one, or one of another version.
    File,
    /// The system has no more memory.
    Memory,
    /// The run failed.
    Run,
}

/// A failure with its message.
pub(crate) struct Failure(pub(crate) Status, pub(crate) String);

impl Failure {
    pub(crate) fn argument(what: impl Into<String>) -> Failure {
        Failure(Status::Argument, what.into())
    }
}

impl From<compiler::Error> for Failure {
    fn from(e: compiler::Error) -> Failure {
        let status = match &e {
            compiler::Error::OutOfMemory { .. } | compiler::Error::MemoryLimit { .. } => Status::Memory,
            compiler::Error::Program(_) => Status::File,
            compiler::Error::Bindings(_) => Status::Argument,
            _ => Status::Run,
        };
        Failure(status, e.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the inside of a function: failures and panics become codes and messages.
pub(crate) fn guard(f: impl FnOnce() -> Result<(), Failure>) -> Status {
    let Failure(status, text) = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(_) => Failure(Status::Run, "internal error".into()),
    };
    let clean: Vec<u8> = text.into_bytes().into_iter().filter(|b| *b != 0).collect();
    // Not while the thread ends, when its locals are gone.
    let _ = LAST.try_with(|l| l.replace(CString::new(clean).unwrap_or_default()));
    status
}

/// The message of this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn loom_last_error() -> *const c_char {
    LAST.try_with(|l| l.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
