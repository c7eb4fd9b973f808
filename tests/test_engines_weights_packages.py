from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError

import pytest

from harness.engines.module_formats import ModuleFormats
from harness.engines.weights_packages import check_packages
from harness.errors import EnvironmentUnfit, MissingExtra

NVFP4 = ModuleFormats("nvfp4")
FP8 = ModuleFormats("fp8")


def with_versions(**changes: str | None) -> Callable[[str], str]:
    """An environment with these versions, `None` for a package that is not installed."""
    versions: dict[str, str | None] = {
        "numpy": "2.4.6",
        "torch": "2.13.0+cpu",
        "transformers": "4.57.3",
        "nvidia-modelopt": "0.47.0",
        "accelerate": "1.15.0",
        "requests": "2.34.2",
        "safetensors": "0.8.0",
    }
    versions |= {name.replace("_", "-"): version for name, version in changes.items()}

    def installed(name: str) -> str:
        version = versions[name]
        if version is None:
            raise PackageNotFoundError(name)
        return version

    return installed


def test_versions_that_decide_the_bytes_are_named() -> None:
    assert check_packages(NVFP4, with_versions()) == {
        "numpy": "2.4.6",
        "torch": "2.13.0+cpu",
        "transformers": "4.57.3",
        "nvidia-modelopt": "0.47.0",
    }


def test_weights_in_bf16_need_no_model_optimizer() -> None:
    bare = with_versions(nvidia_modelopt=None, requests=None)
    assert check_packages(ModuleFormats(), bare).keys() == {"numpy", "torch", "transformers"}
    with pytest.raises(MissingExtra, match=r"trtllm-harness\[modelopt\].*nvidia-modelopt is not installed"):
        check_packages(ModuleFormats(kv="fp8"), bare)


def test_what_model_optimizer_needs_and_does_not_bring() -> None:
    # transformers 5 with huggingface_hub 2 brings no requests, without which `import modelopt.torch` fails.
    with pytest.raises(MissingExtra, match="requests is not installed"):
        check_packages(FP8, with_versions(requests=None))


@pytest.mark.parametrize("version", ["0.37.0", "0.40.0", "0.43.0", "0.44.0"])
@pytest.mark.parametrize(
    "formats", [NVFP4, ModuleFormats(layers={"model.layers.0.mlp.up_proj": "nvfp4", "model.layers.0.x": "fp8"})]
)
def test_older_releases_pack_nvfp4_on_a_gpu_only(version: str, formats: ModuleFormats) -> None:
    said = rf"Model Optimizer {version} packs NVFP4 on a GPU only.*nvidia-modelopt 0.45 or later"
    with pytest.raises(EnvironmentUnfit, match=said):
        check_packages(formats, with_versions(nvidia_modelopt=version))
    assert check_packages(FP8, with_versions(nvidia_modelopt=version))["nvidia-modelopt"] == version
    assert check_packages(ModuleFormats(kv="nvfp4"), with_versions(nvidia_modelopt=version))


def test_releases_that_are_too_old() -> None:
    with pytest.raises(EnvironmentUnfit, match=r"Model Optimizer 0.33.1 is too old"):
        check_packages(FP8, with_versions(nvidia_modelopt="0.33.1"))
    with pytest.raises(EnvironmentUnfit, match=r"transformers 4.53.2 is too old"):
        check_packages(FP8, with_versions(transformers="4.53.2"))
    assert check_packages(NVFP4, with_versions(nvidia_modelopt="0.45.0", transformers="5.24.0"))
