from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EnvironmentUnfit, UnreadableInput, UsageError
from harness.files import (
    JournalFile,
    atomic_writer,
    dump_yaml,
    folder_lock,
    parse_yaml,
    read_journal,
    read_json,
    read_yaml,
    write_atomic,
    write_error,
)

#: Ten values, ten times over, seven times: no document of this size was meant.
ALIASES_OF_ALIASES = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdef", "bcdefg", strict=True)
)

ROOT = Path(__file__).resolve().parents[1]


def python(code: str, *arguments: object, file_size_limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process of its own; a limit on the size of files stands in for a full disk."""

    def limit() -> None:
        if file_size_limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, file_size_limit))

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )


# ---- atomic writes


def test_text_and_bytes_are_written_into_folders_that_did_not_exist(tmp_path):
    write_atomic(tmp_path / "a" / "b.txt", "G·Hsz\n")
    write_atomic(tmp_path / "a" / "c.bin", b"\x00\xff")

    assert (tmp_path / "a" / "b.txt").read_bytes() == b"G\xc2\xb7Hsz\n"
    assert (tmp_path / "a" / "c.bin").read_bytes() == b"\x00\xff"
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b.txt", "c.bin"]


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", "x")
    finally:
        os.umask(before)

    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_the_old_content_stays_until_the_new_is_complete(tmp_path):
    path = tmp_path / "report.md"
    write_atomic(path, "old")

    with atomic_writer(path) as file:
        file.write(b"new, first half")
        file.flush()
        assert path.read_text() == "old"
        file.write(b", second half")

    assert path.read_text() == "new, first half, second half"


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_what_goes_wrong_halfway_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "report.md"
    write_atomic(path, "old")

    def write_half() -> None:
        with atomic_writer(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_path_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "records.csv"
    write_atomic(path, "old")

    done = python(
        """
        import sys
        from harness.errors import EnvironmentUnfit
        from harness.files import write_atomic
        try:
            write_atomic(sys.argv[1], "x" * 100_000)
        except EnvironmentUnfit as error:
            print(error)
        """,
        path,
        file_size_limit=4096,
    )

    assert done.stdout.startswith(f"{path}: cannot be written: the limit on the size of a file is reached"), done.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "no space left on the device; free some, or write to another one"),
        (errno.EDQUOT, "the disk quota is used up; free some space, or write to another place"),
        (errno.EROFS, "the file system is read-only; write to another place"),
        (errno.EACCES, "permission denied; write to a folder that is yours"),
        (errno.ETXTBSY, "Text file busy"),
    ],
)
def test_each_failure_of_the_system_says_what_to_do(number, expected):
    error = write_error("out/index.html", OSError(number, os.strerror(number)))

    assert isinstance(error, EnvironmentUnfit)
    assert str(error) == f"out/index.html: cannot be written: {expected}"


IMPOSSIBLE_PATHS = {
    "": "an empty path names no file",
    " ": "an empty path names no file",
    "a\0b": r"'a\\x00b': a path holds no NUL byte",
    "x" * 256: "'x{40}…': the name is too long: a file's name has up to 255 bytes",
    "a/" * 2100: "the path is too long: 4200 bytes, where 4095 are the limit",
    "\ud800": "cannot be a path in this locale",
}


@pytest.mark.parametrize(
    "use", [lambda path: write_atomic(path, ""), read_yaml, lambda path: folder_lock(path).__enter__()]
)
@pytest.mark.parametrize(("path", "message"), IMPOSSIBLE_PATHS.items())
def test_a_path_that_no_file_can_have_is_told_before_it_is_opened(path, message, use):
    with pytest.raises(UsageError, match=message):
        use(path)


def test_a_path_that_cannot_be_a_file_is_the_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()

    with pytest.raises(UsageError, match="file/x: cannot be written: a part of the path is a file, not a folder"):
        write_atomic(tmp_path / "file" / "x", "")
    with pytest.raises(UsageError, match="folder: cannot be written: it is a folder"):
        write_atomic(tmp_path / "folder", "")
    with pytest.raises(UsageError, match="the name is too long"):
        write_atomic(tmp_path / ("x" * 300), "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


# ---- journals


def test_a_journal_gives_back_its_lines(tmp_path):
    path = tmp_path / "run" / "journal.jsonl"
    with JournalFile(path) as journal:
        journal.append('{"attempt": 1}')
        journal.append('{"attempt": 2}', '{"note": "b·KVSL"}')
        journal.append()

    assert read_journal(path) == (['{"attempt": 1}', '{"attempt": 2}', '{"note": "b·KVSL"}'], 0)


def test_a_half_written_last_line_is_ignored_by_readers_and_cut_off_by_the_next_writer(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"attempt": 1}\n{"attempt": 2}\n{"att')

    assert read_journal(path) == (['{"attempt": 1}', '{"attempt": 2}'], 5)
    with JournalFile(path) as journal:
        assert journal.dropped_bytes == 5
        journal.append('{"attempt": 3}')
    assert path.read_bytes() == b'{"attempt": 1}\n{"attempt": 2}\n{"attempt": 3}\n'


@given(st.lists(st.text().filter(lambda text: "\n" not in text).filter(str.isprintable), max_size=5), st.data())
def test_a_journal_cut_anywhere_keeps_every_complete_line(tmp_path_factory, lines, data):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with JournalFile(path) as journal:
        journal.append(*lines)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])

    kept, dropped = read_journal(path)

    assert kept == lines[: content[:cut].count(b"\n")]
    assert len("".join(f"{line}\n" for line in kept).encode()) + dropped == cut
    JournalFile(path).close()
    assert read_journal(path) == (kept, 0)


def test_the_last_complete_line_is_found_however_long_the_torn_one_is(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"first\n" + b"x" * 200_000)

    with JournalFile(path) as journal:
        assert journal.dropped_bytes == 200_000
    assert path.read_bytes() == b"first\n"


def test_a_full_disk_loses_no_line_that_was_written_and_leaves_no_half_one(tmp_path):
    path = tmp_path / "journal.jsonl"

    done = python(
        """
        import sys
        from harness.errors import EnvironmentUnfit
        from harness.files import JournalFile
        with JournalFile(sys.argv[1]) as journal:
            journal.append("a" * 999)
            journal.append("b" * 999)
            for line in ("c" * 3000, "d" * 3000):
                try:
                    journal.append(line)
                except EnvironmentUnfit as error:
                    print(error)
            journal.append("e" * 999)
        """,
        path,
        file_size_limit=4096,
    )

    message = f"{path}: cannot be written: the limit on the size of a file is reached; see `ulimit -f`"
    assert done.stdout.splitlines() == [message, message], done.stderr
    assert path.read_bytes() == b"".join(letter * 999 + b"\n" for letter in (b"a", b"b", b"e"))


def test_a_killed_writer_leaves_every_line_it_had_finished(tmp_path):
    path = tmp_path / "journal.jsonl"

    done = python(
        """
        import os, signal, sys
        from harness.files import JournalFile
        journal = JournalFile(sys.argv[1])
        journal.append("finished")
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )

    assert done.returncode == -signal.SIGKILL
    assert read_journal(path).lines == ["finished"]


