"""Memory and disk that weights take while they are written, beside the estimate and the limit: one layer at a time.

python benchmarks/build_memory.py [--variant dense-70b] [--layers 2] [--weights nvfp4]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness.engines.hf_config import hf_config
from harness.engines.quantization import quant_files
from harness.engines.weights import estimate, write_weights
from harness.engines.weights_layout import embedding_tensors, head_tensors, layer_tensors
from harness.spec.load import load_variant

GB = 1e9
SLACK_BYTES = 2e9


def files_of(name: str, layers: int, weights: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """config.json and hf_quant_config.json of a variant cut to some layers."""
    variant = load_variant(name, [f"layers={layers}", f"weights={weights}"])
    model = hf_config(variant)
    return model.config, quant_files(variant, model.architecture).hf_quant_config


def child(folder: str, name: str, layers: int, weights: str) -> None:
    """Write weights, and print the seconds of each step and the peak of this process."""
    config, quant = files_of(name, layers, weights)
    last = time.perf_counter()

    def progress(done: int, total: int, what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        print(f"  {done}/{total} after {now - last:5.0f} s, next {what}", file=sys.stderr, flush=True)
        last = now

    write_weights(config, quant, Path(folder), 0, progress)
    print(json.dumps({"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def run(name: str, layers: int, weights: str, folder: Path) -> tuple[float, float]:
    """Peak memory of a process that writes weights, and the most that stood in its folder."""
    most, done = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.1):
            most = max(most, sum(path.stat().st_size for path in folder.rglob("*") if path.exists()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = [sys.executable, __file__, "--variant", name, "--layers", str(layers), "--weights", weights]
    try:
        answer = subprocess.run([*command, "--child", str(folder)], check=True, stdout=subprocess.PIPE, text=True)
    finally:
        done.set()
        watcher.join()
    return float(json.loads(answer.stdout)["peak_bytes"]), float(most)


def main() -> int:
    """Print the table; 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="dense-70b")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--weights", default="nvfp4")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.variant, asked.layers, asked.weights)
        return 0
    config, quant = files_of(asked.variant, asked.layers, asked.weights)
    plan = estimate(config, quant)
    layer = layer_tensors(config, asked.layers - 1)
    layer_bytes = sum(tensor.bf16_bytes for tensor in layer)
    largest = max(tensor.bf16_bytes for tensor in [*layer, *embedding_tensors(config), *head_tensors(config)])
    with tempfile.TemporaryDirectory() as folder:
        memory, disk = run(asked.variant, asked.layers, asked.weights, Path(folder))
    rows = {
        "memory": (memory, plan.memory_bytes, 2 * layer_bytes + largest + SLACK_BYTES),
        "disk": (disk, plan.disk_bytes, plan.weight_bytes + SLACK_BYTES),
    }
    print(f"{asked.variant}, {asked.layers} layers of {layer_bytes / GB:.2f} GB in bf16, as {asked.weights}; in GB")
    print(f"{'':8}{'measured':>10}{'estimate':>10}{'limit':>8}")
    for what, (measured, estimated, limit) in rows.items():
        print(f"{what:8}{measured / GB:10.2f}{estimated / GB:10.2f}{limit / GB:8.2f}")
    return 0 if all(measured <= estimated <= limit for measured, estimated, limit in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
