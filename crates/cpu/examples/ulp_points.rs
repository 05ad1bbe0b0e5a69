//! Checks f64 functions at the points of `golden/ulp.py`: `python golden/ulp.py 10000 7 | cargo run --release -p tensorloom-cpu
//! --example ulp_points`.

use tensorloom_cpu::codegen::Target;
use tensorloom_cpu::codegen::ulp::{bound_f64, parse_points};

fn main() -> Result<(), String> {
    let all = parse_points(std::io::stdin().lines().map_while(Result::ok))?;
    for (name, points) in &all {
        for target in [None].into_iter().chain(Target::available().into_iter().map(Some)) {
            let got = points.results(name, target);
            let (worst, at) = points.max_error(name, &got);
            let who = target.map_or("reference".to_string(), |t| format!("{t:?}"));
            let (x, y) = (points.args[0][at], points.args[1][at]);
            let bound = bound_f64(name).unwrap_or(f64::INFINITY);
            let over = if worst > bound { "  ABOVE" } else { "" };
            println!(
                "{name:12} {who:10} {:8} points  {worst:9.3} ulp (bound {bound}) at {x:e}, {y:e}{over}",
                got.len()
            );
        }
    }
    Ok(())
}
