"""A small CNN on random digits, with loaders, an evaluation and a checkpoint.

A comment ``waits:`` says how often the host waits on its line, for which operation,
and in which phase where that is not the forward one.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch import optim
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR


class Digits(torch.utils.data.Dataset):
    def __init__(self, size):
        self.images = torch.randn(size, 1, 12, 12)
        self.labels = torch.randint(10, (size,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(8 * 4 * 4, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data = data.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(f"epoch {epoch} {batch_idx}")
            print(f"loss {loss.item():.6f}")  # waits: 4 _local_scalar_dense


def test(model, device, test_loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for images, labels in test_loader:
            data = images.to(device)  # waits: 4 _to_copy
            target = labels.to(device)  # waits: 4 _to_copy
            output = model(data)
            loss = F.nll_loss(output, target, reduction="sum")
            test_loss += loss.item()  # waits: 4 _local_scalar_dense
            pred = output.argmax(dim=1, keepdim=True)
            hits = pred.eq(target.view_as(pred))
            correct += hits.sum().item()  # waits: 4 _local_scalar_dense
    total = len(test_loader.dataset)
    print(f"loss {test_loss / total:.4f}, {correct}/{total} correct")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log-interval", type=int, default=2)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    device = torch.device("cuda" if use_cuda else "cpu")
    options = {"batch_size": 8, "pin_memory": use_cuda}
    train_loader = torch.utils.data.DataLoader(
        Digits(32), shuffle=True, num_workers=args.workers, **options
    )
    test_loader = torch.utils.data.DataLoader(Digits(16), **options)
    model = Net().to(device)  # waits: 8 _to_copy
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mnist.pt")
        torch.save(model.state_dict(), path)  # waits: 8 UntypedStorage.cpu


if __name__ == "__main__":
    main()
