//! The bodies of answers.

use crate::serve::sse::SseBody;
use http_body::{Frame, SizeHint};
use hyper::body::{Body, Bytes};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A whole answer.
pub(crate) type Response = hyper::Response<Answer>;

/// The body of an answer.
pub(crate) enum Answer {
    /// Bytes that are known, until they are taken.
    Known(Option<Bytes>),
    /// Pieces that are written while they come into being.
    Streamed(SseBody),
}

impl Answer {
    pub(crate) fn empty() -> Answer {
        Answer::Known(None)
    }
}

impl<T: Into<Bytes>> From<T> for Answer {
    fn from(bytes: T) -> Answer {
        Answer::Known(Some(bytes.into()))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Answer::Known(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Answer::Streamed(chunks) => Pin::new(chunks).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Known(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Known(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Answer::Streamed(_) => SizeHint::default(),
        }
    }
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is larger than the limit.
    Large,
    /// The client is gone, or doesn't speak HTTP.
    Broken,
}

/// All bytes of a request's body, if they are at most so many.
pub(crate) async fn read<B>(mut body: B, limit: usize) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        // Trailers say nothing here.
        let Ok(bytes) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if bytes.len() > limit - first.len().max(all.len()) {
            return Err(Unread::Large);
        }
        if first.is_empty() && all.is_empty() {
            first = bytes;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&bytes);
        }
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one by one.
    struct Pieces(Vec<Result<&'static str, ()>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = ();

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            let piece = self.0.remove(0);
            Poll::Ready(Some(piece.map(|text| Frame::data(Bytes::from(text)))))
        }
    }

    #[test]
    fn bodies_are_read_up_to_a_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (pieces, limit, expected) in [
            (vec![], 0, Ok("")),
            (vec![Ok("four")], 4, Ok("four")),
            (vec![Ok("four")], 3, Err(Unread::Large)),
            (vec![Ok("a"), Ok(""), Ok("bc"), Ok("d")], 4, Ok("abcd")),
            (vec![Ok("ab"), Ok("cd"), Ok("e")], 4, Err(Unread::Large)),
            (vec![Ok("ab"), Err(())], 4, Err(Unread::Broken)),
        ] {
            let found = runtime.block_on(read(Pieces(pieces), limit));
            assert_eq!(found, expected.map(Bytes::from));
        }
    }
}
