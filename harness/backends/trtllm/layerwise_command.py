"""The layer-wise runner as a command, from a checkout: examples/layer_wise_benchmarks/run.py, one process per rank.

One process times many problems; a sample is the median of a few iterations, as the command prints no single ones. A
list may name a batch many times, and every time is another sample. Flags and result lines: run.py at f4faed1 (lists are
given as `--batch-size 1,8`) and at 042f3c0 (`--batch-size-list 1,8`); which a checkout has is read in its text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.launch import for_own_ranks, mpirun_command
from harness.backends.trtllm.layerwise_problem import Problem
from harness.backends.trtllm.settings_folder import EngineSettings
from harness.errors import UnreadableInput

#: Iterations whose median is a sample, and those before them.
RUN_TIMES, WARMUP_TIMES = 10, 3

_TO_OWN_FILE = 'exec "$@" >"$0.${OMPI_COMM_WORLD_RANK:-0}"'

_LINE = re.compile(r"\[RANK (?P<rank>\d+)\]\s+(?P<fields>batch_size\s.*)")
_FIELD = re.compile(r"(?P<name>[A-Za-z_0-9]+) (?P<value>[0-9.eE+-]+)(?=\s|$)")
_NEEDED = ("batch_size", "seq_len_q", "seq_len_kv_cache", "median")

#: Batch, query tokens, cached tokens.
Shape = tuple[int, int, int]


class LayerCommand:
    """Runs the command for all problems that it was told of, and keeps what it printed until it is asked for."""

    def __init__(
        self, settings: EngineSettings, checkout: Path, moe_backend: str, ranks: int, scaled_from: int | None
    ) -> None:
        self._settings, self._moe_backend, self._ranks, self._scaled = settings, moe_backend, ranks, scaled_from
        self._folder = checkout.resolve() / "examples" / "layer_wise_benchmarks"
        self._problems: list[Problem] = []
        self._samples: dict[Problem, list[float]] = defaultdict(list)

    def expect(self, problem: Problem) -> None:
        """Have this problem be among those that a process times."""
        if problem not in self._problems:
            self._problems.append(problem)

    def times_ms(self, problem: Problem, count: int) -> list[float]:
        """Return `count` samples. Raises CannotAnswer where the command fails."""
        while len(self._samples[problem]) < count:
            before = len(self._samples[problem])
            self._run_all(count)
            if len(self._samples[problem]) == before:
                raise CannotAnswer("the layer-wise command printed no result for this case", "invalid")
        taken, self._samples[problem] = self._samples[problem][:count], self._samples[problem][count:]
        return taken

    def _run_all(self, repeats: int) -> None:
        alike: dict[tuple[object, str, int], list[Problem]] = defaultdict(list)
        for problem in self._problems:
            alike[problem.part, problem.run_type, problem.query].append(problem)
        for problems in alike.values():
            for batches, kvs in _rectangles(problems):
                self._run(problems[0], batches, kvs, repeats)

    def _run(self, first: Problem, batches: Sequence[int], kvs: Sequence[int], repeats: int) -> None:
        flags = self._flags(first, list(batches) * repeats, kvs)
        command = [sys.executable, "-u", "run.py", f"config_{first.run_type.lower()}.yaml", *flags]
        lines = self._output(command)
        try:
            results = parse_results(lines, "the layer-wise command")
        except UnreadableInput as error:
            raise CannotAnswer(str(error), "invalid") from error
        found = slowest_ranks(results, self._ranks)
        for problem in self._problems:
            if (problem.part, problem.run_type, problem.query) == (first.part, first.run_type, first.query):
                self._samples[problem] += found.get((problem.batch, problem.query, problem.kv), [])

    def _output(self, command: list[str]) -> list[str]:
        """Run it, and return what its ranks wrote to stdout; stderr is that of this process."""
        with tempfile.TemporaryDirectory() as folder:
            # mpirun mixes the lines of ranks, and may cut them; so each has a file.
            command = ["sh", "-c", _TO_OWN_FILE, f"{folder}/rank", *command]
            if self._ranks > 1:
                command = mpirun_command(self._ranks, command)
            environment = dict(for_own_ranks(os.environ).variables)
            done = subprocess.run(command, cwd=self._folder, env=environment, stdout=sys.stderr, check=False)
            texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(Path(folder).iterdir())]
        lines = [line for text in texts for line in text.splitlines()]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        if done.returncode != 0:
            raise CannotAnswer(f"the layer-wise command ended with {done.returncode}: {_last(lines)}", "invalid")
        return lines

    def _flags(self, problem: Problem, batches: Sequence[int], kvs: Sequence[int]) -> list[str]:
        part, fields, cache = problem.part, self._settings.fields, self._settings.part("kv_cache_config")
        list_of = "-list" if "--batch-size-list" in (self._folder / "run.py").read_text(encoding="utf-8") else ""
        dp = "enable-attention-dp" if fields.get("enable_attention_dp") else "no-enable-attention-dp"
        flags = {
            "model": self._settings.engine.path,
            "layer-indices": _listed(part.layers),
            "run-type": problem.run_type,
            "tokens-per-block": cache.get("tokens_per_block", 32),
            "max-batch-size": max(batches),
            "max-seq-len": problem.query + max(kvs),
            "max-num-tokens": max(max(batches) * problem.query, problem.query + max(kvs)),
            "moe-backend": self._moe_backend,
            f"batch-size{list_of}": _listed(batches),
            f"seq-len-q{list_of}": problem.query,
            f"seq-len-kv-cache{list_of}": _listed(kvs),
            "balance-method": part.balance_method,
            "warmup-times": WARMUP_TIMES,
            "run-times": RUN_TIMES,
        }
        if not list_of:
            flags |= {"kv-cache-dtype": cache.get("dtype", "auto"), "load-format": _load_format(fields)}
        if self._scaled:
            flags["scaled-from"] = self._scaled
        if part.balance_ratio is not None:
            flags[f"balance-ratio{list_of}"] = part.balance_ratio
        graph = "use-cuda-graph" if problem.run_type == "GEN" else "no-use-cuda-graph"
        return [f"--{dp}", f"--{graph}", *(text for name, value in flags.items() for text in (f"--{name}", str(value)))]


def parse_results(lines: Iterable[str], where: str) -> list[tuple[int, Shape, float]]:
    """Return rank, shape and median in ms of every result line.

    Raises UnreadableInput with the line where one lacks a figure or is of another unit than µs.
    """
    found = []
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        values = {one["name"]: one["value"] for one in _FIELD.finditer(match["fields"])}
        missing = [name for name in _NEEDED if name not in values]
        if missing or not match["fields"].rstrip().endswith("(us)"):
            raise UnreadableInput(
                f"{where}: a result line of a form that is not known, without {', '.join(missing) or '(us)'}: "
                f"{line.strip()!r}"
            )
        shape = (int(values["batch_size"]), int(values["seq_len_q"]), int(values["seq_len_kv_cache"]))
        found.append((int(match["rank"]), shape, float(values["median"]) / 1000))
    return found


def slowest_ranks(results: Iterable[tuple[int, Shape, float]], ranks: int) -> Mapping[Shape, list[float]]:
    """Of each sample of a shape the slowest rank; samples that not every rank told are left out."""
    by_rank: dict[Shape, list[list[float]]] = {}
    for rank, shape, time_ms in results:
        by_rank.setdefault(shape, [[] for _ in range(ranks)])[rank].append(time_ms)
    return {shape: [max(sample) for sample in zip(*told, strict=False)] for shape, told in by_rank.items()}


def _rectangles(problems: Sequence[Problem]) -> list[tuple[list[int], list[int]]]:
    """Lists of batches and KV lengths whose products are these problems and no others."""
    by_kv: dict[int, list[int]] = defaultdict(list)
    for problem in problems:
        by_kv[problem.kv].append(problem.batch)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for kv, batches in by_kv.items():
        alike[tuple(sorted(batches))].append(kv)
    return [(list(batches), kvs) for batches, kvs in alike.items()]


def _load_format(fields: Mapping[str, object]) -> str:
    return "DUMMY" if str(fields.get("load_format", "dummy")).lower() == "dummy" else "AUTO"


def _listed(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _last(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
