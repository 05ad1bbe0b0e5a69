//! Limits that are checked before any work is done: the sizes that a file or a command line gives must be possible.

use crate::error::{Error, Result};
use ir::DType;
use lang::consteval::ConstValue;
use lang::lower::Parameter;
use std::path::Path;

/// The maximum number of threads; more are a mistake.
pub const MAX_THREADS: usize = 1024;
/// The maximum number of layers or experts; more are a mistake: a graph has nodes for each.
const MAX_LAYERS: i64 = 4096;

/// The maximum value of a parameter; larger values are a mistake.
fn max_value(parameter: &str) -> i64 {
    match parameter {
        // Rotation angles are tabulated for every dimension of a head.
        "head_dim" => 1 << 16,
        "d_model" => 1 << 24,
        // Lengths need no memory where positions are not learned.
        "max_seq" | "window" => 1 << 40,
        _ => 1 << 32,
    }
}

/// The memory that this process may use in bytes, where the system reports it.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let all = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(limit.map_or(all, |limit| limit.min(all)))
}

/// Fails if `what` needs more bytes than are available; `remedy` tells how to lower them.
pub(crate) fn check_fits(what: &str, bytes: u128, remedy: &str) -> Result<()> {
    match available_memory() {
        Some(most) if bytes > u128::from(most) => Err(Error::Input(format!(
            "{what} needs {}, but this machine has {}: {remedy}",
            format_bytes(bytes),
            format_bytes(u128::from(most))
        ))),
        _ => Ok(()),
    }
}

/// Formats a number of bytes.
pub(crate) fn format_bytes(bytes: u128) -> String {
    let units = [("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)];
    let unit = units.iter().find(|(_, size)| bytes as f64 >= *size);
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, size)| format!("{:.1} {name}", bytes as f64 / size))
}

/// The product of sizes, if it is a number of elements that memory could have.
pub(crate) fn checked_product(sizes: &[usize]) -> Option<usize> {
    // Eight bytes per element, and sums of a few such numbers, must not overflow either.
    sizes.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).filter(|n| (*n as u64) < 1 << 56)
}

/// Checks a value that a configuration or the command line gives for a model's parameter of this
/// name. `default` is the default in the model's source.
pub(crate) fn check_value(
    parameter: &str,
    name: &str,
    value: &ConstValue,
    default: Option<&ConstValue>,
) -> std::result::Result<(), String> {
    if matches!(parameter, "rope" | "local_rope") {
        return check_rope_value(name, value);
    }
    let shown = match value {
        ConstValue::Float(Some(x)) => x.to_string(),
        ConstValue::Str(text) | ConstValue::Identifier(text) => format!("`{text}`"),
        ConstValue::Bool(_) => "true or false".to_string(),
        ConstValue::List(_) => "a list".to_string(),
        other => other.as_int().map_or(String::new(), |n| n.to_string()),
    };
    let wanted = match (default, value) {
        (
            Some(ConstValue::Int(_)),
            ConstValue::Float(_) | ConstValue::Str(_) | ConstValue::Bool(_) | ConstValue::List(_),
        ) => Some("a non-negative integer"),
        (Some(ConstValue::Float(_)), ConstValue::Str(_) | ConstValue::Bool(_) | ConstValue::List(_)) => {
            Some("a number")
        }
        (
            Some(ConstValue::Bool(_)),
            ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Str(_) | ConstValue::List(_),
        ) => Some("true or false"),
        (
            Some(ConstValue::Str(_)),
            ConstValue::Int(_) | ConstValue::Float(_) | ConstValue::Bool(_) | ConstValue::List(_),
        ) => Some("a word"),
        _ => None,
    };
    if let Some(wanted) = wanted {
        return Err(format!("`{name}` is {shown}, but it must be {wanted}"));
    }
    if let ConstValue::Float(Some(x)) = value {
        return match x.is_finite() && *x >= 0.0 {
            true => Ok(()),
            false => Err(format!("`{name}` is {x}, but it must be a non-negative number")),
        };
    }
    let Some(n) = value.as_int() else { return Ok(()) };
    let layers = matches!(parameter, "n_layers" | "experts");
    // If the parameter's default is 0, that means "default".
    // Token 0 is valid, and a number of exceptional layers may be 0.
    let counts = matches!(parameter, "padding" | "end" | "first_dense" | "full_layers");
    let positive = !counts && default.and_then(ConstValue::as_int).is_some_and(|n| n > 0);
    match n {
        ..0 => Err(format!("`{name}` is {n}, but it must not be negative")),
        0 if positive => Err(format!("`{name}` is 0, but it must be positive")),
        _ if layers && n > MAX_LAYERS => Err(format!("`{name}` is {n}, but the maximum is {MAX_LAYERS}")),
        _ if n > max_value(parameter) => Err(format!("`{name}` is {n}, but the maximum is {}", max_value(parameter))),
        _ => Ok(()),
    }
}

