//! Reading the rows of one parquet table.

use std::collections::BTreeMap;

use arrow_array::{Array, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::tables::{Fields, Table};
use crate::catalog::NumberFormat;
use crate::fidelity::import::{Dropped, Measurement};
use crate::fidelity::operator::Operator;

/// Attention tables of older versions lack this column: nothing with a window was measured.
const WINDOW: &str = "window_size";
/// TensorRT-LLM's all-reduce tables call this column otherwise.
const BACKEND: &str = "backend";
const BACKEND_OF_TENSORRT_LLM: &str = "implementation";

/// Kernels that were timed in place of those that engines run, and how that shows.
const STAND_INS: [(&str, &str); 2] = [
    (
        "vllm_marlin_int4_moe",
        "int4 experts that take 2 to 3.4 times as long as the same Marlin kernels in the tables of vLLM 0.14 and 0.24",
    ),
    (
        "vllm_mxfp4_moe",
        "mxfp4 experts that take 1.5 to 15 times as long as the kernels of gpt-oss in the tables of vLLM 0.24",
    ),
];
/// Where this kernel of datacentre Blackwell was timed, engines run its siblings for block-scaled fp8 experts too: those
/// that the tables of vLLM 0.24 hold, up to twice as fast as Triton's.
const BLACKWELL_EXPERTS: &str = "vllm_flashinfer_trtllm_moe_fp4";
const TRITON_EXPERTS: &str = "vllm_fused_moe";

/// Number of rows of a table.
pub(super) fn count(bytes: Bytes) -> Result<usize, String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|error| error.to_string())?;
    Ok(usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or_default())
}

/// Reads the rows of a table. Where several kernels were measured for one shape, those of the table's most frequent
/// kernel are kept: it is the one that the engine chooses by default.
pub(super) fn read(bytes: Bytes, table: &Table, dropped: &mut Dropped) -> Result<Vec<Measurement>, String> {
    let mut reader = Reader { table, rows: Vec::new(), kernels: Vec::new(), rows_of_kernel: BTreeMap::new(), dropped };
    let batches = ParquetRecordBatchReaderBuilder::try_new(bytes)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| error.to_string())?;
    for batch in batches {
        reader.batch(&batch.map_err(|error| error.to_string())?)?;
    }
    Ok(reader.finish())
}

struct Reader<'a> {
    table: &'a Table,
    rows: Vec<Measurement>,
    /// The kernel of each row.
    kernels: Vec<String>,
    rows_of_kernel: BTreeMap<String, usize>,
    dropped: &'a mut Dropped,
}

impl Reader<'_> {
    fn batch(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let table = self.table;
        let named = |name: &&'static str| match *name {
            BACKEND if batch.column_by_name(BACKEND).is_none() => BACKEND_OF_TENSORRT_LLM,
            name => name,
        };
        let text: Vec<Vec<Option<&str>>> =
            table.text.iter().map(|name| text_column(batch, named(name))).collect::<Result<_, _>>()?;
        let zeros = Int64Array::from(vec![0; batch.num_rows()]);
        let number = |name: &&str| match *name {
            WINDOW if batch.column_by_name(WINDOW).is_none() => Ok(&zeros),
            name => column(batch, name),
        };
        let numbers: Vec<&Int64Array> = table.numbers.iter().map(number).collect::<Result<_, _>>()?;
        let latency: &Float64Array = column(batch, "latency")?;
        let kernels = text_column(batch, "kernel_source").unwrap_or_default();
        for row in 0..batch.num_rows() {
            let kernel = kernels.get(row).copied().flatten().unwrap_or_default();
            let missing =
                text.iter().any(|values| values[row].is_none()) || numbers.iter().any(|array| array.is_null(row));
            let latency_ms = if latency.is_null(row) { f64::NAN } else { latency.value(row) };
            let fields: Option<Vec<u32>> = numbers.iter().map(|array| u32::try_from(array.value(row)).ok()).collect();
            let converted = match fields {
                _ if missing => Err("a field is empty".to_owned()),
                None => Err("a count is negative or too large".to_owned()),
                _ if !(latency_ms.is_finite() && latency_ms > 0.0) => Err("the latency is not positive".to_owned()),
                // Experts of two products instead of three, under the columns of those with three.
                _ if kernel.ends_with("_nongated") => Err("experts without a gate".to_owned()),
                _ if stand_in(kernel).is_some() => Err(stand_in(kernel).unwrap_or_default().to_owned()),
                Some(numbers) => {
                    (table.convert)(&Fields { text: text.iter().filter_map(|values| values[row]).collect(), numbers })
                }
            };
            match converted {
                Ok(operators) => {
                    *self.rows_of_kernel.entry(kernel.to_owned()).or_default() += 1;
                    for operator in operators {
                        self.rows.push(Measurement { operator, latency_ns: latency_ms * 1e6 });
                        self.kernels.push(kernel.to_owned());
                    }
                }
                Err(reason) => self.dropped.add(reason, 1, || example(table, &text, &numbers, row)),
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<Measurement> {
        if self.rows_of_kernel.contains_key(BLACKWELL_EXPERTS) {
            self.drop_triton_block_experts();
        }
        let Self { mut rows, kernels, rows_of_kernel, dropped, .. } = self;
        if rows_of_kernel.len() < 2 {
            return rows;
        }
        let frequency = |position: usize| rows_of_kernel[&kernels[position]];
        let mut most_frequent: BTreeMap<String, usize> = BTreeMap::new();
        for (position, row) in rows.iter().enumerate() {
            let best = most_frequent.entry(format!("{:?}", row.operator)).or_insert(position);
            if frequency(position) > frequency(*best) {
                *best = position;
            }
        }
        let mut position = 0;
        rows.retain(|row| {
            let best = most_frequent[&format!("{:?}", row.operator)];
            let keep = kernels[best] == kernels[position];
            if !keep {
                dropped.add("other kernels for a shape that the default kernel covers", 1, || {
                    format!("{}: {:?}", kernels[position], row.operator)
                });
            }
            position += 1;
            keep
        });
        rows
    }
}

impl Reader<'_> {
    fn drop_triton_block_experts(&mut self) {
        let is_block = |row: &Measurement| match row.operator {
            Operator::GroupedGemm { experts, .. } => experts.weights == NumberFormat::Fp8Block,
            _ => false,
        };
        let (mut rows, mut kernels) = (Vec::new(), Vec::new());
        for (row, kernel) in self.rows.drain(..).zip(self.kernels.drain(..)) {
            if kernel == TRITON_EXPERTS && is_block(&row) {
                let reason = "Triton's block-scaled fp8 experts where engines run FlashInfer's";
                self.dropped.add(reason, 1, || format!("{:?}", row.operator));
            } else {
                rows.push(row);
                kernels.push(kernel);
            }
        }
        (self.rows, self.kernels) = (rows, kernels);
    }
}