def test_a_newline_inside_a_line_is_a_programming_error(tmp_path):
    with JournalFile(tmp_path / "journal.jsonl") as journal, pytest.raises(ValueError, match="no newline"):
        journal.append("two\nlines")


def test_a_journal_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(UnreadableInput, match=r"missing\.jsonl: cannot be read: No such file"):
        read_journal(tmp_path / "missing.jsonl")


def test_a_damaged_byte_costs_its_line_and_no_other(tmp_path):
    (tmp_path / "damaged.jsonl").write_bytes(b"fine\n\xff\xfe\n\xc2\xb7\nto")

    assert read_journal(tmp_path / "damaged.jsonl") == (["fine", None, "·"], 2)


# ---- locks


def test_two_processes_never_hold_one_folder(tmp_path):
    code = """
        import sys
        from harness.errors import EnvironmentUnfit
        from harness.files import folder_lock
        try:
            with folder_lock(sys.argv[1]):
                print("held")
        except EnvironmentUnfit as error:
            print(error)
        """
    with folder_lock(tmp_path / "run"):
        refused = python(code, tmp_path / "run").stdout
    allowed = python(code, tmp_path / "run").stdout

    host = re.escape(os.uname().nodename)
    assert re.fullmatch(
        re.escape(str(tmp_path / "run")) + rf": in use by process {os.getpid()} on {host} since [-0-9]+ [:0-9]+ UTC; "
        r"wait until it has ended, or write to another folder\n",
        refused,
    )
    assert allowed == "held\n"


