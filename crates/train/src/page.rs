//! Pages that need no network: what they share, and their data inside of them.

use serde_json::Value as Json;

/// A page with its data.
pub(crate) fn page(title: &str, content: &str, data: &Json) -> String {
    let page = include_str!("pages/frame.html").replacen("@TITLE@", title, 1);
    let page = page.replacen("@STYLE@\n", include_str!("pages/page.css"), 1);
    let page = page.replacen("@CONTENT@\n", content, 1);
    let page = page.replacen("@CHARTS@\n", include_str!("pages/charts.js"), 1);
    // In a script, only a tag's end could be misread. Data comes last: nothing in it is replaced.
    page.replacen("@DATA@", &data.to_string().replace('<', "\\u003c"), 1)
}
