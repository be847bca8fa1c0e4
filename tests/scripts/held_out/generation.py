"""Language models: generation loops, masks, packing, positions."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.nn.utils.rnn import pad_packed_sequence
from torch.nn.utils.rnn import pad_sequence


device = torch.device("cuda")
VOCAB = 31
EOS = 2


def next_logits(ids):
    return torch.randn(ids.shape[0], VOCAB, device=ids.device)


def greedy_until_eos():
    ids = torch.ones(2, 3, dtype=torch.long, device=device)
    finished = torch.zeros(2, dtype=torch.bool, device=device)
    for _ in range(4):
        token = next_logits(ids).argmax(-1)
        token = torch.where(finished, EOS, token)
        ids = torch.cat([ids, token[:, None]], dim=-1)
        finished |= token == EOS
        if finished.all():
            pass
    return ids.tolist()


def greedy_checked_now_and_then():
    ids = torch.ones(2, 3, dtype=torch.long, device=device)
    unfinished = torch.ones(2, dtype=torch.long, device=device)
    for i in range(6):
        token = next_logits(ids).argmax(-1)
        token = token * unfinished + EOS * (1 - unfinished)
        unfinished = unfinished.mul((token != EOS).long())
        ids = torch.cat((ids, token.unsqueeze(1)), 1)
        if i % 3 == 2 and unfinished.max() == 0:
            pass
    return ids[:, 3:].cpu()


def sample_top_k_and_top_p():
    ids = torch.ones(2, 3, dtype=torch.long, device=device)
    for _ in range(3):
        logits = next_logits(ids) / 0.8
        v, _ = torch.topk(logits, 10)
        logits[logits < v[:, [-1]]] = -float("inf")
        sorted_logits, order = torch.sort(logits, descending=True)
        cum = sorted_logits.softmax(-1).cumsum(-1)
        remove = cum > 0.95
        remove[:, 1:] = remove[:, :-1].clone()
        remove[:, 0] = False
        logits = logits.masked_fill(remove.scatter(1, order, remove), float("-inf"))
        ids = torch.cat([ids, torch.multinomial(F.softmax(logits, -1), 1)], 1)
    return ids


def sample_by_exponential_race():
    logits = torch.randn(4, VOCAB, device=device)
    probs = torch.softmax(logits, -1)
    q = torch.empty_like(probs).exponential_(1)
    token = torch.argmax(probs / q, dim=-1, keepdim=True).to(dtype=torch.int)
    gumbel = -torch.empty_like(logits).exponential_().log()
    hard = F.gumbel_softmax(logits + gumbel, tau=0.5, hard=True)
    return token, hard


def repetition_penalty():
    ids = torch.randint(VOCAB, (2, 8), device=device)
    scores = next_logits(ids)
    score = torch.gather(scores, 1, ids)
    score = torch.where(score < 0, score * 1.2, score / 1.2)
    scores = scores.scatter(1, ids, score)
    scores[:, EOS] = -float("inf")
    banned = [5, 6]
    scores[:, banned] = -float("inf")
    return scores


def no_repeated_bigrams():
    ids = torch.randint(VOCAB, (2, 6), device=device)
    scores = next_logits(ids)
    for row, tokens in enumerate(ids):
        seen = tokens.tolist()
        banned = [b for a, b in zip(seen, seen[1:]) if a == seen[-1]]
        scores[row, banned[:0] + [1]] = float("-inf")
    return scores


def beam_search():
    beams, n = 3, 2
    scores = torch.zeros(n, beams, device=device)
    scores[:, 1:] = -1e9
    ids = torch.ones(n * beams, 1, dtype=torch.long, device=device)
    for _ in range(3):
        logp = F.log_softmax(next_logits(ids), -1)
        total = (logp + scores.view(-1, 1)).view(n, -1)
        scores, flat = torch.topk(total, beams)
        beam = torch.div(flat, VOCAB, rounding_mode="floor")
        token = flat % VOCAB
        row = (beam + torch.arange(n, device=device)[:, None] * beams).view(-1)
        ids = torch.cat([ids.index_select(0, row), token.view(-1, 1)], -1)
    best = scores.argmax(-1)
    return [ids.view(n, beams, -1)[b, i].tolist() for b, i in enumerate(best)]


def stop_strings_on_the_host():
    ids = torch.randint(VOCAB, (1, 5), device=device)
    for _ in range(2):
        token = next_logits(ids).argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], 1)
        text = "".join(chr(65 + t) for t in ids[0].tolist())
        if text.endswith("STOP") or token.item() == EOS:
            continue
    return text


def cache_that_grows():
    keys, values = None, None
    for _ in range(3):
        q, k, v = torch.randn(3, 2, 4, 1, 8, device=device)
        keys = k if keys is None else torch.cat([keys, k], dim=2)
        values = v if values is None else torch.cat([values, v], dim=2)
        F.scaled_dot_product_attention(q, keys, values)
    return keys.shape


def cache_that_is_static():
    cache = torch.zeros(2, 4, 16, 8, device=device)
    pos = torch.tensor([0], device=device)
    for _ in range(3):
        k = torch.randn(2, 4, 1, 8, device=device)
        cache.index_copy_(2, pos, k)
        cache[:, :, pos] = k
        mask = torch.arange(16, device=device) <= pos
        F.scaled_dot_product_attention(
            k, cache, cache, attn_mask=mask[None, None, None, :]
        )
        pos += 1


def attention_masks():
    pad = torch.ones(2, 6, dtype=torch.long, device=device)
    pad[0, 4:] = 0
    causal = torch.full((6, 6), float("-inf"), device=device).triu_(1)
    mask = (
        causal[None, None]
        + (1.0 - pad[:, None, None, :].float()) * torch.finfo(torch.float32).min
    )
    if not pad.all():
        mask = mask.masked_fill(mask.isinf(), -1e4)
    position_ids = (pad.cumsum(-1) - 1).masked_fill(pad == 0, 1)
    q = torch.randn(2, 2, 6, 8, device=device)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask), position_ids


def rotary_positions():
    dim = 8
    inv = 1.0 / (10000 ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    pos = torch.arange(6, device=device).float()
    freqs = torch.outer(pos, inv.to(device))
    cos, sin = freqs.cos().repeat(1, 2), freqs.sin().repeat(1, 2)
    x = torch.randn(2, 6, dim, device=device)
    x1, x2 = x.chunk(2, -1)
    rotated = torch.cat((-x2, x1), -1)
    cis = torch.polar(torch.ones_like(freqs), freqs)
    as_complex = torch.view_as_complex(x.view(2, 6, -1, 2)) * cis
    return x * cos + rotated * sin, torch.view_as_real(as_complex).flatten(-2)


def packed_sequences_through_an_lstm():
    x = torch.randn(3, 5, 4, device=device)
    lengths = torch.tensor([5, 3, 2], device=device)
    lstm = nn.LSTM(4, 6, batch_first=True).to(device)
    packed = pack_padded_sequence(
        x, lengths.cpu(), batch_first=True, enforce_sorted=True
    )
    out, (h, _) = lstm(packed)
    out, n = pad_packed_sequence(out, batch_first=True)
    last = out[torch.arange(3), n - 1]
    return last, h[-1]


def packed_unsorted_through_a_gru():
    x = torch.randn(3, 5, 4, device=device)
    gru = nn.GRU(4, 6, batch_first=True, bidirectional=True).to(device)
    packed = pack_padded_sequence(x, [2, 5, 3], batch_first=True, enforce_sorted=False)
    out, _ = gru(packed)
    out, _ = pad_packed_sequence(out, batch_first=True, total_length=5)
    out.sum().backward()


def documents_packed_into_one_row():
    ids = torch.randint(3, VOCAB, (1, 12), device=device)
    ids[0, [3, 8]] = EOS
    ends = (ids[0] == EOS).nonzero(as_tuple=True)[0] + 1
    cu_seqlens = F.pad(ends, (1, 0)).to(torch.int32)
    longest = (cu_seqlens[1:] - cu_seqlens[:-1]).max().item() if len(ends) else 0
    doc = (ids[0] == EOS).cumsum(0)
    same = doc[:, None] == doc[None, :]
    return cu_seqlens, longest, same.tril()


def unpad_and_pad_again():
    x = torch.randn(2, 5, 4, device=device)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], device=device)
    seqlens = mask.sum(-1, dtype=torch.int32)
    index = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = seqlens.max().item()
    flat = x.view(-1, 4)[index]
    back = torch.zeros(10, 4, device=device)
    back[index] = flat
    return back.view(2, 5, 4), longest


def last_token_of_each_row():
    ids = torch.randint(3, VOCAB, (3, 6), device=device)
    ids[0, 4:] = 0
    hidden = torch.randn(3, 6, 8, device=device)
    at = torch.eq(ids, 0).int().argmax(-1) - 1
    at = at % ids.shape[-1]
    pooled = hidden[torch.arange(3, device=device), at]
    lengths = ids.ne(0).sum(-1)
    mean = (hidden * ids.ne(0).unsqueeze(-1)).sum(1) / lengths.unsqueeze(1)
    return pooled + mean


def draft_tokens_accepted():
    draft = torch.randint(VOCAB, (4,), device=device)
    p = torch.rand(4, device=device)
    q = torch.rand(4, device=device)
    ok = torch.rand(4, device=device) < p / q
    n = int((~ok).int().cumprod(0).sum())
    accepted = draft[: min(n, 4)]
    first_wrong = (~ok).nonzero()
    return accepted, first_wrong


def mask_tokens_for_pretraining():
    inputs = torch.randint(5, VOCAB, (2, 10), device=device)
    labels = inputs.clone()
    prob = torch.full(labels.shape, 0.15, device=device)
    prob.masked_fill_(inputs < 7, value=0.0)
    chosen = torch.bernoulli(prob).bool()
    labels[~chosen] = -100
    replaced = (
        torch.bernoulli(torch.full(labels.shape, 0.8, device=device)).bool() & chosen
    )
    inputs[replaced] = 4
    words = torch.randint(VOCAB, labels.shape, dtype=torch.long, device=device)
    rand = (
        torch.bernoulli(torch.full(labels.shape, 0.5)).bool().to(device)
        & chosen
        & ~replaced
    )
    inputs[rand] = words[rand]
    return inputs, labels


def transformer_layers_with_padding():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    x = torch.randn(2, 5, 16, device=device)
    pad = (
        torch.arange(5, device=device)[None]
        >= torch.tensor([5, 3], device=device)[:, None]
    )
    model(x, src_key_padding_mask=pad).sum().backward()
    causal = nn.Transformer.generate_square_subsequent_mask(5, device=device)
    model(x, mask=causal, is_causal=True)


def multihead_attention_with_weights():
    attn = nn.MultiheadAttention(16, 4, batch_first=True, device=device)
    x = torch.randn(2, 6, 16, device=device)
    out, w = attn(x, x, x, need_weights=True, average_attn_weights=False)
    entropy = -(w * w.clamp_min(1e-9).log()).sum(-1).mean()
    out.mean().backward()
    print("entropy", entropy.item())


def embeddings_in_bags():
    bag = nn.EmbeddingBag(20, 4, mode="mean").to(device)
    ids = torch.tensor([1, 2, 4, 5, 4, 3], device=device)
    offsets = torch.tensor([0, 3], device=device)
    bag(ids, offsets).sum().backward()
    tied = nn.Embedding(20, 4, padding_idx=0, max_norm=1.0, device=device)
    tied(ids).sum().backward()


def ragged_targets():
    targets = pad_sequence(
        [torch.ones(n, device=device) for n in (2, 4)], batch_first=True
    )
    lengths = (targets != 0).sum(1)
    cropped = targets[:, : lengths.max()]
    flat = torch.cat([row[:n] for row, n in zip(cropped, lengths)])
    return flat
