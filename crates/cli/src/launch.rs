//! `loom launch`: the same command as several ranks on this machine.

use crate::Outcome;
use crate::command::Usage;
use crate::output::errln;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

/// Options of `loom launch`.
#[derive(clap::Args)]
pub(crate) struct Launch {
    /// How many ranks
    #[arg(short = 'n', value_name = "COUNT", required = true)]
    ranks: usize,
    /// The port of rank 0; a free one if none is given
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The command: loom train --mesh dp=2 ..
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How long ranks have to end by themselves when one has failed.
const GRACE: Duration = Duration::from_secs(8);

pub(crate) fn launch(args: &Launch) -> Result<Outcome, Usage> {
    if args.ranks == 0 || args.ranks > 1024 {
        return Err(Usage(format!("`-n {}`: between 1 and 1,024 ranks on one machine", args.ranks)));
    }
    let port = match args.port {
        Some(port) => port,
        None => {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
            free.map_err(|e| Usage(format!("no free port: {e}; give one with `--port`")))?.port()
        }
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let token = now.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    let (name, rest) = args.command.split_first().ok_or_else(|| Usage("no command to launch".into()))?;
    let program = match name.as_str() {
        "loom" => std::env::current_exe().map_err(|e| Usage(format!("loom can't find itself: {e}")))?,
        other => other.into(),
    };
    let mut ranks: Vec<Option<Child>> = Vec::new();
    for rank in 0..args.ranks {
        let child = Command::new(&program)
            .args(rest)
            .env("LOOM_RANK", rank.to_string())
            .env("LOOM_LOCAL_RANK", rank.to_string())
            .env("LOOM_WORLD_SIZE", args.ranks.to_string())
            .env("LOOM_ADDRESS", format!("127.0.0.1:{port}"))
            .env("LOOM_TOKEN", format!("{token:x}"))
            .spawn();
        match child {
            Ok(child) => ranks.push(Some(child)),
            Err(e) => {
                end(&mut ranks);
                return Err(Usage(format!("`{name}` can't be started: {e}")));
            }
        }
    }
    wait(&mut ranks)
}

/// Waits for all; when one fails, the others may end by themselves before they are ended.
fn wait(ranks: &mut [Option<Child>]) -> Result<Outcome, Usage> {
    let mut failed: Option<(usize, Instant)> = None;
    loop {
        for (rank, slot) in ranks.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            let status = match child.try_wait() {
                Ok(Some(status)) => status,
                Ok(None) => continue,
                Err(e) => return Err(Usage(format!("rank {rank} can't be waited for: {e}"))),
            };
            *slot = None;
            if !status.success() && failed.is_none() {
                errln!("loom launch: rank {rank} ended with {status}");
                failed = Some((rank, Instant::now()));
            }
        }
        if ranks.iter().all(Option::is_none) {
            break;
        }
        if failed.is_some_and(|(_, at)| at.elapsed() > GRACE) {
            end(ranks);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    match failed {
        None => Ok(Outcome::Clean),
        Some((rank, _)) => Err(Usage(format!(
            "rank {rank} failed first: its message is above; a run that had begun goes on from its last checkpoint with `--resume`"
        ))),
    }
}

fn end(ranks: &mut [Option<Child>]) {
    for child in ranks.iter_mut().flatten() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ranks.iter_mut().for_each(|slot| *slot = None);
}
