//! Importing made-up tables.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::catalog::NumberFormat;

/// A matrix product: format, rows, time in milliseconds.
type Product = (&'static str, i64, f64);

/// A table of products with 1024 columns and an inner dimension of 2048.
fn table(products: &[Product], kernels: &[&str], with_k: bool) -> Vec<u8> {
    let text = |values: Vec<&str>| Arc::new(StringArray::from(values)) as Arc<dyn Array>;
    let int = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as Arc<dyn Array>;
    let count = products.len();
    let mut columns: Vec<(&str, DataType, Arc<dyn Array>)> = vec![
        ("gemm_dtype", DataType::Utf8, text(products.iter().map(|product| product.0).collect())),
        ("kernel_source", DataType::Utf8, text((0..count).map(|row| kernels[row % kernels.len()]).collect())),
        ("m", DataType::Int64, int(products.iter().map(|product| product.1).collect())),
        ("n", DataType::Int64, int(vec![1024; count])),
    ];
    if with_k {
        columns.push(("k", DataType::Int64, int(vec![2048; count])));
    }
    let latencies = Arc::new(Float64Array::from(products.iter().map(|product| product.2).collect::<Vec<f64>>()));
    columns.push(("latency", DataType::Float64, latencies));
    let fields: Vec<Field> = columns.iter().map(|(name, kind, _)| Field::new(*name, kind.clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, _, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn write(folder: &Path, file: &str, bytes: &[u8]) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A wheel with one system and one table of vLLM 0.24.0.
fn wheel(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("aiconfigurator_core-0.12.0-py3-none-any.whl");
    let mut archive = ZipWriter::new(File::create(&path).unwrap());
    let member = "aiconfigurator_core/systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";
    archive.start_file(member, SimpleFileOptions::default()).unwrap();
    archive.write_all(bytes).unwrap();
    archive.finish().unwrap();
    path
}

fn product(tokens: u32, format: NumberFormat, latency_ns: f64) -> Measurement {
    let operator = Operator::Gemm { tokens, n: 1024, k: 2048, weights: format, activations: format };
    Measurement { operator, latency_ns }
}

#[test]
fn reads_columns_by_name_and_names_bad_rows() {
    let folder = tempfile::tempdir().unwrap();
    let products = [("fp8", 16, 0.5), ("fp8", 17, -1.0), ("fp8", 18, f64::NAN), ("mx3", 16, 0.5)];
    write(folder.path(), "gemm/vllm/0.19.0/gemm_perf.parquet", &table(&products, &["a"], true));
    let measurements = import(folder.path(), "vllm-0.19").unwrap();
    assert_eq!(measurements.rows, [product(16, NumberFormat::Fp8, 0.5e6)]);
    assert_eq!(measurements.dropped.len(), 2);
    assert!(measurements.dropped[0].reason.contains("`mx3` is not supported"), "{:?}", measurements.dropped[0]);
    assert_eq!(measurements.dropped[1].rows, 2);
    assert!(measurements.dropped[1].reason.contains("not positive"));
    assert!(measurements.dropped[1].example.contains("m 17"), "{}", measurements.dropped[1].example);
}

#[test]
fn a_missing_column_version_or_engine_is_a_diagnostic() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "gemm/vllm/0.19.0/gemm_perf.parquet", &table(&[("fp8", 16, 0.5)], &["a"], false));
    assert!(import(folder.path(), "vllm-0.19").unwrap_err().message.contains("no column `k`"));
    let other_version = import(folder.path(), "vllm-0.1").unwrap_err();
    assert!(other_version.message.contains("no tables"));
    assert!(other_version.help.unwrap().contains("vllm-0.19.0"));
    assert!(import(folder.path(), "other-1").unwrap_err().help.is_some());
}

#[test]
fn a_system_is_found_in_a_checkout_and_in_a_wheel() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = table(&[("bfloat16", 16, 0.5)], &["a"], true);
    let file = "src/aiconfigurator_core/systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";
    write(folder.path(), file, &bytes);
    let wheel = wheel(folder.path(), &bytes);
    for place in [folder.path().to_owned(), wheel] {
        let measurements = import(&place.join("h100_sxm"), "vllm-0.24").unwrap();
        assert_eq!(measurements.rows, [product(16, NumberFormat::Bf16, 0.5e6)]);
        let misspelt = import(&place.join("h100_sx"), "vllm-0.24").unwrap_err();
        assert!(misspelt.help.unwrap().contains("`h100_sxm`"));
        assert!(import(&place, "vllm-0.24").unwrap_err().help.unwrap().contains("h100_sxm"));
    }
}

#[test]
fn the_newest_version_of_a_line_is_read_and_other_tables_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (version, latency) in [("0.5.9", 0.1), ("0.5.14", 0.2)] {
        let file = format!("gemm/sglang/{version}/gemm_perf.parquet");
        write(folder.path(), &file, &table(&[("bfloat16", 16, latency)], &["a"], true));
    }
    write(folder.path(), "kda/sglang/0.5.9/kda_perf.parquet", &table(&[("bfloat16", 1, 1.0); 3], &["a"], true));
    let measurements = import(folder.path(), "sglang-0.5").unwrap();
    assert_eq!(measurements.rows, [product(16, NumberFormat::Bf16, 0.2e6)]);
    assert_eq!(measurements.dropped[0].rows, 3);
    assert!(measurements.dropped[0].reason.contains("kda"), "{}", measurements.dropped[0].reason);
}

