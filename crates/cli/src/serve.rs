//! `loom serve`: models over HTTP.

use crate::Outcome;
use crate::command::{self, Usage};
use crate::compile::dtype;
use crate::device::Machine;
use crate::output::{self, errln, outln};
use ir::DType;
use models::SlotSizes;
use models::serve::{EngineOptions, Limits, Served, Server};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `loom serve`.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// HuggingFace directories, and those of adapters, which are served beside their model
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The address to listen at; 0.0.0.0 for everybody
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = command::name)]
    host: String,
    /// The port to listen at; 0 for any that is free
    #[arg(long, value_name = "N", default_value = "8080")]
    port: u16,
    /// The dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A .module file with the models, where the library doesn't have them
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    module: Option<String>,
    /// Sequences that grow at once
    #[arg(long, value_name = "N", default_value = "16", value_parser = command::size, help_heading = "Sizes")]
    slots: usize,
    /// Ids of a sequence, prompt and new ones
    #[arg(long, value_name = "N", default_value = "2048", value_parser = command::size, help_heading = "Sizes")]
    context: usize,
    /// Ids of a prompt that are run at once
    #[arg(long, value_name = "N", default_value = "64", value_parser = command::size, help_heading = "Sizes")]
    part: usize,
    /// Megabytes of prefixes of prompts that are kept, at most; never more than the slots have. They are allocated at the start
    #[arg(long, value_name = "N", default_value = "256", help_heading = "Sizes")]
    prefix_cache: usize,
    /// Sequences that may wait for a slot; a client has no more of them than it leaves to others
    #[arg(long, value_name = "N", default_value = "512", value_parser = command::size, help_heading = "Limits")]
    queue: usize,
    /// Bytes of a request's body
    #[arg(long, value_name = "N", default_value = "4194304", value_parser = command::size, help_heading = "Limits")]
    max_body: usize,
    /// Open connections; beyond it idle ones are closed
    #[arg(long, value_name = "N", default_value = "1024", value_parser = command::size, help_heading = "Limits")]
    connections: usize,
    /// Seconds that a client may take to send its request, or to read a piece of the answer
    #[arg(long, value_name = "N", default_value = "20", value_parser = command::above_zero, help_heading = "Limits")]
    patience: f64,
    /// Seconds that requests may go on after Ctrl-C
    #[arg(long, value_name = "N", default_value = "30", help_heading = "Limits")]
    grace: u64,
    /// The environment variable that holds a key, or several with commas between them; clients must send one as `Authorization: Bearer KEY`
    #[arg(long, value_name = "NAME", value_parser = command::name, help_heading = "Access")]
    key: Option<String>,
    /// Ask for a key at /metrics too
    #[arg(long, requires = "key", help_heading = "Access")]
    key_for_metrics: bool,
    /// A name by which clients may call the server, beside addresses and localhost; `*` for any
    #[arg(long, value_name = "NAME", value_parser = command::name, help_heading = "Access")]
    allow_host: Vec<String>,
    /// The origin of pages that may ask the server, as https://app.example; `*` for any
    #[arg(long, value_name = "ORIGIN", value_parser = command::name, help_heading = "Access")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    machine: Machine,
}

pub(crate) fn serve(args: &Serve) -> Result<Outcome, Usage> {
    let keys = match &args.key {
        None => Vec::new(),
        Some(name) => {
            let text = std::env::var(name).unwrap_or_default();
            let keys: Vec<String> =
                text.split(',').map(|key| key.trim().to_string()).filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                return Err(Usage(format!("the environment variable `{name}` holds no key")));
            }
            keys
        }
    };
    let backend = args.machine.open()?;
    let sizes = SlotSizes {
        rows: args.slots,
        context: args.context,
        part: args.part,
        prefixes: args.prefix_cache.saturating_mul(1 << 20),
    };
    let options = EngineOptions { queue: args.queue };
    let fault = |e: models::serve::Error| Usage(e.to_string().trim_end().to_string());
    let module = args.module.as_deref();
    let served = Served::load(&args.dirs, module, args.dtype, sizes, options, &backend, &mut |what| errln!("{what}"));
    let served = served.map_err(fault)?;
    let names: Vec<String> = served.names().map(String::from).collect();
    let patience = Duration::try_from_secs_f64(args.patience).unwrap_or(Duration::MAX);
    let limits = Limits {
        body: args.max_body,
        patience,
        connections: args.connections,
        grace: Duration::from_secs(args.grace),
        keys,
        key_for_metrics: args.key_for_metrics,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
    };
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, asked.clone())
            .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
            .map_err(|e| Usage(format!("no signals can be heard: {e}")))?;
    }
    let running = Server::bind(&args.host, args.port, served, limits).map_err(fault)?.start().map_err(fault)?;
    outln!("serving {} at http://{}", names.join(", "), running.address);
    output::flush();
    while !asked.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    errln!("stopping: requests under way have {} s to end; again to stop at once", args.grace);
    running.stop();
    Ok(Outcome::Clean)
}
