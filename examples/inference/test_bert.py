"""BERT-base from its settings, with random weights, for a pair of short sentences.

The note's times are those of ResNet-18's clock: not to be trusted. Its TorchScript is
deprecated and cannot script the models of transformers any more.
"""

from __future__ import annotations

import pytest
import torch
from inductor import compiled, kernels_of, needs_compiler, operations_of

import pytest_gpuperf as gpuperf


TOKENS = 14
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
LEAST = {"cpu": 1.04, "cuda": 1.2}


def network(device, **sizes):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.BertConfig(**sizes)
    model = transformers.BertModel(settings).eval().requires_grad_(requires_grad=False)
    return model.to(device)


def sentences(device):
    numbers = torch.arange(TOKENS, device=device)[None]
    return {"input_ids": 1000 + numbers, "token_type_ids": (numbers > 6).long()}


@pytest.mark.claim("G2")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of all that is deprecated in a trace
def test_a_trace_of_a_small_one_gives_the_same():
    model = network("cpu", **SMALL)
    tokens = sentences("cpu")

    traced = torch.jit.trace(model, example_kwarg_inputs=tokens, strict=False)

    torch.testing.assert_close(
        traced(**tokens)["last_hidden_state"], model(**tokens).last_hidden_state
    )


@needs_compiler
@pytest.mark.claim("G2")
def test_a_compiled_bert_has_fewer_kernels(shown):
    model, tokens = network("cpu", **SMALL), sentences("cpu").values()

    def states(words, kinds):
        return model(words, token_type_ids=kinds).last_hidden_state

    before, after = operations_of(states, *tokens), kernels_of(states, *tokens)

    shown(before, after, "kernels")
    assert after < 0.75 * before


@pytest.mark.claim("G2", gate="time")
@needs_compiler
@pytest.mark.slow
@gpuperf.tolerance(ms="1%", detect="5%")
def test_bert_base_is_quicker_compiled(gpuperf, clock):
    model, tokens = network(clock), sentences(clock)
    fused = compiled(model)
    torch.testing.assert_close(
        fused(**tokens).last_hidden_state,
        model(**tokens).last_hidden_state,
        rtol=1e-3,
        atol=1e-3,
    )

    result = gpuperf.compare(
        lambda: model(**tokens), lambda: fused(**tokens), speedup=LEAST[clock]
    )

    assert result.time.verdict != "slower"
