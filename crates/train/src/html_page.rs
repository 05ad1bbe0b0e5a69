//! Self-contained HTML pages: their common parts, with the data embedded.

use serde_json::Value as Json;

/// Returns a page with its data embedded.
pub(crate) fn html_page(title: &str, content: &str, data: &Json) -> String {
    let page = include_str!("pages/frame.html").replacen("@TITLE@", title, 1);
    let page = page.replacen("@STYLE@\n", include_str!("pages/page.css"), 1);
    let page = page.replacen("@CONTENT@\n", content, 1);
    let page = page.replacen("@CHARTS@\n", include_str!("pages/charts.js"), 1);
    // In a script, only `<` could be misread as the end of the tag. The data is inserted last, so nothing in it is replaced.
    page.replacen("@DATA@", &data.to_string().replace('<', "\\u003c"), 1)
}
