"""`build` and `engines` as a person uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import PROCESS, REPOSITORY, CommandLine, process

from harness import files
from harness.cli import engines as cli_engines
from harness.engines.store import EngineStore
from harness.files import folder_lock, read_yaml

#: Small in every way but the vocabulary of 1000, so that its tokenizer takes no time.
VARIANT: dict[str, Any] = {
    "layers": 4, "hidden": 2048, "q_heads": 16, "kv_heads": 2, "head_dim": 128, "ffn": 4096, "vocab": 1024,
    "kv_format": "fp8",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "engines"


def study(folder: Path, **changes: Any) -> Path:
    data = {
        "title": "Group size",
        "variant": VARIANT,
        "axes": {"G": [4, 8]},
        "workloads": {"decode": {"batch": [1, 8], "kvsl": 4096}},
        "systems": ["b200_sxm", "h200_sxm"],
        **changes,
    }
    path = folder / "groups.yaml"
    files.write_atomic(path, files.dump_yaml(data))
    return path


# ---- building a study


def test_the_study_of_group_sizes_is_built_and_then_there_is_nothing_to_do(run, store):
    path = REPOSITORY / "model_configs" / "studies" / "a1d-group-size-decode.yaml"

    first = run("build", path, "--store", store)
    again = run("build", path, "--store", store)

    assert (first.code, again.code) == (0, 0)
    assert "14 engines: 14 built" in first.out
    assert "18 settings: 18 built" in first.out
    assert again.out.splitlines()[-1].startswith("nothing to do: 14 engines and 18 settings for TensorRT-LLM 1.3.0rc20")
    assert len(EngineStore(store).keys()) == 14


def test_one_engine_a_shape_with_the_settings_of_its_workloads(run, store, tmp_path):
    built = run("build", study(tmp_path), "--store", store, "--json").json

    assert [(one["variants"], one["outcome"]) for one in built["engines"]] == [
        (["variant G=4"], "built"),
        (["variant G=8"], "built"),
    ]
    for one in built["engines"]:
        [settings] = one["settings"]
        assert settings["systems"] == ["b200_sxm", "h200_sxm"]
        assert settings["workloads"] == ["decode b 1 KVSL 4096", "decode b 8 KVSL 4096"]
        fields = read_yaml(Path(settings["path"]) / "llm_args.yaml")
        assert fields["max_batch_size"] == 8
        assert fields["load_format"] == "dummy"
        assert fields["cuda_graph_config"]["batch_sizes"] == [1, 8]
        config = json.loads((Path(one["path"]) / "config.json").read_text())
        assert config["num_hidden_layers"] == 4
        assert config["num_key_value_heads"] == 16 // (4 if one["variants"] == ["variant G=4"] else 8)
        assert {path.name for path in Path(one["path"]).iterdir()} == {
            "config.json",
            "generation_config.json",
            "hf_quant_config.json",
            "manifest.json",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
        }


def test_another_workload_makes_settings_and_no_engine(run, store, tmp_path):
    run("build", study(tmp_path), "--store", store)
    more = run("build", study(tmp_path), "--set", "workloads.decode.batch=[1, 16]", "--store", store, "--json").json

    assert {one["outcome"] for one in more["engines"]} == {"kept"}
    assert {settings["outcome"] for one in more["engines"] for settings in one["settings"]} == {"built"}


def test_another_version_makes_settings_and_no_engine(run, store, tmp_path):
    run("build", study(tmp_path), "--store", store)
    for version in ("1.2.1", "1.3.0rc7", "1.3.0rc24", "1.4"):
        built = run("build", study(tmp_path), "--store", store, "--trtllm-version", version, "--json").json
        assert {one["outcome"] for one in built["engines"]} == {"kept"}
        assert built["trtllm_version"] == version
        [settings] = built["engines"][0]["settings"]
        assert settings["outcome"] == "built"
        assert Path(settings["path"]).name.startswith(f"{version}-1gpu-decode-")


def test_a_version_is_written_as_it_is_called(run, store, tmp_path):
    """Blanks and line ends would be in names of folders and in the YAML's first line, which is a comment."""
    plain = run("build", study(tmp_path), "--store", store, "--trtllm-version", "1.2.1")
    for spelling in ("v1.2.1", " 1.2.1", "1.2.1\n"):
        again = run("build", study(tmp_path), "--store", store, "--trtllm-version", spelling)
        assert "nothing to do" in again.out, spelling
    assert "TensorRT-LLM 1.2.1 (as asked): " in plain.out


