#!/usr/bin/env bash
# Fits every shipped profile again from AIConfigurator's kernel tables: profiles/refit.sh TABLES, where TABLES holds one
# folder per GPU system (or is the wheel of PyPI's aiconfigurator-core). The same tables give the same bytes.
#
# Per GPU the two engine versions that differ most in time among those with clean tables; see profiles/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
tables=$1
servescape=${SERVESCAPE:-"cargo run --release --quiet --"}

fit() {
    echo "$2, $3"
    $servescape profile fit "$tables/$1" --gpu "$2" --engine "$3" --out "profiles/fitted/$2/$3" >/dev/null
}

fit a100_sxm a100-80gb-sxm vllm-0.14
fit h100_sxm h100-sxm vllm-0.14
fit h100_sxm h100-sxm vllm-0.19
fit h200_sxm h200 vllm-0.14
fit h200_sxm h200 vllm-0.18
fit b200_sxm b200 vllm-0.19
fit b200_sxm b200 vllm-0.24
fit b300_sxm b300 vllm-0.19
fit b300_sxm b300 vllm-0.24
fit gb200 gb200 vllm-0.14
fit gb200 gb200 vllm-0.19
fit l40s l40s vllm-0.14
fit l40s l40s vllm-0.24
fit rtx_pro_6000_server rtx-pro-6000 vllm-0.19
fit rtx_pro_6000_server rtx-pro-6000 vllm-0.24
