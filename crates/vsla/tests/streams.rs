//! Streams, events and devices of callers (§7.4, §11).

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use support::Rng;
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::queue::{QueueTask, TaskQueue};
use tensorloom_vsla::{
    Backend, Bindings, DType, Device, DeviceRun, Error, ErrorCode, Event, Link, Plan, Profile, Program, ProgramBuilder,
    Result, Segment, Stream, Tensor,
};

fn program(n: usize) -> Arc<Program> {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F64, &[n, n]).unwrap();
    let w = b.param("w", DType::F64, &[n, n]).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.softmax(y).unwrap();
    let y = b.matmul(y, w).unwrap();
    b.output(y).unwrap();
    Arc::new(b.build().unwrap())
}

fn filled(plan: &Plan, seed: u64) -> Bindings {
    let mut b = plan.bind().unwrap();
    let p = plan.program().clone();
    let mut rng = Rng(seed);
    for v in p.inputs().iter().chain(p.params()) {
        b.write(*v, &rng.tensor(DType::F64, &p.signature(*v).shape)).unwrap();
    }
    b
}

/// Two streams at once, on one backend, over one plan: each has the results that it has alone.
#[test]
fn s7_4_two_streams_at_once_are_right() {
    let backend = Backend::cpu(2);
    let program = program(64);
    let plan = Plan::new(&program, &backend).unwrap();
    let out = program.outputs()[0];
    let alone = |seed: u64| {
        let mut b = filled(&plan, seed);
        plan.execute(&mut b, &Stream::default()).unwrap();
        b.read(out).unwrap().to_bytes()
    };
    let want: Vec<Vec<u8>> = (0..8).map(alone).collect();
    let streams = [Stream::asynchronous(&backend).unwrap(), Stream::asynchronous(&backend).unwrap()];
    for _ in 0..20 {
        let bound: Vec<_> = (0..8).map(|i| Arc::new(Mutex::new(filled(&plan, i)))).collect();
        for (i, b) in bound.iter().enumerate() {
            streams[i % 2].submit(&plan, b).unwrap();
        }
        streams.iter().for_each(|s| s.synchronize().unwrap());
        for (b, want) in bound.iter().zip(&want) {
            assert_eq!(b.lock().unwrap().read(out).unwrap().to_bytes(), *want);
        }
    }
}

/// A task that waits until it is let through, then says that it ran.
struct Gate(usize, mpsc::Receiver<()>, Arc<Mutex<Vec<usize>>>);

impl QueueTask for Gate {
    fn run(self) -> Result<()> {
        self.1.recv().map_err(|_| Error::Backend(format!("task {} was given up", self.0)))?;
        self.2.lock().unwrap().push(self.0);
        Ok(())
    }
}

