//! CUDA graphs: captures the launches of a program as one graph, for each set of addresses that occurs repeatedly.
//!
//! A graph contains the addresses of its launches. It is valid for runs with the same addresses: in training,
//! the results of each step replace the previous ones in place.

use super::context::{Context, DriverHandle};
use super::load::LoadedProgram;
use compiler::Result;
use cudarc::driver::sys as cu;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of address sets per program.
const KEPT: usize = 16;
/// The minimum number of launches of a captured program.
const LEAST: usize = 3;
/// The maximum number of launches; longer programs take too long to capture.
const MOST: usize = 20_000;

/// The state of the address sets of a program, most recently used first.
#[derive(Default)]
pub(crate) struct CudaGraphCache {
    known: VecDeque<(Vec<u64>, State)>,
}

#[derive(Clone)]
enum State {
    Seen,
    Recorded(Arc<CudaGraph>),
    /// The capture failed.
    Uncapturable,
}

/// The decision for a run.
pub(crate) enum CaptureDecision {
    /// Enqueue its steps.
    Launch,
    /// Capture it, then replay the graph.
    Record,
    Replay(Arc<CudaGraph>),
}

impl CudaGraphCache {
    /// Decides how to execute a run with these addresses.
    pub(crate) fn next(&mut self, key: &[u64]) -> CaptureDecision {
        let Some(i) = self.known.iter().position(|(k, _)| k == key) else {
            self.known.push_front((key.to_vec(), State::Seen));
            self.known.truncate(KEPT);
            return CaptureDecision::Launch;
        };
        let Some(entry) = self.known.remove(i) else { return CaptureDecision::Launch };
        let todo = match &entry.1 {
            State::Seen => CaptureDecision::Record,
            State::Recorded(g) => CaptureDecision::Replay(g.clone()),
            State::Uncapturable => CaptureDecision::Launch,
        };
        self.known.push_front(entry);
        todo
    }

    /// Stores the result of capturing a run with these addresses.
    pub(crate) fn put(&mut self, key: &[u64], graph: Option<Arc<CudaGraph>>) {
        if let Some(entry) = self.known.iter_mut().find(|(k, _)| k == key) {
            entry.1 = graph.map_or(State::Uncapturable, State::Recorded);
        }
    }
}

impl LoadedProgram {
    /// Whether capturing is possible and useful.
    pub(crate) fn should_capture(&self) -> bool {
        self.inner.capture_graphs && self.launches.is_some_and(|n| (LEAST..=MOST).contains(&n))
    }
}

/// A captured graph.
pub(crate) struct CudaGraph {
    context: Arc<Context>,
    raw: DriverHandle<cu::CUgraphExec>,
}

impl CudaGraph {
    /// Captures the operations that `work` enqueues.
    pub(crate) fn capture(
        context: &Arc<Context>,
        stream: cu::CUstream,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<CudaGraph> {
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is ours and empty.
        let code = unsafe { cu::cuStreamBeginCapture_v2(stream, mode) };
        context.check(code, || "cuStreamBeginCapture".into())?;
        let given = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the recording began above, on this thread; it must end even if the work went wrong.
        let code = unsafe { cu::cuStreamEndCapture(stream, &mut graph) };
        let ended = context.check(code, || "cuStreamEndCapture".into());
        let made = given.and(ended).and_then(|()| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the graph was just made.
            let code = unsafe { cu::cuGraphInstantiateWithFlags(&mut raw, graph, 0) };
            context.check(code, || "cuGraphInstantiate".into())?;
            Ok(CudaGraph { context: context.clone(), raw: DriverHandle(raw) })
        });
        if !graph.is_null() {
            // SAFETY: made above; what was instantiated does not need it.
            unsafe { cu::cuGraphDestroy(graph) };
        }
        made
    }

    pub(crate) fn replay(&self, stream: cu::CUstream) -> Result<()> {
        // SAFETY: what it touches is bound for this run, by its key.
        let code = unsafe { cu::cuGraphLaunch(self.raw.0, stream) };
        self.context.check(code, || "cuGraphLaunch".into())
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.context.enter_for_drop() {
            // SAFETY: made once; the driver keeps what still runs until it is done.
            unsafe { cu::cuGraphExecDestroy(self.raw.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(t: CaptureDecision) -> &'static str {
        match t {
            CaptureDecision::Launch => "launch",
            CaptureDecision::Record => "record",
            CaptureDecision::Replay(_) => "replay",
        }
    }

    #[test]
    fn a_set_of_addresses_is_recorded_when_it_comes_again() {
        let mut r = CudaGraphCache::default();
        assert_eq!(what(r.next(&[1, 2])), "launch");
        assert_eq!(what(r.next(&[1, 3])), "launch");
        assert_eq!(what(r.next(&[1, 2])), "record");
        r.put(&[1, 2], None);
        assert_eq!(what(r.next(&[1, 2])), "launch", "it can't be recorded");
        assert_eq!(what(r.next(&[1, 3])), "record");
        assert_eq!(what(r.next(&[1, 3])), "record", "nobody said what came of it");
    }

    #[test]
    fn what_is_not_used_is_forgotten() {
        let mut r = CudaGraphCache::default();
        for k in 0..KEPT as u64 + 1 {
            assert_eq!(what(r.next(&[k])), "launch");
        }
        assert_eq!(what(r.next(&[KEPT as u64])), "record");
        assert_eq!(what(r.next(&[0])), "launch", "the oldest went");
        assert_eq!(r.known.len(), KEPT);
    }
}
