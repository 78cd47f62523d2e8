"""Tree search by forks: UCT over the next decisions, rollouts by a simple rule, the simulator as model."""

import argparse

import gymnasium
import numpy as np


class Node:
    """A decision: its environment, what each action has led to."""

    def __init__(self, env, mask, so_far, over):
        self.env, self.so_far, self.over = env, so_far, over
        self.untried = [] if over else mask.nonzero()[0].tolist()
        self.children, self.visits, self.total = {}, 0, 0.0

    def child(self, action):
        """The decision that an action leads to."""
        env = self.env.fork()
        _, reward, done, cut, info = env.step(action)
        node = Node(env, info["action_mask"], self.so_far + reward, done or cut)
        self.children[action] = node
        return node

    def best(self):
        """The child with the highest upper confidence bound."""
        children = list(self.children.values())
        values = np.array([child.total / child.visits for child in children])
        visits = np.array([child.visits for child in children])
        scaled = (values - values.min()) / (np.ptp(values) or 1.0)
        return children[int((scaled + np.sqrt(0.5 * np.log(self.visits) / visits)).argmax())]


def rollout(node, steps):
    """The return so far, and of starting the first job that fits for some steps."""
    if node.over:
        return node.so_far
    env, mask, total = node.env.fork(), node.env.action_masks(), node.so_far
    for _ in range(steps):
        _, reward, done, cut, info = env.step(int(mask.argmax()))
        mask, total = info["action_mask"], total + reward
        if done or cut:
            break
    return total


def search(env, mask, simulations, steps):
    """The action that was tried most often."""
    root = Node(env, mask, 0.0, False)
    for _ in range(simulations):
        path = [root]
        while not path[-1].untried and path[-1].children:
            path.append(path[-1].best())
        if path[-1].untried:
            path.append(path[-1].child(path[-1].untried.pop(0)))
        value = rollout(path[-1], steps)
        for node in path:
            node.visits, node.total = node.visits + 1, node.total + value
    return max(root.children, key=lambda action: root.children[action].visits)


def main(decisions=None, simulations=40, steps=60, seed=0):
    """Play an episode (or so many decisions) by searching each; its mean JCT, or None if it is not over."""
    env = gymnasium.make("ringyard:ringyard/Contention-Queue-v0").unwrapped  # imports ringyard first
    _, info = env.reset(seed=seed)
    while decisions is None or decisions > 0:
        action = search(env, info["action_mask"], simulations, steps)
        _, _, done, cut, info = env.step(action)
        decisions = None if decisions is None else decisions - 1
        if done or cut:
            print(f"{info['episode_jct']:,.1f} s mean JCT")
            return info["episode_jct"]
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=40)
    main(simulations=parser.parse_args().simulations)
