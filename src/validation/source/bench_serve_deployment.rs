//! `NAME.deployment.toml`: the server behind the results in `NAME.json`, which do not say how it was started. Keys are
//! vLLM's own flags.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use crate::catalog::NumberFormat;
use crate::diag::{Diagnostic, Source, from_toml};

use super::super::case::{EngineVersion, Formats, GraphSetting, Limits, Split};
use super::super::table::{MOST_GPUS, read_text};

/// GPUs by the beginning of their names on which vLLM's server starts with larger batches: those with 70 GiB and more that
/// are not an A100 (`EngineArgs._set_default_args` in `vllm/engine/arg_utils.py`).
const LARGE: [&str; 7] = ["h100", "h20", "h800", "b200", "b300", "gb200", "rtx-pro-6000"];
/// `max_num_seqs` and `max_num_batched_tokens` of the server on large GPUs (same place), and on all others.
const LARGE_BATCHES: (u32, u32) = (1024, 8192);
const SMALL_BATCHES: (u32, u32) = (256, 2048);
/// `gpu_memory_utilization` of vLLM's `CacheConfig`.
const GPU_MEMORY_UTILIZATION: f64 = 0.9;

/// The file, checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentFile {
    /// GPU of the catalogue.
    pub(super) gpu: String,
    /// Model of the catalogue or path to its configuration; otherwise found by the `model_id` of the results.
    pub(super) model: Option<String>,
    #[serde(default = "vllm")]
    engine: String,
    version: Option<String>,
    quantization: Option<Spanned<String>>,
    kv_cache_dtype: Option<Spanned<String>>,
    tensor_parallel_size: Option<Spanned<u32>>,
    pipeline_parallel_size: Option<Spanned<u32>>,
    data_parallel_size: Option<Spanned<u32>>,
    #[serde(default)]
    enable_expert_parallel: bool,
    max_num_seqs: Option<Spanned<u32>>,
    max_num_batched_tokens: Option<Spanned<u32>>,
    max_model_len: Option<Spanned<u32>>,
    gpu_memory_utilization: Option<Spanned<f64>>,
    #[serde(default)]
    enforce_eager: bool,
    enable_chunked_prefill: Option<bool>,
    enable_prefix_caching: Option<bool>,
    async_scheduling: Option<bool>,
    max_cudagraph_capture_size: Option<u32>,
}

fn vllm() -> String {
    "vllm".to_owned()
}

/// Reads the file that belongs to these results.
pub(super) fn read(results: &Path) -> Result<DeploymentFile, Diagnostic> {
    let path = results.with_extension("deployment.toml");
    if !path.is_file() {
        let problem = format!("`{}` does not say how the server was started", results.display());
        let help = format!("write `{}`, at least with `gpu` and `version`; see docs/calibration.md", path.display());
        return Err(Diagnostic::new(problem).help(help));
    }
    let source = Arc::new(Source { name: path.display().to_string(), text: read_text(&path)? });
    let file: DeploymentFile = toml::from_str(&source.text).map_err(|error| from_toml(&error, &source))?;
    file.check(&source)?;
    Ok(file)
}

fn format_of(text: &str) -> Option<NumberFormat> {
    match text {
        "fp8" | "fp8_e4m3" | "fp8_e5m2" => Some(NumberFormat::Fp8),
        "nvfp4" => Some(NumberFormat::Nvfp4),
        "mxfp4" => Some(NumberFormat::Mxfp4),
        "int4" | "awq" | "gptq" => Some(NumberFormat::Int4),
        "bf16" | "bfloat16" => Some(NumberFormat::Bf16),
        _ => None,
    }
}