/// Parameters of rotary embeddings are factors and lengths: all must be positive, except for two that 0 disables.
fn check_rope_value(name: &str, value: &ConstValue) -> std::result::Result<(), String> {
    let ConstValue::List(fields) = value else { return Ok(()) };
    for field in fields {
        let ConstValue::List(pair) = field else { continue };
        let [ConstValue::Str(key), value] = &pair[..] else { continue };
        let numbers = match value {
            // Only these two are lists, with one factor for each pair of dimensions.
            ConstValue::List(list) if !list.is_empty() && matches!(&key[..], "short_factor" | "long_factor") => {
                &list[..]
            }
            one => std::slice::from_ref(one),
        };
        for number in numbers {
            let x = match number {
                ConstValue::Float(Some(x)) => *x,
                other => match other.as_int() {
                    Some(n) => n as f64,
                    None if key.contains("factor") => return Err(format!("`{name}.{key}` must be a number")),
                    None => continue,
                },
            };
            let off = x == 0.0 && matches!(&key[..], "mscale" | "mscale_all_dim");
            if !off && (!x.is_finite() || x <= 0.0) {
                return Err(format!("`{name}.{key}` has {x}, but it must be positive"));
            }
        }
    }
    Ok(())
}

/// Rejects parameters that overflow, or that have more elements than the tensors they are assembled from.
pub(crate) fn check_parameters(params: &[Parameter], available: usize, path: &Path) -> Result<()> {
    let total = total_elements(params).map_err(|reason| Error::Config { path: path.to_path_buf(), reason })?;
    if total <= available {
        return Ok(());
    }
    // The shape of one tensor is more informative than the sum, except where the sum is absurd.
    match total / 1000 > available {
        false => Ok(()),
        true => Err(Error::Config {
            path: path.to_path_buf(),
            reason: format!(
                "the configuration describes {total} parameters, but the weights have {available} elements"
            ),
        }),
    }
}

/// Rejects a new model that does not fit into memory: its elements, and a copy in f32 during initialization.
pub(crate) fn check_new_model(params: &[Parameter], dtype: DType) -> Result<()> {
    let total = total_elements(params).map_err(Error::Input)? as u128;
    check_fits("the model", total * (4 + dtype.size() as u128), "reduce its sizes with `--set`")
}

/// The number of elements of all parameters; the error names one that is too large.
pub(crate) fn total_elements(params: &[Parameter]) -> std::result::Result<usize, String> {
    let sizes = params.iter().map(|param| {
        checked_product(&param.ty.shape)
            .ok_or_else(|| format!("parameter `{}` of shape {:?} has too many elements", param.path, param.ty.shape))
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_values_are_refused_by_their_name() {
        let check = |parameter: &str, given: ConstValue, default: i64, word: &str| {
            let found = check_value(parameter, "field", &given, Some(&ConstValue::int(default)));
            match word {
                "" => assert_eq!(found, Ok(()), "{parameter}"),
                word => assert!(found.clone().is_err_and(|e| e.contains(word) && e.contains("field")), "{found:?}"),
            }
        };
        check("d_model", ConstValue::int(-4), 64, "negative");
        check("d_model", ConstValue::int(0), 64, "positive");
        check("head_dim", ConstValue::int(0), 0, "");
        check("d_model", ConstValue::int(4096), 64, "");
        check("n_layers", ConstValue::int(100_000_000), 4, "maximum is 4096");
        check("vocab_size", ConstValue::int(i64::MAX), 4, "maximum is 4294967296");
        check("d_model", ConstValue::Str("x".into()), 4, "non-negative integer");
        check("d_model", ConstValue::List(Vec::new()), 4, "non-negative integer");
        check("d_model", ConstValue::bool(true), 4, "non-negative integer");
        check("d_model", ConstValue::Float(Some(1.5)), 4, "non-negative integer");
        assert!(
            check_value("theta", "f", &ConstValue::Float(Some(-1.0)), Some(&ConstValue::Float(Some(1.0)))).is_err()
        );
        assert!(check_value("theta", "f", &ConstValue::Float(Some(2.0)), Some(&ConstValue::Float(Some(1.0)))).is_ok());
        let rope =
            |key: &str, x: ConstValue| ConstValue::List(vec![ConstValue::List(vec![ConstValue::Str(key.into()), x])]);
        check("rope", rope("factor", ConstValue::Float(Some(0.0))), 0, "positive");
        check("rope", rope("factor", ConstValue::int(-2)), 0, "factor");
        check("rope", rope("factor", ConstValue::int(2)), 0, "");
        check(
            "rope",
            rope("long_factor", ConstValue::List(vec![ConstValue::int(1), ConstValue::Float(Some(f64::INFINITY))])),
            0,
            "long",
        );
        check("rope", rope("rope_type", ConstValue::Str("yarn".into())), 0, "");
    }

    #[test]
    fn products_that_overflow_are_none() {
        assert_eq!(checked_product(&[3, 4]), Some(12));
        assert_eq!(checked_product(&[1 << 40, 1 << 40]), None);
        assert_eq!(checked_product(&[1 << 60]), None);
        assert_eq!(checked_product(&[]), Some(1));
    }

    #[test]
    fn what_needs_more_than_there_is_says_so() {
        if available_memory().is_some() {
            let error = check_fits("a step", 1 << 70, "reduce `--micro-batch-size`").expect_err("too much").to_string();
            assert!(error.contains("EB") && error.contains("--micro-batch-size"), "{error}");
            assert!(check_fits("a step", 1000, "").is_ok());
        }
    }
}
