"""Boxes, anchors, masks and maps."""

import torch
import torch.nn.functional as F


dev = torch.device("cuda", 0)


def some_boxes(n):
    xy = torch.rand(n, 2, device=dev) * 50
    return torch.cat([xy, xy + torch.rand(n, 2, device=dev) * 20 + 1], 1)


def box_iou(a, b):
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area_a[:, None] + area_b - inter)


def suppression_on_the_host():
    boxes, scores = some_boxes(6), torch.rand(6, device=dev)
    order = scores.argsort(descending=True)
    over = (box_iou(boxes, boxes) > 0.5).cpu()
    keep, gone = [], set()
    for i in order.tolist():
        if i in gone:
            continue
        keep.append(i)
        gone |= set(over[i].nonzero().flatten().tolist())
    return boxes[keep]


def suppression_on_the_gpu():
    boxes, scores = some_boxes(6), torch.rand(6, device=dev)
    order = scores.sort(descending=True).indices
    boxes = boxes[order]
    iou = box_iou(boxes, boxes).triu(diagonal=1)
    keep = iou.max(dim=0).values < 0.5
    return boxes[keep], scores[order][keep]


def soft_suppression():
    boxes, scores = some_boxes(5), torch.rand(5, device=dev)
    for _ in range(3):
        i = scores.argmax()
        iou = box_iou(boxes[i][None], boxes)[0]
        decay = torch.exp(-(iou**2) / 0.5)
        decay[i] = 1
        scores = scores * decay
    kept = scores > 0.05
    return int(kept.sum())


def match_anchors():
    anchors, gt = some_boxes(30), some_boxes(3)
    iou = box_iou(gt, anchors)
    best, which = iou.max(dim=0)
    matches = which.clone()
    matches[best < 0.3] = -1
    matches[(best >= 0.3) & (best < 0.7)] = -2
    pos = torch.where(matches >= 0)[0]
    neg = torch.where(matches == -1)[0]
    num_pos = min(pos.numel(), 8)
    pos = pos[torch.randperm(pos.numel(), device=dev)[:num_pos]]
    neg = neg[torch.randperm(neg.numel(), device=dev)[: 16 - num_pos]]
    return pos, neg


def encode_and_decode():
    a, b = some_boxes(4), some_boxes(4)
    wh, gw = a[:, 2:] - a[:, :2], b[:, 2:] - b[:, :2]
    d = torch.cat(
        [((b[:, :2] + b[:, 2:]) - (a[:, :2] + a[:, 2:])) / 2 / wh, torch.log(gw / wh)],
        1,
    )
    d = d / torch.tensor([0.1, 0.1, 0.2, 0.2], device=dev)
    d = d.clamp(max=4.135)
    x1, y1, x2, y2 = b.unbind(-1)
    b[:, 0::2].clamp_(min=0, max=40)
    big = ((x2 - x1) >= 2) & ((y2 - y1) >= 2)
    return d, big.nonzero().squeeze(1)


def detections_to_json():
    boxes = some_boxes(3)
    labels = torch.randint(5, (3,), device=dev)
    scores = torch.rand(3, device=dev)
    out = []
    for box, label, score in zip(boxes, labels, scores):
        out.append(
            {
                "bbox": [round(v, 2) for v in box.tolist()],
                "category": label.item(),
                "score": float(score),
            }
        )
    return out


def detections_to_json_in_one_go():
    boxes = some_boxes(3).cpu().numpy()
    labels = torch.randint(5, (3,), device=dev).cpu().tolist()
    return [{"bbox": b.tolist(), "category": c} for b, c in zip(boxes, labels)]


def peaks_of_heatmaps():
    heat = torch.rand(2, 3, 16, 16, device=dev)
    peak = F.max_pool2d(heat, 3, stride=1, padding=1)
    heat = heat * (peak == heat).float()
    score, flat = heat.flatten(2).topk(5)
    ys, xs = flat // 16, flat % 16
    center = torch.stack([xs, ys], -1).float()
    return center[score > 0.3], score[0, 0, 0].item()


def boxes_of_masks():
    masks = torch.rand(3, 12, 12, device=dev) > 0.7
    boxes = torch.zeros(3, 4, device=dev)
    for i, mask in enumerate(masks):
        ys, xs = torch.where(mask)
        if ys.numel() == 0:
            continue
        boxes[i, 0] = xs.min()
        boxes[i, 1] = ys.min()
        boxes[i, 2] = xs.max()
        boxes[i, 3] = ys.max()
    return boxes


def sample_features_at_points():
    feats = torch.randn(2, 8, 10, 10, device=dev, requires_grad=True)
    grid = torch.rand(2, 5, 1, 2, device=dev) * 2 - 1
    sampled = F.grid_sample(feats, grid, align_corners=False)
    up = F.interpolate(feats, scale_factor=2, mode="bilinear", align_corners=False)
    down = F.interpolate(up, size=(5, 5), mode="nearest")
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]], device=dev).repeat(2, 1, 1)
    warped = F.grid_sample(
        feats,
        F.affine_grid(theta, feats.size(), align_corners=False),
        align_corners=False,
    )
    (sampled.sum() + down.sum() + warped.sum()).backward()


def segmentation_step():
    logits = torch.randn(2, 4, 8, 8, device=dev, requires_grad=True)
    target = torch.randint(4, (2, 8, 8), device=dev)
    target[target == 3] = 255
    weight = torch.bincount(target.flatten().clamp(max=3), minlength=4).float()
    weight = weight.sum() / (weight + 1)
    F.cross_entropy(logits, target, weight=weight, ignore_index=255).backward()
    pred = logits.detach().argmax(1)
    colors = torch.randint(255, (4, 3), dtype=torch.uint8)
    return colors.to(dev)[pred]


def images_of_several_sizes():
    images = [torch.rand(3, h, w, device=dev) for h, w in ((8, 10), (12, 6))]
    h, w = (max(s) for s in zip(*[i.shape[-2:] for i in images]))
    out = images[0].new_zeros(2, 3, h, w)
    for img, pad in zip(images, out):
        pad[:, : img.shape[1], : img.shape[2]].copy_(img)
    mean = torch.as_tensor([0.4, 0.5, 0.6], dtype=out.dtype, device=out.device)
    return (out - mean[:, None, None]) / 0.2


def tiles_and_patches():
    x = torch.rand(2, 3, 16, 16, device=dev)
    patches = x.unfold(2, 4, 4).unfold(3, 4, 4).contiguous().view(2, 3, -1, 4, 4)
    cols = F.unfold(x, 4, stride=4)
    back = F.fold(cols, (16, 16), 4, stride=4)
    noise = torch.rand(2, 16, device=dev)
    keep = torch.argsort(noise, dim=1)[:, :4]
    kept = torch.gather(cols.transpose(1, 2), 1, keep[..., None].expand(-1, -1, 48))
    return patches, back, kept


def hungarian_costs_to_the_host():
    cost = torch.cdist(torch.rand(5, 4, device=dev), torch.rand(3, 4, device=dev), p=1)
    C = cost.detach().cpu().numpy()
    rows = C.argmin(0)
    src = torch.as_tensor(rows, dtype=torch.int64)
    matched = cost[src, torch.arange(3)]
    return matched.sum()


def connected_by_flood():
    mask = (torch.rand(1, 1, 8, 8, device=dev) > 0.5).float()
    seeds = torch.arange(64, device=dev).float().view(1, 1, 8, 8) * mask
    for _ in range(3):
        grown = F.max_pool2d(seeds, 3, 1, 1) * mask
        changed = not torch.equal(grown, seeds)
        seeds = grown
    return changed
