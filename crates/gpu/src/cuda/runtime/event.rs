//! Events: points in a device's queue that a thread can wait for.

use super::context::DriverHandle;
use super::device::Device;
use compiler::{Completion, Error, Fence, Result};
use cudarc::driver::sys as cu;
use cudarc::driver::sys::CUresult as Code;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

/// A point in the queue of a device.
///
/// An event inside the device itself (in the staging ring) must not keep the device alive.
pub(crate) struct Event {
    device: Weak<Device>,
    context: Arc<super::context::Context>,
    raw: DriverHandle<cu::CUevent>,
}

impl Event {
    /// Records an event at the current end of the queue.
    pub(crate) fn record(device: &Arc<Device>) -> Result<Event> {
        let spare = device.events.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let raw = match spare {
            Some(raw) => raw,
            None => create(&device.context, cu::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)?,
        };
        let event = Event { device: Arc::downgrade(device), context: device.context.clone(), raw };
        // SAFETY: the event and the stream are alive.
        let code = unsafe { cu::cuEventRecord(raw.0, device.stream.0) };
        device.context.check(code, || "cuEventRecord".into())?;
        Ok(event)
    }

    /// Whether the device has reached the event, or is lost.
    pub(crate) fn is_done(&self) -> bool {
        if self.context.enter().is_err() {
            return true;
        }
        // SAFETY: the event is alive.
        let code = unsafe { cu::cuEventQuery(self.raw.0) };
        code != Code::CUDA_ERROR_NOT_READY
    }

    /// Waits until the device has reached the event.
    pub(crate) fn wait(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the event is alive.
        let code = unsafe { cu::cuEventSynchronize(self.raw.0) };
        self.context.check(code, || "cuEventSynchronize".into())
    }

    /// A fence that completes with the event.
    pub(crate) fn fence(self) -> Fence {
        Fence::from_completion(Arc::new(EventCompletion(Arc::new(self))))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        match self.device.upgrade() {
            // It may be recorded again even before it was reached.
            Some(device) => device.events.lock().unwrap_or_else(|e| e.into_inner()).push(self.raw),
            None if self.context.enter_for_drop() => {
                // SAFETY: it was created and is used no more.
                unsafe { cu::cuEventDestroy_v2(self.raw.0) };
            }
            None => {}
        }
    }
}

pub(crate) fn create(context: &super::context::Context, flags: u32) -> Result<DriverHandle<cu::CUevent>> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer is good for one handle.
    let code = unsafe { cu::cuEventCreate(&mut raw, flags) };
    context.check(code, || "cuEventCreate".into()).map(|()| DriverHandle(raw))
}

/// The completion of the work before an event.
pub(crate) struct EventCompletion(pub(crate) Arc<Event>);

impl Completion for EventCompletion {
    fn is_done(&self) -> bool {
        self.0.is_done()
    }

    fn wait(&self) -> Result<()> {
        self.0.wait()
    }

    fn wake(&self, waker: &Waker) {
        match self.0.device.upgrade() {
            Some(device) => device.waiting.wake(self.0.clone(), waker.clone()),
            None => waker.wake_by_ref(),
        }
    }
}

/// A thread that waits for events on behalf of wakers; started at the first use.
#[derive(Default)]
pub(crate) struct EventWaiter(Mutex<Option<Sender<(Arc<Event>, Waker)>>>);

impl EventWaiter {
    fn wake(&self, event: Arc<Event>, waker: Waker) {
        let mut sender = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if sender.is_none() {
            let (to, from) = channel::<(Arc<Event>, Waker)>();
            let wait = move || {
                // In order: the queue reaches events in the order in which they were recorded.
                for (event, waker) in from {
                    let _ = event.wait();
                    drop(event);
                    waker.wake();
                }
            };
            if std::thread::Builder::new().name("cuda-wait".into()).spawn(wait).is_ok() {
                *sender = Some(to);
            }
        }
        // Without the thread, the waker is called at once, so that the future is polled repeatedly.
        let unsent = match sender.as_ref() {
            Some(to) => to.send((event, waker)).err().map(|e| e.0.1),
            None => Some(waker),
        };
        if let Some(waker) = unsent {
            waker.wake();
        }
    }
}

/// Measures the time between two events.
pub(crate) struct Stopwatch {
    context: Arc<super::context::Context>,
    start: DriverHandle<cu::CUevent>,
    end: DriverHandle<cu::CUevent>,
    elapsed: unsafe extern "C" fn(*mut f32, cu::CUevent, cu::CUevent) -> Code,
}

impl Stopwatch {
    pub(crate) fn new(device: &Device) -> Result<Stopwatch> {
        let context = device.context.clone();
        context.enter()?;
        // SAFETY: the signature is the driver's; this name is in every version, the bindings' newer one is not.
        let elapsed = unsafe {
            cu::culib().get::<unsafe extern "C" fn(*mut f32, cu::CUevent, cu::CUevent) -> Code>(b"cuEventElapsedTime\0")
        };
        let elapsed = *elapsed.map_err(|e| Error::Backend(format!("cuEventElapsedTime: {e}")))?;
        let flags = cu::CUevent_flags::CU_EVENT_DEFAULT as u32;
        let start = create(&context, flags)?;
        let end = create(&context, flags)?;
        Ok(Stopwatch { context, start, end, elapsed })
    }

    pub(crate) fn start(&self, stream: cu::CUstream) -> Result<()> {
        // SAFETY: both are alive.
        let code = unsafe { cu::cuEventRecord(self.start.0, stream) };
        self.context.check(code, || "cuEventRecord".into())
    }

    /// Waits for the work that was enqueued since the start, and returns its duration on the stream.
    pub(crate) fn stop(&self, stream: cu::CUstream) -> Result<std::time::Duration> {
        let mut ms = 0f32;
        // SAFETY: all are alive.
        let code = unsafe { cu::cuEventRecord(self.end.0, stream) };
        self.context.check(code, || "cuEventRecord".into())?;
        // SAFETY: as above.
        let code = unsafe { cu::cuEventSynchronize(self.end.0) };
        self.context.check(code, || "cuEventSynchronize".into())?;
        // SAFETY: as above; both events have passed.
        let code = unsafe { (self.elapsed)(&mut ms, self.start.0, self.end.0) };
        self.context.check(code, || "cuEventElapsedTime".into())?;
        Ok(std::time::Duration::from_secs_f64(ms.max(0.0) as f64 / 1e3))
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if self.context.enter_for_drop() {
            // SAFETY: created here, used no more.
            unsafe {
                cu::cuEventDestroy_v2(self.start.0);
                cu::cuEventDestroy_v2(self.end.0);
            }
        }
    }
}
