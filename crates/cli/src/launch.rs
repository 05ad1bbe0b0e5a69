//! `loom launch` runs a command as several ranks on this machine.
//!
//! Ranks and their child processes are one process group. Termination signals to the launcher are forwarded to the group. A guard
//! process in the group kills it when the launcher has exited for any reason, so no rank outlives its launcher.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::output::errln;
use dist::launch::Secret;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Options of `loom launch`.
#[derive(clap::Args)]
pub(crate) struct Launch {
    /// Number of ranks to start
    #[arg(short = 'n', long = "nproc-per-node", value_name = "COUNT", required = true)]
    ranks: usize,
    /// Port of rank 0; default: a free port
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Seconds that ranks may take to exit after a signal, or after another rank has failed
    #[arg(long, alias = "grace", value_name = "SECONDS", default_value_t = 4.0)]
    shutdown_timeout: f64,
    /// The command to run: loom train --mesh dp=2 ..
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn launch(args: &Launch) -> Result<ExitStatus, UsageError> {
    if args.ranks == 0 || args.ranks > 1024 {
        return Err(UsageError(format!("`--nproc-per-node {}` must be from 1 to 1,024", args.ranks)));
    }
    if !(0.0..=86400.0).contains(&args.shutdown_timeout) {
        return Err(UsageError(format!(
            "`--shutdown-timeout {}` must be from 0 to 86,400 seconds",
            args.shutdown_timeout
        )));
    }
    let port = match args.port {
        Some(port) => port,
        None => {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
            free.map_err(|e| UsageError(format!("cannot find a free port: {e}; give one with `--port`")))?.port()
        }
    };
    let secret = Secret::generate().map_err(|e| UsageError(e.to_string()))?;
    let (name, rest) = args.command.split_first().ok_or_else(|| UsageError("no command to launch".into()))?;
    let own =
        std::env::current_exe().map_err(|e| UsageError(format!("cannot find the path of the loom executable: {e}")))?;
    let program = if name == "loom" { own.clone() } else { name.into() };
    let signals = signals();
    let mut group = RankProcesses::start(&own).map_err(|e| UsageError(format!("cannot start a process group: {e}")))?;
    for rank in 0..args.ranks {
        let mut command = Command::new(&program);
        command
            .args(rest)
            .env("LOOM_RANK", rank.to_string())
            .env("LOOM_LOCAL_RANK", rank.to_string())
            .env("LOOM_WORLD_SIZE", args.ranks.to_string())
            .env("LOOM_ADDRESS", format!("127.0.0.1:{port}"))
            .env("LOOM_TOKEN", &secret)
            .env_remove("LOOM_TOKEN_FILE");
        if let Err(e) = group.spawn(command) {
            group.kill();
            return Err(UsageError(format!("cannot start `{name}`: {e}")));
        }
    }
    wait(group, &signals, Duration::from_secs_f64(args.shutdown_timeout))
}

/// Returns the number of the last signal received, or 0 if there was none.
fn signals() -> Arc<AtomicUsize> {
    let last = Arc::new(AtomicUsize::new(0));
    for signal in TERMINATION_SIGNALS {
        let _ = signal_hook::flag::register_usize(signal, last.clone(), signal as usize);
    }
    last
}

#[cfg(unix)]
const TERMINATION_SIGNALS: [i32; 4] = {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
};
#[cfg(not(unix))]
const TERMINATION_SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// The processes of a launch.
struct RankProcesses {
    ranks: Vec<Option<Child>>,
    /// A process that kills the group when the pipe from this process closes.
    #[cfg(unix)]
    guard: Child,
}

impl RankProcesses {
    #[cfg(unix)]
    fn start(own: &std::path::Path) -> std::io::Result<RankProcesses> {
        use std::os::unix::process::CommandExt;
        use std::process::Stdio;
        let mut guard = Command::new(own);
        guard.arg("launch-guard").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(RankProcesses { ranks: Vec::new(), guard: guard.spawn()? })
    }

    #[cfg(not(unix))]
    fn start(_: &std::path::Path) -> std::io::Result<RankProcesses> {
        Ok(RankProcesses { ranks: Vec::new() })
    }

    fn spawn(&mut self, mut command: Command) -> std::io::Result<()> {
        #[cfg(unix)]
        {
            use std::io::IsTerminal;
            use std::os::unix::process::CommandExt;
            command.process_group(self.guard.id() as i32);
            // A background process that reads from the terminal would be stopped.
            if std::io::stdin().is_terminal() {
                command.stdin(std::process::Stdio::null());
            }
        }
        self.ranks.push(Some(command.spawn()?));
        Ok(())
    }

    /// Sends a signal to all ranks and their child processes.
    fn signal(&self, signal: usize) {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process_group};
            let id = Pid::from_raw(self.guard.id() as i32);
            if let (Some(id), Some(signal)) = (id, Signal::from_named_raw(signal as i32)) {
                let _ = kill_process_group(id, signal);
            }
        }
        #[cfg(not(unix))]
        let _ = signal;
    }

    /// Kills all processes that are still running.
    fn kill(&mut self) {
        #[cfg(unix)]
        self.signal(signal_hook::consts::SIGKILL as usize);
        for child in self.ranks.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.ranks.iter_mut().for_each(|slot| *slot = None);
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        #[cfg(unix)]
        {
            let _ = self.guard.kill();
            let _ = self.guard.wait();
        }
    }
}

/// Runs the guard process of a group, which kills the group when the launcher, which holds the other end of its standard input,
/// has exited.
#[cfg(unix)]
pub(crate) fn watch_launcher() -> ExitStatus {
    // The guard ignores the signals that are sent to the group.
    let _ignored = signals();
    let mut input = std::io::stdin().lock();
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
    ExitStatus::Interrupted
}

#[cfg(not(unix))]
pub(crate) fn watch_launcher() -> ExitStatus {
    ExitStatus::Success
}

/// Waits for all ranks. After a rank fails or a signal arrives, the ranks have `grace` to exit before they are killed. A second
/// signal kills them at once.
fn wait(mut group: RankProcesses, signals: &AtomicUsize, grace: Duration) -> Result<ExitStatus, UsageError> {
    let mut failed: Option<usize> = None;
    let (mut ending, mut stopped): (Option<Instant>, bool) = (None, false);
    loop {
        for (rank, slot) in group.ranks.iter_mut().enumerate() {
            let Some(child) = slot else { continue };
            let status = match child.try_wait() {
                Ok(Some(status)) => status,
                Ok(None) => continue,
                Err(e) => return Err(UsageError(format!("cannot wait for rank {rank}: {e}"))),
            };
            *slot = None;
            if !status.success() && failed.is_none() && !stopped {
                errln!("loom launch: rank {rank} exited with {status}");
                failed = Some(rank);
                ending = ending.or(Some(Instant::now()));
            }
        }
        if group.ranks.iter().all(Option::is_none) {
            break;
        }
        let signal = signals.swap(0, Ordering::Relaxed);
        if signal != 0 {
            group.signal(signal);
            if stopped {
                group.kill();
            }
            (stopped, ending) = (true, ending.or(Some(Instant::now())));
        }
        if ending.is_some_and(|since| since.elapsed() > grace) {
            group.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    match failed {
        _ if stopped => Ok(ExitStatus::Interrupted),
        None => Ok(ExitStatus::Success),
        Some(rank) => Err(UsageError(format!(
            "rank {rank} failed first, see its message above; a training run can be resumed from its last checkpoint \
             with `--resume`"
        ))),
    }
}
