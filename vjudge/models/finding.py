"""A judge's name -> the folder of its checkpoint, checked before any weight is read or fetched."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from vjudge.checkpoints.hub import HubError, fetch
from vjudge.checkpoints.shards import has_weights, read_json
from vjudge.models.architectures import SUPPORTED, Architecture, architecture_of

EMBEDDED = ("tiny", "tiny-base")  # what the package ships, as folders of its assets


def judge_names() -> tuple[str, ...]:
    """The judges that load by a short name."""
    return tuple(sorted(EMBEDDED))


def locate(name_or_path: str | Path, *, revision: str | None = None, trust_remote_code: bool = False) -> Path:
    """Find the folder of a judge by short name, local path or hub id; a hub checkpoint is downloaded once.

    The configuration is fetched and checked before any weight is.

    Raises:
        ValueError: nothing of that name exists, or what exists is not supported; lists what is.
    """
    name = str(name_or_path)
    if name in EMBEDDED:
        folder = Path(str(resources.files("vjudge").joinpath("assets", name)))
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"judge {name!r}: its files are missing from this installation ({folder}); reinstall vjudge"
            )
        return folder
    folder = Path(name).expanduser()
    if folder.is_dir():
        check_layout(folder, name, trust_remote_code=trust_remote_code)
        return folder
    if isinstance(name_or_path, Path) or name.startswith((".", "/", "~")) or name.count("/") != 1 or " " in name:
        known = ", ".join(repr(judge) for judge in judge_names())
        raise ValueError(
            f"no judge {name!r}: it is neither one of {known}, nor a folder, nor a hub id such as"
            f" 'llava-hf/llava-1.5-7b-hf'; give the path of a folder that holds {SUPPORTED}"
        )
    return _download(name, revision, trust_remote_code)


def check_layout(folder: Path, name: str, *, trust_remote_code: bool = False) -> Architecture:
    """Refuse a folder that can't be loaded right, saying why; otherwise how it is loaded."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"judge {name!r}: {folder} has no config.json; give a folder that holds {SUPPORTED}")
    architecture = _read(folder / "config.json", name, trust_remote_code)
    if architecture.kind == "original":
        return architecture
    if not has_weights(folder):
        pickled = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
        reason = f"only weights of another kind ({pickled[0]})" if pickled else "no weights"
        raise ValueError(f"judge {name!r}: {folder} holds {reason}; save the model as safetensors")
    preprocessing = ("preprocessor_config.json", "processor_config.json")
    if architecture.kind != "text" and not any((folder / file).is_file() for file in preprocessing):
        raise ValueError(f"judge {name!r}: {folder} has no preprocessor_config.json; copy the checkpoint's own there")
    return architecture


def _read(config: Path, name: str, trust_remote_code: bool) -> Architecture:
    return architecture_of(read_json(config), name, trust_remote_code=trust_remote_code)


def _download(name: str, revision: str | None, trust_remote_code: bool) -> Path:
    """Fetch a hub checkpoint that can be loaded; code, where the model is that code and it was asked to run."""

    def wanted(config: Mapping[str, Any]) -> tuple[str, ...]:
        remote = architecture_of(config, name, trust_remote_code=trust_remote_code).remote
        return ("*.py",) if remote else ()

    try:
        folder = fetch(name, revision=revision, wanted=wanted)
    except HubError as error:
        known = ", ".join(repr(judge) for judge in judge_names())
        raise ValueError(
            f"no judge {name!r}: it is neither one of {known} nor a folder, and the hub could not provide it"
            f" ({error}); give the path of a folder that holds {SUPPORTED}"
        ) from error
    check_layout(folder, name, trust_remote_code=trust_remote_code)
    return folder
