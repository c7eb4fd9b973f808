"""Run as a program: kills builds and says what they left.

    python kill_builds.py everywhere ACTION FOLDER    at every change of the file system, one after the other
    python kill_builds.py anytime ACTION FOLDER N     after a random time, N times

The process that is killed is a fork of this one, so that a kill costs milliseconds. Afterwards what is there must be
nothing, the whole engine, or the damaged one there was before; and the next build must make it whole.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from engines import SHARDS, spec, with_weights, write_shards

from harness.engines.engine_spec import EngineSpec
from harness.engines.prune import prune
from harness.engines.store import EngineStore, settings_are_whole
from harness.files.locks import LOCK_NAME

SPEC = spec()
WEIGHTY = with_weights(spec(), write_shards)
BIG = {"tokenizer.json": "x" * (1 << 20)}
SHARING = spec(BIG)
SETTINGS = {"llm_args.yaml": "max_batch_size: 8\n", "balancer.yaml": "num_slots: 8\n"}


def nothing(root: Path) -> None:
    """No engine."""


def damage(root: Path) -> None:
    """A whole engine with one byte changed."""
    store = EngineStore(root)
    path = store.build(SPEC).engine.path / "config.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("Llama", "llama"))


#: Action → what is there before, what the killed process does, and which engine it is about.
ACTIONS: dict[str, tuple[Callable[[Path], object], Callable[[EngineStore], object], EngineSpec]] = {
    "build": (nothing, lambda store: store.build(SPEC), SPEC),
    "weights": (nothing, lambda store: store.build(WEIGHTY), WEIGHTY),
    "repair": (damage, lambda store: store.build(SPEC), SPEC),
    "share": (
        lambda root: EngineStore(root).build(spec(BIG, layers=3)),
        lambda store: store.build(SHARING),
        SHARING,
    ),
    "prune": (lambda root: EngineStore(root).build(SPEC), lambda store: prune(store, 0), SPEC),
    "settings": (
        lambda root: EngineStore(root).build(SPEC),
        lambda store: store.add_settings(SPEC.key, "tp1", SETTINGS),
        SPEC,
    ),
}

_CHANGES = {
    "fcntl.flock", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime",
}  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def die_before(change: int) -> None:
    """Kill this process before its change number `change` of the file system."""
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
            if count == change:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    sys.addaudithook(hook)


def fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def look(action: str, root: Path) -> str:
    """What the killed process left, and proof that the next build makes it whole."""
    _, _, wanted = ACTIONS[action]
    store = EngineStore(root)
    found = store.inspect(wanted.key)
    state = "whole" if found.is_whole else "damaged" if found.damage else "absent"
    if found.damage:
        assert found.damage == ("config.json: content changed",), found.damage
    if found.is_whole:
        check_content(store, wanted)
    settings = [settings_are_whole(folder) for folder in store.settings(wanted.key)]
    assert all(settings), "half a folder of settings"
    built = store.build(wanted)
    assert built.outcome == {"whole": "kept", "damaged": "rebuilt", "absent": "built"}[state]
    check_content(store, wanted)
    folder, _ = store.add_settings(wanted.key, "tp1", SETTINGS)
    assert settings_are_whole(folder)
    prune(store, 10**9)
    if action == "share":
        other = store.engine_path(spec(BIG, layers=3).key)
        assert (store.engine_path(wanted.key) / "tokenizer.json").samefile(other / "tokenizer.json")
        assert store.inspect(other.parent.name).is_whole
    left = {path.name for path in store.home(wanted.key).iterdir()} - {LOCK_NAME}  # a dead process's lock holds nothing
    assert left == {"engine", "llm_args"}, left
    assert [path.name for path in (store.home(wanted.key) / "llm_args").iterdir()] == [folder.name]
    return state + (" with settings" if settings else "")


def check_content(store: EngineStore, wanted: EngineSpec) -> None:
    folder = store.engine_path(wanted.key)
    content = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    assert content.pop("manifest.json")
    expected = {name: text.encode() for name, text in wanted.files.items()} | (SHARDS if wanted.weights else {})
    assert {name: path.read_bytes() for name, path in content.items()} == expected


def everywhere(action: str, root: Path) -> Counter[str]:
    states: Counter[str] = Counter()
    prepare, act, _ = ACTIONS[action]
    killed = True
    while killed:
        shutil.rmtree(root, ignore_errors=True)
        prepare(root)
        number = states.total()

        def work(number: int = number) -> None:
            die_before(number)
            act(EngineStore(root))

        _, status = os.waitpid(fork(work), 0)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, status
        states[look(action, root) if killed else "finished"] += 1
    return states


def anytime(action: str, root: Path, times: int) -> Counter[str]:
    states: Counter[str] = Counter()
    prepare, act, _ = ACTIONS[action]
    shutil.rmtree(root, ignore_errors=True)
    prepare(root)
    began = time.monotonic()
    os.waitpid(fork(lambda: act(EngineStore(root))), 0)
    takes_s = time.monotonic() - began
    for _ in range(times):
        shutil.rmtree(root, ignore_errors=True)
        prepare(root)
        child = fork(lambda: act(EngineStore(root)))
        time.sleep(random.uniform(0, takes_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        states[look(action, root)] += 1
    return states


if __name__ == "__main__":
    how, action, folder, *times = sys.argv[1:]
    found = everywhere(action, Path(folder)) if how == "everywhere" else anytime(action, Path(folder), int(times[0]))
    sys.stdout.write(json.dumps(found))
