#!/usr/bin/env bash
# Fits every shipped profile again from AIConfigurator's kernel tables: profiles/refit.sh TABLES, where TABLES holds one
# folder per GPU system (or is the wheel of PyPI's aiconfigurator-core). The same tables give the same bytes.
#
# Per GPU the two vLLM versions that differ most in time among those with clean tables, and the last lines of TensorRT-LLM and
# SGLang; see profiles/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
tables=$1
servescape=${SERVESCAPE:-"cargo run --release --quiet --"}

fit() {
    echo "$2, $3"
    $servescape profile fit "$tables/$1" --gpu "$2" --engine "$3" --out "profiles/fitted/$2/$3" >/dev/null
}

fit a100_sxm a100-80gb-sxm vllm-0.14
fit h100_sxm h100-sxm vllm-0.19
fit h100_sxm h100-sxm vllm-0.24
fit h100_sxm h100-sxm sglang-0.5
fit h100_sxm h100-sxm trtllm-1.3
fit h200_sxm h200 vllm-0.18
fit h200_sxm h200 vllm-0.24
fit h200_sxm h200 sglang-0.5
fit h200_sxm h200 trtllm-1.3
fit b200_sxm b200 vllm-0.19
fit b200_sxm b200 vllm-0.24
fit b200_sxm b200 trtllm-1.3
fit b300_sxm b300 vllm-0.19
fit b300_sxm b300 vllm-0.24
fit gb200 gb200 vllm-0.19
fit gb200 gb200 vllm-0.24
fit gb200 gb200 trtllm-1.3
fit l40s l40s vllm-0.14
fit l40s l40s vllm-0.24
fit rtx_pro_6000_server rtx-pro-6000 vllm-0.19
fit rtx_pro_6000_server rtx-pro-6000 vllm-0.24
