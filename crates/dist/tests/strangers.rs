//! Processes that are not part of a launch connect to its ranks: they are dropped without effect.

use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Mesh, Type};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tensorloom_dist::launch::{ProcessInfo, Secret};
use tensorloom_dist::{Comm, tcp::TcpTransport};

const SECRET: &str = "the ranks of this test";

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn place(rank: usize, world: usize, address: &str, secret: &str) -> ProcessInfo {
    ProcessInfo { rank, world_size: world, master_addr: address.to_string(), secret: Secret::Text(secret.into()) }
}

/// The sum of all rank numbers.
fn sum(comm: &Comm) -> f32 {
    let op = Collective::new(Kind::Sum, comm.mesh().axes());
    let mut out = [0; 4];
    comm.run(&op, &Type::scalar(DType::F32), &(comm.rank() as f32).to_le_bytes(), &mut out).unwrap();
    f32::from_le_bytes(out)
}

fn join(rank: usize, world: usize, address: &str) -> f32 {
    let mesh = Mesh::new(&[("dp", world)]).unwrap();
    let tcp =
        TcpTransport::join(&place(rank, world, address, SECRET), &mesh.to_string()).unwrap_or_else(|e| panic!("{e}"));
    sum(&Comm::new(Arc::new(tcp), mesh).unwrap())
}

fn connect(address: &str, until: Instant) -> Option<TcpStream> {
    while Instant::now() < until {
        if let Ok(stream) = TcpStream::connect(address) {
            return Some(stream);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// A proxy between a rank and rank 0 that records the bytes, for a replay.
fn overhear(to: String, heard: Arc<Mutex<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = connect(&to, Instant::now() + Duration::from_secs(20)).unwrap();
        let copy = |mut from: TcpStream, mut to: TcpStream, heard: Option<Arc<Mutex<Vec<u8>>>>| {
            let mut bytes = [0; 1024];
            while let Ok(n) = from.read(&mut bytes) {
                if let Some(heard) = &heard {
                    heard.lock().unwrap().extend(&bytes[..n]);
                }
                if n == 0 || to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        };
        let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || copy(far2, near2, None));
        copy(near, far, Some(heard));
    });
    address
}

/// Opens connections that are silent, send garbage, greet without the secret, or end at once, during the rendezvous.
fn disturb(address: String, stop: Arc<AtomicBool>) {
    let began = Instant::now();
    let (mut held, mut kind) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(20) && held.len() < 400 {
        kind += 1;
        let Ok(mut stream) = TcpStream::connect(&address) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let sent: Vec<u8> = match kind % 5 {
            0 => Vec::new(),
            1 => (0..5000u32).map(|i| (i * 7919) as u8).collect(),
            2 => u32::MAX.to_le_bytes().to_vec(),
            3 => [&60u32.to_le_bytes()[..], &[0; 92]].concat(),
            _ => continue,
        };
        let _ = stream.write_all(&sent);
        held.push(stream);
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(held);
}

#[test]
fn strangers_neither_join_nor_delay() {
    let (world, address) = (4, free_address());
    let stop = Arc::new(AtomicBool::new(false));
    let strangers: Vec<_> = (0..3)
        .map(|_| {
            let (address, stop) = (address.clone(), stop.clone());
            std::thread::spawn(move || disturb(address, stop))
        })
        .collect();
    let began = Instant::now();
    let ranks: Vec<_> = (0..world)
        .map(|rank| {
            let address = address.clone();
            // The last ranks connect when there are many foreign connections.
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(if rank == 0 { 0 } else { 300 }));
                join(rank, world, &address)
            })
        })
        .collect();
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), 6.0);
    }
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    strangers.into_iter().for_each(|t| t.join().unwrap());
    println!("ranks found each other in {took:?}");
    // Much less than the time if foreign connections were handled one after another.
    assert!(took < Duration::from_secs(10), "delayed: {took:?}");
}

#[test]
fn a_greeting_that_was_overheard_is_of_no_use() {
    let (address, heard) = (free_address(), Arc::new(Mutex::new(Vec::new())));
    let between = overhear(address.clone(), heard.clone());
    let first = {
        let address = address.clone();
        std::thread::spawn(move || join(0, 2, &address))
    };
    assert_eq!(join(1, 2, &between), 1.0);
    assert_eq!(first.join().unwrap(), 1.0);
    let heard = heard.lock().unwrap().clone();
    assert!(heard.len() > 80, "the greeting was overheard");
    // Replays the same bytes at the next launch of the same user, at the same address.
    let rank = {
        let address = address.clone();
        std::thread::spawn(move || join(0, 2, &address))
    };
    let mut replay = connect(&address, Instant::now() + Duration::from_secs(5)).unwrap();
    replay.write_all(&heard).unwrap();
    let mut answer = Vec::new();
    let _ = replay.read_to_end(&mut answer);
    assert!(answer.len() <= 36, "a challenge and nothing more: {} bytes", answer.len());
    assert_eq!(join(1, 2, &address), 1.0);
    assert_eq!(rank.join().unwrap(), 1.0);
}

/// Not a test: the body of the child processes.
#[test]
fn child() {
    let joined = ProcessInfo::from_env().and_then(|place| {
        let Some(place) = place else { return Ok(None) };
        place.join(&Mesh::new(&[("dp", place.world_size)]).unwrap()).map(Some)
    });
    match joined {
        Ok(None) => {}
        Ok(Some(comm)) => println!("said: {}", sum(&comm)),
        Err(e) => println!("said: {e}"),
    }
}

/// The output of processes with these variables, one set for each.
fn processes(all: &[&[(&str, &str)]]) -> Vec<String> {
    let start = |vars: &&[(&str, &str)]| {
        let mut c = Command::new(std::env::current_exe().unwrap());
        c.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env_remove("LOOM_TOKEN");
        c.env("TENSORLOOM_COMM_TIMEOUT", "2").envs(vars.iter().copied());
        c.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = all.iter().map(start).collect();
    let said = |text: String| text.lines().find_map(|l| Some(l.split_once("said: ")?.1.to_string())).unwrap_or(text);
    let all = children.into_iter().map(|c| String::from_utf8_lossy(&c.wait_with_output().unwrap().stdout).to_string());
    all.map(said).collect()
}

#[test]
fn every_launcher_starts_ranks_that_know_each_other() {
    let home = std::env::temp_dir().join(format!("tensorloom-strangers-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let home_text = home.display().to_string();
    for (rank, world) in [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("PMI_RANK", "PMI_SIZE")] {
        let address = free_address();
        let vars = |r: &'static str| {
            [(rank, r), (world, "2"), ("LOOM_ADDRESS", &address), ("HOME", &home_text), ("XDG_CONFIG_HOME", "")]
        };
        let said = processes(&[&vars("0"), &vars("1")]);
        assert_eq!(said, ["1", "1"], "{rank}");
    }
    let _ = std::fs::remove_dir_all(&home);
}

#[test]
fn ranks_with_different_secrets_are_told_the_remedy() {
    let address = free_address();
    let vars = |rank: &'static str, token: &'static str| {
        [("LOOM_RANK", rank), ("LOOM_WORLD_SIZE", "2"), ("LOOM_ADDRESS", &address[..]), ("LOOM_TOKEN", token)]
    };
    for said in processes(&[&vars("0", SECRET), &vars("1", "another secret of ranks")]) {
        assert!(said.contains("LOOM_TOKEN"), "{said}");
    }
    for said in processes(&[&vars("0", "17")]) {
        assert!(said.contains("2 characters"), "{said}");
    }
}
