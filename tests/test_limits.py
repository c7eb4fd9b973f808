from __future__ import annotations

import pytest

from harness.backends.base import BackendFacts
from harness.runner.limits import Limits, Watch
from harness.runner.messages import Done, Failed, Message, Opened, Prepared, Preparing, Progress, Unanswered

LIMITS = Limits(startup_s=100, idle_s=10, arm_s=50)
OPENED = Opened(BackendFacts("simulated", "1", "none"))


def after(*said: tuple[float, Message]) -> tuple[float, str]:
    """The limit after messages at their times; the worker starts at 1000 s."""
    watch = Watch(LIMITS, 1000)
    for at_s, message in said:
        watch.note(message, 1000 + at_s)
    return watch.limit.at_s - 1000, watch.limit.reason


def test_until_the_backend_is_open_start_up_counts() -> None:
    assert after() == (100, "the backend was not open after 100 s")


def test_making_an_arm_ready_has_a_limit_of_its_own() -> None:
    assert after((90, OPENED), (91, Preparing(1))) == (141, "not ready to be timed after 50 s")


def test_while_sampling_silence_counts() -> None:
    begun = [(0.0, OPENED), (1.0, Preparing(1)), (2.0, Prepared(1))]
    assert after(*begun) == (12, "not a word for 10 s")
    assert after(*begun, (11, Progress(1, 5, 0))) == (21, "not a word for 10 s")
    assert after(*begun, (11, Unanswered(1, "invalid", "why"))) == (21, "not a word for 10 s")


def test_signs_of_life_do_not_go_on_for_ever() -> None:
    begun = [(0.0, OPENED), (1.0, Preparing(1)), (2.0, Prepared(1)), (3.0, Preparing(2)), (4.0, Prepared(2))]
    # Two arms, 50 s each, from when the last one was ready.
    assert after(*begun, (100, Progress(1, 5, 0))) == (104, "sampling of 2 arms took more than 100 s")


@pytest.mark.parametrize("last", [Done(), Failed("crash", "a bug")])
def test_after_its_last_word_a_worker_has_to_exit(last: Message) -> None:
    begun = [(0.0, OPENED), (1.0, Preparing(1)), (2.0, Prepared(1))]
    assert after(*begun, (49, last)) == (59, "did not exit within 10 s of its last word")