def test_the_kernels_of_experts_may_be_named(run, store, tmp_path):
    """CUTLASS, which 1.2.1 takes by itself, has no experts in FP8 blocks on B200."""
    moe = {**VARIANT, "ffn": 0, "experts": {"count": 8, "top_k": 2, "inter": 1024}, "weights": "fp8_block"}
    path = study(tmp_path, variant=moe, axes={}, systems=["b200_sxm"])
    refused = run("build", path, "--trtllm-version", "1.2.1", "--store", store)
    assert refused.code == 2
    assert "Works: moe_backend TRTLLM, DEEPGEMM" in refused.err
    options = ["--trtllm-version", "1.2.1", "--store", store, "--json"]
    [engine] = run("build", path, "--moe-backend", "DEEPGEMM", *options).json["engines"]
    [settings] = engine["settings"]
    assert read_yaml(Path(settings["path"]) / "llm_args.yaml")["moe_config"] == {"backend": "DEEPGEMM"}
    unknown = run("build", path, "--moe-backend", "FASTEST", *options)
    assert unknown.code == 2
    assert "FASTEST" in unknown.err


def test_a_version_that_nobody_has_read_is_said_to_be_one(run, store, tmp_path):
    said = "later than 1.4, the newest whose settings were read: those of 1.4 are written"
    later = run("build", study(tmp_path), "--store", store, "--trtllm-version", "2.0.0")
    assert f"TensorRT-LLM 2.0.0 (as asked; {said}): " in later.out
    assert "later than" not in run("build", study(tmp_path), "--store", store, "--trtllm-version", "1.4").out


def test_formats_make_engines_and_weights_of_one_format_are_one(run, store, tmp_path):
    axes = {"weights": ["fp8", "nvfp4"], "kv_format": ["bf16", "fp8"], "attn_format": ["bf16", "fp8"]}
    path = study(tmp_path, axes=axes, systems=["b200_sxm"])
    built = run("build", path, "--store", store, "--json").json

    # attn_format is the arithmetic of a run and not of a checkpoint; fp8 needs an fp8 cache, says lint.
    assert [len(one["variants"]) for one in built["engines"]] == [1, 2, 1, 2]
    said = [json.loads((Path(one["path"]) / "hf_quant_config.json").read_text()) for one in built["engines"]]
    assert [(one["quantization"]["quant_algo"], one["quantization"]["kv_cache_quant_algo"]) for one in said] == [
        ("FP8", None),
        ("FP8", "FP8"),
        ("NVFP4", None),
        ("NVFP4", "FP8"),
    ]
    configs = {(Path(one["path"]) / "config.json").read_text() for one in built["engines"]}
    tokenizers = {(Path(one["path"]) / "tokenizer.json").read_text() for one in built["engines"]}
    assert (len(configs), len(tokenizers)) == (4, 1)


def test_variants_of_a_study_share_one_architecture(run, store, tmp_path):
    # H 2048 is no multiple of 24 query heads, so Llama cannot be all of them and Qwen3 is each.
    path = study(tmp_path, axes={"q_heads": [16, 24]}, hold={})
    built = run("build", path, "--store", store, "--json").json
    assert {one["architecture"] for one in built["engines"]} == {"Qwen3ForCausalLM"}
    assert "Qwen3ForCausalLM norms Q and K of each head" in run("build", path, "--store", store / "b").out

    alone = run("build", path, "-a", "q_heads=16", "--store", store, "--json").json
    assert [one["architecture"] for one in alone["engines"]] == ["LlamaForCausalLM"]


def test_the_architecture_may_be_named(run, store, tmp_path):
    built = run("build", study(tmp_path), "--architecture", "Qwen3ForCausalLM", "--store", store, "--json").json
    assert {one["architecture"] for one in built["engines"]} == {"Qwen3ForCausalLM"}

    wrong = run("build", study(tmp_path), "--architecture", "MixtralForCausalLM", "--store", store)
    assert wrong.code == 2
    assert "variant G=4: MixtralForCausalLM: the variant has no experts" in wrong.err


