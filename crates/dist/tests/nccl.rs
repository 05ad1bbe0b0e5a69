//! NCCL calls: their simulated results compared with our own collectives; and the actual calls, recorded by a substitute library.

use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Mesh, Rules, Type};
use std::ffi::c_void;
use tensorloom_dist::nccl::{Call, Group, Nccl, Reduction, nccl_calls};
use tensorloom_dist::{Error, thread_transport};

fn kinds(n: usize) -> Vec<Kind> {
    vec![
        Kind::Sum,
        Kind::Max,
        Kind::Min,
        Kind::AllGather { dim: 0, same: true, turn: 0 },
        Kind::AllGather { dim: 1, same: false, turn: 0 },
        Kind::AllGather { dim: 2, same: false, turn: 0 },
        Kind::ReduceScatter { dim: 0 },
        Kind::ReduceScatter { dim: 1 },
        Kind::AllToAll { split: 0, join: 0 },
        Kind::AllToAll { split: 0, join: 2 },
        Kind::AllToAll { split: 2, join: 0 },
        Kind::AllToAll { split: 1, join: 1 },
        Kind::Permute { pairs: (0..n).map(|i| (i, (i + 1) % n)).collect() },
        Kind::Permute { pairs: vec![(0, n - 1)] },
        Kind::Permute { pairs: vec![] },
    ]
}

/// Simulates the calls of all ranks according to NCCL's manual.
fn simulate(calls: &[Vec<Call>], from: &[Vec<i32>], sizes: usize) -> Vec<Vec<i32>> {
    let n = calls.len();
    let mut to = vec![vec![-7; sizes]; n];
    for (rank, own) in calls.iter().enumerate() {
        for (k, call) in own.iter().enumerate() {
            match *call {
                Call::AllReduce { count, op } => {
                    for i in 0..count {
                        let all = from.iter().map(|f| f[i]);
                        to[rank][i] = match op {
                            Reduction::Sum => all.sum(),
                            Reduction::Max => all.max().unwrap(),
                            Reduction::Min => all.min().unwrap(),
                        };
                    }
                }
                Call::AllGather { from: a, to: b, count } => {
                    for (r, f) in from.iter().enumerate() {
                        to[rank][b / 4 + r * count..b / 4 + (r + 1) * count].copy_from_slice(&f[a / 4..a / 4 + count]);
                    }
                }
                Call::ReduceScatter { from: a, to: b, count } => {
                    for i in 0..count {
                        to[rank][b / 4 + i] = from.iter().map(|f| f[a / 4 + rank * count + i]).sum();
                    }
                }
                Call::Recv { to: b, count, peer } => {
                    // The k-th receive from a peer matches its k-th send.
                    let before =
                        own[..k].iter().filter(|c| matches!(c, Call::Recv { peer: p, .. } if *p == peer)).count();
                    let sent = calls[peer].iter().filter(|c| matches!(c, Call::Send { peer: p, .. } if *p == rank));
                    let Some(&Call::Send { from: a, count: m, .. }) = sent.clone().nth(before) else {
                        panic!("no send")
                    };
                    assert_eq!(m, count);
                    to[rank][b / 4..b / 4 + count].copy_from_slice(&from[peer][a / 4..a / 4 + count]);
                }
                Call::Send { .. } => {}
                Call::Zero => to[rank].fill(0),
            }
        }
    }
    to
}

#[test]
fn calls_do_what_our_collectives_do() {
    for n in [2, 3, 4] {
        let mesh = Mesh::new(&[("x", n)]).unwrap();
        for shape in [[n, n, n], [2 * n, n, 3 * n], [n, 2 * n, n]] {
            let ty = Type::new(DType::I32, &shape);
            for kind in kinds(n) {
                let op = Collective::new(kind, mesh.axes());
                let value = |rank: usize, i: usize| ((i * 31 + rank * 17) % 101) as i32 - 50;
                let own: Vec<Vec<i32>> = (0..n).map(|r| (0..ty.numel()).map(|i| value(r, i)).collect()).collect();
                let size = op.infer(std::slice::from_ref(&ty)).unwrap()[0].numel();
                let want = thread_transport::spawn(&mesh, |comm| {
                    let from: Vec<u8> = own[comm.rank()].iter().flat_map(|v| v.to_le_bytes()).collect();
                    let mut to = vec![0; 4 * size];
                    comm.run(&op, &ty, &from, &mut to)?;
                    Ok(to.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>())
                });
                let all: Vec<Vec<Call>> = (0..n).map(|me| nccl_calls(&op, &ty, me).unwrap()).collect();
                assert_eq!(simulate(&all, &own, size), want.unwrap(), "{n} {shape:?} {:?}", op.kind);
            }
        }
    }
    let index = Collective::new(Kind::AxisIndex, &[ir::MeshAxis::new("x", 2)]);
    assert!(matches!(nccl_calls(&index, &Type::scalar(DType::I32), 0), Err(Error::InvalidCall(_))));
}

