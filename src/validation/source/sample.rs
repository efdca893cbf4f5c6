//! Samples of published points: one row per deployment and concurrency, mean TTFT and mean TPOT. Dated rows are InferenceMAX
//! runs, and all are taken to follow their protocol: a closed loop, requests of random lengths, end-of-sequence ignored,
//! no prefix caching. Of the others, those of another campaign have requests of the nominal lengths.

use std::collections::BTreeMap;
use std::path::Path;

use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::spec::{Arrival, Dialogue, LengthLaw, Traffic, Workload};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Metric, Peer, Run, RunTraffic, Split, Statistic,
};
use super::super::names;
use super::super::table::{Record, Table};
use super::{Format, has_columns};

pub(super) const FORMAT: Format = Format {
    name: "sample",
    summary: "CSV with `silicon_ttft_ms`, `silicon_tpot_ms`, `concurrency`, one row per published point",
    recognises: |_, text| has_columns(text, &COLUMNS),
    read,
};

const COLUMNS: [&str; 11] = [
    "id",
    "backend",
    "backend_version",
    "model_path",
    "system",
    "precision",
    "mode",
    "isl",
    "osl",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
];

/// Predictions of AIConfigurator for the points of a sample, in its folder.
const PEER_FILE: &str = "aiconfigurator_0.12_predictions.csv";
const PEER: &str = "AIConfigurator 0.12";

/// InferenceMAX: requests per client. All clients start at once on an idle server, and that burst is measured: the
/// client waits for its warm-up requests (none in the first runs) before it begins.
const REQUESTS_PER_CLIENT: usize = 10;
/// InferenceMAX: lengths are uniform from this share of the nominal one up to it (`--random-range-ratio 0.8`).
const SHORTEST_SHARE: f64 = 0.8;
/// Begins the ids of DeepSeek-R1 runs that the sample lists as DeepSeek-V3, which has the same shapes.
const DEEPSEEK_R1_ID: &str = "dsr1_";
/// Date of the run. Those without one whose ids have [`OTHER_CAMPAIGN`] are not InferenceMAX's, and two groups of them behave
/// differently. With prompts of a power of two and an engine that computes prompts first, the mean TTFT is half the time
/// to compute the prompts of all clients, and TPOT has little of it: requests of one length that stay in step. With
/// prompts of whole thousands TTFT is a fraction of that, as with random lengths. So it is with vLLM, which decodes beside
/// prompts, so that the delays of a real client set requests apart; none are simulated, and lengths are drawn there.
const DATE: &str = "measured";
/// In the ids of a campaign other than InferenceMAX.
const OTHER_CAMPAIGN: &str = "_epnone_";
/// InferenceMAX's server flags.
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
const GPU_MEMORY_UTILIZATION: f64 = 0.9;
/// How a launch script sets the most tokens of one iteration.
#[derive(Clone, Copy)]
enum Tokens {
    Fixed(u32),
    /// The longest request that it allows: input and output, and 200 for the chat template.
    LongestRequest,
}

/// Where the published launch scripts (github.com/SemiAnalysisAI/InferenceX, `benchmarks`) depart from that.
struct Recipe {
    /// Beginning of the engine's name.
    engine: &'static str,
    model: &'static str,
    /// Beginning of the GPU's name.
    gpu: &'static str,
    kv_cache: Option<NumberFormat>,
    activations: Option<NumberFormat>,
    gpu_memory_utilization: f64,
    /// `--async-scheduling`, which versions before 0.14 need to be told.
    asynchronous: Option<bool>,
    max_num_batched_tokens: Tokens,
    chunked_prefill: bool,
    /// The script deals out experts whatever the run's label says.
    always_expert_parallel: bool,
}

const DEFAULT_RECIPE: Recipe = Recipe {
    engine: "",
    model: "",
    gpu: "",
    kv_cache: None,
    activations: None,
    gpu_memory_utilization: GPU_MEMORY_UTILIZATION,
    asynchronous: None,
    max_num_batched_tokens: Tokens::Fixed(MAX_NUM_BATCHED_TOKENS),
    chunked_prefill: true,
    always_expert_parallel: false,
};