#[test]
fn s7_4_streams_keep_their_order_and_events_join_them() {
    let (one, two) = (TaskQueue::new().unwrap(), TaskQueue::new().unwrap());
    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut gates = Vec::new();
    let mut task = |n: usize| {
        let (open, gate) = mpsc::channel();
        gates.push(open);
        Gate(n, gate, ran.clone())
    };
    let event = Event::new();
    assert!(event.has_happened(), "an event that nobody recorded holds nobody up");
    event.synchronize().unwrap();
    one.submit(task(0)).unwrap();
    one.submit(task(1)).unwrap();
    one.signal(&event).unwrap();
    two.wait(&event).unwrap();
    two.submit(task(2)).unwrap();
    one.submit(task(3)).unwrap();
    // All gates but the first are open, and yet nothing runs: each stream waits for task 0.
    gates[1..].iter().for_each(|g| g.send(()).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(ran.lock().unwrap().is_empty() && !event.has_happened());
    // Another stream may not take an event that still waits.
    assert_eq!(two.signal(&event).unwrap_err().code(), ErrorCode::InvalidArg);
    gates[0].send(()).unwrap();
    event.synchronize().unwrap();
    assert!(event.has_happened());
    one.synchronize().unwrap();
    two.synchronize().unwrap();
    let order = ran.lock().unwrap().clone();
    let place = |n: usize| order.iter().position(|x| *x == n).unwrap();
    assert!(place(0) < place(1) && place(1) < place(2) && place(1) < place(3), "{order:?}");
    two.signal(&event).unwrap();
    event.synchronize().unwrap();
}

#[test]
fn s7_4_failures_come_out_at_the_next_synchronisation() {
    struct Fails(Option<&'static str>, Arc<AtomicUsize>);
    impl QueueTask for Fails {
        fn run(self) -> Result<()> {
            self.1.fetch_add(1, Ordering::SeqCst);
            match self.0 {
                Some("panic") => panic!("on purpose"),
                Some(text) => Err(Error::Backend(text.into())),
                None => Ok(()),
            }
        }
    }
    let queue = TaskQueue::new().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let submit = |what| queue.submit(Fails(what, ran.clone())).unwrap();
    submit(None);
    submit(Some("first"));
    submit(Some("second"));
    let event = Event::new();
    queue.signal(&event).unwrap();
    event.synchronize().unwrap();
    assert!(queue.synchronize().unwrap_err().to_string().contains("first"));
    assert_eq!(ran.load(Ordering::SeqCst), 2, "what comes after a failure is left out");
    queue.synchronize().unwrap();
    submit(Some("panic"));
    assert_eq!(queue.synchronize().unwrap_err().code(), ErrorCode::Unknown);
    // More than a queue has room for: whoever submits waits, and nothing is lost.
    (0..500).for_each(|_| submit(None));
    drop(queue);
    assert_eq!(ran.load(Ordering::SeqCst), 503, "dropping a stream waits for what it was given");
}

/// Programs on two streams, joined by an event, with a link between them: §10.1's sequencing by synchronisation.
#[test]
fn s10_1_streams_and_an_event_order_linked_programs() {
    let backend = Backend::cpu(2);
    let (first, second) = (program(40), program(40));
    let plans = (Plan::new(&first, &backend).unwrap(), Plan::new(&second, &backend).unwrap());
    let link = Link { source: first.outputs()[0], destination: second.inputs()[0] };
    let (a, mut b) = (filled(&plans.0, 1), filled(&plans.1, 2));
    link.connect(&a, &mut b).unwrap();
    let (a, b) = (Arc::new(Mutex::new(a)), Arc::new(Mutex::new(b)));
    let streams = (Stream::asynchronous(&backend).unwrap(), Stream::asynchronous(&backend).unwrap());
    let mut want: Option<Tensor> = None;
    for round in 0..50 {
        let ready = Event::new();
        streams.0.submit(&plans.0, &a).unwrap();
        streams.0.record(&ready).unwrap();
        streams.1.wait(&ready).unwrap();
        streams.1.submit(&plans.1, &b).unwrap();
        streams.1.synchronize().unwrap();
        let got = b.lock().unwrap().read(second.outputs()[0]).unwrap();
        assert_eq!(got.to_bytes(), want.get_or_insert_with(|| got.clone()).to_bytes(), "{round}");
    }
    // A run on the host's thread comes after what was submitted.
    streams.0.submit(&plans.0, &a).unwrap();
    let mut own = filled(&plans.0, 1);
    plans.0.execute(&mut own, &streams.0).unwrap();
    assert_eq!(own.read(first.outputs()[0]).unwrap(), a.lock().unwrap().read(first.outputs()[0]).unwrap());
    // Bindings of another plan are refused, when their turn comes.
    streams.0.submit(&plans.0, &b).unwrap();
    assert_eq!(streams.0.synchronize().unwrap_err().code(), ErrorCode::InvalidArg);
}

/// Counts what passes through it; one of its kind leaves a segment out.
#[derive(Default)]
struct Watch {
    launched: Mutex<Vec<usize>>,
    replays: AtomicUsize,
    forgotten: AtomicUsize,
    synchronized: AtomicUsize,
    lazy: bool,
}

impl Device for Watch {
    fn launch(&self, index: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        self.launched.lock().unwrap().push(index);
        if self.lazy && index == 1 {
            return Ok(());
        }
        assert!(run.segment(index + 1).is_err(), "segments come in order");
        run.segment(index)?;
        assert!(run.segment(index).is_err(), "each segment runs once");
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.synchronized.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn record(&self, segments: &[Segment]) -> Result<Option<usize>> {
        Ok(Some(1000 + segments.len()))
    }

    fn replay(&self, graph: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        assert_eq!(graph, 1000 + run.segments().len());
        self.replays.fetch_add(1, Ordering::SeqCst);
        (0..run.segments().len()).try_for_each(|i| run.segment(i))
    }

    fn destroy_graph(&self, _graph: usize) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn s11_a_device_launches_records_and_replays() {
    let plain = Backend::cpu(2);
    let device = Arc::new(Watch::default());
    let backend = plain.with_device(device.clone());
    let program = program(24);
    let out = program.outputs()[0];
    let plans = [Plan::new(&program, &plain).unwrap(), Plan::new(&program, &backend).unwrap()];
    let results = plans.each_ref().map(|plan| {
        let mut b = filled(plan, 7);
        plan.execute(&mut b, &Stream::new(&backend)).unwrap();
        b.read(out).unwrap().to_bytes()
    });
    assert_eq!(results[0], results[1]);
    let count = plans[1].segments().len();
    assert!(count > 1);
    assert_eq!(*device.launched.lock().unwrap(), (0..count).collect::<Vec<_>>());

    let mut profile = Profile::new(plans[1].clone(), filled(&plans[1], 7)).unwrap();
    profile.record().unwrap();
    for _ in 0..3 {
        profile.execute(&Stream::default()).unwrap();
        assert_eq!(profile.bindings().read(out).unwrap().to_bytes(), results[0]);
    }
    assert_eq!((device.replays.load(Ordering::SeqCst), device.forgotten.load(Ordering::SeqCst)), (3, 0));
    profile.record().unwrap();
    drop(profile);
    assert_eq!(device.forgotten.load(Ordering::SeqCst), 2);
    Stream::new(&backend).synchronize().unwrap();
    assert_eq!(device.synchronized.load(Ordering::SeqCst), 1);
    // The processor has nothing to record.
    let mut profile = Profile::compile(&program, &plain).unwrap();
    assert_eq!(profile.record().unwrap_err().code(), ErrorCode::NotImplemented);
    profile.execute(&Stream::default()).unwrap();

    // Backward runs through the device too.
    let back = autograd::build_backward(&program, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, &backend).unwrap();
    let bound = Arc::new(Mutex::new(plan.bind().unwrap()));
    device.launched.lock().unwrap().clear();
    let stream = Stream::asynchronous(&backend).unwrap();
    stream.submit_backward(&plan, &bound).unwrap();
    stream.synchronize().unwrap();
    assert!(device.launched.lock().unwrap().len() > count);

    // A device that leaves a segment out is found out.
    let lazy = plain.with_device(Arc::new(Watch { lazy: true, ..Watch::default() }));
    let plan = Plan::new(&program, &lazy).unwrap();
    let e = plan.execute(&mut plan.bind().unwrap(), &Stream::default()).unwrap_err();
    assert_eq!(e.code(), ErrorCode::BackendError);
    assert!(e.to_string().contains("left out segment 1"), "{e}");
}
