"""What fits: a judge's need against the memory that is free, before anything is loaded or downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from vjudge import checkpoints
from vjudge.checkpoints.kinds import decoder_of
from vjudge.checkpoints.layout import TEXT_SETTINGS
from vjudge.checkpoints.shards import read_json
from vjudge.models.finding import EMBEDDED, locate
from vjudge.models.memory import CONTEXT, GIB, Machine, Need, need
from vjudge.models.placement import Placement
from vjudge.models.sizes import PUBLISHED, TOWERS, assemble
from vjudge.prompts.families import FAMILIES

if TYPE_CHECKING:
    import pandas as pd

SERVER = 'load_judge("openai:MODEL", base_url="http://HOST:PORT/v1")'
FULLY = 0.5  # the share of weights below which a quantised model is said to be one in part only


class MemoryShortage(ValueError):
    """A judge that does not fit where it was to be loaded."""


@dataclass(frozen=True)
class Option:
    """One way to load a judge on one machine.

    Args:
        setting: in words.
        argument: what to pass to `load_judge`.
        need: what it takes.
        free: bytes that are free for it.
        note: what else there is to know.
    """

    setting: str
    argument: str
    need: Need
    free: int
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether the need is within what is free."""
        return self.need.total <= self.free


def fits(
    name_or_path: str | Path,
    *,
    machine: Machine | None = None,
    batch: int = 1,
    length: int | None = None,
    revision: str | None = None,
) -> pd.DataFrame:
    """Say which ways of loading a judge fit, without loading it.

    Args:
        name_or_path: as for `load_judge`; the published judges' sizes are known offline.
        machine: None for this one, as it is now; one of `COLAB`, or any `Machine`.
        batch, length: rows computed together and tokens of each, see `need`.
        revision: branch, tag or commit of a hub checkpoint.

    Returns:
        A row for each way: `setting`, `argument` (what to pass to `load_judge`), `need_gib` (computed, see `need`),
        `weights_gib`, `free_gib`, `fits`, `note`. The last row is a server, which needs nothing here.

    Raises:
        ValueError: nothing is known of the judge.
    """
    import pandas as pd

    config = configuration(name_or_path, revision=revision)
    if config is None:
        locate(name_or_path, revision=revision)  # says why there is no such judge
        raise ValueError(f"the memory of judge {str(name_or_path)!r} can't be computed from its config.json")
    found = options(config, machine or Machine.here(), batch=batch, length=length)
    rows = [
        {
            "setting": option.setting,
            "argument": option.argument,
            "need_gib": round(option.need.total / GIB, 1),
            "weights_gib": round(option.need.weights / GIB, 1),
            "free_gib": round(option.free / GIB, 1),
            "fits": option.fits,
            "note": option.note,
        }
        for option in found
    ]
    server = {"setting": "a server", "argument": SERVER, "need_gib": 0.0, "weights_gib": 0.0, "fits": True}
    return pd.DataFrame([*rows, {**server, "free_gib": float("nan"), "note": "needs nothing here"}])


def options(config: Any, machine: Machine, *, batch: int = 1, length: int | None = None) -> list[Option]:
    """Every way to load a model on a machine, the most exact first.

    Args:
        config: a transformers configuration.
        Others: as in `fits`.
    """

    def of(dtype: str, device: str, quantization: str | None = None) -> Need:
        return need(config, dtype=dtype, quantization=quantization, batch=batch, length=length, device=device)

    device, half = machine.device, machine.half
    free = {"cuda": max(machine.gpus, default=0), "mps": machine.mps or 0, "cpu": machine.ram}[device]
    on = {"cuda": "one GPU", "mps": "Apple's GPU", "cpu": "the CPU"}[device]
    found = [
        Option(f"float32 on {on}", 'dtype="float32"', of("float32", device), free),
        Option(f"{half} on {on}", f'dtype="{half}"', of(half, device), free),
    ]
    if device == "cuda":
        for kind in ("8bit", "4bit"):
            taken = of(half, device, kind)
            note = "" if taken.quantized > FULLY else f"only {taken.quantized:.0%} of its weights can be quantised"
            found.append(Option(f"{kind[0]}-bit on {on}", f'quantization="{kind}"', taken, free, note))
        pooled, spread = of(half, device), 'device_map="auto"'
        if (count := len(machine.gpus)) > 1:
            room = sum(machine.gpus) - (count - 1) * CONTEXT
            found.append(Option(f"{half} over {count} GPUs", spread, pooled, room))
        room = sum(machine.gpus) + machine.ram
        found.append(Option(f"{half}, the rest on the CPU", spread, pooled, room, "slow: weights travel at each token"))
    if device != "cpu":
        found.append(
            Option("bfloat16 on the CPU", 'device="cpu", dtype="bfloat16"', of("bfloat16", "cpu"), machine.ram)
        )
    return found


