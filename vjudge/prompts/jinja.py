"""A checkpoint's own chat template, filled in a process of its own with bounds on time, memory and length.

A chat template is a program that came with the weights. Jinja's sandbox keeps it from files and from Python's insides,
but not from looping for ever or writing without end, and no thread can be stopped from outside. A process can, on every
platform. It starts in about 0.15 s, once for each shape of prompt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

SECONDS = 20.0  # on a busy machine, a process can take some seconds to start
CPU_SECONDS = 5
CHARACTERS = 1_000_000
MEMORY = 2**30  # bytes; where the platform can bound them

_CHILD = "import sys; sys.path[:1] = []; from vjudge.prompts.jinja import _child; _child()"


def fill(template: str, variables: Mapping[str, Any]) -> str:
    """Fill a chat template as transformers does.

    Args:
        template: its Jinja source.
        variables: what it reads: `messages`, `add_generation_prompt` and so on; plain JSON values.

    Raises:
        ValueError: it raises, takes too long, needs too much memory or writes too much; the message says which.
    """
    task = json.dumps({"template": template, "variables": dict(variables), "cpu": CPU_SECONDS}).encode()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": ""}
    try:
        command = [sys.executable, "-c", _CHILD]
        child = subprocess.run(command, input=task, capture_output=True, timeout=SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        raise ValueError(f"it does not end within {SECONDS:g} s") from None
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        last = child.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise ValueError(
            f"it was stopped after {CPU_SECONDS} s or out of memory ({last or child.returncode})"
        ) from None
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["text"]


def _child() -> None:
    """In the process of its own: a task from standard input, the text or an error to standard output."""
    task = json.loads(sys.stdin.buffer.read())
    with suppress(ImportError):  # Windows has none: the parent's bound on time holds alone
        import resource

        for kind, limit in ((resource.RLIMIT_CPU, task["cpu"]), (resource.RLIMIT_AS, MEMORY)):
            with suppress(ValueError, OSError):  # macOS bounds no address space
                resource.setrlimit(kind, (limit, limit))
    try:
        answer = {"text": _fill(task["template"], task["variables"])}
    except BaseException as error:  # whatever a checkpoint's template raises
        answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _fill(source: str, variables: Mapping[str, Any]) -> str:
    """Fill it with what transformers gives to templates: loop controls, {% generation %} and four names.

    Source: huggingface/transformers src/transformers/utils/chat_template_utils.py, which takes seconds to import.
    """
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what a model wrote; here nothing is trained, so its body stands as it is."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    class Names(jinja2.utils.Namespace):
        """A namespace without names of Python's own, through which templates have left the sandbox."""

        def __setitem__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"{name!r} can't be set on a namespace")
            super().__setitem__(name, value)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)  # Jinja's own escapes HTML

    extensions = [Generation, loopcontrols]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = to_json
    environment.globals |= {"raise_exception": refuse, "namespace": Names}
    environment.globals["dict"] = lambda *pairs, **items: dict(*pairs, **items)
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    text = ""
    for piece in environment.from_string(source).generate(**variables):
        text += piece
        if len(text) > CHARACTERS:
            raise ValueError(f"it writes more than {CHARACTERS:,} characters")
    return text
