//! Work that ends later: fences to wait for, reads to await.

use crate::Result;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Something that a device will have done.
pub trait Completion: Send + Sync {
    /// Whether it is done, well or badly. Never blocks.
    fn is_done(&self) -> bool;

    /// Waits for it, and says how it went.
    fn wait(&self) -> Result<()>;

    /// Sees to it that the waker is called when it is done. A device that can't tell by itself may wait in a thread of
    /// its own.
    fn wake(&self, waker: &Waker);
}

/// The end of a submission. Dropping it doesn't stop the work.
#[derive(Clone)]
#[must_use = "a submission may fail late: wait for its fence, or hand it on"]
pub struct Fence(Option<Arc<dyn Completion>>);

impl Fence {
    /// Of work that is done. Takes no memory.
    pub fn completed() -> Fence {
        Fence(None)
    }

    /// Of work that goes on.
    pub fn from_completion(work: Arc<dyn Completion>) -> Fence {
        Fence(Some(work))
    }

    /// Whether the work is done, well or badly.
    pub fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|p| p.is_done())
    }

    /// Waits for the work, and says how it went.
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
            // It may have ended before the waker was known.
            if !work.is_done() {
                return Poll::Pending;
            }
        }
        Poll::Ready(work.wait())
    }
}

/// Bytes on their way to the host.
pub struct ReadFuture {
    fence: Fence,
    /// Takes the bytes, once the fence has passed.
    take: Option<Box<dyn FnOnce() -> Result<Vec<u8>> + Send>>,
}

impl ReadFuture {
    /// Bytes that are there.
    pub fn ready(bytes: Vec<u8>) -> ReadFuture {
        ReadFuture::after_fence(Fence::completed(), move || Ok(bytes))
    }

    /// Bytes that `take` gives once the fence has passed.
    pub fn after_fence(fence: Fence, take: impl FnOnce() -> Result<Vec<u8>> + Send + 'static) -> ReadFuture {
        ReadFuture { fence, take: Some(Box::new(take)) }
    }

    /// Whether they are there.
    pub fn is_done(&self) -> bool {
        self.fence.is_done()
    }

    /// Waits for them.
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