def check(
    name_or_path: str | Path,
    placed: Placement,
    *,
    revision: str | None = None,
    machine: Machine | None = None,
) -> None:
    """Refuse to load a judge that does not fit; quiet where it fits, or where its need can't be computed.

    Only its config.json is fetched. What may be put on a disk is not compared.

    Args:
        name_or_path, revision: as for `load_judge`.
        placed: where it is to be loaded.
        machine: None for this one.

    Raises:
        MemoryShortage: with the need, the free memory, and the options that fit.
    """
    mapped = placed.device_map
    if placed.options.get("offload_folder") or (isinstance(mapped, dict) and "disk" in mapped.values()):
        return
    config = configuration(name_or_path, revision=revision)
    if config is None:
        return
    kind, dtype = placed.device.type, str(placed.dtype).removeprefix("torch.")
    try:
        wanted = need(config, dtype=dtype, quantization=placed.quantization, device=kind)
    except ValueError:
        return  # an architecture that this transformers does not know: loading says so
    single = kind == "cuda" and mapped is None
    number = placed.device.index or 0
    here = machine or Machine.here(look_at=None if mapped is not None else [number] if single else [])
    if mapped is not None:
        free, where = _pool(here, placed.options.get("max_memory")), "all devices together"
    elif single:
        free, where = here.gpus[number if machine else 0], str(placed.device)
    else:
        free, where = (here.mps or 0, "mps") if kind == "mps" else (here.ram, "the CPU")
    if wanted.total > free:
        everywhere = machine or Machine.here()
        raise MemoryShortage(_refusal(str(name_or_path), config, wanted, placed, free, where, everywhere))
    if single and "device_map" not in placed.options and wanted.weights > here.ram:
        raise MemoryShortage(
            f"judge {str(name_or_path)!r} fits on {where}, but without accelerate its weights go by way of main memory:"
            f" {_gib(wanted.weights)}, and {_gib(here.ram)} are free; pip install 'vjudge[gpu]'"
        )


def _refusal(name: str, config: Any, wanted: Need, placed: Placement, free: int, where: str, machine: Machine) -> str:
    setting = f"{placed.quantization[0]}-bit" if placed.quantization else str(placed.dtype).removeprefix("torch.")
    parts = {"weights": wanted.weights, "keys and values": wanted.cache, "activations": wanted.activations}
    shown = ", ".join(f"{part} {_gib(size)}" for part, size in {**parts, "allowance": wanted.allowance}.items())
    fitting = [
        f"{option.argument} ({option.setting}: {_gib(option.need.total)} of {_gib(option.free)})"
        for option in options(config, machine)
        if option.fits
    ]
    what = "; or ".join([*fitting, f"a server, {SERVER}"])
    return (
        f"judge {name!r} does not fit: in {setting} it needs {_gib(wanted.total)} ({shown}; computed, for one row of"
        f" {wanted.tokens:,} tokens), and {_gib(free)} are free on {where}. What fits: {what}."
        " check_memory=False loads it all the same"
    )


