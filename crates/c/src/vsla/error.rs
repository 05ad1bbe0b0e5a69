//! Error codes, the message of the last error, and the guard that stands in every function.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vsla::Error;

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Code {
    /// It did what it says.
    VslaErrOk = 0,
    /// Out of memory.
    VslaErrOom,
    /// An argument is null, freed, or out of range.
    VslaErrInvalidArg,
    /// Shapes don't fit the operation.
    VslaErrInvalidShape,
    /// The program breaks a rule of validation.
    VslaErrInvalidProgram,
    /// No memory plan could be made.
    VslaErrPlanningFailed,
    /// The backend failed.
    VslaErrBackendError,
    /// This backend can't do that.
    VslaErrNotImplemented,
    /// A fault of the library.
    VslaErrUnknown,
}

impl From<&Error> for Code {
    fn from(e: &Error) -> Code {
        match e {
            Error::OutOfMemory { .. } => Code::VslaErrOom,
            Error::InvalidArg(_) => Code::VslaErrInvalidArg,
            Error::InvalidShape { .. } => Code::VslaErrInvalidShape,
            Error::InvalidProgram(_) => Code::VslaErrInvalidProgram,
            Error::PlanningFailed(_) => Code::VslaErrPlanningFailed,
            Error::Backend(_) => Code::VslaErrBackendError,
            Error::NotImplemented(_) => Code::VslaErrNotImplemented,
            Error::Unknown(_) => Code::VslaErrUnknown,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn set_last_error(text: String) {
    let clean: Vec<u8> = text.into_bytes().into_iter().filter(|b| *b != 0).collect();
    let text = CString::new(clean).unwrap_or_default();
    // Not while the thread ends, when its locals are gone.
    let _ = LAST.try_with(|l| l.replace(text));
}

/// Runs the inside of a function: errors become codes and messages, panics too.
pub(crate) fn guard(f: impl FnOnce() -> vsla::Result<()>) -> Code {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => Code::VslaErrOk,
        Ok(Err(e)) => {
            let code = Code::from(&e);
            set_last_error(e.to_string());
            code
        }
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            set_last_error(format!("internal error: {said}"));
            Code::VslaErrUnknown
        }
    }
}

/// The message of the last failure on the calling thread; empty if there was none. It is valid until the next failing
/// call on the same thread.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_get_last_error_string() -> *const c_char {
    LAST.try_with(|l| l.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn s13_a_panic_stops_at_the_boundary() {
        let code = guard(|| panic!("seven {}", 7));
        assert_eq!(code, Code::VslaErrUnknown);
        // SAFETY: the string is this thread's own, and no call comes between.
        let text = unsafe { CStr::from_ptr(vsla_get_last_error_string()) };
        assert_eq!(text.to_str(), Ok("internal error: seven 7"));
    }

    #[test]
    fn s13_codes_have_the_numbers_of_the_library() {
        let errors = [
            Error::OutOfMemory { bytes: 1 },
            Error::InvalidArg(String::new()),
            Error::InvalidShape { op: String::new(), text: String::new() },
            Error::InvalidProgram(vsla::ProgramFault::NoOutputs),
            Error::PlanningFailed(String::new()),
            Error::Backend(String::new()),
            Error::NotImplemented(String::new()),
            Error::Unknown(String::new()),
        ];
        for e in errors {
            assert_eq!(Code::from(&e) as i32, e.code() as i32);
        }
    }
}
