//! One SVG: a row for each limiter, a column for each way of counting.

use std::fmt::Write;

use crate::{
    judge::{Rule, Verdict},
    limiters::Limiter,
};

/// One limiter before one judge.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) limiter: Limiter,
    pub(crate) rate: f64,
    pub(crate) verdict: Verdict,
}

/// Draws panels that come row by row.
pub(crate) fn draw(panels: &[Panel]) -> String {
    let columns = Rule::ALL.len().max(1);
    let rows = panels.len().div_ceil(columns);
    let size = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let (width, height) = (
        LEFT + size(columns) * (WIDTH + GAP),
        TOP + size(rows) * (HEIGHT + GAP),
    );
    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">"#
    ));
    line(format!(
        r#"<rect width="{width}" height="{height}" fill="white"/>"#
    ));
    line(format!(
        r#"<text x="{LEFT}" y="18" font-size="14">How full the service's limit was at each request that arrived, through the same rough network (the refused count, too)</text>"#
    ));
    for (column, rule) in Rule::ALL.into_iter().enumerate() {
        let x = LEFT + size(column) * (WIDTH + GAP);
        line(format!(
            r#"<text x="{x}" y="40">{}</text>"#,
            rule.describes()
        ));
    }
    for (row, panels) in panels.chunks(columns).enumerate() {
        for (column, panel) in panels.iter().enumerate() {
            let x = LEFT + size(column) * (WIDTH + GAP);
            let y = TOP + size(row) * (HEIGHT + GAP);
            line(panel.svg(x, y));
        }
    }
    line("</svg>".to_owned());
    svg
}

// === impl Panel ===

impl Panel {
    fn svg(&self, x: f64, y: f64) -> String {
        let limit = self.verdict.rule.limit();
        // Twice the limit is the top; what is higher is drawn there.
        let height = |fill: f64| HEIGHT - HEIGHT * (fill / (2.0 * limit)).min(1.0);
        let (mut kept, mut refused) = (String::new(), String::new());
        for (at, fill) in &self.verdict.fill {
            let (px, py) = (at.as_secs_f64() * WIDTH / SECONDS, height(*fill));
            let path = if *fill > limit + 1e-6 {
                &mut refused
            } else {
                &mut kept
            };
            // Writing to a string cannot fail.
            let _written: std::fmt::Result = write!(path, "M{px:.1} {py:.1}h0");
        }
        let bound = height(limit);
        let count = self.verdict.refused();
        let mut svg = format!(
            r##"<g transform="translate({x} {y})"><rect width="{WIDTH}" height="{HEIGHT}" fill="#f6f6f6"/>"##
        );
        let dots = r#"fill="none" stroke-width="2.4" stroke-linecap="round""#;
        let _written: std::fmt::Result = write!(
            svg,
            r##"<path d="M0 {bound:.1}h{WIDTH}" stroke="#888"/><path d="{kept}" stroke="#2a78b8" {dots}/><path d="{refused}" stroke="#d03020" {dots}/>"##
        );
        let colour = if count == 0 { "#2a78b8" } else { "#d03020" };
        let _written: std::fmt::Result = write!(
            svg,
            r#"<text x="{WIDTH}" y="12" dx="-4" text-anchor="end" fill="{colour}">{count} refused</text>"#
        );
        if self.verdict.rule == Rule::SlidingLog {
            let (name, rate) = (self.limiter.name(), self.rate);
            let _written: std::fmt::Result = write!(
                svg,
                r#"<text x="4" y="12">{name}: {rate:.0} a second</text>"#
            );
        }
        svg.push_str("</g>");
        svg
    }
}

const LEFT: f64 = 10.0;
const TOP: f64 = 48.0;
const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 120.0;
const GAP: f64 = 10.0;

/// What fits into a panel's width.
const SECONDS: f64 = 12.5;