def test_long_sequences_get_an_engine_that_takes_them(run, store, tmp_path):
    path = study(tmp_path, axes={"G": 8}, systems=["b200_sxm"])
    short = run("build", path, "--store", store, "--json").json["engines"][0]
    long = run("build", path, "--set", "workloads.decode.kvsl=262144", "--store", store, "--json").json["engines"][0]

    positions = [
        json.loads((Path(one["path"]) / "config.json").read_text())["max_position_embeddings"] for one in (short, long)
    ]
    assert positions == [131072, 524288]
    assert not (Path(long["settings"][0]["path"]) / "environment.json").exists()


def test_what_a_process_needs_in_its_environment_is_beside_the_settings(run, store, tmp_path):
    experts = {"count": 8, "top_k": 2, "inter": 512}
    path = study(
        tmp_path, variant={**VARIANT, "ffn": 0, "experts": experts}, parallelism={"tp": 2, "ep": 2, "slots": 8}
    )
    built = run("build", path, "-a", "G=8", "--store", store, "--json").json
    [settings] = built["engines"][0]["settings"]
    folder = Path(settings["path"])

    assert folder.name.startswith("1.3.0rc20-tp2-ep2-eplb8-decode-")
    assert json.loads((folder / "environment.json").read_text()) == {"ENABLE_PERFECT_ROUTER": "1"}
    balancer = read_yaml(folder / "llm_args.yaml")["moe_config"]["load_balancer"]
    assert read_yaml(folder / balancer)["num_slots"] == 8
    assert str(tmp_path) not in (folder / "llm_args.yaml").read_text()


def test_what_does_not_fit_a_gpu_is_in_no_settings_and_said(run, store, tmp_path):
    path = study(tmp_path, axes={"G": 8})
    built = run("build", path, "--set", "workloads.decode.kvsl=[4096, 100000000]", "--store", store, "--json").json

    assert len(built["too_large"]) == 4
    assert all("GiB a GPU short" in one["reason"] for one in built["too_large"])
    [settings] = built["engines"][0]["settings"]
    assert settings["workloads"] == ["decode b 1 KVSL 4096", "decode b 8 KVSL 4096"]


def test_a_suite_is_the_engines_of_all_its_studies(run, store, tmp_path):
    for name, group in (("one", 4), ("two", 8)):
        study(tmp_path, axes={"G": [group, 16]}).rename(tmp_path / f"{name}.yaml")
    files.write_atomic(tmp_path / "both.yaml", files.dump_yaml({"title": "Both", "studies": ["one.yaml", "two.yaml"]}))

    built = run("build", tmp_path / "both.yaml", "--store", store, "--json").json
    assert [one["variants"] for one in built["engines"]] == [["variant G=4"], ["variant G=16"], ["variant G=8"]]


# ---- building a variant


def test_a_variant_has_an_engine_and_no_settings(run, store):
    built = run("build", "dense-8b", "--set", "layers=2", "--set", "vocab=1024", "--store", store)
    assert built.code == 0
    assert "1 engine: 1 built" in built.out
    assert "0 settings" in built.out
    assert (
        run("build", "dense-8b", "--set", "layers=2", "--set", "vocab=1024", "--store", store)
        .out.splitlines()[-1]
        .startswith("nothing to do: 1 engine")
    )


