#!/usr/bin/env bash
# Compares cost models with measurements that they were not fitted on, for profiles/checks: transfers between GPUs, and tables
# of other publishers. profiles/recheck.sh AICONFIGURATOR FRONTIER VIDUR LLMSERVINGSIM takes the folders of the four sources;
# profiles/README.md says where each is published.
set -euo pipefail
cd "$(dirname "$0")/.."
servescape=${SERVESCAPE:-"cargo run --release --quiet --"}
mkdir -p profiles/checks

# check NAME GPU PROFILE TABLES ENGINE [FORMAT]
check() {
    echo "$1"
    $servescape profile check "$4" --gpu "$2" --profile "profiles/fitted/$3" --engine "$5" --format "${6:-aiconfigurator}" \
        --toml "profiles/checks/$1.toml" >/dev/null
}

check h200-from-h100 h200 h100-sxm/vllm-0.19 "$1/h200_sxm" vllm-0.18
check b200-from-h100 b200 h100-sxm/vllm-0.19 "$1/b200_sxm" vllm-0.19
check l40s-from-a100 l40s a100-80gb-sxm/vllm-0.14 "$1/l40s" vllm-0.14
check rtx-pro-6000-from-l40s rtx-pro-6000 l40s/vllm-0.24 "$1/rtx_pro_6000_server" vllm-0.24
check h800-frontier h800 h100-sxm/vllm-0.19 "$2/h800" frontier frontier
check a800-frontier a800 a100-80gb-sxm/vllm-0.14 "$2/a800" frontier-launch frontier
check a100-vidur a100-80gb-sxm a100-80gb-sxm/vllm-0.14 "$3/a100" vidur vidur
check h100-vidur h100-sxm h100-sxm/vllm-0.19 "$3/h100" vidur vidur
check rtx-pro-6000-llmservingsim rtx-pro-6000 rtx-pro-6000/vllm-0.19 "$4/RTXPRO6000" vllm-0.19 llmservingsim

echo "h800, frontier"
$servescape profile fit "$2/h800" --format frontier --engine frontier --gpu h800 --card-only \
    --out profiles/comparison/h800/frontier >/dev/null
