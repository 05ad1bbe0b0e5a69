//! Finds CUDA's shared libraries. The build needs nothing of CUDA; an error at run time names the missing library and the remedy.

use compiler::{Error, Result};
use cudarc::{cublaslt, driver, nvrtc};
use std::path::{Path, PathBuf};

/// The oldest supported driver: that of CUDA 12.0.
const OLDEST: i32 = 12_000;

/// Checks that a sufficiently new driver is installed, and initializes it.
pub(crate) fn driver() -> Result<()> {
    // SAFETY: opening the library runs its initialisers, which is what a driver is for.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err(Error::Backend(
            "there is no CUDA driver here: libcuda.so was not found. Install NVIDIA's driver (580 or newer for CUDA 13, \
             525 or newer for CUDA 12), or put its folder into LD_LIBRARY_PATH; in a container pass the GPU through \
             (docker run --gpus all)"
                .into(),
        ));
    }
    let mut version = 0;
    // SAFETY: the pointer is good for one int; the call needs no context.
    let code = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    if code != driver::sys::CUresult::CUDA_SUCCESS {
        return Err(Error::Backend(format!("cuDriverGetVersion: {}", super::context::describe(code))));
    }
    if version < OLDEST {
        return Err(Error::Backend(format!(
            "the driver is for CUDA {}, at least CUDA {} is needed; install a newer driver of NVIDIA's",
            format_version(version),
            format_version(OLDEST)
        )));
    }
    // SAFETY: may be called any number of times.
    let code = unsafe { driver::sys::cuInit(0) };
    match code {
        driver::sys::CUresult::CUDA_SUCCESS => Ok(()),
        driver::sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(no_device()),
        _ => Err(Error::Backend(format!(
            "cuInit: {}; `nvidia-smi` should list the GPU, and the kernel module should be of the driver's version",
            super::context::describe(code)
        ))),
    }
}

pub(crate) fn no_device() -> Error {
    let hidden = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(v) => format!(" (CUDA_VISIBLE_DEVICES is {v:?})"),
        Err(_) => String::new(),
    };
    Error::Backend(format!("the CUDA driver finds no GPU{hidden}; `nvidia-smi` lists those that there are"))
}

/// Checks that NVRTC is available.
pub(crate) fn nvrtc() -> Result<()> {
    // SAFETY: as above.
    if can_load("nvrtc", || unsafe { nvrtc::sys::is_culib_present() }) {
        return Ok(());
    }
    Err(Error::Backend(
        "NVRTC, which compiles kernels, was not found: libnvrtc.so.13 or .12. It comes with the CUDA toolkit \
         (package cuda-nvrtc-13-0) and with `pip install nvidia-cuda-nvrtc`; put its folder into LD_LIBRARY_PATH or name \
         the toolkit in CUDA_HOME"
            .into(),
    ))
}

/// Whether cuBLASLt is available.
pub(crate) fn blas() -> bool {
    // SAFETY: as above.
    can_load("cublasLt", || unsafe { cublaslt::sys::is_culib_present() })
}

/// cuDNN, if it is installed.
pub(crate) fn dnn() -> Option<libloading::Library> {
    const NAME: &str = "libcudnn.so.9";
    let files = std::iter::once(PathBuf::from(NAME))
        .chain(library_dirs().into_iter().map(|f| f.join(NAME)).filter(|f| f.exists()));
    // SAFETY: as above.
    files.into_iter().find_map(|file| unsafe { libloading::Library::new(&file) }.ok())
}

/// Whether the loader finds a library by itself, or after it was opened from one of the usual folders: an open
/// library is found by its name.
fn can_load(name: &str, present: impl Fn() -> bool) -> bool {
    if present() {
        return true;
    }
    let files =
        library_dirs().into_iter().flat_map(|f| ["13", "12"].map(|major| f.join(format!("lib{name}.so.{major}"))));
    for file in files.filter(|f| f.exists()) {
        // SAFETY: CUDA's own libraries may be opened at any time.
        if let Ok(open) = unsafe { libloading::Library::new(&file) } {
            std::mem::forget(open);
            if present() {
                return true;
            }
        }
    }
    false
}

/// Finds a library of NVIDIA by its file name, in the usual folders.
pub fn find_library(file: &str) -> Option<PathBuf> {
    library_dirs().into_iter().map(|f| f.join(file)).find(|f| f.exists())
}

/// The folders where toolkits, Python packages and conda install CUDA's libraries.
fn library_dirs() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    for root in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].into_iter().filter_map(variable) {
        all.extend([root.join("lib64"), root.join("lib"), root.join("targets/x86_64-linux/lib")]);
    }
    all.extend(dirs_with_prefix(Path::new("/usr/local"), "cuda").into_iter().map(|d| d.join("lib64")));
    if let Some(conda) = variable("CONDA_PREFIX") {
        all.push(conda.join("lib"));
    }
    let pythons = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    for root in pythons.chain(python_prefix()) {
        for version in dirs_with_prefix(&root.join("lib"), "python3") {
            let wheels = version.join("site-packages/nvidia");
            all.extend(dirs_with_prefix(&wheels, "").into_iter().map(|d| d.join("lib")));
        }
    }
    all
}

/// The environment prefix of the `python3` in the path.
fn python_prefix() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let bin = std::env::split_paths(&path).find(|d| d.join("python3").exists())?;
    bin.parent().map(Path::to_path_buf)
}

/// The subfolders with a name prefix, in order.
fn dirs_with_prefix(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let begins = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
    let mut all: Vec<PathBuf> =
        entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir() && begins(p)).collect();
    all.sort();
    all
}

/// Formats a version, for example `13000` as `13.0`.
pub(crate) fn format_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
