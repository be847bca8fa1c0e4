"""Reinforcement learning and distributions."""

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F


device = torch.device("cuda")


def advantages_by_gae():
    rewards = torch.randn(8, 4, device=device)
    values = torch.randn(9, 4, device=device)
    dones = torch.zeros(8, 4, device=device)
    adv = torch.zeros_like(rewards)
    last = 0
    for t in reversed(range(8)):
        alive = 1.0 - dones[t]
        delta = rewards[t] + 0.99 * values[t + 1] * alive - values[t]
        adv[t] = last = delta + 0.99 * 0.95 * alive * last
    returns = adv + values[:-1]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    return adv, returns


def epsilon_greedy():
    net = nn.Linear(4, 3).to(device)
    obs = np.random.randn(4).astype(np.float32)
    for eps in (0.0, 1.0):
        if np.random.rand() < eps:
            action = np.random.randint(3)
        else:
            with torch.no_grad():
                action = (
                    net(torch.from_numpy(obs).unsqueeze(0).to(device)).argmax(1).item()
                )
    return action


def categorical_policy_without_checks():
    logits = torch.randn(6, 4, device=device, requires_grad=True)
    dist = D.Categorical(logits=logits, validate_args=False)
    action = dist.sample()
    logp, entropy = dist.log_prob(action), dist.entropy().mean()
    (-(logp * torch.randn(6, device=device)).mean() - 0.01 * entropy).backward()
    return action.cpu().numpy()


def categorical_policy_with_checks():
    logits = torch.randn(6, 4, device=device)
    dist = D.Categorical(logits=logits)
    action = dist.sample()
    return dist.log_prob(action).sum()


def gaussian_policy():
    mean = torch.zeros(5, 2, device=device)
    log_std = torch.zeros(2, device=device, requires_grad=True)
    dist = D.Normal(mean, log_std.exp().expand_as(mean), validate_args=False)
    action = dist.rsample()
    logp = dist.log_prob(action).sum(-1)
    squashed = torch.tanh(action)
    logp = logp - torch.log(1 - squashed.pow(2) + 1e-6).sum(-1)
    logp.mean().backward()


def gaussian_policy_that_samples_with_checks():
    mean = torch.zeros(5, 2, device=device)
    std = torch.ones(5, 2, device=device)
    dist = D.Normal(mean, std)
    action = dist.sample()
    return D.Independent(dist, 1).log_prob(action)


def divergence_and_mixtures():
    p = D.Normal(
        torch.zeros(3, device=device), torch.ones(3, device=device), validate_args=False
    )
    q = D.Normal(
        torch.ones(3, device=device), torch.ones(3, device=device), validate_args=False
    )
    kl = D.kl_divergence(p, q).sum()
    bern = D.Bernoulli(logits=torch.randn(4, device=device), validate_args=False)
    x = bern.sample()
    unif = D.Uniform(
        torch.zeros(2, device=device), torch.ones(2, device=device), validate_args=False
    )
    return kl, bern.log_prob(x), unif.sample((3,))


def gamma_and_dirichlet():
    alpha = torch.ones(3, 4, device=device) * 2
    theta = D.Dirichlet(alpha, validate_args=False).rsample()
    g = torch._standard_gamma(alpha)
    lap = D.Laplace(
        torch.zeros(3, device=device), torch.ones(3, device=device), validate_args=False
    ).sample()
    return theta, g, lap


def clipped_surrogate():
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, eps=1e-5)
    obs = torch.randn(16, 4, device=device)
    act = torch.randint(2, (16,), device=device)
    old, adv = torch.randn(16, device=device), torch.randn(16, device=device)
    clipfracs = []
    for mb in np.random.permutation(16).reshape(2, 8):
        logp = F.log_softmax(policy(obs[mb]), -1).gather(1, act[mb, None]).squeeze(1)
        ratio = (logp - old[mb]).exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - (logp - old[mb])).mean()
            clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
        a = adv[mb]
        loss = torch.max(-a * ratio, -a * torch.clamp(ratio, 0.8, 1.2)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        stop = approx_kl > 0.01
    return stop, np.mean(clipfracs)


def q_learning_step():
    online, target = nn.Linear(4, 3).to(device), nn.Linear(4, 3).to(device)
    target.load_state_dict(online.state_dict())
    s, s2 = torch.randn(2, 8, 4, device=device)
    a = torch.randint(3, (8, 1), device=device)
    r = torch.randn(8, device=device)
    final = torch.tensor([False] * 6 + [True] * 2, device=device)
    nxt = torch.zeros(8, device=device)
    with torch.no_grad():
        nxt[~final] = target(s2[~final]).max(1).values
    q = online(s).gather(1, a).squeeze(1)
    F.smooth_l1_loss(q, r + 0.99 * nxt).backward()
    for t, o in zip(target.parameters(), online.parameters()):
        t.data.copy_(0.005 * o.data + 0.995 * t.data)


def replay_on_the_gpu():
    size = 16
    obs = torch.zeros(size, 4, device=device)
    rew = torch.zeros(size, device=device)
    for i in range(4):
        obs[i] = torch.as_tensor(np.random.randn(4).astype(np.float32))
        rew[i] = float(i)
    idx = torch.randint(0, 4, (3,), device=device)
    return obs[idx], rew[idx]


def replay_by_priority():
    prio = torch.rand(32, device=device) + 1e-3
    prob = prio.pow(0.6)
    prob /= prob.sum()
    idx = torch.multinomial(prob, 8, replacement=True)
    weights = (32 * prob[idx]).pow(-0.4)
    weights = weights / weights.max()
    td = torch.rand(8, device=device)
    prio[idx] = td + 1e-5
    return weights, idx.cpu().numpy()


def environments_in_a_vector():
    policy = nn.Linear(3, 2).to(device)
    obs = np.zeros((4, 3), dtype=np.float32)
    for _ in range(2):
        with torch.inference_mode():
            logits = policy(torch.as_tensor(obs, device=device))
            actions = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
        obs = obs + actions.cpu().numpy()[:, None].astype(np.float32)
    episode = torch.as_tensor(obs).to(device).sum(1)
    if (episode > 1e6).any():
        print("reset")


def soft_actor_critic_temperature():
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    opt = torch.optim.Adam([log_alpha], lr=1e-3)
    logp = torch.randn(8, device=device)
    loss = (-log_alpha.exp() * (logp - 2.0).detach()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    alpha = log_alpha.exp().item()
    return alpha * logp


def normalise_observations():
    mean = torch.zeros(4, device=device)
    var = torch.ones(4, device=device)
    count = torch.tensor(1e-4, device=device)
    for _ in range(2):
        x = torch.randn(8, 4, device=device)
        b_mean, b_var, n = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        delta = b_mean - mean
        total = count + n
        mean = mean + delta * n / total
        var = (var * count + b_var * n + delta**2 * count * n / total) / total
        count = total
    return ((x - mean) / torch.sqrt(var + 1e-8)).clamp(-10, 10)


def seeds_and_generators():
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    g = torch.Generator(device="cuda").manual_seed(3)
    a = torch.randn(4, generator=g, device=device)
    state = torch.cuda.get_rng_state()
    b = torch.rand(4, device=device)
    torch.cuda.set_rng_state(state)
    c = torch.normal(0.0, 1.0, (4,), device=device, generator=g)
    with torch.random.fork_rng(devices=[0]):
        torch.randn(2, device=device)
    return a, b, c, torch.poisson(b), torch.bernoulli(b), F.dropout(b, 0.5)