/// A library with NCCL's functions that records its calls.
const SHIM: &str = r#"
#include <stdio.h>
#include <string.h>
typedef struct { char b[128]; } id;
static char text[65536];
static int fail;
static char base[64];
#define SAY(...) (snprintf(text + strlen(text), sizeof text - strlen(text), __VA_ARGS__), fail)
static long at(const void* p, const void* q) { return (const char*)p - (const char*)q; }
static const void *f0, *t0;
const char* shim_text(void) { return text; }
void shim_begin(const void* f, const void* t, int code) { text[0] = 0; f0 = f; t0 = t; fail = code; }
int ncclGetUniqueId(id* out) { memset(out->b, 7, 128); return SAY("id;"); }
int ncclCommInitRank(void** c, int n, id i, int r) { *c = base + r; return SAY("init %d of %d id %d;", r, n, i.b[127]); }
int ncclCommAbort(void* c) { return SAY("abort %ld;", at(c, base)); }
int ncclCommDestroy(void* c) { return SAY("destroy %ld;", at(c, base)); }
const char* ncclGetErrorString(int code) { return code == 5 ? "five is bad" : "unknown"; }
int ncclGroupStart(void) { snprintf(text + strlen(text), 8, "{"); return 0; }
int ncclGroupEnd(void) { snprintf(text + strlen(text), 8, "}"); return 0; }
int ncclAllReduce(const void* f, void* t, size_t n, int d, int o, void* c, void* s) { return SAY("reduce %ld %ld n%zu d%d o%d r%ld s%ld;", at(f,f0), at(t,t0), n, d, o, at(c,base), (long)s); }
int ncclAllGather(const void* f, void* t, size_t n, int d, void* c, void* s) { return SAY("gather %ld %ld n%zu d%d;", at(f,f0), at(t,t0), n, d); }
int ncclReduceScatter(const void* f, void* t, size_t n, int d, int o, void* c, void* s) { return SAY("scatter %ld %ld n%zu d%d o%d;", at(f,f0), at(t,t0), n, d, o); }
int ncclSend(const void* f, size_t n, int d, int p, void* c, void* s) { return SAY("send %ld n%zu d%d p%d;", at(f,f0), n, d, p); }
int ncclRecv(void* t, size_t n, int d, int p, void* c, void* s) { return SAY("recv %ld n%zu d%d p%d;", at(t,t0), n, d, p); }
"#;

#[test]
fn what_is_called_is_what_was_meant() {
    let folder = std::env::temp_dir().join(format!("tensorloom-nccl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, file) = (folder.join("shim.c"), folder.join("libshim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source).status();
    if !built.is_ok_and(|s| s.success()) {
        println!("no C compiler: not looked at");
        return;
    }
    let nccl = Nccl::load(&file.to_string_lossy()).unwrap();
    // SAFETY: the functions are those of the text above.
    let (begin, text) = unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(&file).unwrap()));
        let begin: libloading::Symbol<'_, unsafe extern "C" fn(*const c_void, *const c_void, i32)> =
            library.get(b"shim_begin").unwrap();
        let text: libloading::Symbol<'_, unsafe extern "C" fn() -> *const std::ffi::c_char> =
            library.get(b"shim_text").unwrap();
        (begin, text)
    };
    let said = || unsafe { std::ffi::CStr::from_ptr(text()) }.to_string_lossy().to_string();
    let (from, mut to) = (vec![0u8; 4096], vec![0u8; 4096]);
    let (f, t) = (from.as_ptr().cast::<c_void>(), to.as_mut_ptr().cast::<c_void>());
    let start = |code: i32| unsafe { begin(f, t, code) };
    start(0);
    let id = nccl.unique_id().unwrap();
    let group = Group::join(&nccl, &id, 2, 1).unwrap();
    assert_eq!(said(), "id;init 1 of 2 id 7;");
    let axes = [ir::MeshAxis::new("x", 2)];
    let stream = 42 as *mut c_void;
    let filled = std::cell::Cell::new(0);
    let run = |kind: Kind, dtype: DType, shape: &[usize], code: i32| {
        start(code);
        let zero = |_: *mut c_void, bytes: usize| filled.set(bytes);
        let (op, ty) = (Collective::new(kind, &axes), Type::new(dtype, shape));
        // SAFETY: the shim touches no memory.
        let done = unsafe { group.run(&op, &ty, f, t, stream, &zero) };
        done.map(|()| said()).map_err(|e| e.to_string())
    };
    let table = [
        (Kind::Sum, DType::F32, vec![4, 6], "{reduce 0 0 n24 d7 o0 r1 s42;}"),
        (Kind::Max, DType::BF16, vec![4], "{reduce 0 0 n4 d9 o2 r1 s42;}"),
        (Kind::Min, DType::I64, vec![3], "{reduce 0 0 n3 d4 o3 r1 s42;}"),
        (
            Kind::AllGather { dim: 1, same: true, turn: 0 },
            DType::F16,
            vec![2, 3],
            "{gather 0 0 n3 d6;gather 6 12 n3 d6;}",
        ),
        (Kind::ReduceScatter { dim: 1 }, DType::F64, vec![2, 4], "{scatter 0 0 n2 d8 o0;scatter 32 16 n2 d8 o0;}"),
        (
            Kind::AllToAll { split: 0, join: 0 },
            DType::I32,
            vec![4],
            "{send 0 n2 d2 p0;recv 0 n2 d2 p0;send 8 n2 d2 p1;recv 8 n2 d2 p1;}",
        ),
        (Kind::Permute { pairs: vec![(1, 0)] }, DType::U8, vec![5], "{send 0 n5 d1 p0;}"),
        (Kind::Permute { pairs: vec![(0, 1)] }, DType::Bool, vec![5], "{recv 0 n5 d1 p0;}"),
    ];
    for (kind, dtype, shape, want) in table {
        assert_eq!(run(kind, dtype, &shape, 0).unwrap(), want);
    }
    assert_eq!(filled.get(), 5);
    let failed = run(Kind::Sum, DType::F32, &[4], 5).unwrap_err();
    assert!(failed.contains("psum") && failed.contains("five is bad"), "{failed}");
    assert!(run(Kind::Sum, DType::Bool, &[4], 0).is_err());
    start(0);
    drop(group);
    assert_eq!(said(), "destroy 1;");
    assert!(Nccl::load("/nowhere/libnccl.so").err().unwrap().to_string().contains("TENSORLOOM_NCCL"));
    let _ = std::fs::remove_dir_all(folder);
}
