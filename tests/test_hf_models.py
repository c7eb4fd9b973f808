"""Published models as Hugging Face describes them: counted, linted and priced."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from model_folders import CONFIGS, NAMES, SETTLED, published

from harness.cost.parameters import parameter_count, parameter_groups
from harness.errors import UsageError
from harness.hardware import load_system
from harness.lint import lint
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism

#: Ranks on which each fits and divides: Phi-4 has 10 KV heads, and 2880 / 8 would cut gpt-oss's groups of 16 values.
RANKS: dict[str, dict[str, int]] = {"phi-4": {"tp": 2}, "gpt-oss-120b": {"tp": 8, "ep": 8}}
EIGHT = {"tp": 8}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("mixtral-8x7b", 46_702_792_704),
        ("phi-4", 14_659_507_200),
        ("qwen3-8b", 8_190_735_360 - 36 * 2 * 128),  # its norms of Q and K
        ("qwen3-235b-a22b", 235_093_634_560 - 94 * 2 * 128),
        ("deepseek-v3", 671_026_419_200 - 58 * 256),  # its router biases
    ],
)
def test_parameters_are_those_published_to_the_last(name: str, count: int) -> None:
    assert parameter_count(published(name)) == count


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3-8b", 8.03),
        ("llama-3-70b", 70.6),
        ("mixtral-8x7b", 46.7),
        ("phi-4", 14.7),
        ("qwen3-8b", 8.19),
        ("qwen3-235b-a22b", 235.1),
        ("deepseek-v3", 671.0),
        ("gpt-oss-120b", 116.83),
        ("gemma-3-27b", 25.600 + 1.416),
        ("nemotron-mini-4b", 4.2),
        ("nemotron-4-340b", 9.4 + 331.6),
    ],
)
def test_parameters_are_within_half_a_percent_of_the_cards(name: str, billions: float) -> None:
    assert parameter_count(published(name)) == pytest.approx(billions * 1e9, rel=0.005)


def test_every_shape_is_counted_and_has_its_source() -> None:
    sources = (CONFIGS / "README.md").read_text()
    assert len(NAMES) >= 10
    assert [name for name in NAMES if f"`{name}`" not in sources] == []


def test_parts_of_nemotron_4_are_those_of_its_report() -> None:
    """arXiv 2406.11704, 2.1: 9.4 billion embedding and 331.6 billion other parameters; no gate, squared ReLU."""
    groups = parameter_groups(published("nemotron-4-340b"))
    embeddings = groups["embedding"] + groups["lm_head"]
    assert round(embeddings / 1e9, 1) == 9.4
    assert round((sum(groups.values()) - embeddings) / 1e9, 1) == 331.6
    assert groups["ffn"] == 96 * 2 * 18432 * 73728


def test_gemma_3_says_what_its_file_leaves_to_its_class() -> None:
    gemma = published("gemma-3-27b")
    assert (gemma.layers, gemma.hidden, gemma.head_dim, gemma.vocab) == (62, 5376, 128, 262_208)
    assert gemma.attention == ("sliding",) * 5 + ("full",)
    assert (gemma.window, gemma.tie_embeddings, gemma.count_layers("full")) == (1024, True, 10)


def test_gpt_oss_alternates_and_has_experts_of_its_intermediate_size() -> None:
    oss = published("gpt-oss-120b")
    assert (oss.attention, oss.window, oss.head_dim) == (("sliding", "full"), 128, 64)
    assert oss.experts
    assert (oss.experts.count, oss.experts.top_k, oss.experts.inter, oss.ffn) == (128, 4, 2880, 0)
    assert (oss.weights.attention, oss.weights.experts) == ("bf16", "nvfp4")


def test_deepseek_v3_has_a_latent_three_dense_layers_and_blocks_of_fp8() -> None:
    deepseek = published("deepseek-v3")
    assert deepseek.attention == ("mla",)
    assert deepseek.mla
    assert (deepseek.mla.kv_lora_rank, deepseek.mla.rope_head_dim, deepseek.mla.q_lora_rank) == (512, 64, 1536)
    assert deepseek.experts
    assert (deepseek.experts.dense_layers, deepseek.experts.shared_inter, deepseek.ffn) == (3, 2048, 18432)
    assert deepseek.weights.model_dump() == {
        "attention": "fp8_block", "ffn": "fp8_block", "experts": "fp8_block", "lm_head": "bf16"
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing_wrong_or_what_is_true(name: str) -> None:
    shape, split = published(name), Parallelism(**RANKS.get(name, EIGHT))
    errors = [finding for finding in lint(shape, split, load_system("b200_sxm")) if finding.severity == "error"]
    if name == "nemotron-4-340b":
        # Heads of 18432 / 96 = 192 abort natively on these GPUs.
        assert [(one.rule, one.field, one.value) for one in errors] == [("head-size-unsupported", "head_dim", 192)]
    else:
        assert errors == []


def test_ten_kv_heads_do_not_go_on_eight_ranks() -> None:
    found = lint(published("phi-4"), Parallelism(tp=8), load_system("b200_sxm"))
    assert [one.rule for one in found if one.severity == "error"] == ["kv-heads-split"]


def price(run: CommandLine, name: str, on: str, *workload: str) -> Any:
    ways = [f"parallelism.{way}={ranks}" for way, ranks in RANKS.get(name, EIGHT).items()]
    asked = [*ways, "workload.batch=4", *workload, *SETTLED.get(name, [])]
    sets = [part for text in asked for part in ("--set", text)]
    return run("price", "case", "--gpu", "b200_sxm", "--variant", CONFIGS / name, "--on", on, "--json", *sets).json


DECODE = ("workload.phase=decode", "workload.kvsl=4096")
PREFILL = ("workload.phase=prefill", "workload.isl=2048")


@pytest.mark.parametrize("workload", [DECODE, PREFILL], ids=["decode", "prefill"])
@pytest.mark.parametrize("name", NAMES)
def test_the_roofline_prices_each(name: str, workload: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    data = price(CommandLine(capsys), name, "roofline", *workload)
    if name == "nemotron-4-340b":
        assert data["status"] == "rejected"
        assert "head_dim is 192" in data["reason"]
    else:
        assert data["status"] == "ok"
        assert data["variant"] == name
        assert data["value_ms"] >= data["roofline_ms"] > 0


@pytest.mark.tables
@pytest.mark.parametrize("name", NAMES)
def test_the_tables_price_each_or_say_which_rows_they_lack(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = price(CommandLine(capsys), name, "tables", *DECODE)
    lacking = {
        "gemma-3-27b": "no rows with a window of 1024",
        "gpt-oss-120b": "layer.moe.experts: no rows for 2880/2880/4/128",
        "mixtral-8x7b": "layer.moe.router: n 8 is below the smallest row",
        "nemotron-4-340b": "head_dim is 192",
        "phi-4": "layer.attn.attention: no rows for 20:5 heads of 128",
    }
    if name in lacking and data["value_ms"] is None:
        assert lacking[name] in data["reason"]
    else:
        assert data["status"] == "ok", data["reason"]
        assert data["value_ms"] > data["roofline_ms"]


@pytest.mark.tables
def test_every_configuration_that_ships_with_the_tables_is_read_or_refused(tmp_path: Path) -> None:
    """More than a hundred published files; those that are read have the parameters that their names say."""
    spec = find_spec("aiconfigurator_core")
    assert spec
    assert spec.origin
    read: dict[str, int] = {}
    for path in sorted((Path(spec.origin).parent / "model_configs").glob("*_config.json")):
        name = path.name.removesuffix("_config.json")
        if name.endswith("_hf_quant"):
            continue
        model = tmp_path / name
        model.mkdir()
        (model / "config.json").write_bytes(path.read_bytes())
        quant = path.with_name(f"{name}_hf_quant_config.json")
        if quant.exists():
            (model / "hf_quant_config.json").write_bytes(quant.read_bytes())
        try:
            read[name] = parameter_count(load_variant(model))
        except UsageError as error:
            assert all(str(model) in finding for finding in error.findings)  # noqa: PT017
    billions = {"Qwen--Qwen3-32B": 32.8, "meta-llama--Meta-Llama-3.1-405B": 405.9, "Qwen--Qwen3-30B-A3B-FP8": 30.5}
    assert {name: round(read[name] / 1e9, 1) for name in billions} == billions
    assert len(read) >= 25
