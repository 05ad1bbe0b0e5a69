//! Streams (§7.4): ordered queues of runs.

use crate::autograd::{self, AdBindings, BackwardPlan};
use crate::backend::Backend;
use crate::bindings::Bindings;
use crate::error::Result;
use crate::plan::Plan;
use crate::queue::{Event, QueueTask, TaskQueue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An ordered queue of runs. The default stream finishes every run before the call returns. An asynchronous stream has its own
/// thread, which executes submitted runs in order, concurrently with the host and with other streams.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tensorloom_vsla::{Backend, DType, Event, Plan, ProgramBuilder, Stream, Tensor};
///
/// let mut b = ProgramBuilder::new();
/// let x = b.input("x", DType::F64, &[3])?;
/// let y = b.exp(x)?;
/// b.output(y)?;
/// let backend = Backend::cpu(2);
/// let plan = Plan::new(&Arc::new(b.build()?), &backend)?;
/// let (one, two) = (Arc::new(Mutex::new(plan.bind()?)), Arc::new(Mutex::new(plan.bind()?)));
/// let streams = (Stream::asynchronous(&backend)?, Stream::asynchronous(&backend)?);
/// streams.0.submit(&plan, &one)?;
/// streams.1.submit(&plan, &two)?;
/// streams.0.synchronize()?;
/// streams.1.synchronize()?;
/// assert_eq!(two.lock().unwrap().read(y)?, Tensor::vector(&[1.0f64; 3]));
/// # Ok::<(), tensorloom_vsla::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Stream {
    queue: Option<Arc<TaskQueue<StreamTask>>>,
    backend: Option<Backend>,
}

/// A task that a stream executes later.
enum StreamTask {
    Forward(Plan, Arc<Mutex<Bindings>>),
    ForwardBackward(BackwardPlan, Arc<Mutex<AdBindings>>),
}

impl QueueTask for StreamTask {
    fn run(self) -> Result<()> {
        match self {
            StreamTask::Forward(plan, b) => plan.run(&mut lock(&b)),
            StreamTask::ForwardBackward(plan, b) => {
                let mut b = lock(&b);
                plan.run_forward(&mut b)?;
                plan.run_backward(&mut b)
            }
        }
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Creates a stream that finishes each run before the call returns.
    pub fn new(backend: &Backend) -> Stream {
        Stream { queue: None, backend: Some(backend.clone()) }
    }

    /// Creates a stream with its own thread.
    pub fn asynchronous(backend: &Backend) -> Result<Stream> {
        Ok(Stream { queue: Some(Arc::new(TaskQueue::new()?)), backend: Some(backend.clone()) })
    }

    /// Runs a plan on shared bindings; an asynchronous stream runs it later, in order. [`Stream::synchronize`] returns the first
    /// error, and runs that are submitted after the error and before that call are skipped. Allocates nothing.
    pub fn submit(&self, plan: &Plan, bindings: &Arc<Mutex<Bindings>>) -> Result<()> {
        match &self.queue {
            None => plan.execute(&mut lock(bindings), self),
            Some(q) => q.submit(StreamTask::Forward(plan.clone(), bindings.clone())),
        }
    }

    /// Runs forward, then backward, as [`Stream::submit`] does.
    pub fn submit_backward(&self, plan: &BackwardPlan, bindings: &Arc<Mutex<AdBindings>>) -> Result<()> {
        match &self.queue {
            None => autograd::execute_backward_plan(plan, &mut lock(bindings), self),
            Some(q) => q.submit(StreamTask::ForwardBackward(plan.clone(), bindings.clone())),
        }
    }

    /// Records an event, which completes when all work submitted before has completed.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.queue.as_ref().map_or(Ok(()), |q| q.signal(event))
    }

    /// Makes work that is submitted after this call wait for the last record of an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        match &self.queue {
            None => event.synchronize(),
            Some(q) => q.wait(event),
        }
    }

    /// Waits until all work submitted to the stream has completed. Returns the first error.
    pub fn synchronize(&self) -> Result<()> {
        self.wait_for_submitted()?;
        match self.backend.as_ref().and_then(Backend::device) {
            Some(device) => device.synchronize(),
            None => Ok(()),
        }
    }

    /// Waits for the work submitted before, so that a run on the caller's thread keeps the order.
    pub(crate) fn wait_for_submitted(&self) -> Result<()> {
        self.queue.as_ref().map_or(Ok(()), |q| q.synchronize())
    }
}
