use serde_json::Value;

use super::*;

fn catalog() -> Catalog {
    Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What `_published` of a model's file says.
struct Published {
    total: f64,
    active: f64,
    /// Counts that the published figure stands for, where it has too few digits for 1 %.
    active_range: Option<(f64, f64)>,
    counts: String,
}

fn published(name: &str) -> Published {
    let path = catalog().root().join(format!("models/{name}.json"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let facts = &file["_published"];
    assert!(facts["source"].as_str().is_some_and(|source| !source.is_empty()), "{name}: no source");
    Published {
        total: facts["total_params"].as_f64().unwrap(),
        active: facts["active_params"].as_f64().unwrap(),
        active_range: facts["active_range"][0].as_f64().zip(facts["active_range"][1].as_f64()),
        counts: facts["active_counts"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn computed_parameter_counts_match_the_published_ones() {
    for name in catalog().model_names() {
        let model = catalog().model(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(model.repository.is_some(), "{name}: no repository");
        let published = published(&name);
        let total = model.total_parameters() as f64;
        assert!((total / published.total - 1.0).abs() <= 0.01, "{name}: total {total:.4e} vs {:.4e}", published.total);
        let active = match published.counts.as_str() {
            "all" => model.active_parameters(),
            "without_input_embedding" => model.active_parameters() - model.embedding_parameters(),
            "without_embeddings" => {
                model.active_parameters() - model.embedding_parameters() - model.lm_head_parameters()
            }
            other => panic!("{name}: unknown `active_counts` {other}"),
        } as f64;
        let (least, most) = published.active_range.unwrap_or((0.99 * published.active, 1.01 * published.active));
        assert!((least..=most).contains(&active), "{name}: active {active:.4e} vs {:.4e}", published.active);
    }
}

#[test]
fn every_gpu_and_engine_file_is_valid() {
    let catalog = catalog();
    for name in catalog.gpu_names() {
        let gpu = catalog.gpu(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Guards against units: gibibytes for bytes, teraflops for flops, both directions for one.
        assert!((20e9..300e9).contains(&(gpu.memory_bytes as f64)), "{name}");
        assert!((1e14..3e15).contains(&gpu.bf16_flops), "{name}");
        assert!((2.5e11..9e12).contains(&gpu.memory_bytes_per_second), "{name}");
        assert!(gpu.scale_up.bytes_per_second() <= 900e9, "{name}");
        assert!(gpu.fp8_flops.is_none_or(|rate| rate > 1.9 * gpu.bf16_flops), "{name}");
    }
    for name in catalog.engine_names() {
        catalog.engine(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(catalog.engine_names().iter().any(|name| name == DEFAULT_ENGINE));
}

#[test]
fn the_promised_models_and_gpus_are_there() {
    let models = catalog().model_names();
    for name in [
        "llama-2-7b",
        "llama-2-70b",
        "codellama-34b",
        "llama-3.1-8b",
        "llama-3.1-8b-fp8",
        "llama-3.1-70b",
        "llama-3.1-70b-fp8",
        "llama-3.1-405b",
        "llama-3.1-405b-fp8",
        "llama-3.3-70b",
        "llama-3.3-70b-fp8",
        "llama-3.3-70b-fp4",
        "llama-4-scout",
        "mistral-nemo-12b",
        "mixtral-8x7b",
        "mixtral-8x22b",
        "yi-34b",
        "qwen2.5-7b",
        "qwen3-14b",
        "qwen3-32b",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "gpt-oss-120b",
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "minimax-m2.5",
        "step-3",
    ] {
        assert!(models.iter().any(|model| model == name), "{name}");
    }
    let gpus = catalog().gpu_names();
    for name in [
        "h20",
        "h100-sxm",
        "h100-pcie",
        "h200",
        "h800",
        "a100-40gb-sxm",
        "a100-80gb-sxm",
        "a100-40gb-pcie",
        "a100-80gb-pcie",
        "a800",
        "a10",
        "a30",
        "l4",
        "l40s",
        "rtx-4090",
        "rtx-pro-6000",
        "b200",
        "b300",
        "gb200",
    ] {
        assert!(gpus.iter().any(|gpu| gpu == name), "{name}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest_and_the_list() {
    let error = catalog().gpu("h10-sxm").unwrap_err();
    assert_eq!(error.0[0].message, "unknown GPU `h10-sxm`");
    let help = error.0[0].help.as_ref().unwrap();
    assert!(help.starts_with("did you mean `h100-sxm`?") && help.contains("rtx-4090"), "{help}");
    assert_eq!(catalog().model("llama-3.3-71b").unwrap_err().0[0].message, "unknown model `llama-3.3-71b`");
    assert_eq!(catalog().engine("vllm-0.1").unwrap_err().0[0].message, "unknown engine `vllm-0.1`");
}

#[test]
fn a_path_to_a_configuration_or_its_folder_works_like_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("My-Model");
    std::fs::create_dir(&inside).unwrap();
    std::fs::copy(catalog().root().join("models/llama-3.1-8b.json"), inside.join("config.json")).unwrap();
    let by_folder = catalog().model(inside.to_str().unwrap()).unwrap();
    let by_file = catalog().model(inside.join("config.json").to_str().unwrap()).unwrap();
    assert_eq!(by_folder, by_file);
    assert_eq!(by_folder.name, "My-Model");
    let missing = catalog().model("no/such/config.json").unwrap_err();
    assert!(missing.0[0].message.starts_with("cannot read `no/such/config.json`"), "{missing}");
}

#[test]
fn a_folder_without_models_and_profiles_is_no_catalog() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Catalog::open(folder.path()).unwrap_err().message.starts_with("no catalog in"));
    assert!(Catalog::locate(Some(folder.path())).is_err());
    assert_eq!(Catalog::locate(Some(catalog().root())).unwrap(), catalog());
}
