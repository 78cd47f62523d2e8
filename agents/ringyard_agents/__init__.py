"""PPO agents on Ringyard: networks, training, evaluation, comparison and TensorBoard."""

import torch

# Two threads are many times slower than one on a busy machine and no faster on networks of this size.
torch.set_num_threads(1)
