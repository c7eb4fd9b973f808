from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import FILES, SHARDS, VARIANT, spec, with_weights, write_shards
from hypothesis import given
from hypothesis import strategies as st

from harness.engines.engine_spec import EngineSpec
from harness.engines.manifest import Engine, WeightsOrigin, read_engine
from harness.engines.places import disk_bytes
from harness.engines.prune import holdings, prune
from harness.engines.space import available_memory_bytes, check_space, gigabytes
from harness.engines.store import EngineStore, settings_are_whole
from harness.errors import EnvironmentUnfit, UnreadableInput, UsageError
from harness.files import folder_lock
from harness.spec.variant import WeightFormats

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
BIG = "x" * (1 << 20)


@pytest.fixture
def store(tmp_path: Path) -> EngineStore:
    return EngineStore(tmp_path / "store")


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, so that hundreds of durable writes take no time."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


# ---- building


def test_an_engine_is_built_once_and_then_kept(store):
    first = store.build(spec())
    again = store.build(spec())

    assert (first.outcome, again.outcome) == ("built", "kept")
    assert first.engine == again.engine == read_engine(store.root / spec().key / "engine")
    found = content(first.engine.path)
    del found["manifest.json"]
    assert found == {name: text.encode() for name, text in FILES.items()}
    assert [path.name for path in store.home(spec().key).iterdir()] == ["engine"]


def test_weights_are_written_beside_the_files_and_what_they_were_made_with_is_kept(store):
    told = []
    built = store.build(with_weights(spec(), write_shards, seed=7), lambda *step: told.append(step))

    found = content(built.engine.path)
    assert {name: found[name] for name in SHARDS} == SHARDS
    assert not any(name.startswith(".") for name in found)
    assert told == [(0, 3, "model-0.safetensors"), (1, 3, "model-1.safetensors"), (2, 3, "model-2.safetensors")]
    assert built.engine.manifest.weights == WeightsOrigin(
        mode="modelopt", seed=7, versions={"nvidia-modelopt": "1.0"}, details={"shards": 3}
    )


def test_a_build_that_failed_goes_on_with_the_weights_it_had(store):
    written = []

    def write(folder, progress):
        for name, data in SHARDS.items():
            if not (folder / name).exists():
                if written == ["model-0.safetensors"]:
                    written.append("failed")
                    raise OSError(28, "No space left on device")
                (folder / name).write_bytes(data)
                written.append(name)
        return {}

    wanted = with_weights(spec(), write)
    with pytest.raises(EnvironmentUnfit, match="no space left on the device"):
        store.build(wanted)
    assert store.inspect(wanted.key).engine is None
    assert holdings(store)[0].unfinished_bytes == 1000 + sum(map(len, FILES.values()))

    assert store.build(wanted).outcome == "built"
    assert written == ["model-0.safetensors", "failed", "model-1.safetensors", "model-2.safetensors"]


