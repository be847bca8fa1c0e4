"""A small GPT on random tokens: automatic mixed precision, fused AdamW, evaluation.

A comment ``waits:`` says how often the host waits on its line, for which operation,
and in which phase where that is not the forward one.
"""

import argparse
import math
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F


parser = argparse.ArgumentParser()
parser.add_argument("--dtype", choices=["float16", "bfloat16"], default="float16")
config = parser.parse_args()

max_iters = 4
eval_interval = 2
eval_iters = 2
log_interval = 2
accumulation = 2
batch_size, block_size, vocab_size, width, heads = 4, 16, 64, 32, 2
grad_clip = 1.0
learning_rate = 1e-3
device = "cuda" if torch.cuda.is_available() else "cpu"
device_type = "cuda" if "cuda" in device else "cpu"

torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[config.dtype]
context = nullcontext() if device_type == "cpu" else torch.autocast(device_type, dtype)

tokens = {
    "train": torch.randint(vocab_size, (4096,)),
    "val": torch.randint(vocab_size, (512,)),
}


def get_batch(split):
    source = tokens[split]
    starts = torch.randint(len(source) - block_size, (batch_size,))
    x = torch.stack([source[i : i + block_size] for i in starts])
    y = torch.stack([source[i + 1 : i + 1 + block_size] for i in starts])
    if device_type == "cuda":
        x = x.pin_memory().to(device, non_blocking=True)
        y = y.pin_memory().to(device, non_blocking=True)
    return x, y


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.project(x).split(c, dim=2)
        q, k, v = (h.view(b, t, heads, c // heads).transpose(1, 2) for h in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(block_size, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList([Block() for _ in range(1)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, idx, targets=None):
        positions = torch.arange(idx.size(1), dtype=torch.long, device=idx.device)
        x = self.dropout(self.tokens(idx) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None  # waits: 3 _to_copy
        logits = self.head(x)
        loss = F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -block_size:])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                kept = v[:, [-1]]  # waits: 3 _to_copy
                logits[logits < kept] = -float("inf")
            probs = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
        return idx


def configure_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decay, "weight_decay": 0.1},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=learning_rate, betas=(0.9, 0.95), fused=device_type == "cuda"
    )


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with context:
                _, loss = model(X, Y)
            losses[k] = loss.item()  # waits: 8 _local_scalar_dense
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it):
    return learning_rate * 0.5 * (1 + math.cos(math.pi * it / max_iters))


model = GPT()
model.to(device)  # waits: 14 _to_copy
scaler = torch.amp.GradScaler(device_type, enabled=config.dtype == "float16")
optimizer = configure_optimizer(model)
model = torch.compile(model)

X, Y = get_batch("train")
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: {losses['train']:.4f} {losses['val']:.4f}")
    for _ in range(accumulation):
        with context:
            _, loss = model(X, Y)
            loss = loss / accumulation
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        lossf = loss.item() * accumulation  # waits: 2 _local_scalar_dense
        print(f"iter {iter_num}: loss {lossf:.4f}")

model.eval()
start = torch.zeros((1, 1), dtype=torch.long, device=device)
with context:
    sample = model.generate(start, max_new_tokens=3, top_k=5)
print(sample[0].tolist())  # waits: 1 _to_copy
