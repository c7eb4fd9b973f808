"""A variant: the architecture and the precision of one synthetic model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from harness.spec.base import AlsoOne, Spec
from harness.spec.bounds import Flag, Heads, Layers, Name, Size, SizeOrZero

#: Weight formats of a checkpoint. `fp8` has one fixed scale per tensor (NVIDIA Model Optimizer), `fp8_block` one per
#: 128 x 128 block, `nvfp4` one FP8 scale per 16 values and one FP32 scale per tensor. `fp32` is no quantisation but the
#: number format of a whole model, which CPUs compute in; TensorRT-LLM runs none of it.
WeightFormat = Literal["bf16", "fp8", "fp8_block", "nvfp4", "fp32"]
KvFormat = Literal["bf16", "fp8", "nvfp4", "fp32"]
AttnFormat = Literal["bf16", "fp8", "fp32"]
LayerAttention = Literal["full", "sliding", "mla", "none"]


class WeightFormats(Spec):
    """Weight format per module group. Router, norms and embeddings stay bf16, or fp32 where all groups are."""

    attention: WeightFormat = "bf16"
    ffn: WeightFormat = "bf16"
    experts: WeightFormat = "bf16"
    lm_head: WeightFormat = "bf16"

    @model_validator(mode="after")
    def _fp32_is_whole(self) -> WeightFormats:
        groups = self.model_dump()
        others = [f"{name} {stored}" for name, stored in groups.items() if stored != "fp32"]
        if 0 < len(others) < len(groups):
            raise ValueError(
                f"fp32 is the number format of a whole model, and here is {', '.join(others)}; "
                "`weights: fp32` makes all of it fp32"
            )
        return self

    @property
    def unquantised(self) -> Literal["bf16", "fp32"]:
        """What is never quantised: activations between modules, router, norms, embeddings."""
        return "fp32" if self.attention == "fp32" else "bf16"


class Mla(Spec):
    """Multi-head latent attention (DeepSeek-V3, arXiv 2412.19437): what a token caches, how heads are made of it."""

    kv_lora_rank: Size = 512
    rope_head_dim: Size = 64
    nope_head_dim: Size = 128
    value_head_dim: Size = 128
    q_lora_rank: Size | None = 1536


class Experts(Spec):
    """The MoE part: `count` routed experts of which each token takes `top_k`."""

    count: Heads
    top_k: Heads
    inter: Size
    """Intermediate size of one expert."""
    shared_inter: SizeOrZero = 0
    """Intermediate size of the shared expert, 0 for none."""
    dense_layers: SizeOrZero = 0
    """How many leading layers keep a dense FFN."""

    @model_validator(mode="after")
    def _top_k_fits(self) -> Experts:
        if self.top_k > self.count:
            raise ValueError(f"top_k {self.top_k} is more than the {self.count} experts there are")
        return self


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def spread_formats(value: Any) -> Any:
    """`weights: fp8` sets attention, FFN and experts alike; lm_head stays bf16 unless named, or all is fp32."""
    if not isinstance(value, str):
        return value
    groups = {"attention": value, "ffn": value, "experts": value}
    return {**groups, "lm_head": value} if value == "fp32" else groups


class Variant(Spec):
    """One synthetic model.

    Symbols of the guidelines: H `hidden`, QH `q_heads`, KH `kv_heads`, Hsz `head_dim`, H' `ffn`. `head_dim` is
    independent of hidden / q_heads. `attention` is the pattern of layer kinds, repeated over the layers: `full`, or
    `[sliding, sliding, full]`; a list as long as `layers` describes an irregular model. Shapes that divide badly are
    legal here and judged by `harness.lint`.
    """

    name: Name = "variant"
    layers: Layers
    hidden: Size
    q_heads: Heads
    kv_heads: Heads
    head_dim: Heads
    ffn: SizeOrZero
    vocab: Size
    attention: Annotated[
        tuple[LayerAttention, ...], BeforeValidator(_as_tuple), AlsoOne("string"), Field(min_length=1)
    ] = ("full",)
    window: SizeOrZero = 0
    """Tokens that a sliding layer sees."""
    mla: Mla | None = None
    experts: Experts | None = None
    weights: Annotated[WeightFormats, BeforeValidator(spread_formats), AlsoOne("string")] = WeightFormats()
    kv_format: KvFormat = "bf16"
    attn_format: AttnFormat = "bf16"
    """Arithmetic of prefill attention."""
    gated_ffn: Flag = True
    """Gate and up projections (SwiGLU), else one up projection."""
    tie_embeddings: Flag = False

    @model_validator(mode="after")
    def _kinds_have_their_facts(self) -> Variant:
        if len(self.attention) > self.layers:
            raise ValueError(f"attention names {len(self.attention)} layers but the variant has {self.layers}")
        if "sliding" in self.attention and not self.window:
            raise ValueError("attention has sliding layers, so window must be more than 0 (for example window: 1024)")
        if "mla" in self.attention and self.mla is None:
            raise ValueError("attention has mla layers, so mla must be given ('mla: {}' takes the DeepSeek-V3 sizes)")
        dense = self.experts.dense_layers if self.experts else self.layers
        if dense > self.layers:
            raise ValueError(f"experts.dense_layers {dense} is more than the {self.layers} layers there are")
        if dense and not self.ffn:
            raise ValueError(f"ffn is 0 but {dense} layers have a dense FFN")
        return self

    @property
    def group_size(self) -> float:
        """G = QH / KH; whole in any shape that lint accepts."""
        return self.q_heads / self.kv_heads

    def attention_of(self, layer: int) -> LayerAttention:
        """The attention kind of one layer, counted from 0."""
        return self.attention[layer % len(self.attention)]

    def count_layers(self, kind: LayerAttention) -> int:
        """How many layers have this attention kind."""
        whole, rest = divmod(self.layers, len(self.attention))
        return whole * self.attention.count(kind) + self.attention[:rest].count(kind)
