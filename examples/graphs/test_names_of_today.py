"""Names that the notes use, or that are used in their place."""

from __future__ import annotations

import pytest
import torch
from inductor import compiled, needs_compiler
from models.gelu import spelled_out


@pytest.mark.claim("G10")
def test_no_backend_is_called_nvfuser():
    with pytest.raises(torch._dynamo.exc.InvalidBackend, match="nvfuser"):  # noqa: SLF001
        torch.compile(torch.relu, backend="nvfuser")

    assert "inductor" in torch.compiler.list_backends()


@needs_compiler
@pytest.mark.slow
@pytest.mark.claim("G10")
def test_what_took_its_place_gives_the_same():
    x = torch.randn(64, 64, device="cuda" if torch.cuda.is_available() else "cpu")

    torch.testing.assert_close(compiled(spelled_out)(x), spelled_out(x))


def test_an_array_becomes_a_tensor_by_from_numpy():
    assert not hasattr(torch, "from_array")
    assert hasattr(torch, "from_numpy")