const ASYNCHRONOUS_FP8_CACHE: Recipe =
    Recipe { kv_cache: Some(NumberFormat::Fp8), asynchronous: Some(true), ..DEFAULT_RECIPE };

/// `gptoss_fp4_*_trt*.sh`: free_gpu_memory_fraction 0.85; chunked prefill is off by default.
const TENSORRT_GPT_OSS: Recipe = Recipe {
    engine: "trtllm",
    model: "gpt-oss-120b",
    gpu_memory_utilization: 0.85,
    max_num_batched_tokens: Tokens::Fixed(20_000),
    chunked_prefill: false,
    ..DEFAULT_RECIPE
};

/// `70b_fp?_*_trt_slurm.sh`.
const TENSORRT_LLAMA: Recipe = Recipe {
    engine: "trtllm",
    kv_cache: Some(NumberFormat::Fp8),
    max_num_batched_tokens: Tokens::LongestRequest,
    chunked_prefill: false,
    ..DEFAULT_RECIPE
};

/// The first that fits is taken.
const RECIPES: [Recipe; 11] = [
    Recipe { gpu: "b200", kv_cache: Some(NumberFormat::Fp8), activations: Some(NumberFormat::Fp8), ..TENSORRT_GPT_OSS },
    TENSORRT_GPT_OSS,
    Recipe { model: "llama-3.3-70b-fp8", gpu: "b200", max_num_batched_tokens: Tokens::Fixed(16_384), ..TENSORRT_LLAMA },
    Recipe { model: "llama-3.3-70b-fp8", ..TENSORRT_LLAMA },
    Recipe { model: "llama-3.3-70b-fp4", ..TENSORRT_LLAMA },
    Recipe { model: "llama-3.3-70b-fp8", ..ASYNCHRONOUS_FP8_CACHE },
    Recipe { model: "llama-3.3-70b-fp4", ..ASYNCHRONOUS_FP8_CACHE },
    // VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1; on Hopper Marlin kernels with bf16 inputs.
    Recipe { model: "gpt-oss-120b", gpu: "b200", activations: Some(NumberFormat::Fp8), ..ASYNCHRONOUS_FP8_CACHE },
    Recipe { model: "gpt-oss-120b", asynchronous: Some(true), ..DEFAULT_RECIPE },
    Recipe {
        model: "minimax-m2.5 fp8",
        gpu: "b200",
        gpu_memory_utilization: 0.95,
        always_expert_parallel: true,
        ..DEFAULT_RECIPE
    },
    Recipe { model: "kimi-k2 int4", gpu: "b200", gpu_memory_utilization: 0.97, ..DEFAULT_RECIPE },
];

fn recipe(engine: &str, model: &str, precision: &str, gpu: &str) -> &'static Recipe {
    let with_precision = format!("{model} {precision}");
    let fits = |recipe: &&Recipe| {
        (recipe.model == model || recipe.model == with_precision)
            && engine.starts_with(recipe.engine)
            && gpu.starts_with(recipe.gpu)
    };
    RECIPES.iter().find(fits).unwrap_or(&DEFAULT_RECIPE)
}

/// Version of the runs that do not say: the first ones, of October 2025.
const FIRST_VLLM: &str = "0.10.2";

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let table = Table::read(path, &COLUMNS)?;
    let peers = read_peers(&path.with_file_name(PEER_FILE))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    table.records().map(|record| read_case(record, &stem, &peers)).collect()
}

/// TTFT and TPOT by the point's id; none without the file.
fn read_peers(path: &Path) -> Result<BTreeMap<String, [f64; 2]>, Diagnostic> {
    let mut peers = BTreeMap::new();
    if path.is_file() {
        for record in Table::read(path, &["id", "ttft_ms", "tpot_ms"])?.records() {
            let id = record.required("id")?.to_owned();
            peers.insert(id, [record.number("ttft_ms")?, record.number("tpot_ms")?]);
        }
    }
    Ok(peers)
}

