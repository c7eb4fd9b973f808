"""Reports of trtllm-bench: case 03 entire, and what else can be wrong with one. The numbers are worked out by hand."""

from __future__ import annotations

import pytest
from imports import BENCH_REPORTS, CASE_03, REPORTS, bench_report, read

from harness.results.imports import read_report

RATES = (12.8, 3276.8, 16384.0, 409.6, 2048.0, 22.5551)


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("run_stream", "ok", (8, 4, 2, None, *RATES, 30.0, 2850.0, 33.3333, 11350.0, 145.28, "FP8")),
        ("run_nostream", "ok", (8, 8, 1, 8, *RATES, None, None, None, 11350.0, 145.28, None)),
        ("run_bad_pergpu", "suspect", (8, 4, 2, None, *RATES, 30.0, 2850.0, 33.3333, 11350.0, 145.28, "FP8")),
        ("run_truncated", "unreadable", (None,) * 16),
    ],
)
def test_a_row_of_the_import_table(name: str, status: str, expected: tuple[object, ...]) -> None:
    row = read_report(BENCH_REPORTS / f"{name}.json").to_data()
    assert row["status"] == status
    assert tuple(row[column] for column in CASE_03) == expected


def test_both_figures_per_gpu_are_kept() -> None:
    row = read_report(BENCH_REPORTS / "run_bad_pergpu.json")
    assert row.values["output_tok_per_s_per_gpu"] == 409.6
    assert row.foreign["performance"]["output_throughput_per_gpu_tok_s"] == 819.2
    assert row.notes == ("output is 819.2 tok/s/GPU in the file and 3276.8 / 8 GPUs = 409.6; the latter counts",)


def test_the_two_speeds_of_a_user_are_different_columns() -> None:
    values = read_report(BENCH_REPORTS / "run_stream.json").values
    assert values["user_tok_per_s_with_prefill"] == pytest.approx(256 / 11.35, rel=1e-5)
    assert values["user_tok_per_s_decode_only"] == pytest.approx(1000 / 33.3333, rel=1e-5)
    assert values["tpot_rule"] == "from_first_token"


def test_without_streaming_nothing_is_known_of_tokens() -> None:
    values = read_report(BENCH_REPORTS / "run_nostream.json").values
    assert not {"ttft_ms_mean", "tpot_ms_mean", "tpot_rule", "user_tok_per_s_decode_only"} & values.keys()


def test_fractions_gib_and_the_rate_of_submission() -> None:
    row = read_report(BENCH_REPORTS / "run_stream.json")
    assert row.values["kv_cache_fraction"] == 0.9
    assert row.values["gpu_memory_gib"] == 178.35
    assert row.foreign["world_info"]["issue_rate"] == 2.5e14
    assert 2.5e14 not in row.values.values()


def test_a_truncated_report_is_named_with_its_position() -> None:
    [note] = read_report(BENCH_REPORTS / "run_truncated.json").notes
    assert note == "not JSON at line 40 column 3: Unterminated string starting at"


def test_the_world_is_tp_times_pp(tmp_path) -> None:
    data = bench_report()
    data["world_info"] |= {"tp_size": 2, "pp_size": 1, "ep_size": 2, "world_size": 4}
    data["performance"]["output_throughput_per_gpu_tok_s"] = 819.2
    row = read(tmp_path, "report.json", data)
    assert (row.status, row.values["gpus"], row.values["output_tok_per_s_per_gpu"]) == ("suspect", 2, 1638.4)
    assert row.notes[0] == "world size is 4 in the file and tp x pp = 2 x 1 = 2; the latter counts"
    assert row.values["total_tok_per_s_per_gpu"] == 8192


