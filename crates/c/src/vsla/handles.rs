//! The table of handles. A handle is a number in a pointer's clothes: it is looked up, never followed.

use crate::vsla::error::{Code, guard};
use crate::vsla::stream::CStream;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};
use vsla::autograd::{AdBindings, BackwardPlan, BackwardProgram};
use vsla::{
    Backend, Bindings, Error, Event, Plan, Profile, Program, ProgramDescription, Pyramid, Result, SharedArena, Tensor,
    Window,
};

/// What a handle may mean.
pub(crate) enum Object {
    Backend(Backend),
    Stream(CStream),
    Event(Event),
    Graph(Mutex<ProgramDescription>),
    Program(Arc<Program>),
    Plan(Plan),
    Bindings(Mutex<Bindings>),
    SharedArena(SharedArena),
    Backward(BackwardProgram),
    BackwardPlan(BackwardPlan),
    AdBindings(Mutex<AdBindings>),
    Profile(Mutex<Profile>),
    Tensor(Tensor),
    Archive(Vec<(String, Tensor)>),
    Window(Mutex<Window>),
    Pyramid(Mutex<Pyramid>),
}

struct HandleTable {
    live: BTreeMap<usize, Arc<Object>>,
    next: usize,
}

/// Numbers are multiples of 16 and never used twice, so a freed handle stays invalid.
static TABLE: Mutex<HandleTable> = Mutex::new(HandleTable { live: BTreeMap::new(), next: 1 });

fn table() -> MutexGuard<'static, HandleTable> {
    TABLE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Takes a lock that a panic may have poisoned: what it guards stays usable.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Enters an object; gives its handle.
pub(crate) fn insert<T>(object: Object) -> *mut T {
    let mut t = table();
    let key = t.next * 16;
    t.next += 1;
    t.live.insert(key, Arc::new(object));
    std::ptr::without_provenance_mut(key)
}

/// Looks a handle up.
pub(crate) fn get<T>(handle: *const T, what: &str) -> Result<Arc<Object>> {
    if handle.is_null() {
        return Err(Error::InvalidArg(format!("the {what} is null")));
    }
    let found = table().live.get(&handle.addr()).cloned();
    found.ok_or_else(|| Error::InvalidArg(format!("the {what} was destroyed or is not a handle of this library")))
}

/// Looks up a handle of one kind.
macro_rules! want {
    ($handle:expr, $kind:ident, $object:ident) => {
        let $object = $crate::vsla::handles::get($handle, stringify!($object))?;
        $crate::vsla::handles::kind!($object, $kind, $object);
    };
}
pub(crate) use want;

/// What an object is, if it is of one kind.
macro_rules! kind {
    ($from:expr, $kind:ident, $object:ident) => {
        let $crate::vsla::handles::Object::$kind($object) = &*$from else {
            return Err(vsla::Error::InvalidArg(format!("the {} is a handle of another type", stringify!($object))));
        };
    };
}
pub(crate) use kind;

/// Destroys any handle. What others still use lives on until they are destroyed too. Null is fine; a handle that was
/// destroyed before is `VSLA_ERR_INVALID_ARG`.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_destroy(handle: *mut c_void) -> Code {
    guard(|| {
        if handle.is_null() {
            return Ok(());
        }
        let gone = table().live.remove(&handle.addr());
        match gone {
            Some(_) => Ok(()),
            None => {
                Err(Error::InvalidArg("the handle was already destroyed or is not a handle of this library".into()))
            }
        }
    })
}

/// How many handles are alive, for leak checks.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_live_handles() -> usize {
    table().live.len()
}
