//! `cases.csv` and `cases.parquet`: one row per case and metric.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use crate::diag::Diagnostic;
use crate::results::{Kind, Value, replace_bytes, write_table};

use super::answer::Answer;
use super::case::error_pct;
use super::summary::{Comparison, comparisons};

/// Writes both files into `folder`, which must exist.
///
/// # Errors
/// If a file cannot be written.
pub fn write_cases(answers: &[Answer], folder: &Path) -> Result<(), Diagnostic> {
    let rows: Vec<Comparison<'_>> = comparisons(answers).collect();
    let columns = columns(&rows);
    let cell = |column: usize, row: usize| (columns[column].value)(&rows[row]);
    let kinds: Vec<(String, Kind)> = columns.iter().map(|column| (column.name.clone(), column.kind)).collect();
    write_table(&folder.join("cases.parquet"), &kinds, rows.len(), cell)?;
    replace_bytes(&folder.join("cases.csv"), csv(&columns, &rows).as_bytes())
}

/// What a column shows of a row.
type Cell = Box<dyn for<'a> Fn(&Comparison<'a>) -> Value<'a>>;

struct TableColumn {
    name: String,
    kind: Kind,
    value: Cell,
}

fn columns(rows: &[Comparison<'_>]) -> Vec<TableColumn> {
    let mut columns = Vec::new();
    fn text(name: &str, of: for<'a> fn(&Comparison<'a>) -> Cow<'a, str>) -> TableColumn {
        TableColumn { name: name.to_owned(), kind: Kind::Text, value: Box::new(move |row| Value::Text(of(row))) }
    }
    fn number(name: &str, of: fn(&Comparison<'_>) -> Option<f64>) -> TableColumn {
        let value: Cell = Box::new(move |row| of(row).map_or(Value::Null, Value::F64));
        TableColumn { name: name.to_owned(), kind: Kind::F64, value }
    }
    columns.push(text("group", |row| Cow::Borrowed(&row.answer.case.group)));
    columns.push(text("case", |row| Cow::Borrowed(&row.answer.case.id)));
    columns.push(text("model", |row| Cow::Borrowed(&row.answer.case.model)));
    columns.push(text("gpu", |row| Cow::Borrowed(&row.answer.case.gpu)));
    columns.push(text("engine", |row| {
        row.answer.case.run.as_ref().map_or(Cow::Borrowed(""), |run| Cow::Owned(run.engine.to_string()))
    }));
    columns.push(text("engine_profile", |row| {
        row.answer.simulated.as_ref().map_or(Cow::Borrowed(""), |one| Cow::Borrowed(one.profile.as_str()))
    }));
    columns.push(text("scheduler", |row| {
        row.answer.simulated.as_ref().map_or(Cow::Borrowed(""), |one| Cow::Borrowed(one.scheduler))
    }));
    columns.push(text("parallelism", |row| {
        row.answer.simulated.as_ref().map_or(Cow::Borrowed(""), |one| Cow::Borrowed(one.parallelism.as_str()))
    }));
    columns.push(number("measured_share", |row| row.answer.simulated.as_ref().ok().map(|one| one.measured_share)));
    columns.push(text("metric", |row| Cow::Borrowed(row.measured.metric.name())));
    columns.push(text("statistic", |row| Cow::Borrowed(row.measured.statistic.name())));
    columns.push(text("unit", |row| Cow::Borrowed(row.measured.metric.unit())));
    columns.push(number("measured", |row| Some(row.measured.value)));
    columns.push(number("simulated", |row| row.simulated));
    columns.push(number("error_pct", |row| row.error_pct()));
    columns.push(text("not_answered", |row| {
        row.answer.simulated.as_ref().map_or_else(|reason| Cow::Borrowed(reason.as_str()), |_| Cow::Borrowed(""))
    }));
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.measured.peers.iter().map(|peer| peer.name.as_str())).collect();
    for name in names {
        let predicted = |name: String| {
            move |row: &Comparison<'_>| row.measured.peers.iter().find(|peer| peer.name == name).map(|peer| peer.value)
        };
        let (value, of_error) = (predicted(name.to_owned()), predicted(name.to_owned()));
        columns.push(TableColumn {
            name: name.to_owned(),
            kind: Kind::F64,
            value: Box::new(move |row| value(row).map_or(Value::Null, Value::F64)),
        });
        let error = move |row: &Comparison<'_>| error_pct(of_error(row)?, row.measured.value);
        columns.push(TableColumn {
            name: format!("{name} error_pct"),
            kind: Kind::F64,
            value: Box::new(move |row| error(row).map_or(Value::Null, Value::F64)),
        });
    }
    columns
}

fn csv(columns: &[TableColumn], rows: &[Comparison<'_>]) -> String {
    let mut text = columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(",");
    text.push('\n');
    for row in rows {
        let cells = columns.iter().map(|column| match (column.value)(row) {
            Value::Text(text) => quoted(&text),
            Value::F64(number) => number.to_string(),
            _ => String::new(),
        });
        text.push_str(&cells.collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::summary::tests::answer;
    use super::*;

    #[test]
    fn every_case_has_a_row_with_its_peers_and_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let answers = [answer("a", 100.0, Ok(90.0), 150.0), answer("b", 100.0, Err("one, two"), 80.0)];
        write_cases(&answers, folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("cases.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("measured,simulated,error_pct,not_answered,other,other error_pct"), "{}", lines[0]);
        assert!(lines[1].starts_with("g,a,m,h100,,vllm-0.15,vllm_v1,tp2,0.75,TTFT,mean,ms,100,90,-"), "{}", lines[1]);
        assert!(lines[2].contains("100,,,\"one, two\",80,"), "{}", lines[2]);
        assert!(fs::metadata(folder.path().join("cases.parquet")).unwrap().len() > 0);
    }
}
