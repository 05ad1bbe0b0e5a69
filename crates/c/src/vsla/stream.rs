//! Streams and events (§7.4): runs at once, or later and in order.

use crate::vsla::backend::vsla_backend_t;
use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, get, insert, kind, lock, want};
use crate::vsla::plan::{IoList, read_all, run_on, write_all};
use crate::vsla::pointers::{check_writable, slice, slice_mut, write_out};
use std::sync::Arc;
use vsla::queue::{QueueTask, TaskQueue};
use vsla::{Backend, Event, Result, Stream};

/// An order of execution.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_stream_t;

/// A mark in a stream that others wait for.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_event_t;

/// A stream with its thread, if it has one.
pub(crate) struct CStream {
    backend: Backend,
    queue: Option<TaskQueue<StreamJob>>,
}

/// What a stream runs. Handles were looked up when it was submitted, so they may be destroyed before it runs.
#[expect(clippy::large_enum_variant, reason = "a box would allocate in every run")]
pub(crate) enum StreamJob {
    Program {
        plan: Arc<Object>,
        bindings: Arc<Object>,
        inputs: IoList,
        outputs: IoList,
    },
    Profile {
        profile: Arc<Object>,
        inputs: IoList,
        outputs: IoList,
    },
    Training {
        plan: Arc<Object>,
        bindings: Arc<Object>,
        inputs: IoList,
        outputs: IoList,
        cotangents: IoList,
        gradients: IoList,
    },
}

// SAFETY: the header requires that nothing else uses the data until the stream is synchronised.
unsafe impl Send for StreamJob {}

impl QueueTask for StreamJob {
    fn run(self) -> Result<()> {
        let now = Stream::default();
        match self {
            StreamJob::Program { plan, bindings, inputs, outputs } => {
                kind!(plan, Plan, plan);
                kind!(bindings, Bindings, bindings);
                // SAFETY: the lists were copied or are read in the call that made the job, and the data stays valid
                // until the stream is synchronised, as the header requires.
                unsafe { run_on(plan, &mut lock(bindings), &inputs, &outputs) }
            }
            StreamJob::Profile { profile, inputs, outputs } => {
                kind!(profile, Profile, profile);
                let mut p = lock(profile);
                if let Some((plan, bindings)) = p.parts() {
                    // SAFETY: as above.
                    return unsafe { run_on(plan, bindings, &inputs, &outputs) };
                }
                // SAFETY: as above.
                unsafe { write_all(&inputs, p.bindings_mut())? };
                p.execute(&now)?;
                // SAFETY: as above.
                unsafe { read_all(&outputs, p.bindings()) }
            }
            StreamJob::Training { plan, bindings, inputs, outputs, cotangents, gradients } => {
                kind!(plan, BackwardPlan, plan);
                kind!(bindings, AdBindings, bindings);
                let mut b = lock(bindings);
                // SAFETY: as above.
                unsafe { write_all(&inputs, b.values_mut())? };
                plan.forward(&mut b, &now)?;
                // SAFETY: as above.
                unsafe {
                    read_all(&outputs, b.values())?;
                    cotangents.for_each_value(|v, at, n| b.write_cotangent_bytes(v, slice(at, n, "data")?))?;
                }
                plan.backward(&mut b, &now)?;
                // SAFETY: as above.
                unsafe { gradients.for_each_value(|v, at, n| b.read_gradient_bytes(v, slice_mut(at, n, "data")?)) }
            }
        }
    }
}

impl CStream {
    /// Runs a job now, or leaves it to the stream's thread.
    pub(crate) fn start(&self, job: StreamJob) -> Result<()> {
        match &self.queue {
            None => job.run(),
            // SAFETY: lists were good when the job was made, in this very call.
            Some(q) => q.submit(unsafe { job.into_owned()? }),
        }
    }
}

impl StreamJob {
    /// With lists of its own.
    ///
    /// # Safety
    /// The lists of the job are valid.
    unsafe fn into_owned(mut self) -> Result<StreamJob> {
        let lists: [Option<&mut IoList>; 4] = match &mut self {
            StreamJob::Program { inputs, outputs, .. } | StreamJob::Profile { inputs, outputs, .. } => {
                [Some(inputs), Some(outputs), None, None]
            }
            StreamJob::Training { inputs, outputs, cotangents, gradients, .. } => {
                [Some(inputs), Some(outputs), Some(cotangents), Some(gradients)]
            }
        };
        for io in lists.into_iter().flatten() {
            // SAFETY: the job was made in this call, in which its lists are valid.
            *io = unsafe { std::mem::replace(io, IoList::None).into_owned()? };
        }
        Ok(self)
    }
}

/// A stream whose runs have ended when a call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_stream(
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_stream_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(backend, Backend, backend);
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Stream(CStream { backend: backend.clone(), queue: None }))) }
    })
}

/// A stream with a thread of its own: runs return at once and are done later, in order, beside the host and beside other
/// streams. Until the stream is synchronised, the data that a run was given must stay, and outputs are not there yet; lists
/// of values are copied (more than 16 of them on the heap). A run that fails is told by `vsla_backend_synchronize`, and
/// runs after it are left out until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_backend_create_async_stream(
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_stream_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(backend, Backend, backend);
        let order = CStream { backend: backend.clone(), queue: Some(TaskQueue::new()?) };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Stream(order))) }
    })
}

/// Returns when all that was started on the stream has ended; with the first failure since the last call, if there was
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_backend_synchronize(stream: *const vsla_stream_t) -> Code {
    guard(|| {
        want!(stream, Stream, stream);
        stream.queue.as_ref().map_or(Ok(()), |q| q.synchronize())?;
        Stream::new(&stream.backend).synchronize()
    })
}

/// An event. Before it is recorded, nobody waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_event_create(out: *mut *mut vsla_event_t) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Event(Event::new()))) }
    })
}

/// Marks a place in a stream: the event has happened when all before it is done.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_event_record(event: *const vsla_event_t, stream: *const vsla_stream_t) -> Code {
    guard(|| {
        want!(event, Event, event);
        want!(stream, Stream, stream);
        stream.queue.as_ref().map_or(Ok(()), |q| q.signal(event))
    })
}

/// What is started on a stream from now on waits for the last mark of an event.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_stream_wait_event(stream: *const vsla_stream_t, event: *const vsla_event_t) -> Code {
    guard(|| {
        want!(stream, Stream, stream);
        want!(event, Event, event);
        match &stream.queue {
            Some(q) => q.wait(event),
            None => event.synchronize(),
        }
    })
}

/// Returns when all before the last mark of an event is done.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_event_synchronize(event: *const vsla_event_t) -> Code {
    guard(|| {
        want!(event, Event, event);
        event.synchronize()
    })
}

/// Writes 1 if all before the last mark of an event is done, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_event_query(event: *const vsla_event_t, happened: *mut u32) -> Code {
    guard(|| {
        want!(event, Event, event);
        // SAFETY: the header requires `happened` to be valid for a write; null is refused.
        unsafe { write_out(happened, u32::from(event.has_happened())) }
    })
}

/// Looks up a handle that a job keeps, and checks its kind.
pub(crate) fn retain_handle<T>(
    handle: *const T,
    what: &str,
    fits: impl FnOnce(&Object) -> bool,
) -> Result<Arc<Object>> {
    let object = get(handle, what)?;
    if fits(&object) {
        return Ok(object);
    }
    Err(vsla::Error::InvalidArg(format!("the {what} is a handle of another kind")))
}
