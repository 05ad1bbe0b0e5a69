//! One arena for several programs (§10.2).

use crate::vsla::backend::vsla_backend_t;
use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, get, insert, want};
use crate::vsla::plan::{vsla_bindings_t, vsla_plan_t};
use crate::vsla::pointers::{check_writable, memory, slice, slice_mut, write_out};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use vsla::{Bindings, Error, Link, Plan, Result, SharedArena, StageLink, ValueId};

/// Memory of programs that run in a fixed order.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_shared_arena_t;

/// An output of one program that is an input of a later one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vsla_stage_link_t {
    /// Position of the source in the order of execution.
    pub from: usize,
    /// Position of the destination, later than the source.
    pub to: usize,
    /// Output of the source.
    pub source: u32,
    /// Input of the destination.
    pub destination: u32,
}

/// Plans one arena for programs in the order they will run. What doesn't live together shares memory: activations and
/// workspace of different programs, inputs once their program has run, linked values once their last reader has.
/// Write the inputs of a round before its first program runs, run the programs in order and never two at once, and read
/// the outputs before the next round.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shared_arena_create(
    plans: *const *const vsla_plan_t,
    count: usize,
    links: *const vsla_stage_link_t,
    nlinks: usize,
    out: *mut *mut vsla_shared_arena_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `plans` and `links` to be valid for reads of that many elements; null is refused.
        let (plans, links) = unsafe { (slice(plans, count, "plans")?, slice(links, nlinks, "links")?) };
        let objects: Vec<Arc<Object>> = plans.iter().map(|p| get(*p, "plan")).collect::<Result<_>>()?;
        let plans: Vec<&Plan> = (objects.iter())
            .map(|o| match &**o {
                Object::Plan(p) => Ok(p),
                _ => Err(Error::InvalidArg("a plan is a handle of another kind".into())),
            })
            .collect::<Result<_>>()?;
        let link = |l: &vsla_stage_link_t| StageLink {
            from: l.from,
            to: l.to,
            link: Link { source: ValueId(l.source), destination: ValueId(l.destination) },
        };
        let links: Vec<StageLink> = links.iter().map(link).collect();
        // SAFETY: as above.
        unsafe { write_out(out, insert(Object::SharedArena(SharedArena::plan(&plans, &links)?))) }
    })
}

/// The bytes of a shared arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shared_arena_bytes(arena: *const vsla_shared_arena_t, bytes: *mut usize) -> Code {
    guard(|| {
        want!(arena, SharedArena, arena);
        // SAFETY: the header requires `bytes` to be valid for a write; null is refused.
        unsafe { write_out(bytes, arena.bytes()) }
    })
}

/// Binds every program, with memory from a backend; `out` has room for as many bindings as there are programs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shared_arena_bind(
    arena: *const vsla_shared_arena_t,
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_bindings_t,
    count: usize,
) -> Code {
    guard(|| {
        want!(arena, SharedArena, arena);
        want!(backend, Backend, backend);
        // SAFETY: the header requires `out` to be valid for writes of `count` handles; null is refused.
        unsafe { write_handles(arena, out, count, || arena.bind(backend)) }
    })
}

/// Binds every program in one block of the caller's, as `vsla_program_bind_in` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shared_arena_bind_in(
    arena: *const vsla_shared_arena_t,
    block: *mut c_void,
    bytes: usize,
    out: *mut *mut vsla_bindings_t,
    count: usize,
) -> Code {
    guard(|| {
        want!(arena, SharedArena, arena);
        // SAFETY: the header requires the block to be valid for `bytes` bytes for as long as the bindings exist, and
        // `out` for writes of `count` handles; null is refused.
        unsafe {
            let block = memory(block, bytes, arena.bytes())?;
            write_handles(arena, out, count, || arena.bind_in(block))
        }
    })
}

/// # Safety
/// `out` is null or valid for writes of `count` handles.
unsafe fn write_handles(
    arena: &SharedArena,
    out: *mut *mut vsla_bindings_t,
    count: usize,
    bind: impl FnOnce() -> Result<Vec<Bindings>>,
) -> Result<()> {
    if count != arena.stages() {
        let text = format!("there is room for {count} bindings, but the arena has {} programs", arena.stages());
        return Err(Error::InvalidArg(text));
    }
    // SAFETY: `out` is valid for writes of `count` handles; `slice_mut` refuses null.
    let out = unsafe { slice_mut(out, count, "the place for the bindings")? };
    for (to, b) in out.iter_mut().zip(bind()?) {
        *to = insert(Object::Bindings(Mutex::new(b)));
    }
    Ok(())
}