@pytest.mark.parametrize(
    ("path", "value", "note"),
    [
        (
            "performance.request_throughput_req_s", 25.6,
            "requests_per_s is 25.6 in the file, but requests / duration = 12.8",
        ),
        (
            "performance.system_output_throughput_tok_s", 3400.0,
            "output_tok_per_s is 3400 in the file, but requests/s x output tokens = 3276.8",
        ),
        (
            "performance.system_total_throughput_tok_s", 3276.8,
            "total_tok_per_s is 3276.8 in the file, but requests/s x tokens = 16384",
        ),
        ("performance.avg_request_latency_ms", "11350", "PATH is '11350' and no number; left blank"),
        ("performance.avg_request_latency_ms", -5, "PATH is -5, which it cannot be; left blank"),
        ("request_info.num_requests", 511.5, "PATH is 511.5 and no whole number; left blank"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_suspect(tmp_path, path: str, value: object, note: str) -> None:
    data = bench_report()
    section, field = path.split(".")
    data[section][field] = value
    row = read(tmp_path, "report.json", data)
    assert row.status == "suspect"
    assert note.replace("PATH", path) in row.notes


def test_one_token_a_request_is_no_generation(tmp_path) -> None:
    data = bench_report()
    data["request_info"]["avg_output_length"] = 1.0
    data["performance"] |= {"system_output_throughput_tok_s": 12.8, "system_total_throughput_tok_s": 13120.0}
    data["performance"]["output_throughput_per_gpu_tok_s"] = 1.6
    data["streaming_metrics"] |= {"avg_tpot_ms": 0.0, "token_output_speed_tok_s": 0.0}
    row = read(tmp_path, "report.json", data)
    assert row.status == "suspect"
    assert (
        row.notes[0] == "1 output tokens a request came and 256 were asked: nothing was generated after the first token"
    )
    assert "tpot_ms_mean is 0 in the file: undefined, left blank" in row.notes
    assert not {"tpot_ms_mean", "tpot_rule", "user_tok_per_s_decode_only"} & row.values.keys()


@pytest.mark.parametrize("section", ["engine", "machine", "world_info", "request_info", "streaming_metrics", "dataset"])
def test_any_section_may_be_null(tmp_path, section: str) -> None:
    row = read(tmp_path, "report.json", bench_report() | {section: None})
    assert row.status == "ok"
    assert row.values["requests_per_s"] == 12.8


def test_unknown_fields_are_kept(tmp_path) -> None:
    row = read(tmp_path, "report.json", bench_report() | {"decoding_stats": {"mode": "mtp", "rate": None}})
    assert row.foreign["decoding_stats"] == {"mode": "mtp", "rate": None}


def test_a_printed_report_says_the_same_by_its_labels() -> None:
    row = read_report(REPORTS / "bench.log")
    assert (row.status, row.notes, row.tool_version) == ("ok", (), "TensorRT-LLM 1.2")
    assert row.values == {
        "model": "synth/g8-h128", "gpus": 4, "tp": 4, "pp": 1, "kv_dtype": "FP8", "kv_cache_fraction": 0.9,
        "requests": 512, "input_tokens_mean": 2048.0, "output_tokens_mean": 128.0, "mean_concurrency": 63.0963,
        "duration_s": 41.4722654, "requests_per_s": 12.3456, "output_tok_per_s": 1580.2368,
        "total_tok_per_s": 26864.0256, "output_tok_per_s_per_gpu": 395.0592, "total_tok_per_s_per_gpu": 6716.0064,
        "user_tok_per_s_with_prefill": 25.044, "user_tok_per_s_decode_only": 33.4, "ttft_ms_mean": 1301.0,
        "tpot_ms_mean": 30.0, "tpot_rule": "from_first_token", "request_latency_ms_mean": 5111.0,
    }  # fmt: skip


def test_labels_and_lines_that_are_not_known_are_kept() -> None:
    foreign = read_report(REPORTS / "bench.log").foreign
    assert foreign["[TPOT] P99"] == "41.5000"
    assert foreign["Dataset Path"] == "/d/synth.jsonl"
    assert foreign["Quantization"] == "NVFP4"
    assert "Requests served without a hitch" in foreign["lines"]
    assert not any("Shutting down" in str(line) for line in [*foreign, *foreign["lines"]])
    assert foreign["sections"] == [
        "PYTORCH BACKEND", "REQUEST DETAILS", "WORLD + RUNTIME INFORMATION", "PERFORMANCE OVERVIEW", "DATASET DETAILS",
    ]  # fmt: skip


@pytest.mark.parametrize("spelling", ["TensorRT LLM Version", "TensorRT-LLM Version"])
def test_both_spellings_of_the_version(tmp_path, spelling: str) -> None:
    text = (REPORTS / "bench.log").read_text().replace("TensorRT LLM Version:\t1.2", f"{spelling}:\t1.10.0rc1")
    assert read(tmp_path, "bench.log", text).tool_version == "TensorRT-LLM 1.10.0rc1"


def test_the_unit_is_in_the_title(tmp_path) -> None:
    text = (REPORTS / "bench.log").read_text()
    seconds = text.replace(
        "Total Latency (ms):                               41472.2654", "Total Latency (sec): 41.4722654"
    )
    assert read(tmp_path, "seconds.log", seconds).values["duration_s"] == 41.4722654
    row = read(tmp_path, "none.log", text.replace("Total Latency (ms)", "Total Latency"))
    assert (row.status, row.notes) == ("suspect", ("Total Latency has no unit where s was expected; left blank",))
    row = read(tmp_path, "other.log", text.replace("Average request latency (ms)", "Average request latency (ticks)"))
    assert row.notes == ("Average request latency (ticks) has unit 'ticks' where ms was expected; left blank",)


def test_a_launcher_may_stand_before_every_line(tmp_path) -> None:
    text = (REPORTS / "bench.log").read_text()
    prefixed = "".join(f"0: {line}\n" for line in text.splitlines())
    assert read(tmp_path, "bench.log", prefixed).values == read_report(REPORTS / "bench.log").values


def test_two_reports_in_one_log_are_not_mixed(tmp_path) -> None:
    text = (REPORTS / "bench.log").read_text()
    row = read(tmp_path, "bench.log", text + text)
    assert row.status == "unreadable"
    assert row.notes == ("line 69 has 'Model' again, after line 7; one report a file",)
