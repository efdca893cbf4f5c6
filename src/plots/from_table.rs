//! From the rows of a run to the data of a figure.

use super::axis::AxisSpec;
use super::front::{FrontFigure, FrontMember, FrontPoint};
use super::theme::CATEGORIES;
use crate::diag::{Diagnostic, Diagnostics};
use crate::pareto::{Axes, Bound, Limit, Selection};
use crate::results::reader::{Cells, Table};
use crate::results::{Column, Direction};

/// Words of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captions {
    /// Heading.
    pub title: String,
    /// Model, GPUs and SLA in one line.
    pub subtitle: String,
    /// Small print, e.g. the command that makes the figure again.
    pub footnote: String,
}

/// Columns that [`front_figure`] reads besides axes, bounds and colour.
pub const FIGURE_COLUMNS: [&str; 2] = ["index", "deployment"];

/// The front figure of a selection, its points coloured by the column `colour_by` (text, integer or boolean, e.g. `gpu`,
/// `parallelism` or `architecture`). Rows without a value on either axis are not shown.
///
/// # Errors
/// If a needed column was not read, or the colour's column holds real numbers.
pub fn front_figure(
    table: &Table,
    axes: &Axes,
    bounds: &[Bound],
    selection: &Selection,
    colour_by: &str,
    captions: Captions,
) -> Result<FrontFigure, Diagnostics> {
    let indices = table.numbers("index")?;
    let deployments = table.text("deployment")?;
    let (categories, category_of) = categories(table, colour_by, &selection.feasible)?;
    let mut points = Vec::new();
    let mut point_of_row = vec![None; table.rows()];
    for (row, [x, y]) in selection.points.iter().copied().enumerate() {
        if x.is_finite() && y.is_finite() {
            point_of_row[row] = Some(points.len());
            let (category, feasible) = (category_of[row], selection.feasible[row]);
            points.push(FrontPoint { index: indices[row] as u64, x, y, category, feasible });
        }
    }
    let members = selection.front.iter().filter_map(|row| {
        let label = deployments.get(*row).unwrap_or_default().to_owned();
        point_of_row[*row].map(|point| FrontMember { point, label })
    });
    Ok(FrontFigure {
        title: captions.title,
        subtitle: captions.subtitle,
        footnote: captions.footnote,
        x: AxisSpec::of(axes.x, axis_bound(axes.x, bounds)),
        y: AxisSpec::of(axes.y, axis_bound(axes.y, bounds)),
        points,
        categories,
        front: members.collect(),
        knee: selection.knee.and_then(|knee| selection.front.iter().position(|row| *row == knee)),
    })
}

/// The SLA's limit on an axis, if it is on the side where the quantity gets worse. A limit on a TPOT is one on the
/// generation speed at that TPOT.
fn axis_bound(column: &Column, bounds: &[Bound]) -> Option<f64> {
    let speed_of = column.name.strip_prefix("gen_speed_").map(|statistic| format!("tpot_{statistic}_ms"));
    bounds.iter().find_map(|bound| match (bound.limit, column.better) {
        (Limit::AtMost(limit), Some(Direction::Minimise)) if bound.column == column.name => Some(limit),
        (Limit::AtLeast(limit), Some(Direction::Maximise)) if bound.column == column.name => Some(limit),
        (Limit::AtMost(limit), _) if Some(&bound.column) == speed_of.as_ref() && limit > 0.0 => Some(1000.0 / limit),
        _ => None,
    })
}

/// Names of the categories and the category of each row. Those with most feasible rows come first, as many as there are
/// colours, sorted by name; the others follow.
fn categories(table: &Table, column: &str, feasible: &[bool]) -> Result<(Vec<String>, Vec<usize>), Diagnostic> {
    let (names, codes) = named_values(table, column)?;
    let mut counts = vec![0usize; names.len()];
    for (code, feasible) in codes.iter().zip(feasible) {
        counts[*code] += usize::from(*feasible);
    }
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|code| std::cmp::Reverse(counts[*code]));
    let coloured = order.len().min(CATEGORIES.len());
    // Shorter names first puts `tp2` before `tp16` and `tp2` before `pp2 tp2`.
    order[..coloured].sort_by_key(|code| (names[*code].chars().count(), &names[*code]));
    let mut position = vec![0; names.len()];
    for (at, code) in order.iter().enumerate() {
        position[*code] = at;
    }
    Ok((
        order.iter().map(|code| names[*code].clone()).collect(),
        codes.into_iter().map(|code| position[code]).collect(),
    ))
}

