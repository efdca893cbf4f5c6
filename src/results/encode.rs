//! Rows to Parquet bytes. Equal rows give equal bytes: one write per file, fixed settings, no time, no host.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::column::{Column, Group, Kind, Value};
use super::schema::SCHEMA_VERSION;

/// Rows of one Parquet row group; a part is at most one.
pub(super) const MAX_PART_ROWS: usize = 131_072;

/// One column of a file: name, type, and whether few distinct values are expected.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) dictionary: bool,
}

impl Field {
    pub(super) fn of(column: &Column) -> Self {
        let discrete = matches!(column.kind, Kind::Text | Kind::U64);
        let dictionary = discrete && column.group == Group::Configuration;
        Self { name: column.name.to_string(), kind: column.kind, dictionary }
    }
}

/// Encodes `rows` rows, with `value(field, row)` as cells.
///
/// # Errors
/// If Parquet fails, which in memory means a bug.
pub(super) fn encode<'a>(
    fields: &[Field],
    rows: usize,
    value: impl Fn(usize, usize) -> Value<'a>,
) -> Result<Vec<u8>, ParquetError> {
    let schema = arrow_schema(fields);
    let columns = fields
        .iter()
        .enumerate()
        .map(|(number, field)| array(field.kind, (0..rows).map(|row| value(number, row))))
        .collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, Some(properties(fields)))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(bytes)
}

fn arrow_schema(fields: &[Field]) -> SchemaRef {
    let arrow = |field: &Field| {
        let kind = match field.kind {
            Kind::U64 => DataType::UInt64,
            Kind::F64 => DataType::Float64,
            Kind::F32 => DataType::Float32,
            Kind::Text => DataType::Utf8,
            Kind::Bool => DataType::Boolean,
        };
        ArrowField::new(field.name.as_str(), kind, true)
    };
    Arc::new(Schema::new(fields.iter().map(arrow).collect::<Vec<_>>()))
}

/// An Arrow array of the cells; a cell of another kind becomes a null (the schema's tests exclude it).
fn array<'a>(kind: Kind, cells: impl Iterator<Item = Value<'a>>) -> ArrayRef {
    match kind {
        Kind::U64 => Arc::new(UInt64Array::from_iter(cells.map(|cell| match cell {
            Value::U64(value) => Some(value),
            _ => None,
        }))),
        Kind::F64 => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
            Value::F64(value) => Some(value),
            _ => None,
        }))),
        Kind::F32 => Arc::new(Float32Array::from_iter(cells.map(|cell| match cell {
            Value::F32(value) => Some(value),
            _ => None,
        }))),
        Kind::Text => Arc::new(StringArray::from_iter(cells.map(|cell| match cell {
            Value::Text(value) => Some(value),
            _ => None,
        }))),
        Kind::Bool => Arc::new(BooleanArray::from_iter(cells.map(|cell| match cell {
            Value::Bool(value) => Some(value),
            _ => None,
        }))),
    }
}

/// Our own name as the file's creator: the Parquet library's version must not change the bytes.
pub(super) fn created_by() -> String {
    format!("servescape {} schema {SCHEMA_VERSION}", env!("CARGO_PKG_VERSION"))
}

/// Dictionaries only for configuration columns, byte-stream split for floats, zstd at its fastest level (higher levels
/// do not shrink full-mantissa numbers), and chunk statistics only.
fn properties(fields: &[Field]) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by(created_by())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(MAX_PART_ROWS));
    for field in fields {
        let path = ColumnPath::from(field.name.as_str());
        if field.dictionary {
            builder = builder.set_column_dictionary_enabled(path, true);
        } else if matches!(field.kind, Kind::F32 | Kind::F64) {
            builder = builder.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT);
        }
    }
    builder.build()
}