def test_a_variant_for_one_kind_of_gpu_needs_no_other(run, store):
    asked = ["build", "dense-8b", "--set", "weights=nvfp4", "--set", "vocab=1024", "--store", store]
    assert run(*asked).code == 0
    assert run(*asked, "--gpu", "b200_sxm").code == 0
    refused = run(*asked, "--gpu", "h200_sxm")
    assert refused.code == 2
    assert "nvfp4" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dense-8b", "-a", "G=4"], "-a G=4: a variant has no axes"),
        (["dense-8b", "--engine", "tensorrt", "--trtllm-version", "1.2.1"], "a plan is made for workloads"),
        (["no-such-thing"], "no variant, study or suite is called 'no-such-thing'"),
        (["dense-8b", "--trtllm-version", "soon"], "'soon' is no TensorRT-LLM version"),
        (["dense-8b", "--trtllm-version", "0.21.0"], "TensorRT-LLM 0.21.0 is older than 1.2.1"),
        (["dense-8b", "--trtllm-version", "\u0661.2.1"], "'\u0661.2.1' is no TensorRT-LLM version"),
        (["dense-8b", "--set", "q_heads=7"], "q_heads"),
        (["dense-8b", "--set", "gated_ffn=false"], "dense-8b: no architecture can be it: gated_ffn is false"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_made(run, store, arguments, message):
    outcome = run("build", *arguments, "--store", store)
    assert outcome.code == 2
    assert message in outcome.err
    assert not store.exists()


# ---- what goes wrong


def test_a_variant_with_a_lint_error_is_named_and_the_others_are_built(run, store, tmp_path):
    path = study(tmp_path, axes={"head_dim": [128, 100]})
    outcome = run("build", path, "--store", store)

    assert outcome.code == 2
    assert "1 engine: 1 built" in outcome.out
    said = outcome.err.splitlines()
    assert all(line.startswith("error: ") and "variant head_dim=100: head_dim is 100" in line for line in said)
    assert said[0].endswith("[b200_sxm]")  # and which GPU
    again = run("build", path, "--store", store, "--json")
    assert again.code == 2
    assert [one["outcome"] for one in again.json["engines"]] == ["kept"]
    assert again.json["problems"] == [line.removeprefix("error: ") for line in said]


def test_an_error_on_one_gpu_leaves_the_engine_for_the_other(run, store, tmp_path):
    path = study(tmp_path, axes={"weights": ["nvfp4"]})
    outcome = run("build", path, "--store", store, "--json")

    assert outcome.code == 2
    assert "nvfp4-gpu" in outcome.json["problems"][0]
    [settings] = outcome.json["engines"][0]["settings"]
    assert settings["systems"] == ["b200_sxm"]


def test_where_nothing_is_left_to_build_nothing_is_made(run, store, tmp_path):
    outcome = run("build", study(tmp_path, axes={"head_dim": 100}), "--store", store)
    assert outcome.code == 2
    assert not store.exists()
    excluded = study(tmp_path, exclude=[{"when": {"phase": "decode"}, "reason": "not today"}])
    assert "leaves out every case" in run("build", excluded, "--store", store).err


def test_damage_is_found_said_and_mended(run, store, tmp_path):
    run("build", study(tmp_path), "--store", store)
    key = EngineStore(store).keys()[0]
    broken = EngineStore(store).engine_path(key) / "config.json"
    broken.chmod(0o644)
    broken.write_text(broken.read_text().replace("2048", "2049"))

    assert run("engines", "verify", "--store", store).code == 3
    mended = run("build", study(tmp_path), "--store", store)
    assert f"rebuilt  {key}" in mended.out
    assert "[config.json: content changed]" in mended.out
    assert "2 engines: 1 rebuilt, 1 kept" in mended.out
    assert run("engines", "verify", "--store", store).code == 0


def test_a_full_disk_ends_the_build_with_exit_code_4_and_keeps_what_was_finished(store, tmp_path):
    import resource
    import signal

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    small, large = {**VARIANT, "vocab": 1024}, {"size": {"small": {"vocab": 1024}, "large": {"vocab": 128_256}}}
    path = study(tmp_path, variant=small, axes=large)
    outcome = process("build", path, "--store", store, preexec_fn=limit)

    assert outcome.returncode == 4
    assert "cannot be written: the limit on the size of a file is reached" in outcome.stderr
    assert "1 of 2 engines are in" in outcome.stdout
    left = EngineStore(store)
    keys = left.keys()
    whole = [left.inspect(key).is_whole for key in keys]
    assert whole.count(True) == 1


def test_who_waits_for_another_build_says_so(store, tmp_path):
    path = study(tmp_path, axes={"G": 8})
    process("build", path, "--store", store)
    key = EngineStore(store).keys()[0]
    (EngineStore(store).engine_path(key) / "manifest.json").unlink()
    with folder_lock(store / key):
        waiting = subprocess.Popen(
            [*PROCESS, "build", str(path), "--store", str(store)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert waiting.stderr
        said = waiting.stderr.readline()
    assert said.startswith("engine 1/1 variant G=8: waiting for process ")
    out, _ = waiting.communicate()
    assert waiting.returncode == 0
    assert "rebuilt" in out


@pytest.mark.modelopt
def test_weights_of_two_kv_formats_share_what_is_equal_and_nothing_else(run, store, tmp_path):
    pytest.importorskip("modelopt")
    axes = {"weights": ["fp8", "nvfp4"], "kv_format": ["bf16", "fp8"]}
    path = study(
        tmp_path, variant={**VARIANT, "layers": 2, "hidden": 512, "ffn": 1024}, axes=axes, systems=["b200_sxm"]
    )
    built = run("build", path, "--weights", "modelopt", "--seed", "3", "--store", store, "--json").json

    folders = {tuple(one["variants"][0].split()[1:]): Path(one["path"]) for one in built["engines"]}
    assert len(folders) == 4
    for one in built["engines"]:
        assert read_yaml(Path(one["settings"][0]["path"]) / "llm_args.yaml")["load_format"] == "auto"
        shown = run("engines", "show", one["path"]).out
        assert "synthetic, seed 3, quantised by NVIDIA Model Optimizer" in shown
    plain, cached = (folders["weights=fp8", f"kv_format={kv}"] for kv in ("bf16", "fp8"))
    assert (plain / "hf_quant_config.json").read_text() != (cached / "hf_quant_config.json").read_text()

    def shards(folder: Path) -> list[int]:
        return [path.stat().st_ino for path in sorted(folder.glob("model-*.safetensors"))]

    # The embedding is bf16 in all of them, and scales of the cache are a small file of their own.
    assert len({shards(folder)[0] for folder in folders.values()}) == 1
    assert shards(cached)[:3] == shards(plain)[:3]
    assert len(shards(cached)) == len(shards(plain)) + 1
    assert not {*shards(plain)[1:3]} & {*shards(folders["weights=nvfp4", "kv_format=bf16"])[1:3]}

    again = run("build", path, "--weights", "modelopt", "--seed", "3", "--store", store)
    assert again.out.splitlines()[-1].startswith("nothing to do: 4 engines")
    other = run("build", path, "-a", "weights=fp8", "--weights", "modelopt", "--seed", "4", "--store", store, "--json")
    assert {one["outcome"] for one in other.json["engines"]} == {"built"}


# ---- TensorRT plans


def test_plans_are_refused_where_the_version_has_none(run, store, tmp_path):
    outcome = run("build", study(tmp_path), "--engine", "tensorrt", "--trtllm-version", "1.4", "--store", store)
    assert outcome.code == 2
    assert "gone since 1.3.0rc23" in outcome.err
    assert not store.exists()


def test_plans_need_the_builder(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = run("build", study(tmp_path), "--engine", "tensorrt", "--trtllm-version", "1.2.1", "--store", store)
    assert outcome.code == 4
    assert "trtllm-build is not on PATH" in outcome.err


def test_plans_are_built_for_the_sizes_of_the_workloads(run, store, tmp_path, monkeypatch):
    from test_engines_plans import BUILDER, put

    put(tmp_path / "trtllm-build", BUILDER)
    put(tmp_path / "nvidia-smi", 'print("NVIDIA H200")')
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = ["--engine", "tensorrt", "--trtllm-version", "1.2.1", "--store", store]

    outcome = run("build", study(tmp_path), *asked)
    assert outcome.code == 0, outcome.err
    assert "2 plans: 2 built" in outcome.out
    assert run("build", study(tmp_path), *asked).out.splitlines()[-1].startswith("nothing to do: 2 engines and 2 plans")

    built = run("build", study(tmp_path, parallelism={"tp": 2, "attention_dp": True}), *asked, "--json")
    assert built.code == 2
    assert "parallelism.attention_dp" in " ".join(built.json["problems"])
    shown = run("engines", "show", built.json["engines"][0]["key"], "--store", store, "--json").json
    assert shown["plans"][0]["sizes"] == {"max_batch_size": 8, "max_num_tokens": 8192, "max_seq_len": 4608}


# ---- engines


def test_show_prints_what_a_person_would_check(run, store, tmp_path):
    built = run("build", study(tmp_path), "--store", store, "--json").json["engines"][1]
    shown = run("engines", "show", built["key"][:8], "--store", store).out

    # Four layers of H 2048, QH 16, KH 2, Hsz 128, H' 4096.
    layer = 2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 4096 + 2 * 2048
    parameters = 4 * layer + 2048 + 2 * 1024 * 2048
    for text in (
        f"key           {built['key']}",
        f"path          {built['path']}",
        "architecture  LlamaForCausalLM",
        "shape         4 layers, H 2048, QH 16, KH 2, Hsz 128, H' 4096, vocabulary 1024",
        "formats       attention bf16, ffn bf16, lm_head bf16, KV fp8",
        f"parameters    {parameters:,}",
        f"weight bytes  {2 * parameters:,}",
        f"KV bytes      {4 * 2 * 2 * 128:,} a token",
        "weights       none; TensorRT-LLM fills every parameter with random values (load_format: dummy)",
        "config.json",
        "max_batch_size: 8",
        "kv_cache_config.enable_block_reuse: no",
    ):
        assert text in shown
    assert run("engines", "show", built["path"]).out == shown
    assert run("engines", "show", store / built["key"]).out == shown
    as_json = run("engines", "show", built["path"], "--json").json
    assert as_json["figures"]["parameters"] == parameters
    assert as_json["settings"][0]["fields"]["max_batch_size"] == 8


def test_show_of_nothing_says_what_to_do(run, store, tmp_path):
    assert "to look up a key say --store DIR" in run("engines", "show", "abc").err
    assert "no engine 'abc' is here" in run("engines", "show", "abc", "--store", store).err
    assert "holds no engine" in run("engines", "show", tmp_path).err


def test_list_verify_and_prune(run, store, tmp_path, monkeypatch):
    monkeypatch.setenv("TRTLLM_HARNESS_STORE", str(store))
    assert run("engines", "list").out == f"0 engines in {store}, 0 bytes\n"
    run("build", study(tmp_path), "--store", store)
    (store / "0123456789abcdef" / "building").mkdir(parents=True)
    (store / "0123456789abcdef" / "building" / "model.safetensors").write_bytes(bytes(5000))

    rows = run("engines", "list", "--json").json
    assert [row["state"] for row in rows] == ["whole", "whole", "unfinished"]
    assert rows[2]["unfinished_bytes"] == 5000
    listed = run("engines", "list").out
    assert "LlamaForCausalLM  4 layers, H 2048, QH 16, KH 4" in listed
    assert "[unfinished]" in listed

    assert run("engines", "verify").out == f"2 of 2 engines in {store} are as they were written\n"
    planned = run("engines", "prune", "--keep-gb", "0", "--dry-run").out
    assert planned.count("would remove") == 3
    assert run("engines", "prune", "--keep-gb", "1", "--json").json["unfinished"] == [
        {"key": "0123456789abcdef", "bytes": 5000}
    ]
    pruned = run("engines", "prune", "--keep-gb", "0")
    assert pruned.out.endswith("0 engines kept, 0 bytes\n")
    assert run("engines", "list", "--json").json == []


def test_verify_names_changed_settings(run, store, tmp_path):
    built = run("build", study(tmp_path), "--store", store, "--json").json["engines"][0]
    yaml = Path(built["settings"][0]["path"]) / "llm_args.yaml"
    yaml.chmod(0o644)
    yaml.write_text("max_batch_size: 1\n")

    outcome = run("engines", "verify", built["key"], "--store", store)
    assert outcome.code == 3
    assert f"{built['key']}: llm_args/{yaml.parent.name}: changed" in outcome.out
    assert run("engines", "verify", "zz", "--store", store).code == 2


def test_help_loads_nothing_heavy():
    script = """
import sys
from harness.cli.main import run
codes = [run(["build", "--help"]), run(["engines", "--help"])]
heavy = {"aiconfigurator_core", "numpy", "pandas", "plotly", "pyarrow", "scipy", "tensorrt_llm", "torch"}
print(codes, sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stderr == "[0, 0] []\n"


def test_a_bar_on_a_terminal_is_taken_away_again(capsys, monkeypatch):
    from harness.cli.meter import Meter

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    meter = Meter(quiet=False)
    meter.begin("engine 1/2 dense-8b")
    meter(3, 80, "layer 3")
    meter.clear()
    meter.clear()
    assert capsys.readouterr().err == ("\r\033[Kengine 1/2 dense-8b\r\033[Kengine 1/2 dense-8b: 3/80 layer 3\r\033[K")


def test_elsewhere_a_long_step_is_a_line_per_tenth(capsys):
    from harness.cli.meter import Meter

    meter = Meter(quiet=False)
    meter.begin("engine 1/1 dense-8b")
    for layer in range(80):
        meter(layer, 80, f"layer {layer}")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[1] == "engine 1/1 dense-8b: 8/80 layer 8"
    quiet = Meter(quiet=True)
    quiet.begin("x")
    quiet(1, 2, "y")
    quiet.wait("z")
    assert capsys.readouterr().err == ""
    assert cli_engines.command.name == "engines"
