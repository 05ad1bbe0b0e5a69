//! Ranks that are incompatible, missing, hanging or dead: the others stop soon, with an error that names the rank and the reason.

use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Mesh, Type};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensorloom_dist::launch::{ProcessInfo, Secret};
use tensorloom_dist::{Comm, Error, tcp::TcpTransport, thread_transport};

const SECRET: &str = "the ranks of this test";

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn place(rank: usize, world: usize, address: &str) -> ProcessInfo {
    ProcessInfo { rank, world_size: world, master_addr: address.to_string(), secret: Secret::Text(SECRET.into()) }
}

fn sum(comm: &Comm, x: f32) -> tensorloom_dist::Result<f32> {
    let op = Collective::new(Kind::Sum, comm.mesh().axes());
    let mut out = [0; 4];
    comm.run(&op, &Type::scalar(DType::F32), &x.to_le_bytes(), &mut out)?;
    Ok(f32::from_le_bytes(out))
}

/// The errors of two ranks that join with these numbers and meshes.
fn join_two(world: [usize; 2], mesh: [&str; 2]) -> Vec<String> {
    let address = free_address();
    let threads: Vec<_> = (0..2)
        .map(|rank| {
            let place = place(rank, world[rank], &address);
            let mesh = mesh[rank].to_string();
            std::thread::spawn(move || TcpTransport::join(&place, &mesh).err().map_or(String::new(), |e| e.to_string()))
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

#[test]
fn ranks_that_do_not_fit_are_refused_on_both_sides() {
    for said in join_two([2, 3], ["dp=2"; 2]) {
        assert!(said.contains("rank 1 was started with world size 3, but rank 0 with 2"), "{said}");
    }
    for said in join_two([2, 2], ["dp=2", "tp=2"]) {
        assert!(said.contains("rank 1 has the mesh tp=2, but rank 0 has dp=2"), "{said}");
    }
    let mesh = Mesh::new(&[("dp", 3)]).unwrap();
    let few = Comm::new(Arc::new(thread_transport::transports(2).remove(0)), mesh).err().unwrap().to_string();
    assert!(few.contains("the mesh dp=3 has 3 ranks, but 2 were started"), "{few}");
}

#[test]
fn another_version_is_refused_by_name() {
    let address = free_address();
    let to = address.clone();
    let old = std::thread::spawn(move || {
        let mut stream = loop {
            match std::net::TcpStream::connect(&to) {
                Ok(s) => break s,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        use std::io::Write;
        let text = |t: &str| [&(t.len() as u32).to_le_bytes()[..], t.as_bytes()].concat();
        let mut challenge = [0; 36];
        stream.read_exact(&mut challenge).unwrap();
        let hello = [
            text("tensorloom 0.0.9 wire 3"),
            1u32.to_le_bytes().to_vec(),
            2u32.to_le_bytes().to_vec(),
            text("dp=2"),
            vec![0; 34],
        ]
        .concat();
        let proven = [&[5], &b"hello"[..], &challenge[4..], &hello].concat();
        let proof = hmac_sha256::HMAC::mac(proven, SECRET);
        stream.write_all(&[&(hello.len() as u32).to_le_bytes()[..], &hello, &proof].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).to_string()
    });
    let said = TcpTransport::join(&place(0, 2, &address), "dp=2").err().unwrap().to_string();
    assert!(said.contains("rank 1 runs `tensorloom 0.0.9 wire 3`"), "{said}");
    assert!(old.join().unwrap().contains("0.0.9"));
}

#[test]
fn a_port_in_use_is_said_with_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = TcpTransport::join(&place(0, 2, &address), "dp=2").err().unwrap().to_string();
    assert!(said.contains("the port is in use") && said.contains("LOOM_ADDRESS"), "{said}");
    let said = TcpTransport::join(&place(1, 2, "nowhere"), "dp=2").err().unwrap().to_string();
    assert!(said.contains("write host:port"), "{said}");
}

#[test]
fn variables_of_launchers_are_read() {
    let vars = |list: &'static [(&'static str, &'static str)]| {
        let list = [list, &[("LOOM_TOKEN", SECRET)]].concat();
        ProcessInfo::from_env_vars(&move |name| list.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    };
    assert_eq!(vars(&[]).unwrap(), None);
    let mpi = vars(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]).unwrap().unwrap();
    assert_eq!((mpi.rank, mpi.world_size), (2, 4));
    let slurm = vars(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "1")]);
    assert_eq!(slurm.unwrap().unwrap().master_addr, "h:1");
    let e = vars(&[("RANK", "4"), ("WORLD_SIZE", "4")]).unwrap_err().to_string();
    assert!(e.contains("ranks are numbered from 0"), "{e}");
    assert!(vars(&[("RANK", "x"), ("WORLD_SIZE", "4")]).is_err());
}

#[test]
fn ranks_in_different_programs_are_told_so() {
    let mesh = Mesh::new(&[("dp", 2)]).unwrap();
    let e = thread_transport::spawn(&mesh, |comm| {
        let kind = if comm.rank() == 0 { Kind::Sum } else { Kind::Max };
        let op = Collective::new(kind, comm.mesh().axes());
        comm.run(&op, &Type::scalar(DType::F32), &[0; 4], &mut [0; 4])
    });
    let e = e.unwrap_err().to_string();
    assert!(e.contains("runs a different program") && e.contains("same order"), "{e}");
    let e = thread_transport::spawn(&mesh, |comm| comm.assert_same_on_all_ranks(&format!("seed {}", comm.rank())))
        .unwrap_err()
        .to_string();
    assert!(e.contains("its settings, data or model differ"), "{e}");
    assert!(thread_transport::spawn(&mesh, |comm| comm.assert_same_on_all_ranks("seed 1")).is_ok());
}

#[test]
fn a_thread_that_fails_ends_the_others_with_its_name() {
    let mesh = Mesh::new(&[("dp", 3)]).unwrap();
    let started = Instant::now();
    let told = std::sync::Mutex::new(Vec::new());
    let e = thread_transport::spawn(&mesh, |comm| {
        sum(&comm, 1.0)?;
        if comm.rank() == 1 {
            return Err(Error::InvalidCall("no data left".into()));
        }
        let e = sum(&comm, 1.0).unwrap_err();
        told.lock().unwrap().push(e.to_string());
        Err::<(), _>(e)
    });
    assert_eq!(e.unwrap_err().to_string(), "no data left");
    for said in told.into_inner().unwrap() {
        assert_eq!(said, "lost the connection to rank 1: no data left");
    }
    assert!(started.elapsed() < Duration::from_secs(5));
    // A rank that returns early by mistake.
    let e = thread_transport::spawn(&mesh, |comm| if comm.rank() == 2 { Ok(0.0) } else { sum(&comm, 1.0) });
    assert!(e.unwrap_err().to_string().contains("lost the connection to rank 2: it has exited"));
}

/// Not a test: the body of the child processes.
#[test]
fn child() {
    let Ok(Some(place)) = ProcessInfo::from_env() else { return };
    let mesh = Mesh::new(&[("dp", place.world_size)]).unwrap();
    let said = place.join(&mesh).and_then(|comm| {
        println!("ready");
        let hangs = std::env::var("HANGS").is_ok() && place.rank == 1;
        for step in 0.. {
            if hangs && step == 5 {
                std::thread::sleep(Duration::from_secs(600));
            }
            sum(&comm, step as f32)?;
        }
        Ok(())
    });
    println!("said: {}", said.unwrap_err());
}

fn start(world: usize, extra: &[(&str, &str)]) -> Vec<Child> {
    let address = free_address();
    (0..world)
        .map(|rank| {
            let mut c = Command::new(std::env::current_exe().unwrap());
            c.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
            c.envs(extra.iter().copied()).env("LOOM_RANK", rank.to_string()).env("LOOM_WORLD_SIZE", world.to_string());
            c.env("LOOM_ADDRESS", &address)
                .env("LOOM_TOKEN", SECRET)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect()
}

/// The output of a process before it ended, which it must do within ten seconds.
fn last_words(child: &mut Child) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("a rank hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_killed_process_is_named_by_every_other_within_seconds() {
    let mut rng = testing::Rng::new(testing::rng::run_seed());
    let times = std::env::var("TENSORLOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for _ in 0..times {
        let mut ranks = start(3, &[]);
        let victim = rng.below(3);
        // At any time after the start.
        let mut first = [0; 1];
        let out = ranks[victim].stdout.as_mut().unwrap();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("ready") {
            out.read_exact(&mut first).unwrap();
            seen.push(first[0]);
        }
        std::thread::sleep(Duration::from_millis(rng.below(40) as u64));
        ranks[victim].kill().unwrap();
        ranks[victim].wait().unwrap();
        for (rank, child) in ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
            let words = last_words(child);
            assert!(
                words.contains(&format!("said: lost the connection to rank {victim}")),
                "rank {rank} of victim {victim}: {words}"
            );
        }
    }
}

#[test]
fn a_rank_that_hangs_is_named_when_time_is_over() {
    let mut ranks = start(3, &[("HANGS", "1"), ("TENSORLOOM_COMM_TIMEOUT", "1.5")]);
    for rank in [0, 2] {
        let words = last_words(&mut ranks[rank]);
        assert!(
            words.contains("said: rank 1 did not respond") || words.contains("said: lost the connection to rank 1"),
            "{words}"
        );
        assert!(words.contains("TENSORLOOM_COMM_TIMEOUT"), "{words}");
    }
    ranks[1].kill().unwrap();
    ranks[1].wait().unwrap();
}