def test_a_build_without_weights_that_failed_leaves_nothing(store):
    wanted = spec({"name\0": "no file can be called so"})
    with pytest.raises(ValueError, match="null"):
        store.build(wanted)
    assert list(store.home(wanted.key).iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing_that_is_accepted(tmp_path):
    code = """
        import sys
        from engines import spec
        from harness.engines.store import EngineStore
        from harness.errors import EnvironmentUnfit
        store, wanted = EngineStore(sys.argv[1]), spec({"tokenizer.json": "x" * 100_000})
        try:
            store.build(wanted)
        except EnvironmentUnfit as error:
            print(error)
        print(store.inspect(wanted.key).engine, *store.home(wanted.key).iterdir())
        """
    said, left = python(code, tmp_path, file_size_limit=4096).splitlines()
    assert said.endswith(
        "tokenizer.json: cannot be written: the limit on the size of a file is reached; see `ulimit -f`"
    ) or ("cannot be written: the limit on the size of a file is reached" in said)
    assert left == "None"


def test_a_store_where_a_file_is_in_the_way_is_the_users_mistake(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(UsageError, match="store: cannot be written: a part of the path is a file, not a folder"):
        EngineStore(tmp_path / "store").build(spec())


# ---- keys


@pytest.mark.parametrize(
    "other",
    [
        spec(kv_format="fp8"),
        spec(kv_format="nvfp4"),
        spec(layers=3),
        spec(weights=WeightFormats(ffn="nvfp4")),
        spec({"config.json": "{}\n"}),
        spec({"one_more.json": "{}\n"}),
        EngineSpec(VARIANT, "Qwen3ForCausalLM", FILES),
        with_weights(spec(), write_shards),
    ],
)
def test_whatever_decides_the_content_changes_the_key(other):
    assert other.key != spec().key
    assert len(other.key) == 16


def test_seed_and_versions_of_weights_change_the_key(store):
    one = with_weights(spec(), write_shards, seed=0)
    assert with_weights(spec(), write_shards, seed=1).key != one.key
    newer = WeightsOrigin(mode="modelopt", seed=0, versions={"nvidia-modelopt": "1.1"})
    assert EngineSpec(VARIANT, "LlamaForCausalLM", FILES, weights=one.weights, origin=newer).key != one.key


def test_names_and_the_arithmetic_of_prefill_attention_change_no_engine():
    assert spec(name="dense-8b G=4", attn_format="fp8").key == spec().key
    assert spec().variant.attn_format == "bf16"


@given(st.permutations(list(FILES)))
def test_the_order_of_files_does_not_matter(names):
    assert EngineSpec(VARIANT, "LlamaForCausalLM", {name: FILES[name] for name in names}).key == spec().key


def test_a_key_may_be_shortened_to_what_tells_it_apart(store):
    keys = [store.build(spec(layers=layers)).engine.key for layers in range(1, 20)]

    assert store.keys() == sorted(keys)
    assert store.find(keys[0]) == store.find(keys[0][:10]) == keys[0]
    with pytest.raises(UsageError, match="19 engines begin with ''"):
        store.find("")
    with pytest.raises(UsageError, match="no engine 'zz' is here; `trtllm-harness engines list` names those there are"):
        store.find("zz")


# ---- what engines share


def test_equal_large_files_of_two_engines_are_one_on_disk_and_different_ones_two(store):
    fp8 = store.build(spec({"tokenizer.json": BIG, "model.safetensors": BIG + "fp8"}, kv_format="fp8")).engine
    bf16 = store.build(spec({"tokenizer.json": BIG, "model.safetensors": BIG + "bf16"})).engine

    def same(name: str) -> bool:
        return (fp8.path / name).samefile(bf16.path / name)

    assert same("tokenizer.json")
    assert not same("model.safetensors")
    assert not same("config.json")  # equal, but too small to be worth it
    assert store.inspect(fp8.key).is_whole
    assert store.inspect(bf16.key).is_whole
    assert disk_bytes([store.root]) < 3.1 * len(BIG)


def test_a_damaged_file_is_shared_with_nobody_and_mended_alone(store):
    one, other = spec({"tokenizer.json": BIG}), spec({"tokenizer.json": BIG}, layers=3)
    damaged = store.build(one).engine.path / "tokenizer.json"
    overwrite(damaged, b"y" * len(BIG))

    built = store.build(other).engine
    assert (built.path / "tokenizer.json").read_text() == BIG

    again = store.build(one)
    assert (again.outcome, again.damage) == ("rebuilt", ("tokenizer.json: content changed",))
    assert damaged.samefile(built.path / "tokenizer.json")
    assert damaged.read_text() == BIG


def test_an_engine_outlives_the_one_it_shares_files_with(store):
    one, other = spec({"tokenizer.json": BIG}), spec({"tokenizer.json": BIG}, layers=3)
    first, second = store.build(one).engine, store.build(other).engine
    os.utime(first.path, (1, 1))

    newest, oldest = holdings(store)
    assert (newest.key, oldest.key) == (second.key, first.key)
    assert newest.engine_bytes > len(BIG) > oldest.engine_bytes  # what they share counts where it stays longest
    assert [held.key for held in prune(store, newest.engine_bytes).removed] == [first.key]
    assert store.inspect(second.key).is_whole


# ---- damage


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def to_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda engine: flip(engine / "config.json"), "config.json: content changed"),
        (lambda engine: overwrite(engine / "config.json", b"{}"), "config.json: has 2 bytes instead of 40"),
        (lambda engine: (engine / "extra" / "special_tokens_map.json").unlink(), "special_tokens_map.json: is missing"),
        (lambda engine: (engine / "rank0.engine").write_text(""), "rank0.engine: is not in the manifest"),
        (lambda engine: (engine / ".hidden").write_text(""), ".hidden: is not in the manifest"),
        (lambda engine: to_link(engine / "config.json"), "config.json: is no regular file"),
        (lambda engine: (engine / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda engine: flip(engine / "manifest.json"), "manifest.json"),
        (lambda engine: overwrite(engine / "manifest.json", b"[]"), "damaged: not a manifest"),
        (lambda engine: overwrite(engine / "manifest.json", b""), "not JSON"),
    ],
)
def test_every_kind_of_damage_is_found_and_mended(store, harm, expected):
    engine = store.build(spec()).engine
    whole = content(engine.path)
    harm(engine.path)

    found = store.inspect(engine.key)
    assert not found.is_whole
    assert expected in " ".join(found.damage)

    again = store.build(spec())
    assert (again.outcome, again.damage) == ("rebuilt", found.damage)
    mended = content(engine.path)
    assert {name: mended[name] for name in FILES} == {name: whole[name] for name in FILES}
    assert set(mended) == set(whole)
    assert store.build(spec()).outcome == "kept"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[EngineStore, Engine, bytes]:
    store = EngineStore(tmp_path_factory.mktemp("store"))
    engine = store.build(spec()).engine
    return store, engine, (engine.path / "manifest.json").read_bytes()


