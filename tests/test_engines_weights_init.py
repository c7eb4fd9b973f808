from __future__ import annotations

import hashlib
import importlib
from typing import Any

import pytest

from harness.engines.weights_init import PIECE_VALUES, random_pieces, random_tensor, standard_deviation
from harness.engines.weights_layout import Tensor

CONFIG = {"num_hidden_layers": 8, "tie_word_embeddings": False}
MATRIX = Tensor("model.layers.0.mlp.gate_proj.weight", (1024, 1024), "linear")


@pytest.mark.parametrize(
    ("role", "config", "sigma"),
    [
        ("linear", {}, 1 / 32),
        ("router", {}, 1 / 32),
        ("head", {}, 1 / 32),
        ("output", {}, 1 / 128),  # 2 · 8 layers: a quarter
        ("embedding", {}, 1),
        ("embedding", {"tie_word_embeddings": True}, 1 / 32),
        ("norm", {}, 0),
        ("bias", {}, 0),
    ],
)
def test_standard_deviations(role: Any, config: dict[str, Any], sigma: float) -> None:
    assert standard_deviation(Tensor("x", (64, 1024), role), {**CONFIG, **config}) == sigma


@pytest.mark.torch
def test_values_are_normal_up_to_three_standard_deviations() -> None:
    values = random_tensor(MATRIX, CONFIG, seed=1).float() * 32
    assert tuple(values.shape) == (1024, 1024)
    assert abs(float(values.mean())) < 0.005
    # Of a normal distribution cut at 3: 0.99865 of it is below 3, the variance is 0.9973.
    assert float(values.std()) == pytest.approx(0.9973**0.5, rel=0.005)
    assert float((values.abs() < 1).float().mean()) == pytest.approx(0.6827, abs=0.003)
    assert float(values.max()) == 3.0
    assert float(values.min()) == -3.0
    assert float(values[0, 0]) == 3.0


@pytest.mark.torch
def test_partners_of_a_fused_matrix_have_the_same_largest_value() -> None:
    heads = [random_tensor(Tensor(f"x.{name}_proj.weight", (rows, 64), "linear"), CONFIG, 1) for name, rows in
             (("q", 64), ("k", 1), ("v", 8))]  # fmt: skip
    assert {float(one.abs().max()) for one in heads} == {3 / 8}


@pytest.mark.torch
def test_norms_are_one_and_biases_zero() -> None:
    assert random_tensor(Tensor("x", (3,), "norm"), CONFIG, 1).tolist() == [1.0, 1.0, 1.0]
    assert random_tensor(Tensor("x", (2,), "bias"), CONFIG, 1).tolist() == [0.0, 0.0]


@pytest.mark.torch
def test_seed_name_and_place_decide_a_value_and_nothing_else_does() -> None:
    torch = importlib.import_module("torch")
    whole = random_tensor(MATRIX, CONFIG, seed=1)
    pieces = list(random_pieces(MATRIX, CONFIG, seed=1))
    assert torch.cat(pieces).equal(whole.view(-1))
    # As many rows as there are, the first values stay.
    taller = Tensor(MATRIX.name, (2048, 1024), "linear")
    assert random_tensor(taller, CONFIG, seed=1)[:1024].equal(whole)
    longer = Tensor(MATRIX.name, (9 * PIECE_VALUES + 5,), "linear")
    assert [len(one) for one in random_pieces(longer, CONFIG, 1)] == [8 * PIECE_VALUES, PIECE_VALUES + 5]
    assert not random_tensor(MATRIX, CONFIG, seed=2).equal(whole)
    assert not random_tensor(Tensor("model.layers.1.mlp.gate_proj.weight", (1024, 1024), "linear"), CONFIG, 1).equal(
        whole
    )


@pytest.mark.torch
def test_values_are_the_same_on_every_machine() -> None:
    torch = importlib.import_module("torch")
    raw = random_tensor(MATRIX, CONFIG, seed=1).view(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(raw).hexdigest()[:16] == "3c97dffb2e25e865"
