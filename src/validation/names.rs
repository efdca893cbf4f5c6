//! From the names that published measurements use to those of the catalogue.

use crate::catalog::NumberFormat;

use super::case::Formats;

/// A checkpoint: repository without its owner, precision as the source says it (empty: any), catalogue model, and the
/// format of the weights where it is not that of the catalogue's checkpoint.
type Checkpoint = (&'static str, &'static str, &'static str, Option<NumberFormat>);

/// The first entry that fits is taken.
const CHECKPOINTS: &[Checkpoint] = &[
    ("Llama-2-7b-hf", "", "llama-2-7b", None),
    ("CodeLlama-34b-Instruct-hf", "", "codellama-34b", None),
    ("Mixtral-8x7B-v0.1", "", "mixtral-8x7b", None),
    ("Mixtral-8x22B-Instruct-v0.1", "", "mixtral-8x22b", None),
    ("Mistral-Nemo-Instruct-2407", "", "mistral-nemo-12b", None),
    ("Llama-3.1-8B-Instruct", "fp8", "llama-3.1-8b-fp8", None),
    ("Llama-3.1-8B-Instruct", "", "llama-3.1-8b", None),
    ("Llama-3.1-8B", "", "llama-3.1-8b", None),
    ("Llama-3.1-8B-Instruct-FP8", "", "llama-3.1-8b-fp8", None),
    // The sample's name for the InferenceMAX runs of Llama-3.3-70B-Instruct-FP8 and -FP4.
    ("Llama-3.1-70B", "fp8", "llama-3.3-70b-fp8", None),
    ("Llama-3.1-70B", "fp4", "llama-3.3-70b-fp4", None),
    ("Llama-3.3-70B-Instruct-FP4", "", "llama-3.3-70b-fp4", None),
    ("Llama-3.1-70B-Instruct", "", "llama-3.1-70b", None),
    ("Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "", "llama-4-scout", Some(NumberFormat::Fp8)),
    ("Qwen2.5-7B-Instruct", "", "qwen2.5-7b", None),
    ("Qwen3-14B", "", "qwen3-14b", None),
    ("Qwen3-32B", "fp8", "qwen3-32b-fp8", None),
    ("Qwen3-32B", "fp4", "qwen3-32b", Some(NumberFormat::Nvfp4)),
    ("Qwen3-32B", "", "qwen3-32b", None),
    ("Qwen3-32B-NVFP4", "", "qwen3-32b", Some(NumberFormat::Nvfp4)),
    ("Qwen3-30B-A3B", "", "qwen3-30b-a3b", None),
    ("Qwen3-30B-A3B-Instruct-2507", "", "qwen3-30b-a3b", None),
    ("Qwen3-235B-A22B-FP8", "", "qwen3-235b-a22b-fp8", None),
    ("MiniMax-M2.5", "fp4", "minimax-m2.5", Some(NumberFormat::Nvfp4)),
    ("MiniMax-M2.5", "", "minimax-m2.5", None),
    // K2.5 is K2 with a vision tower, which text prompts do not use.
    ("Kimi-K2.5", "fp4", "kimi-k2", Some(NumberFormat::Nvfp4)),
    ("Kimi-K2.5", "int4", "kimi-k2", Some(NumberFormat::Int4)),
    ("gpt-oss-120b", "", "gpt-oss-120b", None),
    ("DeepSeek-V3", "fp4", "deepseek-v3", Some(NumberFormat::Nvfp4)),
    ("DeepSeek-V3", "", "deepseek-v3", None),
    ("DeepSeek-V3.1-NVFP4", "", "deepseek-v3", Some(NumberFormat::Nvfp4)),
];

/// GPUs by the names of the sources.
const GPUS: &[(&str, &str)] = &[
    ("h100_sxm", "h100-sxm"),
    ("H100", "h100-sxm"),
    ("H100 80GB", "h100-sxm"),
    ("H100 80GB SXM", "h100-sxm"),
    ("h200_sxm", "h200"),
    ("H20", "h20"),
    ("b200_sxm", "b200"),
    ("B200 180GB (Nebius)", "b200"),
    ("b300_sxm", "b300"),
    ("gb200", "gb200"),
    ("A100-80GB", "a100-80gb-sxm"),
    ("L40S", "l40s"),
    ("RTXPRO6000", "rtx-pro-6000"),
];

/// Catalogue model of a repository, and its formats. `precision` is what the source says of it: `fp8`, `fp4`, ...
pub(super) fn model(repository: &str, precision: &str) -> Result<(String, Formats), String> {
    let name = repository.rsplit_once('/').map_or(repository, |(_, name)| name);
    let entry = CHECKPOINTS.iter().find(|(known, format, ..)| {
        known.eq_ignore_ascii_case(name) && (format.is_empty() || format.eq_ignore_ascii_case(precision))
    });
    match entry {
        Some((_, _, model, weights)) => Ok(((*model).to_owned(), Formats { weights: *weights, ..Formats::default() })),
        None => Err(format!("the catalog has no model `{name}`")),
    }
}

/// Catalogue GPU.
pub(super) fn gpu(name: &str) -> Result<String, String> {
    let entry = GPUS.iter().find(|(known, _)| *known == name);
    entry.map(|(_, gpu)| (*gpu).to_owned()).ok_or_else(|| format!("the catalog has no GPU `{name}`"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn every_name_leads_to_an_entry_of_the_catalogue() {
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (models, gpus) = (catalog.model_names(), catalog.gpu_names());
        for (repository, _, model, _) in CHECKPOINTS {
            assert!(models.iter().any(|known| known == model), "{repository}");
        }
        for (name, gpu) in GPUS {
            assert!(gpus.iter().any(|known| known == gpu), "{name}");
        }
    }

    #[test]
    fn the_precision_chooses_the_checkpoint() {
        assert_eq!(model("Qwen/Qwen3-32B", "fp8").unwrap().0, "qwen3-32b-fp8");
        assert_eq!(model("Qwen/Qwen3-32B", "").unwrap().0, "qwen3-32b");
        assert!(model("zhipuai/GLM-5", "fp8").unwrap_err().contains("`GLM-5`"));
        assert!(gpu("MI300X").unwrap_err().contains("`MI300X`"));
    }
}
