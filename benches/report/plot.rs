//! Horizontal bars as SVG.

use std::fmt::Write;

/// Draws one bar for each row, as long as its figure.
pub(crate) fn bars(title: &str, rows: &[(&str, f64)]) -> String {
    let most = rows.iter().map(|(_, figure)| *figure).fold(1.0, f64::max);
    let mut height = TOP;
    let mut body = String::new();
    for (name, figure) in rows {
        let width = (figure.max(0.0) / most * BAR).max(1.0);
        let (text, end) = (height + 13.0, LEFT + width + 6.0);
        writeln!(
            body,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LEFT}\" y=\"{height}\" width=\"{width:.0}\" height=\"17\" fill=\"#4878a8\"/>\
             <text x=\"{end:.0}\" y=\"{text}\">{figure:.0}</text>",
            LEFT - 8.0
        )
        .unwrap_or_default();
        height += 24.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"20\" font-weight=\"bold\">{title}</text>\n{body}</svg>\n"
    )
}

const LEFT: f64 = 260.0;
const TOP: f64 = 34.0;

/// The longest bar.
const BAR: f64 = 420.0;