def test_one_process_cannot_hold_a_folder_twice(tmp_path):
    with folder_lock(tmp_path), pytest.raises(EnvironmentUnfit, match="in use by process"), folder_lock(tmp_path):
        pass


def test_a_dead_process_holds_nothing(tmp_path):
    died = python(
        """
        import os, signal, sys
        from harness.files import folder_lock
        with folder_lock(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        tmp_path,
    )
    assert died.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]

    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_given_back_when_the_block_fails(tmp_path):
    with pytest.raises(RuntimeError), folder_lock(tmp_path):
        raise RuntimeError
    with folder_lock(tmp_path):
        pass


def test_processes_that_race_for_a_folder_take_turns(tmp_path):
    code = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from harness.errors import EnvironmentUnfit
        from harness.files import folder_lock
        mark, turns = Path(sys.argv[1], "mark"), 0
        while turns < 20:
            try:
                with folder_lock(sys.argv[1]):
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails where another one is inside
                    mark.unlink()
                    turns += 1
            except EnvironmentUnfit:
                pass
        """)
    racers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT) for _ in range(4)]
    assert [racer.wait() for racer in racers] == [0, 0, 0, 0]


# ---- YAML


def test_a_study_reads_as_plain_data(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("name: a1d\naxes: {G: [1, 2, 4]}\nthreshold: 5e-2\nfactor: 1.5\nnothing:\n")

    assert read_yaml(path) == {
        "name": "a1d",
        "axes": {"G": [1, 2, 4]},
        "threshold": 0.05,
        "factor": 1.5,
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64:8", "64:8"),  # YAML 1.1: 3848, base 60
        ("yes", "yes"),
        ("off", "off"),
        ("2026-01-31", "2026-01-31"),
        ("1e12", 1e12),
        ("1.0e+12", 1e12),
        ("4.8E12", 4.8e12),
        (".5", 0.5),
        ("017", 17),  # YAML 1.1: 15, octal
        ("0o17", 15),
        ("0x10", 16),
        ("-3", -3),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("2^0..2^6", "2^0..2^6"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    parsed = parse_yaml(f"[{text}]")

    assert parsed == [value]
    assert type(parsed[0]) is type(value)


def test_an_empty_file_is_none(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert read_yaml(tmp_path / "empty.yaml") is None


def test_anchors_and_merges_work():
    assert parse_yaml("base: &b {a: 1, k: 1}\nother:\n  <<: *b\n  k: 2\n") == {
        "base": {"a": 1, "k": 1},
        "other": {"a": 1, "k": 2},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden: 4096\nlayers: 32\nhidden: 8192\n", ":3:1: the key 'hidden' is there twice, first in line 1"),
        ("x: {a: 1, a: 2}", ":1:11: the key 'a' is there twice, first in line 1"),
        ("a: [1,\n b: }", ":2:5: expected the node content, but found '}'"),
        ("a:\tb\n\tc: d", ":1:3: found character '\\t' that cannot start any token"),
        ("a: b: c", ":1:5: mapping values are not allowed here"),
        ("--- 1\n--- 2\n", ":2:1: but found another document"),
        ("a: *nowhere", ":1:4: found undefined alias 'nowhere'"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor for the tag"),
        ("a: !!int many", ": not YAML: invalid literal for int() with base 10: 'many'"),
        ("[" * 10_000, ": nested too deeply"),
        ('a: "\\ud800"', ":1:4: half of a surrogate pair"),
        ("a: 0x" + "f" * 200, ":1:4: a number of 202 digits; the longest has 100"),
        ("a: &a [*a]", ": its aliases (*name) spell out more than 1,000,000 values"),
        (ALIASES_OF_ALIASES, ": its aliases (*name) spell out more than 1,000,000 values"),
    ],
)
def test_what_is_no_yaml_is_named_with_its_place(tmp_path, text, message):
    path = tmp_path / "variant.yaml"
    path.write_text(text)

    with pytest.raises(UsageError) as caught:
        read_yaml(path)

    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@given(st.text(alphabet=st.sampled_from(list("ab1: -[]{}\n\t'\"!&*#|>%@`?,<~.e\x00\ud83d"))))
def test_no_text_whatever_raises_anything_but_a_usage_error(text):
    with contextlib.suppress(UsageError):
        parse_yaml(text)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yaml: no such file"):
        read_yaml(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="is a folder, not a YAML file"):
        read_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nname: caf\xe9\n")
    with pytest.raises(UsageError, match=r"latin\.yaml:2: not UTF-8 text"):
        read_yaml(tmp_path / "latin.yaml")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "notepad.yaml").write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_yaml(tmp_path / "notepad.yaml") == {"name": "x"}


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
    | st.sampled_from(
        ["64:8", "yes", "1e12", "0o7", "017", "2026-01-31", "null", "~", "<<", "=", "1_0", ".inf", "- a"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abG·", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(plain_data)
def test_plain_data_survives_being_dumped_and_read(value):
    assert parse_yaml(dump_yaml(value)) == value


@given(plain_data)
def test_readers_of_yaml_1_1_see_the_same_text(value):
    import yaml

    # Numbers aside: 1.1 wants a dot and a sign in 1.0e+12, which is how they are dumped.
    assert yaml.safe_load(dump_yaml(value)) == value


# ---- JSON


def test_json_is_read_as_it_is(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": [1, 2.5, null, true, "\xc2\xb7"]}')

    assert read_json(tmp_path / "a.json") == {"a": [1, 2.5, None, True, "·"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{\n 'a': 1}", "a.json:2:2: not JSON: "),
        (b"", "a.json:1:1: not JSON: "),
        (b'{"a": {"b": 1, "b": 2}}', "a.json: the key 'b' is there twice in one object"),
        (b'{"a": "\xff"}', "a.json:1: not UTF-8 text"),
        (b"1" * 5000, "a.json: not JSON: "),
        (b'["\\uD800"]', "a.json: half of a surrogate pair"),
    ],
)
def test_what_is_no_json_is_named_with_its_place(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content)

    with pytest.raises(UsageError, match=re.escape(message)):
        read_json(tmp_path / "a.json")


def test_a_json_file_that_is_missing_or_a_folder(tmp_path):
    with pytest.raises(UsageError, match=r"b\.json: no such file"):
        read_json(tmp_path / "b.json")
    with pytest.raises(UsageError, match="is a folder, not a JSON file"):
        read_json(tmp_path)


def test_surrogate_pairs_as_json_writes_them_are_one_character(tmp_path):
    assert parse_yaml('"\\ud83d\\ude00"') == "😀"
    (tmp_path / "a.json").write_text('"\\ud83d\\ude00"')
    assert read_json(tmp_path / "a.json") == "😀"
