"""A residual network on random images: meters, top-k accuracy, checkpoints.

A comment ``waits:`` says how often the host waits on its line, for which operation,
and in which phase where that is not the forward one.
"""

import tempfile
import time
from pathlib import Path

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        Residual(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.sum = self.count = self.avg = 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        text = f"{self.avg:.3f}"  # waits: 2 _local_scalar_dense
        return f"{self.name} {text}"


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, largest=True, sorted=True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [
            correct[:k].reshape(-1).float().sum(0, keepdim=True) * (100.0 / len(target))
            for k in topk
        ]


def train(loader, model, criterion, optimizer, scaler, device):
    losses, top1, top5 = AverageMeter("loss"), AverageMeter("@1"), AverageMeter("@5")
    batch_time = AverageMeter("time")
    model.train()
    end = time.time()
    for images, target in loader:
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        with torch.autocast("cuda"):
            output = model(images)
            loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), len(images))  # waits: 4 _local_scalar_dense
        top1.update(acc1[0].item(), len(images))  # waits: 4 _local_scalar_dense
        top5.update(acc5[0].item(), len(images))  # waits: 4 _local_scalar_dense
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # waits: 4 _local_scalar_dense optimizer
        scaler.update()
        batch_time.update(time.time() - end)
        end = time.time()
    print(losses, top1, top5)


def validate(loader, model, criterion, device):
    losses, top1 = AverageMeter("loss"), AverageMeter("@1")
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images = images.cuda(device, non_blocking=True)
            target = target.cuda(device, non_blocking=True)
            output = model(images)
            losses.update(criterion(output, target), len(images))
            top1.update(accuracy(output, target)[0], len(images))
    print(losses)
    return top1.avg


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    model = resnet().cuda(device)  # waits: 20 _to_copy
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4
    )
    scaler = torch.amp.GradScaler("cuda")
    images = torch.randn(16, 3, 8, 8)
    labels = torch.randint(10, (16,))
    dataset = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, pin_memory=True)
    best = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint.pth.tar")
        for epoch in range(2):
            train(loader, model, criterion, optimizer, scaler, device)
            acc1 = validate(loader, model, criterion, device)
            best = max(acc1, best)  # waits: 2 _local_scalar_dense
            state = {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, path)  # waits: 62 UntypedStorage.cpu
        there = torch.load(path, map_location=device)  # waits: 31 torch.load
        here = torch.load(path, map_location="cpu")
    model.load_state_dict(there["state_dict"])
    model.load_state_dict(here["state_dict"])  # waits: 20 copy_
    optimizer.load_state_dict(there["optimizer"])
    torch.cuda.synchronize()  # waits: 1 torch.cuda.synchronize


if __name__ == "__main__":
    main()