@given(st.data())
def test_no_changed_manifest_is_believed(whole, data):
    store, engine, text = whole
    place = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != text[place]))
    overwrite(engine.path / "manifest.json", text[:place] + bytes([byte]) + text[place + 1 :])

    found = store.inspect(engine.key)

    # White space may change, what it says may not.
    assert found.damage or (found.engine and found.engine.manifest == engine.manifest)


def test_a_quick_look_sees_names_and_sizes_only(store):
    engine = store.build(spec()).engine
    flip(engine.path / "config.json")

    assert store.inspect(engine.key, contents=False).is_whole
    assert not store.inspect(engine.key).is_whole


def test_an_engine_for_use_is_there_and_whole_or_an_error(store):
    with pytest.raises(UsageError, match=f"engine {spec().key} is not here; build it first"):
        store.get(spec().key)
    engine = store.build(spec()).engine
    assert store.get(engine.key) == engine
    (engine.path / "config.json").unlink()
    with pytest.raises(UnreadableInput, match=r"damaged: config\.json: is missing; build it again"):
        store.get(engine.key)


def test_an_engine_in_the_wrong_place_is_not_taken_for_another(store):
    engine, other = store.build(spec()).engine, spec(layers=3)
    store.home(other.key).mkdir()
    engine.path.rename(store.engine_path(other.key))

    assert store.inspect(other.key).damage == (f"manifest.json is that of engine {engine.key}",)
    assert store.build(other).outcome == "rebuilt"


# ---- killed at any moment


@pytest.mark.parametrize(
    ("action", "states"),
    [
        ("build", {"absent", "whole"}),
        ("weights", {"absent", "whole"}),
        ("share", {"absent", "whole"}),
        ("repair", {"damaged", "absent", "whole"}),
        ("prune", {"whole", "absent"}),
        ("settings", {"whole", "whole with settings"}),
    ],
)
def test_killed_at_every_change_of_the_file_system_no_half_engine_is_accepted(memory_folder, action, states):
    found = kill("everywhere", action, memory_folder)

    assert found.pop("finished") == 1
    assert set(found) == states
    assert sum(found.values()) > 15


@pytest.mark.parametrize("action", ["build", "weights", "repair"])
def test_killed_after_any_time_no_half_engine_is_accepted(memory_folder, action):
    found = kill("anytime", action, memory_folder, 60)

    assert sum(found.values()) == 60
    assert set(found) <= {"absent", "whole", "damaged"}


def kill(how: str, action: str, folder: Path, *times: int) -> dict[str, int]:
    command = [
        sys.executable,
        "-W",
        "error",
        str(ROOT / "tests" / "kill_builds.py"),
        how,
        action,
        str(folder / "store"),
    ]
    done = subprocess.run([*command, *map(str, times)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


# ---- several builders


def python(code: str, *arguments: object, file_size_limit: int | None = None) -> str:
    def limit() -> None:
        if file_size_limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, file_size_limit))

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILDER = """
import sys, time
from pathlib import Path
from engines import spec, with_weights, write_shards
from harness.engines.store import EngineStore

def write(folder, progress):
    with open(sys.argv[2], "a") as file:
        file.write("wrote\\n")
    time.sleep(0.2)
    return write_shards(folder, progress)

waited = []
built = EngineStore(sys.argv[1]).build(with_weights(spec(), write), on_wait=waited.append)
print(built.outcome, *waited)
"""


