"""The command of the layer-wise benchmarks as the double answers it: flags, refusals, result lines.

    ./mpi_launch.sh ./run.sh config_gen.yaml --model MODEL --batch-size 1,8 --seq-len-kv-cache 4096

Flags, defaults and the order of what is printed are those of examples/layer_wise_benchmarks; nothing else is.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from pathlib import Path
from typing import Any

import yaml
from tensorrt_llm._double import cuda
from tensorrt_llm._double.era import era
from tensorrt_llm._utils import local_mpi_rank, mpi_rank
from tensorrt_llm.logger import logger
from tensorrt_llm.tools.layer_wise_benchmarks import BalanceMethod, Runner

_LISTS = ("batch_size_list", "seq_len_q_list", "seq_len_kv_cache_list", "balance_ratio_list")


def ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("config_path", type=str)
    made.add_argument("--model", type=str, help="Pretrained model name or path")
    made.add_argument("--layer-indices", type=ints, help="Comma separated indices of layers, a contiguous range")
    made.add_argument("--run-type", type=str, choices=["CTX", "GEN"])
    for name in (
        "scaled-from",
        "max-batch-size",
        "tokens-per-block",
        "max-seq-len",
        "max-num-tokens",
        "moe-max-num-tokens",
    ):
        made.add_argument(f"--{name}", type=int)
    for name in ("enable-attention-dp", "use-low-precision-moe-combine", "enable-autotuner", "use-cuda-graph"):
        made.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None)
    made.add_argument("--kv-cache-dtype", type=str, choices=["fp8", "nvfp4", "auto"])
    made.add_argument("--load-format", type=str, choices=["AUTO", "DUMMY"])
    made.add_argument("--moe-backend", type=str)
    made.add_argument("--moe-backend-for-prefill", type=str, choices=["CUTLASS", "DEEPGEMM", "WIDEEP"])
    made.add_argument("--batch-size", type=ints, dest="batch_size_list")
    made.add_argument("--seq-len-q", type=ints, dest="seq_len_q_list")
    made.add_argument("--seq-len-kv-cache", type=ints, dest="seq_len_kv_cache_list")
    made.add_argument("--balance-method", type=str)
    made.add_argument("--balance-ratio", type=floats, dest="balance_ratio_list")
    if era().calibrator:
        made.add_argument("--replay-file-path", type=str)
        made.add_argument("--replay-start-iter", type=int)
        made.add_argument("--replay-stop-iter", type=int)
    made.add_argument("--warmup-times", type=int, default=20)
    made.add_argument("--run-times", type=int, default=100)
    return made


def settle(args: argparse.Namespace) -> argparse.Namespace:
    """Command line over YAML over defaults; a key of the YAML that is no flag is a ValueError."""
    config: dict[str, Any] = yaml.safe_load(Path(args.config_path).read_text(encoding="utf-8"))
    del args.config_path
    for name, value in vars(args).items():
        key = name.removesuffix("_list")
        if key in config:
            given = config.pop(key)
            if value is None:
                setattr(args, name, given if name not in _LISTS or isinstance(given, list) else [given])
    if config:
        raise ValueError(f"Config {','.join(config)} from file are not options")
    defaults: dict[str, Any] = {
        "max_batch_size": max(args.batch_size_list),
        "max_seq_len": max(args.seq_len_q_list) + max(args.seq_len_kv_cache_list),
        "enable_attention_dp": False,
        "kv_cache_dtype": "auto",
        "load_format": "DUMMY",
        "moe_backend_for_prefill": "CUTLASS",
        "use_low_precision_moe_combine": False,
        "enable_autotuner": True,
        "use_cuda_graph": False,
        "balance_ratio_list": [None],
    }
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.max_num_tokens is None:
        args.max_num_tokens = args.max_batch_size * max(args.seq_len_q_list)
    return args


def make_runner(args: argparse.Namespace, mapping: Any, **changes: Any) -> Runner:
    given = {
        "load_format": args.load_format, "moe_backend": args.moe_backend, "layer_indices": args.layer_indices,
        "scaled_from": args.scaled_from, "max_seq_len": args.max_seq_len, "max_num_tokens": args.max_num_tokens,
        "moe_max_num_tokens": args.moe_max_num_tokens, "kv_cache_dtype": args.kv_cache_dtype,
        "use_low_precision_moe_combine": args.use_low_precision_moe_combine, "use_cuda_graph": args.use_cuda_graph,
    }  # fmt: skip
    return Runner(args.model, mapping, **{**given, **changes})


def fill_cache(args: argparse.Namespace, mapping: Any, cache: Any) -> None:
    """GEN reads a cache that a prefill wrote."""
    longest = max(args.seq_len_kv_cache_list)
    batch = min(args.max_batch_size, max(1, 20480 // longest))
    runner = make_runner(
        args, mapping, moe_backend=args.moe_backend_for_prefill, max_num_tokens=batch * longest,
        moe_max_num_tokens=16384,        use_cuda_graph=False,
    )  # fmt: skip
    number = max(args.batch_size_list)
    for begin in range(0, number, batch):
        run_pack = runner.create_run_pack(
            "CTX", batch_size=min(batch, number - begin), request_id_begin=begin, seq_len_q=longest, seq_len_kv_cache=0,
            kv_cache_manager=cache,
        )  # fmt: skip
        run_pack(check=True)


def timed(args: argparse.Namespace, runner: Runner, run_pack: Any, events: list[cuda.Event]) -> list[float]:
    """Microseconds of each run after the warm-up."""
    run_pack()
    graph = cuda.CUDAGraph()
    if args.use_cuda_graph:
        with cuda.graph(graph):
            run_pack()
    for event in events[:-1]:
        event.record()
        graph.replay() if args.use_cuda_graph else run_pack()
    events[-1].record()
    cuda.synchronize()
    times_ms = [start.elapsed_time(stop) for start, stop in itertools.pairwise(events)]
    return [time_ms * 1000 for time_ms in times_ms[args.warmup_times :]]


def result(problem: tuple[int, int, int, float | None], times_us: list[float]) -> str:
    batch, query, kv, ratio = problem
    ordered = sorted(times_us)
    p90 = statistics.quantiles(times_us, n=10, method="inclusive")[-1] if len(times_us) > 1 else times_us[0]
    scale = {"us": 1.0, "ms": 1e-3}[era().layer_wise_unit]
    numbers = {
        "mean": statistics.fmean(times_us), "median": statistics.median(times_us), "min": ordered[0],
        "max": ordered[-1],        "P90": p90,
    }  # fmt: skip
    order = "min max mean median P90" if era().layer_wise_line == "early" else "mean median min max P90"
    fields = [f"batch_size {batch}", f"seq_len_q {query}", f"seq_len_kv_cache {kv}"]
    fields += [] if ratio is None else [f"balance_ratio {ratio:.2g}"]
    fields += [f"{name} {numbers[name] * scale:.1f}" for name in order.split()]
    return "  ".join([f"[RANK {mpi_rank()}]", *fields, f"({era().layer_wise_unit})"])


def main() -> None:
    args = settle(parser().parse_args())
    print(args, flush=True)
    cuda.set_device(local_mpi_rank())
    logger.info("Layer-wise benchmarks: Create KV cache manager")
    mapping = Runner.create_mapping(enable_attention_dp=args.enable_attention_dp)
    cache = Runner.create_kv_cache_manager(
        args.model, mapping, tokens_per_block=args.tokens_per_block, max_batch_size=args.max_batch_size,
        max_seq_len=args.max_seq_len, kv_cache_dtype=args.kv_cache_dtype, layer_indices=args.layer_indices,
    )  # fmt: skip
    runner = make_runner(args, mapping)
    if args.run_type == "GEN":
        fill_cache(args, mapping, cache)
    problems = list(itertools.product(*(getattr(args, name) for name in _LISTS)))
    events = [cuda.Event(enable_timing=True) for _ in range(args.warmup_times + args.run_times + 1)]
    for phase in ("warm up", "measure"):
        for problem in problems:
            batch, query, kv, ratio = problem
            with runner.replace_routing_method_ctx(BalanceMethod[args.balance_method], ratio):
                run_pack = runner.create_run_pack(
                    args.run_type, batch_size=batch, request_id_begin=0, seq_len_q=query, seq_len_kv_cache=kv,
                    kv_cache_manager=cache,
                )  # fmt: skip
                if phase == "warm up":
                    run_pack(check=True)
                else:
                    print(result(problem, timed(args, runner, run_pack, events)), flush=True)
    cache_path = os.environ.get("TLLM_AUTOTUNER_CACHE_PATH")
    if args.enable_autotuner and cache_path:
        Path(cache_path).write_text("{}", encoding="utf-8")


if __name__ == "__main__":
    main()
