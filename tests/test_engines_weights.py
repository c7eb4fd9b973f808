from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from weights_engines import DENSE, MLA, MOE, Files, build, contents, tensors_of

from harness.engines import weights_slices
from harness.engines.module_formats import ModuleFormats
from harness.engines.safetensors_shards import read_shard
from harness.engines.weights import estimate
from harness.engines.weights_build import calibration_tokens
from harness.engines.weights_check import verify_weights
from harness.engines.weights_init import random_tensor
from harness.engines.weights_layout import (
    embedding_tensors,
    format_of,
    fused_modules,
    head_tensors,
    layer_tensors,
)
from harness.engines.weights_packages import quiet

pytestmark = pytest.mark.modelopt

Built = Callable[[Files], Path]
TWO = {**DENSE, "layers": 2}


@pytest.fixture
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return lambda files: build(files, tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices are done before threads have found each other."""
    torch = importlib.import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def sources(files: Files, seed: int = 7) -> dict[str, Any]:
    """The bf16 model that an engine was made from, tensor by tensor."""
    tensors = [*embedding_tensors(files.config), *head_tensors(files.config)]
    for layer in range(files.config["num_hidden_layers"]):
        tensors += layer_tensors(files.config, layer)
    return {tensor.name: random_tensor(tensor, files.config, seed) for tensor in tensors}


def check_against_arithmetic(files: Files, folder: Path) -> dict[str, int]:
    """Compare every weight with the documented arithmetic, bit for bit; return how many there are of each format."""
    arithmetic = importlib.import_module("weights_arithmetic")
    found, source, formats = tensors_of(folder), sources(files), ModuleFormats.read(files.quant)
    layers = range(files.config["num_hidden_layers"])
    matrices = [one for layer in layers for one in layer_tensors(files.config, layer)]
    partners = {module: group for group in fused_modules(tensor.module for tensor in matrices) for module in group}
    counts: dict[str, int] = {}
    for tensor in matrices:
        stored_as = format_of(tensor, formats)
        counts[stored_as] = counts.get(stored_as, 0) + 1
        weight = source[tensor.name]
        if stored_as == "bf16":
            assert found[tensor.name].equal(weight), tensor.name
            continue
        group = partners.get(tensor.module, (tensor.module,))
        amax = max(float(source[f"{module}.weight"].abs().max()) for module in group)
        stored = {}
        for name, want in arithmetic.quantised(weight, stored_as, amax).items():
            got = stored[name] = found[f"{tensor.module}.{name}"]
            assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{tensor.module}.{name}"
            assert got.view(-1).view(torch_bytes()).equal(want.view(-1).view(torch_bytes())), f"{tensor.module}.{name}"
        error = (arithmetic.dequantised(stored, stored_as) - weight.float()).abs()
        assert bool((error <= arithmetic.error_bound(weight, stored, stored_as)).all()), tensor.name
    return counts


def torch_bytes() -> Any:
    return importlib.import_module("torch").uint8


@pytest.mark.parametrize("head_dim", [64, pytest.param(128, marks=pytest.mark.thorough), 256])
@pytest.mark.parametrize("weights", ["fp8", "nvfp4"])
def test_a_dense_variant_is_the_documented_arithmetic_of_its_source(built: Built, head_dim: int, weights: str) -> None:
    files = Files.of(DENSE, head_dim=head_dim, weights=weights, kv_format="fp8")
    folder = built(files)
    assert verify_weights(folder) == []
    assert check_against_arithmetic(files, folder) == {weights: 4 * 7, "bf16": 4 * 2}
    layer = {
        name.removeprefix("model.layers.3."): (str(one.dtype).removeprefix("torch."), tuple(one.shape))
        for name, one in tensors_of(folder).items()
        if name.startswith("model.layers.3.")
    }
    queries = 16 * head_dim
    scalars = ("input_scale", "weight_scale") if weights == "fp8" else ("input_scale", "weight_scale_2")
    assert {layer[f"self_attn.{one}_proj.{scale}"] for one in "qkvo" for scale in scalars} == {("float32", ())}
    assert layer["self_attn.k_proj.k_scale"] == layer["self_attn.v_proj.v_scale"] == ("float32", ())
    if weights == "fp8":
        assert layer["self_attn.q_proj.weight"] == ("float8_e4m3fn", (queries, 128))
        assert layer["mlp.down_proj.weight"] == ("float8_e4m3fn", (128, 256))
        assert len(layer) == 7 * 3 + 2 + 2
    else:
        assert layer["self_attn.o_proj.weight"] == ("uint8", (128, queries // 2))
        assert layer["self_attn.o_proj.weight_scale"] == ("float8_e4m3fn", (128, queries // 16))
        assert layer["mlp.down_proj.weight"] == ("uint8", (128, 128))
        assert layer["mlp.down_proj.weight_scale"] == ("float8_e4m3fn", (128, 16))
        assert len(layer) == 7 * 4 + 2 + 2


@pytest.mark.parametrize("weights", ["fp8", "nvfp4"])
def test_experts_are_stored_one_by_one_and_their_router_in_bf16(built: Built, weights: str) -> None:
    files = Files.of(MOE, weights=weights, kv_format="fp8")
    folder = built(files)
    assert verify_weights(folder) == []
    # Attention 4, experts 8 · 3; norms 2, those of Q and K 2, router 1.
    assert check_against_arithmetic(files, folder) == {weights: 4 * (4 + 24), "bf16": 4 * 5}
    found = tensors_of(folder)
    assert tuple(found["model.layers.0.mlp.gate.weight"].shape) == (8, 128)
    assert tuple(found["model.layers.0.mlp.experts.7.down_proj.weight"].shape) == (128, 64 if weights == "fp8" else 32)


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        (Files.of(TWO, weights="fp8_block"), {"fp8_block": 14, "bf16": 4}),
        (Files.of(TWO, weights={"ffn": "nvfp4"}), {"nvfp4": 6, "bf16": 12}),
        (Files.of(TWO, weights={"attention": "fp8", "ffn": "nvfp4"}), {"fp8": 8, "nvfp4": 6, "bf16": 4}),
        (Files.of(TWO, kv_format="fp8"), {"bf16": 18}),
        (Files.of({**TWO, "ffn": 160}, weights="fp8_block", tie_embeddings=True), {"fp8_block": 14, "bf16": 4}),
        (Files.of({**MOE, "layers": 2}, "MixtralForCausalLM", weights="nvfp4"), {"nvfp4": 56, "bf16": 6}),
        # Of each layer 4 of 5 projections of attention, since kv_b_proj is bf16 always, and 4 norms; then 3 of a dense
        # FFN, and 3 · (4 + 1) of experts, with router and its bias.
        (Files.of({**MLA, "layers": 2}, weights="fp8_block", kv_format="fp8"), {"fp8_block": 26, "bf16": 12}),
        (Files.of({**MLA, "layers": 2}, weights="nvfp4", kv_format="fp8"), {"nvfp4": 26, "bf16": 12}),
    ],
    ids=["fp8_block", "ffn-only", "mixed", "kv-only", "tied-partial-blocks", "mixtral", "mla", "mla-nvfp4"],
)
def test_other_formats_and_architectures(built: Built, files: Files, counts: dict[str, int]) -> None:
    folder = built(files)
    assert verify_weights(folder) == []
    assert check_against_arithmetic(files, folder) == counts


@pytest.mark.parametrize(
    ("files", "preset", "kv"),
    [
        (Files.of(DENSE, weights="nvfp4", kv_format="fp8"), "NVFP4_DEFAULT_CFG", "FP8_KV_CFG"),
        (Files.of(DENSE, weights="fp8", kv_format="fp8"), "FP8_DEFAULT_CFG", "FP8_KV_CFG"),
        (Files.of(TWO, weights="nvfp4", kv_format="nvfp4"), "NVFP4_DEFAULT_CFG", "NVFP4_KV_CFG"),
        (Files.of(MOE, weights="nvfp4", kv_format="fp8"), "NVFP4_DEFAULT_CFG", "FP8_KV_CFG"),
        (Files.of(MOE, weights="fp8", kv_format="fp8"), "FP8_DEFAULT_CFG", "FP8_KV_CFG"),
    ],
    ids=["dense-nvfp4", "dense-fp8", "dense-nvfp4-kv", "moe-nvfp4", "moe-fp8"],
)
def test_layer_by_layer_is_byte_for_byte_the_export_of_the_whole_model(
    built: Built, tmp_path: Path, files: Files, preset: str, kv: str
) -> None:
    folder = built(files)
    exported = export_whole_model(files, preset, kv, tmp_path)
    found = tensors_of(folder)
    assert found.keys() == exported.keys()
    for name, want in exported.items():
        assert found[name].dtype == want.dtype, name
        assert found[name].shape == want.shape, name
        assert found[name].reshape(-1).view(torch_bytes()).equal(want.reshape(-1).view(torch_bytes())), name
    theirs = json.loads((tmp_path / "hf_quant_config.json").read_text())
    mine, known = ModuleFormats.read(files.quant), ModuleFormats.read(theirs)
    assert mine.kv == known.kv
    layers = range(files.config["num_hidden_layers"])
    modules = [tensor.module for layer in layers for tensor in layer_tensors(files.config, layer)]
    assert {module: mine.of(module) for module in [*modules, "lm_head"] if not module.endswith("norm")} == {
        module: known.of(module) for module in [*modules, "lm_head"] if not module.endswith("norm")
    }


def export_whole_model(files: Files, preset: str, kv: str, folder: Path) -> dict[str, Any]:
    """What NVIDIA Model Optimizer exports of the same values, calibrated on the same tokens."""
    import torch
    import transformers
    from safetensors.torch import load_file

    with quiet():
        mtq = importlib.import_module("modelopt.torch.quantization")
        export = importlib.import_module("modelopt.torch.export")
        config = {name: value for name, value in files.config.items() if name != "quantization_config"}
        model = getattr(transformers, config["architectures"][0]).from_pretrained(
            None,
            config=transformers.AutoConfig.for_model(**config),
            state_dict=sources(files),
            dtype=torch.bfloat16,
        )
        tokens = torch.from_numpy(calibration_tokens(config["vocab_size"], 7))
        settings = {
            "quant_cfg": [*getattr(mtq, preset)["quant_cfg"], *getattr(mtq, kv)["quant_cfg"]],
            "algorithm": "max",
        }
        mtq.quantize(model, settings, lambda one: [one(batch[None]) for batch in tokens])
        export.export_hf_checkpoint(model, export_dir=folder)
    return load_file(folder / "model.safetensors")


class Killed(BaseException):
    """Stands for a signal."""


def killing_at(step: int) -> Callable[[int, int, str], None]:
    def progress(done: int, total: int, what: str) -> None:
        if done == step:
            raise Killed

    return progress


@pytest.mark.parametrize("step", [1, 4, 6])
def test_a_killed_build_goes_on_and_ends_the_same(built: Built, tmp_path: Path, step: int) -> None:
    files = Files.of(DENSE, weights="nvfp4", kv_format="fp8")
    whole = built(files)
    folder = files.put(tmp_path / "engine")
    with pytest.raises(Killed):
        files.write(folder, progress=killing_at(step))
    assert len(list(folder.glob("model-*.safetensors"))) == step
    assert not (folder / "model.safetensors.index.json").exists()
    (folder / ".0123456789abcdef.tmp").write_bytes(b"half a shard")
    told: list[int] = []
    files.write(folder, progress=lambda *step: told.append(step[0]))
    assert told == list(range(step, 8))
    assert contents(folder) == contents(whole)


KILLED = """
import sys
from pathlib import Path
from weights_engines import Files, DENSE
Files.of({**DENSE, "layers": 20}, weights="fp8").write(Path(sys.argv[1]))
"""


@pytest.mark.thorough
def test_a_process_killed_while_it_writes_leaves_what_the_next_goes_on_from(built: Built, tmp_path: Path) -> None:
    files = Files.of({**DENSE, "layers": 20}, weights="fp8")
    folder = files.put(tmp_path / "engine")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, folder], env=os.environ | {"PYTHONPATH": "tests:."}
    ) as process:
        while len(list(folder.glob("model-*"))) < 3:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    told: list[int] = []
    files.write(folder, progress=lambda *step: told.append(step[0]))
    assert 2 < told[0] < 21
    assert contents(folder) == contents(built(files))


def test_what_is_damaged_or_has_other_inputs_is_written_again(built: Built, tmp_path: Path) -> None:
    files = Files.of(DENSE, weights="fp8", kv_format="fp8")
    whole = built(files)
    folder = files.put(tmp_path / "engine")
    with pytest.raises(Killed):
        files.write(folder, progress=killing_at(4))
    shard = folder / "model-00003-of-00007.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    told: list[int] = []
    provenance = files.write(folder, progress=lambda *step: told.append(step[0]))
    # The third file is layer 2, whose hidden states are kept no more than those before it, so that layers begin anew.
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert contents(folder) == contents(whole)
    assert len(provenance["hidden_rms"]) == 5

    told.clear()
    assert files.write(folder, progress=lambda *step: told.append(step[0])) == provenance
    assert told == [7]
    files.write(folder, seed=8, progress=lambda *step: told.append(step[0]))
    assert told == [7, 0, 1, 2, 3, 4, 5, 6, 7]
    assert contents(folder).keys() == contents(whole).keys()
    other, same = contents(folder), contents(whole)
    assert all(other[name] != same[name] for name in same if name.startswith("model-"))


@pytest.mark.parametrize("weights", ["nvfp4", "fp8_block"])
def test_matrices_packed_in_slices_are_the_same_bytes(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    files = Files.of(DENSE, layers=1, hidden=256, ffn=640, weights=weights)
    whole = built(files)
    monkeypatch.setattr(weights_slices, "SLICE_VALUES", 1000)
    asked: list[int] = []
    once = weights_slices.pack

    def spy(pack: Callable[..., Any], weight: Any, *others: Any) -> Any:
        def counted(part: Any, *rest: Any) -> Any:
            asked.append(part.shape[0])
            return pack(part, *rest)

        return once(counted, weight, *others)

    monkeypatch.setattr(weights_slices, "pack", spy)
    folder = files.put(tmp_path / "engine")
    files.write(folder)
    assert sum(asked) == 1024 + 128 + 128 + 256 + 640 + 640 + 256  # every row of every matrix once
    assert max(asked) < 640
    assert contents(folder) == contents(whole)


def test_the_number_of_threads_does_not_matter(built: Built, tmp_path: Path) -> None:
    import torch

    files = Files.of(DENSE, layers=1, hidden=1024, ffn=4096, weights="fp8", kv_format="fp8")
    whole = built(files)
    torch.set_num_threads(3)
    try:
        folder = files.put(tmp_path / "engine")
        files.write(folder)
    finally:
        torch.set_num_threads(1)
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize(
    "files",
    [
        Files.of(DENSE, layers=6),
        Files.of(DENSE, layers=6, tie_embeddings=True),
        Files.of(MOE),
        Files.of({**MOE, "layers": 2}, "MixtralForCausalLM"),
        Files.of(MLA),
    ],
    ids=["dense", "tied", "qwen3-moe", "mixtral", "mla"],
)
def test_transformers_runs_the_bf16_twin_and_activations_stay_in_range(built: Built, files: Files) -> None:
    import torch
    import transformers

    folder = built(files)
    assert verify_weights(folder) == []
    with quiet():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.bfloat16
    tokens = torch.from_numpy(calibration_tokens(1000, seed=99))
    seen: list[float] = []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda _, inputs, output: seen.append(rms(output - inputs[0]) / rms(output)))
    with torch.no_grad():
        answer = model(tokens, output_hidden_states=True)
    assert bool(torch.isfinite(answer.logits).all())
    assert 0.5 < rms(answer.logits) < 2
    # What goes through the layers is of one size from first to last, and each layer adds a part that counts.
    through = [rms(one) for one in answer.hidden_states[:-1]]
    first = 128**-0.5 if files.config["tie_word_embeddings"] else 1.0
    assert through[0] == pytest.approx(first, rel=0.05)
    assert max(through) < 2
    assert len(seen) == files.config["num_hidden_layers"]
    assert min(seen) > 0.05


def rms(values: Any) -> float:
    return math.sqrt(float(values.float().square().mean()))


def test_estimates_are_what_is_written(built: Built) -> None:
    for files in (Files.of(DENSE, weights="nvfp4", kv_format="fp8"), Files.of(MOE, weights="fp8", kv_format="fp8")):
        folder = built(files)
        plan = estimate(files.config, files.quant)
        shards = list(folder.glob("*.safetensors"))
        assert plan.steps == len(shards) == 7
        assert plan.weight_bytes == sum(one.stored.bytes for path in shards for one in read_shard(path).values())
        written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert plan.weight_bytes < written < plan.disk_bytes < plan.weight_bytes + 2e9


def test_provenance_says_how_weights_were_made(tmp_path: Path) -> None:
    files = Files.of(DENSE, layers=2)
    provenance = files.write(files.put(tmp_path / "engine"))
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["calibration"] == "2 sequences of 64 random tokens"
    assert len(provenance["hidden_rms"]) == 3
    assert all(0.9 < one < 1.5 for one in (*provenance["hidden_rms"], provenance["logits_rms"]))