def test_builds_of_one_key_at_the_same_time_make_one(store, tmp_path):
    command = [sys.executable, "-c", BUILDER, str(store.root), str(tmp_path / "writes")]
    builders = [subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [builder.communicate()[0].split()[0] for builder in builders]

    assert sorted(said) == ["built", "kept", "kept", "kept"]
    assert (tmp_path / "writes").read_text() == "wrote\n"
    [key] = store.keys()
    assert store.inspect(key).is_whole


def test_who_waits_says_for_whom_and_takes_over_when_that_one_is_killed(store, tmp_path):
    wanted = with_weights(spec(), write_shards)
    code = """
import sys, time
from harness.files import folder_lock
with folder_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(store.home(wanted.key))], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    waited = []

    def on_wait(who: str) -> None:
        waited.append(who)
        threading.Timer(0.05, holder.kill).start()

    assert store.build(wanted, on_wait=on_wait).outcome == "built"
    assert [who.split(" on ")[0] for who in waited] == [f"process {holder.pid}"]
    holder.communicate()


# ---- sharing between users


def modes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): stat.filemode(path.stat().st_mode)
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@contextlib.contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def test_a_folder_of_a_group_gives_the_group_everything_whatever_the_umask(store):
    store.root.mkdir()
    store.root.chmod(0o2775)
    with umask(0o077):
        key = store.build(with_weights(spec(), write_shards)).engine.key
        store.add_settings(key, "tp1", {"llm_args.yaml": "{}\n"})
        assert os.umask(0o077) == 0o077  # as it was

    found = modes(store.home(key))
    assert {mode for name, mode in found.items() if mode.startswith("d")} == {"drwxrwsr-x"}
    assert {mode for name, mode in found.items() if mode.startswith("-")} == {"-r--r--r--"}
    assert "engine/model-0.safetensors" in found


def test_a_private_folder_stays_private(store):
    store.root.mkdir()
    store.root.chmod(0o700)
    key = store.build(spec()).engine.key

    assert set(modes(store.home(key)).values()) == {"drwx------", "-r--------"}


def test_the_lock_of_another_member_of_the_group_can_be_taken(store):
    store.root.mkdir()
    store.root.chmod(0o2775)
    seen = {}

    def write(folder, progress):
        seen["mode"] = stat.filemode((folder.parent / ".lock").stat().st_mode)
        return write_shards(folder, progress)

    with umask(0o077):
        store.build(with_weights(spec(), write))

    assert seen["mode"] == "-rw-rw-r--"


def test_two_users_get_the_same_bytes_and_no_paths_of_theirs(tmp_path):
    alice, bob = (EngineStore(tmp_path / user / "store") for user in ("alice", "bob"))
    wanted = with_weights(spec(), write_shards)
    folders = [store.build(wanted).engine.path for store in (alice, bob)]
    for store in (alice, bob):
        store.add_settings(wanted.key, "tp1", {"llm_args.yaml": "{}\n"})

    one, other = map(content, folders)
    manifests = [json.loads(found.pop("manifest.json")) for found in (one, other)]
    for manifest in manifests:
        del manifest["built_at"], manifest["sha256"]
    assert one == other
    assert manifests[0] == manifests[1]
    assert not any(str(tmp_path).encode() in data for data in content(alice.root).values())


def test_a_copy_of_an_engine_elsewhere_is_an_engine(store, tmp_path):
    engine = store.build(spec()).engine
    shutil.copytree(engine.path, tmp_path / "copy")

    assert read_engine(tmp_path / "copy").manifest == engine.manifest
    with pytest.raises(UsageError, match=r"elsewhere: holds no engine: it has no manifest\.json"):
        read_engine(tmp_path / "elsewhere")


# ---- settings


def test_settings_stand_beside_the_engine_and_leave_it_alone(store):
    engine = store.build(spec()).engine
    before = content(engine.path)

    first = store.add_settings(engine.key, "1.2.1-tp1", {"llm_args.yaml": "a: 1\n", "balancer.yaml": "b: 2\n"})
    again = store.add_settings(engine.key, "1.2.1-tp1", {"balancer.yaml": "b: 2\n", "llm_args.yaml": "a: 1\n"})
    other = store.add_settings(engine.key, "1.2.1-tp1", {"llm_args.yaml": "a: 2\n"})

    assert [outcome for _, outcome in (first, again, other)] == ["built", "kept", "built"]
    assert first[0] == again[0] != other[0]
    assert store.settings(engine.key) == sorted([first[0], other[0]])
    assert content(first[0]) == {"llm_args.yaml": b"a: 1\n", "balancer.yaml": b"b: 2\n"}
    assert content(engine.path) == before
    assert store.build(spec()).outcome == "kept"


def test_changed_settings_are_written_anew(store):
    key = store.build(spec()).engine.key
    folder, _ = store.add_settings(key, "tp1", {"llm_args.yaml": "max_batch_size: 8\n"})
    overwrite(folder / "llm_args.yaml", b"max_batch_size: 9\n")
    assert not settings_are_whole(folder)

    assert store.add_settings(key, "tp1", {"llm_args.yaml": "max_batch_size: 8\n"}) == (folder, "rebuilt")
    assert settings_are_whole(folder)


# ---- pruning


def test_the_engines_not_wanted_for_longest_go_first(store):
    keys = [store.build(spec(layers=layers)).engine.key for layers in (1, 2, 3)]
    for wanted_s, key in enumerate(keys):
        os.utime(store.engine_path(key), (wanted_s + 1, wanted_s + 1))
    store.build(spec(layers=1))  # wanted again
    each = max(held.engine_bytes for held in holdings(store))

    planned = prune(store, 2 * each, dry_run=True)
    assert store.keys() == sorted(keys)
    pruned = prune(store, 2 * each)

    assert planned == pruned
    assert [held.key for held in pruned.removed] == [keys[1]]
    assert pruned.kept == 2
    assert pruned.kept_bytes == disk_bytes([store.root])
    assert store.keys() == sorted([keys[0], keys[2]])
    assert prune(store, 2 * each).removed == ()


def test_what_somebody_is_writing_stays(store):
    key = store.build(spec()).engine.key
    with folder_lock(store.home(key)):
        assert prune(store, 0).in_use == (key,)
    assert store.inspect(key).is_whole
    assert [held.key for held in prune(store, 0).removed] == [key]
    assert list(store.root.iterdir()) == []


def test_only_what_belongs_to_the_store_is_touched(store):
    key = store.build(spec()).engine.key
    (store.root / "notes.txt").write_text("mine")
    (store.root / "checkpoints").mkdir()
    (store.home(key) / "mine.txt").write_text("mine")

    prune(store, 0)

    assert (
        sorted(path.relative_to(store.root).as_posix() for path in store.root.rglob("*"))
        == [
            key,
            f"{key}/mine.txt",
            "checkpoints",
            "notes.txt",
        ]
        or store.inspect(key).engine is None
    )
    assert (store.root / "notes.txt").read_text() == (store.home(key) / "mine.txt").read_text() == "mine"
    assert (store.root / "checkpoints").is_dir()


def test_a_store_that_is_not_there_holds_nothing(store):
    assert store.keys() == []
    assert holdings(store) == []


# ---- room


def test_room_is_looked_for_before_anything_is_written(store):
    huge = with_weights(spec(), write_shards, disk_bytes=10**18)
    with pytest.raises(EnvironmentUnfit, match=r"2 engines need 1000000000\.0 GB of disk and [0-9.]+ GB are free"):
        check_space(store, [spec(), huge])
    with pytest.raises(EnvironmentUnfit, match="1 engine needs 1000000000"):
        check_space(store, [huge])
    assert not store.root.exists()


def test_memory_is_looked_for_too(store):
    available = available_memory_bytes()
    assert available
    hungry = with_weights(spec(), write_shards, memory_bytes=100 * available)
    with pytest.raises(EnvironmentUnfit, match=r"writing the weights needs [0-9.]+ GB of memory and [0-9.]+ GB are"):
        check_space(store, [hungry])


def test_what_an_unfinished_build_wrote_needs_no_room_again(store):
    wanted = with_weights(spec(), write_shards)
    full = check_space(store, [wanted])
    building = store.home(wanted.key) / "building"
    building.mkdir(parents=True)
    (building / "model-0.safetensors").write_bytes(SHARDS["model-0.safetensors"])

    assert full - check_space(store, [wanted]) == 1000
    assert check_space(store, []) == 0


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 bytes"), (1500, "2 kB"), (4_560_000, "4.6 MB"), (70.55e9, "70.5 GB")]
)
def test_sizes_are_said_in_units_of_people(size, text):
    assert gigabytes(size) == text
