"""Small networks in PyTorch that cover what an ONNX importer must support, with weights that differ from initial values.

`networks()` gives (name, module in evaluation mode, shape of an image)."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A residual block, as in ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 12, 2))
        self.fc = nn.Linear(12, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = F.adaptive_avg_pool2d(self.layer1(x), 1)
        return self.fc(torch.flatten(x, 1))


class Reshaping(nn.Module):
    """Flattens by view() with the batch size, as much PyTorch code does, and ends with a softmax."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.avg_pool2d(torch.sigmoid(self.conv(x)), 2, stride=2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2, stride=2)
        x = x.view(x.size(0), -1)
        x = F.dropout(F.relu(self.fc1(x)), 0.3, self.training)
        return F.log_softmax(self.fc3(torch.sigmoid(self.fc2(x))), dim=1)


class Inverted(nn.Module):
    """Depthwise convolutions, ReLU6, and the mean over the pixels, as in MobileNet v2."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
            nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 12, 1, bias=False), nn.BatchNorm2d(12))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(12, 10))

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class Odd(nn.Module):
    """Asymmetric kernels and paddings, ceil mode, averages without padding, no bias, a matrix product."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, (3, 5), padding=(1, 2), groups=2)
        self.conv2 = nn.Conv2d(8, 8, (1, 3), stride=2)
        self.conv3 = nn.Conv2d(8, 6, 3)
        self.bn = nn.BatchNorm1d(6 * 4 * 3)
        self.fc = nn.Linear(6 * 4 * 3, 7, bias=False)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, 2, 1, ceil_mode=True)
        x = self.conv2(F.pad(x, (1, 2, 0, 3)))
        x = F.avg_pool2d(x, (3, 2), 1, (1, 1), count_include_pad=False)
        x = F.max_pool2d(self.conv3(F.pad(F.relu(x), (1, 0, 2, 1))), 2, 2, ceil_mode=True)
        return self.fc(self.bn(torch.flatten(x, 1)))


class Local(nn.Module):
    """Plain convolutions with pooling between them; no linear layer at the end (Lin et al., 2013)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 8, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            nn.Dropout(0.5), nn.Conv2d(8, 10, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1),
            nn.Flatten())

    def forward(self, x):
        return self.net(x)


def settle(module, seed):
    """Sets all tensors to realistic values, neither 0 nor 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if name.endswith('num_batches_tracked'):
            continue
        if name.endswith('running_var'):
            tensor.uniform_(0.5, 2, generator=generator)
        elif name.endswith('running_mean'):
            tensor.normal_(0, 0.3, generator=generator)
        elif tensor.dim() == 1:
            tensor.uniform_(-0.3, 0.8, generator=generator)
        else:
            tensor.normal_(0, (2 / tensor[0].numel()) ** 0.5, generator=generator)
    return module.eval()


class Excited(nn.Module):
    """Squeeze-and-excitation and the activations of MobileNet v3 and EfficientNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.SiLU(), nn.Conv2d(4, 12, 1))
        self.conv = nn.Sequential(nn.Conv2d(12, 12, 1, bias=False), nn.BatchNorm2d(12), nn.SiLU())
        self.gate = nn.Linear(12, 12)
        self.classifier = nn.Sequential(nn.Linear(12, 20), nn.Mish(), nn.LeakyReLU(0.2), nn.ELU(0.7), nn.Linear(20, 10))

    def forward(self, x):
        x = self.stem(x)
        x = self.conv(F.hardsigmoid(self.squeeze(x)) * x)
        gate = torch.sigmoid(self.gate(x.mean([2, 3])))[:, :, None, None]
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x * gate, 1), 1))


class Branching(nn.Module):
    """Branches that are joined, divided and shuffled, as in SqueezeNet, DenseNet and ShuffleNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.wide = nn.Conv2d(8, 6, 3, padding=1)
        self.narrow = nn.Conv2d(8, 4, 1)
        self.dense = nn.Conv2d(18, 6, 3, padding=1)
        self.depthwise = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.fc = nn.Linear(24, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        features = [x, F.relu(self.wide(x)), F.relu(self.narrow(x))]
        features.append(F.relu(self.dense(torch.cat(features, 1))))
        x = torch.cat(features, 1)
        left, right = x.chunk(2, dim=1)
        x = torch.cat((left, self.depthwise(right)), 1)
        n, c, h, w = x.shape
        x = x.view(n, 3, c // 3, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Normalised(nn.Module):
    """Layer, group and instance normalisation, with parameters and without, and a linear layer of each position."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, 2, 1)
        self.layer = nn.LayerNorm(12, eps=1e-6)
        self.mix = nn.Linear(12, 24)
        self.group = nn.GroupNorm(4, 24)
        self.bare = nn.GroupNorm(3, 24, affine=False)
        self.instance = nn.InstanceNorm2d(24, affine=True)
        self.conv2 = nn.Conv2d(24, 8, 3)
        self.plain = nn.InstanceNorm2d(8)
        self.vector = nn.LayerNorm(8, elementwise_affine=False)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = self.mix(self.layer(self.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = self.bare(F.gelu(self.group(x)))
        x = self.plain(self.conv2(F.silu(self.instance(x))))
        return self.fc(self.vector(F.relu(x).mean([2, 3])))


class Dilated(nn.Module):
    """Taps apart, different strides, copied borders, and transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=(2, 1), stride=(1, 2), dilation=(2, 1), padding_mode='reflect')
        self.conv2 = nn.Conv2d(8, 8, (3, 2), padding='same', dilation=(1, 3), groups=4)
        self.edge = nn.ReplicationPad2d((0, 2, 1, 0))
        self.up1 = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.bn = nn.BatchNorm2d(8)
        self.up2 = nn.ConvTranspose2d(6, 5, (2, 3), stride=(1, 3), dilation=(2, 1), bias=False)
        self.fc = nn.Linear(5, 10)

    def forward(self, x):
        x = self.edge(torch.sigmoid(self.bn(self.conv2(torch.tanh(self.conv1(x))))))
        x = F.max_pool2d(x, (3, 2), stride=(2, 1), padding=1, dilation=2)
        x = self.up2(F.relu(self.up1(x)))
        return self.fc(F.avg_pool2d(x, (3, 2), stride=(2, 1)).mean([2, 3]))


class Adaptive(nn.Module):
    """Adaptive averages of windows of one size that overlap, and of different sizes; of fewer and of more pixels."""

    exporters = ['new']  # the older one does not know them,
    folded = False  # and the newer one's optimizer leaves nothing but their indices

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3)
        self.conv3 = nn.Conv2d(6, 4, 2)
        self.fc = nn.Linear(4 * 2 * 5, 10)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(torch.sigmoid(self.conv(x)), (3, 6))
        x = F.adaptive_avg_pool2d(torch.sigmoid(self.conv2(F.adaptive_avg_pool2d(x, (7, 8)))), (4, 3))
        x = F.adaptive_avg_pool2d(torch.tanh(self.conv3(x)), (2, 5))
        return self.fc(torch.flatten(x, 1))


def networks():
    sizes = [(Residual, (3, 32, 32)), (Reshaping, (1, 28, 28)), (Inverted, (3, 16, 16)), (Odd, (2, 15, 14)),
             (Local, (3, 15, 15)), (Excited, (3, 16, 16)), (Branching, (3, 14, 14)),
             (Normalised, (3, 13, 12)), (Dilated, (3, 14, 13)), (Adaptive, (3, 19, 17))]
    return [(kind.__name__.lower(), settle(kind(), i), size) for i, (kind, size) in enumerate(sizes)]
