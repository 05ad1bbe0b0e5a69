//! Pages that need no network: what they share, and their data inside of them.

use serde_json::Value as Json;

/// A page with its data.
pub(crate) fn page(template: &str, data: &Json) -> String {
    // In a script, only a tag's end could be misread. Data comes last: nothing in it is replaced.
    let page = template.replacen("@STYLE@\n", include_str!("pages/page.css"), 1);
    let page = page.replacen("@CHARTS@\n", include_str!("pages/charts.js"), 1);
    page.replacen("@DATA@", &data.to_string().replace('<', "\\u003c"), 1)
}
