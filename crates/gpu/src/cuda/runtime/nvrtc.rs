//! NVRTC: CUDA C++ → cubin.

use super::dynlib;
use compiler::{Error, Result};
use cudarc::nvrtc::sys as rtc;
use cudarc::nvrtc::sys::nvrtcResult as Code;
use std::ffi::{CStr, CString, c_char};

/// The compiler, for one kind of device.
pub(crate) struct Compiler {
    /// The architecture, such as `sm_90a`.
    pub(crate) arch: String,
    pub(crate) version: (i32, i32),
}

impl Compiler {
    /// The compiler for devices of this compute capability.
    pub(crate) fn open((major, minor): (i32, i32)) -> Result<Compiler> {
        dynlib::nvrtc()?;
        let mut version = (0, 0);
        // SAFETY: both pointers are good for one int.
        check("nvrtcVersion", unsafe { rtc::nvrtcVersion(&mut version.0, &mut version.1) })?;
        let known = architectures()?;
        let own = major * 10 + minor;
        if !known.is_empty() && !known.contains(&own) {
            let (oldest, newest) = (known.iter().min().unwrap_or(&own), known.iter().max().unwrap_or(&own));
            let remedy = if own > *newest { "install a newer CUDA toolkit" } else { "install an older CUDA toolkit" };
            return Err(Error::Backend(format!(
                "NVRTC {}.{} compiles for sm_{oldest} to sm_{newest}, but this GPU is sm_{own}: {remedy}",
                version.0, version.1
            )));
        }
        // The suffix enables instructions that only Hopper has.
        let feature = if own == 90 { "a" } else { "" };
        Ok(Compiler { arch: format!("sm_{own}{feature}"), version })
    }

    /// The compiler options.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut all: Vec<String> = crate::cuda::FLAGS.iter().map(ToString::to_string).collect();
        all.extend(["--minimal".into(), format!("--gpu-architecture={}", self.arch)]);
        all
    }

    /// Compiles a source; an error contains the compiler's log, with the source lines that it refers to.
    pub(crate) fn compile(&self, source: &str) -> Result<Vec<u8>> {
        let text = CString::new(source).map_err(|_| Error::Internal("a kernel's text with a NUL".into()))?;
        let mut program = std::ptr::null_mut();
        // SAFETY: the text ends with a NUL; no headers are given.
        let code = unsafe {
            rtc::nvrtcCreateProgram(
                &mut program,
                text.as_ptr(),
                c"kernels.cu".as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        check("nvrtcCreateProgram", code)?;
        let program = Program(program);
        let options: Vec<CString> = self.options().into_iter().filter_map(|o| CString::new(o).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the options outlive the call.
        let code = unsafe { rtc::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
        if code != Code::NVRTC_SUCCESS {
            let log = program.log();
            return Err(Error::Internal(format!(
                "NVRTC {}.{} for {} failed to compile a kernel ({}):\n{log}{}",
                self.version.0,
                self.version.1,
                self.arch,
                describe(code),
                quoted(source, &log)
            )));
        }
        let mut bytes = 0;
        // SAFETY: the program was compiled.
        check("nvrtcGetCUBINSize", unsafe { rtc::nvrtcGetCUBINSize(program.0, &mut bytes) })?;
        let mut cubin = vec![0u8; bytes];
        // SAFETY: the buffer has the size that was asked for.
        check("nvrtcGetCUBIN", unsafe { rtc::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast::<c_char>()) })?;
        if cubin.is_empty() {
            return Err(Error::Backend(format!("NVRTC returned no machine code for {}", self.arch)));
        }
        Ok(cubin)
    }
}

struct Program(rtc::nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program is alive.
        if unsafe { rtc::nvrtcGetProgramLogSize(self.0, &mut bytes) } != Code::NVRTC_SUCCESS || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0u8; bytes];
        // SAFETY: the buffer has the size that was asked for.
        unsafe { rtc::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast::<c_char>()) };
        CStr::from_bytes_until_nul(&log).map_or(String::new(), |s| s.to_string_lossy().to_string())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { rtc::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn architectures() -> Result<Vec<i32>> {
    let mut count = 0;
    // SAFETY: the pointer is good for one int.
    check("nvrtcGetNumSupportedArchs", unsafe { rtc::nvrtcGetNumSupportedArchs(&mut count) })?;
    let mut all = vec![0; count.max(0) as usize];
    if !all.is_empty() {
        // SAFETY: the list has the length that was asked for.
        check("nvrtcGetSupportedArchs", unsafe { rtc::nvrtcGetSupportedArchs(all.as_mut_ptr()) })?;
    }
    Ok(all)
}

fn check(call: &str, code: Code) -> Result<()> {
    match code {
        Code::NVRTC_SUCCESS => Ok(()),
        _ => Err(Error::Backend(format!("{call}: {}", describe(code)))),
    }
}

fn describe(code: Code) -> String {
    // SAFETY: the texts are static.
    let text = unsafe { rtc::nvrtcGetErrorString(code) };
    if text.is_null() {
        return format!("{code:?}");
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().to_string()
}

/// The source lines that a log refers to, as in `kernels.cu(12)`.
fn quoted(source: &str, log: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let mut named: Vec<usize> = log
        .split("kernels.cu(")
        .skip(1)
        .filter_map(|rest| rest.split(')').next()?.parse().ok())
        .filter(|n| (1..=lines.len()).contains(n))
        .collect();
    named.sort_unstable();
    named.dedup();
    named.truncate(8);
    named.iter().map(|n| format!("{n:>6} | {}\n", lines[n - 1])).collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn logs_are_shown_with_their_lines() {
        let source = "first\nsecond\nthird\n";
        let log = "kernels.cu(2): error: no\nkernels.cu(2): error: again\nkernels.cu(99): error\n";
        assert_eq!(quoted(source, log), "     2 | second\n");
        assert_eq!(quoted(source, ""), "");
    }
}
