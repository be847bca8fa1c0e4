"""The variables of torchrun say which of its ranks a process is."""

from __future__ import annotations

import pytest

from pytest_gpuperf.distributed.torchrun import launch_of
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.environment import Launch


RANK_1 = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "night",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


def test_a_rank_of_torchruns_is_recognised() -> None:
    assert launch_of(RANK_1) == Launch(
        rank=1,
        count=4,
        local_rank=0,
        machines=2,
        host="10.0.0.1",
        port=29500,
        attempt="night/2",
        patience_s=3900.0,
    )


@pytest.mark.parametrize(
    "environ",
    [{}, {"WORLD_SIZE": "4"}, {**RANK_1, "WORLD_SIZE": "1"}, {"RANK": "0"}],
    ids=["nobody", "no rank", "one rank", "one rank of somebody's"],
)
def test_a_process_without_other_ranks_was_not_launched(
    environ: dict[str, str],
) -> None:
    assert launch_of(environ) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"TORCHELASTIC_RUN_ID": None},
            (
                "RANK=1 and WORLD_SIZE=4 are set, and torchrun did not set them: each "
                "rank would measure for itself; start them by torchrun -m pytest, or "
                "unset both"
            ),
        ),
        (
            {"TORCHELASTIC_USE_AGENT_STORE": "False"},
            (
                "torchrun does not share its store with the ranks, which agree by it: "
                "unset TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
            ),
        ),
        (
            {"MASTER_PORT": "ssh"},
            "MASTER_PORT='ssh' is set: expected a whole number, as torchrun sets it",
        ),
        (
            {"LOCAL_RANK": None},
            "LOCAL_RANK='' is set: expected a whole number, as torchrun sets it",
        ),
    ],
)
def test_ranks_of_others_are_refused(
    changes: dict[str, str | None], message: str
) -> None:
    changed = {**RANK_1, **changes}
    environ = {name: value for name, value in changed.items() if value is not None}

    with pytest.raises(UsageError) as refused:
        launch_of(environ)

    assert refused.value.text == message