/// Distinct values of a column as text, and for each row which one it has.
fn named_values(table: &Table, column: &str) -> Result<(Vec<String>, Vec<usize>), Diagnostic> {
    let cells: Vec<Option<String>> = match table.cells(column)? {
        Cells::Text(text) => (0..table.rows()).map(|row| text.get(row).map(str::to_owned)).collect(),
        Cells::U64(values) => values.iter().map(|value| value.map(|value| format!("{column} {value}"))).collect(),
        Cells::Bool(values) => values
            .iter()
            .map(|value| value.map(|value| if value { column.to_owned() } else { format!("no {column}") }))
            .collect(),
        Cells::Real(_) => {
            return Err(Diagnostic::new(format!("column `{column}` cannot colour points: it holds real numbers"))
                .help("choose a column with few values, e.g. `gpu`, `parallelism` or `architecture`"));
        }
    };
    let mut names: Vec<String> = cells.iter().map(|cell| cell.clone().unwrap_or_else(none)).collect();
    names.sort_unstable();
    names.dedup();
    let codes =
        cells.into_iter().map(|cell| names.binary_search(&cell.unwrap_or_else(none)).unwrap_or_default()).collect();
    Ok((names, codes))
}

/// The category of rows without a value.
fn none() -> String {
    "none".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Manifest, fixture, part::write_part};

    fn table(names: &[&str]) -> Table {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new("smoke", "00ff", 12, 12, 12);
        manifest.record(write_part(folder.path(), 0, &fixture::rows(0..12)).unwrap());
        manifest.store(folder.path()).unwrap();
        Table::load(folder.path(), names).unwrap()
    }

    #[test]
    fn a_run_becomes_a_figure() {
        let table = table(&["index", "deployment", "sla_met", "gen_speed_p95", "throughput_per_gpu", "tpot_p95_ms"]);
        let axes = Axes::new("gen_speed_p95", "throughput_per_gpu").unwrap();
        let bounds = [Bound::at_most("tpot_p95_ms", 32.0)];
        let selection = Selection::new(&table, &axes, &bounds).unwrap();
        let captions = Captions { title: "Smoke".into(), ..Captions::default() };
        let figure = front_figure(&table, &axes, &bounds, &selection, "sla_met", captions).unwrap();
        // Twelve rows, of which row 9 panicked; row 0 is the fastest at equal throughput.
        assert_eq!(figure.points.len(), 11);
        assert_eq!(figure.points.iter().filter(|point| point.feasible).count(), 8);
        assert_eq!(figure.front, [FrontMember { point: 0, label: "4 × tp2 bf16, 256 seqs".into() }]);
        assert_eq!((figure.knee, figure.x.bound, figure.y.bound), (Some(0), Some(31.25), None));
        assert_eq!(figure.categories, ["sla_met", "no sla_met"]);
        assert_eq!(figure.points[1].category, 1);
        assert_eq!(figure.x.title, "Generation speed at the p95 TPOT (tokens/s/user)");
        assert!(figure.points.last().is_some_and(|point| point.index == 11));
    }

    #[test]
    fn frequent_categories_come_first_in_natural_order() {
        let table = table(&["index", "gen_speed_p95"]);
        let (names, _) = categories(&table, "index", &[true; 12]).unwrap();
        assert_eq!(names[..7], (0..7).map(|at| format!("index {}", [0, 1, 2, 3, 4, 10, 11][at])).collect::<Vec<_>>());
        assert!(categories(&table, "gen_speed_p95", &[true; 12]).unwrap_err().message.contains("real numbers"));
    }
}
