"""The smallest learner there can be: what a new algorithm has to bring."""

import numpy as np

from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.policies import PointerPolicy


class FirstValid:
    """Takes the first valid action: the first visible job, by the first template that can place it."""

    flat = True

    def act(self, observations, masks):
        assert len(observations) == len(masks)
        return masks.argmax(axis=1)


class ToyLearner:
    """Counts decisions and learns nothing."""

    flat = True
    masked = True
    decisions = 0
    policy = FirstValid()

    def setup(self, environments, seed, saved=None):
        self.decisions = saved.metadata["decisions"] if saved else 0

    def load_weights(self, weights):
        assert weights.arrays["decisions"] >= 0

    def learn(self, total_decisions, callback):
        callback({})
        while self.decisions < total_decisions:
            self.decisions += 500
            callback({"toy/decisions": self.decisions})

    def state(self):
        return Checkpoint({}, {"decisions": self.decisions})

    def weights(self):
        return Checkpoint({"decisions": np.array(self.decisions)}, {})

    def load(self, saved):
        assert saved.arrays["decisions"] >= 0
        return self.policy


class Pointer(PointerPolicy):
    """A network of somebody's own."""