impl DeploymentFile {
    fn check(&self, source: &Arc<Source>) -> Result<(), Diagnostic> {
        let sizes = [
            ("tensor_parallel_size", &self.tensor_parallel_size, MOST_GPUS),
            ("pipeline_parallel_size", &self.pipeline_parallel_size, MOST_GPUS),
            ("data_parallel_size", &self.data_parallel_size, MOST_GPUS),
            ("max_num_seqs", &self.max_num_seqs, u32::MAX),
            ("max_num_batched_tokens", &self.max_num_batched_tokens, u32::MAX),
            ("max_model_len", &self.max_model_len, u32::MAX),
        ];
        for (key, value, most) in sizes {
            if let Some(value) = value.as_ref().filter(|value| *value.get_ref() == 0 || *value.get_ref() > most) {
                let problem = format!("`{key}` must be between 1 and {most}");
                return Err(Diagnostic::new(problem).at(source, value.span()));
            }
        }
        for (key, value) in [("quantization", &self.quantization), ("kv_cache_dtype", &self.kv_cache_dtype)] {
            if let Some(value) = value.as_ref().filter(|value| format_of(value.get_ref()).is_none()) {
                let problem = Diagnostic::new(format!("`{key}` has no known number format")).at(source, value.span());
                return Err(problem.help("known: fp8, nvfp4, mxfp4, int4, awq, gptq, bf16"));
            }
        }
        match &self.gpu_memory_utilization {
            Some(share) if !(*share.get_ref() > 0.0 && *share.get_ref() <= 1.0) => {
                let problem = "`gpu_memory_utilization` must be above 0 and at most 1";
                Err(Diagnostic::new(problem).at(source, share.span()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn quantization(&self) -> &str {
        self.quantization.as_ref().map_or("", |text| text.get_ref().as_str())
    }

    /// Formats that the file states.
    pub(super) fn formats(&self) -> Formats {
        let format = |text: &Option<Spanned<String>>| format_of(text.as_ref()?.get_ref());
        Formats { weights: format(&self.quantization), kv_cache: format(&self.kv_cache_dtype), activations: None }
    }

    pub(super) fn engine_version(&self) -> EngineVersion {
        EngineVersion::new(&self.engine, self.version.as_deref())
    }

    /// Experts are dealt out over all GPUs of a stage or cut like the other weights.
    pub(super) fn split(&self) -> Split {
        let size = |value: &Option<Spanned<u32>>| value.as_ref().map_or(1, |value| *value.get_ref());
        let (tensor, data) = (size(&self.tensor_parallel_size), size(&self.data_parallel_size));
        let gpus = tensor.saturating_mul(data);
        let (expert_tp, expert_parallel) = if self.enable_expert_parallel { (1, gpus) } else { (gpus, 1) };
        Split { pipeline: size(&self.pipeline_parallel_size), tensor, data, expert_tp, expert_parallel }
    }

    pub(super) fn limits(&self) -> Limits {
        let value = |value: &Option<Spanned<u32>>, default| value.as_ref().map_or(default, |value| *value.get_ref());
        let large = LARGE.iter().any(|name| self.gpu.starts_with(name));
        let (seqs, tokens) = if large { LARGE_BATCHES } else { SMALL_BATCHES };
        Limits {
            max_num_seqs: value(&self.max_num_seqs, seqs),
            max_num_batched_tokens: value(&self.max_num_batched_tokens, tokens),
            // Without it, as long as the longest request.
            max_model_len: value(&self.max_model_len, 1),
            gpu_memory_utilization: self
                .gpu_memory_utilization
                .as_ref()
                .map_or(GPU_MEMORY_UTILIZATION, |share| *share.get_ref()),
            cuda_graph: !self.enforce_eager,
            chunked_prefill: self.enable_chunked_prefill.unwrap_or(true),
            prefix_caching: self.enable_prefix_caching.unwrap_or(true),
            asynchronous: self.async_scheduling,
            graphs: GraphSetting { largest_tokens: self.max_cudagraph_capture_size, decode_only: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::diag::{Diagnostics, render};

    fn read_text_of(text: &str) -> Result<DeploymentFile, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.deployment.toml"), text).unwrap();
        read(&folder.path().join("a.json")).map_err(|problem| render(&Diagnostics::from(problem), false))
    }

    #[test]
    fn defaults_are_those_of_the_server() {
        let large = read_text_of("gpu = \"h200\"\n").unwrap();
        assert_eq!((large.limits().max_num_seqs, large.limits().max_num_batched_tokens), (1024, 8192));
        assert!(large.limits().cuda_graph && large.limits().prefix_caching);
        assert_eq!((large.split(), large.formats()), (Split::tensor(1), Formats::default()));
        assert_eq!(read_text_of("gpu = \"a100-80gb-sxm\"\n").unwrap().limits().max_num_seqs, 256);
        let split = read_text_of(
            "gpu = \"h200\"\ntensor_parallel_size = 2\ndata_parallel_size = 4\nenable_expert_parallel = true\n",
        );
        assert_eq!(split.unwrap().split(), Split { pipeline: 1, tensor: 2, data: 4, expert_tp: 1, expert_parallel: 8 });
    }

    #[test]
    fn mistakes_are_shown_in_their_place() {
        let message = |text: &str| read_text_of(text).err().unwrap();
        let unknown = message("gpu = \"h200\"\ntp = 2\n");
        assert!(unknown.contains("unknown key `tp`") && unknown.contains("a.deployment.toml:2:1"), "{unknown}");
        let zero = message("gpu = \"h200\"\nmax_num_seqs = 0\n");
        assert!(zero.contains("`max_num_seqs` must be between 1") && zero.contains(":2:16"), "{zero}");
        assert!(message("gpu = \"h200\"\nkv_cache_dtype = \"fp9\"\n").contains("no known number format"));
        assert!(message("version = \"0.15\"\n").contains("`gpu` is missing"));
    }
}
