"""Parts of `gpu_check.sh`: are the timed layers right on this device, and what did its runs find.

python benchmarks/gpu_check.py layers [--device cuda|cpu]
python benchmarks/gpu_check.py summary OUT [--cpu]

`layers` compares small models with a float64 reference. `summary` reads the run folders below OUT/runs, says what is
wrong with them, and puts the prices below OUT/prices beside the measured times. Both exit with 1 where something is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

SMALL = {"layers": 2, "hidden": 256, "q_heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 384, "vocab": 128}
SLIDING = {"attention": ["sliding", "full"], "window": 48}
EXPERTS = {"experts": {"count": 8, "top_k": 2, "inter": 128, "shared_inter": 64, "dense_layers": 1}}
PREFILL = {"phase": "prefill", "batch": 2, "isl": 160}
DECODE = {"phase": "decode", "batch": 3, "kvsl": 200}
CASES = {
    "prefill": (PREFILL, {}),
    "prefill in chunks": ({**PREFILL, "chunk": 64}, {}),
    "prefill, sliding": (PREFILL, SLIDING),
    "prefill, experts": (PREFILL, EXPERTS),
    "decode": (DECODE, {}),
    "decode, draft tokens": ({**DECODE, "draft_len": 3}, {}),
    "decode, sliding, draft tokens": ({**DECODE, "draft_len": 3}, SLIDING),
    "decode, experts": (DECODE, EXPERTS),
}
#: Norm-wise, as in tests/test_torch_ops.py.
BOUNDS = {"fp32": 2e-6, "bf16": 2e-2, "fp8": 8e-2}

#: Statuses of cases that this device or PyTorch cannot run; no failure.
EXPECTED = {"ok", "unsupported", "skipped", "rejected"}


OPTIONS = {"cuda": {"device": "cuda"}, "cpu": {"device": "cpu", "threads": 1}}


def layers(device: str) -> bool:
    """Compare every case in every format of the device; one that cannot be run is told with its reason."""
    import float64_layers
    import torch

    from harness.backends.base import CannotAnswer, Setting
    from harness.backends.torch_ops.backend import TorchBackend
    from harness.hardware import match_device_name
    from harness.spec.case import Case

    backend, right = TorchBackend(), True
    facts = backend.open(Setting(options=OPTIONS[device]))
    print(f"{facts.device}; {facts.versions}; {dict(facts.details)}")
    known = match_device_name(facts.device)
    system = (known.key if known else "?") if facts.gpu_uuids else "cpu"
    for weights in ("bf16", "fp8") if facts.gpu_uuids else ("fp32",):
        other = "fp32" if weights == "fp32" else "bf16"
        for name, (work, changes) in CASES.items():
            variant = {**SMALL, **changes, "weights": weights, "kv_format": other, "attn_format": other}
            case = Case.model_validate({"variant": variant, "workload": work, "system": system})
            try:
                arm = backend.prepare(case, "layer")
            except CannotAnswer as error:
                print(f"{weights:5} {name:30} cannot: {error.reason}")
                right = False
                continue
            with torch.inference_mode():
                found = float64_layers.computed(case, arm.stack, arm.stack.run())
            error = float64_layers.distance(found, float64_layers.reference(case, arm.stack))
            how = arm.facts.details
            good = bool(error < BOUNDS[weights])
            right = right and good
            print(f"{weights:5} {name:30} {'ok' if good else 'WRONG':6} {error:.1e}  {how['sdpa']}; {how['attention']}")
            arm.close()
    return right


def summary(out: Path, gpu: bool) -> bool:
    """Print what was measured, beside its price where there is one; say what no row may be."""
    runs = sorted((out / "runs").iterdir())
    if not runs:
        print("WRONG: nothing was measured")
    right = bool(runs)
    for run in runs:
        measured = _rows(run)
        prices = out / "prices" / run.name
        priced = _rows(prices) if prices.exists() else None
        print(f"\n{run.name}: {len(measured)} rows" + ("" if priced is not None else "; no prices here"))
        wrong = _wrong(measured, gpu)
        for line in (*_lines(measured, priced), *(f"WRONG: {text}" for text in wrong)):
            print(f"  {line}")
        right = right and not wrong
    return right


def _rows(run: Path):
    import harness

    found = harness.load(run)
    found["time_ms"] = found["step_ms"].fillna(found["prefill_compute_ms"])
    return found


def _wrong(rows, gpu: bool) -> list[str]:
    """What no row may be: failed, invalid, without telemetry; and that there is one at all."""
    texts = [f"{row.coordinates} {row.status}: {row.reason}" for row in rows.itertuples() if row.status not in EXPECTED]
    ok = rows[rows["status"] == "ok"]
    if ok.empty:
        texts.append("no row was measured")
    if gpu:
        blind = ok[~ok["telemetry_valid"].fillna(False).astype(bool)]
        texts += sorted({f"telemetry not valid: {note}" for note in blind["telemetry_note"]})
        if ok["power_w"].isna().any() or ok["sm_clock_mhz"].isna().any():
            texts.append("rows without power or clock")
    return texts


def _lines(measured, priced) -> list[str]:
    """A line per case: median over its processes, layers that ran, price, measured over price."""
    lines = [f"{'case':62} {'ms':>10} {'of':>3} {'layers':>6} {'price ms':>10} {'ratio':>6}"]
    for case_id, rows in measured.groupby("case_id", sort=False):
        first, ok = rows.iloc[0], rows[rows["status"] == "ok"]
        name = f"{first['series']} {first['coordinates']}"[:62]
        if ok.empty:
            lines.append(f"{name:62} {first['status']}: {first['reason']}")
            continue
        time_ms = ok["time_ms"].median()
        text = f"{name:62} {time_ms:10.3f} {len(ok):3} {ok['layers_run'].iloc[0]:6.0f}"
        price = None if priced is None else priced[(priced["case_id"] == case_id) & (priced["status"] == "ok")]
        if price is not None and len(price):
            text += f" {price['time_ms'].iloc[0]:10.3f} {time_ms / price['time_ms'].iloc[0]:6.2f}"
        elif priced is not None:
            text += "   no price"
        lines.append(text)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("layers").add_argument("--device", choices=list(OPTIONS), default="cuda")
    summing = parts.add_parser("summary")
    summing.add_argument("out", type=Path)
    summing.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    right = layers(given.device) if given.part == "layers" else summary(given.out, not given.cpu)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
