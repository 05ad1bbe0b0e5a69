//! The process's engine: what it is made of, and how it is made anew.

use crate::{Engine, EngineOptions, Result, devices};
use std::sync::{PoisonError, RwLock};

/// What the process's engine is made of.
///
/// ```
/// use tensorloom::{Config, Error, configure, ones};
///
/// configure(&Config { threads: Some(1), memory_limit: Some(1 << 20), ..Config::default() })?;
/// let large = ones(&[1 << 20]) + 1.0;
/// assert!(matches!(large.sum().item::<f32>(), Err(Error::MemoryLimit { .. })));
/// assert_eq!(ones(&[8]).sum().item::<f32>()?, 8.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Names of the devices, as for [`devices::open`]; none means `cpu`. Tensors are made on the first, unless
    /// [`crate::set_default_device`] says otherwise.
    pub devices: Vec<String>,
    /// Threads of a CPU that is named without a number of its own; `None` takes what the machine has.
    pub threads: Option<usize>,
    /// See [`EngineOptions::pool_bytes`].
    pub pool_bytes: Option<usize>,
    /// See [`EngineOptions::memory_limit`].
    pub memory_limit: Option<usize>,
    /// See [`EngineOptions::strict`].
    pub strict: bool,
}

struct Process {
    engine: Option<&'static Engine>,
    config: Config,
}

static PROCESS: RwLock<Process> = RwLock::new(Process {
    engine: None,
    config: Config { devices: Vec::new(), threads: None, pool_bytes: None, memory_limit: None, strict: false },
});

impl Config {
    #[track_caller]
    fn open(&self) -> Result<Engine> {
        let names: &[String] = if self.devices.is_empty() { &["cpu".to_string()] } else { &self.devices };
        let mut backends = Vec::new();
        for name in names {
            let threads = self.threads.filter(|_| matches!(name.as_str(), "cpu" | "auto"));
            backends.push(devices::open(&threads.map_or(name.clone(), |n| format!("cpu:{n}")))?);
        }
        let options = EngineOptions {
            strict: self.strict,
            pool_bytes: self.pool_bytes,
            memory_limit: self.memory_limit,
            ..EngineOptions::default()
        };
        Ok(Engine::with_backends(backends, &options))
    }
}

/// The process's engine: by default on the CPU with all cores.
///
/// ```
/// use tensorloom::{DType, engine};
///
/// let x = engine().full(DType::F64, &[2], 0.5);
/// assert_eq!(x.to_vec::<f64>()?, [0.5, 0.5]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn engine() -> &'static Engine {
    if let Some(engine) = PROCESS.read().unwrap_or_else(PoisonError::into_inner).engine {
        return engine;
    }
    let mut process = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(engine) = process.engine {
        return engine;
    }
    let engine = process.config.open().unwrap_or_else(|_| usual());
    let engine: &'static Engine = Box::leak(Box::new(engine));
    process.engine = Some(engine);
    engine
}

/// The CPU with all cores; without the feature `cpu` there is no device, which every new tensor reports.
fn usual() -> Engine {
    Engine::with_backends(devices::open("cpu").into_iter().collect(), &EngineOptions::default())
}

/// Gives the process another engine, made as `config` says. Tensors of the one before stay with it, and don't mix with new
/// ones; what it kept for use again is freed.
///
/// ```
/// use tensorloom::{Config, configure, ones};
///
/// configure(&Config { threads: Some(1), ..Config::default() })?;
/// assert_eq!(ones(8).sum().item::<f32>()?, 8.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn configure(config: &Config) -> Result<()> {
    // References to the old engine may be anywhere, so its tables stay; they are small.
    let engine: &'static Engine = Box::leak(Box::new(config.open()?));
    let mut process = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    let old = process.engine.replace(engine);
    process.config = config.clone();
    drop(process);
    if let Some(old) = old {
        old.clear_caches();
    }
    Ok(())
}

/// Gives the process a new engine like the one it has: after a failed execution has stopped that one.
///
/// ```
/// use tensorloom::{ones, reset};
///
/// reset()?;
/// assert_eq!(ones(&[2]).sum().item::<f32>()?, 2.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn reset() -> Result<()> {
    let config = PROCESS.read().unwrap_or_else(PoisonError::into_inner).config.clone();
    configure(&config)
}
