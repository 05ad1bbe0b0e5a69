//! Asynchronous work: fences that a caller waits for, and reads that a caller awaits.

use crate::Result;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The completion of work on a device.
pub trait Completion: Send + Sync {
    /// Whether the work is complete, successfully or with an error. Never blocks.
    fn is_done(&self) -> bool;

    /// Waits for the work and returns its result.
    fn wait(&self) -> Result<()>;

    /// Arranges that the waker is called on completion. A device without notifications may wait in a separate
    /// thread.
    fn wake(&self, waker: &Waker);
}

/// The completion of a submission. Dropping it does not stop the work.
#[derive(Clone)]
#[must_use = "a submission may fail late: wait for its fence, or hand it on"]
pub struct Fence(Option<Arc<dyn Completion>>);

impl Fence {
    /// A fence of completed work. Does not allocate.
    pub fn completed() -> Fence {
        Fence(None)
    }

    /// A fence of work in progress.
    pub fn from_completion(work: Arc<dyn Completion>) -> Fence {
        Fence(Some(work))
    }

    /// Whether the work is complete, successfully or with an error.
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|p| p.is_done())
    }

    /// Waits for the work and returns its result.
    pub fn wait(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |p| p.wait())
    }
}

impl Future for Fence {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(work) = &self.0 else { return Poll::Ready(Ok(())) };
        if !work.is_done() {
            work.wake(cx.waker());
            // The work may have completed before the waker was registered.
            if !work.is_done() {
                return Poll::Pending;
            }
        }
        Poll::Ready(work.wait())
    }
}

/// Bytes that are being copied to the host.
pub struct ReadFuture {
    fence: Fence,
    /// Returns the bytes after the fence is complete.
    take: Option<Box<dyn FnOnce() -> Result<Vec<u8>> + Send>>,
}

impl ReadFuture {
    /// A future of bytes that are available.
    pub fn ready(bytes: Vec<u8>) -> ReadFuture {
        ReadFuture::after_fence(Fence::completed(), move || Ok(bytes))
    }

    /// A future of the bytes that `take` returns after the fence is complete.
    pub fn after_fence(fence: Fence, take: impl FnOnce() -> Result<Vec<u8>> + Send + 'static) -> ReadFuture {
        ReadFuture { fence, take: Some(Box::new(take)) }
    }

    /// Whether the bytes are available.
    pub fn is_done(&self) -> bool {
        self.fence.is_done()
    }

    /// Waits for the bytes.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        self.fence.wait()?;
        self.taken()
    }

    fn taken(&mut self) -> Result<Vec<u8>> {
        let take = self.take.take().ok_or_else(|| crate::Error::Internal("bytes that were taken before".into()))?;
        take()
    }
}

impl Future for ReadFuture {
    type Output = Result<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>>> {
        match Pin::new(&mut self.fence).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Ready(Ok(())) => Poll::Ready(self.taken()),
        }
    }
}
