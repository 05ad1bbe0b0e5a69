//! The body of an answer that is written while it comes into being.

use axum::body::Bytes;
use http_body::{Body, Frame};
use serde_json::Value as Json;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pieces that wait to be written.
const PIECES: usize = 32;

/// The end that is read by the connection.
pub(crate) struct Chunks {
    pieces: mpsc::Receiver<Bytes>,
}

/// The end that is written: server-sent events.
pub(crate) struct Writer {
    pieces: mpsc::Sender<Bytes>,
    /// How long a client may take for a piece.
    patience: Duration,
}

/// Why nothing more can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The client is gone.
    Gone,
    /// It does not read.
    Slow,
}

pub(crate) fn pair(patience: Duration) -> (Writer, Chunks) {
    let (to, from) = mpsc::channel(PIECES);
    (Writer { pieces: to, patience }, Chunks { pieces: from })
}

impl Writer {
    pub(crate) async fn event(&self, data: &Json) -> std::result::Result<(), Lost> {
        self.write(format!("data: {data}\n\n")).await
    }

    pub(crate) async fn done(&self) -> std::result::Result<(), Lost> {
        self.write("data: [DONE]\n\n".to_string()).await
    }

    async fn write(&self, text: String) -> std::result::Result<(), Lost> {
        match tokio::time::timeout(self.patience, self.pieces.send(Bytes::from(text))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Lost::Gone),
            Err(_) => Err(Lost::Slow),
        }
    }

    /// Ends when the client is gone.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}