fn read_case(record: Record<'_>, stem: &str, peers: &BTreeMap<String, [f64; 2]>) -> Result<Case, Diagnostic> {
    let id = record.required("id")?.to_owned();
    let backend = record.required("backend")?;
    let mode = record.required("mode")?;
    let model = record.required("model_path")?.to_owned();
    let gpu = record.required("system")?.to_owned();
    let peer = peers.get(&id);
    let mean = |metric, column: &str, position: usize| -> Result<Measured, Diagnostic> {
        let peers = peer.map(|values| Peer::new(PEER, values[position])).into_iter().collect();
        Ok(Measured { metric, statistic: Statistic::Mean, value: record.number(column)?, peers })
    };
    let measured = vec![mean(Metric::Ttft, "silicon_ttft_ms", 0)?, mean(Metric::Tpot, "silicon_tpot_ms", 1)?];
    let group = if mode == "agg" { format!("{stem} {backend}") } else { format!("{stem} {backend} disaggregated") };
    let run = match refusal(record, mode, &model)? {
        Some(reason) => Err(reason),
        None => read_run(record, backend, &model, &gpu)?,
    };
    Ok(Case { group, id, model, gpu, run, measured })
}

/// Why a row is left alone.
fn refusal(record: Record<'_>, mode: &str, model: &str) -> Result<Option<String>, Diagnostic> {
    Ok(if mode != "agg" {
        Some("disaggregated serving is not simulated yet".to_owned())
    } else if model.contains("DeepSeek-R1") || record.required("id")?.starts_with(DEEPSEEK_R1_ID) {
        Some("DeepSeek-R1 rows mix speculative and plain decoding without saying which".to_owned())
    } else if record.optional_count("concurrency")?.is_none() {
        Some("the concurrency is not recorded".to_owned())
    } else {
        None
    })
}

fn read_run(record: Record<'_>, backend: &str, model: &str, gpu: &str) -> Result<Result<Run, String>, Diagnostic> {
    let (isl, osl) = (record.count("isl")?, record.count("osl")?);
    let clients = record.count("concurrency")?;
    let mut split = read_split(record)?;
    let precision = record.text("precision").unwrap_or_default();
    let version = record.text("backend_version").or((backend == "vllm").then_some(FIRST_VLLM));
    let names = names::model(model, precision).and_then(|model| Ok((model, names::gpu(gpu)?)));
    let ((model, mut formats), gpu) = match names {
        Ok(names) => names,
        Err(reason) => return Ok(Err(reason)),
    };
    let recipe = recipe(backend, &model, precision, &gpu);
    (formats.kv_cache, formats.activations) = (recipe.kv_cache, recipe.activations);
    if recipe.always_expert_parallel {
        (split.expert_tp, split.expert_parallel) = (1, split.expert_tp * split.expert_parallel);
    }
    let tokens = match recipe.max_num_batched_tokens {
        Tokens::Fixed(tokens) => tokens,
        Tokens::LongestRequest => isl.saturating_add(osl).saturating_add(200),
    };
    let limits = Limits {
        max_num_seqs: clients,
        max_num_batched_tokens: tokens.max(clients),
        max_model_len: isl.saturating_add(osl),
        gpu_memory_utilization: recipe.gpu_memory_utilization,
        cuda_graph: true,
        chunked_prefill: recipe.chunked_prefill,
        prefix_caching: false,
        asynchronous: recipe.asynchronous,
        graphs: GraphSetting::default(),
    };
    let other_campaign = record.text(DATE).is_none() && record.required("id")?.contains(OTHER_CAMPAIGN);
    let in_step = other_campaign && isl.is_power_of_two() && backend != "vllm";
    let workload = Workload {
        requests: clients as usize * REQUESTS_PER_CLIENT,
        warmup: 0,
        traffic: Traffic::Synthetic {
            arrival: Arrival::Closed { clients: vec![clients] },
            input: lengths(isl, in_step),
            output: lengths(osl, in_step),
            dialogue: Dialogue::NONE,
        },
    };
    let traffic = RunTraffic::Drawn { workload, repetitions: 1 };
    let engine = EngineVersion::new(backend, version);
    Ok(Ok(Run { model, formats, gpu, engine, split, limits, traffic }))
}

fn lengths(nominal: u32, fixed: bool) -> LengthLaw {
    if fixed {
        return LengthLaw::Fixed(nominal);
    }
    let shortest = libm::floor(f64::from(nominal) * SHORTEST_SHARE) as u32;
    LengthLaw::Uniform { min: shortest.max(1), max: nominal }
}

