"""Train a small classifier on digits. The data is random, so that nothing is downloaded."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


def train(model, loader, optimizer, device):
    total = 0.0
    correct = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        correct += (output.argmax(1) == labels).sum().item()
    return total / len(loader), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.rand(512, 1, 28, 28), torch.randint(10, (512,)))
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True)
    model = Classifier().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(options.epochs):
        loss, accuracy = train(model, loader, optimizer, device)
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