#[test]
fn a_version_that_holds_a_few_additions_is_read_with_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<Product> = (0..20).map(|row| ("bfloat16", 16 + row, 0.1)).collect();
    for (version, products) in
        [("1.3.0rc9", &many[..]), ("1.3.0rc20", &many[..]), ("1.3.0rc23", &[("bfloat16", 64, 0.3)])]
    {
        write(folder.path(), &format!("gemm/trtllm/{version}/gemm_perf.parquet"), &table(products, &["a"], true));
    }
    let measurements = import(folder.path(), "trtllm-1.3").unwrap();
    assert_eq!(measurements.rows[0], product(64, NumberFormat::Bf16, 0.3e6));
    assert_eq!(measurements.rows.len(), 21, "the oldest version is not read");
}

#[test]
fn of_several_kernels_for_a_shape_the_most_frequent_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let products = [("bfloat16", 16, 0.1), ("bfloat16", 16, 0.2), ("bfloat16", 32, 0.3)];
    write(folder.path(), "gemm/trtllm/1.0/gemm_perf.parquet", &table(&products, &["often", "once"], true));
    let measurements = import(folder.path(), "trtllm-1.0").unwrap();
    let bf16 = NumberFormat::Bf16;
    assert_eq!(measurements.rows, [product(16, bf16, 0.1e6), product(32, bf16, 0.3e6)]);
    assert!(measurements.dropped[0].reason.contains("default kernel"));
}

#[test]
fn kernels_that_no_engine_runs_are_left_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let products = [("bfloat16", 16, 0.1), ("bfloat16", 32, 0.3)];
    let kernels = ["fine", "vllm_marlin_int4_moe"];
    write(folder.path(), "gemm/vllm/0.19.0/gemm_perf.parquet", &table(&products, &kernels, true));
    let measurements = import(folder.path(), "vllm-0.19").unwrap();
    assert_eq!(measurements.rows, [product(16, NumberFormat::Bf16, 0.1e6)]);
    assert!(measurements.dropped[0].reason.contains("Marlin"), "{:?}", measurements.dropped[0]);
}

#[test]
fn launch_bound_formats_and_spikes_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [1, 16, 64, 256, 1024, 4096, 16_384];
    let bf16 = [0.003, 0.003, 0.003, 0.004, 0.005, 0.02, 0.2];
    // The first one is a cold start.
    let fp8 = [0.012, 0.005, 0.005, 0.005, 0.006, 0.012, 0.1];
    let fp8_block = [0.06, 0.06, 0.061, 0.06, 0.2, 0.06, 0.11];
    let products: Vec<Product> = [("bfloat16", bf16), ("fp8", fp8), ("fp8_block", fp8_block)]
        .into_iter()
        .flat_map(|(format, times)| sizes.into_iter().zip(times).map(move |(m, time)| (format, m, time)))
        .collect();
    write(folder.path(), "gemm/vllm/0.24.0/gemm_perf.parquet", &table(&products, &["a"], true));
    let measurements = import(folder.path(), "vllm-0.24").unwrap();
    let of = |format: NumberFormat| {
        let matches = |row: &&Measurement| matches!(row.operator, Operator::Gemm { weights, .. } if weights == format);
        measurements.rows.iter().filter(matches).count()
    };
    assert_eq!([NumberFormat::Bf16, NumberFormat::Fp8, NumberFormat::Fp8Block].map(of), [7, 6, 0]);
    let reasons: Vec<(&str, usize)> =
        measurements.dropped.iter().map(|dropped| (dropped.reason.as_str(), dropped.rows)).collect();
    assert!(reasons[0].0.starts_with("launch-bound products in fp8_block") && reasons[0].1 == 7, "{reasons:?}");
    assert!(reasons[1].0.starts_with("spikes") && reasons[1].1 == 1, "{reasons:?}");
}
