#!/usr/bin/env bash
# Does measuring work on this GPU? Under eight minutes, no network.
#
#   bash benchmarks/gpu_check.sh [--out DIR] [--wheels DIR] [--cpu]
#
#   1  small models on the device against a float64 reference, bf16 and FP8 weights
#   2  the studies gpu-check-group-size and gpu-check-head-size with --on torch: KVSL 8K to 128K, bf16 and FP8 GEMMs
#   3  what they cost in the published tables, where these are installed
#   4  a summary: rows that failed or have no valid telemetry, measured times beside prices
#
# Everything lands in DIR (reports/gpu-check): runs/, prices/, *.txt, and gpu-check.tar.gz with all of it. --wheels installs
# wheels from a folder into DIR first, without an index: what the machine's Python lacks of the harness's dependencies.
# --cpu runs the same steps on the processor with the study gpu-check-cpu, in well under a minute. $PYTHON is used where it
# is set. Exits 1 where a step failed; the other steps run all the same.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=reports/gpu-check wheels="" cpu=""
while (($#)); do
    case "$1" in
        --out) out="$2" && shift 2 ;;
        --wheels) wheels="$2" && shift 2 ;;
        --cpu) cpu=1 && shift ;;
        *) echo "unknown argument: $1" >&2 && exit 2 ;;
    esac
done
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
# All runs end by then; the summary and the archive take seconds.
deadline=$((SECONDS + 420))
studies=(gpu-check-group-size gpu-check-head-size) device=cuda options=(--replicates 3 --target-pct 1)
if [[ -n "$cpu" ]]; then
    studies=(gpu-check-cpu) device=cpu
    options=(--replicates 1 --target-pct 20 --threads 1 --backend-option device=cpu)
fi
failed=0

# step NAME COMMAND...: run it into OUT/NAME.txt and onto the terminal, say how long it took, remember a failure.
step() {
    local name="$1" started="$SECONDS" status
    shift
    printf '\n==> %s\n' "$name"
    "$@" 2>&1 | tee "$out/$name.txt"
    status="${PIPESTATUS[0]}"
    # 124: the time was up; what was measured until then is kept and summed up.
    if ((status != 0 && status != 124)); then
        failed=1
    fi
    printf '==> %s: exit code %s after %s s\n' "$name" "$status" "$((SECONDS - started))"
}

harness() {
    "$python" -m harness.cli.main "$@"
}

if [[ -n "$(ls -A "$out/runs" 2>/dev/null)" ]]; then
    echo "$out holds measured runs already, which are not thrown away; take another --out" >&2
    exit 2
fi
mkdir -p "$out/runs" "$out/prices" || exit 4
if [[ -n "$wheels" ]]; then
    "$python" -m pip install --quiet --no-index --no-deps --upgrade --target "$out/site" "$wheels"/*.whl || exit 4
    export PYTHONPATH="$PYTHONPATH:$PWD/$out/site"
fi

step layers "$python" benchmarks/gpu_check.py layers --device "$device"
for study in "${studies[@]}"; do
    left=$((deadline - SECONDS))
    if ((left < 20)); then
        echo "no time is left for $study" && failed=1
        continue
    fi
    step "run-$study" harness run "$study" --on torch --out "$out/runs/$study" --budget "${left}s" "${options[@]}"
done
if [[ -z "$cpu" ]] && "$python" -c "import aiconfigurator_core" 2>/dev/null; then
    for study in "${studies[@]}"; do
        step "price-$study" harness run "$study" --on tables --out "$out/prices/$study" --replace --no-report
    done
elif [[ -z "$cpu" ]]; then
    echo "The published tables are not installed here, so nothing is compared with them. Where they are:"
    for study in "${studies[@]}"; do
        echo "    trtllm-harness run $study --on tables --out $out/prices/$study --no-report"
    done
    echo "    python benchmarks/gpu_check.py summary $out"
fi
step summary "$python" benchmarks/gpu_check.py summary "$out" ${cpu:+--cpu}
# Written elsewhere first: a folder that changes while it is read is an error to tar.
archive="$(mktemp)"
tar --exclude=./site --exclude=./gpu-check.tar.gz -czf "$archive" -C "$out" . && mv "$archive" "$out/gpu-check.tar.gz" || failed=1
printf '\n%s s in all; everything is in %s\n' "$SECONDS" "$out"
exit "$failed"
