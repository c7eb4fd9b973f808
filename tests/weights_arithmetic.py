"""How values are quantised, written down apart from what writes weights, and what comes back from the codes.

FP8: s = amax/448; codes are e4m3 of W/s, a division in bf16 because s has no dimensions. FP8 blocks: the same for each
128 x 128, divided in float32. NVFP4: s2 = amax/(6·448) with the largest amax of matrices that are read as one, a block
of 16 has the scale e4m3(amax/(6·s2)), and a code is the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 to w/(scale·s2), ties to
the even code, sign in bit 3, even columns in the low half of a byte.
"""

from __future__ import annotations

from typing import Any

import torch

MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def fp8(weight: Any) -> dict[str, Any]:
    scale = weight.float().abs().max() / 448
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale}


def fp8_block(weight: Any) -> dict[str, Any]:
    rows, columns = weight.shape
    codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            block = slice(128 * row, 128 * row + 128), slice(128 * column, 128 * column + 128)
            scales[row, column] = weight[block].float().abs().max() / 448
            codes[block] = (weight[block].float() / scales[row, column]).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scales}


def nvfp4(weight: Any, amax: float) -> dict[str, Any]:
    scale_2 = torch.tensor(amax) / (6 * 448)
    blocks = weight.float().unflatten(-1, (-1, 16))
    scale = (blocks.abs().amax(-1) / (6 * scale_2)).to(torch.float8_e4m3fn)
    scaled = (blocks / (scale.float() * scale_2).unsqueeze(-1)).flatten(-2)
    distance = (scaled.abs().unsqueeze(-1) - MAGNITUDES).abs()
    nearest = distance.min(-1).values.unsqueeze(-1) == distance
    # Of two that are equally near, one has an even code.
    first = nearest.to(torch.uint8).argmax(-1)
    codes = torch.where((nearest.sum(-1) == 2) & (first % 2 == 1), first + 1, first).to(torch.uint8)
    codes += (scaled < 0).to(torch.uint8) * 8
    return {"weight": codes[:, 1::2] << 4 | codes[:, ::2], "weight_scale": scale, "weight_scale_2": scale_2}


def quantised(weight: Any, format: str, amax: float) -> dict[str, Any]:
    """What is stored of a bf16 matrix, but for scales of inputs; `amax` is the largest value of its fused group."""
    return nvfp4(weight, amax) if format == "nvfp4" else {"fp8": fp8, "fp8_block": fp8_block}[format](weight)


def dequantised(stored: dict[str, Any], format: str) -> Any:
    """The float32 values that codes and scales mean."""
    if format == "fp8":
        return stored["weight"].float() * stored["weight_scale"]
    if format == "fp8_block":
        scales = stored["weight_scale_inv"].repeat_interleave(128, 0).repeat_interleave(128, 1)
        rows, columns = stored["weight"].shape
        return stored["weight"].float() * scales[:rows, :columns]
    codes = torch.stack([stored["weight"] & 15, stored["weight"] >> 4], -1).flatten(-2).long()
    signed = torch.cat([MAGNITUDES, -MAGNITUDES])[codes]
    return (signed.unflatten(-1, (-1, 16)) * _block_scales(stored).unsqueeze(-1)).flatten(-2)


def error_bound(weight: Any, stored: dict[str, Any], format: str) -> Any:
    """The furthest that each value can be from its source.

    E4M3 has 3 bits of mantissa: half a step is at most 2^-4 of the value, or 2^-10 of the scale below the normal ones;
    rounding to bf16 first adds 2^-9 of the value. E2M1's widest step is from 4 to 6, so that half is the block's scale.
    """
    if format == "nvfp4":
        return _block_scales(stored).repeat_interleave(16, -1)
    scale = stored["weight_scale"] if format == "fp8" else stored["weight_scale_inv"].max()
    return weight.float().abs() * (2**-4 + 2**-8) + scale * 2**-10


def _block_scales(stored: dict[str, Any]) -> Any:
    return stored["weight_scale"].float() * stored["weight_scale_2"]
