//! `loom serve` serves models over HTTP.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::compile::dtype;
use crate::device::DeviceArgs;
use crate::output::{self, errln, outln};
use ir::DType;
use models::BatchOptions;
use models::serve::{ModelRegistry, ServeEngineOptions, Server, ServerLimits};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `loom serve`.
#[derive(clap::Args)]
pub(crate) struct Serve {
    /// HuggingFace model directories; adapter directories are served together with their base model
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Address to bind; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = command::non_empty_name)]
    host: String,
    /// Port to bind; 0 selects a free port
    #[arg(long, value_name = "N", default_value = "8080")]
    port: u16,
    /// Dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    dtype: DType,
    /// A .module file with the models, if the library does not have them
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    module: Option<String>,
    /// Maximum number of sequences that are decoded in one batch
    #[arg(long, alias = "slots", value_name = "N", default_value = "16", value_parser = command::size, help_heading = "Sizes")]
    max_batch: usize,
    /// Maximum tokens per sequence, prompt and output together
    #[arg(long, alias = "context", value_name = "N", default_value = "2048", value_parser = command::size, help_heading = "Sizes")]
    max_seq_len: usize,
    /// Maximum tokens of a prompt that are processed in one step (chunked prefill)
    #[arg(long, alias = "part", value_name = "N", default_value = "64", value_parser = command::size, help_heading = "Sizes")]
    prefill_chunk: usize,
    /// Maximum size of the prefix cache in megabytes, allocated at startup; at most the size of the KV cache
    #[arg(long, value_name = "N", default_value = "256", help_heading = "Sizes")]
    prefix_cache: usize,
    /// Maximum number of waiting sequences; one client may use at most half of the free places
    #[arg(long, alias = "queue", value_name = "N", default_value = "512", value_parser = command::size, help_heading = "Limits")]
    max_queued: usize,
    /// Maximum size of a request body in bytes
    #[arg(long, value_name = "N", default_value = "4194304", value_parser = command::size, help_heading = "Limits")]
    max_body: usize,
    /// Maximum number of open connections; idle connections are closed when it is reached
    #[arg(long, alias = "connections", value_name = "N", default_value = "1024", value_parser = command::size, help_heading = "Limits")]
    max_connections: usize,
    /// Timeout in seconds for a client to send its request or to read a part of the response
    #[arg(long, alias = "patience", value_name = "N", default_value = "20", value_parser = command::above_zero, help_heading = "Limits")]
    client_timeout: f64,
    /// Seconds that running requests may continue after SIGINT or SIGTERM
    #[arg(long, alias = "grace", value_name = "N", default_value = "30", help_heading = "Limits")]
    shutdown_timeout: u64,
    /// Environment variable with one or more API keys, separated by commas; clients send `Authorization: Bearer KEY`
    #[arg(long, alias = "key", value_name = "NAME", value_parser = command::non_empty_name, help_heading = "Security")]
    api_key_env: Option<String>,
    /// Require an API key for /metrics too
    #[arg(long, alias = "key-for-metrics", requires = "api_key_env", help_heading = "Security")]
    api_key_for_metrics: bool,
    /// A host name that is accepted in the Host header besides IP addresses and localhost; `*` accepts any
    #[arg(long, value_name = "NAME", value_parser = command::non_empty_name, help_heading = "Security")]
    allow_host: Vec<String>,
    /// An origin that is allowed by CORS: https://app.example; `*` allows any
    #[arg(long, value_name = "ORIGIN", value_parser = command::non_empty_name, help_heading = "Security")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    machine: DeviceArgs,
}

pub(crate) fn serve(args: &Serve) -> Result<ExitStatus, UsageError> {
    let keys = match &args.api_key_env {
        None => Vec::new(),
        Some(name) => {
            let text = std::env::var(name).unwrap_or_default();
            let keys: Vec<String> =
                text.split(',').map(|key| key.trim().to_string()).filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                return Err(UsageError(format!("the environment variable `{name}` is unset or has no API key")));
            }
            keys
        }
    };
    let backend = args.machine.open()?;
    let sizes = BatchOptions {
        max_batch: args.max_batch,
        max_seq_len: args.max_seq_len,
        prefill_chunk: args.prefill_chunk,
        prefix_cache_bytes: args.prefix_cache.saturating_mul(1 << 20),
    };
    let options = ServeEngineOptions { max_queued: args.max_queued };
    let fault = |e: models::serve::Error| UsageError(e.to_string().trim_end().to_string());
    let module = args.module.as_deref();
    let served =
        ModelRegistry::load(&args.dirs, module, args.dtype, sizes, options, &backend, &mut |what| errln!("{what}"));
    let served = served.map_err(fault)?;
    let names: Vec<String> = served.names().map(String::from).collect();
    let patience = Duration::try_from_secs_f64(args.client_timeout).unwrap_or(Duration::MAX);
    let limits = ServerLimits {
        max_body_bytes: args.max_body,
        read_timeout: patience,
        max_connections: args.max_connections,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
        api_keys: keys,
        key_for_metrics: args.api_key_for_metrics,
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
    };
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process immediately.
        signal_hook::flag::register_conditional_shutdown(signal, 130, asked.clone())
            .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
            .map_err(|e| UsageError(format!("cannot install signal handlers: {e}")))?;
    }
    let running = Server::bind(&args.host, args.port, served, limits).map_err(fault)?.start().map_err(fault)?;
    outln!("serving {} at http://{}", names.join(", "), running.address);
    output::flush();
    while !asked.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    errln!(
        "stopping: running requests have {} s to finish; press Ctrl-C again to stop immediately",
        args.shutdown_timeout
    );
    running.stop();
    Ok(ExitStatus::Success)
}
