//! A small world for tests: models by shape, three GPU types and one trace.

use std::path::Path;
use std::sync::Arc;

use super::lookup::Lookup;
use super::traffic::{Trace, TraceRow};
use crate::catalog::{Attention, Ffn, Gpu, Layer, Model, Precision, ScaleUp};
use crate::diag::{Diagnostic, Diagnostics, suggestion};
use crate::units::Ticks;

/// The lookup of tests.
pub(crate) struct Fake;

/// A dense model: 80 layers, 64 heads, 8 KV heads, FFN width 28672 (the shape of Llama-3-70B).
pub(crate) fn dense() -> Model {
    let ffn = Ffn::Dense { intermediate_size: 28_672 };
    model("dense-70b", 80, 64, 8, ffn)
}

/// A mixture of 8 experts of width 14336 (the shape of Mixtral-8x7B).
pub(crate) fn mixture() -> Model {
    let ffn = Ffn::MixtureOfExperts {
        experts: 8,
        top_k: 2,
        expert_intermediate_size: 14_336,
        shared_intermediate_size: 0,
        expert_bias: false,
    };
    model("moe-8x7b", 32, 32, 8, ffn)
}

fn model(name: &str, layers: usize, heads: u32, kv_heads: u32, ffn: Ffn) -> Model {
    let attention =
        Attention::Grouped { heads, kv_heads, head_dim: 128, qkv_bias: false, qk_norm: false, sinks: false };
    Model {
        name: name.into(),
        repository: None,
        hidden_size: heads * 128,
        vocab_size: 128_256,
        tied_embeddings: false,
        max_position_embeddings: 8192,
        attention,
        layers: vec![Layer { window: None, ffn }; layers],
        checkpoint: Precision::BF16,
        quantized: crate::catalog::Quantized::Linears,
    }
}

/// A GPU; `has_fp8` as on Hopper, without as on Ampere.
pub(crate) fn gpu(name: &str, has_fp8: bool) -> Gpu {
    Gpu {
        name: name.into(),
        sm_version: if has_fp8 { 90 } else { 80 },
        sm_count: 132,
        l2_bytes: 50_000_000,
        bf16_flops: 989e12,
        fp8_flops: has_fp8.then_some(1979e12),
        int8_flops: 1979e12,
        fp4_flops: None,
        memory_bytes_per_second: 3.35e12,
        memory_bytes: 80 << 30,
        scale_up: ScaleUp::NvLink { bytes_per_second: 450e9 },
        nic_bytes_per_second: 50e9,
        gpus_per_node: 8,
        power_watts: None,
        usd_per_hour: 3.0,
    }
}

fn unknown(kind: &str, name: &str, valid: &[&str]) -> Diagnostics {
    let diagnostic = Diagnostic::new(format!("unknown {kind} `{name}`"));
    match suggestion(name, valid) {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
    .into()
}

impl Lookup for Fake {
    fn model(&self, name: &str) -> Result<Arc<Model>, Diagnostics> {
        let named = |shape: Model| Model { name: name.into(), max_position_embeddings: 131_072, ..shape };
        match name {
            "dense-70b" => Ok(Arc::new(dense())),
            "moe-8x7b" => Ok(Arc::new(mixture())),
            "llama-3.3-70b" => Ok(Arc::new(named(dense()))),
            "llama-3.1-8b" => {
                let ffn = Ffn::Dense { intermediate_size: 14_336 };
                Ok(Arc::new(named(model("llama-3.1-8b", 32, 32, 8, ffn))))
            }
            _ => Err(unknown("model", name, &["dense-70b", "moe-8x7b"])),
        }
    }

    fn gpu(&self, name: &str) -> Result<Arc<Gpu>, Diagnostics> {
        match name {
            "h100-sxm" | "h800" => Ok(Arc::new(gpu(name, true))),
            "a100-80gb-sxm" => Ok(Arc::new(gpu(name, false))),
            _ => Err(unknown("GPU", name, &["h100-sxm", "h800", "a100-80gb-sxm"])),
        }
    }

    fn engines(&self) -> Vec<String> {
        vec!["vllm-0.15".into(), "vllm-0.19".into(), "sglang-0.5".into()]
    }

    fn scheduler_of(&self, engine: &str) -> Result<&'static str, Diagnostics> {
        Ok(if engine.starts_with("sglang") { "sglang" } else { "vllm-v1" })
    }

    fn schedulers(&self) -> Vec<&'static str> {
        vec!["vllm-v1"]
    }

    fn routers(&self) -> Vec<&'static str> {
        vec!["round_robin", "least_outstanding", "power_of_two"]
    }

    fn trace(&self, path: &Path) -> Result<Arc<Trace>, Diagnostics> {
        if !path.ends_with("ten.csv") {
            return Err(Diagnostic::new(format!("cannot read the trace `{}`", path.display())).into());
        }
        let rows = (0..10u32).map(|index| TraceRow {
            arrival: Ticks::from_seconds(f64::from(index)),
            prompt_tokens: 100 + index,
            output_tokens: 10,
            prefix: None,
        });
        Ok(Arc::new(Trace { name: "ten.csv".into(), rows: rows.collect() }))
    }

    fn lengths(&self, path: &Path, column: &str) -> Result<Vec<u32>, Diagnostics> {
        if column == "input" { Ok(vec![5, 6]) } else { Err(unknown("column", column, &[&path.to_string_lossy()])) }
    }
}