/// The split as the row has it, but for two slips of the sample that show in impossible numbers of GPUs. Where tensor and
/// expert parallelism span the same N GPUs, `tp_size` or `attention_dp_size` is given as N x N (e.g. 64 on a node of
/// eight). Where attention is tensor-parallel and experts are dealt out over N GPUs, `attention_dp_size` is given as N too
/// and `moe_ep_size` as N x N: the launch scripts of these runs know no data-parallel attention, and the sample has some
/// of the same measurements without it.
fn read_split(record: Record<'_>) -> Result<Split, Diagnostic> {
    let size = |column: &str| Ok::<u32, Diagnostic>(record.group_size(column)?.unwrap_or(1));
    let (pipeline, tensor) = (size("pp_size")?, size("tp_size")?);
    let (expert_tp, expert_parallel) = (size("moe_tp_size")?, size("moe_ep_size")?);
    // Where the ranks are not recorded, the GPUs of the experts say how many there are.
    let ranks = record.group_size("attention_dp_size")?;
    let data = ranks.unwrap_or_else(|| {
        let experts = expert_tp * expert_parallel;
        if experts.is_multiple_of(tensor) { (experts / tensor).max(1) } else { 1 }
    });
    let gpus = tensor * data;
    let side = expert_tp;
    if side > 1 && side == expert_parallel && gpus == side * side && (gpus > 8 || data == gpus) {
        let (tensor, data) = if data > 1 { (1, side) } else { (side, 1) };
        return Ok(Split { pipeline, tensor, data, expert_tp: 1, expert_parallel: side });
    }
    if tensor > 1 && tensor == data && expert_parallel == gpus {
        return Ok(Split { pipeline, tensor, data: 1, expert_tp: 1, expert_parallel: tensor });
    }
    // Sizes of experts that are not recorded, or do not cover the GPUs, mean tensor parallelism.
    if expert_tp * expert_parallel == gpus {
        Ok(Split { pipeline, tensor, data, expert_tp, expert_parallel })
    } else {
        Ok(Split { pipeline, tensor, data, expert_tp: gpus, expert_parallel: 1 })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEADER: &str = "id,backend,backend_version,model_path,system,precision,mode,isl,osl,tp_size,pp_size,\
                          attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms,concurrency,measured";

    const DATED: &str = ",2025-10-29";

    fn cases(rows: &[&str]) -> Vec<Case> {
        let rows: Vec<String> = rows.iter().map(|row| format!("{row}{DATED}")).collect();
        read_rows(&rows.join("\n"))
    }

    fn read_rows(rows: &str) -> Vec<Case> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample_test.csv");
        fs::write(&path, format!("{HEADER}\n{rows}\n")).unwrap();
        fs::write(folder.path().join(PEER_FILE), "id,ttft_ms,tpot_ms\na,50,5\n").unwrap();
        read(&path).unwrap()
    }

    #[test]
    fn a_row_is_a_closed_loop_with_its_peer() {
        let rows = cases(&["a,vllm,,meta-llama/Llama-3.1-70B,h200_sxm,fp8,agg,1000,100,2,1,,2,1,40.5,8,16"]);
        let run = rows[0].run.as_ref().unwrap();
        assert_eq!(
            (rows[0].group.as_str(), run.model.as_str(), run.gpu.as_str()),
            ("sample_test vllm", "llama-3.3-70b-fp8", "h200")
        );
        assert_eq!(run.formats.kv_cache, Some(NumberFormat::Fp8));
        assert_eq!((run.split, run.engine.number()), (Split::tensor(2), Some((0, 10))));
        let stream = run.traffic.streams().remove(0);
        assert_eq!((stream.clients, stream.warmup, stream.requests.len()), (Some(16), 0, 160));
        assert!(stream.requests.iter().all(|request| (800..=1000).contains(&request.prompt_tokens)));
        assert!(stream.requests.iter().all(|request| (80..=100).contains(&request.output_tokens)));
        assert_eq!(rows[0].measured[1].value, 8.0);
        assert_eq!(rows[0].measured[0].peers, [Peer::new(PEER, 50.0)]);
    }

    #[test]
    fn undated_requests_of_prompts_first_engines_are_all_as_long_if_prompts_are_a_power_of_two() {
        let rows = read_rows("a_epnone_1,sglang,0.5.1,Qwen/Qwen3-32B,h100_sxm,,agg,1024,100,2,1,,1,1,40.5,8,16,");
        let stream = rows[0].run.as_ref().unwrap().traffic.streams().remove(0);
        assert!(stream.requests.iter().all(|request| (request.prompt_tokens, request.output_tokens) == (1024, 100)));
    }

    #[test]
    fn rows_that_cannot_be_simulated_stay_with_their_reason() {
        let rows = cases(&[
            "b,vllm,0.19.0,some/Unknown-9B,h200_sxm,fp8,agg,1000,100,2,1,,2,1,40.5,8,16",
            "c,sglang,0.5.9,deepseek-ai/DeepSeek-R1,h200_sxm,fp8,agg,1000,100,8,1,,8,1,40.5,8,16",
            "dsr1_x,sglang,0.5.9,deepseek-ai/DeepSeek-V3,h200_sxm,fp8,agg,1000,100,8,1,,8,1,40.5,8,16",
            "d,trtllm,1.2,Qwen/Qwen3-32B,gb200,fp4,disagg,1000,100,,,,,,40.5,8,16",
            "e,vllm,0.12.0,Qwen/Qwen3-32B,mi300x,,agg,1000,100,2,1,,2,1,40.5,8,16",
            "f,vllm,0.12.0,Qwen/Qwen3-32B,h100_sxm,,agg,1000,100,2,1,,2,1,40.5,8,",
        ]);
        let reasons: Vec<&str> = rows.iter().map(|case| case.run.as_ref().unwrap_err().as_str()).collect();
        for (reason, part) in
            reasons.iter().zip(["Unknown-9B", "speculative", "speculative", "disaggregated", "mi300x", "concurrency"])
        {
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(rows[3].group, "sample_test trtllm disaggregated");
    }

    #[test]
    fn launch_scripts_add_what_the_rows_leave_out() {
        let row = |gpu: &str, model: &str, precision: &str| {
            format!("a,vllm,0.19.0,{model},{gpu},{precision},agg,1000,100,4,1,1,4,1,40.5,8,16")
        };
        let run =
            |gpu: &str, model: &str, precision: &str| cases(&[&row(gpu, model, precision)]).remove(0).run.unwrap();
        let blackwell = run("b200_sxm", "openai/gpt-oss-120b", "fp4");
        assert_eq!(blackwell.formats.activations, Some(NumberFormat::Fp8));
        assert_eq!(run("h100_sxm", "openai/gpt-oss-120b", "fp4").formats.activations, None);
        let split = run("b200_sxm", "MiniMaxAI/MiniMax-M2.5", "fp8").split;
        assert_eq!((split.tensor, split.expert_tp, split.expert_parallel), (4, 1, 4));
        assert_eq!(run("b200_sxm", "MiniMaxAI/MiniMax-M2.5", "fp4").split, Split::tensor(4));
    }

    #[test]
    fn impossible_numbers_of_gpus_are_read_as_what_they_must_mean() {
        let split = |sizes: &str| {
            let row = format!("a,trtllm,1.2,openai/gpt-oss-120b,b200_sxm,fp4,agg,1000,100,{sizes},40.5,8,16");
            cases(&[&row])[0].run.as_ref().unwrap().split
        };
        let ep8 = Split { pipeline: 1, tensor: 8, data: 1, expert_tp: 1, expert_parallel: 8 };
        assert_eq!(split("64,1,1,8,8"), ep8);
        assert_eq!(split("1,1,64,8,8"), Split { tensor: 1, data: 8, ..ep8 });
        assert_eq!(split("4,1,4,1,16"), Split { tensor: 4, expert_parallel: 4, ..ep8 });
        assert_eq!(split("4,1,1,2,2"), Split { tensor: 4, data: 1, expert_tp: 2, expert_parallel: 2, pipeline: 1 });
        assert_eq!(split("4,1,,1,1"), Split::tensor(4));
        assert_eq!(split("2,1,,4,1"), Split { tensor: 2, data: 2, expert_tp: 4, expert_parallel: 1, pipeline: 1 });
        assert_eq!(split("2,1,0,0,0"), Split::tensor(2));
    }
}