fn stand_in(kernel: &str) -> Option<&'static str> {
    STAND_INS.iter().find(|(name, _)| *name == kernel).map(|(_, reason)| *reason)
}

/// The fields of a row that is left out.
fn example(table: &Table, text: &[Vec<Option<&str>>], numbers: &[&Int64Array], row: usize) -> String {
    let text = table.text.iter().zip(text).map(|(name, values)| format!("{name} {}", values[row].unwrap_or("")));
    let numbers = table.numbers.iter().zip(numbers).map(|(name, array)| format!("{name} {}", array.value(row)));
    let parts: Vec<String> = text.chain(numbers).collect();
    format!("{}: {}", table.file.trim_end_matches("_perf.parquet"), parts.join(", "))
}

/// A text column by name; some tables have 64-bit offsets.
fn text_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<Vec<Option<&'a str>>, String> {
    match column::<LargeStringArray>(batch, name) {
        Ok(array) => Ok(array.iter().collect()),
        Err(_) => column::<StringArray>(batch, name).map(|array| array.iter().collect()),
    }
}

/// A column by name and type. The tables hold text, 64-bit integers and 64-bit floats only.
fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A, String> {
    let array = batch.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    array.as_any().downcast_ref::<A>().ok_or_else(|| format!("column `{name}` has the type {}", array.data_type()))
}

#[cfg(test)]
mod tests {
    use super::super::tables::TABLES;
    use super::*;
    use crate::fidelity::expert_load::ExpertLoad;
    use crate::fidelity::operator::Experts;

    #[test]
    fn triton_stands_in_for_block_scaled_experts_only_where_flashinfer_runs_the_others() {
        let row = |format: NumberFormat, latency_ns: f64| {
            let experts = Experts {
                hidden_size: 2048,
                intermediate_size: 768,
                top_k: 8,
                count: 128,
                local: 128,
                weights: format,
                activations: format,
            };
            let load = ExpertLoad::balanced(16, &experts);
            Measurement { operator: Operator::GroupedGemm { tokens: 16, experts, load }, latency_ns }
        };
        let kept = |other: &str| {
            let mut dropped = Dropped::default();
            let kernels = [TRITON_EXPERTS, TRITON_EXPERTS, other].map(str::to_owned);
            let reader = Reader {
                table: &TABLES[0],
                rows: vec![
                    row(NumberFormat::Bf16, 1.0),
                    row(NumberFormat::Fp8Block, 2.0),
                    row(NumberFormat::Nvfp4, 3.0),
                ],
                rows_of_kernel: kernels.iter().map(|kernel| (kernel.clone(), 1)).collect(),
                kernels: kernels.to_vec(),
                dropped: &mut dropped,
            };
            reader.finish().iter().map(|row| row.latency_ns).collect::<Vec<f64>>()
        };
        assert_eq!(kept(BLACKWELL_EXPERTS), [1.0, 3.0]);
        assert_eq!(kept("another"), [1.0, 2.0, 3.0]);
    }
}
