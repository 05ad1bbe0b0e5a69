//! The body of a response that is streamed while it is generated.

use http_body::{Body, Frame};
use hyper::body::Bytes;
use serde_json::Value as Json;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum number of pieces that wait to be sent.
const CHANNEL_CAPACITY: usize = 32;

/// The receiving end, which the connection reads.
pub(crate) struct SseBody {
    pieces: mpsc::Receiver<Bytes>,
}

/// The sending end: writes server-sent events.
pub(crate) struct SseWriter {
    pieces: mpsc::Sender<Bytes>,
    /// How long a client may take to read a piece.
    write_timeout: Duration,
}

/// Why nothing more can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The client has disconnected.
    Disconnected,
    /// The client does not read.
    TimedOut,
}

pub(crate) fn channel(patience: Duration) -> (SseWriter, SseBody) {
    let (to, from) = mpsc::channel(CHANNEL_CAPACITY);
    (SseWriter { pieces: to, write_timeout: patience }, SseBody { pieces: from })
}

impl SseWriter {
    pub(crate) async fn event(&self, data: &Json) -> std::result::Result<(), WriteError> {
        self.write(format!("data: {data}\n\n")).await
    }

    pub(crate) async fn done(&self) -> std::result::Result<(), WriteError> {
        self.write("data: [DONE]\n\n".to_string()).await
    }

    async fn write(&self, text: String) -> std::result::Result<(), WriteError> {
        match tokio::time::timeout(self.write_timeout, self.pieces.send(Bytes::from(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(WriteError::Disconnected),
            Err(_) => Err(WriteError::TimedOut),
        }
    }

    /// Completes when the client has disconnected.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

impl Body for SseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