def configuration(name_or_path: str | Path, *, revision: str | None = None) -> Any | None:
    """A judge's transformers configuration, from as little as can be fetched; None where that is not enough.

    Args:
        name_or_path, revision: as for `load_judge`; a published judge's sizes are not fetched at all.
    """
    name = str(name_or_path)
    folder = locate(name) if name in EMBEDDED else Path(name).expanduser()
    if not folder.is_dir() and name.lower() in (id for family in FAMILIES.values() for id in family.ids):
        for known in PUBLISHED:
            if known.id.rpartition("/")[2] == name.lower().rpartition("/")[2]:  # some stand under two owners
                return assemble(known.text, known.vision)
    try:
        settings = _settings(name, folder, revision)
        if checkpoints.is_original(settings):
            return _original(settings, folder, name)
        return None if "quantization_config" in settings else AutoConfig.for_model(**settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StrictDataclassError):
        return None  # loading says what is wrong with it, where anything is


def _settings(name: str, folder: Path, revision: str | None) -> dict[str, Any]:
    """The content of a checkpoint's config.json."""
    file = folder / "config.json"
    if not folder.is_dir():
        if name.count("/") != 1 or name.startswith((".", "/", "~")) or " " in name:
            raise ValueError(f"{name!r} is no hub id")
        import huggingface_hub

        try:
            file = Path(huggingface_hub.hf_hub_download(name, "config.json", revision=revision))
        except huggingface_hub.errors.HfHubHTTPError as error:
            raise OSError(str(error)) from error
    return read_json(file)


def _original(settings: dict[str, Any], folder: Path, name: str) -> Any:
    """The configuration of an original LLaVA checkpoint, without its tokenizer and its weights."""
    checkpoints.check(settings, name)
    text = {key: settings[key] for key in (*TEXT_SETTINGS, "vocab_size") if settings.get(key) is not None}
    tower = TOWERS.get(str(settings["mm_vision_tower"]).rstrip("/").rpartition("/")[2])
    if tower is None:
        tower = checkpoints.Original(folder, name=name).tower_config.to_dict()
    return assemble({**text, "model_type": decoder_of(settings)}, tower)


def _pool(machine: Machine, limits: dict[Any, Any] | None) -> int:
    """What a device map may use in all."""
    free: dict[Any, int] = {**dict(enumerate(machine.gpus)), "cpu": machine.ram}
    if machine.mps is not None:
        free["mps"] = machine.mps
    if limits is not None:
        from accelerate.utils import convert_file_size_to_int

        free = {key: min(free.get(key, 0), convert_file_size_to_int(limit)) for key, limit in limits.items()}
    return sum(free.values())


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def memory_table() -> str:
    """The published judges with the memory that each takes, in Markdown, computed for one prompt of the usual length.

    Returns:
        A row for each of `PUBLISHED`: its name, the call, parameters, GiB at each precision, and what was verified.
    """
    head = ["Judge", "`load_judge(...)`", "Weights", "float32", "16-bit", "8-bit", "4-bit", "Verified here"]
    lines = [head, ["---", "---", *["---:"] * 5, "---"]]
    for judge in PUBLISHED:
        config = assemble(judge.text, judge.vision)
        needs = [need(config, dtype=dtype) for dtype in ("float32", "bfloat16")]
        needs += [need(config, quantization=kind) for kind in ("8bit", "4bit")]
        sizes = [f"{each.total / GIB:.1f}" for each in needs]
        sizes = [f"{size} *" if 0 < each.quantized < FULLY else size for size, each in zip(sizes, needs, strict=True)]
        count = f"{needs[0].parameters / 1e9:.2f} B"
        lines.append([judge.name, f'`"{judge.id}"`', count, *sizes, judge.verified])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fitting_table(machines: Sequence[Machine]) -> str:
    """What fits where, in Markdown: the `quantization` to load each published judge with on one GPU, None before 8-bit.

    Args:
        machines: each with a GPU, such as `COLAB`.
    """
    head = ["`JUDGE`", *(machine.name for machine in machines)]
    lines = [head, ["---"] * len(head)]
    for judge in PUBLISHED:
        config, cells = assemble(judge.text, judge.vision), []
        for machine in machines:
            ways = zip(("`None`", '`"8bit"`', '`"4bit"`'), options(config, machine)[1:4], strict=True)
            cells.append(next((way for way, option in ways if option.fits), "too large"))
        lines.append([f'`"{judge.id}"`', *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
